/*
 * kgate/ops/gdn.h: the gated delta net, a linear attention whose state forgets and corrects.
 *
 *   q, k, v, out          [n_tokens][n_heads][128] f32
 *   g, beta               [n_tokens][n_heads] f32: log of the decay (<= 0, -infinity is a
 *                         decay of 0), and the strength of the correction
 *   state_in, state_out   [n_heads][128 columns of v][128 elements of k] f32
 *
 * For every head, token by token, with S the state of a column c, a vector over k:
 *
 *   delta  = beta * (v[c] - exp(g) * dot(S, k))
 *   S      = exp(g) * S + k * delta
 *   out[c] = scale * dot(S, q)
 *
 * The scan does it so. The chunked forms take `chunk` tokens at once; with G the sum of g
 * from the start of the chunk, S0 the state before it, and t, s tokens of the chunk:
 *
 *   A[t][s] = beta[t] exp(G[t] - G[s]) dot(k[t], k[s])  for s < t
 *   (I + A) U = beta v        (I + A) W = beta exp(G) k            (the WY representation)
 *   delta   = U - W S0
 *   out     = scale (exp(G) dot(q, S0) + P delta),  P[t][s] = exp(G[t] - G[s]) dot(q[t], k[s])
 *             for s <= t
 *   S       = exp(G[last]) S0 + sum over t of exp(G[last] - G[t]) k[t] delta[t]
 *
 * They need a workspace; it is free again when the launch has ended, and nothing in it has to
 * be set before. Decays are products of up to `chunk` factors, so none may be above 1. The
 * tensor-core forms round the operands of their products to 16 bits: half, so the state must
 * stay below 65504, or bfloat16.
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_INVALID: a negative size, more than 65535 heads, a size whose bytes overflow, a NULL
 * pointer to something of more than 0 elements, an array that is not aligned to 16 bytes (g,
 * beta: 4), another chunk than those named, or a workspace that is too small. No array
 * overlaps another, except state_out = state_in exactly. No token: the state is copied.
 */
#ifndef KGATE_OPS_GDN_H
#define KGATE_OPS_GDN_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

struct kg_gdn_args {
    const float *q, *k, *v, *g, *beta;
    const float *state_in;
    float *state_out;
    float *out;
    int64_t n_heads;
    int64_t n_tokens;
    float scale;
};

struct kg_gdn_ops {
    uint32_t size; /* sizeof(struct kg_gdn_ops) */

    /* Token by token, all in f32. */
    int (*gdn_scan)(const struct kg_gdn_args *args, struct CUstream_st *stream);

    /* Bytes of workspace that any chunked form needs; 0 for arguments that none takes. */
    size_t (*gdn_workspace_bytes)(int64_t n_heads, int64_t n_tokens, int64_t chunk);

    /* All in f32; chunk 32, 64 or 128. */
    int (*gdn_chunked)(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                       size_t workspace_bytes, struct CUstream_st *stream);

    /* Products with the state on tensor cores, operands half; chunk 32 or 64. */
    int (*gdn_chunked_mma)(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                           size_t workspace_bytes, struct CUstream_st *stream);

    /* The same with wgmma, operands bfloat16; chunk 32 or 64. KG_E_UNSUPPORTED but on
       compute capability 9.0. */
    int (*gdn_chunked_wgmma)(const struct kg_gdn_args *args, int64_t chunk,
                             void *workspace, size_t workspace_bytes,
                             struct CUstream_st *stream);
};

#endif
