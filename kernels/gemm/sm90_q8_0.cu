/*
 * Q8_0 through wgmma: y[t][o] = sum_k w[o][k] * x[t][k] on q8_1 activations.
 *
 *   mirror   codes [out][in] int8, then (next multiple of 16 bytes) scales [in/32][out] f32
 *   q, d     q8_1 codes [m][in] and scales [m][in/32]          y [m][out]
 *
 * Arithmetic of one output as in int8.h: from 0, units (32 weights) in ascending order,
 *
 *   acc = fma(d, fl(a * dot), acc)
 *
 * with dot the exact sum of wgmma m64nNk32, converted to f32 exactly. So the bits are those
 * of the tile form of int8.
 *
 * A block of two warpgroups computes 128 rows x 128 tokens, one warpgroup 64 rows. A stage
 * holds 128 values of k of both operands in the 128-byte swizzle, and the scales; STAGES
 * stages come by cp.async. A product of 64 tokens is issued while the one before it is
 * folded, so the tensor core and the f32 pipes work at once.
 */
#include "kernels/gemm/launch.h"

#include "kernels/device/sm90.h"

enum {
    WG_STAGES = 4,
    WG_ROWS = 128,
    WG_TOKENS = 128,
    WG_K = 128,
    WG_UNITS = WG_K / 32,
    WG_X_AT = WG_ROWS * WG_K,
    WG_A_AT = WG_X_AT + WG_TOKENS * WG_K,
    WG_D_AT = WG_A_AT + WG_UNITS * WG_ROWS * 4,
    WG_STAGE = WG_D_AT + WG_UNITS * WG_TOKENS * 4,
    WG_STAGE_PITCH = (WG_STAGE + 1023) / 1024 * 1024,
    WG_BYTES = WG_STAGES * WG_STAGE_PITCH + 1024,
    WG_THREADS = 256
};

struct wgmma_args {
    const int8_t *w, *q;
    const float *a, *d;
    float *y;
    int64_t in, out, m;
};

static __device__ inline void wgmma_copy(const wgmma_args &g, unsigned char *stage,
                                         int64_t row0, int64_t t0, int step)
{
    const int chunk = threadIdx.x % 8;
#pragma unroll
    for (int j = 0; j < (WG_ROWS + WG_TOKENS) / 32; j++) {
        const int r = threadIdx.x / 8 + 32 * j;
        const bool weight = j < WG_ROWS / 32;
        const int in_tile = weight ? r : r - WG_ROWS;
        const int64_t row = weight ? row0 + in_tile : t0 + in_tile;
        const bool there = row < (weight ? g.out : g.m);
        const int8_t *from = weight ? g.w : g.q;
        kg_cp_async_16(stage + (weight ? 0 : WG_X_AT) + kg_swizzle_128(in_tile, chunk),
                       there ? from + row * g.in + step * WG_K + chunk * 16 : from,
                       there ? 16 : 0);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) { /* scales of rows: [unit][row] on both sides */
        const int i = threadIdx.x + j * WG_THREADS, u = i / WG_ROWS, r = i % WG_ROWS;
        const bool there = row0 + r < g.out;
        kg_cp_async_4(stage + WG_A_AT + i * 4,
                      there ? g.a + (int64_t)(step * WG_UNITS + u) * g.out + row0 + r
                            : g.a,
                      there ? 4 : 0);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) { /* of tokens: [token][unit] to [unit][token] */
        const int i = threadIdx.x + j * WG_THREADS, t = i / WG_UNITS, u = i % WG_UNITS;
        const bool there = t0 + t < g.m;
        kg_cp_async_4(stage + WG_D_AT + (u * WG_TOKENS + t) * 4,
                      there ? g.d + (t0 + t) * (g.in / 32) + step * WG_UNITS + u : g.d,
                      there ? 4 : 0);
    }
}

/* Folds a product of 64 tokens of one unit. */
static __device__ inline void wgmma_fold(float (&acc)[32], const int (&dot)[32], float a0,
                                         float a8, const float *d)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float2 dx = *(const float2 *)(d + 8 * j);
        acc[4 * j] = fmaf(dx.x, a0 * (float)dot[4 * j], acc[4 * j]);
        acc[4 * j + 1] = fmaf(dx.y, a0 * (float)dot[4 * j + 1], acc[4 * j + 1]);
        acc[4 * j + 2] = fmaf(dx.x, a8 * (float)dot[4 * j + 2], acc[4 * j + 2]);
        acc[4 * j + 3] = fmaf(dx.y, a8 * (float)dot[4 * j + 3], acc[4 * j + 3]);
    }
}

