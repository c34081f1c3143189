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
static __device__ inline float warp_max(float x)
{
    for (int distance = 16; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, distance));
    return x;
}
static __device__ inline float warp_sum(float x)
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

/*
 * One head of one row from its splits, by one warp:
 *
 *   M = max m_s;  w_s = exp(m_s - M);  out = (sum w_s o_s) / (sum w_s l_s)
 *
 * both sums with fma from 0 in ascending s. Lane l has the elements 4l .. 4l + 3 of each
 * 128. With one split this gives o_0 / l_0.
 */
template <int HD>
static __device__ inline void combine_head(const struct decode &p, int row, int head,
                                           int n_splits)
{
    const int lane = threadIdx.x % 32;
    const int64_t index = (int64_t)row * p.n_heads + head;
    const float *partial = p.partial + index * p.splits_max * HD;
    const float2 *state = p.state + index * p.splits_max;
    float max = -INFINITY, sum = 0.0f;
    for (int s = lane; s < n_splits; s += 32)
        max = fmaxf(max, state[s].x);
    max = warp_max(max);
    float4 value[(HD + 127) / 128] = {};
    for (int s0 = 0; s0 < n_splits; s0 += 32) {
        const int mine = s0 + lane;
        const float2 st = mine < n_splits ? state[mine] : make_float2(max, 0.0f);
        const float weight = kg_expf(st.x - max);
        const int n = min(32, n_splits - s0);
#pragma unroll 8
        for (int j = 0; j < n; j++) {
            const float w = __shfl_sync(KG_WARP_ALL, weight, j);
            sum = fmaf(w, __shfl_sync(KG_WARP_ALL, st.y, j), sum);
            const float *from = partial + (int64_t)(s0 + j) * HD + 4 * lane;
            for (int i = 0; i < (HD + 127) / 128; i++) {
                if (128 * i + 4 * lane >= HD)
                    break;
                const float4 o = *(const float4 *)(from + 128 * i);
                value[i].x = fmaf(w, o.x, value[i].x);
                value[i].y = fmaf(w, o.y, value[i].y);
                value[i].z = fmaf(w, o.z, value[i].z);
                value[i].w = fmaf(w, o.w, value[i].w);
            }
        }
    }
    for (int i = 0; i < (HD + 127) / 128; i++)
        if (128 * i + 4 * lane < HD)
            *(float4 *)(p.out + index * HD + 128 * i + 4 * lane) =
                make_float4(finish(value[i].x, sum), finish(value[i].y, sum),
                            finish(value[i].z, sum), finish(value[i].w, sum));
    if (p.lse && lane == 0)
        p.lse[index] = log_sum_exp(max, sum);
}

#endif
