/*
 * kgate/device/host.h: a device table for an engine that works in host memory, to be taken
 * over by an adapter. What the engine does its own way it gives to KG_HOST_DEVICE:
 *
 *     static const struct kg_device_ops device =
 *         KG_HOST_DEVICE(my_open, my_close, my_alloc, my_release, my_last_error);
 *
 * The parameters have the types of the members of struct kg_device_ops. There is one device,
 * streams are NULL, and nothing is timed.
 */
#ifndef KGATE_DEVICE_HOST_H
#define KGATE_DEVICE_HOST_H

#include <stdio.h>
#include <string.h>

#include "kgate/ops/device.h"
#include "kgate/status.h"

static inline int kg_host_count(int *n)
{
    *n = 1;
    return KG_OK;
}

/* cc_major stays 0: not a GPU. */
static inline int kg_host_info(struct kg_device_info *info)
{
    snprintf(info->name, sizeof info->name, "host memory");
    return KG_OK;
}

static inline int kg_host_move(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
    return KG_OK;
}

static inline int kg_host_fill(void *p, uint8_t byte, size_t bytes)
{
    memset(p, byte, bytes);
    return KG_OK;
}

static inline int kg_host_stream_create(struct CUstream_st **stream)
{
    *stream = NULL;
    return KG_OK;
}

static inline int kg_host_stream(struct CUstream_st *stream)
{
    (void)stream;
    return KG_OK;
}

#define KG_HOST_DEVICE(open_, close_, alloc_, release_, last_error_)                     \
    {                                                                                    \
        .size = sizeof(struct kg_device_ops), .count = kg_host_count, .open = (open_),   \
        .close = (close_), .info = kg_host_info, .alloc = (alloc_),                      \
        .release = (release_), .upload = kg_host_move, .download = kg_host_move,         \
        .copy = kg_host_move, .fill = kg_host_fill,                                      \
        .stream_create = kg_host_stream_create, .stream_destroy = kg_host_stream,        \
        .sync = kg_host_stream, .event_create = NULL, .event_destroy = NULL,             \
        .event_record = NULL, .event_elapsed_us = NULL, .graph_begin = NULL,             \
        .graph_end = NULL, .graph_launch = NULL, .graph_destroy = NULL,                  \
        .last_error = (last_error_),                                                     \
    }

#endif
