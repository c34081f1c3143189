/*
 * kgate/ops/matvec.h: products of quantized weights with a few rows of activations.
 *
 * Shapes, everywhere in this file:
 *
 *   w     [out][in]   weights of `type`, rows packed without padding, kg_row_bytes(type, in)
 *                     bytes each
 *   x     [m][in]     f32 activations
 *   q     [m][in]     int8 codes of the activations
 *   d, s  [m][in/32]  f32 scales and sums of the codes, by blocks of 32 (see quantize_q8_1)
 *   y     [m][out]    f32 results, y[r][o] = sum over k of w[o][k] * x[r][k]
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_UNSUPPORTED: the type (or shape) is one that this form does not cover. KG_E_INVALID:
 * a negative size, a size that is not a multiple of the block, a size whose bytes overflow,
 * a NULL pointer to something of more than 0 elements, or a pointer that is less aligned
 * than this: x, q and dequantize's dst 16 bytes (x of plain types 4); y, d, s 4; w what its
 * type's block size is a multiple of, at most 16 (Q4_K 16, Q8_0 2, MXFP4 1). out or m of 0
 * does nothing; in of 0 gives zeros.
 */
#ifndef KGATE_OPS_MATVEC_H
#define KGATE_OPS_MATVEC_H

#include <stdint.h>

struct CUstream_st;

struct kg_matvec_ops {
    uint32_t size; /* sizeof(struct kg_matvec_ops) */

    /* dst[i] = value of element i of src, n a multiple of the type's block. */
    int (*dequantize)(int type, const void *src, float *dst, int64_t n,
                      struct CUstream_st *stream);

    /* Activations to q8_1, per 32 consecutive values of a row: amax = max |x|,
       d = amax / 127 in f32, id = d > 0 ? 1 / d : 0, q = round-to-nearest-even(x * id),
       s = d * (f32)(sum of the 32 codes). Both d and s are f32: an f16 sum overflows once
       |sum| > 65504. cols is a multiple of 32. Codes saturate at +-127, which only a
       subnormal d can need; a product x * id that is NaN gives code 0; a NaN among the 32
       makes d and s NaN. */
    int (*quantize_q8_1)(const float *x, int8_t *q, float *d, float *s, int64_t rows,
                         int64_t cols, struct CUstream_st *stream);

    /* Stage A: weights dequantized in the kernel, f32 products. in: a multiple of the
     * block. */
    int (*stage_a)(int type, const void *w, const float *x, float *y, int64_t in,
                   int64_t out, int64_t m, struct CUstream_st *stream);

    /* Stage B: integer dot products (dp4a) on q8_1 activations, folded in f32. Unit u, weights
       32u .. 32u + 31 of a row, goes to lane u % 32, in order: acc = fmaf(a, d[u] * dot, acc) for
       each group of 16 or 32 weights with scale a (NVFP4: acc = fmaf(d[u], a * dot, acc), as a * dot
       is exact), then acc = fmaf(b, s[u], acc) with minimum b. Of Q3_K four units, half a block,
       go together to lane u / 4 % 16: acc = fmaf(d_w, f, acc) with the block's d_w and f the chain
       of fma of d[u] * (sc_0 * dot_0 + sc_1 * dot_1), sc the integer scales. Lanes are added over
       distances 16, 8, 4, 2, 1 (Q3_K: 8, 4, 2, 1). The bounds of the cells count these roundings.
       s may be NULL where the type has no minimum (only Q4_K and Q5_K have one here). */
    int (*stage_b)(int type, const void *w, const int8_t *q, const float *d,
                   const float *s, float *y, int64_t in, int64_t out, int64_t m,
                   struct CUstream_st *stream);
};

#endif
