/*
 * kgate/device/cuda.h: a device table on the CUDA runtime, to be taken over by an adapter:
 *
 *     static const struct kg_device_ops device = KG_CUDA_DEVICE(kg_cuda_open, kg_cuda_close);
 *
 * An engine with a handle of its own gives functions of its own for open and close, and
 * calls these two in them. Needs cuda_runtime_api.h and libcudart.
 */
#ifndef KGATE_DEVICE_CUDA_H
#define KGATE_DEVICE_CUDA_H

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "kgate/ops/device.h"
#include "kgate/status.h"

static inline char *kg_cuda_message(void)
{
    static char message[256];
    return message;
}

static inline const char *kg_cuda_last_error(void)
{
    return kg_cuda_message();
}

/* The status of a call of the runtime; `what` goes into the message. */
static inline int kg_cuda_status(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return KG_OK;
    snprintf(kg_cuda_message(), 256, "%s: %s", what, cudaGetErrorString(rc));
    cudaError_t again = cudaGetLastError(); /* an error that stays has cost the context */
    (void)again;
    return rc == cudaErrorMemoryAllocation          ? KG_E_MEMORY
           : cudaDeviceSynchronize() != cudaSuccess ? KG_E_DEVICE
                                                    : KG_E_LAUNCH;
}

static inline int kg_cuda_count(int *n)
{
    *n = 0; /* no driver is a machine without devices */
    if (cudaGetDeviceCount(n) != cudaSuccess)
        *n = 0;
    return KG_OK;
}

static inline int kg_cuda_open(const struct kg_open_options *options)
{
    return kg_cuda_status(cudaSetDevice(options->ordinal), "cudaSetDevice");
}

static inline void kg_cuda_close(void)
{
}

static inline int kg_cuda_info(struct kg_device_info *info)
{
    int ordinal = 0, version = 0;
    size_t free_bytes = 0, total = 0;
    struct cudaDeviceProp p;
    int rc = kg_cuda_status(cudaGetDevice(&ordinal), "cudaGetDevice");
    rc = rc ? rc : kg_cuda_status(cudaGetDeviceProperties(&p, ordinal), "properties");
    rc = rc ? rc : kg_cuda_status(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    rc = rc ? rc : kg_cuda_status(cudaDriverGetVersion(&version), "driver version");
    if (rc)
        return rc;
    snprintf(info->name, sizeof info->name, "%.127s", p.name);
    info->cc_major = p.major;
    info->cc_minor = p.minor;
    info->sm_count = p.multiProcessorCount;
    info->mem_total = total;
    info->mem_free = free_bytes;
    info->l2_bytes = (uint64_t)p.l2CacheSize;
    info->smem_per_block = (uint32_t)p.sharedMemPerBlockOptin;
    snprintf(info->driver, sizeof info->driver, "%d.%d", version / 1000,
             version % 1000 / 10);
    snprintf(info->runtime, sizeof info->runtime, "%d.%d", CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10);
    return kg_cuda_status(
        cudaDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, ordinal),
        "bus id");
}

/* Complete on return, and after all streams: the contract of kgate/ops/device.h. */
static inline int kg_cuda_settled(cudaError_t rc, const char *what)
{
    return kg_cuda_status(rc == cudaSuccess ? cudaDeviceSynchronize() : rc, what);
}

static inline int kg_cuda_alloc(void **p, size_t n)
{
    return kg_cuda_status(cudaMalloc(p, n ? n : 1), "cudaMalloc");
}

static inline int kg_cuda_release(void *p)
{
    return kg_cuda_status(cudaFree(p), "cudaFree");
}

static inline int kg_cuda_copy(void *to, const void *from, size_t n)
{
    int rc = kg_cuda_status(cudaDeviceSynchronize(), "before a copy");
    return rc ? rc : kg_cuda_settled(cudaMemcpy(to, from, n, cudaMemcpyDefault), "copy");
}

static inline int kg_cuda_fill(void *p, uint8_t byte, size_t n)
{
    int rc = kg_cuda_status(cudaDeviceSynchronize(), "before a fill");
    return rc ? rc : kg_cuda_settled(cudaMemset(p, byte, n), "fill");
}

static inline int kg_cuda_stream_create(struct CUstream_st **s)
{
    return kg_cuda_status(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "stream");
}

static inline int kg_cuda_stream_destroy(struct CUstream_st *s)
{
    return kg_cuda_status(cudaStreamDestroy(s), "stream");
}

static inline int kg_cuda_sync(struct CUstream_st *s)
{
    return kg_cuda_status(cudaStreamSynchronize(s), "kernel");
}

static inline int kg_cuda_event_create(struct CUevent_st **e)
{
    return kg_cuda_status(cudaEventCreate(e), "event");
}

static inline int kg_cuda_event_destroy(struct CUevent_st *e)
{
    return kg_cuda_status(cudaEventDestroy(e), "event");
}

static inline int kg_cuda_event_record(struct CUevent_st *e, struct CUstream_st *s)
{
    return kg_cuda_status(cudaEventRecord(e, s), "event");
}

static inline int kg_cuda_event_elapsed_us(struct CUevent_st *from, struct CUevent_st *to,
                                           double *us)
{
    float ms = 0;
    int rc = kg_cuda_status(cudaEventElapsedTime(&ms, from, to), "event");
    *us = 1e3 * ms;
    return rc;
}

static inline int kg_cuda_graph_begin(struct CUstream_st *s)
{
    return kg_cuda_status(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal),
                          "capture");
}

static inline int kg_cuda_graph_end(struct CUstream_st *s, struct CUgraphExec_st **out)
{
    cudaGraph_t graph = NULL;
    int rc = kg_cuda_status(cudaStreamEndCapture(s, &graph), "capture");
    rc = rc ? rc : kg_cuda_status(cudaGraphInstantiate(out, graph, 0), "graph");
    if (graph)
        cudaGraphDestroy(graph);
    return rc;
}

static inline int kg_cuda_graph_launch(struct CUgraphExec_st *g, struct CUstream_st *s)
{
    return kg_cuda_status(cudaGraphLaunch(g, s), "graph");
}

static inline int kg_cuda_graph_destroy(struct CUgraphExec_st *g)
{
    return kg_cuda_status(cudaGraphExecDestroy(g), "graph");
}

#define KG_CUDA_DEVICE(open_, close_)                                                    \
    {                                                                                    \
        .size = sizeof(struct kg_device_ops), .count = kg_cuda_count, .open = (open_),   \
        .close = (close_), .info = kg_cuda_info, .alloc = kg_cuda_alloc,                 \
        .release = kg_cuda_release, .upload = kg_cuda_copy, .download = kg_cuda_copy,    \
        .copy = kg_cuda_copy, .fill = kg_cuda_fill,                                      \
        .stream_create = kg_cuda_stream_create,                                          \
        .stream_destroy = kg_cuda_stream_destroy, .sync = kg_cuda_sync,                  \
        .event_create = kg_cuda_event_create, .event_destroy = kg_cuda_event_destroy,    \
        .event_record = kg_cuda_event_record,                                            \
        .event_elapsed_us = kg_cuda_event_elapsed_us,                                    \
        .graph_begin = kg_cuda_graph_begin, .graph_end = kg_cuda_graph_end,              \
        .graph_launch = kg_cuda_graph_launch, .graph_destroy = kg_cuda_graph_destroy,    \
        .last_error = kg_cuda_last_error,                                                \
    }

#endif
