/*
 * Rows of q, with d and s, are asked of L2 in front of kg_grid_wait() (device/overlap.h), which
 * fixes no value: behind the wait every block needs them at once, and where they come from
 * memory all multiprocessors wait for that.
 */
#ifndef KGATE_KERNELS_MMVQ_ASK_H
#define KGATE_KERNELS_MMVQ_ASK_H

#include "kernels/matvec/unit.h"

/* Lines `index`, index + count, ... of the bytes at p. */
static __device__ __forceinline__ void ask_for(const void *p, int64_t bytes, int index,
                                               int count)
{
    for (int64_t at = 128 * (int64_t)index; at < bytes; at += 128 * count)
        kg_prefetch_l2((const uint8_t *)p + at);
}

enum { ASK_BLOCKS = 8 };

/* Of `rows` rows from row0 on, by `threads` threads of every block. Each line is asked for by one block in
   ASK_BLOCKS, as some blocks start late. s may be null. */
static __device__ __forceinline__ void ask_for_q(const int8_t *q, const float *d,
                                                 const float *s, int64_t in, int64_t row0,
                                                 int64_t rows, int thread, int threads)
{
    const int parts = min((int)ASK_BLOCKS, (int)gridDim.x);
    const int index = (int)blockIdx.x % parts + parts * thread, count = parts * threads;
    const int64_t units = in / KG_UNIT;
    ask_for(q + row0 * in, rows * in, index, count);
    ask_for(d + row0 * units, 4 * rows * units, index, count);
    if (s)
        ask_for(s + row0 * units, 4 * rows * units, index, count);
}

#endif
