/*
 * cuda/device_ops.cu: a CUDA device behind kgate/ops/device.h.
 *
 * The runtime is linked statically: the provider loads on a machine without a driver and
 * counts no devices there.
 */
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "kgate/ops/device.h"

static thread_local char last_error[512];
static int current_ordinal = -1;

/* Errors after which the context is lost and every later call fails too. */
static bool is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorUnknown:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
        return true;
    default:
        return false;
    }
}

static int set_error(int status, const char *what, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s: %s", what, text);
    return status;
}

int kg_cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return KG_OK;
    (void)cudaGetLastError(); /* or the next launch would report this one */
    int status = KG_E_LAUNCH;
    if (is_sticky(error))
        status = KG_E_DEVICE;
    else if (error == cudaErrorMemoryAllocation)
        status = KG_E_MEMORY;
    else if (error == cudaErrorInvalidValue)
        status = KG_E_INVALID;
    else if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorNotSupported ||
             error == cudaErrorUnsupportedPtxVersion)
        status = KG_E_UNSUPPORTED;
    char text[256];
    snprintf(text, sizeof text, "%s (%s)", cudaGetErrorString(error),
             cudaGetErrorName(error));
    return set_error(status, what, text);
}

static int cuda_count(int *n_devices)
{
    if (n_devices == NULL)
        return set_error(KG_E_INVALID, "count", "NULL");
    *n_devices = 0;
    cudaError_t error = cudaGetDeviceCount(n_devices);
    if (error == cudaSuccess)
        return KG_OK;
    /* No driver or none that is new enough: no device that this provider can use. */
    *n_devices = 0;
    (void)kg_cuda_check(error, "cudaGetDeviceCount");
    return KG_OK;
}

static int cuda_open(const struct kg_open_options *options)
{
    if (options == NULL || options->size < sizeof(struct kg_open_options) ||
        options->ordinal < 0)
        return set_error(KG_E_INVALID, "open", "bad options");
    int n = 0;
    KG_TRY(cuda_count(&n));
    if (options->ordinal >= n) {
        char text[320];
        snprintf(text, sizeof text, "device %d of %d%s%.256s", options->ordinal, n,
                 n == 0 && last_error[0] != '\0' ? "; " : "", n == 0 ? last_error : "");
        return set_error(KG_E_INVALID, "open", text);
    }
    KG_TRY(kg_cuda_check(cudaSetDevice(options->ordinal), "cudaSetDevice"));
    KG_TRY(kg_cuda_check(cudaFree(NULL), "creating the context"));
    current_ordinal = options->ordinal;
    return KG_OK;
}

static void cuda_close(void)
{
    if (current_ordinal >= 0)
        (void)cudaDeviceReset();
    current_ordinal = -1;
}

/* The driver's release, as in "NVRM version: NVIDIA UNIX ... Kernel Module  580.95.05  ...":
   the first word made of digits and at least one dot. Else the CUDA version it supports. */
static void driver_version(char *text, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (file != NULL) {
        char *got = fgets(line, sizeof line, file);
        fclose(file);
        char *save = NULL;
        for (char *word = got == NULL ? NULL : strtok_r(line, " \t\n", &save);
             word != NULL; word = strtok_r(NULL, " \t\n", &save)) {
            if (strchr(word, '.') != NULL &&
                strspn(word, "0123456789.") == strlen(word)) {
                snprintf(text, size, "%s", word);
                return;
            }
        }
    }
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess && version != 0)
        snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

