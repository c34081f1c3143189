/*
 * kgate/ops/norm.h: normalization of rows, alone and joined with what stands around it.
 *
 *   x, y, a, b, res, z   [rows][cols] f32, packed      w   [cols] f32
 *   q [rows][cols] int8, d and s [rows][cols/32] f32: q8_1, as quantize_q8_1 of
 *   kgate/ops/matvec.h defines it, of the f32 result
 *
 *   rms(x)[i] = x[i] * scale * w[i],   scale = 1 / sqrt(sum(x^2) / cols + eps)
 *
 * A fused form gives the bits of the chain that it replaces. A row has the same bits
 * whatever the number of rows.
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_INVALID: a negative size, cols above 2^30, more rows than a grid has blocks, a size
 * whose bytes overflow, cols that is not a multiple of 32 where codes are made, a NULL
 * pointer to something of more than 0 elements, or an f32 or int8 array that is not
 * aligned to 16 bytes (d and s: 4). Outputs must not overlap inputs, except y = x and
 * res = a or res = b exactly. rows or cols of 0 does nothing.
 */
#ifndef KGATE_OPS_NORM_H
#define KGATE_OPS_NORM_H

#include <stdint.h>

struct CUstream_st;

struct kg_norm_ops {
    uint32_t size; /* sizeof(struct kg_norm_ops) */

    /* y = rms(x) */
    int (*rms_norm)(const float *x, const float *w, float *y, int64_t rows, int64_t cols,
                    float eps, struct CUstream_st *stream);

    /* Three of them in one launch: rows_q rows of q with wq, rows_kv rows each of k with
       wk and of v with wv; all rows have cols elements. The bits of three rms_norm. */
    int (*rms_norm_qkv)(const float *q, const float *k, const float *v, const float *wq,
                        const float *wk, const float *wv, float *yq, float *yk, float *yv,
                        int64_t rows_q, int64_t rows_kv, int64_t cols, float eps,
                        struct CUstream_st *stream);

    /* y[i] = x[i] / sqrt(sum(x^2) + eps), the reciprocal root rounded first */
    int (*l2_norm)(const float *x, float *y, int64_t rows, int64_t cols, float eps,
                   struct CUstream_st *stream);

    /* res = a + b; y = rms(res) */
    int (*add_rms_norm)(const float *a, const float *b, const float *w, float *res,
                        float *y, int64_t rows, int64_t cols, float eps,
                        struct CUstream_st *stream);

    /* q, d, s = q8_1(rms(x)) */
    int (*rms_norm_q8_1)(const float *x, const float *w, int8_t *q, float *d, float *s,
                         int64_t rows, int64_t cols, float eps,
                         struct CUstream_st *stream);

    /* res = a + b; q, d, s = q8_1(rms(res)) */
    int (*add_rms_norm_q8_1)(const float *a, const float *b, const float *w, float *res,
                             int8_t *q, float *d, float *s, int64_t rows, int64_t cols,
                             float eps, struct CUstream_st *stream);

    /* y[i] = rms(x)[i] * silu(z[i]), silu(z) = z / (1 + exp(-z)) */
    int (*gated_rmsnorm)(const float *x, const float *w, const float *z, float *y,
                         int64_t rows, int64_t cols, float eps,
                         struct CUstream_st *stream);

    /* q, d, s = q8_1 of gated_rmsnorm */
    int (*gated_rmsnorm_q8_1)(const float *x, const float *w, const float *z, int8_t *q,
                              float *d, float *s, int64_t rows, int64_t cols, float eps,
                              struct CUstream_st *stream);
};

#endif
