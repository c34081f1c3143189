/*
 * kgate/ops/device.h: what a provider tells and does of its device.
 *
 * One device is open at a time. Every function returns 0 or a negative kg_status; after
 * KG_E_DEVICE only last_error() and close() may be called. Memory is addressed by the
 * plain device pointers that the launchers take.
 */
#ifndef KGATE_OPS_DEVICE_H
#define KGATE_OPS_DEVICE_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st; /* a CUDA stream, or the emulation's; NULL is the default stream */
struct CUevent_st;
struct CUgraphExec_st;

struct kg_device_info {
    uint32_t size;    /* sizeof(struct kg_device_info), set by the caller */
    char name[128];   /* "NVIDIA H200", "emu" */
    int32_t cc_major; /* compute capability; 0.0 on the emulated device */
    int32_t cc_minor;
    int32_t sm_count;   /* multiprocessors; host threads on the emulated device */
    uint64_t mem_total; /* bytes */
    uint64_t mem_free;
    uint64_t l2_bytes;
    uint32_t smem_per_block; /* bytes, with the opt-in limit */
    char driver[64];         /* "580.159.04" or "13.0"; empty on the emulated device */
    char runtime[64];
    char uuid[64];
    char pci_bus_id[32]; /* for NVML; empty on the emulated device */
};

struct kg_open_options {
    uint32_t size;
    int32_t ordinal;
    uint64_t schedule_seed; /* emulated device: 0 runs threads in order, else shuffled */
    int32_t host_threads;   /* emulated device: 0 takes every processor */
};

struct kg_device_ops {
    uint32_t size; /* sizeof(struct kg_device_ops) */

    /* Devices present. 0 with KG_OK is a machine without one. */
    int (*count)(int *n_devices);
    int (*open)(const struct kg_open_options *options);
    void (*close)(void);
    int (*info)(struct kg_device_info *info);

    int (*alloc)(void **pointer, size_t bytes); /* aligned to at least 256 bytes */
    int (*release)(void *pointer);
    int (*upload)(void *device, const void *host, size_t bytes);   /* host to device */
    int (*download)(void *host, const void *device, size_t bytes); /* device to host */
    int (*copy)(void *to, const void *from, size_t bytes);         /* device to device */
    int (*fill)(void *device, uint8_t byte, size_t bytes);
    /* These five are complete when they return, and ordered after all work on every
     * stream. */

    int (*stream_create)(struct CUstream_st **stream);
    int (*stream_destroy)(struct CUstream_st *stream);
    int (*sync)(
        struct CUstream_st *stream); /* waits; reports faults of earlier launches */

    /* Timing. Optional: NULL where time on the device has no meaning (the emulation). */
    int (*event_create)(struct CUevent_st **event);
    int (*event_destroy)(struct CUevent_st *event);
    int (*event_record)(struct CUevent_st *event, struct CUstream_st *stream);
    int (*event_elapsed_us)(struct CUevent_st *from, struct CUevent_st *to, double *us);
    int (*graph_begin)(
        struct CUstream_st *stream); /* capture what is launched on stream */
    int (*graph_end)(struct CUstream_st *stream, struct CUgraphExec_st **graph);
    int (*graph_launch)(struct CUgraphExec_st *graph, struct CUstream_st *stream);
    int (*graph_destroy)(struct CUgraphExec_st *graph);

    /* One line about the last failure on this thread; "" if there was none. */
    const char *(*last_error)(void);
};

#endif
