/*
 * What rows8.cu keeps in shared memory, and how it gets there: w and codes as they are, weight
 * scales as f32, activation scales as factors of halves (fp4.h).
 */
#ifndef KGATE_KERNELS_DSV4_ROWS8_OPERANDS_H
#define KGATE_KERNELS_DSV4_ROWS8_OPERANDS_H

#include "kernels/device/multicast.h"
#include "kernels/device/overlap.h"
#include "kernels/device/split_barrier.h"
#include "kernels/dsv4/launch.h"

namespace
{

constexpr int COLS = 16, ROWS = 8, WARPS = 8, THREADS = 32 * WARPS;
/* floats from a row of a warp's sums to the next, and from a warp to the next: four rows that
   are stored together are 8 banks apart, two warps that are read together 16 */
constexpr int SUM_ROW = 20, SUM_STRIDE = ROWS * SUM_ROW + 16;

/* Rows in shared memory are longer than their data by as much as puts the 8 rows that a warp
   reads together into different banks. The weight scales of columns g and g + 8 are a pair;
   8 groups of 8 pairs are followed by a gap, for the stores. */
template <int KIND>
struct layout {
    int w_stride, code_stride, factor_stride; /* bytes, bytes, words */
    int codes_at, s_at, factors_at, sums_at, bytes;

