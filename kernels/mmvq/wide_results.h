/*
 * What becomes of the sums of a tile of the wide product (wide.h): the butterfly over the lanes of the
 * law, scales, and the stores.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_RESULTS_H
#define KGATE_KERNELS_MMVQ_WIDE_RESULTS_H

#include "kernels/mmvq/wide_copy.h"

/* Value i of lane u of the law, of a lane. */
template <class W>
static __device__ __forceinline__ void wide_put(float *sums, int w, const float *acc)
{
    constexpr int LANES = wide_x<W>::LANES;
    for (int i = 0; i < 4; i++)
        for (int u = 0; u < LANES; u++)
            sums[32 * (LANES * (4 * w + i) + u) + threadIdx.x % 32] = acc[4 * u + i];
}

static __device__ __forceinline__ const float *wide_scales(const struct product_args &p,
                                                           int tensor)
{
    const float *scales = p.tensor[0].scales;
#pragma unroll
    for (int k = 1; k < KG_MMVQ_TENSORS; k++)
        scales = tensor == k ? p.tensor[k].scales : scales;
    return scales;
}

/* The butterfly, by a warp, of values `first`, first + step, ... of all lanes. */
template <class W>
static __device__ __forceinline__ void
wide_store(const struct product_args &p, const struct wide_tile &tile, int64_t q0,
           int first, int step, const float *sums)
{
    constexpr int LANES = wide_x<W>::LANES;
    const int lane = threadIdx.x % 32;
    float *y = p.tensor[0].y;
    int64_t out = p.tensor[0].out;
    float scale = p.tensor[0].scale;
#pragma unroll
    for (int k = 1; k < KG_MMVQ_TENSORS; k++)
        if (tile.tensor == k) {
            y = p.tensor[k].y;
            out = p.tensor[k].out;
            scale = p.tensor[k].scale;
        }
#pragma unroll 1
    for (int i = first; i < 4; i += step) {
        const int row = 8 * (i / 2) + lane / 4, column = 2 * (lane % 4) + i % 2;
        float row_scale = 1.0f, sum[LANES];
        if (wide_x<W>::E4M3 && p.row_scales && row < tile.rows)
            row_scale = wide_scales(p, tile.tensor)[tile.row0 + row];
#pragma unroll
        for (int u = 0; u < LANES; u++) {
            float v[TEAM_WARPS];
            for (int k = 0; k < TEAM_WARPS; k++)
                v[k] = sums[32 * (LANES * (4 * k + i) + u) + lane];
            for (int distance = TEAM_WARPS / 2; distance > 0; distance /= 2)
                for (int k = 0; k < distance; k++)
                    v[k] += v[k + distance];
            sum[u] = v[0];
        }
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int u = 0; u < half; u++)
                sum[u] += sum[u + half];
        if (row < tile.rows && column < p.width && q0 + column < p.m)
            y[(q0 + column) * out + tile.row0 + row] = sum[0] * row_scale * scale;
    }
}

#if KG_SPLIT_BARRIER
/* A team's results by a warp of its own, but the last tile's, for which all have time. */
template <class W>
static __device__ __forceinline__ void
wide_stores(const struct product_args &p, uint32_t turns, int64_t q0, int team,
            const float *sums, struct wide_barriers &barriers)
{
    uint32_t parity = 0;
    for (uint32_t turn = blockIdx.x; turn + gridDim.x < turns; turn += gridDim.x) {
        kg_split_wait_idle(barriers.put + team, parity);
        wide_store<W>(p, find_wide(p, WIDE_TEAMS * turn + (uint32_t)team), q0, 0, 1,
                      sums);
        warp_arrive(barriers.stored + team);
        parity ^= 1;
    }
}
#endif

#endif
