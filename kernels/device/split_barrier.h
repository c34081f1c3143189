/*
 * device/split_barrier.h: barriers of a block's warps in two halves, in shared memory, and
 * copies that arrive at them.
 *
 * One lane of each warp arrives when the warp has done its part; whoever needs all parts waits.
 * Between the two a warp goes on, so that warps need not be at the same place. Phases
 * alternate: the first wait has parity 0, the next 1, 0, ...; a phase must be waited for by all
 * before anyone arrives twice more.
 *
 * Where there is no such instruction (the emulated device, compute capability below 9.0),
 * KG_SPLIT_BARRIER is 0, there are no copies, the arrival does nothing and the wait is a
 * barrier of the block: all threads must then wait the same number of times.
 */
#ifndef KG_DEVICE_SPLIT_BARRIER_H
#define KG_DEVICE_SPLIT_BARRIER_H

#include "device.h"

#if !defined(KG_EMU)
#include "sm90.h"
#endif

#if defined(__CUDACC__)
#define KG_GRID_CONSTANT __grid_constant__
#else
#define KG_GRID_CONSTANT
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define KG_SPLIT_BARRIER 1
#else
#define KG_SPLIT_BARRIER 0
#endif

/* By every thread of the block, before a __syncthreads(): n barriers of so many arrivals. */
static __device__ __forceinline__ void kg_split_init(uint64_t *barrier, int n,
                                                     int arrivals)
{
#if KG_SPLIT_BARRIER
    if (threadIdx.x == 0) {
        for (int i = 0; i < n; i++)
            kg_mbarrier_init(barrier + i, arrivals);
        kg_mbarrier_init_fence();
    }
#else
    (void)barrier, (void)n, (void)arrivals;
#endif
}

static __device__ __forceinline__ void kg_split_arrive(uint64_t *barrier)
{
#if KG_SPLIT_BARRIER
    kg_mbarrier_arrive(barrier);
#else
    (void)barrier;
#endif
}

static __device__ __forceinline__ void kg_split_wait(uint64_t *barrier, uint32_t parity)
{
#if KG_SPLIT_BARRIER
    kg_mbarrier_wait(barrier, parity);
#else
    (void)barrier, (void)parity;
    __syncthreads();
#endif
}

/* The same by a warp that has time, and should leave the others the issue slots. */
static __device__ __forceinline__ void kg_split_wait_idle(uint64_t *barrier,
                                                          uint32_t parity)
{
#if KG_SPLIT_BARRIER
    while (!kg_mbarrier_try_wait(barrier, parity))
        __nanosleep(100);
#else
    kg_split_wait(barrier, parity);
#endif
}

#if KG_SPLIT_BARRIER
/* One arrival; the phase then also waits for `bytes` of copies. */
static __device__ __forceinline__ void kg_split_expect(uint64_t *barrier, uint32_t bytes)
{
    kg_mbarrier_expect(barrier, bytes);
}

/* The box at (x, y) of a tensor map to shared memory (a multiple of 128), by one thread. The
   map lies in a __grid_constant__ parameter. */
static __device__ __forceinline__ void kg_split_load_box(void *shared, const void *map,
                                                         int x, int y, uint64_t *barrier)
{
    kg_tma_load_2d(shared, (const CUtensorMap *)map, x, y, barrier);
}
#endif

#endif
