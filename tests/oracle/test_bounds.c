/*
 * Bounds of sums whose order belongs to the hardware or is cut at unknown places: they hold for
 * sums that cut off instead of rounding, in several orders, and are as small as they claim.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plugins/oracle/dsv4.h"
#include "plugins/oracle/grouped.h"
#include "plugins/oracle/oracle.h"

enum { IN = 512, OUT = 24 };

static uint32_t scrambled(uint32_t i)
{
    i = (i ^ i >> 15) * 0x2c1b3c6du;
    i = (i ^ i >> 12) * 0x297a2d39u;
    return i ^ i >> 15;
}

/* In [-1, 1). */
static double pseudo(uint32_t i)
{
    return (int32_t)scrambled(i) * 0x1p-31;
}

/* x cut off to f32. */
static double cut_off(double x)
{
    int exponent;

    frexp(x, &exponent);
    return ldexp(trunc(ldexp(x, 24 - exponent)), exponent - 24);
}

/* Sixteen products at a time onto the sum, each addition cut off: the products first, last,
   or from the back. */
static double chain(const uint16_t *w, const uint16_t *x, int order)
{
    double sum = 0;

    for (int k = 0; k < IN; k += 16) {
        double part = order == 0 ? sum : 0;
        for (int i = 0; i < 16; i++) {
            int at = k + (order == 2 ? 15 - i : i);
            part =
                cut_off(part + kg_oracle_from_half(w[at]) * kg_oracle_from_half(x[at]));
        }
        sum = order == 0 ? part : cut_off(sum + part);
    }
    return sum;
}

/* fine: halves of all sizes; else multiples of 2^-6. */
static void check_grouped(bool fine)
{
    static uint16_t w[OUT * IN], x[IN];
    static const int32_t offsets[] = {0, 1};
    const float scale = 1.25f;
    double y[OUT], bound[OUT];

    for (uint32_t i = 0; i < OUT * IN; i++)
        w[i] = kg_oracle_to_half(fine ? ldexp(pseudo(i), (int)(i % 7))
                                      : round(pseudo(i) * 64) / 64);
    for (uint32_t i = 0; i < IN; i++)
        x[i] = kg_oracle_to_half(fine ? pseudo(i + 99999)
                                      : round(pseudo(i + 99999) * 64) / 64);
    kg_oracle_grouped_all(&(struct kg_oracle_grouped){.groups = 1,
                                                      .in = IN,
                                                      .out = OUT,
                                                      .offsets = offsets,
                                                      .scale = &scale,
                                                      .w = w,
                                                      .x = x},
                          y, bound);
    for (int o = 0; o < OUT; o++) {
        double one, its;
        for (int order = 0; order < 3; order++) {
            float got = (float)(chain(w + o * IN, x, order) * (double)scale);
            assert_true(fabs((double)got - y[o]) <= bound[o]);
        }
        if (!fine) /* exact but for the scale */
            assert_true(bound[o] <= 0x1.001p-24 * fabs(y[o]));
        assert_true(bound[o] <= 0x1p-8 * fabs(y[o]) + 0x1p-8);
        kg_oracle_grouped_at(
            &(struct kg_oracle_grouped){
                .in = IN, .out = OUT, .scale = &scale, .w = w, .x = x},
            0, 0, o, &one, &its);
        assert_true(fabs(one - y[o]) <= 0x1p-40 && fabs(its - bound[o]) <= 0x1p-30 * its);
    }
}

static void test_grouped(void **state)
{
    (void)state;
    check_grouped(true);
    check_grouped(false);
}

/* Chains of f32 products in other units than stage A's, as the router adds them. */
static void test_chain(void **state)
{
    static float w[OUT * IN], x[IN];
    double y[OUT], bound[OUT];
    int bitten = 0;

    (void)state;
    for (uint32_t i = 0; i < OUT * IN; i++)
        w[i] = (float)pseudo(i);
    for (uint32_t i = 0; i < IN; i++)
        x[i] = (float)pseudo(i + 77777);
    const struct kg_oracle_type *f32 = kg_oracle_type(KG_TYPE_F32);
    assert_int_equal(kg_oracle_linear_f32(f32, w, x, y, NULL, IN, OUT, 1), 0);
    for (int unit = 1; unit <= 16; unit *= 4) {
        assert_int_equal(kg_oracle_chain_bound(f32, w, x, bound, IN, OUT, 1, unit), 0);
        for (int o = 0; o < OUT; o++) {
            float lane[32] = {0};
            for (int k = 0; k < IN; k++)
                lane[k / unit % 32] = fmaf(w[o * IN + k], x[k], lane[k / unit % 32]);
            for (int distance = 16; distance > 0; distance /= 2)
                for (int l = 0; l < distance; l++)
                    lane[l] += lane[l + distance];
            assert_true(fabs((double)lane[0] - y[o]) <= bound[o]);
            bitten += !(fabs((double)lane[0] * (1 + 0x1p-15) - y[o]) <= bound[o]);
        }
    }
    assert_true(bitten > OUT);
}

/* dsv4's order, as the mirror adds it: within the bound, which a skew of 2^-16 leaves. */
static void test_dsv4(void **state)
{
    enum { K = 4096, N = 16 };
    static uint8_t codes[K], packed[N * K / 2], ws[N * K / 16];
    static float scales[K / 128];
    float got[N];
    double y[N], bound[N], terms[N];
    int bitten = 0;

    (void)state;
    for (uint32_t i = 0; i < K; i++)
        codes[i] = (uint8_t)(scrambled(i) % 126 | (scrambled(i) >> 8 & 128));
    for (uint32_t i = 0; i < N * K / 2; i++)
        packed[i] = (uint8_t)scrambled(i + 5);
    for (uint32_t i = 0; i < N * K / 16; i++)
        ws[i] = (uint8_t)(16 + scrambled(i + 9) % 90);
    for (int i = 0; i < K / 128; i++)
        scales[i] = ldexpf(1, i % 5 - 9);
    const struct kg_dsv4_weights w = {
        .w = packed, .ws = ws, .scale2 = 0.37f, .n = N, .k = K, .group = 16};
    assert_int_equal(kg_oracle_dsv4_mirror(&w, codes, scales, got, 1), 0);
    assert_int_equal(kg_oracle_dsv4_f64(&w, codes, scales, y, bound, terms, 1), 0);
    for (int o = 0; o < N; o++) {
        assert_true(fabs((double)got[o] - y[o]) <= bound[o]);
        assert_true(bound[o] > 0 && terms[o] >= fabs(y[o]) * (1 - 0x1p-40));
        bitten += !(fabs((double)got[o] * (1 + 0x1p-16) - y[o]) <= bound[o]);
    }
    assert_true(bitten > N / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouped),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_dsv4),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
