/*
 * A row in registers: how the kernels of this folder read a row and add it up.
 *
 * T threads share a row. Vector k of a row is elements 4k .. 4k+3; thread t takes vectors
 * t, t + T, t + 2T, ... in that order. The first KG_ROW_VECTORS of them stay in registers,
 * so that a row of up to 16 T elements is read once; longer rows are read again.
 *
 * Sums: each thread adds its elements in the order above into one accumulator, from +0,
 * by fmaf. Then row_sum: a butterfly over lane distances 16, 8, 4, 2, 1 in each warp, and,
 * with more than one warp, a butterfly of the same kind over the warps' sums, at distances
 * T/64 .. 1. T follows from the row's length alone:
 *
 *   cols <= 512: T 32       <= 2048: 128       <= 8192: 512       above: 1024
 *
 * WIDE rows have a length that is a multiple of 4 and so start at multiples of 16 bytes;
 * others are read element by element into the same vectors, elements past the end as +0,
 * which changes no sum of squares or products.
 */
#ifndef KGATE_KERNELS_NORM_ROW_H
#define KGATE_KERNELS_NORM_ROW_H

#include <stdint.h>

#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"

#define KG_ROW_VECTORS 4
#define KG_ROW_COLS_MAX (1 << 30)

/* Threads in a block: rows of one warp share a block of four. */
static constexpr int row_block(int T)
{
    return T == 32 ? 128 : T;
}

/* The row that this thread works on; with T == 32 it may be past the last one. */
template <int T>
static __device__ __forceinline__ int64_t row_index()
{
    return T == 32 ? (int64_t)blockIdx.x * 4 + threadIdx.x / 32 : (int64_t)blockIdx.x;
}

template <int T>
static __device__ __forceinline__ int row_thread()
{
    return T == 32 ? threadIdx.x % 32 : threadIdx.x;
}

/* A vector of a row. SHARED rows are those that nothing in this launch writes to: their loads
   may be moved in front of stores. */
template <bool WIDE, bool SHARED = false>
static __device__ __forceinline__ float4 row_load(const float *row, int vector, int cols)
{
    const int i = 4 * vector;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (WIDE) {
        if (i < cols)
            v = SHARED ? __ldg((const float4 *)(row + i)) : *(const float4 *)(row + i);
    } else {
        if (i < cols)
            v.x = row[i];
        if (i + 1 < cols)
            v.y = row[i + 1];
        if (i + 2 < cols)
            v.z = row[i + 2];
        if (i + 3 < cols)
            v.w = row[i + 3];
    }
    return v;
}

template <bool WIDE>
static __device__ __forceinline__ void row_store(float *row, int vector, int cols,
                                                 float4 v)
{
    const int i = 4 * vector;
    if (WIDE) {
        if (i < cols)
            *(float4 *)(row + i) = v;
    } else {
        if (i < cols)
            row[i] = v.x;
        if (i + 1 < cols)
            row[i + 1] = v.y;
        if (i + 2 < cols)
            row[i + 2] = v.z;
        if (i + 3 < cols)
            row[i + 3] = v.w;
    }
}

static __device__ __forceinline__ float dot4(float4 a, float4 b, float acc)
{
    acc = fmaf(a.x, b.x, acc);
    acc = fmaf(a.y, b.y, acc);
    acc = fmaf(a.z, b.z, acc);
    return fmaf(a.w, b.w, acc);
}

/* The sum over the T threads of a row, in every one of them. Once a kernel: the shared
   array is not guarded against the next use. */
template <int T>
static __device__ __forceinline__ float row_sum(float v)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        v += __shfl_xor_sync(KG_WARP_ALL, v, distance);
    if (T == 32)
        return v;
    KG_SHARED(float, warp_sums, [32]);
    if (threadIdx.x % 32 == 0)
        warp_sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp_sums[threadIdx.x % (T / 32)];
#pragma unroll
    for (int distance = T / 64; distance > 0; distance /= 2)
        v += __shfl_xor_sync(KG_WARP_ALL, v, distance);
    return v;
}

/* Calls LAUNCH(T) with the T of the row's length; LAUNCH is a macro of the caller's. */
#define KG_ROW_DISPATCH(cols, LAUNCH)                                                    \
    ((cols) <= 512    ? LAUNCH(32)                                                       \
     : (cols) <= 2048 ? LAUNCH(128)                                                      \
     : (cols) <= 8192 ? LAUNCH(512)                                                      \
                      : LAUNCH(1024))

/* Blocks for `rows` rows of cols elements; 0 when there is no such grid. */
static inline unsigned row_grid(int64_t rows, int64_t cols)
{
    return grid_blocks(rows, cols <= 512 ? 4 : 1);
}

#endif
