#include "tests/host/fake.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* One comparison: what goes in, and what must come out. */
struct row {
    const char *what;
    float got[4];
    double want[4];
    double bound[4];
    uint32_t allow;
    const char *verdict;
    int bad, worst;
    const char *margin; /* printed with %.3g, or the string in the event */
};

#define INF HUGE_VAL
static const struct row bound_rows[] = {
    {"equal",                  {1, 2, 3, 4},        {1, 2, 3, 4}, {0, 0, 0, 0},     0,              "PASS", 0, 0, "0"  },
    {"minus zero",             {-0.0f, 1, 1, 1},    {0, 1, 1, 1}, {0, 0, 0, 0},     0,              "PASS", 0, 0, "0"  },
    {"at bound",               {1.5f, 2, 3, 4},     {1, 2, 3, 4}, {.5, 1, 1, 1},    0,              "PASS", 0, 0, "1"  },
    {"half",                   {1, 2, 3.25f, 4},    {1, 2, 3, 4}, {1, 1, .5, 1},    0,              "PASS", 0, 2, "0.5"},
    {"over",                   {1, 2, 3, 4.5f},     {1, 2, 3, 4}, {1, 1, 1, .25},   0,              "FAIL", 1, 3, "2"  },
    {"zero bound",             {1, 3, 3, 4},        {1, 2, 3, 4}, {1, 0, 1, 1},     0,              "FAIL", 1, 1, "inf"},
    {"nan",                    {1, NAN, 3, 4},      {1, 2, 3, 4}, {1, 1e300, 1, 1}, 0,              "FAIL", 1, 1, "inf"},
    {"inf",                    {1, 2, INFINITY, 4}, {1, 2, 3, 4}, {1, 1, 1, 1},     0,              "FAIL", 1, 2, "inf"},
    {"worst is relative",
     {2, 2, 3, 4},
     {1, 2, 3.5, 4},
     {4, 1, 1, 1},
     0,                                                                                             "PASS",
     0,                                                                                                        2,
     "0.5"                                                                                                             },
    {"zero allowed",           {0, 0, 0, 0},        {0},          {0},              KG_ORACLE_ZERO, "PASS", 0, 0, "0"  },
    {"nan wanted",
     {NAN, 2, 3, 4},
     {NAN, 2, 3, 4},
     {NAN, 1, 1, 1},
     KG_ORACLE_NONFINITE,                                                                           "PASS",
     0,                                                                                                        0,
     "0"                                                                                                               },
    {"nan wanted, number got",
     {1, 2, 3, 4},
     {NAN, 2, 3, 4},
     {9, 1, 1, 1},
     KG_ORACLE_NONFINITE,                                                                           "FAIL",
     1,                                                                                                        0,
     "inf"                                                                                                             },
    {"inf wanted, -inf got",
     {1, -INFINITY, 3, 4},
     {1, INF, 3, 4},
     {1, INF, 1, 1},
     KG_ORACLE_NONFINITE,                                                                           "FAIL",
     1,                                                                                                        1,
     "inf"                                                                                                             },
};

static void run_bound(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    IDLE_ARM(c);
    kg_oracle_allow(c, row->allow);
    kg_check_bound(c, "y", row->got, row->want, row->bound, 4);
}

static void test_bound(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bound_rows / sizeof bound_rows[0]; i++) {
        const struct row *row = &bound_rows[i];
        struct outcome o = run_cell(run_bound, row);
        json_t *check = check_named(&o, "y");
        json_t *margin = json_object_get(check, "margin");
        json_t *worst = json_object_get(json_object_get(check, "worst"), "index");
        char text[32];
        snprintf(text, sizeof text, "%.3g", json_number_value(margin));
        const char *seen = json_is_string(margin) ? json_string_value(margin) : text;
        const char *verdict = json_string_value(json_object_get(o.done, "verdict"));
        if (strcmp(verdict, row->verdict) != 0 || strcmp(seen, row->margin) != 0 ||
            json_integer_value(json_object_get(check, "bad")) != row->bad ||
            json_integer_value(worst) != row->worst)
            fail_msg("%s: %s, margin %s, bad %d, worst %d", row->what, verdict, seen,
                     (int)json_integer_value(json_object_get(check, "bad")),
                     (int)json_integer_value(worst));
        free_outcome(&o);
    }
}

