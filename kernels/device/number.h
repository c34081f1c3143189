/*
 * device/number.h: the small float formats, to and from f32.
 *
 *   half   IEEE binary16      kg_half_to_f32, kg_f32_to_half
 *   bf16   top half of f32    kg_bf16_to_f32, kg_f32_to_bf16
 *   e4m3   bias 7, no infinity, NaN is 0x7F and 0xFF, largest 448
 *   ue4m3  e4m3 without sign: bit 7 is ignored; 0x7F is NaN here (ggml reads 0: kernels that
 *          follow ggml test for it)
 *   e8m0   2^(code - 127), 255 is NaN
 *   e2m1   0 .5 1 1.5 2 3 4 6 and a sign in bit 3
 *
 * To f32 is exact. From f32 rounds to nearest even. Half and bf16 overflow to infinity; e4m3
 * and e2m1 saturate (infinities too). A NaN becomes 0x7FFF in half and bf16, 0x7F in e4m3,
 * 0 in e2m1. The sign and payload of a NaN made by a conversion to f32 are not specified.
 */
#ifndef KG_DEVICE_NUMBER_H
#define KG_DEVICE_NUMBER_H

#include <stdint.h>

#if defined(KG_EMU)
#if defined(__F16C__)
#include <immintrin.h>
#endif
#else
#include <cuda_fp16.h>
#endif

struct kg_half {
    uint16_t bits;
};
struct kg_bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float kg_half_to_f32(struct kg_half h)
{
#if !defined(KG_EMU)
    return __half2float(__ushort_as_half(h.bits));
#elif defined(__F16C__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h.bits)));
#else
    uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16;
    uint32_t magnitude = h.bits & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u)
        return __uint_as_float(sign | ((magnitude << 13) + (112u << 23)));
    float value = (float)magnitude * 0x1p-24f;
    return sign != 0 ? -value : value;
#endif
}

static __device__ __forceinline__ struct kg_half kg_f32_to_half(float x)
{
    struct kg_half h;
#if !defined(KG_EMU)
    h.bits = __half_as_ushort(__float2half_rn(x));
#else
    uint32_t bits = __float_as_uint(x);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        h.bits = 0x7fff;
    } else if (magnitude >= 0x477ff000u) { /* 65520, halfway to the next power of two */
        h.bits = (uint16_t)(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) { /* below 2^-14: steps of 2^-24 */
        float shifted = __uint_as_float(magnitude) + 0.5f;
        h.bits = (uint16_t)(sign | (__float_as_uint(shifted) - 0x3f000000u));
    } else {
        uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
        h.bits = (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
    }
#endif
    return h;
}

static __device__ __forceinline__ float kg_bf16_to_f32(struct kg_bf16 b)
{
    return __uint_as_float((uint32_t)b.bits << 16);
}

static __device__ __forceinline__ struct kg_bf16 kg_f32_to_bf16(float x)
{
    uint32_t bits = __float_as_uint(x);
    struct kg_bf16 b;
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        b.bits = 0x7fff;
    else
        b.bits = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    return b;
}

static __device__ __forceinline__ struct kg_half kg_half_from_bits(uint16_t bits)
{
    struct kg_half h;
    h.bits = bits;
    return h;
}

static __device__ __forceinline__ struct kg_bf16 kg_bf16_from_bits(uint16_t bits)
{
    struct kg_bf16 b;
    b.bits = bits;
    return b;
}

/* Two values in the order that mma registers want: lo in bits 0..15. */
static __device__ __forceinline__ uint32_t kg_pack_half2(struct kg_half lo,
                                                         struct kg_half hi)
{
    return lo.bits | (uint32_t)hi.bits << 16;
}

static __device__ __forceinline__ uint32_t kg_pack_f32_to_half2(float lo, float hi)
{
    return kg_pack_half2(kg_f32_to_half(lo), kg_f32_to_half(hi));
}

static __device__ __forceinline__ uint32_t kg_pack_f32_to_bf162(float lo, float hi)
{
    return kg_f32_to_bf16(lo).bits | (uint32_t)kg_f32_to_bf16(hi).bits << 16;
}

/* Half arithmetic with one rounding. A sum, difference or product of halves rounded to f32
   and then to half equals the direct rounding, as 24 >= 2 * 11 + 2. */
static __device__ __forceinline__ struct kg_half kg_hadd(struct kg_half a,
                                                         struct kg_half b)
{
    return kg_f32_to_half(kg_half_to_f32(a) + kg_half_to_f32(b));
}

static __device__ __forceinline__ struct kg_half kg_hmul(struct kg_half a,
                                                         struct kg_half b)
{
    return kg_f32_to_half(kg_half_to_f32(a) * kg_half_to_f32(b));
}

/* a * b + c. The product is exact in f32; the sum is rounded to odd (its error, found
   exactly, decides the last bit), so that rounding to half is the only rounding. */
static __device__ __forceinline__ struct kg_half
kg_hfma(struct kg_half a, struct kg_half b, struct kg_half c)
{
    float p = kg_half_to_f32(a) * kg_half_to_f32(b);
    float q = kg_half_to_f32(c);
    float sum = p + q;
    float q_seen = sum - p;
    float error = (p - (sum - q_seen)) + (q - q_seen);
    uint32_t bits = __float_as_uint(sum);
    if ((error > 0.0f || error < 0.0f) && (bits & 1u) == 0u)
        bits += (error > 0.0f) == (sum > 0.0f) ? 1u : 0xffffffffu;
    return kg_f32_to_half(__uint_as_float(bits));
}

static __device__ __forceinline__ float kg_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t magnitude = code & 0x7fu;
    if (magnitude == 0x7fu)
        return __uint_as_float(sign | 0x7fc00000u);
    if (magnitude < 8u) { /* steps of 2^-9 */
        float value = (float)(int)magnitude * 0x1p-9f;
        return __uint_as_float(sign | __float_as_uint(value));
    }
    return __uint_as_float(sign | ((magnitude << 20) + (120u << 23)));
}

