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
    float *partial; /* [rows][heads][splits_max][head_dim] */
    float2 *state;  /* [rows][heads][splits_max]: maximum, sum of the split */
    unsigned
        *counter; /* [rows][groups of heads]: splits that are done; 0 between calls */
    const uint64_t *table;
    const int32_t *lengths; /* of each row, or NULL: length + row */
    int64_t k_stride, v_stride;
    int k_type, v_type;
    int length;
    int n_heads, n_kv_heads, window, splits_max;
    int group, splits_wanted; /* query heads of a key head; partition.h */
    float scale;
};

/* The keys of one row. */
struct row_keys {
    const uint8_t *k, *v; /* of the first key that it sees, key head 0 */
    int n;                /* keys it sees */
};

static __device__ inline struct row_keys keys_of(const struct decode &p, int row)
{
    const int length = p.lengths ? p.lengths[row] : p.length + row;
    const int first = p.window > 0 && length > p.window ? length - p.window : 0;
    struct row_keys keys = {p.k, p.v, length > first ? length - first : 0};
    if (p.table) {
        keys.k = (const uint8_t *)((uintptr_t)keys.k + p.table[2 * row]);
        keys.v = (const uint8_t *)((uintptr_t)keys.v + p.table[2 * row + 1]);
    }
    keys.k += first * p.k_stride;
    keys.v += first * p.v_stride;
    return keys;
}

/* Maximum and sum over a warp; every lane has the result. The additions are a butterfly
   over lane distances 16, 8, 4, 2, 1. */
static __device__ __forceinline__ float warp_max(float x)
{
    for (int distance = 16; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, distance));
    return x;
}
static __device__ __forceinline__ float warp_sum(float x)
{
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(KG_WARP_ALL, x, distance);
    return x;
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

/* What a part of a head weighs beside the others, and its sum of weights. */
struct part_weight {
    float weight, sum;
};

/* Lane l's part or parts l, l + 32, ... of n, with maximum and sum as in state[part *
   step]: their weights exp(m - max m) into to[], behind them the maximum in to[n]. */
static __device__ __forceinline__ void weigh_parts(const float2 *state, int step, int n,
                                                   struct part_weight *to)
{
    const int lane = threadIdx.x % 32;
    float max = -INFINITY;
    for (int i = lane; i < n; i += 32)
        max = fmaxf(max, state[i * step].x);
    max = warp_max(max);
    for (int i = lane; i < n; i += 32)
        to[i] = {kg_expf(state[i * step].x - max), state[i * step].y};
    if (lane == 0)
        to[n] = {max, 0.0f};
}

#define COMBINE_AHEAD 16 /* loads under way */

static __device__ __forceinline__ void load_partials(const struct decode &p, int head_dim,
                                                     int64_t index, int dim, int first,
                                                     int n, float (&o)[COMBINE_AHEAD])
{
    const float *from = p.partial + (index * p.splits_max + first) * head_dim + dim;
#pragma unroll
    for (int j = 0; j < COMBINE_AHEAD; j++)
        o[j] = first + j < n ? from[j * head_dim] : 0.0f;
}

/*
 * `heads` heads of a row from their splits, by a block; the first's index is index0.
 *
 *   M = max m_s;  w_s = exp(m_s - M);  out = (sum w_s o_s) / (sum w_s l_s)
 *
 * both sums with fma from 0 in ascending s. With one split this gives o_0 / l_0. weights:
 * heads * (SPLIT_BLOCKS + 1) of shared memory.
 */
template <int HD, int THREADS>
static __device__ inline void combine_splits(const struct decode &p, int64_t index0,
                                             int heads, int n_splits,
                                             struct part_weight *weights)
{
    const int tid = threadIdx.x;
    float o[COMBINE_AHEAD] = {};
    if (tid < heads * HD)
        load_partials(p, HD, index0 + tid / HD, tid % HD, 0, n_splits, o);
    for (int h = tid / 32; h < heads; h += THREADS / 32)
        weigh_parts(p.state + (index0 + h) * p.splits_max, 1, n_splits,
                    weights + h * (SPLIT_BLOCKS + 1));
    __syncthreads();
    for (int i = tid; i < heads * HD; i += THREADS) {
        const struct part_weight *w = weights + i / HD * (SPLIT_BLOCKS + 1);
        const int64_t index = index0 + i / HD;
        float sum = 0.0f, value = 0.0f;
        for (int s = 0; s < n_splits; s += COMBINE_AHEAD) {
            if (i != tid || s != 0)
                load_partials(p, HD, index, i % HD, s, n_splits, o);
#pragma unroll
            for (int j = 0; j < COMBINE_AHEAD; j++)
                if (s + j < n_splits) {
                    sum = fmaf(w[s + j].weight, w[s + j].sum, sum);
                    value = fmaf(w[s + j].weight, o[j], value);
                }
        }
        p.out[index * HD + i % HD] = finish(value, sum);
        if (p.lse && i % HD == 0)
            p.lse[index] = log_sum_exp(w[n_splits].weight, sum);
    }
}

#endif
