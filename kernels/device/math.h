/*
 * device/math.h: elementary functions made of IEEE operations only (add, subtract, multiply,
 * divide, square root, fmaf, integer operations), so that every device gives the same bits.
 *
 * Largest error in ulp of the f32 result, measured by tests/emu against f64 or wider:
 *
 *   kg_expf, kg_exp2f                  0.75   results below 2^-126: one more rounding
 *   kg_sigmoidf, kg_siluf              3.0    below 2^-126: 2^-126, 2^-120 absolute
 *   kg_gelu_tanhf                      3.0    x/2 (1 + tanh(sqrt(2/pi)(x + 0.044715 x^3)));
 *                                             below 2^-120: that absolute
 *   kg_rsqrtf                          1.5    1 / sqrtf(x)
 *   kg_logf, kg_log2f, kg_tanhf        0.51   in f64 inside
 *   kg_softplusf                       0.51   log(1 + exp(x)); in f64 inside
 *   kg_sinf, kg_cosf                   0.51   |x| <= 2^20; larger: NaN; in f64 inside
 *   kg_powf                            0.51   x > 0, normal; otherwise NaN; in f64 inside
 *   kg_sin_quarter                     0.51   of an f64 angle, |x| <= 2^20; larger: NaN
 *
 * In units of 2^-24, relative, each at most an ulp of the quotient: for 3.0, exp within 0.75
 * ulp is 1.5 and the sum 1; for 1.5, the square root is 1; the division adds half an ulp.
 * (kg_siluf: 2.9 units measured, its division included; kg_gelu_tanhf: 2.7.)
 * NaN in, NaN out. Infinities give the limits.
 */
#ifndef KG_DEVICE_MATH_H
#define KG_DEVICE_MATH_H

#include <math.h>
#include <stdint.h>

static __device__ __forceinline__ float kg_sqrtf(float x)
{
    return sqrtf(x);
}

static __device__ __forceinline__ float kg_rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

/* 2^n for -126 <= n <= 127. */
static __device__ __forceinline__ float kg_pow2i(int n)
{
    return __uint_as_float((uint32_t)(n + 127) << 23);
}

/* p * 2^n, -252 <= n <= 254; in two steps, as 2^n alone may not be a normal number. */
static __device__ __forceinline__ float kg_scale2(float p, int n)
{
    int half = n >> 1;
    return p * kg_pow2i(half) * kg_pow2i(n - half);
}

/* exp(r + low), |r| <= 0.35 and low below an ulp of r: Taylor to r^7; the next term is below
   2^-27. 1 + r is added with its error carried, so that only the last addition rounds. */
static __device__ __forceinline__ float kg_exp_near_zero(float r, float low)
{
    float p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    float sum = 1.0f + r;
    float lost = (1.0f - sum) + r;
    return sum + (lost + fmaf(p * r, r, low));
}

/* Adding and subtracting 1.5 * 2^23 rounds to an integer, to nearest even. */
#define KG_ROUND_F32 12582912.0f
#define KG_ROUND_F64 6755399441055744.0

static __device__ __forceinline__ float kg_expf(float x)
{
    if (x != x)
        return x;
    float c = x > 89.0f ? 89.0f : x < -105.0f ? -105.0f : x;
    float n = c * 1.44269504f + KG_ROUND_F32 - KG_ROUND_F32;
    /* ln 2 in two parts; the first has 15 bits, so n times it is exact. */
    float whole = fmaf(n, -0.693145752f, c);
    float r = fmaf(n, -1.42860677e-6f, whole);
    float low = fmaf(n, -1.42860677e-6f, whole - r);
    return kg_scale2(kg_exp_near_zero(r, low), (int)n);
}

static __device__ __forceinline__ float kg_exp2f(float x)
{
    if (x != x)
        return x;
    float c = x > 129.0f ? 129.0f : x < -151.0f ? -151.0f : x;
    float n = c + KG_ROUND_F32 - KG_ROUND_F32;
    float f = c - n;
    float r = f * 0.693147182f;
    float low = fmaf(f, 0.693147182f, -r) + f * -1.90465421e-9f;
    return kg_scale2(kg_exp_near_zero(r, low), (int)n);
}

