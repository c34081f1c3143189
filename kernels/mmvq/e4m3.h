/*
 * The stages of the fast product (product.h) for E4M3 weights.
 *
 * The dot of a unit is exact: weights become halves, and each is the sum of an integer of at most
 * 448 and a rest of at most 1/2, a multiple of 2^-9. Products of the first with int8 are
 * integers, their sum stays below 2^21; those of the second are multiples of 2^-9 and sum to less
 * than 2^12. So every partial sum of either kind is an f32, whatever the order in which mma.sync
 * adds, and dot = high + low rounds once. A NaN code makes both sums NaN.
 */
#ifndef KGATE_KERNELS_MMVQ_E4M3_H
#define KGATE_KERNELS_MMVQ_E4M3_H

#include "kernels/device/f16x2.h"
#include "kernels/device/fp8.h"
#include "kernels/mmvq/product.h"

struct fmt_e4m3 {
    enum {
        TYPE = KG_TYPE_F8_E4M3,
        BLOCK = 32,
        BYTES = 32,
        ALIGN = 1,
        GROUP = 32,
        MINIMUM = 0,
        QUADS = 0
    };
};

struct read_e4m3 : read_base {
    using F = fmt_e4m3;
    enum { MAP = MAP_RUN, EXTRA = 0, OFFSET = 0, NEGATED = 0, PLANES = 1 };
    enum { ZERO_TAIL = 1 };
    static __device__ __host__ constexpr int plane_bytes(int)
    {
        return 1024;
    }
};

/* Four codes to high[2] and low[2], two halves each. The unit in the last place of a half
   between 1024 and 2048 is 1. */
static __device__ __forceinline__ void split_e4m3(uint32_t codes, uint32_t high[2],
                                                  uint32_t low[2])
{
    const uint32_t round = 0x66006600u; /* 1536 */
    uint32_t v[2];
    kg_e4m3x4_to_half2(codes, v);
    for (int i = 0; i < 2; i++) {
        high[i] = kg_hsub2(kg_hadd2(v[i], round), round);
        low[i] = kg_hsub2(v[i], high[i]);
    }
}

/* Two of four int8, of which 128 was added to each: as the last bits of 1024 + x. */
static __device__ __forceinline__ uint32_t raised_to_half2(uint32_t word, int at)
{
    const uint32_t v = __byte_perm(word, 0x64646464u, at ? 0x4342 : 0x4140);
    return kg_hsub2(v, 0x64806480u); /* 1152 */
}

/* Codes `at` bits from the start of a word, and the next. */
static __device__ __forceinline__ uint32_t codes_to_half2(uint32_t word, int at)
{
    return raised_to_half2(word ^ 0x80808080u, at);
}

/* Activations 8t .. 8t + 7 of a unit as halves. */
static __device__ __forceinline__ void load_x_half(const uint8_t *x, int t, uint32_t b[4])
{
    const uint2 v = kg_load_uint2(x + 8 * t);
    b[0] = codes_to_half2(v.x, 0);
    b[1] = codes_to_half2(v.x, 16);
    b[2] = codes_to_half2(v.y, 0);
    b[3] = codes_to_half2(v.y, 16);
}

/* high += the dots of the large codes of rows g (c0) and g + 8 (c1) with b, low likewise. */
static __device__ __forceinline__ void add_e4m3(float high[4], float low[4], uint2 c0,
                                                uint2 c1, const uint32_t b[4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t h0[2], h1[2], l0[2], l1[2];
        split_e4m3(i ? c0.y : c0.x, h0, l0);
        split_e4m3(i ? c1.y : c1.x, h1, l1);
        const uint32_t h[4] = {h0[0], h1[0], h0[1], h1[1]};
        const uint32_t l[4] = {l0[0], l1[0], l0[1], l1[1]};
        kg_mma_f16_16816(high, h, b + 2 * i);
        kg_mma_f16_16816(low, l, b + 2 * i);
    }
}

/* Scale of the warp's 128 weights: those of a stage's row share o / 128, as do TILE_ROWS. Not set
   behind the end of a row, where nothing is added. */
static __device__ __forceinline__ float block_scale(const struct product_args &p,
                                                    const uint8_t *scales, int w)
{
    return p.block_scales ? ((const float *)scales)[w] : 1.0f;
}

template <>
__device__ __forceinline__ void
narrow_stage<read_e4m3>(const struct product_args &p, const struct job<read_e4m3> &,
                        int chunk, const uint8_t *stage, const struct code_tables &,
                        float *acc)
{
    using L = stage_layout<read_e4m3, 1>;
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const float a = block_scale(p, stage + L::scales, w);
    uint32_t mine[4];
    load_x_half(stage + L::x + 32 * (4 * w + (g >> 1)), t, mine);
    const int unit = 4 * w + t;
    const float d = *(const float *)(stage + L::d + 4 * unit);
    const bool exists = chunk * STAGE_K + unit * KG_UNIT < p.k;
    float high[TILE_ROWS / 16][4] = {}, low[TILE_ROWS / 16][4] = {};
#pragma unroll
    for (int u = 0; u < 4; u++) {
        uint32_t b[4];
        for (int i = 0; i < 4; i++)
            b[i] = g == 2 * u ? mine[i] : 0u;
#pragma unroll
        for (int group = 0; group < TILE_ROWS / 16; group++) {
            const uint8_t *row = stage + (16 * group + g) * row_stride<read_e4m3>(0) +
                                 32 * (4 * w + u) + 8 * t;
            add_e4m3(high[group], low[group], kg_load_uint2(row),
                     kg_load_uint2(row + 8 * row_stride<read_e4m3>(0)), b);
        }
    }
    for (int group = 0; group < TILE_ROWS / 16; group++)
        for (int h = 0; h < 2; h++) {
            float *v = acc + 2 * group + h;
            const float dot = high[group][2 * h] + low[group][2 * h];
            if (exists)
                *v = fmaf(a, d * dot, *v);
        }
}

template <>
__device__ __forceinline__ void
wide_stage<read_e4m3, 1>(const struct product_args &p, const struct job<read_e4m3> &,
                         int chunk, const uint8_t *stage, const struct code_tables &,
                         float *acc)
{
    using L = stage_layout<read_e4m3, 8>;
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const float a = block_scale(p, stage + L::scales, w);
    const int left = p.k / KG_UNIT - chunk * 32 - 4 * w;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        uint32_t b[4];
        load_x_half(stage + L::x + g * X_STRIDE + 32 * (4 * w + u), t, b);
        const float *dp = (const float *)(stage + L::d) + 2 * t * D_STRIDE + 4 * w + u;
        const float d[2] = {dp[0], dp[D_STRIDE]};
#pragma unroll
        for (int group = 0; group < TILE_ROWS / 16; group++) {
            const uint8_t *row = stage + (16 * group + g) * row_stride<read_e4m3>(0) +
                                 32 * (4 * w + u) + 8 * t;
            float high[4] = {}, low[4] = {};
            add_e4m3(high, low, kg_load_uint2(row),
                     kg_load_uint2(row + 8 * row_stride<read_e4m3>(0)), b);
            float *v = acc + (group * 4 + u) * 4;
            for (int i = 0; i < 4; i++)
                if (u < left)
                    v[i] = fmaf(a, d[i % 2] * (high[i] + low[i]), v[i]);
        }
    }
}

#endif
