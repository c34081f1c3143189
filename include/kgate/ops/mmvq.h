/*
 * kgate/ops/mmvq.h: the fast matrix-vector products of decoding.
 *
 * Operands are those of kgate/ops/matvec.h: w [out][in] of a block type, q [m][in] int8 with
 * d, s [m][in/32] f32 (quantize_q8_1), y [m][out] f32. Types: Q4_0 Q8_0 Q3_K Q4_K Q5_K Q6_K
 * IQ4_XS NVFP4 MXFP4, and F8_E4M3.
 *
 * The law. Before `scale` is applied, every form here gives the bits of matvec's stage_b for
 * each row of w and each row of q, whatever the layout, the width, m, or the tensors that share
 * the launch; ksplit alone adds in another order. y is then the sum times tensor.scale, one f32
 * multiplication (by 1 changes nothing).
 *
 * F8_E4M3 has no stage B; its product is defined here, in the shape of kernels/matvec/unit.h:
 *
 *   unit u of row o: dot = the sum of e4m3(w[o][32u + j]) * q[32u + j] over j < 32, exact, then
 *     rounded once to f32 (a sum of multiples of 2^-9 that may need 30 bits)
 *   acc = fmaf(a, d[u] * dot, acc) with a = 1, or the block's scale with KG_SCALE_BLOCK
 *   lane l takes units l, l + 32, ...; butterfly over distances 16, 8, 4, 2, 1
 *   y = sum * scale, or (sum * row_scale[o]) * scale with KG_SCALE_ROW
 *
 * Codes 0x7F and 0xFF make the results of their row NaN.
 *
 * Layouts. KG_LAYOUT_FILE is the file's. KG_LAYOUT_SPLIT (Q4_0, NVFP4, Q4_K, Q6_K) is the same
 * bytes in planes, one after the other without gaps, in total as many bytes as before. With B
 * the number of blocks of the whole tensor (out * in / block), in the order of the file:
 *
 *   Q4_0    qs [B][16]   d [B] f16
 *   NVFP4   qs [B][32]   d [B][4]
 *   Q4_K    qs [B][128]  head [B][16]: d, dmin, scales as in the file
 *   Q6_K    ql [B][128]  qh [B][64]  scales [B][16]  d [B] f16
 *
 * Errors as in matvec.h: KG_E_UNSUPPORTED for a type, layout or width that does not exist,
 * KG_E_INVALID for sizes and pointers that break the contract. Alignment: q 16 bytes; d, s, y, scales
 * 4; w of KG_LAYOUT_SPLIT 16, of KG_LAYOUT_FILE what the block size is a multiple of (16 at most;
 * F8_E4M3: 1). Where w is aligned to 16 bytes (as memory from the device is) the fast kernel runs,
 * otherwise a plain one with the same bits. in is a multiple of the block (32 for F8_E4M3).
 *
 * Weights and their scales are constants: a product may read them while the launches before it
 * on the stream still run. What writes them (split, for one) must be complete before the product
 * is launched; q, d, s and y are in the order of the stream.
 */
#ifndef KGATE_OPS_MMVQ_H
#define KGATE_OPS_MMVQ_H

#include <stdint.h>

struct CUstream_st;

enum kg_layout {
    KG_LAYOUT_FILE = 0,
    KG_LAYOUT_SPLIT = 1,
};

/* How F8_E4M3 weights are scaled beside tensor.scale; other types take KG_SCALE_NONE. */
enum kg_scale_kind {
    KG_SCALE_NONE = 0,
    KG_SCALE_ROW = 1, /* scales [out] */
    KG_SCALE_BLOCK =
        2, /* scales [ceil(out/128)][ceil(in/128)], of w[o][k] at [o/128][k/128] */
};

#define KG_MMVQ_TENSORS 3

/* One weight tensor of a launch, and where its product goes. Those of one launch may have
   different `out`; `in` and the type are common. */
struct kg_mmvq_tensor {
    const void *w;
    float *y; /* [m][out] */
    int64_t out;
    float scale;         /* factor of the whole tensor; 1 for none */
    const float *scales; /* device memory, for F8_E4M3 by scale_kind; NULL otherwise */
};

struct kg_mmvq_ops {
    uint32_t size; /* sizeof(struct kg_mmvq_ops) */

    /*
     * The products of 1..KG_MMVQ_TENSORS tensors with the same activations, in one launch
     * (fused2, fused3, dual gate+up).
     *
     * `width` is how many rows of q share one reading of the weights: 1, 2, 3, 4, 5, 6, 7, 8,
     * and 16 for Q6_K. Width 1 reads the weights once for each row. m may be anything: rows are
     * taken `width` at a time, and columns of the last group beyond m are neither read nor
     * written.
     */
    int (*product)(int type, int layout, int scale_kind,
                   const struct kg_mmvq_tensor *tensors, int n_tensors, const int8_t *q,
                   const float *d, const float *s, int64_t in, int64_t m, int width,
                   struct CUstream_st *stream);

    /*
     * One tensor in KG_LAYOUT_SPLIT with k in two parts, each summed as `product` would
     * (units l, l + 32, ... of a part to lane l, its butterfly), then first part plus second,
     * then times scale. The first part is the first half of the groups of 32 units, rounded up.
     * For deep k and few rows: twice as many blocks work. `parts` is scratch, [2][m][out] f32.
     * Not the bits of stage_b, but the same bits every time and for every width.
     */
    int (*ksplit)(int type, const struct kg_mmvq_tensor *tensor, const int8_t *q,
                  const float *d, const float *s, int64_t in, int64_t m, int width,
                  float *parts, struct CUstream_st *stream);

    /* Rearranges the file's bytes into KG_LAYOUT_SPLIT and back; to and from do not overlap,
       both aligned to 16 bytes. */
    int (*split)(int type, const void *from, void *to, int64_t in, int64_t out,
                 struct CUstream_st *stream);
    int (*unsplit)(int type, const void *from, void *to, int64_t in, int64_t out,
                   struct CUstream_st *stream);

    /* matvec's stage_a and stage_b kernels reading KG_LAYOUT_SPLIT: the same arithmetic, hence
       the same bits, one warp a row and nothing staged. */
    int (*stage_a_split)(int type, const void *w, const float *x, float *y, int64_t in,
                         int64_t out, int64_t m, struct CUstream_st *stream);
    int (*stage_b_split)(int type, const void *w, const int8_t *q, const float *d,
                         const float *s, float *y, int64_t in, int64_t out, int64_t m,
                         struct CUstream_st *stream);
};

#endif
