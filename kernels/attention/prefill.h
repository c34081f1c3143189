/*
 * Flash attention with mma.sync: out = softmax(scale * Q K^T) V for a prompt.
 *
 *   q, out [tokens][n_heads][HD] f32      K, V as source.h has them
 *
 * A block has 64 queries of one head. Warp w has queries 16w .. 16w + 15; GROUPS is 1, or 2
 * with eight warps, where warps 4 .. 7 have the same queries and the other half of HD.
 * q, K, V and the weights are 16-bit (F16 or bf16, to nearest even), sums are f32. Per
 * tile of KEYS keys, in ascending order from M = -inf, L = 0, O = 0:
 *
 *   S = q K^T by mma over k = 0, 16, ..; with two groups each sums its half of HD and
 *   S = half_0 + half_1
 *   s = S * scale;  M' = max(M, max s);  r = exp(M - M');  w = 16-bit exp(s - M')
 *   L = L * r + sum of w (each lane its own columns in order, the four lanes of a row are
 *   added at the end);  O = O * r, then += w V by mma over the keys
 *
 * and out = O / L. Heads of 512 with one group take two blocks, each with half of the
 * output's elements and all of the scores. How K and V came to be 16-bit (here, or in a
 * workspace) does not enter. The order of additions inside mma is the device's.
 */
#ifndef KGATE_KERNELS_ATTENTION_PREFILL_H
#define KGATE_KERNELS_ATTENTION_PREFILL_H

#include "kernels/attention/launch.h"
#include "kernels/attention/source.h"

#define QUERIES 64

template <int HD, int GROUPS>
struct prefill_shape {
    enum {
        KEYS = HD <= 128 ? 64 : 32,
        THREADS = 128 * GROUPS,
        /* Elements of the output that a warp has, and passes over the keys for all. */
        OUT = GROUPS == 2 ? HD / 2
              : HD > 256  ? 256
                          : HD,
        PASSES = HD / (OUT * GROUPS),
        STRIDE = HD * 2 + 16, /* bytes of a row in shared memory: no bank conflicts */
        Q_BYTES = QUERIES * STRIDE,
        K_BYTES = KEYS * STRIDE,
        /* The two groups' scores of each other. */
        S_BYTES = GROUPS == 2 ? 2 * QUERIES * KEYS * 4 : 0,
        BYTES = Q_BYTES + 2 * K_BYTES + S_BYTES,
    };
};

template <bool F16>
static __device__ inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if (F16)
        kg_mma_f16_16816(d, a, b);
    else
        kg_mma_bf16_16816(d, a, b);
}

/* KEYS rows from `first` on of one side into shared memory, zeros past the end. */
template <int HD, int GROUPS, bool F16>
static __device__ inline void load_tile(uint8_t *to, const struct prefill &p,
                                        const struct side &side, int64_t first,
                                        int kv_head)
{
    typedef prefill_shape<HD, GROUPS> shape;
    for (int c = threadIdx.x; c < shape::KEYS * (HD / 8); c += shape::THREADS) {
        const int row = c / (HD / 8), at = c % (HD / 8) * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (first + row < p.keys)
            x = stage8<F16>(side, first + row, kv_head, at);
        *(uint4 *)(to + row * shape::STRIDE + 2 * at) = x;
    }
}

template <int HD, int GROUPS, bool F16>
static __device__ inline void load_queries(uint8_t *to, const struct prefill &p,
                                           int64_t first, int head)
{
    typedef prefill_shape<HD, GROUPS> shape;
    for (int c = threadIdx.x; c < QUERIES * (HD / 8); c += shape::THREADS) {
        const int row = c / (HD / 8), at = c % (HD / 8) * 8;
        float x[8] = {};
        if (first + row < p.tokens)
            load8((const uint8_t *)(p.q + ((first + row) * p.n_heads + head) * HD),
                  KG_TYPE_F32, at, x);
        *(uint4 *)(to + row * shape::STRIDE + 2 * at) = round8<F16>(x);
    }
}

