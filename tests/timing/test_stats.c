/* The statistics of timings and the roofline, on fixed samples. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runner/bench/calibrate.h"
#include "runner/bench/nvml.h"
#include "runner/bench/roofline.h"
#include "runner/bench/stats.h"

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* Ranks as in the tables of the sign test: 97.9 % at n = 10, 95.9 % at 20, 95.7 % at 30. */
static void test_median_ranks(void **state)
{
    static const struct {
        size_t n, low, high;
    } rows[] = {
        {6,   1,  6 },
        {9,   2,  8 },
        {10,  2,  9 },
        {20,  6,  15},
        {30,  10, 21},
        {100, 40, 61}
    };
    size_t low, high;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(kg_median_ranks(rows[i].n, &low, &high));
        assert_int_equal(low, rows[i].low);
        assert_int_equal(high, rows[i].high);
    }
    assert_false(kg_median_ranks(5, &low, &high));
    assert_false(kg_median_ranks(1, &low, &high));
}

static void test_order_statistics(void **state)
{
    (void)state;
    const double odd[] = {5, 1, 100, 3, 2};
    struct kg_stats s = kg_stats_of(odd, 5);
    near(s.median, 3);
    near(s.mad, 2); /* of 2 2 97 0 1 */
    near(s.min, 1);
    near(s.max, 100);
    assert_false(s.interval_is_95);
    near(s.low, 1);
    near(s.high, 100);
    const double even[] = {10, 7, 9, 8, 6, 5, 4, 3, 2, 1};
    s = kg_stats_of(even, 10);
    near(s.median, 5.5);
    near(s.mad, 2.5);
    assert_true(s.interval_is_95);
    near(s.low, 2);
    near(s.high, 9);
    near(even[0], 10); /* the samples keep their order */
}

static void test_throttle_filter(void **state)
{
    (void)state;
    double us[] = {1, 2, 3, 4, 5};
    const bool throttled[] = {true, false, false, true, false};
    assert_int_equal(kg_drop_throttled(us, throttled, 5), 3);
    near(us[0], 2);
    near(us[1], 3);
    near(us[2], 5);
    const bool all[] = {true, true, true};
    assert_int_equal(kg_drop_throttled(us, all, 3), 0);
}

static void test_throttle_reasons(void **state)
{
    (void)state;
    char text[128];
    assert_false(kg_is_throttled(0));
    assert_false(kg_is_throttled(0x1)); /* idle */
    assert_false(kg_is_throttled(0x2)); /* a clock that was asked for */
    assert_true(kg_is_throttled(0x4));
    assert_true(kg_is_throttled(0x1 | 0x40));
    assert_string_equal(kg_throttle_text(0x1, text, sizeof text), "none");
    assert_string_equal(kg_throttle_text(0x4 | 0x80, text, sizeof text),
                        "sw-power-cap,power-brake");
}

static void test_roofline(void **state)
{
    (void)state;
    const struct kg_ceilings c = {
        .copy_gbps = 4000, .read_gbps = 4200, .f16_tflops = 700};
    struct kg_cost cost = {4.2e9, 0, NULL}; /* 1 ms at the read rate */
    struct kg_roofline r = kg_roofline_of(&cost, 2000, &c);
    near(r.gbps, 2100);
    near(r.floor_us, 1000);
    near(r.percent, 50);
    assert_true(r.memory_bound);
    assert_false(r.invalid);
    r = kg_roofline_of(&cost, 999, &c);
    assert_true(r.invalid);
    cost = (struct kg_cost){4.2e6, 1.4e12, "f16-mma"}; /* 2 ms of arithmetic */
    r = kg_roofline_of(&cost, 4000, &c);
    assert_false(r.memory_bound);
    near(r.tflops, 350);
    near(r.percent, 50);
    cost.engine = "int8-mma"; /* its ceiling was not measured */
    r = kg_roofline_of(&cost, 4000, &c);
    assert_true(r.memory_bound);
}

static void test_calibration_round_trip(void **state)
{
    (void)state;
    const struct kg_calibration k = {
        {1, 2, 3, 4, 5},
        0.0625, 5
    };
    struct kg_calibration back;
    json_t *json = kg_calibration_json(&k);
    assert_int_equal(kg_calibration_read(json, &back), 0);
    near(back.ceilings.empty_launch_us, 5);
    near(back.noise, 0.0625);
    json_object_del(json_object_get(json, "ceilings"), "int8_tops");
    assert_int_equal(kg_calibration_read(json, &back), KG_E_FORMAT);
    json_decref(json);
    assert_int_equal(kg_calibration_read(NULL, &back), KG_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_ranks),
        cmocka_unit_test(test_order_statistics),
        cmocka_unit_test(test_throttle_filter),
        cmocka_unit_test(test_throttle_reasons),
        cmocka_unit_test(test_roofline),
        cmocka_unit_test(test_calibration_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
