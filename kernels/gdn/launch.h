/*
 * What the launchers of this folder share.
 */
#ifndef KGATE_KERNELS_GDN_LAUNCH_H
#define KGATE_KERNELS_GDN_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/matvec/launch.h"
#include "kgate/ops/gdn.h"
#include "kgate/status.h"

static constexpr int GDN_DIM = 128; /* elements of k and v of a head */

int kg_gdn_scan(const struct kg_gdn_args *args, struct CUstream_st *stream);
int kg_gdn_chunked(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                   size_t workspace_bytes, struct CUstream_st *stream);
int kg_gdn_chunked_mma(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                       size_t workspace_bytes, struct CUstream_st *stream);
int kg_gdn_chunked_wgmma(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                         size_t workspace_bytes, struct CUstream_st *stream);

/* Bytes of the workspace of one chunk of one head: what the f32 form (U, W, P, gates) or
   a 16-bit form (U in f32; W, Q, K, P; gates) needs, whichever is more of each. */
static inline size_t gdn_chunk_bytes(int64_t chunk)
{
    return (size_t)(chunk * GDN_DIM * 10 + chunk * chunk * 4 + chunk * 8);
}

static inline size_t gdn_workspace_bytes(int64_t n_heads, int64_t n_tokens, int64_t chunk)
{
    if (n_heads < 0 || n_tokens < 0 || (chunk != 32 && chunk != 64 && chunk != 128) ||
        n_heads > 65535)
        return 0;
    const int64_t chunks = n_tokens / chunk + (n_tokens % chunk != 0);
    size_t bytes;
    if (chunks > 0x7fffffff || __builtin_mul_overflow((size_t)(chunks * n_heads),
                                                      gdn_chunk_bytes(chunk), &bytes))
        return 0;
    return bytes;
}

/* KG_E_INVALID or KG_OK. */
static inline int gdn_check(const struct kg_gdn_args *a)
{
    if (!a || a->n_heads < 0 || a->n_heads > 65535 || a->n_tokens < 0 ||
        a->n_tokens > 0x7fffffff || size_product(a->n_heads * GDN_DIM, a->n_tokens) < 0)
        return KG_E_INVALID;
    const int64_t n = a->n_heads * a->n_tokens;
    if (!pointer_fits(a->q, n, 16) || !pointer_fits(a->k, n, 16) ||
        !pointer_fits(a->v, n, 16) || !pointer_fits(a->out, n, 16) ||
        !pointer_fits(a->g, n, 4) || !pointer_fits(a->beta, n, 4) ||
        !pointer_fits(a->state_in, a->n_heads, 16) ||
        !pointer_fits(a->state_out, a->n_heads, 16))
        return KG_E_INVALID;
    return KG_OK;
}

static inline int gdn_check_chunked(const struct kg_gdn_args *a, int64_t chunk,
                                    const void *workspace, size_t workspace_bytes)
{
    KG_TRY(gdn_check(a));
    const size_t need = gdn_workspace_bytes(a->n_heads, a->n_tokens, chunk);
    if (need == 0 && a->n_heads > 0 && a->n_tokens > 0)
        return KG_E_INVALID;
    if (chunk != 32 && chunk != 64 && chunk != 128)
        return KG_E_INVALID;
    return workspace_bytes >= need && pointer_fits(workspace, (int64_t)need, 16)
               ? KG_OK
               : KG_E_INVALID;
}

#endif
