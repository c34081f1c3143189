/*
 * device/overlap.h: a launch whose start overlaps the end of the launch before it.
 *
 * KG_LAUNCH_OVERLAPPED is KG_LAUNCH for kernels that call kg_grid_wait() before their first
 * access to global memory: their blocks may be placed as soon as those of the launch before
 * them have all called kg_grid_release() or ended, and kg_grid_wait() returns when that
 * launch is complete and its writes are visible. On the emulated device launches run one
 * after the other, and both do nothing.
 *
 * kg_atomic_add_acq_rel is atomicAdd on memory of the device that also orders: what the
 * block wrote before the barrier that this thread came from is visible to whoever sees the
 * sum, and what those before it wrote is visible behind the next barrier.
 */
#ifndef KG_DEVICE_OVERLAP_H
#define KG_DEVICE_OVERLAP_H

#include "kernels/device/device.h"

#if defined(KG_EMU)

#define KG_LAUNCH_OVERLAPPED KG_LAUNCH

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

#define KG_LAUNCH_OVERLAPPED(stream, grid, block, dynamic_bytes, ...)                    \
    kg_cuda_launch_overlapped(stream, grid, block, dynamic_bytes, #__VA_ARGS__,          \
                              __VA_ARGS__)

template <typename... P, typename... A>
[[nodiscard]] static inline int
kg_cuda_launch_overlapped(cudaStream_t stream, dim3 grid, dim3 block,
                          size_t dynamic_bytes, const char *name, void (*kernel)(P...),
                          A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    if (dynamic_bytes > 48 * 1024)
        KG_TRY(kg_cuda_check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)dynamic_bytes),
            name));
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = dynamic_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return kg_cuda_check(
        cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), name);
}

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