static __device__ inline void wgmma_touch(int (&d)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

static __global__ void __launch_bounds__(WG_THREADS, 1)
    sm90_q8_0_kernel(const wgmma_args g)
{
    KG_SHARED_DYNAMIC(dynamic);
    /* the swizzle needs tiles at multiples of 1024 */
    unsigned char *smem = dynamic + (1024 - kg_shared_address(dynamic) % 1024) % 1024;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4;
    const int64_t t0 = (int64_t)blockIdx.x * WG_TOKENS;
    const int64_t row0 = (int64_t)blockIdx.y * WG_ROWS;
    const int steps = (int)(g.in / WG_K);
    const int r = group * 64 + warp % 4 * 16 + lane / 4, t = 2 * (lane % 4);
    float acc[2][32] = {};

    for (int i = 0; i < WG_STAGES - 1; i++) {
        if (i < steps)
            wgmma_copy(g, smem + i * WG_STAGE_PITCH, row0, t0, i);
        kg_cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
        kg_cp_async_wait<WG_STAGES - 2>();
        kg_fence_proxy_async();
        __syncthreads();
        const unsigned char *stage = smem + step % WG_STAGES * WG_STAGE_PITCH;
        const uint64_t w =
            kg_wgmma_descriptor(stage + group * 64 * WG_K, 16, 1024, KG_SWIZZLE_128);
        const uint64_t x = kg_wgmma_descriptor(stage + WG_X_AT, 16, 1024, KG_SWIZZLE_128);
        const float *a = (const float *)(stage + WG_A_AT) + r;
        const float *d = (const float *)(stage + WG_D_AT) + t;
        int dot[2][32];
        kg_wgmma_fence();
        kg_wgmma_s8_ss(dot[0], w, x, 0);
        kg_wgmma_commit();
        const int ahead = step + WG_STAGES - 1;
        if (ahead < steps)
            wgmma_copy(g, smem + ahead % WG_STAGES * WG_STAGE_PITCH, row0, t0, ahead);
        kg_cp_async_commit();
        /* product i: unit i / 2, tokens 64 * (i % 2) and up */
#pragma unroll
        for (int i = 0; i < 2 * WG_UNITS; i++) {
            if (i + 1 < 2 * WG_UNITS) {
                const int next = i + 1;
                kg_wgmma_fence();
                kg_wgmma_s8_ss(dot[next % 2], kg_wgmma_advance(w, next / 2 * 32),
                               kg_wgmma_advance(x, next % 2 * 64 * WG_K + next / 2 * 32),
                               0);
                kg_wgmma_commit();
                kg_wgmma_wait<1>();
            } else {
                kg_wgmma_wait<0>();
            }
            wgmma_touch(dot[i % 2]);
            wgmma_fold(acc[i % 2], dot[i % 2], a[i / 2 * WG_ROWS], a[i / 2 * WG_ROWS + 8],
                       d + i / 2 * WG_TOKENS + i % 2 * 64);
        }
    }
    kg_cp_async_wait<0>();
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int64_t token = t0 + half * 64 + i / 4 * 8 + t + i % 2;
            const int64_t row = row0 + r + i % 4 / 2 * 8;
            if (token < g.m && row < g.out)
                g.y[token * g.out + row] = acc[half][i];
        }
}

int sm90_q8_0(const void *mirror, const int8_t *q, const float *d, float *y, int64_t in,
              int64_t out, int64_t m, struct CUstream_st *stream)
{
    KG_TRY(check_product(in, out, m, 32));
    if (in == 0)
        return KG_E_INVALID;
    if (in % WG_K != 0)
        return KG_E_UNSUPPORTED;
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(mirror, 1, 16) || !pointer_fits(q, 1, 16) ||
        !pointer_fits(d, 1, 4) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    const dim3 grid((unsigned)((m + WG_TOKENS - 1) / WG_TOKENS),
                    (unsigned)((out + WG_ROWS - 1) / WG_ROWS));
    if (grid.y > 65535)
        return KG_E_UNSUPPORTED;
    const int8_t *w = (const int8_t *)mirror;
    const wgmma_args g = {
        w, q, (const float *)(w + (in * out + 15) / 16 * 16), d, y, in, out, m};
    return KG_LAUNCH(stream, grid, WG_THREADS, WG_BYTES, sm90_q8_0_kernel, g);
}
