/*
 * The chunked gated delta net in f32: what follows prepare.h, chunk by chunk
 * (kgate/ops/gdn.h has the formulas, prepare.h the workspace).
 *
 *   delta[t][c] = U[t][c] - dot(W[t], S[c])
 *   out[t][c]   = scale * acc,  acc = dot(q[t], S[c]) * gamma[t], then for s ascending
 *                 acc = fma(P[t][s], delta[s][c], acc)
 *   S[c][i]     = gamma[last] * S[c][i], then for t ascending
 *                 S[c][i] = fma(k[t][i], rest[t] * delta[t][c], S[c][i])
 *
 * dot: fma from 0 in ascending order. A block has 32 columns of one head. W, q and k pass
 * through shared memory in tiles of R tokens, one ahead; a thread has 4 tokens x 2 columns of
 * a product with the state, and keeps 8 or 4 elements x 4 columns of the state in registers.
 */
#include "kernels/gdn/prepare.h"

static constexpr int COLS = 32, WIDTH = GDN_DIM + 4;

template <int C>
struct chunked_shape {
    static constexpr int R = C < 64 ? C : 64;   /* tokens of a tile */
    static constexpr int THREADS = 4 * R;       /* 4 x 2 outputs each */
    static constexpr int KEYS = 1024 / THREADS; /* of the state: KEYS x 4 columns each */
};

template <int C>
struct chunked_shared {
    float state[COLS][WIDTH];
    float tile[2][chunked_shape<C>::R][WIDTH];
    float p[chunked_shape<C>::R][C + 4];
    float delta[C][COLS + 4];
    float gamma[C], rest[C];
};

/* Tile number `tile` of a chunk: those of W, then of q, then of k. */
template <int C>
static __device__ __forceinline__ void
chunked_load(const struct kg_gdn_args &a, const struct gdn_chunk<C, float> &chunk,
             float (*to)[WIDTH], int64_t first, int64_t head, int tile)
{
    constexpr int R = chunked_shape<C>::R, THREADS = chunked_shape<C>::THREADS;
    const int kind = tile / (C / R), row0 = tile % (C / R) * R;
    for (int i = threadIdx.x; i < R * 32; i += THREADS) {
        const int t = row0 + i / 32, c = i % 32 * 4;
        if (kind == 0) {
            kg_cp_async_16(&to[i / 32][c], chunk.w + t * GDN_DIM + c);
        } else {
            const bool in = first + t < a.n_tokens;
            const float *row = (kind == 1 ? a.q : a.k) +
                               ((first + (in ? t : 0)) * a.n_heads + head) * GDN_DIM;
            kg_cp_async_16(&to[i / 32][c], row + c, in ? 16 : 0);
        }
    }
    kg_cp_async_commit();
}

/* acc[i][j] = dot(tile[ty + 8i'], state[tx ..]); rows and columns as the caller spreads. */
template <int C>
static __device__ __forceinline__ void state_product(const float (*tile)[WIDTH],
                                                     const float (*state)[WIDTH], int row,
                                                     int col, float (&acc)[4][2])
{
    constexpr int STEP = chunked_shape<C>::R / 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i][0] = acc[i][1] = 0.0f;
#pragma unroll 4
    for (int c = 0; c < GDN_DIM; c += 4) {
        const float4 s0 = kg_load_float4(&state[col][c]);
        const float4 s1 = kg_load_float4(&state[col + 16][c]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 x = kg_load_float4(&tile[row + STEP * i][c]);
            acc[i][0] = fmaf(x.x, s0.x, acc[i][0]);
            acc[i][0] = fmaf(x.y, s0.y, acc[i][0]);
            acc[i][0] = fmaf(x.z, s0.z, acc[i][0]);
            acc[i][0] = fmaf(x.w, s0.w, acc[i][0]);
            acc[i][1] = fmaf(x.x, s1.x, acc[i][1]);
            acc[i][1] = fmaf(x.y, s1.y, acc[i][1]);
            acc[i][1] = fmaf(x.z, s1.z, acc[i][1]);
            acc[i][1] = fmaf(x.w, s1.w, acc[i][1]);
        }
    }
}

