/*
 * What the tiles form (tiles.cu) does with a group that has marks: which of its sums need their
 * order after all, and those in order.
 */
#ifndef KGATE_KERNELS_DSV4_TILES_MARKS_H
#define KGATE_KERNELS_DSV4_TILES_MARKS_H

#include "kernels/dsv4/tiles_prepare.h"

namespace
{

constexpr int VALUES = 32; /* outputs of a thread */

/* The thread's nibbles of some steps. */
template <int STEPS>
__device__ __forceinline__ void load_w(const unsigned char *w, uint32_t spread[STEPS])
{
#pragma unroll
    for (int h = 0; h < STEPS; h++)
        spread[h] = *(const uint32_t *)(w + h * 128);
}

/* The B fragment of eight rows in a step. */
__device__ __forceinline__ void load_x(const unsigned char *x, int part, uint32_t b[2])
{
    const unsigned char *at = x + part * 256 + threadIdx.x % 32 * 4;
    b[0] = kg_load_u32(at);
    b[1] = kg_load_u32(at + 128);
}

/* The sum of row r of a tile and a column in k order, scaled as that of the tensor cores:
   nibbles[h * 4 + q] >> shift are its weights. Scaling by a power of two commutes with every
   rounding here. */
template <int STEPS>
__device__ inline float ordered_sum(const unsigned char *x, int r,
                                    const uint32_t *nibbles, int shift)
{
    float sub = 0.0f;
#pragma unroll 1
    for (int i = 0; i < STEPS * 16; i++) {
        const int h = i / 16, q = i / 4 % 4,
                  e = i % 4; /* e 0, 2: first pair; 1, 3: second */
        const uint32_t pair =
            kg_load_u32(x + h * 2048 + r / 8 * 256 + e % 2 * 128 + (r % 8 * 4 + q) * 4);
        const uint32_t code = nibbles[i / 4] >> (shift + 4 * e);
        sub = sub + half_at(e < 2 ? pair : pair >> 16) * kg_e2m1_to_f32((uint8_t)code);
    }
    return sub * 0x1p-14f;
}

/* The value of the last bit of a half that is set; infinity for 0. */
__device__ inline float last_bit(uint32_t half)
{
    const uint32_t bits = __float_as_uint(half_at(half & 0x7fffu));
    const float rest = __uint_as_float(bits & (bits - 1));
    return bits == 0                 ? __uint_as_float(0x7f800000u)
           : (bits & 0x7fffffu) == 0 ? __uint_as_float(bits)
                                     : __uint_as_float(bits) - rest;
}

/* Below what sums of |x * w| the eight rows of a fragment need no order, of the lane's two rows:
   2^24 times the last bit of a product, less a part for what the tensor cores may drop. */
template <int STEPS>
__device__ inline void order_limits(const uint32_t b[STEPS][2], float limits[2])
{
    float last = __uint_as_float(0x7f800000u);
    for (int h = 0; h < STEPS; h++)
        for (int i = 0; i < 2; i++)
            last = fminf(last, fminf(last_bit(b[h][i]), last_bit(b[h][i] >> 16)));
    for (int distance = 1; distance <= 2; distance *= 2)
        last = fminf(last, __shfl_xor_sync(KG_WARP_ALL, last, distance));
    for (int i = 0; i < 2; i++)
        limits[i] =
            __shfl_sync(KG_WARP_ALL, last, (threadIdx.x % 4 * 2 + i) * 4) * 511.0f;
}

/* Which of the thread's four sums with eight rows may need their order, bit by bit. The test of fp4.h
   takes all weights for the largest; with the sums of |x * w| of a step themselves, on top of the
   sum of the steps before, it nearly always says no. */
template <int STEPS>
__device__ __forceinline__ uint32_t unsettled(const uint32_t a[STEPS][4],
                                              const unsigned char *x, int part)
{
    uint32_t b[STEPS][2], found = 0;
    float before[4] = {}, most[4] = {}, limits[2];
    for (int h = 0; h < STEPS; h++) {
        uint32_t large[4];
        float magnitudes[4];
        for (int i = 0; i < 4; i++) {
            magnitudes[i] = fabsf(before[i]);
            large[i] = a[h][i] & 0x7fff7fffu;
        }
        load_x(x + h * 2048, part, b[h]);
        if (h + 1 < STEPS)
            kg_mma_f16_16816(before, a[h], b[h]);
        b[h][0] &= 0x7fff7fffu;
        b[h][1] &= 0x7fff7fffu;
        kg_mma_f16_16816(magnitudes, large, b[h]);
        for (int i = 0; i < 4; i++) /* a NaN stays */
            most[i] = most[i] > magnitudes[i] ? most[i] : magnitudes[i];
    }
    order_limits<STEPS>(b, limits);
    for (int i = 0; i < 4; i++)
        found |= most[i] < limits[i % 2] ? 0u : 1u << i;
    return found;
}

/* Whether any of the thread's sums of a marked group may. */
template <int STEPS>
__device__ inline bool any_unsettled(const uint32_t spread[STEPS], const unsigned char *x,
                                     uint64_t marks)
{
    uint32_t a[STEPS][4], found = 0;
    for (int h = 0; h < STEPS; h++)
        spread_halves(spread[h], a[h]);
#pragma unroll 1
    for (int part = 0; part < VALUES / 4; part++) {
        const uint32_t rows = (uint32_t)(marks >> part * 8) & 0xffu;
        if (rows != 0) /* two rows a thread, of two columns */
            found |=
                unsettled<STEPS>(a, x, part) & (rows >> threadIdx.x % 4 * 2 & 3u) * 5u;
    }
    return found != 0;
}

/* Puts right the sums of a marked group that need their order. */
template <int STEPS>
__device__ __forceinline__ void mend_group(const uint32_t spread[STEPS],
                                           const unsigned char *x, uint64_t marks,
                                           float d[VALUES])
{
    const int lane = threadIdx.x % 32;
    uint32_t a[STEPS][4], nibbles[STEPS * 4];
    for (int h = 0; h < STEPS; h++)
        spread_halves(spread[h], a[h]);
    for (int i = 0; i < STEPS * 4; i++)
        nibbles[i] =
            __shfl_sync(KG_WARP_ALL, nibbles_of(spread[i / 4]), (lane & ~3) | i % 4);
#pragma unroll 1
    for (int part = 0; part < VALUES / 4; part++) {
        if ((marks >> part * 8 & 0xffu) == 0)
            continue;
        const uint32_t found = unsettled<STEPS>(a, x, part);
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            if ((found >> i & 1u) == 0)
                continue;
            const float sum = ordered_sum<STEPS>(x, part * 8 + lane % 4 * 2 + i % 2,
                                                 nibbles, i / 2 * 16);
#pragma unroll
            for (int v = 0; v < VALUES; v++) /* no address of d */
                d[v] = v == part * 4 + i ? sum : d[v];
        }
    }
}

} // namespace

#endif
