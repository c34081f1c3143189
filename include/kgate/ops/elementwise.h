/*
 * kgate/ops/elementwise.h: activations, rotary positions, masks, and their joined forms.
 *
 * Activations:   silu(x) = x / (1 + exp(-x))
 *                gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *
 * D4 blocks. 128 consecutive values of a row in 144 bytes: four f32 scales d, one per 32
 * values, then 128 int8 codes; scales and codes are those of q8_1 (kgate/ops/matvec.h).
 * Rows are padded with zero codes and zero scales to a multiple of 512 values. The block
 * of values 128 k .. 128 k + 127 of row r is block number k * rows + r, so that the blocks
 * of all rows at one k lie together. kg_d4_bytes() gives the size.
 *
 * A fused form gives the bits of the chain that it replaces.
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_INVALID: a negative size, a size whose bytes overflow or that no grid covers, a
 * size that is not the multiple asked for, a NULL pointer to something of more than 0
 * elements, or an array that is not aligned to 16 bytes (d, s, y of sigmoid_dot, pos,
 * mask, logits: 4). y may be one of the inputs exactly; no other overlap. Sizes of 0 do
 * nothing.
 */
#ifndef KGATE_OPS_ELEMENTWISE_H
#define KGATE_OPS_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

enum kg_activation {
    KG_SILU = 0,
    KG_GELU = 1, /* the tanh form above */
};

/* Bytes of the D4 blocks of rows x cols values. */
static inline size_t kg_d4_bytes(int64_t rows, int64_t cols)
{
    return (size_t)rows * (size_t)((cols + 511) / 512 * 4) * 144;
}

struct kg_elementwise_ops {
    uint32_t size; /* sizeof(struct kg_elementwise_ops) */

    /* y[i] = a[i] + b[i] */
    int (*add)(const float *a, const float *b, float *y, int64_t n,
               struct CUstream_st *stream);

    /* y[i] = silu(gate[i]) * up[i] */
    int (*silu_mul)(const float *gate, const float *up, float *y, int64_t n,
                    struct CUstream_st *stream);

    /* y[i] = silu(gate[i] * gate_scale) * (up[i] * up_scale) */
    int (*silu_mul_scaled)(const float *gate, const float *up, float gate_scale,
                           float up_scale, float *y, int64_t n,
                           struct CUstream_st *stream);

    /* y[i] = gelu(gate[i]) * up[i] */
    int (*gelu_mul)(const float *gate, const float *up, float *y, int64_t n,
                    struct CUstream_st *stream);

    /* q [n], d and s [n/32]: q8_1 of silu_mul_scaled. n a multiple of 32. */
    int (*silu_mul_scaled_q8_1)(const float *gate, const float *up, float gate_scale,
                                float up_scale, int8_t *q, float *d, float *s, int64_t n,
                                struct CUstream_st *stream);

    /* D4 blocks of x [rows][cols]. cols a multiple of 32. */
    int (*quantize_d4)(const float *x, void *d4, int64_t rows, int64_t cols,
                       struct CUstream_st *stream);

    /* D4 blocks of silu_mul or gelu_mul of gate and up [rows][cols]. cols a multiple of
     * 32. */
    int (*act_quantize_d4)(enum kg_activation activation, const float *gate,
                           const float *up, void *d4, int64_t rows, int64_t cols,
                           struct CUstream_st *stream);

    /* y[r] = 1 / (1 + exp(-sum over i of x[r][i] * w[i])). x [rows][cols], w [cols]. */
    int (*sigmoid_dot)(const float *x, const float *w, float *y, int64_t rows,
                       int64_t cols, struct CUstream_st *stream);

    /* Rotates pairs (j, j + n_dims/2), j < n_dims/2, of every head in place:
         x[j], x[j + n_dims/2] = x0 cos - x1 sin, x0 sin + x1 cos
       by the angle pos[token] * freq_base^(-2j/n_dims) * freq_scale. Angle, sine and cosine
       are evaluated in f64; sine and cosine are then rounded to f32. Elements from n_dims
       on stay. x [n_tokens][n_heads][head_dim]; pos [n_tokens] int32.
       n_dims even, at most head_dim; head_dim at most 4096; freq_base a normal number > 0,
       freq_scale finite. An angle beyond 2^20 gives NaN. */
    int (*rope_neox)(float *x, const int32_t *pos, int64_t n_tokens, int64_t n_heads,
                     int64_t head_dim, int64_t n_dims, float freq_base, float freq_scale,
                     struct CUstream_st *stream);

    /* Row `col` of logits [..][n]: element i becomes -FLT_MAX unless i < 32 * mask_words
       and bit i % 32 of mask[i / 32] is set. Nothing else is written. */
    int (*mask_logits_col)(float *logits, const uint32_t *mask, int64_t col, int64_t n,
                           int64_t mask_words, struct CUstream_st *stream);
};

#endif
