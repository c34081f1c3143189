/*
 * The chunked gated delta net on tensor cores (mma.sync, operands half): what follows
 * prepare.h (kgate/ops/gdn.h has the formulas).
 *
 * Everything is turned round: a warp has 16 columns c of the state as rows of
 *
 *   delta^T = U^T - S^T W^T        16 x C, k = 128       S^T rounded to half
 *   out^T   = S^T Q^T + delta^T P^T   16 x C, k = 128, C    delta^T rounded to half
 *   S^T     = gamma[last] S^T + delta^T K    16 x 128, k = C
 *
 * so that accumulators turn into A operands in the registers where they are, no warp
 * waits for another one, and the state stays in f32 registers from the first chunk to the last.
 * The warps of a block share the B operands, which come by cp.async one chunk ahead. Blocks
 * of P above the diagonal are left out. The order inside a product is the hardware's.
 */
#include "kernels/gdn/prepare.h"

static constexpr int WARPS = 2, THREADS = 32 * WARPS, COLS = 16 * WARPS;
static constexpr int WIDTH = GDN_DIM + 8; /* 8 rows at 16 bytes meet all banks */

template <int C>
struct alignas(16) mma_stage {
    struct kg_half w[C][WIDTH], q[C][WIDTH], k[C][WIDTH];
    struct kg_half p[C][C + 8];
    float u[C][COLS + 8];
    float gamma;
};

/* rows x cols halves, packed, into rows of `width`. */
static __device__ __forceinline__ void
load_halves(struct kg_half *to, int width, const struct kg_half *from, int rows, int cols)
{
    for (int i = threadIdx.x; i < rows * cols / 8; i += THREADS)
        kg_cp_async_16(to + i / (cols / 8) * width + i % (cols / 8) * 8, from + i * 8);
}

template <int C>
static __device__ __forceinline__ void
mma_load(struct mma_stage<C> *stage, const struct gdn_chunk<C, struct kg_half> &chunk,
         int col0)
{
    load_halves(&stage->w[0][0], WIDTH, chunk.w, C, GDN_DIM);
    load_halves(&stage->q[0][0], WIDTH, chunk.q, C, GDN_DIM);
    load_halves(&stage->k[0][0], WIDTH, chunk.k, C, GDN_DIM);
    load_halves(&stage->p[0][0], C + 8, chunk.p, C, C);
    for (int i = threadIdx.x; i < C * (COLS / 4); i += THREADS) {
        const int t = i / (COLS / 4), c = i % (COLS / 4) * 4;
        kg_cp_async_16(&stage->u[t][c], chunk.u + t * GDN_DIM + col0 + c);
    }
    if (threadIdx.x == 0)
        kg_cp_async_4(&stage->gamma, chunk.gamma + C - 1);
    kg_cp_async_commit();
}

/* Accumulators of columns 16n .. 16n+15 as the A operand of k = 16n .. */
static __device__ __forceinline__ void
to_operand(const float (&low)[4], const float (&high)[4], uint32_t (&a)[4])
{
    a[0] = kg_pack_f32_to_half2(low[0], low[1]);
    a[1] = kg_pack_f32_to_half2(low[2], low[3]);
    a[2] = kg_pack_f32_to_half2(high[0], high[1]);
    a[3] = kg_pack_f32_to_half2(high[2], high[3]);
}

/* B operands k0 .. k0+15 of columns n0 .. n0+15; a row of shared memory is a column of B. */
static __device__ __forceinline__ void
load_b(uint32_t (&b)[4], const struct kg_half *rows, int width, int n0, int k0, int lane)
{
    kg_ldmatrix_x4(b, rows + (n0 + lane / 16 * 8 + lane % 8) * width + k0 +
                          lane / 8 % 2 * 8);
}

/* The same where a row of shared memory is a row of B. */
static __device__ __forceinline__ void load_b_rows(uint32_t (&b)[4],
                                                   const struct kg_half *rows, int width,
                                                   int n0, int k0, int lane)
{
    kg_ldmatrix_x4_trans(b, rows + (k0 + lane % 16) * width + n0 + lane / 16 * 8);
}

