/*
 * kgate/ops/grouped.h: matrix products of groups of rows, each with its expert's weights.
 *
 * The rows of a mixture-of-experts layer, sorted by expert, are a CSR: group g holds pairs
 * offsets[g] .. offsets[g+1] - 1, a pair being one row that one expert multiplies.
 *
 *   y[p][o] = scale[p] * sum over k of w[e][o][k] * x[r][k]
 *
 * with p a pair of group g, e = experts[g] and r = rows[p].
 *
 *   w  [n_experts][out][in]  f16, or blocks of a quantized type; expert e starts
 *                            e * expert_stride bytes into w
 *   x  [n_rows][in] f16      y  [pairs][out] f32, written whole
 *
 * Arithmetic: one chain of mma.sync m16n8k16 (f16 operands, f32 accumulator from +0) over
 * ascending k for every element, then one multiplication by the scale. It does not depend
 * on form, tile or group, so all forms agree to the bit on one device. The order inside an
 * mma is the hardware's. The sm90_ forms use wgmma: they agree with each other to the bit,
 * with the others within a bound only.
 *
 * Weights of a quantized type enter as round-to-nearest-even f16 of their f32 value
 * (kgate/ops/matvec.h, dequantize); beyond f16's range they become infinite.
 *
 * A launcher validates sizes and pointers, enqueues on `stream`, and returns. What is in
 * device memory it cannot see: offsets must begin with 0, not decrease, and end with
 * `pairs`; experts and rows must lie in range. KG_E_INVALID: a bad size, a missing or
 * misaligned pointer (w, x and y 16 bytes, the others 4), a stride that is not a multiple
 * of 16 or is less than an expert. KG_E_UNSUPPORTED: `in` not a multiple of 32 (of a
 * quantized type: of its block), a type without a loader, a device without the instructions, x
 * of more than 64 GiB in the quantized sm90_ form.
 */
#ifndef KGATE_OPS_GROUPED_H
#define KGATE_OPS_GROUPED_H

#include <stdint.h>

struct CUstream_st;

/* One product: sizes on the host, arrays in device memory. */
struct kg_grouped {
    int64_t groups, pairs, n_experts, n_rows, in, out;
    int64_t expert_stride;  /* bytes from one expert's weights to the next's */
    const int32_t *offsets; /* [groups + 1] */
    const int32_t *experts; /* [groups], or NULL: group g uses expert g */
    const int32_t *rows;    /* [pairs], or NULL: pair p reads row p */
    const float *scale;     /* [pairs], or NULL: 1 */
};

/*
 * How the work is cut. The scan form is one block a tile: 32 rows by 128 outputs, k in two
 * buffers of 32; every block finds its group by reading the CSR from its start. The
 * visitor form is a fixed number of blocks, each of which walks through the list of tiles:
 *
 *   cross   groups of at least so many rows are cut into tiles of 128 rows, smaller ones
 *           into tiles of 32
 *   deep    tiles of 32 rows take k in three buffers of 64, else in two of 32
 *   trim    what is left of a group of 128-row tiles takes a tile of 32 if it fits one
 *
 * Tiles of 128 rows and deep ones need `in` to be a multiple of 64; where it is not, they
 * fall back to 32 rows in two buffers of 32.
 */
struct kg_grouped_form {
    int32_t visitor;
    int32_t cross;
    int32_t deep;
    int32_t trim;
};

struct kg_grouped_ops {
    uint32_t size; /* sizeof(struct kg_grouped_ops) */

    int (*gemm_f16)(const struct kg_grouped *g, const struct kg_grouped_form *form,
                    const void *w, const void *x, float *y, struct CUstream_st *stream);

    /* Weights straight from blocks of Q4_K, Q6_K, IQ4_XS or IQ3_S. Visitor form only. */
    int (*gemm_quant)(const struct kg_grouped *g, const struct kg_grouped_form *form,
                      int type, const void *w, const void *x, float *y,
                      struct CUstream_st *stream);

    /* dst [groups][out][in] f16: the weights of each group's expert, in the order of the
       groups, so that gemm_f16 runs on dst with `experts` NULL. Uses groups, n_experts,
       in, out, expert_stride and experts of g. Types as gemm_quant. */
    int (*dequantize_f16)(const struct kg_grouped *g, int type, const void *w, void *dst,
                          struct CUstream_st *stream);

    /* As gemm_f16 with wgmma, tiles of 128 outputs by up to 256 rows. `in`: a multiple of
       64. */
    int (*sm90_gemm_f16)(const struct kg_grouped *g, const void *w, const void *x,
                         float *y, struct CUstream_st *stream);

    /* As gemm_quant with wgmma, of Q4_K; the bits of sm90_gemm_f16 on the weights that
       dequantize_f16 makes. */
    int (*sm90_gemm_quant)(const struct kg_grouped *g, int type, const void *w,
                           const void *x, float *y, struct CUstream_st *stream);
};

#endif