static int cuda_info(struct kg_device_info *info)
{
    if (info == NULL || info->size < sizeof(struct kg_device_info) || current_ordinal < 0)
        return set_error(KG_E_INVALID, "info", "bad size, or no device is open");
    uint32_t size = info->size;
    memset(info, 0, sizeof *info);
    info->size = size;
    struct cudaDeviceProp prop;
    KG_TRY(kg_cuda_check(cudaGetDeviceProperties(&prop, current_ordinal),
                         "cudaGetDeviceProperties"));
    snprintf(info->name, sizeof info->name, "%.127s", prop.name);
    info->cc_major = prop.major;
    info->cc_minor = prop.minor;
    info->sm_count = prop.multiProcessorCount;
    info->l2_bytes = (uint64_t)prop.l2CacheSize;
    info->smem_per_block = (uint32_t)prop.sharedMemPerBlockOptin;
    size_t free_bytes = 0, total_bytes = 0;
    KG_TRY(kg_cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
    info->mem_total = total_bytes;
    info->mem_free = free_bytes;
    driver_version(info->driver, sizeof info->driver);
    int runtime = 0;
    KG_TRY(kg_cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
    snprintf(info->runtime, sizeof info->runtime, "%d.%d", runtime / 1000,
             runtime % 1000 / 10);
    const unsigned char *u = (const unsigned char *)prop.uuid.bytes;
    snprintf(info->uuid, sizeof info->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
             u[12], u[13], u[14], u[15]);
    return kg_cuda_check(cudaDeviceGetPCIBusId(info->pci_bus_id,
                                               (int)sizeof info->pci_bus_id,
                                               current_ordinal),
                         "cudaDeviceGetPCIBusId");
}

static int cuda_alloc(void **pointer, size_t bytes)
{
    if (pointer == NULL)
        return set_error(KG_E_INVALID, "alloc", "NULL");
    *pointer = NULL;
    return kg_cuda_check(cudaMalloc(pointer, bytes == 0 ? 1 : bytes), "cudaMalloc");
}

static int cuda_release(void *pointer)
{
    return kg_cuda_check(cudaFree(pointer), "cudaFree");
}

/* The copies wait for every stream before they start: the streams made here do not wait for
   the default stream by themselves. */
static int copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (bytes == 0)
        return KG_OK;
    KG_TRY(kg_cuda_check(cudaDeviceSynchronize(), "an earlier launch"));
    KG_TRY(kg_cuda_check(cudaMemcpy(to, from, bytes, kind), "cudaMemcpy"));
    return kg_cuda_check(cudaDeviceSynchronize(), "cudaMemcpy");
}

static int cuda_upload(void *device, const void *host, size_t bytes)
{
    return copy(device, host, bytes, cudaMemcpyHostToDevice);
}

static int cuda_download(void *host, const void *device, size_t bytes)
{
    return copy(host, device, bytes, cudaMemcpyDeviceToHost);
}

static int cuda_copy(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

static int cuda_fill(void *device, uint8_t byte, size_t bytes)
{
    if (bytes == 0)
        return KG_OK;
    KG_TRY(kg_cuda_check(cudaDeviceSynchronize(), "an earlier launch"));
    KG_TRY(kg_cuda_check(cudaMemset(device, byte, bytes), "cudaMemset"));
    return kg_cuda_check(cudaDeviceSynchronize(), "cudaMemset");
}

static int cuda_stream_create(struct CUstream_st **stream)
{
    return kg_cuda_check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking),
                         "cudaStreamCreate");
}

static int cuda_stream_destroy(struct CUstream_st *stream)
{
    return stream == NULL ? KG_OK
                          : kg_cuda_check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static int cuda_sync(struct CUstream_st *stream)
{
    return kg_cuda_check(cudaStreamSynchronize(stream), "waiting for the stream");
}

static int cuda_event_create(struct CUevent_st **event)
{
    return kg_cuda_check(cudaEventCreate(event), "cudaEventCreate");
}

static int cuda_event_destroy(struct CUevent_st *event)
{
    return event == NULL ? KG_OK
                         : kg_cuda_check(cudaEventDestroy(event), "cudaEventDestroy");
}

static int cuda_event_record(struct CUevent_st *event, struct CUstream_st *stream)
{
    return kg_cuda_check(cudaEventRecord(event, stream), "cudaEventRecord");
}

static int cuda_event_elapsed_us(struct CUevent_st *from, struct CUevent_st *to,
                                 double *us)
{
    KG_TRY(kg_cuda_check(cudaEventSynchronize(to), "cudaEventSynchronize"));
    float ms = 0.0f;
    KG_TRY(kg_cuda_check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime"));
    *us = (double)ms * 1000.0;
    return KG_OK;
}

static int cuda_graph_begin(struct CUstream_st *stream)
{
    return kg_cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                         "cudaStreamBeginCapture");
}

static int cuda_graph_end(struct CUstream_st *stream, struct CUgraphExec_st **graph)
{
    *graph = NULL;
    cudaGraph_t captured = NULL;
    KG_TRY(
        kg_cuda_check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture"));
    int status =
        kg_cuda_check(cudaGraphInstantiate(graph, captured, 0), "cudaGraphInstantiate");
    (void)cudaGraphDestroy(captured);
    return status;
}

static int cuda_graph_launch(struct CUgraphExec_st *graph, struct CUstream_st *stream)
{
    return kg_cuda_check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
}

static int cuda_graph_destroy(struct CUgraphExec_st *graph)
{
    return graph == NULL
               ? KG_OK
               : kg_cuda_check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
}

static const char *cuda_last_error(void)
{
    return last_error;
}

extern const struct kg_device_ops kg_device_table;
const struct kg_device_ops kg_device_table = {
    sizeof(struct kg_device_ops),
    cuda_count,
    cuda_open,
    cuda_close,
    cuda_info,
    cuda_alloc,
    cuda_release,
    cuda_upload,
    cuda_download,
    cuda_copy,
    cuda_fill,
    cuda_stream_create,
    cuda_stream_destroy,
    cuda_sync,
    cuda_event_create,
    cuda_event_destroy,
    cuda_event_record,
    cuda_event_elapsed_us,
    cuda_graph_begin,
    cuda_graph_end,
    cuda_graph_launch,
    cuda_graph_destroy,
    cuda_last_error,
};
