/*
 * The part of the chunked gated delta net that needs no state: one block for a chunk of a
 * head, all of them at once (kgate/ops/gdn.h has the formulas).
 *
 *   G        prefix sum of max(g, -1000) in f64: 4, 2 or 1 tokens a lane in order, then
 *            over the lanes by doubling. Differences of G so keep their digits behind a
 *            decay of 0, whose logarithm may be -infinity.
 *   D[t][s]  kg_expf((float)(G[t] - G[s]))
 *   dots     fma from 0 in ascending order
 *   A[t][s]  (beta[t] * D[t][s]) * dot(k[t], k[s])     P[t][s] = D[t][s] * dot(q[t], k[s])
 *   U, W     forward substitution: x = b, then for s ascending x[t] = fma(-A[t][s], x[s], x[t]);
 *            b = beta * v, and (beta * kg_expf(G)) * k
 *
 * A thread substitutes a column of U or W, 32 tokens at a time in registers; what is solved
 * replaces q and k in shared memory. The order of the operations on an element does not
 * depend on that. Tokens past the end count as zeros: their rows of U, W and P are 0.
 *
 * What the other part reads, of each chunk of each head (E is float, kg_half or kg_bf16):
 *
 *   float  U [C][128]   E W [C][128]   E P [C][C], zero above the diagonal
 *   E of 16 bits:  Q [C][128] = q * (scale * expf(G)), K [C][128] = k * expf(G[last] - G),
 *                  and P is multiplied by scale
 *   float  gamma [C] = expf(G), rest [C] = expf(G[last] - G)
 */
#ifndef KGATE_KERNELS_GDN_PREPARE_H
#define KGATE_KERNELS_GDN_PREPARE_H

#include "kernels/device/device.h"
#include "kernels/gdn/launch.h"

/* The workspace of one chunk; all parts aligned to 16 bytes. */
template <int C, typename E>
struct gdn_chunk {
    float *u;
    E *w, *p, *q, *k;
    float *gamma, *rest;

    __device__ gdn_chunk(void *workspace, int64_t head, int64_t n_chunks, int64_t chunk)
    {
        const size_t bytes = C * GDN_DIM * 10 + C * C * 4 + C * 8;
        unsigned char *at =
            (unsigned char *)workspace + (size_t)(head * n_chunks + chunk) * bytes;
        gamma = (float *)at;
        rest = gamma + C;
        u = rest + C;
        w = (E *)(u + C * GDN_DIM);
        p = w + C * GDN_DIM;
        q = p + C * C;
        k = q + C * GDN_DIM;
    }
};

static __device__ __forceinline__ void gdn_round(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void gdn_round(struct kg_half *to, float x)
{
    *to = kg_f32_to_half(x);
}
static __device__ __forceinline__ void gdn_round(struct kg_bf16 *to, float x)
{
    *to = kg_f32_to_bf16(x);
}

static constexpr int GDN_PREPARE_THREADS = 2 * GDN_DIM;

template <int C>
struct gdn_prepare_shared {
    static constexpr int WIDTH = GDN_DIM + 4; /* 8 rows at 16 bytes meet all banks */
    double sum[C];                            /* G */
    float gamma[C], beta[C];
    float k[C][WIDTH], q[C][WIDTH]; /* later W and U */
    float a[C][C + 4];              /* transposed: a[s][t] */
};

/* G into shared memory by one warp; past the end it stays what it was. */
template <int C>
static __device__ __forceinline__ void gdn_prefix(struct gdn_prepare_shared<C> *sh,
                                                  const struct kg_gdn_args &a,
                                                  int64_t first, int64_t head, int lane)
{
    constexpr int EACH = C / 32;
    double g[EACH], sum = 0.0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int64_t token = first + lane * EACH + i;
        const float x = token < a.n_tokens ? a.g[token * a.n_heads + head] : 0.0f;
        sum += (double)(x < -1000.0f ? -1000.0f : x);
        g[i] = sum;
    }
    double before = sum; /* of this lane and those below */
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_up_sync(KG_WARP_ALL, before, (unsigned)step);
        if (lane >= step)
            before += other;
    }
    before = __shfl_up_sync(KG_WARP_ALL, before, 1);
    if (lane == 0)
        before = 0.0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sh->sum[lane * EACH + i] = before + g[i];
}

