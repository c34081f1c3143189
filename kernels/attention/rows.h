/*
 * What the decode kernels share: parameters, where a row's keys lie, and the combination
 * of its splits.
 */
#ifndef KGATE_KERNELS_ATTENTION_ROWS_H
#define KGATE_KERNELS_ATTENTION_ROWS_H

#include "kernels/attention/partition.h"
#include "kernels/device/device.h"
#include "kgate/ops/attention.h"

struct decode {
    const float *q;
    const uint8_t *k, *v;
    float *out, *lse;
    float *partial;    /* [rows][heads][splits_max][head_dim] */
    float2 *state;     /* [rows][heads][splits_max]: maximum, sum of the split */
    unsigned *counter; /* [rows][heads]: warps' parts that are done; 0 between calls */
    const uint64_t *table;
    const int32_t *lengths; /* of each row, or NULL: length + row */
    uint32_t k_stride, v_stride;
    int k_type, v_type;
    int length;
    int settled; /* of decode_settled, otherwise 0 */
    int n_heads, n_kv_heads, window, splits_max;
    int group, splits_wanted; /* query heads of a key head; partition.h */
    int size_max;             /* the longest split that a row may have */
    int split_size, n_splits; /* of the only row, if the host knows its length; or 0 */
    float scale;
};

/* `rows` >= 0 strides: one instruction, where 64 bits by 64 are four. */
static __device__ __forceinline__ int64_t stride_of(int rows, uint32_t stride)
{
    return (int64_t)((uint64_t)(uint32_t)rows * stride);
}

/* The keys of one row. */
struct row_keys {
    const uint8_t *k, *v; /* of the first key that it sees, key head 0 */
    int n;                /* keys it sees */
    int settled; /* the first so many of them may be read before kg_grid_wait() */
};

static __device__ inline struct row_keys keys_of(const struct decode &p, int row)
{
    const int length = p.lengths ? p.lengths[row] : p.length + row;
    const int first = p.window > 0 && length > p.window ? length - p.window : 0;
    struct row_keys keys = {p.k, p.v, length > first ? length - first : 0,
                            min(p.settled, length) - first};
    if (p.table) {
        keys.k = (const uint8_t *)((uintptr_t)keys.k + p.table[2 * row]);
        keys.v = (const uint8_t *)((uintptr_t)keys.v + p.table[2 * row + 1]);
    }
    keys.k += stride_of(first, p.k_stride);
    keys.v += stride_of(first, p.v_stride);
    return keys;
}

/* Maximum and sum over a warp; every lane has the result. The additions are a butterfly
   over lane distances LANES / 2, .., 2, 1: each LANES lanes have a result of their own. */
template <int LANES = 32>
static __device__ __forceinline__ float warp_max(float x)
{
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, distance));
    return x;
}
template <int LANES = 32>
static __device__ __forceinline__ float warp_sum(float x)
{
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(KG_WARP_ALL, x, distance);
    return x;
}

/* The largest of a warp's numbers, none of them a NaN, in one instruction: integers in the
   order of the numbers. */
static __device__ __forceinline__ float reduce_max(float x)
{
    const uint32_t bits = __float_as_uint(x);
    const uint32_t most = __reduce_max_sync(
        KG_WARP_ALL, bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u));
    return __uint_as_float(most ^ (~(uint32_t)((int32_t)most >> 31) | 0x80000000u));
}

/* exp(x) for x <= 80, 0 below -87; NaN in, NaN out. Within an ulp: 1.49 units of 2^-24,
   compared with f64 for every third float from -87 to 3. */
static __device__ __forceinline__ float weight_exp(float x)
{
    const float shifted = fmaf(x, 1.44269504f, KG_ROUND_F32);
    const float n = shifted - KG_ROUND_F32;
    const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
    /* Not a choice by ?: of the whole, which would become a branch. */
    const float y = fmaf(x, 0.0f, kg_exp_part(r, shifted));
    return x < -87.0f ? 0.0f : y;
}

/* What a row gives, from the sum of weighted values and the sum and maximum of weights. */
static __device__ inline float finish(float value, float sum)
{
    return sum > 0.0f || sum != sum ? value / sum : 0.0f;
}
static __device__ inline float log_sum_exp(float max, float sum)
{
    return sum == 0.0f ? -INFINITY : max + kg_logf(sum);
}

/* Where outputs are combined, a lane has E elements of a head that lie side by side, and a
   warp one of UNITS parts of a head: few shuffles and wide loads. */
