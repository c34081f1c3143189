/*
 * device/sm90_cluster.h: what blocks of a cluster send each other.
 *
 * A kernel launched by KG_LAUNCH_WITH runs in clusters of blocks that are neighbours in x.
 * A block sends to a place in another's shared memory by kg_cluster_store4: the bytes count
 * at that block's mbarrier, as those of a bulk copy do, and are visible to who waited there.
 * kg_cluster_address makes the addresses, of places and of mbarriers. Before the first and
 * behind the last access to another block, all threads call kg_cluster_sync.
 */
#ifndef KG_DEVICE_SM90_CLUSTER_H
#define KG_DEVICE_SM90_CLUSTER_H

#include "kernels/device/sm90.h"

/* All threads of all blocks of the cluster; the warps need not have converged. */
static __device__ __forceinline__ void kg_cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

/* Where block `rank` of the cluster has what is at `shared` in this one. */
static __device__ __forceinline__ uint32_t kg_cluster_address(const void *shared,
                                                              uint32_t rank)
{
    uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(kg_shared_address(shared)), "r"(rank));
    return address;
}

/* 16 bytes at `to` + OFFSET; `to` and `barrier` belong to the same block. */
template <int OFFSET>
static __device__ __forceinline__ void
kg_cluster_store4(uint32_t to, float x, float y, float z, float w, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0 + %6], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(x), "f"(y), "f"(z), "f"(w), "r"(barrier), "n"(OFFSET)
                 : "memory");
}

/* After this thread's loads have returned; stores are not ordered. */
static __device__ __forceinline__ void kg_cluster_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

#endif
