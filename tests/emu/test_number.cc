/*
 * The small float formats against their definitions: every code, every tie, and a walk over
 * all of f32.
 */
#include <math.h>
#include <string.h>

#include "common.h"

/* value of sign/exponent/mantissa with the given widths, by the definition. */
static double define(uint32_t code, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t m = code & ((1u << mantissa_bits) - 1);
    int e = (int)(code >> mantissa_bits & ((1u << exponent_bits) - 1));
    double sign = code >> (exponent_bits + mantissa_bits) & 1u ? -1.0 : 1.0;
    double fraction = (double)m / (double)(1u << mantissa_bits);
    return sign * (e == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, e - bias));
}

static uint32_t half_code(float x)
{
    return kg_f32_to_half(x).bits;
}
static uint32_t bf16_code(float x)
{
    return kg_f32_to_bf16(x).bits;
}
static uint32_t e4m3_code(float x)
{
    return kg_f32_to_e4m3(x);
}
static uint32_t e2m1_code(float x)
{
    return kg_f32_to_e2m1(x);
}

/* Between neighbours `code` and `code` + 1 of a format: the middle goes to the even one, and
   the two f32 beside it to the nearer. `n` codes, the last finite. */
static void check_ties(uint32_t n, uint32_t sign, int e_bits, int m_bits,
                       uint32_t (*encode)(float))
{
    for (uint32_t code = 0; code + 1 < n; code++) {
        double lo = define(code, e_bits, m_bits), hi = define(code + 1, e_bits, m_bits);
        float middle = (float)((lo + hi) / 2);
        assert_true((double)middle == (lo + hi) / 2);
        assert_int_equal(encode((float)lo), code);
        assert_int_equal(encode(-(float)lo), code | sign);
        assert_int_equal(encode(middle), code + (code & 1u));
        assert_int_equal(encode(-middle), (code + (code & 1u)) | sign);
        assert_int_equal(encode(nextafterf(middle, -1.0f)), code);
        assert_int_equal(encode(nextafterf(middle, INFINITY)), code + 1);
        assert_int_equal(encode(-nextafterf(middle, INFINITY)), (code + 1) | sign);
    }
}

static void test_half(void **)
{
    for (uint32_t code = 0; code < 65536; code++) {
        float x = kg_half_to_f32(kg_half_from_bits((uint16_t)code));
        if ((code & 0x7c00u) == 0x7c00u) {
            if ((code & 0x3ffu) != 0)
                assert_true(isnan(x));
            else
                assert_true(isinf(x) && (x < 0) == (code >> 15 != 0));
            continue;
        }
        assert_true((double)x == define(code, 5, 10));
        assert_int_equal(signbit(x) != 0, code >> 15);
        assert_int_equal(half_code(x), code);
    }
    check_ties(0x7c00, 0x8000, 5, 10, half_code);
    assert_int_equal(half_code(65519.996f), 0x7bff);
    assert_int_equal(half_code(65520.0f), 0x7c00);
    assert_int_equal(half_code(-INFINITY), 0xfc00);
    assert_int_equal(half_code(NAN), 0x7fff);
    assert_int_equal(half_code(-NAN), 0x7fff);
    assert_int_equal(half_code(0x1p-149f), 0);
}

static void test_bf16(void **)
{
    for (uint32_t code = 0; code < 65536; code++) {
        float x = kg_bf16_to_f32(kg_bf16_from_bits((uint16_t)code));
        if ((code & 0x7f80u) == 0x7f80u) {
            assert_true((code & 0x7fu) != 0 ? isnan(x) : isinf(x));
            continue;
        }
        assert_true((double)x == define(code, 8, 7));
        assert_int_equal(bf16_code(x), code);
    }
    check_ties(0x7f80, 0x8000, 8, 7, bf16_code);
    assert_int_equal(bf16_code(3.4028235e38f), 0x7f80);
    assert_int_equal(bf16_code(NAN), 0x7fff);
}

