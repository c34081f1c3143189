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
};

#endif