/* A and P: a thread has tokens t = ty + Y*i against s = tx + 16*j. */
template <int C, typename E>
static __device__ __forceinline__ void gdn_products(struct gdn_prepare_shared<C> *sh,
                                                    const struct gdn_chunk<C, E> &out,
                                                    int t0, int s0, float p_scale)
{
    constexpr int N = C < 64 ? 2 : 4, Y = 16;
    const int ty = t0 + (int)threadIdx.x / 16, tx = s0 + (int)threadIdx.x % 16;
    float kk[N][N] = {}, qk[N][N] = {};
    for (int c = 0; c < GDN_DIM; c += 4) {
        float4 ks[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            ks[j] = kg_load_float4(&sh->k[tx + Y * j][c]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float4 kt = kg_load_float4(&sh->k[ty + Y * i][c]);
            const float4 qt = kg_load_float4(&sh->q[ty + Y * i][c]);
#pragma unroll
            for (int j = 0; j < N; j++) {
                kk[i][j] = fmaf(kt.x, ks[j].x, kk[i][j]);
                kk[i][j] = fmaf(kt.y, ks[j].y, kk[i][j]);
                kk[i][j] = fmaf(kt.z, ks[j].z, kk[i][j]);
                kk[i][j] = fmaf(kt.w, ks[j].w, kk[i][j]);
                qk[i][j] = fmaf(qt.x, ks[j].x, qk[i][j]);
                qk[i][j] = fmaf(qt.y, ks[j].y, qk[i][j]);
                qk[i][j] = fmaf(qt.z, ks[j].z, qk[i][j]);
                qk[i][j] = fmaf(qt.w, ks[j].w, qk[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int t = ty + Y * i, s = tx + Y * j;
            float d = 0.0f;
            if (s <= t)
                d = kg_expf((float)(sh->sum[t] - sh->sum[s]));
            if (s < t)
                sh->a[s][t] = (sh->beta[t] * d) * kk[i][j];
            gdn_round(&out.p[t * C + s], s <= t ? (p_scale * d) * qk[i][j] : 0.0f);
        }
}

/* Column c of U (KEYS false, of v) or W: `mine` is q or k of shared memory. */
template <int C, bool KEYS, typename E>
static __device__ __forceinline__ void gdn_substitute(struct gdn_prepare_shared<C> *sh,
                                                      const struct kg_gdn_args &a, E *out,
                                                      int64_t first, int64_t head, int c)
{
    float(*mine)[GDN_DIM + 4] = KEYS ? sh->k : sh->q;
    for (int t0 = 0; t0 < C; t0 += 32) {
        float x[32];
#pragma unroll
        for (int j = 0; j < 32; j++) {
            const int t = t0 + j;
            if (KEYS)
                x[j] = (sh->beta[t] * sh->gamma[t]) * mine[t][c];
            else
                x[j] = first + t < a.n_tokens
                           ? sh->beta[t] *
                                 a.v[((first + t) * a.n_heads + head) * GDN_DIM + c]
                           : 0.0f;
        }
        for (int s = 0; s < t0; s++) {
            const float solved = mine[s][c];
#pragma unroll
            for (int j = 0; j < 32; j += 4) {
                const float4 at = kg_load_float4(&sh->a[s][t0 + j]);
                x[j] = fmaf(-at.x, solved, x[j]);
                x[j + 1] = fmaf(-at.y, solved, x[j + 1]);
                x[j + 2] = fmaf(-at.z, solved, x[j + 2]);
                x[j + 3] = fmaf(-at.w, solved, x[j + 3]);
            }
        }
#pragma unroll
        for (int s = 0; s < 31; s++) {
#pragma unroll
            for (int j = s + 1; j < 32; j++)
                x[j] = fmaf(-sh->a[t0 + s][t0 + j], x[s], x[j]);
        }
#pragma unroll
        for (int j = 0; j < 32; j++) {
            mine[t0 + j][c] = x[j];
            gdn_round(&out[(t0 + j) * GDN_DIM + c], x[j]);
        }
    }
}

template <int C, typename E>
static __global__
__launch_bounds__(GDN_PREPARE_THREADS) void gdn_prepare_kernel(struct kg_gdn_args a,
                                                               void *workspace)
{
    KG_SHARED_DYNAMIC(bytes);
    struct gdn_prepare_shared<C> *sh = (struct gdn_prepare_shared<C> *)bytes;
    constexpr bool SMALL = sizeof(E) == 2; /* 16-bit operands */
    const int tid = threadIdx.x;
    const int64_t head = blockIdx.y, first = (int64_t)blockIdx.x * C;
    const struct gdn_chunk<C, E> out(workspace, head, gridDim.x, blockIdx.x);

    for (int i = tid; i < C * 32; i += GDN_PREPARE_THREADS) {
        const int t = i / 32, c = i % 32 * 4;
        const bool in = first + t < a.n_tokens;
        const int64_t at = ((first + (in ? t : 0)) * a.n_heads + head) * GDN_DIM + c;
        kg_cp_async_16(&sh->k[t][c], a.k + at, in ? 16 : 0);
        kg_cp_async_16(&sh->q[t][c], a.q + at, in ? 16 : 0);
    }
    kg_cp_async_commit();
    if (tid < 32)
        gdn_prefix(sh, a, first, head, tid);
    if (tid < C)
        sh->beta[tid] =
            first + tid < a.n_tokens ? a.beta[(first + tid) * a.n_heads + head] : 0.0f;
    kg_cp_async_wait<0>();
    __syncthreads();
    if (tid < C) {
        sh->gamma[tid] = kg_expf((float)sh->sum[tid]);
        out.gamma[tid] = sh->gamma[tid];
        out.rest[tid] = kg_expf((float)(sh->sum[C - 1] - sh->sum[tid]));
    }
    const float p_scale = SMALL ? a.scale : 1.0f;
    if (C == 128) {
        gdn_products(sh, out, 0, 0, p_scale);
        gdn_products(sh, out, 64, 0, p_scale);
        gdn_products(sh, out, 64, 64, p_scale);
        for (int i = tid; i < 64 * 64; i += GDN_PREPARE_THREADS)
            gdn_round(&out.p[i / 64 * C + 64 + i % 64], 0.0f);
    } else {
        gdn_products(sh, out, 0, 0, p_scale);
    }
    __syncthreads();
    if (SMALL) {
        for (int i = tid; i < C * GDN_DIM; i += GDN_PREPARE_THREADS) {
            const int t = i / GDN_DIM, c = i % GDN_DIM;
            const float rest = kg_expf((float)(sh->sum[C - 1] - sh->sum[t]));
            gdn_round(&out.q[i], sh->q[t][c] * (a.scale * sh->gamma[t]));
            gdn_round(&out.k[i], sh->k[t][c] * rest);
        }
        __syncthreads();
    }
    if (tid < GDN_DIM)
        gdn_substitute<C, false>(sh, a, out.u, first, head, tid);
    else
        gdn_substitute<C, true>(sh, a, out.w, first, head, tid - GDN_DIM);
}

template <int C, typename E>
static int gdn_prepare(const struct kg_gdn_args *args, void *workspace,
                       struct CUstream_st *stream)
{
    const int64_t chunks = (args->n_tokens + C - 1) / C;
    if (chunks == 0)
        return KG_OK;
    return KG_LAUNCH(stream, dim3((unsigned)chunks, (unsigned)args->n_heads),
                     GDN_PREPARE_THREADS, sizeof(struct gdn_prepare_shared<C>),
                     (gdn_prepare_kernel<C, E>), *args, workspace);
}

#endif