    __host__ __device__ explicit layout(int64_t k)
    {
        const int groups = (int)k / recipe<KIND>::GROUP;
        w_stride = (int)k / 2 + 16;
        code_stride = (int)k + 16 * recipe<KIND>::STEPS;
        factor_stride = (int)k / 128 + 1;
        codes_at = COLS * w_stride;
        s_at = codes_at + ROWS * code_stride;
        factors_at = s_at + s_offset(groups + 7);
        sums_at = (factors_at + (ROWS * factor_stride + ROWS) * 4 + 15) / 16 * 16;
        bytes = sums_at + WARPS * SUM_STRIDE * 4;
    }
    static __host__ __device__ int s_offset(int group)
    {
        return group * 64 + group / 8 * 64;
    }
};

/* Scales that a thread holds until it may wait for them. A warp has 16 groups of all columns
   at a time, a lane 8 of them of one. Of the activation scales a warp has a row. K: of the product
   if it is known, else 0. */
template <int KIND, int K>
struct held_scales {
    static constexpr int K_MOST = K != 0 ? K : 9216;
    static constexpr int AT_A_TIME = 16 * WARPS;
    static constexpr int CHUNKS =
        (K_MOST / recipe<KIND>::GROUP + AT_A_TIME - 1) / AT_A_TIME;
    static constexpr int BLOCKS = (K_MOST / 128 + 31) / 32;
    uint32_t words[CHUNKS][2];
    uint32_t bits[BLOCKS];
};

template <int KIND, int K>
__device__ __forceinline__ void request_weight_scales(const struct gemm_args &a, int k,
                                                      unsigned col0,
                                                      struct held_scales<KIND, K> &held)
{
    const int groups = k / recipe<KIND>::GROUP;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned col = min(col0 + lane / 2, (unsigned)a.n - 1);
    const uint8_t *ws = a.ws + (int64_t)col * groups;
#pragma unroll
    for (int c = 0; c < held.CHUNKS; c++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int at = (warp + WARPS * c) * 16 + lane % 2 * 8 + h * 4;
            if (at < groups)
                held.words[c][h] = kg_load_u32(ws + at);
        }
}

template <int KIND, int K>
__device__ __forceinline__ void request_factors(const struct gemm_args &a, int k,
                                                unsigned row0,
                                                struct held_scales<KIND, K> &held)
{
    const int blocks = k / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned row = min(row0 + warp % ROWS, (unsigned)a.m - 1);
    const uint32_t *bits = (const uint32_t *)a.scales + (int64_t)row * blocks;
#pragma unroll
    for (int i = 0; i < held.BLOCKS; i++) /* beyond the end: one that is there */
        held.bits[i] = bits[min(lane + 32 * i, blocks - 1)];
}

/* Stores the weight scales as f32. False if the tile must be summed in order. */
template <int KIND, int K>
__device__ __forceinline__ bool
store_weight_scales(const struct gemm_args &a, const struct layout<KIND> &l, int k,
                    const struct held_scales<KIND, K> &held, unsigned char *shared)
{
    const int groups = k / recipe<KIND>::GROUP;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bool fits = KIND == KG_DSV4_MXFP4 || scale2_fits(a.scale2);
#pragma unroll
    for (int c = 0; c < held.CHUNKS; c++) {
        const int first = (warp + WARPS * c) * 16 + lane % 2 * 8;
        unsigned char *s =
            shared + l.s_at + l.s_offset(first) + lane / 2 % 8 * 8 + lane / 16 * 4;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (first + h * 4 < groups) {
                const uint32_t word = held.words[c][h];
                float value[4];
                if (KIND == KG_DSV4_MXFP4) {
                    fits &= e8m0_fit(word);
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        value[e] = __uint_as_float((word >> 8 * e & 0xffu) << 23);
                } else {
#pragma unroll
                    for (int e = 0; e < 4; e += 2) {
                        const uint32_t pair = kg_e4m3x2_to_half2(word >> 8 * e);
                        value[e] = half_at(pair) * a.scale2;
                        value[e + 1] = half_at(pair >> 16) * a.scale2;
                    }
                }
#pragma unroll
                for (int e = 0; e < 4; e++)
                    *(float *)(s + (h * 4 + e) * 64) = value[e];
            }
    }
    return fits;
}

/* Stores the activation scales as factors. False if the tile must be summed in order. */
template <int KIND, int K>
__device__ __forceinline__ bool store_factors(const struct layout<KIND> &l, int k,
                                              const struct held_scales<KIND, K> &held,
                                              unsigned char *shared)
{
    const int blocks = k / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t smallest = held.bits[0], largest = held.bits[0], mantissas = held.bits[0];
#pragma unroll
    for (int i = 1; i < held.BLOCKS; i++) {
        smallest = min(smallest, held.bits[i]);
        largest = max(largest, held.bits[i]);
        mantissas |= held.bits[i];
    }
    smallest = __reduce_min_sync(KG_WARP_ALL, smallest);
    largest = __reduce_max_sync(KG_WARP_ALL, largest);
    uint32_t *factors = (uint32_t *)(shared + l.factors_at);
    if (warp < ROWS) {
#pragma unroll
        for (int i = 0; i < held.BLOCKS; i++)
            if (lane + 32 * i < blocks)
                factors[warp * l.factor_stride + lane + 32 * i] =
                    half_factor(held.bits[i], largest);
        if (lane == 0)
            *(float *)&factors[ROWS * l.factor_stride + warp] = row_factor(largest);
    }
    return halves_carry(smallest, largest) && (mantissas & 0x7fffffu) == 0;
}

/* Requests all weights, which arrive `there`. Columns beyond the end are the last one again. */
template <int KIND>
__device__ __forceinline__ void
request_weights(const struct gemm_args &a, const struct layout<KIND> &l, int k,
                unsigned col0, unsigned char *shared, uint64_t *there)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = warp; i < COLS; i += WARPS) {
        const unsigned col = min(col0 + i, (unsigned)a.n - 1);
        const uint8_t *w = a.w + (int64_t)col * (k / 2);
#pragma unroll 4
        for (int at = lane * 16; at < k / 2; at += 32 * 16)
            kg_cp_async_16(shared + i * l.w_stride + at, w + at);
    }
#if KG_SPLIT_BARRIER
    kg_cp_async_arrive(there);
#else
    (void)there;
    kg_cp_async_commit();
    kg_cp_async_wait<0>();
#endif
}

/* Requests the codes, when the launch before is complete; the blocks of a cluster get them
   together. By one warp. */
template <int KIND>
__device__ __forceinline__ void
request_codes(const struct gemm_args &a, const struct layout<KIND> &l, int k,
              unsigned row0, int rows, unsigned char *shared, uint64_t *arrival)
{
    kg_multicast_meet();
    kg_grid_wait();
    kg_grid_release();
    if (threadIdx.x == 0)
#pragma unroll 1
        for (int row = kg_multicast_rank(); row < rows; row += kg_multicast_ranks())
            kg_multicast_copy(shared + l.codes_at + row * l.code_stride,
                              a.codes + (int64_t)(row0 + row) * k, k, arrival);
}

} // namespace

#endif