static __device__ __forceinline__ float kg_sigmoidf(float x)
{
    return 1.0f / (1.0f + kg_expf(-x));
}

/* exp(r) 2^n, the integer n being in the low bits of `shifted`; |r| <= 0.35, and the result
   a normal number. A plain Taylor sum. */
static __device__ __forceinline__ float kg_exp_part(float r, float shifted)
{
    float p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(r * r, p, r) + 1.0f;
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

/* x / (1 + exp(-x)), in half the instructions of kg_expf: kernels that apply it to arrays
   are bound by their number. 1 + exp needs no more than a plain Taylor sum, and no branch:
   the exponent of exp(-x) stays normal between the limits, a NaN comes back through the
   division, and below -88.37 the result is under 2^-120. The integer n sits in the low bits
   of `shifted`, from where it goes straight into the exponent. */
static __device__ __forceinline__ float kg_siluf(float x)
{
    float t = fminf(fmaxf(-x, -80.0f), 88.37f);
    float shifted = fmaf(t, 1.44269504f, KG_ROUND_F32);
    float n = shifted - KG_ROUND_F32;
    float r = fmaf(n, -0.693145752f, t);
    r = fmaf(n, -1.42860677e-6f, r);
    float e = kg_exp_part(r, shifted);
    float y = x / (1.0f + e);
    return x < -88.37f ? -0.0f : y;
}

/* exp(x) in f64 for |x| <= 700, within 1e-14 of the true value. */
static __device__ __forceinline__ double kg_exp_f64(double x)
{
    double n = x * 1.4426950408889634 + KG_ROUND_F64 - KG_ROUND_F64;
    double r = x - n * 0.693147180369123816490;
    r = r - n * 1.90821492927058770002e-10;
    double p = 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * __longlong_as_double((long long)((int64_t)n + 1023) << 52);
}

/* log(x) in f64 for normal x > 0: 2 atanh((m - 1)/(m + 1)) with m in [0.70, 1.42). */
static __device__ __forceinline__ double kg_log_f64(double x)
{
    int64_t bits = __double_as_longlong(x);
    int64_t n = (bits - 0x3fe6a09e667f3bcdll) >> 52; /* 0x3fe6.. is sqrt(1/2) */
    double m = __longlong_as_double((long long)(bits - n * (1ll << 52)));
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    return (double)n * 0.69314718055994531 + (2.0 * s + 2.0 * s * z * p);
}

/* log of 0, of negative numbers, infinity and NaN; true if x is one of them. */
static __device__ __forceinline__ bool kg_log_special(float x, float *result)
{
    if (x > 0.0f && x < INFINITY)
        return false;
    *result = x == 0.0f ? -INFINITY : x > 0.0f ? INFINITY : NAN;
    return true;
}

static __device__ __forceinline__ float kg_logf(float x)
{
    float special;
    return kg_log_special(x, &special) ? special : (float)kg_log_f64((double)x);
}

static __device__ __forceinline__ float kg_log2f(float x)
{
    float special;
    return kg_log_special(x, &special)
               ? special
               : (float)(kg_log_f64((double)x) * 1.4426950408889634);
}

static __device__ __forceinline__ float kg_powf(float x, float y)
{
    if (!(x >= 1.17549435e-38f && x < INFINITY) || y != y)
        return NAN;
    double e = kg_log_f64((double)x) * (double)y;
    e = e > 700.0 ? 700.0 : e < -700.0 ? -700.0 : e;
    return (float)kg_exp_f64(e);
}

static __device__ __forceinline__ double kg_tanh_f64(double x)
{
    if (x > -0.001 && x < 0.001) /* the fraction below would cancel */
        return x - x * x * x * (1.0 / 3.0);
    double c = x > 20.0 ? 20.0 : x < -20.0 ? -20.0 : x;
    double t = kg_exp_f64(2.0 * c);
    return (t - 1.0) / (t + 1.0);
}

static __device__ __forceinline__ float kg_tanhf(float x)
{
    return x != x ? x : x == 0.0f ? x : (float)kg_tanh_f64((double)x);
}

static __device__ __forceinline__ float kg_softplusf(float x)
{
    if (!(x < 40.0f)) /* exp(-40) is below half an ulp; NaN passes through */
        return x;
    if (x < -104.0f)
        return 0.0f;
    double t = kg_exp_f64((double)x);
    if (t < 1e-4) /* 1 + t would drop digits of t */
        return (float)(t - t * t * 0.5 + t * t * t * (1.0 / 3.0));
    return (float)kg_log_f64(1.0 + t);
}

#define KG_GELU_LINE 0x1.98844p+0f
#define KG_GELU_LINE_LOW 0x1.33d436p-20f
#define KG_GELU_CUBE 0x1.2444f2p-4f
#define KG_GELU_CUBE_LOW 0x1.49b16ap-29f

/* x / (1 + exp(-2u)), which is x/2 (1 + tanh u) without its cancellation; 2u = x q and
   q = 1.59.. + 0.0713.. x^2. An error of 2u is one of the result, relative, and 2u goes to
   88: q and 2u are pairs of f32. The first constant has 19 bits, so that q less it is
   exact. The rest is as in kg_siluf: the limits keep exp(-2u) normal (above 8 it adds
   nothing to 1), a NaN comes back through the division, and below -10.04 the result is under
   2^-120. */
static __device__ __forceinline__ float kg_gelu_tanhf(float x)
{
    float c = fminf(fmaxf(x, -10.04f), 8.0f);
    float s = c * c;
    float s_low = fmaf(c, c, -s);
    float q = fmaf(KG_GELU_CUBE, s, KG_GELU_LINE);
    float q_low = fmaf(KG_GELU_CUBE, s, KG_GELU_LINE - q);
    q_low += fmaf(KG_GELU_CUBE, s_low, fmaf(KG_GELU_CUBE_LOW, s, KG_GELU_LINE_LOW));
    float t = -c * q;
    float t_low = fmaf(-c, q_low, fmaf(-c, q, -t));
    float shifted = fmaf(t, 1.44269504f, KG_ROUND_F32);
    float n = shifted - KG_ROUND_F32;
    float r = fmaf(n, -0.693145752f, t);
    r = fmaf(n, -1.42860677e-6f, r) + t_low;
    float e = kg_exp_part(r, shifted);
    float y = x / (1.0f + e);
    return x < -10.04f ? -0.0f : y;
}

/* sin of `v` (quarter 0) or of v + pi/2 (quarter 1), Taylor on [-pi/4, pi/4]. The reduction
   is good to 2^-60 or so, or an ulp of v, for |v| <= 2^20: pi/2 in two parts, the first with
   33 bits, so that its multiple is exact. */
static __device__ __forceinline__ float kg_sin_quarter(double v, int quarter)
{
    if (!(v >= -1048576.0 && v <= 1048576.0))
        return NAN;
    double n = v * 0.63661977236758134 + KG_ROUND_F64 - KG_ROUND_F64;
    double r = v - n * 1.57079632673412561417;
    r = r - n * 6.07710050650619224932e-11;
    double z = r * r;
    int k = ((int)n + quarter) & 3;
    double y;
    if ((k & 1) == 0) {
        double p = 1.0 / 6227020800.0;
        p = p * z - 1.0 / 39916800.0;
        p = p * z + 1.0 / 362880.0;
        p = p * z - 1.0 / 5040.0;
        p = p * z + 1.0 / 120.0;
        p = p * z - 1.0 / 6.0;
        y = r + r * z * p;
    } else {
        double p = 1.0 / 479001600.0;
        p = p * z - 1.0 / 3628800.0;
        p = p * z + 1.0 / 40320.0;
        p = p * z - 1.0 / 720.0;
        p = p * z + 1.0 / 24.0;
        p = p * z - 0.5;
        y = 1.0 + z * p;
    }
    return (float)((k & 2) != 0 ? -y : y);
}

static __device__ __forceinline__ float kg_sinf(float x)
{
    return kg_sin_quarter((double)x, 0);
}

static __device__ __forceinline__ float kg_cosf(float x)
{
    return kg_sin_quarter((double)x, 1);
}

#endif
