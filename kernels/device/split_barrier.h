/*
 * device/split_barrier.h: a barrier of a block's warps in two halves, in shared memory.
 *
 * One lane of each warp arrives when the warp has done its part; whoever needs all parts waits.
 * Between the two a warp goes on, so that warps need not be at the same place. Phases
 * alternate: the first wait has parity 0, the next 1, 0, ...; a phase must be waited for by all
 * before anyone arrives twice more. Every thread of the block initializes and waits.
 *
 * Where there is no such instruction (the emulated device, compute capability below 9.0), the
 * arrival does nothing and the wait is a barrier of the block: all threads must then wait the
 * same number of times.
 */
#ifndef KG_DEVICE_SPLIT_BARRIER_H
#define KG_DEVICE_SPLIT_BARRIER_H

#include "device.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define KG_SPLIT_BARRIER 1
#else
#define KG_SPLIT_BARRIER 0
#endif

static __device__ __forceinline__ void kg_split_init(uint64_t *barrier, int n, int warps)
{
#if KG_SPLIT_BARRIER
    if (threadIdx.x == 0)
        for (int i = 0; i < n; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                             kg_shared_address(barrier + i)),
                         "r"(warps)
                         : "memory");
#else
    (void)barrier, (void)n, (void)warps;
#endif
    __syncthreads();
}

static __device__ __forceinline__ void kg_split_arrive(uint64_t *barrier)
{
#if KG_SPLIT_BARRIER
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(kg_shared_address(barrier))
        : "memory");
#else
    (void)barrier;
#endif
}

static __device__ __forceinline__ void kg_split_wait(uint64_t *barrier, uint32_t parity)
{
#if KG_SPLIT_BARRIER
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(kg_shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
#else
    (void)barrier, (void)parity;
    __syncthreads();
#endif
}

#endif
