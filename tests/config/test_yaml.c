/* The limits of the YAML reader that no golden folder can hold, and the text parsers. */
#include "tests/config/common.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runner/manifest.h"
#include "runner/text.h"
#include "runner/yaml.h"

static void refuse(const char *bytes, size_t size, const char *expected)
{
    struct kg_yaml *yaml;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_yaml_parse("m.yaml", bytes, size, &yaml, &error), KG_E_FORMAT);
    assert_null(yaml);
    assert_string_equal(line_of(&error), expected);
}

static void accept(const char *bytes, size_t size)
{
    struct kg_yaml *yaml;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_yaml_parse("m.yaml", bytes, size, &yaml, &error), 0);
    kg_yaml_free(yaml);
}

static char *repeat(const char *head, const char *unit, size_t n, size_t *size)
{
    size_t nh = strlen(head), nu = strlen(unit);
    char *text = malloc(nh + nu * n + 1);
    assert_non_null(text);
    strcpy(text, head);
    for (size_t i = 0; i < n; i++)
        memcpy(text + nh + nu * i, unit, nu);
    *size = nh + nu * n;
    text[*size] = '\0';
    return text;
}

static void ten_megabytes(void **state)
{
    (void)state;
    char *folder = make_folder();
    char *path = kg_text_format("%s/big.yaml", folder);
    size_t size;
    char *text = repeat("kgate: 1\nname: big\nsections:\n", "  - name: norms\n",
                        10 * 1000 * 1000 / 16, &size);
    write_file(path, text, size);
    struct kg_manifest *manifest;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_manifest_load(path, &manifest, &error), KG_E_FORMAT);
    char *expected = kg_text_format("%s: larger than 1048576 bytes", path);
    assert_string_equal(line_of(&error), expected);
    unlink(path);
    rmdir(folder);
    free(expected);
    free(text);
    free(path);
    free(folder);
}

static void size_is_exact(void **state)
{
    (void)state;
    size_t size;
    char *text = repeat("a: 1\n#", "x", KG_YAML_MAX_BYTES - 6, &size);
    assert_int_equal(size, KG_YAML_MAX_BYTES);
    accept(text, size);
    free(text);
    text = repeat("a: 1\n#", "x", KG_YAML_MAX_BYTES - 5, &size);
    refuse(text, size, "m.yaml: larger than 1048576 bytes");
    free(text);
}

static void node_count_is_exact(void **state)
{
    (void)state;
    size_t size;
    char *text = repeat("", "- 1\n", KG_YAML_MAX_NODES - 1, &size);
    accept(text, size);
    free(text);
    text = repeat("", "- 1\n", KG_YAML_MAX_NODES, &size);
    refuse(text, size, "m.yaml:100000:3: more than 100000 nodes");
    free(text);
}

static void depth_is_exact(void **state)
{
    (void)state;
    accept("[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", 33);
    refuse("[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", 35,
           "m.yaml:1:17: nested deeper than 16 levels");
}

/* Duplicates are found without comparing every key with every other. */
static void many_keys_are_quick(void **state)
{
    (void)state;
    enum { N = 49000 };
    char *text = malloc(N * 24 + 64);
    assert_non_null(text);
    size_t size = 0;
    for (int i = 0; i < N; i++)
        size += (size_t)sprintf(text + size, "aaaaaaaaa%d: 1\n", i);
    clock_t start = clock();
    accept(text, size);
    size += (size_t)sprintf(text + size, "aaaaaaaaa7: 1\n");
    refuse(text, size,
           "m.yaml:49001:1: duplicate key \"aaaaaaaaa7\", first seen in line 8");
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 5.0);
    free(text);
}

static void files_that_are_none(void **state)
{
    (void)state;
    struct kg_yaml *yaml;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_yaml_load("/tmp", &yaml, &error), KG_E_IO);
    assert_string_equal(line_of(&error), "/tmp: not a regular file");
    kg_error_init(&error);
    assert_int_equal(kg_yaml_load("/nowhere.yaml", &yaml, &error), KG_E_IO);
    assert_string_equal(line_of(&error), "/nowhere.yaml: No such file or directory");

    char *folder = make_folder();
    char *path = kg_text_format("%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    kg_error_init(&error);
    assert_int_equal(kg_yaml_load(path, &yaml, &error), KG_E_IO); /* and does not hang */
    unlink(path);
    rmdir(folder);
    free(path);
    free(folder);
}

