/* Lines from a host that may have been overwritten: runner/events.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/escape.h"
#include "runner/events.h"

#define DONE "{\"ev\":\"done\",\"id\":\"a.b\",\"verdict\":\"PASS\""
#define AGAINST "{\"ev\":\"against\",\"id\":\"a.b\""
#define CHECK                                                                            \
    "{\"ev\":\"check\",\"id\":\"a.b\",\"name\":\"y\",\"class\":\"bound\",\"ok\":true"

static const char *const good[] = {
    "{\"ev\":\"hello\",\"protocol\":1}",
    "{\"ev\":\"hello\",\"protocol\":1,\"later\":[1,2]}",
    "{\"ev\":\"device\",\"name\":\"emu\",\"provider\":{\"name\":\"emu\"}}",
    "{\"ev\":\"plan\",\"cells\":[]}",
    "{\"ev\":\"plan\",\"cells\":[{\"id\":\"a.b\",\"role\":null}],\"last\":false}",
    "{\"ev\":\"error\",\"code\":\"bad-plugin\",\"text\":\"no\"}",
    "{\"ev\":\"begin\",\"id\":\"a.b-c_d+e:f=1,2\"}",
    CHECK ",\"value\":1.5,\"bound\":\"inf\",\"margin\":\"nan\"}",
    CHECK ",\"worst\":{\"index\":3,\"got\":1,\"want\":\"-inf\"},\"bad\":1,\"count\":9}",
    DONE "}",
    DONE ",\"reason\":\"\",\"digest\":{\"x/y\":\"0123456789abcdef0123456789abcdef\"}}",
    DONE ",\"params\":{\"rows\":3,\"kind\":\"q4\"},\"notes\":[\"so\"]}",
    "{\"ev\":\"done\",\"id\":\"a.b\",\"verdict\":\"SKIP\",\"reason\":\"kernel-missing\"}",
    "{\"ev\":\"bye\"}",
    "{\"ev\":\"again\",\"id\":\"a.b\"}",
    AGAINST ",\"verdict\":\"PASS\"}",
    AGAINST ",\"verdict\":\"FAIL\",\"reason\":\"check-failed\",\"outputs\":"
            "{\"compared\":2,\"equal\":1,\"unmatched\":0,\"differing\":{}}}",
};

static const char *const bad[] = {
    "{\"ev\":\"again\"}",
    AGAINST "}",
    AGAINST ",\"verdict\":\"FAIL\"}",
    AGAINST ",\"verdict\":\"PASS\",\"outputs\":{\"compared\":-1}}",
    AGAINST ",\"verdict\":\"PASS\",\"failed_checks\":[1]}",
    "",
    "x",
    "null",
    "[]",
    "{}",
    "{\"ev\":\"hello\",\"protocol\":1} x",
    "{\"ev\":\"hello\",\"ev\":\"hello\",\"protocol\":1}",
    "{\"ev\":\"hello\"}",
    "{\"ev\":\"hello\",\"protocol\":2}",
    "{\"ev\":\"hello\",\"protocol\":\"1\"}",
    "{\"ev\":1}",
    "{\"ev\":\"goodbye\"}",
    "{\"ev\":\"device\",\"name\":\"emu\"}",
    "{\"ev\":\"device\",\"name\":\"emu\",\"provider\":{},\"sm_count\":-1}",
    "{\"ev\":\"plan\"}",
    "{\"ev\":\"plan\",\"cells\":[1]}",
    "{\"ev\":\"plan\",\"cells\":[{}]}",
    "{\"ev\":\"plan\",\"cells\":[{\"id\":\"\"}]}",
    "{\"ev\":\"plan\",\"cells\":[{\"id\":\"A\"}]}",
    "{\"ev\":\"error\",\"code\":\"\\u001b[2J\",\"text\":\"no\"}",
    "{\"ev\":\"error\",\"code\":\"\",\"text\":\"no\"}",
    "{\"ev\":\"begin\",\"id\":\"a b\"}",
    "{\"ev\":\"begin\",\"id\":\"a\\n\"}",
    "{\"ev\":\"begin\",\"id\":\"a\\u0000\"}",
    "{\"ev\":\"begin\",\"id\":\"../x*\"}",
    "{\"ev\":\"begin\",\"id\":null}",
    "{\"ev\":\"begin\",\"id\":\"\xff\"}",
    "{\"ev\":\"check\",\"id\":\"a.b\",\"name\":\"y\",\"class\":\"exact\"}",
    "{\"ev\":\"check\",\"id\":\"a.b\",\"name\":\"y\",\"class\":\"sharp\",\"ok\":true}",
    CHECK ",\"value\":\"NaN\"}",
    CHECK ",\"value\":NaN}",
    CHECK ",\"value\":1e999}",
    CHECK ",\"bad\":-1}",
    CHECK ",\"bad\":1.5}",
    CHECK ",\"worst\":{\"got\":{\"a\":1}}}",
    "{\"ev\":\"done\",\"id\":\"a.b\"}",
    "{\"ev\":\"done\",\"id\":\"a.b\",\"verdict\":\"pass\"}",
    "{\"ev\":\"done\",\"id\":\"a.b\",\"verdict\":\"FAIL\"}",
    "{\"ev\":\"done\",\"id\":\"a.b\",\"verdict\":\"FAIL\",\"reason\":\"filtered\"}",
    DONE ",\"reason\":\"crashed\"}",
    DONE ",\"seconds\":\"nan\"}",
    DONE ",\"digest\":{\"x\":\"0123\"}}",
    DONE ",\"digest\":{\"x\":\"0123456789ABCDEF0123456789ABCDEF\"}}",
    DONE ",\"digest\":{\"x\":1}}",
    DONE ",\"params\":{\"x\":[1]}}",
    DONE ",\"notes\":[1]}",
    DONE ",\"times\":{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"g\":{\"h\":1}}}}}}}}}",
};

static bool parses(const char *line, size_t length)
{
    struct kg_event event;
    char fault[256] = "";
    bool ok = kg_event_parse(line, length, &event, fault, sizeof fault);
    assert_int_equal(ok, fault[0] == '\0');
    assert_int_equal(ok, event.json != NULL);
    for (const char *p = fault; *p; p++)
        assert_true((unsigned char)*p >= 0x20 && (unsigned char)*p != 0x7f);
    kg_event_clear(&event);
    return ok;
}

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!parses(good[i], strlen(good[i])))
            fail_msg("refused: %s", good[i]);
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (parses(bad[i], strlen(bad[i])))
            fail_msg("taken: %s", bad[i]);
}

static void test_unknown_members_are_dropped(void **state)
{
    (void)state;
    static const char line[] = DONE ",\"secret\":\"x\"}";
    struct kg_event event;
    char fault[256];
    assert_true(kg_event_parse(line, strlen(line), &event, fault, sizeof fault));
    assert_null(json_object_get(event.json, "secret"));
    assert_int_equal(event.verdict, KG_PASS);
    kg_event_clear(&event);
}

/* Every line with one byte changed, cut and doubled: no crash, and a fault that is told
   in plain text (run it under a sanitizer). */
