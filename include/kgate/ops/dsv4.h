/*
 * kgate/ops/dsv4.h: an expert of DeepSeek-V4 on four-bit weights and eight-bit activations.
 *
 * Shapes, everywhere in this file:
 *
 *   x       [m][k]       f32 activations
 *   codes   [m][k]       E4M3 codes of the activations, E4M3FN with 0x7F and 0xFF NaN
 *   scales  [m][k/128]   f32 powers of two, one for 128 values of a row
 *   w       [n][k/2]     E2M1 codes; byte i of a row holds k = 2i in its low nibble
 *   ws      [n][k/GROUP] scale codes: E4M3 for 16 weights (NVFP4), E8M0 for 32 (MXFP4)
 *   y       [m][n]       f32 results
 *
 * A weight is e2m1 * s, with s = e4m3 * scale2 rounded to f32 (NVFP4) or 2^(code - 127)
 * (MXFP4, where scale2 is not used).
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_INVALID: a negative size, k that is not a multiple of 128, sizes whose bytes
 * overflow, an unknown kind or form, a missing or misaligned pointer. Pointers are aligned
 * to 16 bytes. m or n of 0 does nothing; k of 0 is refused.
 */
#ifndef KGATE_OPS_DSV4_H
#define KGATE_OPS_DSV4_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

enum kg_dsv4_kind {
    KG_DSV4_NVFP4 = 0,
    KG_DSV4_MXFP4 = 1,
};

/* Forms of the product. All give the same bits. */
enum kg_dsv4_form {
    KG_DSV4_AUTO = 0,    /* what is fastest for m */
    KG_DSV4_ORDERED = 1, /* one warp an output, every addition in its place */
    KG_DSV4_ROWS8 = 2,   /* tensor cores, 8 rows at a time, all of k in one block */
    KG_DSV4_TILES = 3,   /* tensor cores, tiles of 64 rows; needs scratch */
};

struct kg_dsv4_ops {
    uint32_t size; /* sizeof(struct kg_dsv4_ops) */

    /* Per 128 consecutive values of a row: amax = max(max |x|, 1e-4); scale = the smallest
       power of two >= amax * (f32)(1/448), the product rounded to f32; code = x / scale as
       E4M3, to nearest even, saturating at +-448. A NaN gives code 0x7F and does not count
       for amax. */
    int (*act_quant)(const float *x, uint8_t *codes, float *scales, int64_t m, int64_t k,
                     struct CUstream_st *stream);

    /*
     * y[r][o] in a fixed order. Group j of a row holds GROUP consecutive k:
     *   sub_j   = products code * e2m1 added in k order in f32, from 0
     *   term_j  = sub_j * (s_j * scale_j), both multiplications rounded to f32
     *   part_t  = term_t + term_(t+128) + ..., from 0, t = 0 .. 127
     *   y       = part_0 after part_t += part_(t+h) for t < h, h = 64, 32, ..., 1
     * with no fused operations. Bits of NaN results are not specified.
     * scratch: gemm_scratch() bytes of device memory; may be NULL when that is 0.
     * KG_E_UNSUPPORTED: k is too large for the form (ROWS8: above 9216).
     */
    int (*gemm)(int kind, int form, const uint8_t *codes, const float *scales,
                const uint8_t *w, const uint8_t *ws, float scale2, float *y, int64_t m,
                int64_t n, int64_t k, void *scratch, size_t scratch_bytes,
                struct CUstream_st *stream);
    /* Bytes of scratch that gemm needs; KG_E_INVALID for sizes that gemm refuses. */
    int (*gemm_scratch)(int kind, int form, int64_t m, int64_t n, int64_t k,
                        size_t *bytes);

    /* h = silu(min(gate, limit)) * max(-limit, min(up, limit)) * row_weight, [m][n]; gate
       is not clamped below; the product with row_weight [m] is left out when it is NULL.
       silu(g) = g / (1 + exp(-g)) in f32. */
    int (*swiglu)(const float *gate, const float *up, const float *row_weight,
                  float limit, float *h, int64_t m, int64_t n,
                  struct CUstream_st *stream);

    /* The class that the gate compares with: weights and activations as bf16 (to nearest
       even; a weight is e2m1 * s rounded to f32 before), and their product with f32
       accumulation in an unspecified order. KG_E_UNSUPPORTED: no library for it. */
    int (*dequant_bf16)(int kind, const uint8_t *w, const uint8_t *ws, float scale2,
                        uint16_t *w16, int64_t n, int64_t k, struct CUstream_st *stream);
    int (*to_bf16)(const float *x, uint16_t *x16, int64_t count,
                   struct CUstream_st *stream);
    int (*gemm_bf16)(const uint16_t *x16, const uint16_t *w16, float *y, int64_t m,
                     int64_t n, int64_t k, struct CUstream_st *stream);
};

#endif
