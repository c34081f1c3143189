/*
 * device/math.h against the C library in f64 or wider: the largest error in ulp of the f32
 * result, over a walk through the arguments, must stay within what the header states.
 */
#include <float.h>
#include <math.h>

#include "common.h"

struct function {
    const char *name;
    float (*got)(float);
    long double (*want)(long double);
    float from, to; /* |x| from .. to, and the negative ones if `both` */
    bool both;
    double ulp;
};

/* Distance between two neighbouring f32 at `x`; 2^-149 for subnormal numbers. */
static long double ulp_of(long double x)
{
    int e;
    frexpl(x, &e);
    return ldexpl(1.0L, e - 24 < -149 ? -149 : e - 24);
}

static long double want_sigmoid(long double x)
{
    return 1.0L / (1.0L + expl(-x));
}
static long double want_silu(long double x)
{
    return x / (1.0L + expl(-x));
}
static long double want_gelu(long double x)
{
    const long double pi = 3.14159265358979323846L;
    long double u = sqrtl(2.0L / pi) * (x + 0.044715L * x * x * x);
    return x / (1.0L + expl(-2.0L * u));
}
static long double want_softplus(long double x)
{
    return log1pl(expl(x));
}
static long double want_rsqrt(long double x)
{
    return 1.0L / sqrtl(x);
}
static long double want_pow_1e6(long double x)
{
    return powl(1e6L, x);
}
static float got_pow_1e6(float x)
{
    return kg_powf(1e6f, x);
}
static long double want_pow_base(long double x)
{
    return powl(x, -0.328125L);
}
static float got_pow_base(float x)
{
    return kg_powf(x, -0.328125f);
}

static const struct function functions[] = {
    {"exp",         kg_expf,       expl,          0x1p-30f,  87.3f,      true,  0.75},
    {"exp2",        kg_exp2f,      exp2l,         0x1p-30f,  125.9f,     true,  0.75},
    {"sigmoid",     kg_sigmoidf,   want_sigmoid,  0x1p-30f,  87.0f,      true,  3.0 },
    {"silu",        kg_siluf,      want_silu,     0x1p-30f,  87.0f,      true,  3.0 },
    {"rsqrt",       kg_rsqrtf,     want_rsqrt,    FLT_MIN,   FLT_MAX,    false, 1.5 },
    {"log",         kg_logf,       logl,          0x1p-149f, FLT_MAX,    false, 0.51},
    {"log2",        kg_log2f,      log2l,         0x1p-149f, FLT_MAX,    false, 0.51},
    {"tanh",        kg_tanhf,      tanhl,         0x1p-40f,  100.0f,     true,  0.51},
    {"softplus",    kg_softplusf,  want_softplus, 0x1p-30f,  87.0f,      true,  0.51},
    {"gelu_tanh",   kg_gelu_tanhf, want_gelu,     0x1p-40f,  10.03f,     true,  3.0 },
    {"sin",         kg_sinf,       sinl,          0x1p-40f,  1048576.0f, true,  0.51},
    {"cos",         kg_cosf,       cosl,          0x1p-40f,  1048576.0f, true,  0.51},
    {"pow 1e6^x",   got_pow_1e6,   want_pow_1e6,  0x1p-20f,  6.0f,       true,  0.51},
    {"pow x^-0.33", got_pow_base,  want_pow_base, FLT_MIN,   FLT_MAX,    false, 0.51},
};

static void test_errors(void **)
{
    int over = 0;
    for (const struct function &f : functions) {
        double worst = 0;
        float at = 0;
        uint32_t first = __float_as_uint(f.from), last = __float_as_uint(f.to);
        uint32_t step = (last - first) / 300000u | 1u;
        for (uint64_t bits = first; bits <= last; bits += step)
            for (int sign = 0; sign <= (int)f.both; sign++) {
                float x = __uint_as_float((uint32_t)bits);
                x = sign != 0 ? -x : x;
                long double want = f.want(x);
                double err = (double)(fabsl(f.got(x) - want) / ulp_of(want));
                if (!(err <= worst)) {
                    worst = err;
                    at = x;
                }
            }
        print_message("%-12s %.3f ulp at %a, stated %g\n", f.name, worst, (double)at,
                      f.ulp);
        over += !(worst <= f.ulp);
    }
    assert_int_equal(over, 0);
}

