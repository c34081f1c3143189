/*
 * One tile of a grouped product: HEIGHT rows by 128 outputs, four warps.
 *
 * The rows of x are A of the mma (16 rows each), the outputs B (8 each). Warps stand 2 x 2
 * with 64 x 64 each (HEIGHT 128) or 1 x 4 with 32 x 32 each (HEIGHT 32). k ascends through
 * STAGES buffers of DEPTH; an element's accumulator sees its products in that order, 16 at
 * a time, whatever the template parameters are.
 */
#ifndef KGATE_KERNELS_GROUPED_TILE_H
#define KGATE_KERNELS_GROUPED_TILE_H

#include "kernels/grouped/stage.h"

template <int HEIGHT, int DEPTH, int STAGES>
struct tile_shape {
    enum {
        WARPS_DOWN = HEIGHT == TILE_ROWS ? 2 : 1,
        WARPS_ACROSS = 4 / WARPS_DOWN,
        WARP_ROWS = HEIGHT / WARPS_DOWN,
        WARP_OUTS = TILE_OUTS / WARPS_ACROSS,
        ROW_BYTES = HEIGHT * DEPTH * 2, /* of the rows in a stage */
        STAGE_BYTES = (HEIGHT + TILE_OUTS) * DEPTH * 2,
        BYTES = STAGES * STAGE_BYTES
    };
};

/* acc += rows times weights of one stage. */
template <class S, int DEPTH>
static __device__ inline void
multiply_stage(float (&acc)[S::WARP_ROWS / 16][S::WARP_OUTS / 8][4],
               const unsigned char *stage)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    /* Row and chunk that this lane addresses for ldmatrix: matrices 0 .. 3 of A are rows
       0-7, rows 8-15, then the same of the next chunk; of B the next chunk comes first. */
    const int a_row = warp / S::WARPS_ACROSS * S::WARP_ROWS + lane % 16;
    const int b_row = warp % S::WARPS_ACROSS * S::WARP_OUTS + lane % 8 + lane / 16 * 8;
    const int a_chunk = lane / 16, b_chunk = lane / 8 % 2;
    const unsigned char *weights = stage + S::ROW_BYTES;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        uint32_t a[S::WARP_ROWS / 16][4], b[S::WARP_OUTS / 8][2];
#pragma unroll
        for (int i = 0; i < S::WARP_ROWS / 16; i++)
            kg_ldmatrix_x4(a[i],
                           stage + chunk_offset<DEPTH>(a_row + 16 * i, 2 * k + a_chunk));
#pragma unroll
        for (int j = 0; j < S::WARP_OUTS / 8; j += 2) {
            uint32_t r[4];
            kg_ldmatrix_x4(r,
                           weights + chunk_offset<DEPTH>(b_row + 8 * j, 2 * k + b_chunk));
            b[j][0] = r[0];
            b[j][1] = r[1];
            b[j + 1][0] = r[2];
            b[j + 1][1] = r[3];
        }
#pragma unroll
        for (int i = 0; i < S::WARP_ROWS / 16; i++)
#pragma unroll
            for (int j = 0; j < S::WARP_OUTS / 8; j++)
                kg_mma_f16_16816(acc[i][j], a[i], b[j]);
    }
}

template <class S>
static __device__ inline void
store_tile(const struct grouped_view &g, const struct tile &t,
           const float (&acc)[S::WARP_ROWS / 16][S::WARP_OUTS / 8][4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row0 = warp / S::WARPS_ACROSS * S::WARP_ROWS + lane / 4;
    const int out0 = t.out + warp % S::WARPS_ACROSS * S::WARP_OUTS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::WARP_ROWS / 16; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + 16 * i + 8 * half;
            if (row >= t.rows)
                continue;
            const float scale = g.scale ? g.scale[t.pair + row] : 1.0f;
            float *y = g.y + (t.pair + row) * g.out;
#pragma unroll
            for (int j = 0; j < S::WARP_OUTS / 8; j++) {
                const int o = out0 + 8 * j;
                float2 v;
                v.x = acc[i][j][2 * half] * scale;
                v.y = acc[i][j][2 * half + 1] * scale;
                if (o + 1 < g.out && g.out % 2 == 0) {
                    *(float2 *)(y + o) = v;
                } else {
                    if (o < g.out)
                        y[o] = v.x;
                    if (o + 1 < g.out)
                        y[o + 1] = v.y;
                }
            }
        }
}

/* Ends with a barrier: shared memory may be used again. */
template <class W, int HEIGHT, int DEPTH, int STAGES>
static __device__ inline void run_tile(const struct grouped_view &g, const struct tile &t,
                                       unsigned char *shared)
{
    using S = tile_shape<HEIGHT, DEPTH, STAGES>;
    const int steps = g.in / DEPTH;
    const int warp = threadIdx.x / 32;
    const bool in_tile = warp / S::WARPS_ACROSS * S::WARP_ROWS < t.rows &&
                         warp % S::WARPS_ACROSS * S::WARP_OUTS < g.out - t.out;
    const row_loader<HEIGHT, DEPTH> rows(g, t);
    typename W::template loader<DEPTH> weights(g, t);
    float acc[S::WARP_ROWS / 16][S::WARP_OUTS / 8][4] = {};

    for (int s = 0; s < STAGES - 1; s++) {
        unsigned char *stage = shared + s * S::STAGE_BYTES;
        if (s < steps) {
            rows.start(stage, s * DEPTH);
            weights.start(stage + S::ROW_BYTES, s * DEPTH);
            weights.finish(stage + S::ROW_BYTES);
        }
        kg_cp_async_commit();
    }
    int now = 0, next = STAGES - 1;
    for (int s = 0; s < steps; s++) {
        unsigned char *stage = shared + next * S::STAGE_BYTES;
        const bool more = s + STAGES - 1 < steps;
        kg_cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (more) {
            rows.start(stage, (s + STAGES - 1) * DEPTH);
            weights.start(stage + S::ROW_BYTES, (s + STAGES - 1) * DEPTH);
        }
        kg_cp_async_commit();
        if (in_tile)
            multiply_stage<S, DEPTH>(acc, shared + now * S::STAGE_BYTES);
        if (more)
            weights.finish(stage + S::ROW_BYTES);
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    store_tile<S>(g, t, acc);
    __syncthreads();
}

#endif
