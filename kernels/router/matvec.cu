/*
 * The router's product: logits[t][e] = sum_k w[e][k] * x[t][k], all in f32.
 *
 *   w [experts][in]      x [tokens][in]      logits [tokens][experts]
 *
 * A warp makes TOKENS x EXPERTS results from the same loads. Each is one chain: lane l adds
 * its k = 4 (l + 32 i) + 0 .. 3, i ascending, by fmaf into one accumulator from +0, then a
 * butterfly over lane distances 16, 8, 4, 2, 1. TOKENS and EXPERTS do not enter the
 * arithmetic, so a token has the same logits alone and in a batch of any size.
 *
 *   matvec        1 x 1: enough warps for one token
 *   matvec_batch  4 x 4: 8 loads of 16 bytes for 64 products a lane, where 1 x 1 has 2 for 4
 */
#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"
#include "kgate/ops/router.h"

enum { MATVEC_WARPS = 4 };

template <int TOKENS, int EXPERTS>
static __global__ void router_matvec_kernel(const float *w, const float *x, float *logits,
                                            int64_t in, int64_t experts, int64_t tokens)
{
    const int lane = threadIdx.x % 32;
    const int64_t expert_tiles = (experts + EXPERTS - 1) / EXPERTS;
    const int64_t tile = (int64_t)blockIdx.x * MATVEC_WARPS + threadIdx.x / 32;
    const int64_t t0 = tile / expert_tiles * TOKENS, e0 = tile % expert_tiles * EXPERTS;
    if (t0 >= tokens)
        return;
    const float *wr[EXPERTS], *xr[TOKENS];
    for (int e = 0; e < EXPERTS; e++)
        wr[e] = w + (e0 + e < experts ? e0 + e : experts - 1) * in;
    for (int t = 0; t < TOKENS; t++)
        xr[t] = x + (t0 + t < tokens ? t0 + t : tokens - 1) * in;
    float acc[TOKENS][EXPERTS] = {};
    for (int64_t k = 4 * lane; k < in; k += 128) {
        float4 a[EXPERTS];
        for (int e = 0; e < EXPERTS; e++)
            a[e] = kg_load_float4(wr[e] + k);
        for (int t = 0; t < TOKENS; t++) {
            const float4 b = kg_load_float4(xr[t] + k);
            for (int e = 0; e < EXPERTS; e++) {
                float s = acc[t][e];
                s = fmaf(a[e].x, b.x, s);
                s = fmaf(a[e].y, b.y, s);
                s = fmaf(a[e].z, b.z, s);
                acc[t][e] = fmaf(a[e].w, b.w, s);
            }
        }
    }
    for (int t = 0; t < TOKENS; t++)
        for (int e = 0; e < EXPERTS; e++) {
            float s = acc[t][e];
            for (int distance = 16; distance > 0; distance /= 2)
                s += __shfl_xor_sync(KG_WARP_ALL, s, distance);
            if (lane == 0 && t0 + t < tokens && e0 + e < experts)
                logits[(t0 + t) * experts + e0 + e] = s;
        }
}

template <int TOKENS, int EXPERTS>
static int run(const float *w, const float *x, float *logits, int64_t in, int64_t experts,
               int64_t tokens, struct CUstream_st *stream)
{
    if (in < 0 || experts < 0 || tokens < 0 || size_product(experts, in) < 0 ||
        size_product(tokens, in) < 0 || size_product(tokens, experts) < 0)
        return KG_E_INVALID;
    if (in % 4 != 0)
        return KG_E_UNSUPPORTED;
    if (experts == 0 || tokens == 0)
        return KG_OK;
    if (!pointer_fits(w, in, 16) || !pointer_fits(x, in, 16) ||
        !pointer_fits(logits, 1, 4))
        return KG_E_INVALID;
    const int64_t tiles =
        ((tokens + TOKENS - 1) / TOKENS) * ((experts + EXPERTS - 1) / EXPERTS);
    const unsigned blocks = grid_blocks(tiles, MATVEC_WARPS);
    if (!blocks)
        return KG_E_UNSUPPORTED;
    return KG_LAUNCH(stream, blocks, 32 * MATVEC_WARPS, 0,
                     (router_matvec_kernel<TOKENS, EXPERTS>), w, x, logits, in, experts,
                     tokens);
}

int kg_router_matvec(const float *w, const float *x, float *logits, int64_t in,
                     int64_t experts, int64_t tokens, struct CUstream_st *stream)
{
    return run<1, 1>(w, x, logits, in, experts, tokens, stream);
}

int kg_router_matvec_batch(const float *w, const float *x, float *logits, int64_t in,
                           int64_t experts, int64_t tokens, struct CUstream_st *stream)
{
    return run<4, 4>(w, x, logits, in, experts, tokens, stream);
}
