/*
 * q8_1 in registers: the arithmetic that every kernel which makes codes shares.
 *
 * 32 values lie in 32 / N neighbouring lanes, N each (4, 8 or 16), the first lane a
 * multiple of 32 / N:
 *
 *   amax = max |x|     d = amax / 127     id = d > 0 ? 1 / d : 0
 *   code = round-half-even(x * id)        s = d * (f32)(sum of the 32 codes)
 *
 * Maximum and sum are exact, hence free of order. Where the rule is silent: codes saturate
 * at +-127 (d loses bits when subnormal, and 1 / d may be infinite there), a product that is
 * NaN gives code 0, and a NaN among the values makes amax, d and s NaN, so that it reaches
 * the result.
 */
#ifndef KGATE_KERNELS_MATVEC_Q8_1_H
#define KGATE_KERNELS_MATVEC_Q8_1_H

#include <stdint.h>

#include "kernels/device/device.h"

/* The code of x in the low byte. 1.5 * 2^23 added to a number of at most 2^22 rounds it to
   an integer, ties to even, and leaves the integer's low bits in the mantissa. */
static __device__ __forceinline__ uint32_t q8_1_code_bits(float x, float inverse)
{
    const float product = x * inverse;
    const float kept = product == product ? product : 0.0f;
    return __float_as_uint(fminf(fmaxf(kept, -127.0f), 127.0f) + 12582912.0f);
}

/* Codes of the lane's N values, four to a word, the first in the low byte; scale and sum of
   codes of the 32, the same in every lane of the group. All lanes of the warp must be here.
   |x| is compared as bits: an unsigned order that puts NaN above infinity. */
template <int N>
static __device__ __forceinline__ void
q8_1_encode(const float v[N], uint32_t words[N / 4], float *scale, int *sum)
{
    uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        amax = max(amax, __float_as_uint(v[i]) & 0x7fffffffu);
#pragma unroll
    for (int distance = 16 / N; distance > 0; distance /= 2)
        amax = max(amax, __shfl_xor_sync(KG_WARP_ALL, amax, distance));
    *scale = __uint_as_float(amax) / 127.0f;
    const float inverse = *scale > 0.0f ? 1.0f / *scale : 0.0f;

    *sum = 0;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const float *x = v + 4 * i;
        const uint32_t low = __byte_perm(q8_1_code_bits(x[0], inverse),
                                         q8_1_code_bits(x[1], inverse), 0x0040);
        const uint32_t high = __byte_perm(q8_1_code_bits(x[2], inverse),
                                          q8_1_code_bits(x[3], inverse), 0x0040);
        words[i] = __byte_perm(low, high, 0x5410);
        *sum = __dp4a((int)words[i], 0x01010101, *sum);
    }
#pragma unroll
    for (int distance = 16 / N; distance > 0; distance /= 2)
        *sum += __shfl_xor_sync(KG_WARP_ALL, *sum, distance);
}

/* Four values, one of each block, combined over 8 lanes: lanes 2i and 2i + 1 of the eight
   get the result of v[i]. Four exchanges instead of twelve. */
template <typename T, class OP>
static __device__ __forceinline__ T q8_1_fold4(const T v[4], OP op)
{
    const bool high = (threadIdx.x & 4) != 0, odd = (threadIdx.x & 2) != 0;
    const T a =
        op(high ? v[2] : v[0], __shfl_xor_sync(KG_WARP_ALL, high ? v[0] : v[2], 4));
    const T b =
        op(high ? v[3] : v[1], __shfl_xor_sync(KG_WARP_ALL, high ? v[1] : v[3], 4));
    const T c = op(odd ? b : a, __shfl_xor_sync(KG_WARP_ALL, odd ? a : b, 2));
    return op(c, __shfl_xor_sync(KG_WARP_ALL, c, 1));
}

/* As q8_1_encode<4> on each of v[0] .. v[3], which belong to four blocks. Lanes 2i and
   2i + 1 of eight get the scale and the sum of block i, and only they divide for it.
   Where d is a normal number, each rounding moves a product by 2^-24 of itself at most:
   it stays below 127.5, and is never NaN, so that its code needs no limits. d < 2^-126 is
   1 / d > 2^126; of a d that is infinite, NaN or 0 the inverse is 0. */
static __device__ __forceinline__ void
q8_1_encode_four(const float v[4][4], uint32_t words[4], float *scale, int *sum)
{
    uint32_t amax[4];
    int sums[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        amax[i] = __float_as_uint(v[i][0]) & 0x7fffffffu;
#pragma unroll
        for (int k = 1; k < 4; k++)
            amax[i] = max(amax[i], __float_as_uint(v[i][k]) & 0x7fffffffu);
    }
    *scale = __uint_as_float(
                 q8_1_fold4(amax, [](uint32_t a, uint32_t b) { return max(a, b); })) /
             127.0f;
    const float own = *scale > 0.0f ? 1.0f / *scale : 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float inverse =
            __shfl_sync(KG_WARP_ALL, own, (threadIdx.x & 24) + 2 * (unsigned)i);
        uint32_t code[4];
        if (inverse > 0.0f && inverse <= 0x1p126f) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                code[k] = __float_as_uint(v[i][k] * inverse + 12582912.0f);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                code[k] = q8_1_code_bits(v[i][k], inverse);
        }
        words[i] = __byte_perm(__byte_perm(code[0], code[1], 0x0040),
                               __byte_perm(code[2], code[3], 0x0040), 0x5410);
        sums[i] = __dp4a((int)words[i], 0x01010101, 0);
    }
    *sum = q8_1_fold4(sums, [](int a, int b) { return a + b; });
}

#endif