static void test_mutations(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0, '"', '{', '}', '[', '\\', '9', 0x80, 0xff};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        size_t length = strlen(good[i]);
        char *copy = malloc(length);
        assert_non_null(copy);
        for (size_t at = 0; at < length; at++) {
            parses(good[i], at);
            for (size_t b = 0; b < sizeof bytes; b++) {
                memcpy(copy, good[i], length);
                copy[at] = (char)bytes[b];
                parses(copy, length);
            }
        }
        free(copy);
    }
}

static void test_nesting(void **state)
{
    (void)state;
    size_t depth = 100000;
    char *line = malloc(depth);
    assert_non_null(line);
    memset(line, '[', depth);
    assert_false(parses(line, depth));
    free(line);
}

static void test_escape(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain",              "plain"             },
        {"a\nb\tc",            "a\\nb\\tc"         },
        {"\033[31m",           "\\x1b[31m"         },
        {"\x7f",               "\\x7f"             },
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xc3",               "\\xc3"             },
        {"\xc0\x80",           "\\xc0\\x80"        },
        {"\xed\xa0\x80",       "\\xed\\xa0\\x80"   },
        {"\xc2\x9b",           "\\xc2\\x9b"        }, /* C1: CSI */
        {"\xe2\x80\xae",       "\\xe2\\x80\\xae"   }, /* right-to-left override */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *shown = kg_escape_dup(cases[i][0]);
        assert_string_equal(shown, cases[i][1]);
        free(shown);
    }
    char small[4];
    kg_escape("ab\033", 3, small, sizeof small);
    assert_string_equal(small, "ab");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_unknown_members_are_dropped),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_escape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
