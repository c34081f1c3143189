/*
 * What the launchers of this folder share: their names and the checks of arguments.
 */
#ifndef KGATE_KERNELS_DSV4_LAUNCH_H
#define KGATE_KERNELS_DSV4_LAUNCH_H

#include <stdint.h>

#include "kernels/dsv4/fp4.h"

int kg_dsv4_act_quant(const float *x, uint8_t *codes, float *scales, int64_t m, int64_t k,
                      struct CUstream_st *stream);
int kg_dsv4_swiglu(const float *gate, const float *up, const float *row_weight,
                   float limit, float *h, int64_t m, int64_t n,
                   struct CUstream_st *stream);
int kg_dsv4_dequant_bf16(int kind, const uint8_t *w, const uint8_t *ws, float scale2,
                         uint16_t *w16, int64_t n, int64_t k, struct CUstream_st *stream);
int kg_dsv4_to_bf16(const float *x, uint16_t *x16, int64_t count,
                    struct CUstream_st *stream);
int kg_dsv4_gemm_bf16(const uint16_t *x16, const uint16_t *w16, float *y, int64_t m,
                      int64_t n, int64_t k, struct CUstream_st *stream);

/* The forms: arguments are checked, m and n are above 0. */
template <int KIND>
int kg_dsv4_ordered(const struct gemm_args &args, struct CUstream_st *stream);
template <int KIND>
int kg_dsv4_rows8(const struct gemm_args &args, struct CUstream_st *stream);
template <int KIND>
int kg_dsv4_tiles(const struct gemm_args &args, void *scratch,
                  struct CUstream_st *stream);
/* Bytes of scratch of the tiles form. */
template <int KIND>
size_t kg_dsv4_tiles_scratch(int64_t m, int64_t n, int64_t k);

static inline bool aligned16(const void *p)
{
    return p && (uintptr_t)p % 16 == 0;
}

/* Sizes whose products stay far below 2^63, with k a multiple of 128 that is not 0. */
static inline bool sizes_fit(int64_t m, int64_t n, int64_t k)
{
    const int64_t most = (int64_t)1 << 31;
    int64_t product;
    return m >= 0 && n >= 0 && k > 0 && k % 128 == 0 && m < most && n < most &&
           k < most && !__builtin_mul_overflow(m > n ? m : n, k * 8, &product) &&
           !__builtin_mul_overflow(m, n * 8, &product);
}

/* Blocks of a one-dimensional grid that gives `n` items `per_block` each; 0 when CUDA has no
   such grid. */
static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    const int64_t blocks = (n + per_block - 1) / per_block;
    return blocks > 0x7fffffff ? 0u : (unsigned)blocks;
}

#endif