template <int C>
static __global__ __launch_bounds__(chunked_shape<C>::THREADS) void gdn_chunked_kernel(
    struct kg_gdn_args a, void *workspace, int64_t n_chunks)
{
    constexpr int R = chunked_shape<C>::R, THREADS = chunked_shape<C>::THREADS;
    constexpr int KEYS = chunked_shape<C>::KEYS, TILES = C / R, STEP = R / 4;
    KG_SHARED_DYNAMIC(bytes);
    struct chunked_shared<C> *sh = (struct chunked_shared<C> *)bytes;
    const int tid = threadIdx.x, col0 = (int)blockIdx.x * COLS;
    const int64_t head = blockIdx.y;
    /* Of a product: a warp takes 8 neighbouring rows, and 4 columns. */
    const int row = tid / 32 / 4 * 8 + tid % 8, col = tid / 32 % 4 * 4 + tid % 32 / 8;
    /* Of the state: 4 columns, and groups of 4 elements 4 * (THREADS / 8) apart. */
    const int key0 = tid % (THREADS / 8) * 4, own = tid / (THREADS / 8) * 4;
    float state[KEYS / 4][4][4]; /* [group][element][column] */
    const float *from = a.state_in + (head * GDN_DIM + col0) * GDN_DIM;

#pragma unroll
    for (int g = 0; g < KEYS / 4; g++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int key = key0 + g * (THREADS / 2);
            const float4 s = kg_load_float4(from + (own + c) * GDN_DIM + key);
            state[g][0][c] = s.x;
            state[g][1][c] = s.y;
            state[g][2][c] = s.z;
            state[g][3][c] = s.w;
            *(float4 *)&sh->state[own + c][key] = s;
        }
    if (n_chunks > 0)
        chunked_load(a, gdn_chunk<C, float>(workspace, head, n_chunks, 0), sh->tile[0], 0,
                     head, 0);
    int turn = 0;
    for (int64_t n = 0; n < n_chunks; n++) {
        const struct gdn_chunk<C, float> chunk(workspace, head, n_chunks, n);
        const int64_t first = n * C;
        for (int tile = 0; tile < 3 * TILES; tile++, turn ^= 1) {
            const int kind = tile / TILES, row0 = tile % TILES * R;
            kg_cp_async_wait<0>();
            __syncthreads(); /* the tile is there, and nobody reads the other one */
            if (tile + 1 < 3 * TILES)
                chunked_load(a, chunk, sh->tile[turn ^ 1], first, head, tile + 1);
            else if (n + 1 < n_chunks)
                chunked_load(a, gdn_chunk<C, float>(workspace, head, n_chunks, n + 1),
                             sh->tile[turn ^ 1], first + C, head, 0);
            const float(*x)[WIDTH] = sh->tile[turn];
            float acc[4][2];
            if (kind == 0) {
                if (row0 == 0)
                    for (int i = tid; i < C; i += THREADS) {
                        sh->gamma[i] = chunk.gamma[i];
                        sh->rest[i] = chunk.rest[i];
                    }
                float u[4][2];
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        u[i][j] = chunk.u[(row0 + row + STEP * i) * GDN_DIM + col0 + col +
                                          16 * j];
                state_product<C>(x, sh->state, row, col, acc);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        sh->delta[row0 + row + STEP * i][col + 16 * j] =
                            u[i][j] - acc[i][j];
            } else if (kind == 1) {
                for (int i = tid; i < R * C / 4; i += THREADS)
                    *(float4 *)&sh->p[i / (C / 4)][i % (C / 4) * 4] =
                        kg_load_float4(chunk.p + row0 * C + i * 4);
                state_product<C>(x, sh->state, row, col, acc);
                __syncthreads(); /* p and every delta */
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        acc[i][j] = acc[i][j] * sh->gamma[row0 + row + STEP * i];
                        /* P is 0 above the diagonal; a fma with 0 changes no bit but a zero's sign. */
#pragma unroll 2
                for (int s = 0; s < row0 + R; s += 4) {
                    float4 p[4];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        p[i] = kg_load_float4(&sh->p[row + STEP * i][s]);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        const float *d = &sh->delta[s][col + 16 * j];
                        const float d0 = d[0], d1 = d[COLS + 4], d2 = d[2 * (COLS + 4)],
                                    d3 = d[3 * (COLS + 4)];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            acc[i][j] = fmaf(p[i].x, d0, acc[i][j]);
                            acc[i][j] = fmaf(p[i].y, d1, acc[i][j]);
                            acc[i][j] = fmaf(p[i].z, d2, acc[i][j]);
                            acc[i][j] = fmaf(p[i].w, d3, acc[i][j]);
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t token = first + row0 + row + STEP * i;
                    if (token < a.n_tokens) {
                        float *to = a.out + (token * a.n_heads + head) * GDN_DIM + col0;
                        to[col] = a.scale * acc[i][0];
                        to[col + 16] = a.scale * acc[i][1];
                    }
                }
            } else {
                if (row0 == 0) {
                    /* The barrier above ended all uses of delta in `out`. */
                    const float all = sh->gamma[C - 1];
#pragma unroll
                    for (int g = 0; g < KEYS / 4; g++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
#pragma unroll
                            for (int c = 0; c < 4; c++)
                                state[g][e][c] = all * state[g][e][c];
                }
#pragma unroll 4
                for (int t = 0; t < R; t++) {
                    const float rest = sh->rest[row0 + t];
                    const float4 d = kg_load_float4(&sh->delta[row0 + t][own]);
                    const float dc[4] = {rest * d.x, rest * d.y, rest * d.z, rest * d.w};
#pragma unroll
                    for (int g = 0; g < KEYS / 4; g++) {
                        const float4 k = kg_load_float4(&x[t][key0 + g * (THREADS / 2)]);
#pragma unroll
                        for (int c = 0; c < 4; c++) {
                            state[g][0][c] = fmaf(k.x, dc[c], state[g][0][c]);
                            state[g][1][c] = fmaf(k.y, dc[c], state[g][1][c]);
                            state[g][2][c] = fmaf(k.z, dc[c], state[g][2][c]);
                            state[g][3][c] = fmaf(k.w, dc[c], state[g][3][c]);
                        }
                    }
                }
                if (row0 + R == C)
#pragma unroll
                    for (int g = 0; g < KEYS / 4; g++)
#pragma unroll
                        for (int c = 0; c < 4; c++)
                            *(float4 *)&sh->state[own + c][key0 + g * (THREADS / 2)] =
                                make_float4(state[g][0][c], state[g][1][c],
                                            state[g][2][c], state[g][3][c]);
            }
        }
    }
    float *to = a.state_out + (head * GDN_DIM + col0) * GDN_DIM;
#pragma unroll
    for (int g = 0; g < KEYS / 4; g++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            *(float4 *)(to + (own + c) * GDN_DIM + key0 + g * (THREADS / 2)) =
                make_float4(state[g][0][c], state[g][1][c], state[g][2][c],
                            state[g][3][c]);
}

template <int C>
static int chunked(const struct kg_gdn_args *args, void *workspace,
                   struct CUstream_st *stream)
{
    KG_TRY((gdn_prepare<C, float>(args, workspace, stream)));
    return KG_LAUNCH(stream, dim3(GDN_DIM / COLS, (unsigned)args->n_heads),
                     chunked_shape<C>::THREADS, sizeof(struct chunked_shared<C>),
                     gdn_chunked_kernel<C>, *args, workspace,
                     (args->n_tokens + C - 1) / C);
}

int kg_gdn_chunked(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                   size_t workspace_bytes, struct CUstream_st *stream)
{
    KG_TRY(gdn_check_chunked(args, chunk, workspace, workspace_bytes));
    if (args->n_heads == 0)
        return KG_OK;
    if (chunk == 32)
        return chunked<32>(args, workspace, stream);
    if (chunk == 64)
        return chunked<64>(args, workspace, stream);
    return chunked<128>(args, workspace, stream);
}
