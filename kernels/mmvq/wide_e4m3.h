/*
 * E4M3 in the wide product (wide.h): arithmetic as in e4m3.h, and scales of rows and blocks.
 *
 * A warp's four units of each 1024 weights are a column of blocks of 128 x 128, and the rows of a
 * tile are of one row of blocks: one scale for all that a warp does with 1024 weights. The lanes
 * hold those of a whole row, lane i that of thousand i.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_E4M3_H
#define KGATE_KERNELS_MMVQ_WIDE_E4M3_H

#include "kernels/mmvq/e4m3.h"
#include "kernels/mmvq/wide_shared.h"

/* What the lane holds for the tile that has `rows` rows from row0 on, 1 without such scales. */
static __device__ __forceinline__ float wide_block_scale(const struct product_args &p,
                                                         const float *scales,
                                                         int64_t row0, int rows, int w)
{
    const int columns = (p.k + 127) / 128, column = 8 * (int)(threadIdx.x % 32) + w;
    if (!p.block_scales)
        return 1.0f;
    return rows > 0 && column < columns ? scales[row0 / 128 * columns + column] : 0.0f;
}

/* As wide_fold (wide_fold.h), all four units with one scale. */
template <class W, int S, bool WHOLE>
static __device__ __forceinline__ void
wide_fold_e4m3(const uint8_t *slot, int j, const struct wide_shared<W> &x, int pair,
               int w, int left, float scale, float acc[16])
{
    using L = wide_slot<W, S>;
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    const uint8_t *const row = slot + g * L::stride(0) + j / L::thousands * L::box +
                               j % L::thousands * W::plane_bytes(0) + 128 * w + 8 * t;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const uint4 q = kg_load_uint4(x.codes + 512 * (pair + n) + 16 * lane);
        const uint32_t words[2][2] = {
            {q.x, q.y},
            {q.z, q.w}
        };
        float d[2][2];
        wide_scales_of_q(x.d + 16 * (pair + n) + 4 * t, d);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const int u = 2 * n + v;
            uint32_t b[4];
            for (int i = 0; i < 4; i++)
                b[i] = raised_to_half2(words[v][i / 2], 16 * (i % 2));
            float high[4] = {}, low[4] = {};
            add_e4m3(high, low, kg_load_uint2(row + 32 * u),
                     kg_load_uint2(row + 8 * L::stride(0) + 32 * u), b);
            float *const sum = acc + 4 * u;
            for (int i = 0; i < 4; i++)
                if (WHOLE || u < left)
                    sum[i] = fmaf(scale, d[v][i % 2] * (high[i] + low[i]), sum[i]);
        }
    }
}

#endif
