/* tests/config/common.h: what the tests of this folder share. */
#ifndef KG_TEST_CONFIG_COMMON_H
#define KG_TEST_CONFIG_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/error.h"

/* The line that a user would see, "" if there was no error. */
static inline const char *line_of(const struct kg_error *error)
{
    static char line[1200];
    return error->status ? kg_error_line(error, line, sizeof line) : "";
}

/* A fresh folder for one test; removed by remove_tree. */
static inline char *make_folder(void)
{
    char *folder = strdup("/tmp/kgate-test-XXXXXX");
    assert_non_null(folder);
    assert_non_null(mkdtemp(folder));
    return folder;
}

static inline void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

#endif
