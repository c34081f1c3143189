/*
 * What a lane of a warpgroup does with its two rows of scores: mask, softmax, output.
 *
 * s and o are accumulators of wgmma (device/sm90.h): of row r of two, elements 4j + 2r and
 * 4j + 2r + 1 are columns 8j + 2t and 8j + 2t + 1, t = lane % 4.
 */
#ifndef KGATE_KERNELS_ATTENTION_SM90_ROWS_H
#define KGATE_KERNELS_ATTENTION_SM90_ROWS_H

#include "kernels/attention/rows.h"
#include "kernels/device/f16x2.h"
#include "kernels/device/sm90.h"

template <bool F16>
static __device__ __forceinline__ uint32_t pack(float lo, float hi)
{
    return F16 ? kg_round_half2(lo, hi) : kg_pack_bf162_fast(lo, hi);
}

/* State of the two rows. */
struct rows2 {
    float max[2], sum[2], rescale[2];
};

/* Row r sees the tile's keys first[r] .. end[r] - 1. */
template <int N>
static __device__ __forceinline__ void mask(float (&s)[N], const int first[2],
                                            const int end[2])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2, r = i / 2 % 2;
        s[i] = key < first[r] || key >= end[r] ? -INFINITY : s[i];
    }
}

/* Scores to weights, in place. */
template <int N>
static __device__ __forceinline__ void softmax(float (&s)[N], struct rows2 &rows, float c)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = rows.max[r], odd = rows.max[r]; /* two chains, half as long */
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            top = fmaxf(top, s[4 * j + 2 * r]);
            odd = fmaxf(odd, s[4 * j + 2 * r + 1]);
        }
        top = fmaxf(top, odd);
        top = fmaxf(top, __shfl_xor_sync(KG_WARP_ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(KG_WARP_ALL, top, 2));
        const float base = top == -INFINITY ? 0.0f : top * c;
        rows.rescale[r] = kg_exp2_approx(fmaf(rows.max[r], c, -base));
        rows.max[r] = top;
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < N / 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * j + 2 * r + e];
                x = kg_exp2_approx(fmaf(x, c, -base));
                sum[e] += x;
            }
        rows.sum[r] = fmaf(rows.sum[r], rows.rescale[r], sum[0] + sum[1]);
    }
}

template <bool F16, int W, int N>
static __device__ __forceinline__ void pack_weights(uint32_t (&w)[W][4],
                                                    const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < W; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            w[i][e] = pack<F16>(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]);
}

/*
 * o / l of row r of two. The quotient is corrected once by its remainder, as division does
 * it, which rounds it to nearest unless o is below 2^-100; one reciprocal serves the row and
 * no branch stands between the elements. What is not finite, or a row without keys, is divided.
 */
template <int N>
static __device__ __forceinline__ void store_row(float *to, const float (&o)[N], int r,
                                                 float l)
{
    float y = kg_reciprocal_approx(l), finite = l > 0.0f ? 0.0f : NAN;
    y = fmaf(y, fmaf(-l, y, 1.0f), y);
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        finite = fmaf(o[4 * i + 2 * r], 0.0f, fmaf(o[4 * i + 2 * r + 1], 0.0f, finite));
    if (finite == 0.0f) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float q[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = o[4 * i + 2 * r + e], first = x * y;
                q[e] = fmaf(y, fmaf(-l, first, x), first);
            }
            *(float2 *)(to + 8 * i) = make_float2(q[0], q[1]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *(float2 *)(to + 8 * i) =
            make_float2(finish(o[4 * i + 2 * r], l), finish(o[4 * i + 2 * r + 1], l));
}

#endif