/* s[j] = 16 queries x keys 8j .. 8j + 7, over elements k0 .. k0 + n - 1. */
template <int HD, int GROUPS, bool F16>
static __device__ inline void scores(float (*s)[4], const uint8_t *q, const uint8_t *k,
                                     int k0, int n)
{
    typedef prefill_shape<HD, GROUPS> shape;
    const int lane = threadIdx.x % 32;
    const uint8_t *q_row = q + (lane & 15) * shape::STRIDE + (lane >> 4) * 16;
    const uint8_t *k_row =
        k + ((lane & 7) + (lane >> 4) * 8) * shape::STRIDE + (lane >> 3 & 1) * 16;
    for (int j = 0; j < shape::KEYS / 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
#pragma unroll 4
    for (int i = k0; i < k0 + n; i += 16) {
        uint32_t a[4];
        kg_ldmatrix_x4(a, q_row + 2 * i);
#pragma unroll
        for (int j = 0; j < shape::KEYS / 8; j += 2) {
            uint32_t b[4];
            kg_ldmatrix_x4(b, k_row + j * 8 * shape::STRIDE + 2 * i);
            mma<F16>(s[j], a, b);
            mma<F16>(s[j + 1], a, b + 2);
        }
    }
}

/* The other group's half of the scores, through shared memory; half_0 + half_1 in both. */
template <int HD>
static __device__ inline void join_scores(float (*s)[4], float *shared, int group)
{
    typedef prefill_shape<HD, 2> shape;
    const int tid = threadIdx.x % 128;
    float *mine = shared + group * QUERIES * shape::KEYS;
    const float *other = shared + (1 - group) * QUERIES * shape::KEYS;
    for (int j = 0; j < shape::KEYS / 8; j++)
        *(float4 *)(mine + (j * 128 + tid) * 4) =
            make_float4(s[j][0], s[j][1], s[j][2], s[j][3]);
    __syncthreads();
    for (int j = 0; j < shape::KEYS / 8; j++) {
        const float4 x = kg_load_float4(other + (j * 128 + tid) * 4);
        s[j][0] = group == 0 ? s[j][0] + x.x : x.x + s[j][0];
        s[j][1] = group == 0 ? s[j][1] + x.y : x.y + s[j][1];
        s[j][2] = group == 0 ? s[j][2] + x.z : x.z + s[j][2];
        s[j][3] = group == 0 ? s[j][3] + x.w : x.w + s[j][3];
    }
}

template <bool F16>
static __device__ inline float rounded(float x)
{
    return F16 ? kg_half_to_f32(kg_f32_to_half(x)) : kg_bf16_to_f32(kg_f32_to_bf16(x));
}

static __device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, 2));
}

/* Scores of a tile to weights, for the two rows of a lane. */
template <int N, bool F16>
static __device__ inline void softmax(float (*s)[4], const struct prefill &p,
                                      int64_t key0, const struct key_range range[2],
                                      float max[2], float sum[2], float rescale[2])
{
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = max[r];
#pragma unroll
        for (int j = 0; j < N; j++)
            for (int e = 0; e < 2; e++) {
                const int64_t key = key0 + 8 * j + 2 * t + e;
                float &x = s[j][2 * r + e];
                x = key >= range[r].first && key < range[r].end ? x * p.scale : -INFINITY;
                top = fmaxf(top, x);
            }
        top = quad_max(top);
        const float base = top == -INFINITY ? 0.0f : top; /* the row saw no key yet */
        rescale[r] = kg_expf(max[r] - base);
        max[r] = top;
        sum[r] *= rescale[r];
#pragma unroll
        for (int j = 0; j < N; j++)
            for (int e = 0; e < 2; e++) {
                float &x = s[j][2 * r + e];
                x = x == -INFINITY ? 0.0f : rounded<F16>(kg_expf(x - base));
                sum[r] += x;
            }
    }
}

