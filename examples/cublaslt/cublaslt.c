/*
 * A kgate provider around cuBLASLt: ceiling.matmul for f16, bf16 and int8. Everything is
 * column-major over there, so row-major c[m][n] = a * b^T is asked for as c^T = b * a^T.
 */
#include <stdio.h>
#include <string.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <kgate/kernels.h>

static cublasLtHandle_t handle;
static char message[256];

static int check(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return 0;
    snprintf(message, sizeof message, "%s: %s", what, cudaGetErrorString(rc));
    cudaError_t again = cudaGetLastError(); /* an error that stays has cost the context */
    (void)again;
    return rc == cudaErrorMemoryAllocation          ? KG_E_MEMORY
           : cudaDeviceSynchronize() != cudaSuccess ? KG_E_DEVICE
                                                    : KG_E_LAUNCH;
}

/* ---- the device ---- */

static int count(int *n)
{
    *n = 0; /* no driver is a machine without devices */
    cudaGetDeviceCount(n);
    return 0;
}
static int open_device(const struct kg_open_options *options)
{
    int rc = check(cudaSetDevice(options->ordinal), "cudaSetDevice");
    if (rc == 0 && cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
        rc = KG_E_UNSUPPORTED;
    return rc;
}
static void close_device(void)
{
    cublasLtDestroy(handle);
}
static int info(struct kg_device_info *info)
{
    int ordinal = 0, version = 0;
    size_t free_bytes = 0, total = 0;
    struct cudaDeviceProp p;
    int rc = check(cudaGetDevice(&ordinal), "cudaGetDevice");
    rc = rc ? rc : check(cudaGetDeviceProperties(&p, ordinal), "properties");
    rc = rc ? rc : check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    rc = rc ? rc : check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
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
    return check(
        cudaDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, ordinal),
        "bus id");
}

/* Complete on return, and after all streams: the contract of kgate/ops/device.h. */
static int settled(cudaError_t rc, const char *what)
{
    return check(rc == cudaSuccess ? cudaDeviceSynchronize() : rc, what);
}
static int alloc(void **p, size_t n)
{
    return check(cudaMalloc(p, n), "cudaMalloc");
}
static int release(void *p)
{
    return check(cudaFree(p), "cudaFree");
}
static int copy(void *to, const void *from, size_t n)
{
    int rc = check(cudaDeviceSynchronize(), "before a copy");
    return rc ? rc : settled(cudaMemcpy(to, from, n, cudaMemcpyDefault), "cudaMemcpy");
}
static int fill(void *p, uint8_t byte, size_t n)
{
    int rc = check(cudaDeviceSynchronize(), "before a fill");
    return rc ? rc : settled(cudaMemset(p, byte, n), "cudaMemset");
}
static int stream_create(struct CUstream_st **s)
{
    return check(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "stream");
}
static int stream_destroy(struct CUstream_st *s)
{
    return check(cudaStreamDestroy(s), "stream");
}
static int sync(struct CUstream_st *s)
{
    return check(cudaStreamSynchronize(s), "kernel");
}
static int event_create(struct CUevent_st **e)
{
    return check(cudaEventCreate(e), "event");
}
static int event_destroy(struct CUevent_st *e)
{
    return check(cudaEventDestroy(e), "event");
}
static int event_record(struct CUevent_st *e, struct CUstream_st *s)
{
    return check(cudaEventRecord(e, s), "event");
}
static int event_elapsed(struct CUevent_st *from, struct CUevent_st *to, double *us)
{
    float ms = 0;
    int rc = check(cudaEventElapsedTime(&ms, from, to), "event");
    *us = 1e3 * ms;
    return rc;
}
static int graph_begin(struct CUstream_st *s)
{
    return check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
}
static int graph_end(struct CUstream_st *s, struct CUgraphExec_st **out)
{
    cudaGraph_t graph = NULL;
    int rc = check(cudaStreamEndCapture(s, &graph), "capture");
    rc = rc ? rc : check(cudaGraphInstantiate(out, graph, 0), "graph");
    if (graph)
        cudaGraphDestroy(graph);
    return rc;
}
static int graph_launch(struct CUgraphExec_st *g, struct CUstream_st *s)
{
    return check(cudaGraphLaunch(g, s), "graph");
}
static int graph_destroy(struct CUgraphExec_st *g)
{
    return check(cudaGraphExecDestroy(g), "graph");
}
static const char *last_error(void)
{
    return message;
}

static const struct kg_device_ops device = {
    .size = sizeof device,
    .count = count,
    .open = open_device,
    .close = close_device,
    .info = info,
    .alloc = alloc,
    .release = release,
    .upload = copy,
    .download = copy,
    .copy = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .sync = sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_elapsed_us = event_elapsed,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .last_error = last_error,
};

/* ---- the products ---- */

static int matmul(int type, const void *a, const void *b, void *c, int64_t m, int64_t n,
                  int64_t k, void *workspace, size_t bytes, struct CUstream_st *stream)
{
    int is_int = type == KG_TYPE_I8;
    cudaDataType_t in = is_int                ? CUDA_R_8I
                        : type == KG_TYPE_F16 ? CUDA_R_16F
                                              : CUDA_R_16BF;
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t la = NULL, lb = NULL, lc = NULL;
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t best;
    cublasOperation_t transpose = CUBLAS_OP_T;
    float one_f = 1, zero_f = 0;
    int32_t one_i = 1, zero_i = 0;
    int found = 0, rc = KG_E_UNSUPPORTED;

    if (type != KG_TYPE_F16 && type != KG_TYPE_BF16 && !is_int)
        return KG_E_UNSUPPORTED;
    if (m <= 0 || n <= 0 || k <= 0 || !a || !b || !c)
        return KG_E_INVALID;
    if (!cublasLtMatmulDescCreate(&desc, is_int ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                  is_int ? CUDA_R_32I : CUDA_R_32F) &&
        !cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                        sizeof transpose) &&
        !cublasLtMatrixLayoutCreate(&lb, in, (uint64_t)k, (uint64_t)n, k) &&
        !cublasLtMatrixLayoutCreate(&la, in, (uint64_t)k, (uint64_t)m, k) &&
        !cublasLtMatrixLayoutCreate(&lc, is_int ? CUDA_R_32I : in, (uint64_t)n,
                                    (uint64_t)m, n) &&
        !cublasLtMatmulPreferenceCreate(&pref) &&
        !cublasLtMatmulPreferenceSetAttribute(
            pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes) &&
        !cublasLtMatmulAlgoGetHeuristic(handle, desc, lb, la, lc, lc, pref, 1, &best,
                                        &found) &&
        found > 0)
        rc = cublasLtMatmul(handle, desc, is_int ? (void *)&one_i : (void *)&one_f, b, lb,
                            a, la, is_int ? (void *)&zero_i : (void *)&zero_f, c, lc, c,
                            lc, &best.algo, workspace, bytes, stream)
                 ? KG_E_LAUNCH
                 : 0;
    cublasLtMatmulPreferenceDestroy(pref);
    cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatmulDescDestroy(desc);
    return rc;
}

static const struct kg_ceiling_ops ceiling = {.size = sizeof ceiling, .matmul = matmul};

const struct kg_provider kgate_provider = {
    .abi = KG_PROVIDER_ABI,
    .size = sizeof kgate_provider,
    .name = "cublaslt",
    .build_id = "cuBLASLt example",
    .device = &device,
    .ceiling = &ceiling,
};
