/*
 * The causal depthwise convolution (kgate/ops/ssm.h).
 *
 *   acc = 0;  acc = fma(x[t + j], w[j], acc) for j = 0 .. d_conv-1;  y = acc, or
 *   kg_siluf(acc)
 *
 * for every output alone (conv_dot), so that all forms have the same bits. Rows of x are
 * n_tokens + d_conv - 1 long and so start anywhere. A thread has four neighbouring outputs,
 * twice, and loads the aligned vectors of 16 bytes that their values lie in; where those
 * begin in the first vector, the same for the whole row, decides two rounds of selects.
 */
#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"
#include "kgate/kernels.h"

static constexpr int THREADS = 256, ITEMS = 8, D_CONV_MAX = 8;

/* The sum of one output: x[0 .. D-1] against w[0 .. D-1]. */
template <int D>
static __device__ __forceinline__ float conv_dot(const float *x, const float *w)
{
    float acc = 0.0f;
#pragma unroll
    for (int j = 0; j < D; j++)
        acc = fmaf(x[j], w[j], acc);
    return acc;
}

/* v[0 .. 4V - 1] from the aligned address `from`; if CHECKED only of what is in begin ..
   end. */
template <int V, bool CHECKED>
static __device__ __forceinline__ void load_aligned(const float *begin, const float *from,
                                                    const float *end, float v[4 * V])
{
#pragma unroll
    for (int k = 0; k < 4 * V; k += 4) {
        if (!CHECKED) {
            const float4 f = *(const float4 *)(from + k);
            v[k] = f.x;
            v[k + 1] = f.y;
            v[k + 2] = f.z;
            v[k + 3] = f.w;
        } else {
            for (int e = k; e < k + 4; e++)
                v[e] = from + e >= begin && from + e < end ? from[e] : 0.0f;
        }
    }
}

/* Outputs 4i .. 4i + 3 of a channel; WIDE: n_tokens is a multiple of 4, y aligned to 16. */
template <int D, bool SILU, bool WIDE>
static __global__
__launch_bounds__(THREADS) void ssm_conv1d_kernel(const float *x, const float *w,
                                                  float *y, int64_t channels,
                                                  int64_t n_tokens, unsigned tiles)
{
    constexpr int VECTORS = (4 + D - 1 + 3 + 3) / 4, NEEDED = 4 + D - 1;
    const int64_t channel = blockIdx.x / tiles;
    const int64_t first =
        (int64_t)(blockIdx.x % tiles) * (THREADS * ITEMS) + 4 * threadIdx.x;
    const int64_t width = n_tokens + D - 1;
    const float *row = x + channel * width, *end = x + channels * width;
    const int skip = (int)((uintptr_t)row / 4 % 4); /* values of the first vector */
    float weight[D], v[ITEMS / 4][4 * VECTORS];
#pragma unroll
    for (int j = 0; j < D; j++)
        weight[j] = w[channel * D + j];
    const float *from = row - skip + first;
    const float *block = from - 4 * threadIdx.x;
    if (block >= x && block + THREADS * ITEMS + 4 * VECTORS <= end) {
#pragma unroll
        for (int i = 0; i < ITEMS / 4; i++)
            load_aligned<VECTORS, false>(x, from + i * 4 * THREADS, end, v[i]);
    } else { /* the first and the last block of the array */
#pragma unroll
        for (int i = 0; i < ITEMS / 4; i++)
            load_aligned<VECTORS, true>(x, from + i * 4 * THREADS, end, v[i]);
    }
#pragma unroll
    for (int i = 0; i < ITEMS / 4; i++) {
        const int64_t t = first + i * 4 * THREADS;
        if (t >= n_tokens)
            break;
        float out[4];
#pragma unroll
        for (int k = 0; k < NEEDED + 2; k++)
            v[i][k] = skip & 1 ? v[i][k + 1] : v[i][k];
#pragma unroll
        for (int k = 0; k < NEEDED; k++)
            v[i][k] = skip & 2 ? v[i][k + 2] : v[i][k];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float acc = conv_dot<D>(v[i] + k, weight);
            out[k] = SILU ? kg_siluf(acc) : acc;
        }
        float *to = y + channel * n_tokens + t;
        if (WIDE) {
            *(float4 *)to = make_float4(out[0], out[1], out[2], out[3]);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (t + k < n_tokens)
                    to[k] = out[k];
        }
    }
}