/* Multiples of pi/2, where the reduction cancels most. */
static void test_reduction(void **)
{
    for (int n = 1; n < 600000; n += 7) {
        float x = (float)(n * 1.57079632679489661923);
        long double s = sinl(x), c = cosl(x);
        assert_true(fabsl(kg_sinf(x) - s) <= 0.51L * ulp_of(s));
        assert_true(fabsl(kg_cosf(x) - c) <= 0.51L * ulp_of(c));
    }
}

static bool same(float a, float b)
{
    return __float_as_uint(a) == __float_as_uint(b);
}

static void test_edges(void **)
{
    for (const struct function &f : functions)
        assert_true(isnan(f.got(NAN)));
    assert_true(same(kg_expf(0.0f), 1.0f) && same(kg_expf(-INFINITY), 0.0f));
    assert_true(isinf(kg_expf(INFINITY)) && isinf(kg_expf(88.8f)));
    assert_true(same(kg_expf(-104.5f), 0.0f) && same(kg_expf(-3e38f), 0.0f));
    assert_true(kg_expf(88.7f) < INFINITY && isinf(kg_expf(3e38f)));
    for (int n = -149; n < 128; n++)
        assert_true(same(kg_exp2f((float)n), ldexpf(1.0f, n)));
    assert_true(isinf(kg_exp2f(128.0f)) && same(kg_exp2f(-151.0f), 0.0f));
    /* Subnormal results: at most one more rounding. */
    for (float x = -87.0f; x > -105.0f; x -= 0.01f)
        assert_true(fabsl(kg_expf(x) - expl(x)) <= 1.5L * ulp_of(expl(x)));
    for (float x = -87.0f; x > -200.0f; x -= 0.01f) {
        assert_true(fabsl(kg_sigmoidf(x) - want_sigmoid(x)) <= 0x1p-126L);
        assert_true(fabsl(kg_siluf(x) - want_silu(x)) <= 0x1p-120L);
    }
    assert_true(kg_sigmoidf(INFINITY) == 1.0f && kg_sigmoidf(-INFINITY) == 0.0f);
    assert_true(isinf(kg_siluf(INFINITY)) && kg_siluf(-INFINITY) == 0.0f);
    assert_true(kg_logf(1.0f) == 0.0f && kg_logf(0.0f) == -INFINITY);
    assert_true(isnan(kg_logf(-1.0f)) && isinf(kg_logf(INFINITY)));
    for (int n = -149; n < 128; n++)
        assert_true(kg_log2f(ldexpf(1.0f, n)) == (float)n);
    assert_true(same(kg_tanhf(-0.0f), -0.0f) && kg_tanhf(INFINITY) == 1.0f &&
                kg_tanhf(-INFINITY) == -1.0f);
    for (float x = -10.0f; x > -200.0f; x -= 0.001f)
        assert_true(fabsl(kg_gelu_tanhf(x) - want_gelu(x)) <=
                    0x1p-120L + 3.0L * ulp_of(want_gelu(x)));
    for (float x = 8.0f; x < 1e38f; x *= 1.01f)
        assert_true(same(kg_gelu_tanhf(x), x));
    assert_true(kg_gelu_tanhf(-INFINITY) == 0.0f && isinf(kg_gelu_tanhf(INFINITY)));
    assert_true(kg_softplusf(-INFINITY) == 0.0f && isinf(kg_softplusf(INFINITY)));
    assert_true(kg_sinf(0.0f) == 0.0f && kg_cosf(0.0f) == 1.0f);
    assert_true(isnan(kg_sinf(INFINITY)) && isnan(kg_cosf(2e6f)));
    assert_true(kg_powf(2.0f, 10.0f) == 1024.0f && isnan(kg_powf(-1.0f, 2.0f)));
    assert_true(kg_powf(7.0f, 0.0f) == 1.0f && isinf(kg_powf(10.0f, 40.0f)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_reduction),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
