/* The test vector, buffers between guards, and the state machine of arms. */
#include "tests/host/fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/cell.h"

enum { N = 5 }; /* an odd size: the guard starts at an unaligned byte */
static const float input[N] = {1, 2, 3, 4, 5};
static const double wanted[N] = {2, 4, 6, 8, 10};
static const double bounds[N] = {0, 0, 0, 0, 0};

/* ---- kernels of the fake device: each is right but for one thing ---- */

enum fault { NONE, BEHIND, IN_FRONT, INPUT_WRITTEN, PARTLY, NOTHING, OFF_BY_ONE };

static int twice(const float *x, float *y, int fault)
{
    static const float stray = 7.0f;
    for (int i = 0; i < N - (fault == PARTLY) && fault != NOTHING; i++)
        y[i + (fault == OFF_BY_ONE)] = 2.0f * x[i];
    if (fault == BEHIND)
        memcpy((char *)(y + N) + 40, &stray, 1);
    if (fault == IN_FRONT)
        memcpy((char *)y - 3, &stray, 1);
    if (fault == INPUT_WRITTEN)
        memcpy((char *)(uintptr_t)x + 9, "\x55", 1);
    return 0;
}

static void run_twice(struct kg_cell *c, const void *row)
{
    const int *fault = row;
    struct kg_buf *x = kg_input(c, "x", input, sizeof input);
    struct kg_buf *y = kg_output(c, "y", sizeof input);
    KG_ARM(c, "base", NULL, twice(kg_ptr(x), kg_ptr(y), *fault));
    kg_check_bound(c, "y", kg_fetch(y), wanted, bounds, N);
}