template <int HD, int GROUPS, bool F16>
static __global__ void __launch_bounds__(128 * GROUPS) prefill_kernel(struct prefill p)
{
    typedef prefill_shape<HD, GROUPS> shape;
    enum { TILES = shape::KEYS / 8, OUT_TILES = shape::OUT / 8 };
    KG_SHARED_DYNAMIC(memory);
    uint8_t *q_tile = memory, *k_tile = q_tile + shape::Q_BYTES;
    uint8_t *v_tile = k_tile + shape::K_BYTES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int group = threadIdx.x / 128;
    const int head = blockIdx.y / shape::PASSES, pass = blockIdx.y % shape::PASSES;
    const int kv_head = head / (p.n_heads / p.n_kv_heads);
    /* The last queries see the most keys: they go first. */
    const int64_t query0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    const int64_t query = query0 + 16 * warp + lane / 4;
    const int out0 = (pass * GROUPS + group) * shape::OUT;

    const int64_t last = min(query0 + QUERIES, p.tokens) - 1;
    const int64_t end = min(keys_seen(p, last).end, p.keys);
    const int64_t first = keys_seen(p, query0).first / shape::KEYS * shape::KEYS;
    const struct key_range range[2] = {keys_seen(p, query), keys_seen(p, query + 8)};
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
    float out[OUT_TILES][4] = {};

    load_queries<HD, GROUPS, F16>(q_tile, p, query0, head);
    for (int64_t key0 = first; key0 < end; key0 += shape::KEYS) {
        float s[TILES][4], rescale[2];
        __syncthreads();
        load_tile<HD, GROUPS, F16>(k_tile, p, p.k, key0, kv_head);
        load_tile<HD, GROUPS, F16>(v_tile, p, p.v, key0, kv_head);
        __syncthreads();
        scores<HD, GROUPS, F16>(s, q_tile + 16 * warp * shape::STRIDE, k_tile,
                                GROUPS == 2 ? group * shape::OUT : 0, HD / GROUPS);
        if constexpr (GROUPS == 2)
            join_scores<HD>(s, (float *)(v_tile + shape::K_BYTES), group);
        softmax<TILES, F16>(s, p, key0, range, max, sum, rescale);
#pragma unroll
        for (int i = 0; i < OUT_TILES; i++) {
            out[i][0] *= rescale[0];
            out[i][1] *= rescale[0];
            out[i][2] *= rescale[1];
            out[i][3] *= rescale[1];
        }
        const uint8_t *v_row = v_tile + (lane & 15) * shape::STRIDE + (lane >> 4) * 16;
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            uint32_t a[4];
            for (int i = 0; i < 4; i++) {
                const float *w = s[j + i / 2] + 2 * (i % 2);
                a[i] = F16 ? kg_pack_f32_to_half2(w[0], w[1])
                           : kg_pack_f32_to_bf162(w[0], w[1]);
            }
#pragma unroll
            for (int i = 0; i < OUT_TILES; i += 2) {
                uint32_t b[4];
                kg_ldmatrix_x4_trans(b,
                                     v_row + 8 * j * shape::STRIDE + 2 * (out0 + 8 * i));
                mma<F16>(out[i], a, b);
                mma<F16>(out[i + 1], a, b + 2);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = sum[r];
        l += __shfl_xor_sync(KG_WARP_ALL, l, 1);
        l += __shfl_xor_sync(KG_WARP_ALL, l, 2);
        const int64_t row = query + 8 * r;
        if (row >= p.tokens)
            continue;
        float *to = p.out + (row * p.n_heads + head) * HD + out0 + 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < OUT_TILES; i++)
            *(float2 *)(to + 8 * i) =
                make_float2(finish(out[i][2 * r], l), finish(out[i][2 * r + 1], l));
        if (p.lse && lane % 4 == 0 && out0 == 0)
            p.lse[row * p.n_heads + head] = log_sum_exp(max[r], l);
    }
}

template <int HD, int GROUPS, bool F16>
static int launch_prefill(const struct prefill &p, struct CUstream_st *stream)
{
    typedef prefill_shape<HD, GROUPS> shape;
    const dim3 grid((unsigned)((p.tokens + QUERIES - 1) / QUERIES),
                    (unsigned)(p.n_heads * shape::PASSES));
    return KG_LAUNCH(stream, grid, shape::THREADS, shape::BYTES,
                     (prefill_kernel<HD, GROUPS, F16>), p);
}

template <bool F16>
static int launch_flash(int head_dim, bool single, const struct prefill &p,
                        struct CUstream_st *stream)
{
    if (single)
        return head_dim == 256   ? launch_prefill<256, 2, F16>(p, stream)
               : head_dim == 512 ? launch_prefill<512, 2, F16>(p, stream)
                                 : KG_E_UNSUPPORTED;
    switch (head_dim) {
    case 64:
        return launch_prefill<64, 1, F16>(p, stream);
    case 96:
        return launch_prefill<96, 1, F16>(p, stream);
    case 128:
        return launch_prefill<128, 1, F16>(p, stream);
    case 192:
        return launch_prefill<192, 1, F16>(p, stream);
    case 256:
        return launch_prefill<256, 1, F16>(p, stream);
    case 512:
        return launch_prefill<512, 1, F16>(p, stream);
    default:
        return KG_E_UNSUPPORTED;
    }
}

#endif
