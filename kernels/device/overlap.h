/*
 * device/overlap.h: a launch whose start overlaps the end of the launch before it.
 *
 * KG_LAUNCH_OVERLAPPED is KG_LAUNCH for kernels that call kg_grid_wait(): their blocks may be
 * placed as soon as those of the launch before them have all called kg_grid_release() or
 * ended, and kg_grid_wait() returns when that launch is complete and its writes are visible.
 * On the emulated device launches run one after the other, and both do nothing.
 *
 *   - Every thread waits, also one that has nothing to do: who waits for this launch
 *     waits for the ones before it.
 *   - Before it has waited, a kernel may read weights and their scales, which are constants
 *     of a model, and nothing else of global memory. So what writes the weights must be
 *     complete before a launch that reads them is made: by an event, a copy or a plain launch
 *     between them.
 *   - The same goes for the keys and values that the caller of decode attention calls
 *     settled (kg_decode). The launch ahead may append this step's tokens; those are read
 *     after the wait.
 *   - A kernel releases after it has waited; then no more than two launches are under way.
 *
 * kg_atomic_add_acq_rel is atomicAdd on memory of the device that also orders: what the
 * block (or warp) wrote before the barrier that this thread came from is visible to whoever
 * sees the sum, and what those before it wrote is visible behind its next barrier.
 */
#ifndef KG_DEVICE_OVERLAP_H
#define KG_DEVICE_OVERLAP_H

#include "kernels/device/device.h"

#define KG_LAUNCH_OVERLAPPED(stream, grid, block, dynamic_bytes, ...)                    \
    KG_LAUNCH_WITH(stream, 1, true, grid, block, dynamic_bytes, __VA_ARGS__)

#if defined(KG_EMU)

static inline void kg_grid_wait(void)
{
}
static inline void kg_grid_release(void)
{
}
static inline unsigned kg_atomic_add_acq_rel(unsigned *p, unsigned x)
{
    return atomicAdd(p, x);
}

#else

/* Before sm_90 launches do not overlap. */
static __device__ __forceinline__ void kg_grid_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void kg_grid_release(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ unsigned kg_atomic_add_acq_rel(unsigned *p, unsigned x)
{
    unsigned old;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(p), "r"(x)
                 : "memory");
    return old;
}

#endif
#endif