static void expect_twice(int fault, const char *verdict, const char *detail)
{
    memset(&fake, 0, sizeof fake);
    struct outcome o = run_cell(run_twice, &fault);
    assert_string_equal(json_string_value(json_object_get(o.done, "verdict")), verdict);
    const char *text = json_string_value(json_object_get(o.done, "detail"));
    if (strstr(text, detail) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", detail, text);
    assert_int_equal(fake.live, 0);
    free_outcome(&o);
}

static void test_faults(void **state)
{
    (void)state;
    expect_twice(NONE, "PASS", "");
    expect_twice(BEHIND, "FAIL",
                 "after arm base: stray write behind output y, first at byte 60 of it, 1 "
                 "bytes changed");
    expect_twice(IN_FRONT, "FAIL",
                 "stray write in front of (counted backwards) output y, first at byte 3");
    expect_twice(INPUT_WRITTEN, "FAIL",
                 "write to input x, first at byte 9 of it, 1 bytes");
    expect_twice(PARTLY, "FAIL", "1 of 5 elements are out; 1 hold the poison");
    expect_twice(NOTHING, "FAIL", "5 of 5 elements are out; 5 hold the poison");
    expect_twice(OFF_BY_ONE, "FAIL", "stray write behind output y, first at byte 20");
}

static void test_digest(void **state)
{
    (void)state;
    int fault = NONE;
    struct outcome o = run_cell(run_twice, &fault);
    const float y[N] = {2, 4, 6, 8, 10};
    char hex[33];
    kg_digest_hex(y, sizeof y, hex);
    json_t *digests = json_object_get(o.done, "digest");
    assert_int_equal(json_object_size(digests), 1);
    assert_string_equal(json_string_value(json_object_get(digests, "base/y")), hex);
    free_outcome(&o);
}

/* The published XXH3-128 of nothing. */
static void test_digest_value(void **state)
{
    (void)state;
    char hex[33];
    kg_digest_hex("", 0, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
}

/* Two arms that leave out the same element agree, and are both wrong. */
static void run_pair(struct kg_cell *c, const void *row)
{
    (void)row;
    struct kg_buf *x = kg_input(c, "x", input, sizeof input);
    struct kg_buf *a = kg_output(c, "a", sizeof input);
    struct kg_buf *b = kg_output(c, "b", sizeof input);
    KG_ARM(c, "one", NULL, twice(kg_ptr(x), kg_ptr(a), PARTLY));
    KG_ARM(c, "two", NULL, twice(kg_ptr(x), kg_ptr(b), PARTLY));
    kg_check_exact(c, "pair", kg_fetch(b), kg_fetch(a), N, sizeof *input);
}

static void run_stale(struct kg_cell *c, const void *row)
{
    (void)row;
    struct kg_buf *x = kg_input(c, "x", input, sizeof input);
    struct kg_buf *y = kg_output(c, "y", sizeof input);
    KG_ARM(c, "one", NULL, twice(kg_ptr(x), kg_ptr(y), NONE));
    kg_check_bound(c, "one", kg_fetch(y), wanted, bounds, N);
    KG_ARM(c, "two", NULL, twice(kg_ptr(x), kg_ptr(y), NOTHING));
    kg_check_bound(c, "two", kg_fetch(y), wanted, bounds, N);
}

static void run_reset(struct kg_cell *c, const void *row)
{
    (void)row;
    struct kg_buf *x = kg_input(c, "x", input, sizeof input);
    struct kg_buf *y = kg_output(c, "y", sizeof input);
    struct kg_buf *z = kg_inout(c, "z", input, sizeof input);
    KG_ARM(c, "one", NULL, twice(kg_ptr(x), kg_ptr(y), NONE));
    const float *first = kg_fetch(y);
    kg_reset(y);
    KG_ARM(c, "two", NULL, twice(kg_ptr(z), kg_ptr(z), NONE));
    assert_true(isnan(((const float *)kg_fetch(y))[0]));
    assert_true(((const float *)kg_fetch(z))[4] == 10.0f);
    assert_true(first[4] == 10.0f); /* an earlier fetch stays as it was */
    kg_reset(z);
    assert_true(((const float *)kg_fetch(z))[4] == 5.0f);
    kg_check_that(c, "y", true, "-");
}

static void run_scratch(struct kg_cell *c, const void *row)
{
    (void)row;
    struct kg_buf *x = kg_input(c, "x", input, sizeof input);
    struct kg_buf *s = kg_scratch(c, "s", sizeof input);
    KG_ARM(c, "one", NULL, twice(kg_ptr(x), kg_ptr(s), PARTLY));
    assert_null(kg_ptr(NULL));
    kg_check_bound(c, "y", kg_fetch(s), wanted, bounds, N - 1);
}

/* The host's array may be reused; what counts is what was uploaded. */
static void run_reuse(struct kg_cell *c, const void *row)
{
    (void)row;
    float *x = kg_alloc(c, sizeof input);
    memcpy(x, input, sizeof input);
    struct kg_buf *dx = kg_input(c, "x", x, sizeof input);
    struct kg_buf *y = kg_output(c, "y", sizeof input);
    memset(x, 0, sizeof input);
    KG_ARM(c, "one", NULL, twice(kg_ptr(dx), kg_ptr(y), NONE));
    kg_check_bound(c, "y", kg_fetch(y), wanted, bounds, N);
}

static void run_early_fetch(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_fetch(kg_output(c, "y", 4));
}

static void run_empty_buffer(struct kg_cell *c, const void *row)
{
    (void)row;
    struct kg_buf *x = kg_input(c, "x", NULL, 0);
    struct kg_buf *y = kg_output(c, "y", 0);
    KG_ARM(c, "one", NULL, kg_ptr(x) && kg_ptr(y) ? 0 : KG_E_INVALID);
    assert_non_null(kg_fetch(y));
    kg_check_that(c, "y", true, "-");
}

static void run_late_write(struct kg_cell *c, const void *row)
{
    (void)row;
    struct kg_buf *y = kg_output(c, "y", 8);
    IDLE_ARM(c);
    kg_check_that(c, "fine", true, "-");
    kg_provider(c)->device->fill((char *)kg_ptr(y) + 8, 0, 1);
}

/* Too large to be read back after every arm, so the end finds it. */
static void run_large_input(struct kg_cell *c, const void *row)
{
    (void)row;
    size_t bytes = KG_VERIFY_ARM_MAX + 5;
    struct kg_buf *x = kg_input(c, "x", kg_alloc(c, bytes), bytes);
    KG_ARM(c, "base", NULL,
           kg_provider(c)->device->fill((char *)kg_ptr(x) + bytes - 1, 7, 1));
    kg_check_that(c, "y", true, "-");
}

/* An arm in a loop: its digest depends on every pass. */
static void run_loop(struct kg_cell *c, const void *row)
{
    const int *faults = row;
    struct kg_buf *x = kg_input(c, "x", input, sizeof input);
    struct kg_buf *y = kg_output(c, "y", sizeof input);
    for (int i = 0; i < 2; i++) {
        kg_reset(y);
        KG_ARM(c, "base", NULL, twice(kg_ptr(x), kg_ptr(y), faults[i]));
        kg_fetch(y);
    }
    kg_check_that(c, "y", true, "-");
}

static void test_loop(void **state)
{
    (void)state;
    static const int faults[4][2] = {
        {NONE,   PARTLY},
        {PARTLY, NONE  },
        {NONE,   NONE  },
        {NONE,   PARTLY}
    };
    char digests[4][33];
    for (int i = 0; i < 4; i++) {
        struct outcome o = run_cell(run_loop, faults[i]);
        json_t *digest = json_object_get(json_object_get(o.done, "digest"), "base/y");
        snprintf(digests[i], sizeof digests[i], "%s", json_string_value(digest));
        free_outcome(&o);
    }
    assert_string_not_equal(digests[0], digests[1]);
    assert_string_not_equal(digests[0], digests[2]);
    assert_string_equal(digests[0], digests[3]);
}

static void run_bad_name(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_output(c, "y\n", 4);
}

static void test_buffers(void **state)
{
    (void)state;
    assert_outcome(run_pair, "FAIL", "check-failed",
                   "1 of 5 elements differ, first at 4");
    assert_outcome(run_stale, "ERROR", "misuse", "without a kg_reset");
    assert_outcome(run_reset, "PASS", "", "");
    assert_outcome(run_scratch, "PASS", "", "");
    assert_outcome(run_reuse, "PASS", "", "");
    assert_outcome(run_early_fetch, "ERROR", "misuse", "before any arm");
    assert_outcome(run_empty_buffer, "PASS", "", "");
    assert_outcome(run_large_input, "FAIL", "check-failed",
                   "at the end: write to input x, first at byte 1048580");
    assert_outcome(run_bad_name, "ERROR", "misuse", "not printable");
    assert_outcome(run_late_write, "FAIL", "check-failed",
                   "at the end: stray write behind");
}

/* ---- arms ---- */

static void run_status(struct kg_cell *c, const void *row)
{
    const int *rc = row;
    kg_output(c, "y", 64);
    KG_ARM(c, "base", NULL, *rc);
    kg_check_that(c, "y", true, "-");
}

static void expect_status(int rc, const char *verdict, const char *reason)
{
    struct outcome o = run_cell(run_status, &rc);
    assert_string_equal(json_string_value(json_object_get(o.done, "verdict")), verdict);
    assert_string_equal(json_string_value(json_object_get(o.done, "reason")), reason);
    assert_int_equal(o.device_lost, strcmp(reason, "device-fault") == 0);
    free_outcome(&o);
}

static void test_statuses(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    expect_status(0, "PASS", "");
    expect_status(KG_E_UNSUPPORTED, "SKIP", "device-unsupported");
    expect_status(KG_E_INVALID, "FAIL", "launch-failed");
    expect_status(KG_E_LAUNCH, "FAIL", "launch-failed");
    expect_status(KG_E_MEMORY, "ERROR", "out-of-memory");
    fake.alloc_status = KG_E_MEMORY;
    expect_status(0, "ERROR", "out-of-memory");
    fake.alloc_status = 0;
    fake.sync_status = KG_E_LAUNCH;
    expect_status(0, "FAIL", "launch-failed");
    assert_int_equal(fake.live, 0);
    /* After a fault nothing but last_error may be called, so nothing is given back. */
    fake.sync_status = KG_E_DEVICE;
    expect_status(0, "FAIL", "device-fault");
    assert_int_equal(fake.calls_after_fault, 0);
    assert_int_equal(fake.live, 1);
    free(fake.last);
}

static int calls;

static int count_call(int rc)
{
    calls++;
    return rc;
}

static void run_sequence(struct kg_cell *c, const void *row)
{
    (void)row;
    calls = 0;
    KG_ARM(c, "all", NULL, KG_SEQ(count_call(0), KG_SEQ(count_call(0), count_call(0))));
    assert_int_equal(calls, 3);
    KG_ARM(c, "stops", NULL,
           KG_SEQ(count_call(0), KG_SEQ(count_call(KG_E_INVALID), count_call(0))));
}

static void run_nested(struct kg_cell *c, const void *row)
{
    (void)row;
    for (kg_arm_begin(c, "outer", NULL); kg_arm_next(c);)
        kg_arm_begin(c, "inner", NULL);
}

static void run_broken_off(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_that(c, "y", true, "-");
    for (kg_arm_begin(c, "base", NULL); kg_arm_next(c);)
        break;
}

static void run_check_inside(struct kg_cell *c, const void *row)
{
    (void)row;
    KG_ARM(c, "base", NULL, kg_check_that(c, "y", true, "-") ? 0 : 1);
}

static void run_unnamed(struct kg_cell *c, const void *row)
{
    (void)row;
    KG_ARM(c, "", NULL, 0);
}

static void run_out_of_turn(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_arm_end(c, 0);
}

static void run_undeclared(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_option(c, "colour");
}

static void run_has_kernel(struct kg_cell *c, const void *row)
{
    (void)row;
    float y[N];
    KG_ARM(c, "base", NULL, KG_OPS(c, matvec, dequantize)(0, input, y, N, kg_stream(c)));
    kg_check_that(c, "y", memcmp(y, input, sizeof y) == 0, "-");
}

static void run_null_kernel(struct kg_cell *c, const void *row)
{
    (void)row;
    KG_ARM(c, "base", NULL,
           KG_OPS(c, matvec, quantize_q8_1)(NULL, NULL, NULL, NULL, 0, 0, kg_stream(c)));
}

static void run_short_table(struct kg_cell *c, const void *row)
{
    (void)row;
    KG_ARM(c, "base", NULL,
           KG_OPS(c, matvec, stage_b)(0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL));
}

static void run_short_provider(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_ops_(c, sizeof(struct kg_provider), 8, sizeof(void (*)(void)), "future.kernel");
}

static void test_arms(void **state)
{
    (void)state;
    assert_outcome(run_sequence, "FAIL", "launch-failed", "arm stops");
    assert_int_equal(calls, 5);
    assert_outcome(run_nested, "ERROR", "misuse", "KG_ARM inside arm outer");
    assert_outcome(run_broken_off, "ERROR", "misuse", "returned inside arm base");
    assert_outcome(run_check_inside, "ERROR", "misuse", "check inside arm base");
    assert_outcome(run_undeclared, "ERROR", "misuse", "declares no param \"colour\"");
    assert_outcome(run_unnamed, "ERROR", "misuse", "an arm without a name");
    assert_outcome(run_out_of_turn, "ERROR", "misuse", "out of turn");
    assert_outcome(run_has_kernel, "PASS", "", "");
    assert_outcome(run_null_kernel, "SKIP", "kernel-missing", "matvec.quantize_q8_1");
    assert_outcome(run_short_table, "SKIP", "kernel-missing", "matvec.stage_b");
    assert_outcome(run_short_provider, "SKIP", "kernel-missing", "future.kernel");
}

/* ---- the test vector, parameters, notes ---- */

static void run_pr(struct kg_cell *c, const void *row)
{
    (void)row;
    assert_true(kg_pr_at(c, 0) == 0x1.e3779p-3f);
    assert_true(kg_pr_at(c, 1) == -1.0f);
    assert_true(kg_pr_at(c, 61) == -0x1.4bfde8p-1f);
    assert_true(kg_pr_at(c, 1000) == 0x1.68422p-3f);
    assert_true(kg_pr_at(c, (UINT64_C(1) << 40) + 3) == -0x1.db776p-2f);
    const float *x = kg_pr(c, 3, 60, 0.1f);
    assert_true(x[1] == -0x1.4bfde8p-1f * 0.1f);
    assert_int_equal((uintptr_t)x % 64, 0);
    kg_param_i(c, "rows", -3);
    kg_param_f(c, "scale", NAN);
    kg_param_s(c, "type", "Q4\xff");
    kg_note(c, "used %s", "another");
    IDLE_ARM(c);
    kg_check_that(c, "y", true, "-");
}

static void run_seeded(struct kg_cell *c, const void *row)
{
    const float *expected = row;
    kg_check_that(c, "y", kg_pr_at(c, 5) == *expected, "-");
    IDLE_ARM(c);
}

static void test_pr(void **state)
{
    (void)state;
    struct outcome o = run_cell(run_pr, NULL);
    assert_string_equal(json_string_value(json_object_get(o.done, "verdict")), "PASS");
    json_t *params = json_object_get(o.done, "params");
    assert_int_equal(json_integer_value(json_object_get(params, "rows")), -3);
    assert_string_equal(json_string_value(json_object_get(params, "scale")), "nan");
    assert_string_equal(json_string_value(json_object_get(params, "type")), "Q4?");
    json_t *note = json_array_get(json_object_get(o.done, "notes"), 0);
    assert_string_equal(json_string_value(note), "used another");
    free_outcome(&o);

    /* Seed 0 is a seed, not the absence of one. */
    static const float expected[2] = {0x1.86d8dp-1f, 0x1.0b7dp-4f};
    const struct kg_job jobs[2] = {
        {.seeded = true, .seed = 0},
        {.seeded = true, .seed = 7}
    };
    for (int i = 0; i < 2; i++) {
        const struct kg_plan_cell plan = {
            .id = "t.cell", .run = run_seeded, .row = &expected[i]};
        o = run_cell_as(&plan, &jobs[i]);
        assert_string_equal(json_string_value(json_object_get(o.done, "verdict")),
                            "PASS");
        free_outcome(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),       cmocka_unit_test(test_digest),
        cmocka_unit_test(test_digest_value), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_statuses),     cmocka_unit_test(test_arms),
        cmocka_unit_test(test_pr),           cmocka_unit_test(test_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
