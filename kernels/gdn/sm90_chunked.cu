/*
 * The chunked gated delta net on tensor cores (wgmma, operands bfloat16): what follows
 * prepare.h (kgate/ops/gdn.h has the formulas). Compute capability 9.0a.
 *
 * As mma.cu, with a warpgroup for 64 columns of the state: S^T (64 x 128), delta^T and out^T
 * (64 x C) are accumulators, S^T and delta^T turn into A operands in the registers where
 * they are. B operands lie in shared memory with a 128-byte swizzle, two halves of 64
 * elements (128 bytes) after one another:
 *
 *   W, Q   K-major: a row is a token, the elements along it are k
 *   K      MN-major: a row is a token, which is k, the elements along it are n
 *   P      K-major: row t, the tokens s along it are k; rows of 32 fill half of 128 bytes
 *
 * They come by cp.async one chunk ahead; a proxy fence hands them to wgmma.
 */
#include "kernels/gdn/prepare.h"

#if !defined(KG_EMU)

#include "kernels/device/sm90.h"

static constexpr int THREADS = 128, COLS = 64;

template <int C>
struct wgmma_stage {
    unsigned char w[2 * C * 128], q[2 * C * 128], k[2 * C * 128], p[C * 128];
    float u[C][COLS + 8];
    float gamma;
    unsigned char pad[1024 - 4 - C * (COLS + 8) * 4 % 1024];
};
static_assert(sizeof(struct wgmma_stage<32>) % 1024 == 0 &&
                  sizeof(struct wgmma_stage<64>) % 1024 == 0,
              "operands must be aligned to 1024 bytes");

/* rows x 64*halves elements, packed; each 64 of a row go to their own tile. */
static __device__ __forceinline__ void
load_swizzled(unsigned char *to, const struct kg_bf16 *from, int rows, int cols)
{
    const int chunks = cols / 8;
    for (int i = threadIdx.x; i < rows * chunks; i += THREADS) {
        const int row = i / chunks, chunk = i % chunks;
        kg_cp_async_16(to + chunk / 8 * rows * 128 +
                           kg_swizzle_128((uint32_t)row, (uint32_t)chunk % 8),
                       from + i * 8);
    }
}

template <int C>
static __device__ __forceinline__ void
wgmma_load(struct wgmma_stage<C> *stage, const struct gdn_chunk<C, struct kg_bf16> &chunk,
           int col0)
{
    load_swizzled(stage->w, chunk.w, C, GDN_DIM);
    load_swizzled(stage->q, chunk.q, C, GDN_DIM);
    load_swizzled(stage->k, chunk.k, C, GDN_DIM);
    load_swizzled(stage->p, chunk.p, C, C);
    for (int i = threadIdx.x; i < C * (COLS / 4); i += THREADS) {
        const int t = i / (COLS / 4), c = i % (COLS / 4) * 4;
        kg_cp_async_16(&stage->u[t][c], chunk.u + t * GDN_DIM + col0 + c);
    }
    if (threadIdx.x == 0)
        kg_cp_async_4(&stage->gamma, chunk.gamma + C - 1);
    kg_cp_async_commit();
}

/* As kg_pack_f32_to_bf162, in one instruction. */
static __device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

/* Accumulators d[8n] .. d[8n + 7] (16 columns) as the A operand of k = 16n .. */
template <int N>
static __device__ __forceinline__ void to_operands(const float (&d)[N],
                                                   uint32_t (&a)[N / 8][4])
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[n][r] = pack_bf16(d[8 * n + 2 * r], d[8 * n + 2 * r + 1]);
}