static void test_e4m3(void **)
{
    for (uint32_t code = 0; code < 256; code++) {
        float x = kg_e4m3_to_f32((uint8_t)code);
        float unsigned_x = kg_ue4m3_to_f32((uint8_t)code);
        if ((code & 0x7fu) == 0x7fu) {
            assert_true(isnan(x) && isnan(unsigned_x));
            continue;
        }
        assert_true((double)x == define(code, 4, 3));
        assert_true((double)unsigned_x == fabs(define(code, 4, 3)));
        assert_int_equal(signbit(x) != 0, code >> 7);
        assert_int_equal(e4m3_code(x), code);
    }
    check_ties(0x7f, 0x80, 4, 3, e4m3_code);
    assert_int_equal(e4m3_code(448.0f), 0x7e);
    assert_int_equal(e4m3_code(464.0f), 0x7e);
    assert_int_equal(e4m3_code(1e30f), 0x7e);
    assert_int_equal(e4m3_code(-INFINITY), 0xfe);
    assert_int_equal(e4m3_code(NAN), 0x7f);
    assert_int_equal(e4m3_code(-0.0f), 0x80);
    assert_int_equal(e4m3_code(0x1p-10f), 0);
}

static void test_e2m1(void **)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (uint32_t code = 0; code < 16; code++) {
        float want = code < 8 ? values[code] : -values[code - 8];
        float x = kg_e2m1_to_f32((uint8_t)code);
        assert_true(x == want && (signbit(x) != 0) == (code >= 8));
        assert_int_equal(e2m1_code(x), code);
        assert_int_equal(kg_e2m1_doubled((uint8_t)code), (int)(2 * want));
    }
    check_ties(8, 8, 2, 1, e2m1_code);
    assert_int_equal(e2m1_code(7.0f), 7);
    assert_int_equal(e2m1_code(-INFINITY), 15);
    assert_int_equal(e2m1_code(NAN), 0);
}

static void test_e8m0(void **)
{
    for (uint32_t code = 0; code < 255; code++)
        assert_true((double)kg_e8m0_to_f32((uint8_t)code) == ldexp(1.0, (int)code - 127));
    assert_true(isnan(kg_e8m0_to_f32(255)));
}

/* Every f32 in large steps: the code is the nearest by the definition. */
static void test_walk(void **)
{
    for (uint64_t bits = 0; bits < 0x7f800000u; bits += 1009) {
        float x = __uint_as_float((uint32_t)bits);
        uint32_t h = half_code(x);
        if (x < 65504.0f) {
            double err = fabs(define(h, 5, 10) - x);
            assert_true(err <= fabs(define(h + 1, 5, 10) - x));
            assert_true(h == 0 || err <= fabs(define(h - 1, 5, 10) - x));
        }
        uint32_t e = e4m3_code(x);
        if (x < 448.0f) {
            double err = fabs(define(e, 4, 3) - x);
            assert_true(e == 0x7e || err <= fabs(define(e + 1, 4, 3) - x));
            assert_true(e == 0 || err <= fabs(define(e - 1, 4, 3) - x));
        } else {
            assert_int_equal(e, 0x7e);
        }
    }
}

/* a * b + c in f64 is exact where the terms are near enough; rounded to half once. */
static void test_half_arithmetic(void **)
{
    uint32_t state = 3;
    int compared = 0;
    for (int i = 0; i < 2000000; i++) {
        struct kg_half a = kg_half_from_bits((uint16_t)(test_random(&state) % 0x7c00u));
        struct kg_half b = kg_half_from_bits((uint16_t)(test_random(&state) % 0x7c00u));
        struct kg_half c = kg_half_from_bits(
            (uint16_t)(test_random(&state) % 0x7c00u | (test_random(&state) & 0x8000u)));
        double x = kg_half_to_f32(a), y = kg_half_to_f32(b), z = kg_half_to_f32(c);
        long double exact = (long double)(x * y) + z;
        if (exact != 0 &&
            (fabs(x * y) > 0x1p40 * fabs(z) || fabs(z) > 0x1p40 * fabs(x * y)))
            continue;
        uint32_t got = kg_hfma(a, b, c).bits;
        long double size = fabsl(exact);
        if (size >= 65520) {
            assert_int_equal(got & 0x7fffu, 0x7c00u);
            continue;
        }
        uint32_t g = got & 0x7fffu;
        if (g == 0x7c00u)
            fail();
        long double err = fabsl(define(g, 5, 10) - size);
        long double up = fabsl(define(g + 1, 5, 10) - size);
        long double down = g == 0 ? INFINITY : fabsl(define(g - 1, 5, 10) - size);
        assert_true(err < up || (err == up && (g & 1u) == 0));
        assert_true(err < down || (err == down && (g & 1u) == 0));
        compared++;
    }
    assert_true(compared > 1000000);
    /* 1 + 2^-11 is a tie that the product's last bit breaks. */
    struct kg_half one = kg_f32_to_half(1.0f);
    assert_int_equal(kg_hfma(kg_f32_to_half(0x1p-6f), kg_f32_to_half(0x1p-5f), one).bits,
                     0x3c00);
    assert_int_equal(
        kg_hfma(kg_f32_to_half(0x1.004p-6f), kg_f32_to_half(0x1p-5f), one).bits, 0x3c01);
}