/* Whatever the bytes are: an answer, and no memory error under a sanitizer. */
static void damaged_bytes(void **state)
{
    (void)state;
    static const char good[] = "kgate: 1\nname: \"a\\tb\"\nsections:\n  - {name: norms, "
                               "tags: [a, b]}\n  - name: |\n      text\n";
    char text[sizeof good];
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        memcpy(text, good, sizeof good);
        for (int j = 0; j < 3; j++) {
            random = random * 1664525u + 1013904223u;
            text[(random >> 8) % (sizeof good - 1)] =
                (i & 1) ? (char)(random >> 24)
                        : "\t\n &*!|>'\"%@`{}[],:?-#\\~"[(random >> 24) % 24];
        }
        struct kg_yaml *yaml;
        struct kg_error error;
        kg_error_init(&error);
        int rc = kg_yaml_parse("m", text, (random >> 4) % sizeof good, &yaml, &error);
        assert_true((rc == 0) == (yaml != NULL));
        assert_true((rc == 0) == (error.status == 0));
        kg_yaml_free(yaml);
    }
}

static void digest_is_of_the_bytes(void **state)
{
    (void)state;
    struct kg_yaml *yaml;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_yaml_parse("m", "a: 1\n", 5, &yaml, &error), 0);
    /* Pinned: results of different machines are compared by it. */
    assert_string_equal(kg_yaml_digest(yaml), "89cb548ce8c9c3163f958f84b9002113");
    kg_yaml_free(yaml);
}

static void seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds; /* 0: refused */
    } rows[] = {
        {"1s",          1     },
        {"250ms",       0.25  },
        {"1.5m",        90    },
        {"2h",          7200  },
        {"168h",        604800},
        {"169h",        0     },
        {"0s",          0     },
        {"0.0s",        0     },
        {"60",          0     },
        {"s",           0     },
        {"-1s",         0     },
        {"+1s",         0     },
        {" 1s",         0     },
        {"1s ",         0     },
        {"1 s",         0     },
        {"1.s",         0     },
        {".5s",         0     },
        {"1e3s",        0     },
        {"0x10s",       0     },
        {"nans",        0     },
        {"infs",        0     },
        {"",            0     },
        {"1234567890s", 0     },
        {"1S",          0     },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double value = 0;
        bool ok = kg_text_seconds(rows[i].text, &value);
        if (ok != (rows[i].seconds > 0) || value != rows[i].seconds)
            fail_msg("\"%s\" gave %d, %g", rows[i].text, ok, value);
    }
}

static void bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } rows[] = {
        {"1KiB",                       1024             },
        {"512MiB",                     536870912        },
        {"8GiB",                       8589934592       },
        {"16777215TiB",                16777215ull << 40},
        {"16777216TiB",                0                },
        {"0GiB",                       0                },
        {"8GB",                        0                },
        {"8",                          0                },
        {"8 GiB",                      0                },
        {"-8GiB",                      0                },
        {"1.5GiB",                     0                },
        {"99999999999999999999999KiB", 0                },
        {"",                           0                },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t value = 0;
        bool ok = kg_text_bytes(rows[i].text, &value);
        if (ok != (rows[i].bytes > 0) || value != rows[i].bytes)
            fail_msg("\"%s\" gave %d, %llu", rows[i].text, ok, (unsigned long long)value);
    }
}

static void numbers(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(kg_text_u64("18446744073709551615", UINT64_MAX, &v));
    assert_true(v == UINT64_MAX);
    assert_false(kg_text_u64("18446744073709551616", UINT64_MAX, &v));
    assert_false(kg_text_u64("11", 10, &v));
    assert_false(kg_text_u64("", 10, &v));
    assert_false(kg_text_u64("-1", 10, &v));
    assert_false(kg_text_u64("1a", 10, &v));
    assert_false(kg_text_u64(" 1", 10, &v));
}

static void nearest(void **state)
{
    (void)state;
    static const char *const words[] = {"artifacts", "limits", "name", NULL};
    assert_string_equal(kg_text_nearest("artifact", words), "artifacts");
    assert_string_equal(kg_text_nearest("limist", words), "limits");
    assert_string_equal(kg_text_nearest("nam", words), "name");
    assert_null(kg_text_nearest("environment", words));
    assert_null(kg_text_nearest("", words));
    static const char *const none[] = {NULL};
    assert_null(kg_text_nearest("x", none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_megabytes),
        cmocka_unit_test(size_is_exact),
        cmocka_unit_test(node_count_is_exact),
        cmocka_unit_test(depth_is_exact),
        cmocka_unit_test(many_keys_are_quick),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(damaged_bytes),
        cmocka_unit_test(digest_is_of_the_bytes),
        cmocka_unit_test(seconds),
        cmocka_unit_test(bytes),
        cmocka_unit_test(numbers),
        cmocka_unit_test(nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