template <int C>
static __global__
__launch_bounds__(THREADS) void sm90_gdn_chunked_kernel(struct kg_gdn_args a,
                                                        void *workspace, int64_t n_chunks)
{
    KG_SHARED_DYNAMIC(bytes);
    struct wgmma_stage<C> *stages =
        (struct wgmma_stage<C> *)(((uintptr_t)bytes + 1023) & ~(uintptr_t)1023);
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int col0 = (int)blockIdx.x * COLS, own = (int)threadIdx.x / 32 * 16;
    const int64_t head = blockIdx.y;
    const float *from = a.state_in + (head * GDN_DIM + col0 + own) * GDN_DIM;
    float state[64]; /* columns own + g (+ 8); elements 8j + 2t, + 1 in 4j .. 4j + 3 */

#pragma unroll
    for (int j = 0; j < 16; j++) {
        const float2 lo = *(const float2 *)(from + g * GDN_DIM + 8 * j + 2 * t);
        const float2 hi = *(const float2 *)(from + (g + 8) * GDN_DIM + 8 * j + 2 * t);
        state[4 * j] = lo.x;
        state[4 * j + 1] = lo.y;
        state[4 * j + 2] = hi.x;
        state[4 * j + 3] = hi.y;
    }
    if (n_chunks > 0)
        wgmma_load<C>(&stages[0],
                      gdn_chunk<C, struct kg_bf16>(workspace, head, n_chunks, 0), col0);
    for (int64_t n = 0; n < n_chunks; n++) {
        struct wgmma_stage<C> *stage = &stages[n % 2];
        kg_cp_async_wait<0>();
        kg_fence_proxy_async();
        __syncthreads();
        if (n + 1 < n_chunks)
            wgmma_load<C>(&stages[(n + 1) % 2],
                          gdn_chunk<C, struct kg_bf16>(workspace, head, n_chunks, n + 1),
                          col0);

        const uint64_t w = kg_wgmma_descriptor(stage->w, 0, 1024, KG_SWIZZLE_128);
        const uint64_t q = kg_wgmma_descriptor(stage->q, 0, 1024, KG_SWIZZLE_128);
        const uint64_t p = kg_wgmma_descriptor(stage->p, 0, 1024, KG_SWIZZLE_128);
        const uint64_t k = kg_wgmma_descriptor(stage->k, C * 128, 1024, KG_SWIZZLE_128);
        uint32_t s[GDN_DIM / 16][4], d[C / 16][4];
        float acc[C / 2], out[C / 2];

        to_operands(state, s);
        kg_wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < GDN_DIM / 16; kk++)
            kg_wgmma_bf16_rs<0>(
                acc, s[kk], kg_wgmma_advance(w, kk / 4 * C * 128 + kk % 4 * 32), kk != 0);
        kg_wgmma_commit();
#pragma unroll
        for (int kk = 0; kk < GDN_DIM / 16; kk++)
            kg_wgmma_bf16_rs<0>(
                out, s[kk], kg_wgmma_advance(q, kk / 4 * C * 128 + kk % 4 * 32), kk != 0);
        kg_wgmma_commit();
        kg_wgmma_wait<1>();
        kg_wgmma_touch(acc);
#pragma unroll
        for (int i = 0; i < C / 2; i++)
            acc[i] =
                stage->u[i / 4 * 8 + 2 * t + i % 2][own + g + i / 2 % 2 * 8] - acc[i];
        to_operands(acc, d);
        /* Not before the wait: ptxas would add one of its own, for all groups. */
        const float all = stage->gamma;
#pragma unroll
        for (int j = 0; j < 64; j++)
            state[j] = all * state[j];
        kg_wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < C / 16; kk++)
            kg_wgmma_bf16_rs<1>(state, d[kk], kg_wgmma_advance(k, kk * 2048));
        kg_wgmma_commit();
#pragma unroll
        for (int kk = 0; kk < C / 16; kk++)
            kg_wgmma_bf16_rs<0>(out, d[kk], kg_wgmma_advance(p, kk * 32));
        kg_wgmma_commit();
        kg_wgmma_wait<0>();
        kg_wgmma_touch(state);
        kg_wgmma_touch(out);
#pragma unroll
        for (int i = 0; i < C / 2; i++) {
            const int64_t token = n * C + i / 4 * 8 + 2 * t + i % 2;
            if (token < a.n_tokens)
                a.out[(token * a.n_heads + head) * GDN_DIM + col0 + own + g +
                      i / 2 % 2 * 8] = out[i];
        }
    }
    float *to = a.state_out + (head * GDN_DIM + col0 + own) * GDN_DIM;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        *(float2 *)(to + g * GDN_DIM + 8 * j + 2 * t) =
            make_float2(state[4 * j], state[4 * j + 1]);
        *(float2 *)(to + (g + 8) * GDN_DIM + 8 * j + 2 * t) =
            make_float2(state[4 * j + 2], state[4 * j + 3]);
    }
}

template <int C>
static int sm90_chunked(const struct kg_gdn_args *args, void *workspace,
                        struct CUstream_st *stream)
{
    KG_TRY((gdn_prepare<C, struct kg_bf16>(args, workspace, stream)));
    return KG_LAUNCH(stream, dim3(GDN_DIM / COLS, (unsigned)args->n_heads), THREADS,
                     2 * sizeof(struct wgmma_stage<C>) + 1024, sm90_gdn_chunked_kernel<C>,
                     *args, workspace, (args->n_tokens + C - 1) / C);
}

int kg_gdn_chunked_wgmma(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                         size_t workspace_bytes, struct CUstream_st *stream)
{
    KG_TRY(gdn_check_chunked(args, chunk, workspace, workspace_bytes));
    if (chunk == 128)
        return KG_E_INVALID;
    if (args->n_heads == 0)
        return KG_OK;
    return chunk == 32 ? sm90_chunked<32>(args, workspace, stream)
                       : sm90_chunked<64>(args, workspace, stream);
}

#endif