template <int D>
static int conv(const float *x, const float *w, float *y, int64_t channels,
                int64_t n_tokens, bool silu, struct CUstream_st *stream)
{
    const int64_t tiles = (n_tokens + THREADS * ITEMS - 1) / (THREADS * ITEMS);
    const int64_t blocks = size_product(channels, tiles);
    if (blocks < 0 || !grid_blocks(blocks, 1))
        return KG_E_INVALID;
    const bool wide = n_tokens % 4 == 0 && (uintptr_t)y % 16 == 0;
#define LAUNCH(SILU, WIDE)                                                               \
    KG_LAUNCH(stream, (unsigned)blocks, THREADS, 0, (ssm_conv1d_kernel<D, SILU, WIDE>),  \
              x, w, y, channels, n_tokens, (unsigned)tiles)
    if (silu)
        return wide ? LAUNCH(true, true) : LAUNCH(true, false);
    return wide ? LAUNCH(false, true) : LAUNCH(false, false);
#undef LAUNCH
}

#define BY_D_CONV(d_conv, CALL)                                                          \
    ((d_conv) == 2   ? CALL(2)                                                           \
     : (d_conv) == 3 ? CALL(3)                                                           \
     : (d_conv) == 4 ? CALL(4)                                                           \
     : (d_conv) == 5 ? CALL(5)                                                           \
     : (d_conv) == 6 ? CALL(6)                                                           \
     : (d_conv) == 7 ? CALL(7)                                                           \
                     : CALL(8))

static int kg_ssm_conv1d(const float *x, const float *w, float *y, int64_t channels,
                         int64_t n_tokens, int64_t d_conv, bool silu,
                         struct CUstream_st *stream)
{
    if (d_conv < 2 || d_conv > D_CONV_MAX || n_tokens < 0 || n_tokens > 0x7fffffff ||
        size_product(channels, n_tokens + d_conv - 1) < 0 ||
        size_product(channels, d_conv) < 0)
        return KG_E_INVALID;
    const int64_t n = channels * n_tokens;
    if (!pointer_fits(x, n, 4) || !pointer_fits(w, n, 4) || !pointer_fits(y, n, 4))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
#define CONV(D) conv<D>(x, w, y, channels, n_tokens, silu, stream)
    return BY_D_CONV(d_conv, CONV);
}

/* One channel a thread. */
static __global__ void conv_assemble_kernel(const float *token, float *state, float *x,
                                            int64_t channels, int d_conv)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= channels)
        return;
    float *old = state + c * (d_conv - 1), *row = x + c * d_conv;
    for (int j = 0; j < d_conv - 1; j++) {
        row[j] = old[j];
        if (j > 0)
            old[j - 1] = row[j];
    }
    row[d_conv - 1] = token[c];
    old[d_conv - 2] = token[c];
}

template <int D>
static __global__ void ssm_conv1d_decode_kernel(const float *token, float *state,
                                                const float *w, float *y,
                                                int64_t channels)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= channels)
        return;
    float *old = state + c * (D - 1);
    float row[D], weight[D];
#pragma unroll
    for (int j = 0; j < D; j++) {
        row[j] = j < D - 1 ? old[j] : token[c];
        weight[j] = w[c * D + j];
    }
#pragma unroll
    for (int j = 0; j < D - 1; j++)
        old[j] = row[j + 1];
    y[c] = kg_siluf(conv_dot<D>(row, weight));
}

static bool decode_fits(int64_t channels, int64_t d_conv)
{
    return d_conv >= 2 && d_conv <= D_CONV_MAX && size_product(channels, d_conv) >= 0 &&
           grid_blocks(channels + 1, THREADS) != 0;
}

static int kg_conv_assemble_and_roll(const float *token, float *state, float *x,
                                     int64_t channels, int64_t d_conv,
                                     struct CUstream_st *stream)
{
    if (!decode_fits(channels, d_conv) || !pointer_fits(token, channels, 4) ||
        !pointer_fits(state, channels, 4) || !pointer_fits(x, channels, 4))
        return KG_E_INVALID;
    if (channels == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(channels, THREADS), THREADS, 0,
                     conv_assemble_kernel, token, state, x, channels, (int)d_conv);
}

static int kg_ssm_conv1d_fused_decode(const float *token, float *state, const float *w,
                                      float *y, int64_t channels, int64_t d_conv,
                                      struct CUstream_st *stream)
{
    if (!decode_fits(channels, d_conv) || !pointer_fits(token, channels, 4) ||
        !pointer_fits(state, channels, 4) || !pointer_fits(w, channels, 4) ||
        !pointer_fits(y, channels, 4))
        return KG_E_INVALID;
    if (channels == 0)
        return KG_OK;
#define DECODE(D)                                                                        \
    KG_LAUNCH(stream, grid_blocks(channels, THREADS), THREADS, 0,                        \
              ssm_conv1d_decode_kernel<D>, token, state, w, y, channels)
    return BY_D_CONV(d_conv, DECODE);
}

extern const struct kg_ssm_ops kg_ssm_table;
const struct kg_ssm_ops kg_ssm_table = {
    sizeof(struct kg_ssm_ops),
    kg_ssm_conv1d,
    kg_conv_assemble_and_roll,
    kg_ssm_conv1d_fused_decode,
};