template <int C>
static __global__
__launch_bounds__(THREADS) void gdn_chunked_mma_kernel(struct kg_gdn_args a,
                                                       void *workspace, int64_t n_chunks)
{
    KG_SHARED_DYNAMIC(bytes);
    struct mma_stage<C> *stages = (struct mma_stage<C> *)bytes;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int col0 = (int)blockIdx.x * COLS, own = (int)threadIdx.x / 32 * 16;
    const int64_t head = blockIdx.y;
    const float *from = a.state_in + (head * GDN_DIM + col0 + own) * GDN_DIM;
    float state[16][4]; /* columns own + g (+ 8); elements 8j + 2t, + 1 */

#pragma unroll
    for (int j = 0; j < 16; j++) {
        const float2 lo = *(const float2 *)(from + g * GDN_DIM + 8 * j + 2 * t);
        const float2 hi = *(const float2 *)(from + (g + 8) * GDN_DIM + 8 * j + 2 * t);
        state[j][0] = lo.x;
        state[j][1] = lo.y;
        state[j][2] = hi.x;
        state[j][3] = hi.y;
    }
    if (n_chunks > 0)
        mma_load<C>(&stages[0],
                    gdn_chunk<C, struct kg_half>(workspace, head, n_chunks, 0), col0);
    for (int64_t n = 0; n < n_chunks; n++) {
        struct mma_stage<C> *stage = &stages[n % 2];
        kg_cp_async_wait<0>();
        __syncthreads();
        if (n + 1 < n_chunks)
            mma_load<C>(&stages[(n + 1) % 2],
                        gdn_chunk<C, struct kg_half>(workspace, head, n_chunks, n + 1),
                        col0);

        uint32_t s[GDN_DIM / 16][4];
#pragma unroll
        for (int kk = 0; kk < GDN_DIM / 16; kk++)
            to_operand(state[2 * kk], state[2 * kk + 1], s[kk]);
        uint32_t d[C / 16][4];
        float out[C / 8][4];
#pragma unroll
        for (int j = 0; j < C / 8; j += 2) {
            float acc[2][4] = {}, o[2][4] = {};
#pragma unroll
            for (int kk = 0; kk < GDN_DIM / 16; kk++) {
                uint32_t b[4];
                load_b(b, &stage->w[0][0], WIDTH, 8 * j, 16 * kk, lane);
                kg_mma_f16_16816(acc[0], s[kk], b);
                kg_mma_f16_16816(acc[1], s[kk], b + 2);
                load_b(b, &stage->q[0][0], WIDTH, 8 * j, 16 * kk, lane);
                kg_mma_f16_16816(o[0], s[kk], b);
                kg_mma_f16_16816(o[1], s[kk], b + 2);
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    out[j + i][e] = o[i][e];
                    acc[i][e] =
                        stage->u[8 * (j + i) + 2 * t + e % 2][own + g + e / 2 * 8] -
                        acc[i][e];
                }
            to_operand(acc[0], acc[1], d[j / 2]);
        }
#pragma unroll
        for (int kk = 0; kk < C / 16; kk++)
#pragma unroll
            for (int j = 2 * kk; j < C / 8; j += 2) {
                uint32_t b[4];
                load_b(b, &stage->p[0][0], C + 8, 8 * j, 16 * kk, lane);
                kg_mma_f16_16816(out[j], d[kk], b);
                kg_mma_f16_16816(out[j + 1], d[kk], b + 2);
            }
        const float all = stage->gamma;
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                state[j][e] = all * state[j][e];
#pragma unroll
        for (int kk = 0; kk < C / 16; kk++)
#pragma unroll
            for (int j = 0; j < 16; j += 2) {
                uint32_t b[4];
                load_b_rows(b, &stage->k[0][0], WIDTH, 8 * j, 16 * kk, lane);
                kg_mma_f16_16816(state[j], d[kk], b);
                kg_mma_f16_16816(state[j + 1], d[kk], b + 2);
            }
#pragma unroll
        for (int j = 0; j < C / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int64_t token = n * C + 8 * j + 2 * t + e % 2;
                if (token < a.n_tokens)
                    a.out[(token * a.n_heads + head) * GDN_DIM + col0 + own + g +
                          e / 2 * 8] = out[j][e];
            }
    }
    float *to = a.state_out + (head * GDN_DIM + col0 + own) * GDN_DIM;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        *(float2 *)(to + g * GDN_DIM + 8 * j + 2 * t) =
            make_float2(state[j][0], state[j][1]);
        *(float2 *)(to + (g + 8) * GDN_DIM + 8 * j + 2 * t) =
            make_float2(state[j][2], state[j][3]);
    }
}

template <int C>
static int chunked_mma(const struct kg_gdn_args *args, void *workspace,
                       struct CUstream_st *stream)
{
    KG_TRY((gdn_prepare<C, struct kg_half>(args, workspace, stream)));
    return KG_LAUNCH(stream, dim3(GDN_DIM / COLS, (unsigned)args->n_heads), THREADS,
                     2 * sizeof(struct mma_stage<C>), gdn_chunked_mma_kernel<C>, *args,
                     workspace, (args->n_tokens + C - 1) / C);
}

int kg_gdn_chunked_mma(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                       size_t workspace_bytes, struct CUstream_st *stream)
{
    KG_TRY(gdn_check_chunked(args, chunk, workspace, workspace_bytes));
    if (chunk == 128)
        return KG_E_INVALID;
    if (args->n_heads == 0)
        return KG_OK;
    return chunk == 32 ? chunked_mma<32>(args, workspace, stream)
                       : chunked_mma<64>(args, workspace, stream);
}
