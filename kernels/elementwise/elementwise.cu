/*
 * The table of the family, and what is not an activation (kgate/ops/elementwise.h).
 *
 * sigmoid_dot: sum in the order of norm/row.h, with x * w in place of x * x; then
 *   kg_sigmoidf.
 *
 * rope_neox: angle = (pos * freq_base^(-2j/n_dims)) * freq_scale in f64, the power as
 *   exp(ln(freq_base) * (-2j/n_dims)); c, s = its cosine and sine rounded to f32;
 *     y[j] = fma(x0, c, -(x1 * s))      y[j + n_dims/2] = fma(x0, s, x1 * c)
 *   A block has one token: it makes the n_dims/2 pairs (c, s) once, in shared memory, and
 *   uses them for all heads of its share.
 *
 * mask_logits_col: stores only; one bit a thread.
 */
#include <float.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/row.h"
#include "kgate/kernels.h"

template <int T, bool WIDE>
static __global__
__launch_bounds__(row_block(T)) void sigmoid_dot_kernel(const float *x, const float *w,
                                                        float *y, int64_t rows, int cols)
{
    const int64_t row = row_index<T>();
    if (row >= rows)
        return;
    const int t = row_thread<T>(), vectors = (cols + 3) / 4;
    float acc = 0.0f;
    float4 a[KG_ROW_VECTORS];
    for (int k = t; k < vectors; k += KG_ROW_VECTORS * T) {
#pragma unroll
        for (int i = 0; i < KG_ROW_VECTORS; i++)
            a[i] = row_load<WIDE>(x + row * cols, k + i * T, cols);
#pragma unroll
        for (int i = 0; i < KG_ROW_VECTORS; i++)
            acc = dot4(a[i], row_load<WIDE>(w, k + i * T, cols), acc);
    }
    const float sum = row_sum<T>(acc);
    if (t == 0)
        y[row] = kg_sigmoidf(sum);
}

static int kg_sigmoid_dot(const float *x, const float *w, float *y, int64_t rows,
                          int64_t cols, struct CUstream_st *stream)
{
    const int64_t n = size_product(rows, cols);
    if (n < 0 || cols > KG_ROW_COLS_MAX || (rows > 0 && row_grid(rows, cols) == 0) ||
        !pointer_fits(x, n, 16) || !pointer_fits(w, n, 16) || !pointer_fits(y, n, 4))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    const unsigned grid = row_grid(rows, cols);
#define LAUNCH_WIDE(T)                                                                   \
    KG_LAUNCH(stream, grid, row_block(T), 0, (sigmoid_dot_kernel<T, true>), x, w, y,     \
              rows, (int)cols)
#define LAUNCH_NARROW(T)                                                                 \
    KG_LAUNCH(stream, grid, row_block(T), 0, (sigmoid_dot_kernel<T, false>), x, w, y,    \
              rows, (int)cols)
    return cols % 4 == 0 ? KG_ROW_DISPATCH(cols, LAUNCH_WIDE)
                         : KG_ROW_DISPATCH(cols, LAUNCH_NARROW);
}

struct rope {
    int64_t n_heads, heads_per_block;
    int head_dim, half;
    double base, scale;
};

static __device__ __forceinline__ void rotate(float *x0, float *x1, float c, float s)
{
    const float a = *x0, b = *x1;
    *x0 = fmaf(a, c, -(b * s));
    *x1 = fmaf(a, s, b * c);
}

/* Four pairs a thread where WIDE (head_dim and half multiples of 4), else one. */
template <bool WIDE>
static __global__ __launch_bounds__(KG_THREADS) void rope_neox_kernel(float *x,
                                                                      const int32_t *pos,
                                                                      struct rope a)
{
    KG_SHARED_DYNAMIC(shared);
    float *cosine = (float *)shared, *sine = cosine + a.half;
    const int64_t token = blockIdx.x, head0 = blockIdx.y * a.heads_per_block;
    const double log_base = kg_log_f64(a.base);
    for (int j = threadIdx.x; j < a.half; j += KG_THREADS) {
        const double power = kg_exp_f64(log_base * ((double)-j / (double)a.half));
        const double angle = ((double)pos[token] * power) * a.scale;
        cosine[j] = kg_sin_quarter(angle, 1);
        sine[j] = kg_sin_quarter(angle, 0);
    }
    __syncthreads();

