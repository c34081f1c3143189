/*
 * kgate/ops/gemm.h: products of quantized weights with many rows of activations, on tensor
 * cores.
 *
 *   w     [out][in]   weights of `type`, in one of the layouts below
 *   q     [m][in]     int8 codes of the activations
 *   d, s  [m][in/32]  f32 scales and sums, as kgate/ops/matvec.h's quantize_q8_1 makes them
 *   y     [m][out]    f32 results, y[t][o] = sum over k of w[o][k] * x[t][k]
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_UNSUPPORTED: a type, layout or shape that this form does not cover, or a device that
 * lacks the instructions. KG_E_INVALID: a negative size, a size that is no multiple of the
 * block, sizes whose bytes overflow, a missing or misaligned pointer. w, q, x and workspaces
 * are aligned to 16 bytes, all other arrays to their elements. out or m of 0 does nothing;
 * in of 0 is refused.
 */
#ifndef KGATE_OPS_GEMM_H
#define KGATE_OPS_GEMM_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

enum kg_gemm_layout {
    KG_GEMM_BLOCKS = 0, /* rows of blocks, as in GGUF files */
    /* Split planes: the codes of all blocks in their order, then the scales of all blocks.
       Q4_0: 16 bytes of nibbles, 2 of scale; NVFP4: 32 bytes of nibbles, 4 of scales. */
    KG_GEMM_PLANES = 1,
    /* What CUTLASS's block-scaled GEMM takes, NVFP4 only: see cutlass_pack. */
    KG_GEMM_CUTLASS = 2,
};

enum kg_gemm_form {
    KG_GEMM_TILE = 0, /* one block computes a tile over the whole of k */
    /* The work of all tiles is cut into `workers` equal runs; a tile that is cut has its
       parts added in ascending k. The cut depends on the shape and on `workers` alone. */
    KG_GEMM_STREAM_K = 1,
};

struct kg_gemm_ops {
    uint32_t size; /* sizeof(struct kg_gemm_ops) */

    /* Integer products on tensor cores, folded in f32: types Q8_0, Q4_0, Q4_K, Q5_K, Q6_K,
       IQ4_XS, NVFP4. An output's bits depend on its row of w and its token alone (and, in
       stream-K form, on where its tile is cut). s may be NULL where the type has no
       minimum. workers: of the stream-K form, 1 .. 65535; ignored by the tile form. workspace:
       int8_workspace() bytes, only for stream-K; may be NULL if that is 0. */
    int (*int8)(int type, int layout, const void *w, const int8_t *q, const float *d,
                const float *s, float *y, int64_t in, int64_t out, int64_t m, int form,
                int workers, void *workspace, size_t workspace_bytes,
                struct CUstream_st *stream);
    /* Bytes of workspace that int8 needs for m tokens in that form, with so many workers. */
    int (*int8_workspace)(int64_t m, int form, int workers, size_t *bytes);

    /* The f16 mirror: weights dequantized once (Q8_0, Q4_K, Q5_K, Q6_K, NVFP4; n a multiple
       of the block), f16 to nearest even. That of NVFP4 is exact. */
    int (*mirror_f16)(int type, const void *w, void *mirror, int64_t n,
                      struct CUstream_st *stream);
    /* h[i] = f16(x[i]), to nearest even. */
    int (*to_f16)(const float *x, void *h, int64_t n, struct CUstream_st *stream);
    /* y from mirror [out][in] and h [m][in], both f16; exact products, f32 accumulation in
       the hardware's order. in: a multiple of 32. */
    int (*f16)(const void *mirror, const void *h, float *y, int64_t in, int64_t out,
               int64_t m, struct CUstream_st *stream);

    /* ---- W4A4: NVFP4 weights, E2M1 activations ---- */