template <int HD>
struct lane_elements {
    enum { E = HD % 128 == 0 ? 4 : HD % 64 == 0 ? 2 : 1, UNITS = HD / (32 * E) };

    static __device__ __forceinline__ void load(const float *from, float (&x)[E])
    {
        if constexpr (E == 4) {
            const float4 v = *(const float4 *)from;
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        } else if constexpr (E == 2) {
            const float2 v = *(const float2 *)from;
            x[0] = v.x, x[1] = v.y;
        } else {
            x[0] = *from;
        }
    }
    static __device__ __forceinline__ void store(float *to, const float (&x)[E])
    {
        if constexpr (E == 4)
            *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
        else if constexpr (E == 2)
            *(float2 *)to = make_float2(x[0], x[1]);
        else
            *to = x[0];
    }
};

/* finish() of all of them, to the bit unless a value is below 2^-100. A quotient is corrected once
   by its remainder, as division does it; one reciprocal serves all, and no branch stands between
   them. What is not finite, or a row without keys, is divided. */
template <int E>
static __device__ __forceinline__ void quotients(const float (&value)[E], float sum,
                                                 float (&x)[E])
{
    const float y = 1.0f / sum;
    float finite = sum > 0.0f ? y * 0.0f : NAN;
    for (int j = 0; j < E; j++) {
        const float first = value[j] * y;
        finite = fmaf(value[j], 0.0f, finite);
        x[j] = fmaf(y, fmaf(-sum, first, value[j]), first);
    }
    if (finite == 0.0f)
        return;
    for (int j = 0; j < E; j++)
        x[j] = finish(value[j], sum);
}

template <int HD, int E>
static __device__ __forceinline__ void store_row(const struct decode &p, int64_t index,
                                                 int dim, const float (&value)[E],
                                                 float sum, float max)
{
    float x[E];
    quotients(value, sum, x);
    lane_elements<HD>::store(p.out + index * HD + dim, x);
    if (p.lse && dim == 0)
        p.lse[index] = log_sum_exp(max, sum);
}

#define COMBINE_AHEAD 16 /* loads under way */

/*
 * A warp's part of head `index` from its splits.
 *
 *   M = max m_s;  w_s = exp(m_s - M);  out = (sum w_s o_s) / (sum w_s l_s)
 *
 * the former with fma from 0 in ascending s; the latter lane by lane, s = lane, lane + 32,
 * .., by fma from 0, then a butterfly. With one split this gives o_0 / l_0.
 */
template <int HD>
static __device__ inline void combine_splits(const struct decode &p, int64_t index,
                                             int unit, int n_splits)
{
    typedef lane_elements<HD> elements;
    constexpr int E = elements::E;
    const int lane = threadIdx.x % 32, dim = (unit * 32 + lane) * E;
    const float2 *state = p.state + index * p.splits_max;
    const float *from = p.partial + index * p.splits_max * HD + dim;
    float2 part = lane < n_splits ? state[lane] : make_float2(-INFINITY, 0.0f);
    float max = 0.0f, weight = 0.0f, sum = 0.0f, value[E] = {};
    for (int s = 0; s < n_splits; s += COMBINE_AHEAD) {
        float o[COMBINE_AHEAD][E]; /* behind the last, that one with a weight of 0 */
#pragma unroll
        for (int j = 0; j < COMBINE_AHEAD; j++)
            elements::load(from + min(s + j, n_splits - 1) * HD, o[j]);
        if (s == 0) {
            max = part.x;
#pragma unroll 1
            for (int other = lane + 32; other < n_splits; other += 32)
                max = fmaxf(max, state[other].x);
            max = reduce_max(max);
        } else if (s % 32 == 0) {
            part = s + lane < n_splits ? state[s + lane] : make_float2(-INFINITY, 0.0f);
        }
        if (s % 32 == 0) {
            weight = weight_exp(part.x - max);
            sum = fmaf(weight, part.y, sum);
        }
        /* Shuffles under no condition: each would wait by itself. */
#pragma unroll
        for (int j = 0; j < COMBINE_AHEAD; j++) {
            const float x = __shfl_sync(KG_WARP_ALL, weight, (s + j) % 32);
            for (int e = 0; e < E; e++)
                value[e] = fmaf(x, o[j][e], value[e]);
        }
    }
    store_row<HD>(p, index, dim, value, warp_sum(sum), max);
}

#endif
