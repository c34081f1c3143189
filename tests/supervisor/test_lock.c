/* One run at a time on a GPU: runner/lock.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/lock.h"

static void test_lock(void **state)
{
    (void)state;
    char folder[] = "/tmp/kgate-lock-XXXXXX", path[128];
    struct kg_error error;
    int first, second, other;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    kg_error_init(&error);
    assert_int_equal(kg_lock_device(7, &first, &error), 0);
    assert_int_equal(kg_lock_device(8, &other, &error), 0);
    assert_int_not_equal(kg_lock_device(7, &second, &error), 0);
    assert_int_equal(second, -1);
    assert_non_null(strstr(error.text, "GPU 7"));
    close(first);
    kg_error_init(&error);
    assert_int_equal(kg_lock_device(7, &second, &error), 0);
    close(second);
    close(other);

    /* Not through a link that somebody put there. */
    snprintf(path, sizeof path, "%s/kgate-gpu-9.lock", folder);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_not_equal(kg_lock_device(9, &first, &error), 0);
    unlink(path);
    for (int i = 7; i <= 8; i++) {
        snprintf(path, sizeof path, "%s/kgate-gpu-%d.lock", folder, i);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
