/* The JSON reader: what it takes, what it refuses, and where it says the fault is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/diff/scan.h"

/* The text in memory of its exact size, so that a sanitizer sees a read past its end. */
struct fixture {
    char *text;
    struct kg_scan scan;
    struct kg_error error;
};

static void begin(struct fixture *f, const char *text, size_t size)
{
    f->text = malloc(size + 1);
    assert_non_null(f->text);
    memcpy(f->text, text, size);
    f->text[size] = '\0';
    kg_error_init(&f->error);
    kg_scan_init(&f->scan, f->text, size, "f", &f->error);
}

static int skip_all(const char *text, size_t size, char *line, size_t line_size)
{
    struct fixture f;
    begin(&f, text, size);
    kg_scan_skip(&f.scan, NULL, NULL);
    kg_scan_end(&f.scan);
    kg_error_line(&f.error, line, line_size);
    free(f.text);
    return f.error.status;
}

static void test_valid(void **state)
{
    (void)state;
    static const char *const texts[] = {"null",
                                        " true ",
                                        "[]",
                                        "{}",
                                        "[1,-0,0.5,1e9,-1.25E-3,1e+1]",
                                        "\"\"",
                                        "{\"a\":{\"b\":[{}]}}",
                                        "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
                                        "\"\xc3\xa9\xf0\x9f\x98\x80\"",
                                        "\r\n\t[ 1 , 2 ]\n"};
    char line[600];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (skip_all(texts[i], strlen(texts[i]), line, sizeof line) != 0)
            fail_msg("%s: %s", texts[i], line);
}

static void test_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"",                     "f:1:1: the file ends"       },
        {"[",                    "f:1:2: the file ends"       },
        {"[1",                   "f:1:3: the file ends"       },
        {"[1,]",                 "f:1:4: not JSON"            },
        {"[1 2]",                "f:1:4: not JSON"            },
        {"[1}",                  "f:1:3: not JSON"            },
        {"{\"a\"}",              "f:1:5: not JSON"            },
        {"{\"a\":1,}",           "f:1:8: not JSON"            },
        {"{a:1}",                "f:1:2: not JSON"            },
        {"01",                   "f:1:2: more text"           },
        {"-",                    "f:1:2: the file ends"       },
        {"1.",                   "f:1:3: the file ends"       },
        {"1e",                   "f:1:3: the file ends"       },
        {".5",                   "f:1:1: not JSON"            },
        {"NaN",                  "f:1:1: not JSON"            },
        {"nul",                  "f:1:1: not JSON"            },
        {"tru",                  "f:1:1: not JSON"            },
        {"\"a",                  "f:1:3: the file ends"       },
        {"\"a\\",                "f:1:3: not JSON"            },
        {"\"\\x41\"",            "f:1:2: not JSON"            },
        {"\"\\u12\"",            "f:1:2: not JSON"            },
        {"\"\\u0000\"",          "f:1:2: \\u0000"             },
        {"\"\\ud800\"",          "f:1:8: half a surrogate"    },
        {"\"\\udc00\\ud800\"",   "f:1:8: half a surrogate"    },
        {"\"a\nb\"",             "f:1:3: control character 10"},
        {"\"\x80\"",             "f:1:2: invalid UTF-8"       },
        {"\"\xc0\xaf\"",         "f:1:2: invalid UTF-8"       },
        {"\"\xed\xa0\x80\"",     "f:1:2: invalid UTF-8"       },
        {"\"\xf4\x90\x80\x80\"", "f:1:2: invalid UTF-8"       },
        {"\"\xe2\x82",           "f:1:2: invalid UTF-8"       },
        {"1 1",                  "f:1:3: more text"           },
        {"[1,\n 2,\n x]",        "f:3:2: not JSON"            },
    };
    char line[600];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rc = skip_all(rows[i].text, strlen(rows[i].text), line, sizeof line);
        if (rc == 0 || strncmp(line, rows[i].said, strlen(rows[i].said)) != 0)
            fail_msg("%s: got \"%s\", want \"%s\"", rows[i].text, line, rows[i].said);
    }
    assert_int_not_equal(skip_all("1\0", 2, line, sizeof line),
                         0); /* a NUL is not the end */
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * KG_SCAN_DEPTH + 3], line[600];
    for (int depth = KG_SCAN_DEPTH; depth <= KG_SCAN_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        int rc = skip_all(text, 2 * (size_t)depth, line, sizeof line);
        assert_int_equal(rc, depth > KG_SCAN_DEPTH ? KG_E_FORMAT : 0);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] = "{\"k\\u0065y\": \"a\\\"b\\ud83d\\ude00\", \"n\": "
                               "[12345678901234567890, -7, 0.1, "
                               "\"nan\", \"-inf\", null], \"f\": false, \"o\": "
                               "{\"deep\": [1, {}]}, \"z\": null}";
    struct fixture f;
    const char *key, *word;
    double v, want[] = {12345678901234567890.0, -7, 0.1, NAN, -INFINITY, NAN};
    bool flag = true;
    begin(&f, text, sizeof text - 1);
    assert_true(kg_scan_object(&f.scan));
    assert_true(kg_scan_member(&f.scan, &key));
    assert_string_equal(key, "key");
    assert_true(kg_scan_string(&f.scan, &word));
    assert_string_equal(word, "a\"b\xf0\x9f\x98\x80");
    assert_true(kg_scan_member(&f.scan, &key) && kg_scan_array(&f.scan));
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_true(kg_scan_element(&f.scan) && kg_scan_real(&f.scan, &v));
        assert_true(isnan(want[i]) ? isnan(v) : v == want[i]);
    }
    assert_false(kg_scan_element(&f.scan));
    assert_true(kg_scan_member(&f.scan, &key) && kg_scan_bool(&f.scan, &flag) && !flag);
    const char *from;
    size_t size;
    assert_true(kg_scan_member(&f.scan, &key) && kg_scan_skip(&f.scan, &from, &size));
    assert_int_equal(size, strlen("{\"deep\": [1, {}]}"));
    assert_true(kg_scan_member(&f.scan, &key) && kg_scan_string_or_null(&f.scan, &word));
    assert_null(word);
    assert_false(kg_scan_member(&f.scan, &key));
    assert_true(kg_scan_end(&f.scan));
    assert_int_equal(f.error.status, 0);
    free(f.text);
}

/* After the first error nothing moves and the first error stays. */
static void test_first_error_stays(void **state)
{
    (void)state;
    struct fixture f;
    const char *key;
    double v;
    char line[600];
    begin(&f, "{\"a\": x}", 8);
    assert_true(kg_scan_object(&f.scan) && kg_scan_member(&f.scan, &key));
    assert_false(kg_scan_number(&f.scan, &v));
    assert_false(kg_scan_member(&f.scan, &key));
    assert_false(kg_scan_end(&f.scan));
    assert_int_equal(kg_scan_peek(&f.scan), KG_JSON_BAD);
    assert_string_equal(kg_error_line(&f.error, line, sizeof line),
                        "f:1:7: not JSON: a digit expected");
    free(f.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_first_error_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
