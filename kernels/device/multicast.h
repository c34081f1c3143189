/*
 * device/multicast.h: bytes of global memory for the shared memory of several blocks.
 *
 * A kernel launched by KG_LAUNCH_WITH may run in clusters of blocks that are neighbours in x;
 * grid.x is a multiple of their number. Each block takes its part of the copies, and every
 * block gets all of them, at the same place. Once a launch:
 *
 *   kg_multicast_begin     all threads; `arrival`, in shared memory, will get `bytes` in all
 *   kg_multicast_meet      all threads, not all at one time: the other blocks have begun too
 *   kg_multicast_copy      one thread, for copies rank, rank + ranks, ...; addresses and bytes
 *                          are multiples of 16
 *   kg_multicast_wait      all threads: all copies are there, for the thread that waited
 *
 * On the emulated device, and below compute capability 9, a cluster is one block, and the
 * thread copies by itself, for which the others need a barrier.
 */
#ifndef KG_DEVICE_MULTICAST_H
#define KG_DEVICE_MULTICAST_H

#include "device.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t kg_multicast_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ int kg_multicast_rank(void)
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

static __device__ __forceinline__ int kg_multicast_ranks(void)
{
    uint32_t ranks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(ranks));
    return (int)ranks;
}

static __device__ __forceinline__ void kg_multicast_begin(uint64_t *arrival, int bytes)
{
    if (threadIdx.x == 0) {
        const uint32_t at = kg_multicast_shared(arrival);
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                     "r"(bytes)
                     : "memory");
    }
    if (kg_multicast_ranks() > 1)
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

static __device__ __forceinline__ void kg_multicast_meet(void)
{
    if (kg_multicast_ranks() >
        1) /* of a block alone it would be a barrier of all threads */
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

static __device__ __forceinline__ void kg_multicast_copy(void *to, const void *from,
                                                         int bytes, uint64_t *arrival)
{
    const uint16_t all = (uint16_t)((1u << kg_multicast_ranks()) - 1u);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(kg_multicast_shared(to)),
        "l"(from), "r"(bytes), "r"(kg_multicast_shared(arrival)), "h"(all)
        : "memory");
}

static __device__ __forceinline__ void kg_multicast_wait(uint64_t *arrival)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(kg_multicast_shared(arrival))
                     : "memory");
}

#else

static __device__ inline int kg_multicast_rank(void)
{
    return 0;
}
static __device__ inline int kg_multicast_ranks(void)
{
    return 1;
}
static __device__ inline void kg_multicast_begin(uint64_t *, int)
{
}
static __device__ inline void kg_multicast_meet(void)
{
}
static __device__ inline void kg_multicast_copy(void *to, const void *from, int bytes,
                                                uint64_t *)
{
    for (int i = 0; i < bytes; i += 16)
        *(uint4 *)((unsigned char *)to + i) =
            *(const uint4 *)((const unsigned char *)from + i);
}
static __device__ inline void kg_multicast_wait(uint64_t *)
{
}

#endif
#endif