/* Selectors, carries and saturation against bytes. */
static void test_integer(void **)
{
    uint32_t state = 11;
    for (int i = 0; i < 100000; i++) {
        uint32_t a = test_random(&state), b = test_random(&state),
                 c = test_random(&state);
        uint32_t dot_s = c, dot_u = c, add = 0, sub = 0, sat = 0, perm = 0, rev = 0;
        for (int k = 0; k < 4; k++) {
            int8_t x = (int8_t)(a >> 8 * k), y = (int8_t)(b >> 8 * k);
            dot_s += (uint32_t)(x * y);
            dot_u += (uint32_t)((uint8_t)x * (uint8_t)y);
            add |= (uint32_t)(uint8_t)(x + y) << 8 * k;
            sub |= (uint32_t)(uint8_t)(x - y) << 8 * k;
            int d = x - y;
            sat |= (uint32_t)(uint8_t)(d > 127 ? 127 : d < -128 ? -128 : d) << 8 * k;
            uint32_t s = c >> 4 * k & 15u;
            uint8_t byte = (uint8_t)((s & 4u ? b : a) >> 8 * (s & 3u));
            if (s & 8u)
                byte = byte & 0x80u ? 0xff : 0;
            perm |= (uint32_t)byte << 8 * k;
        }
        for (int k = 0; k < 32; k++)
            rev |= (a >> k & 1u) << (31 - k);
        assert_int_equal((uint32_t)__dp4a((int)a, (int)b, (int)c), dot_s);
        assert_int_equal(__dp4a(a, b, c), dot_u);
        assert_int_equal(__vadd4(a, b), add);
        assert_int_equal(__vsub4(a, b), sub);
        assert_int_equal(__vsubss4(a, b), sat);
        assert_int_equal(__byte_perm(a, b, c), perm);
        assert_int_equal(__brev(a), rev);
        uint32_t s = c & 31u;
        assert_int_equal(__funnelshift_l(a, b, s), s == 0 ? b : b << s | a >> (32 - s));
        assert_int_equal(__funnelshift_r(a, b, s), s == 0 ? a : a >> s | b << (32 - s));
    }
    assert_int_equal(__dp4a((int)0x80808080, (int)0x80808080, 0), 65536);
    assert_int_equal(__clz(0), 32);
    assert_int_equal(__clz(1), 31);
    assert_int_equal(__ffs(0), 0);
    assert_int_equal(__ffs(8), 4);
    assert_int_equal(__float2int_rn(2.5f), 2);
    assert_int_equal(__float2int_rn(-3.5f), -4);
    assert_int_equal(__float2int_rn(1e10f), INT32_MAX);
    assert_int_equal(__float2int_rn(-INFINITY), INT32_MIN);
    assert_int_equal(__float2int_rn(NAN), 0);
    assert_true(fmaxf(NAN, 1.0f) == 1.0f && fminf(1.0f, NAN) == 1.0f);
    assert_true(signbit(fmaxf(-0.0f, 0.0f)) == 0 && signbit(fminf(0.0f, -0.0f)) != 0);
    uint8_t bytes[9] = {9, 1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(kg_load_u32_a1(bytes + 1), 0x04030201u);
    assert_int_equal(kg_load_u16_a1(bytes + 1), 0x0201u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_e2m1),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_half_arithmetic),
        cmocka_unit_test(test_integer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
