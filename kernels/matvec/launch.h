/*
 * What the launchers of this folder share: their names and the checks of arguments.
 */
#ifndef KGATE_KERNELS_MATVEC_LAUNCH_H
#define KGATE_KERNELS_MATVEC_LAUNCH_H

#include <stdint.h>

#include "kgate/ops/matvec.h"
#include "kgate/status.h"

int kg_dequantize(int type, const void *src, float *dst, int64_t n,
                  struct CUstream_st *stream);
int kg_quantize_q8_1(const float *x, int8_t *q, float *d, float *s, int64_t rows,
                     int64_t cols, struct CUstream_st *stream);
int kg_stage_a(int type, const void *w, const float *x, float *y, int64_t in, int64_t out,
               int64_t m, struct CUstream_st *stream);
int kg_stage_b(int type, const void *w, const int8_t *q, const float *d, const float *s,
               float *y, int64_t in, int64_t out, int64_t m, struct CUstream_st *stream);

#define KG_WARPS 4 /* warps in a block, and rows of w that it computes */

/* Whether `p` may be read as n > 0 elements at a multiple of `align` bytes; n == 0 takes
   any pointer. */
static inline bool pointer_fits(const void *p, int64_t n, uintptr_t align)
{
    return n == 0 || (p && (uintptr_t)p % align == 0);
}

/* a * b for sizes, or -1 when either is negative or the bytes of so many 8-byte elements
   would not fit. */
static inline int64_t size_product(int64_t a, int64_t b)
{
    int64_t n, bytes;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &n) ||
        __builtin_mul_overflow(n, (int64_t)8, &bytes))
        return -1;
    return n;
}

/* Blocks of a one-dimensional grid that gives `n` items `per_block` each; 0 when CUDA has
   no such grid. */
static inline unsigned grid_blocks(int64_t n, int64_t per_block)
{
    int64_t blocks = n / per_block + (n % per_block != 0);
    return blocks > 0x7fffffff ? 0u : (unsigned)blocks;
}

/* Shapes of a product: KG_E_INVALID or KG_OK. */
static inline int check_product(int64_t in, int64_t out, int64_t m, int block)
{
    if (in < 0 || out < 0 || m < 0 || in % block != 0 || size_product(in, out) < 0 ||
        size_product(in, m) < 0 || size_product(out, m) < 0 ||
        !grid_blocks(out + 1, KG_WARPS))
        return KG_E_INVALID;
    return KG_OK;
}

#endif
