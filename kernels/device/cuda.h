/*
 * device/cuda.h: launches and shared memory under nvcc.
 */
#ifndef KG_DEVICE_CUDA_H
#define KG_DEVICE_CUDA_H

#include <cuda_runtime.h>

#include "kgate/status.h"

#define KG_SHARED(type, name, dims) __shared__ type name dims

#define KG_SHARED_DYNAMIC(name)                                                          \
    extern __shared__ __align__(128) unsigned char kg_shared_dynamic[];                  \
    unsigned char *name = kg_shared_dynamic

/* Turns a CUDA error into a kg_status and keeps its text for last_error(). */
int kg_cuda_check(cudaError_t error, const char *what);

/* The kernel is the first of the variable arguments, so that it may stand alone. */
#define KG_LAUNCH(stream, grid, block, dynamic_bytes, ...)                               \
    KG_LAUNCH_WITH(stream, 1, false, grid, block, dynamic_bytes, __VA_ARGS__)

/* In clusters of `cluster` blocks that are neighbours in x (1: none; multicast.h); if
   overlapped, the start may overlap the end of the launch before it (overlap.h). A device
   below compute capability 9.0 has neither, and launches without. */
#define KG_LAUNCH_WITH(stream, cluster, overlapped, grid, block, dynamic_bytes, ...)     \
    kg_cuda_launch(stream, cluster, overlapped, grid, block, dynamic_bytes,              \
                   #__VA_ARGS__, __VA_ARGS__)

static inline int kg_cuda_capability(int *major)
{
    int device = 0;
    KG_TRY(kg_cuda_check(cudaGetDevice(&device), "cudaGetDevice"));
    return kg_cuda_check(
        cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
}

template <typename... P, typename... A>
[[nodiscard]] static inline int kg_cuda_launch(cudaStream_t stream, unsigned cluster,
                                               bool overlapped, dim3 grid, dim3 block,
                                               size_t dynamic_bytes, const char *name,
                                               void (*kernel)(P...), A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
    /* Above 48 KiB a kernel must ask for its dynamic shared memory. */
    if (dynamic_bytes > 48 * 1024)
        KG_TRY(kg_cuda_check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)dynamic_bytes),
            name));
    int major = 0;
    if (cluster > 1 || overlapped)
        KG_TRY(kg_cuda_capability(&major));
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = dynamic_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (cluster > 1 && major >= 9) {
        cudaLaunchAttribute &a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeClusterDimension;
        a.val.clusterDim.x = cluster;
        a.val.clusterDim.y = 1;
        a.val.clusterDim.z = 1;
    }
    if (overlapped && major >= 9) {
        cudaLaunchAttribute &a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a.val.programmaticStreamSerializationAllowed = 1;
    }
    return kg_cuda_check(
        cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), name);
}

#endif