/* One step of f32 beyond the bound must not be lost in the division. */
static void run_just_over(struct kg_cell *c, const void *row)
{
    (void)row;
    const float got = 1.0f;
    const double want = -1.0, bound = nextafter(2.0, 0.0);
    IDLE_ARM(c);
    assert_false(kg_check_bound(c, "y", &got, &want, &bound, 1));
}

static void test_just_over(void **state)
{
    (void)state;
    struct outcome o = run_cell(run_just_over, NULL);
    assert_true(json_real_value(json_object_get(check_named(&o, "y"), "margin")) > 1.0);
    free_outcome(&o);
}

/* ---- oracles that judge nothing ---- */

struct oracle {
    double want[2], bound[2];
    const char *detail;
};

static void run_oracle(struct kg_cell *c, const void *row_)
{
    const struct oracle *row = row_;
    const float got[2] = {0, 0};
    IDLE_ARM(c);
    kg_check_bound(c, "y", got, row->want, row->bound, 2);
}

static void test_degenerate(void **state)
{
    (void)state;
    static const struct oracle rows[] = {
        {{0, 0},    {1, 1},        "zero everywhere"},
        {{0, -0.0}, {1, 1},        "zero everywhere"},
        {{1, NAN},  {1, 1},        "not finite"     },
        {{1, INF},  {1, 1},        "not finite"     },
        {{1, 1},    {1, NAN},      "bound is not"   },
        {{1, 1},    {1, INF},      "bound is not"   },
        {{1, 1},    {-DBL_MIN, 1}, "bound is not"   },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct outcome o = run_cell(run_oracle, &rows[i]);
        assert_string_equal(json_string_value(json_object_get(o.done, "verdict")),
                            "ERROR");
        assert_string_equal(json_string_value(json_object_get(o.done, "reason")),
                            "oracle-degenerate");
        assert_non_null(
            strstr(json_string_value(json_object_get(o.done, "detail")), rows[i].detail));
        free_outcome(&o);
    }
}

/* ---- the other classes ---- */

static void run_band(struct kg_cell *c, const void *row)
{
    (void)row;
    const float got[3] = {1.0f, 4.25f, -2.0f};
    const float got_nan[3] = {1.0f, NAN, -2.0f};
    const double want[3] = {1.0, 4.0, -2.0}, small[3] = {1e-6, 0, 0};
    const float tiny[3] = {2e-6f, 0, 0};
    IDLE_ARM(c);
    assert_true(kg_check_band(c, "at", got, want, 3, 1e-3, 0.0625));
    assert_false(kg_check_band(c, "over", got, want, 3, 1e-3, 0.0624));
    assert_false(kg_check_band(c, "nan", got_nan, want, 3, 1e-3, 1e300));
    assert_true(kg_check_band(c, "floor", tiny, small, 3, 1e-3, 1.1e-3));
    assert_true(kg_check_value(c, "value at", "bound", 2.0, 2.0));
    assert_false(kg_check_value(c, "value nan", "band", NAN, 2.0));
    assert_false(kg_check_value(c, "value -inf", "band", -INF, 2.0));
    assert_false(kg_check_that(c, "that", false, "saw %d", 7));
}

static void test_other_classes(void **state)
{
    (void)state;
    struct outcome o = run_cell(run_band, NULL);
    assert_true(json_real_value(json_object_get(check_named(&o, "at"), "margin")) == 1.0);
    assert_string_equal(
        json_string_value(json_object_get(check_named(&o, "nan"), "value")), "nan");
    assert_string_equal(
        json_string_value(json_object_get(check_named(&o, "nan"), "margin")), "inf");
    assert_string_equal(
        json_string_value(json_object_get(check_named(&o, "that"), "text")), "saw 7");
    const char *detail = json_string_value(json_object_get(o.done, "detail"));
    assert_non_null(strstr(detail, "over: rel-err"));
    assert_non_null(strstr(detail, "4 more checks failed"));
    free_outcome(&o);
}