    /* The k channels (columns of x [m][in]) with the largest |x|, loudest first, equal ones
       by index. amax [in] is scratch. */
    int (*nvfp4_channels)(const float *x, int64_t m, int64_t in, int k, float *amax,
                          int32_t *channels, struct CUstream_st *stream);
    /* x [m][in] to codes [m][in/2] (two E2M1 a byte, even k in the low nibble), scales
       [m][in/16] (UE4M3) and token_scale [m]; the k channels of skip count as zeros. levels
       2: the row's amax / 2688 is divided out first and is the token's scale; 1: it is 1.
       kernels/gemm/nvfp4.h has the rounding. in: a multiple of 32. */
    int (*nvfp4_quantize)(const float *x, int64_t m, int64_t in, const int32_t *skip,
                          int k, int levels, uint8_t *codes, uint8_t *scales,
                          float *token_scale, struct CUstream_st *stream);
    /* y from the two: integer products, block scales applied in f32, the token's scale
       last. layout: KG_GEMM_BLOCKS, or KG_GEMM_CUTLASS with its scales in w_scales. form,
       workers and workspace as for int8. in: a multiple of 64. */
    int (*w4a4)(int layout, const void *w, const uint8_t *w_scales, const uint8_t *codes,
                const uint8_t *scales, const float *token_scale, float *y, int64_t in,
                int64_t out, int64_t m, int form, int workers, void *workspace,
                size_t workspace_bytes, struct CUstream_st *stream);
    /* Adds w[o][c] * x[t][c] of the k channels c to y, one fma each in their order, with the
       weights of NVFP4 blocks exact. */
    int (*nvfp4_residual)(const void *w, const float *x, const int32_t *channels, int k,
                          float *y, int64_t in, int64_t out, int64_t m,
                          struct CUstream_st *stream);
    /* NVFP4 blocks to CUTLASS's operand: codes [out][in/2], even k in the low nibble, and
       scales in atoms of 128 rows x 4 groups of 16 (512 bytes; row r, group j of an atom at
       r % 32 * 16 + r / 32 * 4 + j), atoms along k first: ceil(out / 128) * in / 64 * 512
       bytes, rows past `out` zero. unpack is the inverse. */
    int (*cutlass_pack)(const void *w, uint8_t *codes, uint8_t *scales, int64_t in,
                        int64_t out, struct CUstream_st *stream);
    int (*cutlass_unpack)(const uint8_t *codes, const uint8_t *scales, void *w,
                          int64_t in, int64_t out, struct CUstream_st *stream);

    /* ---- forms for one family of devices; KG_E_UNSUPPORTED elsewhere ---- */

    /* int8's tile form, tiles handed out by cluster launch control (compute capability 10.0
       and up): the same bits. Layout KG_GEMM_BLOCKS. */
    int (*int8_clc)(int type, const void *w, const int8_t *q, const float *d,
                    const float *s, float *y, int64_t in, int64_t out, int64_t m,
                    struct CUstream_st *stream);
    /* w4a4 by the block-scale mma of compute capability 12.0: layout KG_GEMM_BLOCKS, sums in
       the hardware's order. */
    int (*w4a4_native)(const void *w, const uint8_t *codes, const uint8_t *scales,
                       const float *token_scale, float *y, int64_t in, int64_t out,
                       int64_t m, struct CUstream_st *stream);
    /* int8 for Q8_0 through wgmma (compute capability 9.0), w as mirror_q8_0 makes it: the
       terms and the order of int8, hence its bits. in: a multiple of 128. */
    int (*int8_wgmma)(const void *mirror, const int8_t *q, const float *d, float *y,
                      int64_t in, int64_t out, int64_t m, struct CUstream_st *stream);
    /* Q8_0 blocks to planes: codes [out][in] int8, then, at the next multiple of 16 bytes,
       scales [in/32][out] f32. Exact. */
    int (*mirror_q8_0)(const void *w, void *mirror, int64_t in, int64_t out,
                       struct CUstream_st *stream);

    /* Activations of f16 from q8_1 codes, so that it multiplies what int8 does:
       h[t][k] = f16(fl(d[t][k / 32] * q[t][k])), to nearest even. in: a multiple of 32. */
    int (*q8_to_f16)(const int8_t *q, const float *d, void *h, int64_t m, int64_t in,
                     struct CUstream_st *stream);
    /* f16 for up to 16 tokens without a mirror: w as files have it, NVFP4 or Q4_K. Products
       of halves are exact, f32 accumulation is in the hardware's order. The halves
       of NVFP4 are exact; those of Q4_K are off by at most 2^-11 of |scale * code| +
       |minimum| + |weight|, and infinite from weights of 4094 on. Weights are read before the launch
       ahead of this one is complete (kernels/device/overlap.h). */
    int (*f16_blocks)(int type, const void *w, const void *h, float *y, int64_t in,
                      int64_t out, int64_t m, struct CUstream_st *stream);
};

#endif