static __device__ __forceinline__ uint8_t kg_f32_to_e4m3(float x)
{
    uint32_t bits = __float_as_uint(x);
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7f;
    if (magnitude >= 0x43e00000u) /* 448 and above */
        return (uint8_t)(sign | 0x7eu);
    if (magnitude < 0x3c800000u) { /* below 2^-6: 2^14 has steps of 2^-9 */
        float shifted = __uint_as_float(magnitude) + 16384.0f;
        return (uint8_t)(sign | (__float_as_uint(shifted) - 0x46800000u));
    }
    uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    return (uint8_t)(sign | ((rounded >> 20) - (120u << 3)));
}

static __device__ __forceinline__ float kg_ue4m3_to_f32(uint8_t code)
{
    return kg_e4m3_to_f32((uint8_t)(code & 0x7fu));
}

static __device__ __forceinline__ float kg_e8m0_to_f32(uint8_t code)
{
    uint32_t bits = code == 255u ? 0x7fc00000u : code == 0u ? 0x00400000u : 0u;
    return __uint_as_float(bits != 0u ? bits : (uint32_t)code << 23);
}

/* Only bits 0..3 are read; code 8 is -0. */
static __device__ __forceinline__ float kg_e2m1_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 8u) << 28;
    uint32_t magnitude = code & 7u;
    uint32_t bits =
        magnitude < 2u ? magnitude * 0x3f000000u : (magnitude << 22) + 0x3f000000u;
    return __uint_as_float(sign | bits);
}

/* Twice the value of an e2m1 code, an integer: 0 1 2 3 4 6 8 12. Code 8 gives 0. */
static __device__ __forceinline__ int kg_e2m1_doubled(uint8_t code)
{
    int magnitude = (int)(0xc8643210u >> (4 * (code & 7u)) & 15u);
    return (code & 8u) != 0u ? -magnitude : magnitude;
}

static __device__ __forceinline__ uint8_t kg_f32_to_e2m1(float x)
{
    uint8_t sign = (uint8_t)(__float_as_uint(x) >> 28 & 8u);
    float a = __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
    if (a != a)
        return 0;
    /* A tie goes to the even code, hence <= and < in turn. */
    uint8_t code = a <= 0.25f   ? 0
                   : a < 0.75f  ? 1
                   : a <= 1.25f ? 2
                   : a < 1.75f  ? 3
                   : a <= 2.5f  ? 4
                   : a < 3.5f   ? 5
                   : a <= 5.0f  ? 6
                                : 7;
    return (uint8_t)(sign | code);
}

#endif
