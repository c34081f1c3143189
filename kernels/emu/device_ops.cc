/*
 * emu/device_ops.cc: the emulated device behind kgate/ops/device.h.
 *
 * Device memory is host memory. There is always one device, always idle: launches are
 * complete when they return. Events and graphs are left out, as time means nothing here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kgate/ops/device.h"
#include "kgate/status.h"
#include "runtime.h"

static int fail(int status, const char *text)
{
    kg_emu_set_error(text);
    return status;
}

static int emu_count(int *n_devices)
{
    if (n_devices == NULL)
        return fail(KG_E_INVALID, "count: NULL");
    *n_devices = 1;
    return KG_OK;
}

static int emu_open(const struct kg_open_options *options)
{
    if (options == NULL || options->size < sizeof(struct kg_open_options))
        return fail(KG_E_INVALID, "open: bad options");
    if (options->ordinal != 0)
        return fail(KG_E_INVALID, "open: the emulated device has ordinal 0 only");
    kg_emu_configure(options->schedule_seed, options->host_threads);
    return KG_OK;
}

static void emu_close(void)
{
    kg_emu_shutdown();
}

static int emu_info(struct kg_device_info *info)
{
    if (info == NULL || info->size < sizeof(struct kg_device_info))
        return fail(KG_E_INVALID, "info: bad size");
    uint32_t size = info->size;
    memset(info, 0, sizeof *info);
    info->size = size;
    snprintf(info->name, sizeof info->name, "emu");
    info->sm_count = kg_emu_host_threads();
    long page = sysconf(_SC_PAGESIZE);
    info->mem_total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)page;
    info->mem_free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)page;
    info->smem_per_block = KG_EMU_SHARED_MAX;
    return KG_OK;
}

static int emu_alloc(void **pointer, size_t bytes)
{
    if (pointer == NULL)
        return fail(KG_E_INVALID, "alloc: NULL");
    *pointer = NULL;
    if (bytes > PTRDIFF_MAX - 256)
        return fail(KG_E_MEMORY, "alloc: the size is absurd");
    /* The exact size, so that AddressSanitizer sees the first byte past it. */
    int error = posix_memalign(pointer, 256, bytes == 0 ? 1 : bytes);
    if (error != 0) {
        *pointer = NULL;
        return fail(KG_E_MEMORY, "alloc: out of memory");
    }
    return KG_OK;
}

static int emu_release(void *pointer)
{
    free(pointer);
    return KG_OK;
}

static int emu_copy(void *to, const void *from, size_t bytes)
{
    if (bytes != 0 && (to == NULL || from == NULL))
        return fail(KG_E_INVALID, "copy: NULL");
    if (bytes != 0)
        memmove(to, from, bytes);
    return KG_OK;
}

static int emu_fill(void *device, uint8_t byte, size_t bytes)
{
    if (bytes != 0 && device == NULL)
        return fail(KG_E_INVALID, "fill: NULL");
    if (bytes != 0)
        memset(device, byte, bytes);
    return KG_OK;
}

/* A stream is an address to tell it from others by. */
static int emu_stream_create(struct CUstream_st **stream)
{
    if (stream == NULL)
        return fail(KG_E_INVALID, "stream_create: NULL");
    *stream = static_cast<struct CUstream_st *>(malloc(1));
    return *stream == NULL ? fail(KG_E_MEMORY, "stream_create: out of memory") : KG_OK;
}

static int emu_stream_destroy(struct CUstream_st *stream)
{
    free(stream);
    return KG_OK;
}

static int emu_sync(struct CUstream_st *)
{
    return KG_OK;
}

static const char *emu_last_error(void)
{
    return kg_emu_last_error();
}

extern const struct kg_device_ops kg_device_table;
const struct kg_device_ops kg_device_table = {
    sizeof(struct kg_device_ops),
    emu_count,
    emu_open,
    emu_close,
    emu_info,
    emu_alloc,
    emu_release,
    emu_copy, /* upload */
    emu_copy, /* download */
    emu_copy,
    emu_fill,
    emu_stream_create,
    emu_stream_destroy,
    emu_sync,
    NULL, /* events */
    NULL,
    NULL,
    NULL,
    NULL, /* graphs */
    NULL,
    NULL,
    NULL,
    emu_last_error,
};
