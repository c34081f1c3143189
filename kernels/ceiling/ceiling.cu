/*
 * kernels/ceiling/ceiling.cu: what the device can do at best (kgate/ops/ceiling.h).
 *
 * copy: the driver's own, which moves more than a plain kernel does (4.25 against 4.12 TB/s
 * on an H200).
 * read_sweep: one wave of blocks walks the memory, eight loads of a thread in flight.
 * Integer data only: no arithmetic to order.
 */
#include "device/device.h"
#include "kgate/kernels.h"
#include "kgate/ops/ceiling.h"
#if defined(__CUDACC__)
#include "cuda/cublaslt.h"
#endif

static constexpr int block_threads = 512;
static constexpr int read_unroll = 8;

__global__ void read_sweep_kernel(const uint4 *__restrict__ from, int64_t n_words,
                                  uint32_t *sum)
{
    const int64_t step = (int64_t)gridDim.x * block_threads;
    int64_t at = (int64_t)blockIdx.x * block_threads + threadIdx.x;
    uint32_t s = 0;
    for (; at + (read_unroll - 1) * step < n_words; at += step * read_unroll) {
        uint4 v[read_unroll];
#pragma unroll
        for (int i = 0; i < read_unroll; i++)
            v[i] = from[at + i * step];
#pragma unroll
        for (int i = 0; i < read_unroll; i++)
            s += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    for (; at < n_words; at += step)
        s += from[at].x ^ from[at].y ^ from[at].z ^ from[at].w;
    for (int o = 16; o > 0; o >>= 1)
        s += __shfl_xor_sync(0xffffffffu, s, o);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, s);
}

__global__ void empty_kernel()
{
}

static int kg_copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    if (!to || !from || bytes % 16 != 0)
        return KG_E_INVALID;
#if defined(__CUDACC__)
    cudaError_t rc =
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
    return rc == cudaSuccess ? KG_OK : KG_E_LAUNCH;
#else
    (void)stream;
    return KG_E_UNSUPPORTED;
#endif
}

static int kg_read_sweep(const void *from, size_t bytes, uint32_t *sum,
                         struct CUstream_st *stream)
{
    if (!from || !sum || bytes % 16 != 0)
        return KG_E_INVALID;
    /* Four blocks a multiprocessor on a chip of 132; the loop does the rest. */
    return KG_LAUNCH(stream, 132 * 4, block_threads, 0, read_sweep_kernel,
                     (const uint4 *)from, (int64_t)(bytes / 16), sum);
}

static int kg_empty(struct CUstream_st *stream)
{
    return KG_LAUNCH(stream, 1, 32, 0, empty_kernel);
}

static int kg_matmul(int type, const void *a, const void *b, void *c, int64_t m,
                     int64_t n, int64_t k, void *workspace, size_t workspace_bytes,
                     struct CUstream_st *stream)
{
#if defined(__CUDACC__)
    return kg_cublaslt_matmul(type, type == KG_TYPE_I8 ? KG_TYPE_I32 : type, a, b, c, m,
                              n, k, workspace, workspace_bytes, stream);
#else
    (void)type, (void)a, (void)b, (void)c, (void)m, (void)n, (void)k, (void)workspace;
    (void)workspace_bytes, (void)stream;
    return KG_E_UNSUPPORTED;
#endif
}

extern const struct kg_ceiling_ops kg_ceiling_table;
const struct kg_ceiling_ops kg_ceiling_table = {
    sizeof(struct kg_ceiling_ops), kg_copy, kg_read_sweep, kg_empty, kg_matmul,
};
