/*
 * emu/device_ops.cc: the emulated device behind kgate/ops/device.h.
 *
 * Device memory is host memory. There is always one device, always idle: launches are
 * complete when they return. Events and graphs are left out, as time means nothing here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* What lies in front of the memory of an allocation that has a page of its own behind it. */
struct mapping {
    void *base;
    size_t bytes;
};

/*
 * With a page behind that must not be touched: what a kernel reads or writes there ends the
 * process, as it ends the context of a GPU. The end is as close to that page as an alignment
 * of 256 lets it. AddressSanitizer sees more in memory from the heap, to the byte.
 */
static int map_guarded(void **pointer, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t used = (bytes + 255) / 256 * 256;
    const size_t total = (used + 256 + page - 1) / page * page + page;
    void *base = mmap(NULL, total, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return KG_E_MEMORY;
    char *end = static_cast<char *>(base) + total - page;
    if (mprotect(end, page, PROT_NONE) != 0) {
        munmap(base, total);
        return KG_E_MEMORY;
    }
    *pointer = end - used;
    static_cast<struct mapping *>(*pointer)[-1] = {base, total};
    return KG_OK;
}

static int emu_alloc(void **pointer, size_t bytes)
{
    if (pointer == NULL)
        return fail(KG_E_INVALID, "alloc: NULL");
    *pointer = NULL;
    if (bytes > PTRDIFF_MAX / 2)
        return fail(KG_E_MEMORY, "alloc: the size is absurd");
#if defined(__SANITIZE_ADDRESS__)
    int error = posix_memalign(pointer, 256, bytes == 0 ? 1 : bytes);
#else
    int error = map_guarded(pointer, bytes);
#endif
    if (error != 0) {
        *pointer = NULL;
        return fail(KG_E_MEMORY, "alloc: out of memory");
    }
    return KG_OK;
}

static int emu_release(void *pointer)
{
#if defined(__SANITIZE_ADDRESS__)
    free(pointer);
#else
    if (pointer != NULL) {
        const struct mapping m = static_cast<struct mapping *>(pointer)[-1];
        munmap(m.base, m.bytes);
    }
#endif
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