static void run_exact(struct kg_cell *c, const void *row)
{
    (void)row;
    static const uint16_t got[4] = {1, 2, 0xABCD, 9}, want[4] = {1, 2, 3, 4};
    IDLE_ARM(c);
    assert_false(kg_check_exact(c, "y", got, want, 4, 2));
    const float minus = -0.0f, plus = 0.0f;
    kg_oracle_allow(c, KG_ORACLE_ZERO);
    assert_false(kg_check_exact(c, "zeros", &minus, &plus, 1, 4));
}

static void test_exact(void **state)
{
    (void)state;
    struct outcome o = run_cell(run_exact, NULL);
    json_t *check = check_named(&o, "y");
    assert_int_equal(json_integer_value(json_object_get(check, "bad")), 2);
    json_t *worst = json_object_get(check, "worst");
    assert_int_equal(json_integer_value(json_object_get(worst, "index")), 2);
    assert_string_equal(json_string_value(json_object_get(worst, "got")), "0xabcd");
    assert_string_equal(json_string_value(json_object_get(worst, "want")), "0x0003");
    free_outcome(&o);
}

/* ---- misuse ---- */

static const float one = 1.0f;
static const double d_one = 1.0;

static void run_nothing(struct kg_cell *c, const void *row)
{
    (void)row;
    IDLE_ARM(c);
    kg_info(c, "only info", 3.0);
}

static void run_no_arm(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_that(c, "y", true, "host only");
}

static void run_twice(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_that(c, "y", true, "-");
    kg_check_that(c, "y", true, "-");
}

static void run_itself(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_exact(c, "y", &one, &one, 1, 4);
}

static void run_empty(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_bound(c, "y", &one, &d_one, &d_one, 0);
}

static void run_bad_class(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_value(c, "y", "info", 0.0, 1.0);
}

static void run_skip_after_failure(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_that(c, "y", false, "wrong");
    kg_skip(c, "not-applicable", "too late");
}

static void run_skip(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_skip(c, "not-applicable", "no such %s", "shape");
}

static void run_bad_skip(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_skip(c, "because", "-");
}

static void run_tensor(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_tensor(c, "model", "blk.0.x");
}

static void run_unknown_role(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_artifact(c, "modell");
}

static void run_huge(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_alloc(c, SIZE_MAX - 100);
}

static void test_verdicts(void **state)
{
    (void)state;
    assert_outcome(run_nothing, "ERROR", "no-comparison", "compared nothing");
    assert_outcome(run_no_arm, "ERROR", "no-comparison", "ran no arm");
    assert_outcome(run_twice, "ERROR", "misuse", "two checks are called y");
    assert_outcome(run_itself, "ERROR", "misuse", "with itself");
    assert_outcome(run_empty, "ERROR", "no-comparison", "0 elements");
    assert_outcome(run_bad_class, "ERROR", "misuse", "neither bound nor band");
    assert_outcome(run_skip_after_failure, "FAIL", "check-failed",
                   "wrong; then: too late");
    assert_outcome(run_skip, "SKIP", "not-applicable", "no such shape");
    assert_outcome(run_bad_skip, "ERROR", "misuse", "because");
    assert_outcome(run_tensor, "SKIP", "artifact-missing", "model");
    assert_outcome(run_unknown_role, "ERROR", "misuse", "modell");
    assert_outcome(run_huge, "ERROR", "out-of-memory", "host memory");
}

static void test_role(void **state)
{
    (void)state;
    const struct kg_plan_cell plan = {
        .id = "t.cell", .run = run_nothing, .role = "model"};
    const struct kg_job jobs[2] = {{.no_artifacts = false}, {.no_artifacts = true}};
    static const char *const reasons[2] = {"artifact-missing", "filtered"};
    for (int i = 0; i < 2; i++) {
        struct outcome o = run_cell_as(&plan, &jobs[i]);
        assert_string_equal(json_string_value(json_object_get(o.done, "verdict")),
                            "SKIP");
        assert_string_equal(json_string_value(json_object_get(o.done, "reason")),
                            reasons[i]);
        free_outcome(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),      cmocka_unit_test(test_just_over),
        cmocka_unit_test(test_degenerate), cmocka_unit_test(test_other_classes),
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