    const int64_t left = a.n_heads - head0;
    const int heads = (int)(left < a.heads_per_block ? left : a.heads_per_block);
    float *from = x + (token * a.n_heads + head0) * a.head_dim;
    constexpr int step = WIDE ? 4 : 1;
    const int per_head = a.half / step, items = heads * per_head;
#pragma unroll 4
    for (int i = threadIdx.x; i < items; i += KG_THREADS) {
        const int head = i / per_head, j = i % per_head * step;
        float *p = from + (int64_t)head * a.head_dim + j;
        if (WIDE) {
            float4 u = *(float4 *)p, v = *(float4 *)(p + a.half);
            const float4 c = *(const float4 *)(cosine + j),
                         s = *(const float4 *)(sine + j);
            rotate(&u.x, &v.x, c.x, s.x);
            rotate(&u.y, &v.y, c.y, s.y);
            rotate(&u.z, &v.z, c.z, s.z);
            rotate(&u.w, &v.w, c.w, s.w);
            *(float4 *)p = u;
            *(float4 *)(p + a.half) = v;
        } else {
            rotate(p, p + a.half, cosine[j], sine[j]);
        }
    }
}

static int kg_rope_neox(float *x, const int32_t *pos, int64_t n_tokens, int64_t n_heads,
                        int64_t head_dim, int64_t n_dims, float freq_base,
                        float freq_scale, struct CUstream_st *stream)
{
    if (head_dim < 0 || head_dim > 4096 || n_dims < 0 || n_dims > head_dim ||
        n_dims % 2 != 0 || n_heads < 0 || n_tokens < 0 || n_tokens > 0x7fffffff ||
        size_product(n_tokens, n_heads) < 0 ||
        size_product(n_tokens * n_heads, head_dim) < 0 || !isnormal(freq_base) ||
        freq_base < 0 || !isfinite(freq_scale))
        return KG_E_INVALID;
    const int64_t n = n_tokens * n_heads * head_dim;
    if (!pointer_fits(x, n, 16) || !pointer_fits(pos, n, 4))
        return KG_E_INVALID;
    if (n == 0 || n_dims == 0)
        return KG_OK;
    struct rope a = {};
    a.n_heads = n_heads;
    a.head_dim = (int)head_dim;
    a.half = (int)(n_dims / 2);
    a.base = freq_base;
    a.scale = freq_scale;
    /* Shares of about 4096 pairs, 16 a thread; at most 65535 of them a token. */
    a.heads_per_block = (4096 + a.half - 1) / a.half;
    if (n_heads / a.heads_per_block >= 65535)
        a.heads_per_block = n_heads / 65535 + 1;
    if (a.heads_per_block * a.half > 0x7fffffff - KG_THREADS)
        return KG_E_INVALID;
    const dim3 grid((unsigned)n_tokens,
                    (unsigned)((n_heads + a.heads_per_block - 1) / a.heads_per_block));
    const size_t bytes = (size_t)n_dims * sizeof(float);
    if (head_dim % 4 == 0 && a.half % 4 == 0)
        return KG_LAUNCH(stream, grid, KG_THREADS, bytes, rope_neox_kernel<true>, x, pos,
                         a);
    return KG_LAUNCH(stream, grid, KG_THREADS, bytes, rope_neox_kernel<false>, x, pos, a);
}

static __global__ void mask_logits_kernel(float *row, const uint32_t *mask, int64_t n,
                                          int64_t mask_words)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const uint32_t word = i / 32 < mask_words ? mask[i / 32] : 0u;
    if ((word >> i % 32 & 1u) == 0)
        row[i] = -FLT_MAX;
}

static int kg_mask_logits_col(float *logits, const uint32_t *mask, int64_t col, int64_t n,
                              int64_t mask_words, struct CUstream_st *stream)
{
    if (size_product(col, n) < 0 || size_product(mask_words, 1) < 0 ||
        !grid_blocks(n + 1, KG_THREADS) || !pointer_fits(logits, n, 4) ||
        !pointer_fits(mask, n > 0 ? mask_words : 0, 4))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(n, KG_THREADS), KG_THREADS, 0,
                     mask_logits_kernel, logits + col * n, mask, n, mask_words);
}

extern const struct kg_elementwise_ops kg_elementwise_table;
const struct kg_elementwise_ops kg_elementwise_table = {
    sizeof(struct kg_elementwise_ops),
    kg_add,
    kg_silu_mul,
    kg_silu_mul_scaled,
    kg_gelu_mul,
    kg_silu_mul_scaled_q8_1,
    kg_quantize_d4,
    kg_act_quantize_d4,
    kg_sigmoid_dot,
    kg_rope_neox,
    kg_mask_logits_col,
};
