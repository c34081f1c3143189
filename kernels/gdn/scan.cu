/*
 * The gated delta net token by token (kgate/ops/gdn.h).
 *
 * A column of the state never meets another one, so 8 lanes have a column each to
 * themselves, in registers: lane p has elements 4p .. 4p+3, 4p+32 .. 4p+35, 4p+64 .., 4p+96
 * ... A block has 32 columns of one head; groups of 16 tokens pass through shared memory.
 *
 *   e      = kg_expf(g)
 *   sk, sq = dot8(S, k), dot8(S, q)               both of the state before the token
 *   delta  = beta * fma(-e, sk, v)
 *   S      = fma(k, delta, e * S)
 *   out    = scale * fma(dot8(k, q), delta, e * sq)
 *
 * The last line is dot(S, q) of the new state, written so that it need not wait for it:
 * a token costs one chain of sums, and that chain times the tokens is the time of the scan.
 *
 * dot8: a lane has four sums, one for each element of its groups of four, each with fma in
 * ascending order from 0; (s0 + s1) + (s2 + s3); a butterfly over lanes 1, 2, 4 apart.
 */
#include "kernels/device/device.h"
#include "kernels/gdn/launch.h"

static constexpr int THREADS = 256, COLS = 32, TOKENS = 16, GROUPS = 4;

struct scan_tile {
    float k[TOKENS][GDN_DIM], q[TOKENS][GDN_DIM], v[TOKENS][COLS];
    float g[TOKENS], beta[TOKENS];
};

static __device__ __forceinline__ float4 scan_group(const float *row, int part, int j)
{
    return kg_load_float4(row + 32 * j + 4 * part);
}

static __device__ __forceinline__ float4 multiply_add4(float4 a, float4 b, float4 c)
{
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
                       fmaf(a.w, b.w, c.w));
}

static __device__ __forceinline__ float sum8(float4 s)
{
    float sum = (s.x + s.y) + (s.z + s.w);
    sum += __shfl_xor_sync(KG_WARP_ALL, sum, 1);
    sum += __shfl_xor_sync(KG_WARP_ALL, sum, 2);
    sum += __shfl_xor_sync(KG_WARP_ALL, sum, 4);
    return sum;
}

/* Starts the copies of tokens first .. first + count - 1. */
static __device__ __forceinline__ void scan_load(const struct kg_gdn_args &a,
                                                 struct scan_tile *tile, int64_t first,
                                                 int64_t head, int col0)
{
    const int64_t left = a.n_tokens - first;
    const int count = left < TOKENS ? (int)left : TOKENS;
    for (int i = threadIdx.x; i < count * 32; i += THREADS) {
        const int64_t row = (first + i / 32) * a.n_heads + head;
        kg_cp_async_16(&tile->k[i / 32][i % 32 * 4], a.k + row * GDN_DIM + i % 32 * 4);
        kg_cp_async_16(&tile->q[i / 32][i % 32 * 4], a.q + row * GDN_DIM + i % 32 * 4);
    }
    for (int i = threadIdx.x; i < count * 8; i += THREADS) {
        const int64_t row = (first + i / 8) * a.n_heads + head;
        kg_cp_async_16(&tile->v[i / 8][i % 8 * 4],
                       a.v + row * GDN_DIM + col0 + i % 8 * 4);
    }
    if ((int)threadIdx.x < count) {
        const int64_t row = (first + threadIdx.x) * a.n_heads + head;
        kg_cp_async_4(&tile->g[threadIdx.x], a.g + row);
        kg_cp_async_4(&tile->beta[threadIdx.x], a.beta + row);
    }
    kg_cp_async_commit();
}

static __global__ __launch_bounds__(THREADS) void gdn_scan_kernel(struct kg_gdn_args a)
{
    KG_SHARED(struct scan_tile, tiles, [2]);
    KG_SHARED(float, out, [TOKENS][COLS]);
    KG_SHARED(float, kq, [TOKENS]);
    KG_SHARED(float, decay, [TOKENS]);
    const int lane = threadIdx.x % 32, part = lane % 8;
    const int local =
        (int)threadIdx.x / 8; /* column of the block's, and token of a group */
    const int col0 = (int)blockIdx.x * COLS;
    const int64_t head = blockIdx.y;
    const int64_t at = (head * GDN_DIM + col0 + local) * GDN_DIM;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 state[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; j++)
        state[j] = scan_group(a.state_in + at, part, j);

    if (a.n_tokens > 0)
        scan_load(a, &tiles[0], 0, head, col0);
    for (int64_t first = 0; first < a.n_tokens; first += TOKENS) {
        const struct scan_tile *tile = &tiles[first / TOKENS % 2];
        const int64_t left = a.n_tokens - first;
        const int count = left < TOKENS ? (int)left : TOKENS;
        kg_cp_async_wait<0>();
        __syncthreads();
        if (first + TOKENS < a.n_tokens)
            scan_load(a, &tiles[(first / TOKENS + 1) % 2], first + TOKENS, head, col0);
        if (threadIdx.x < TOKENS * 8) {
            float4 sum = zero;
            const int t = local < count ? local : 0;
            for (int j = 0; j < GROUPS; j++)
                sum = multiply_add4(scan_group(tile->k[t], part, j),
                                    scan_group(tile->q[t], part, j), sum);
            const float dot = sum8(sum);
            if (part == 0) {
                kq[local] = dot;
                decay[local] = kg_expf(tile->g[t]);
            }
        }
        __syncthreads();
        for (int t = 0; t < count; t++) {
            float4 k[GROUPS], sum_k = zero, sum_q = zero;
#pragma unroll
            for (int j = 0; j < GROUPS; j++) {
                k[j] = scan_group(tile->k[t], part, j);
                sum_k = multiply_add4(state[j], k[j], sum_k);
                sum_q = multiply_add4(state[j], scan_group(tile->q[t], part, j), sum_q);
            }
            const float e = decay[t];
            const float sk = sum8(sum_k), sq = sum8(sum_q);
            const float delta = tile->beta[t] * fmaf(-e, sk, tile->v[t][local]);
            const float4 d = make_float4(delta, delta, delta, delta);
#pragma unroll
            for (int j = 0; j < GROUPS; j++) {
                const float4 s = state[j];
                state[j] = multiply_add4(k[j], d,
                                         make_float4(e * s.x, e * s.y, e * s.z, e * s.w));
            }
            if (part == 0)
                out[t][local] = a.scale * fmaf(kq[t], delta, e * sq);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < count * COLS; i += THREADS)
            a.out[((first + i / COLS) * a.n_heads + head) * GDN_DIM + col0 + i % COLS] =
                out[i / COLS][i % COLS];
    }
#pragma unroll
    for (int j = 0; j < GROUPS; j++)
        *(float4 *)(a.state_out + at + 32 * j + 4 * part) = state[j];
}

int kg_gdn_scan(const struct kg_gdn_args *args, struct CUstream_st *stream)
{
    KG_TRY(gdn_check(args));
    if (args->n_heads == 0)
        return KG_OK;
    return KG_LAUNCH(stream, dim3(GDN_DIM / COLS, (unsigned)args->n_heads), THREADS, 0,
                     gdn_scan_kernel, *args);
}
