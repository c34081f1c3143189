/*
 * One group of rows8.cu as a warp sees it: where its operands lie, how they become fragments, and
 * what is done, out of line, when its sums may need their order (fp4.h).
 */
#ifndef KGATE_KERNELS_DSV4_ROWS8_GROUP_H
#define KGATE_KERNELS_DSV4_ROWS8_GROUP_H

#include "kernels/dsv4/rows8_operands.h"

namespace
{

/* Where a lane finds its operands of a group: four nibbles of columns g and g + 8 (w8) and
   four codes of row g for every step. */
struct places {
    const unsigned char *w, *w8, *codes, *s;
    const uint32_t *factors;
};

template <int KIND>
__device__ __forceinline__ struct places
places_of(const struct layout<KIND> &l, const unsigned char *shared, int rows, int j)
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int row = min(g, rows - 1); /* beyond the end: the last one again */
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    struct places p;
    p.w = shared + g * l.w_stride + q * 2 * STEPS + j * (GROUP / 2);
    p.w8 = p.w + 8 * l.w_stride;
    p.codes = shared + l.codes_at + row * l.code_stride + q * 4 * STEPS + j * GROUP;
    p.s = shared + l.s_at + g * 8 + l.s_offset(j);
    p.factors = (const uint32_t *)(shared + l.factors_at) + row * l.factor_stride +
                j * GROUP / 128;
    return p;
}

template <int STEPS>
__device__ __forceinline__ void load_codes(const unsigned char *from, uint32_t x4[STEPS])
{
    if (STEPS == 1) {
        x4[0] = kg_load_u32(from);
    } else {
        const uint2 both = *(const uint2 *)from;
        x4[0] = both.x;
        x4[STEPS - 1] = both.y;
    }
}

/* The weights of a group as the high bytes of halves: of column g, of column g + 8. */
template <int STEPS>
__device__ __forceinline__ void load_w(const unsigned char *w, const unsigned char *w8,
                                       uint32_t bytes[STEPS][2])
{
    uint32_t even, odd;
    if (STEPS == 1) {
        w_bytes(kg_load_u16(w) | (uint32_t)kg_load_u16(w8) << 16, &even, &odd);
        bytes[0][0] = __byte_perm(even, odd, 0x5140);
        bytes[0][1] = __byte_perm(even, odd, 0x7362);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            w_bytes(kg_load_u32(i == 0 ? w : w8), &even, &odd);
            bytes[0][i] = __byte_perm(even, odd, 0x5140);
            bytes[STEPS - 1][i] = __byte_perm(even, odd, 0x7362);
        }
    }
}

/* One step of them as an A fragment for four codes in a row. */
__device__ __forceinline__ void w_fragment(const uint32_t bytes[2], uint32_t a[4])
{
    halves_of_bytes(bytes[0], &a[0], &a[2]);
    halves_of_bytes(bytes[1], &a[1], &a[3]);
}

/* Four codes as a B fragment. */
__device__ __forceinline__ void x_fragment(uint32_t codes, uint32_t x[2])
{
    x[0] = kg_e4m3x2_to_half2(codes);
    x[1] = kg_e4m3x2_to_half2(codes >> 16);
}

/* sub * scale of a group in order. */
template <int GROUP>
__device__ __noinline__ float rare_group(const unsigned char *codes,
                                         const unsigned char *w, uint32_t factor)
{
    return ordered_group<GROUP>(codes, w) * (half_at(factor) * 0x1p-14f);
}

/* The sums of a group some of whose rows may need their order; d are those of the tensor
   cores. The test of fp4.h takes all weights for the largest; with the sums of
   |code * e2m1| themselves it nearly always says no. */
struct sums {
    float d[4];
};
template <int KIND>
__device__ __noinline__ struct sums marked_group(int k, const unsigned char *shared,
                                                 int rows, int j, float d0, float d1,
                                                 float d2, float d3)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const struct layout<KIND> l(k);
    const struct places p = places_of<KIND>(l, shared, rows, j);
    struct sums sums = {
        {d0, d1, d2, d3}
    };
    uint32_t x4[STEPS], bytes[STEPS][2], w[4], x[2];
    float before[4] = {},
          most[4] = {}; /* the sums of the steps before; the largest there are */
    load_codes<STEPS>(p.codes, x4);
    load_w<STEPS>(p.w, p.w8, bytes);
    for (int h = 0; h < STEPS; h++) {
        float magnitudes[4];
        for (int e = 0; e < 4; e++)
            magnitudes[e] = fabsf(before[e]);
        w_fragment(bytes[h], w);
        x_fragment(x4[h], x);
        if (h + 1 < STEPS)
            kg_mma_f16_16816(before, w, x);
        for (int i = 0; i < 4; i++)
            w[i] &= 0x7fff7fffu;
        x[0] &= 0x7fff7fffu;
        x[1] &= 0x7fff7fffu;
        kg_mma_f16_16816(magnitudes, w, x);
        for (int e = 0; e < 4; e++) /* a NaN stays */
            most[e] = most[e] > magnitudes[e] ? most[e] : magnitudes[e];
    }
    /* The smallest code but 0 has an ulp of `step`. 2^24 times half of it, times the 2^-14 of w, less
       a part for what the tensor cores may drop. */
    uint32_t least = 0x7bffu;
    for (int h = 0; h < 2 * STEPS; h++) {
        const uint32_t pair = kg_e4m3x2_to_half2(x4[h / 2] >> h % 2 * 16) & 0x7fff7fffu;
        least =
            min(least, min((pair & 0xffffu) - 1u, (pair >> 16) - 1u)); /* 0 is large */
    }
    least = __reduce_min_sync(KG_WARP_ALL, least) + 1;
    const float step = fmaxf(half_at(least & 0x7c00u) * 0.125f, 0x1p-9f);
    const float limit = step * 511.0f;
    const unsigned char *codes = shared + l.codes_at;
    const uint32_t *factors = (const uint32_t *)(shared + l.factors_at);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int row = min(2 * q + e % 2, rows - 1), col = g + e / 2 * 8;
        if (!(most[e] < limit))
            sums.d[e] =
                rare_group<GROUP>(codes + row * l.code_stride + j * GROUP,
                                  shared + col * l.w_stride + j * (GROUP / 2),
                                  factors[row * l.factor_stride + j * GROUP / 128]);
    }
    return sums;
}

/* The whole tile in order. */
template <int KIND>
__device__ __noinline__ void in_order(struct gemm_args a, int64_t col0, int64_t row0)
{
    for (int i = threadIdx.x / 32; i < COLS * ROWS; i += WARPS) {
        const int64_t row = row0 + i / COLS, col = col0 + i % COLS;
        if (row >= a.m || col >= a.n)
            continue;
        const float y = ordered_output<KIND>(a, row, col);
        if (threadIdx.x % 32 == 0)
            a.y[row * a.n + col] = y;
    }
}

} // namespace

#endif
