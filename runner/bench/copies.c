#include "runner/bench/copies.h"

#include <math.h>

#include "runner/cell.h"

enum { rotations_max = 4096 };

static bool is_used(const struct kg_buf *buf)
{
    return buf->used_in == buf->cell->arm_number && buf->bytes > 0;
}

static size_t stride_of(const struct kg_buf *buf)
{
    return (buf->bytes + 255) / 256 * 256;
}

int kg_copies_wanted(const struct kg_cell *cell)
{
    const struct kg_device_info *device = &cell->host->seat.device;
    double set = 0, sides = cell->first ? 2 : 1;
    for (const struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next)
        set += is_used(buf) ? (double)stride_of(buf) : 0;
    double wanted = ceil(2 * (double)device->l2_bytes / fmax(set, 1)) + 1;
    double fits = floor((double)device->mem_free / 2 / sides / fmax(set, 1));
    return (int)fmax(1, fmin(rotations_max, fmin(wanted, fits)));
}

/* From the cell's own provider to the other one: device pointers of one need not mean
   anything to the other, so by way of the host. */
static void carry_over(struct kg_buf *buf, const uint8_t *from, int count)
{
    struct kg_cell *cell = buf->cell;
    const struct kg_host *host = cell->host;
    struct kg_block *block = kg_cell_block(cell, buf->bytes, false);
    kg_cell_device(cell,
                   host->other.provider->device->download(block->start, from, buf->bytes),
                   "copies of", buf->name);
    for (int i = 0; i < count; i++)
        kg_cell_device(cell,
                       host->seat.provider->device->upload(buf->copies[host->swapped] +
                                                               buf->stride * (size_t)i,
                                                           block->start, buf->bytes),
                       "copies of", buf->name);
}

static void copy_buffer(struct kg_buf *buf, int count)
{
    struct kg_cell *cell = buf->cell;
    const struct kg_device_ops *d = cell->host->seat.provider->device;
    void *copies = NULL;
    buf->stride = stride_of(buf);
    kg_cell_device(cell, d->alloc(&copies, buf->stride * (size_t)count), "copies of",
                   buf->name);
    uint8_t *to = buf->copies[cell->host->swapped] = copies;
    const uint8_t *from = buf->origin ? buf->origin : buf->base + KG_GUARD_BYTES;
    bool is_own = cell->host->swapped == (cell->first != NULL);
    if (buf->kind == KG_BUF_OUTPUT || buf->kind == KG_BUF_SCRATCH)
        kg_cell_device(cell, d->fill(to, KG_POISON, buf->stride * (size_t)count),
                       "poisoning of", buf->name);
    else if (!is_own)
        carry_over(buf, from, count);
    else
        for (int i = 0; i < count; i++)
            kg_cell_device(cell, d->copy(to + buf->stride * (size_t)i, from, buf->bytes),
                           "copies of", buf->name);
}

void kg_copies_make(struct kg_cell *cell, int count)
{
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next)
        if (is_used(buf))
            copy_buffer(buf, count);
}

void kg_copies_turn(struct kg_cell *cell, int rotation)
{
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next)
        if (buf->copies[cell->host->swapped])
            buf->current =
                buf->copies[cell->host->swapped] + buf->stride * (size_t)rotation;
}

void kg_copies_drop(struct kg_cell *cell)
{
    const struct kg_host *host = cell->host;
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next) {
        for (int side = 0; side < 2; side++) {
            const struct kg_seat *seat =
                side == host->swapped ? &host->seat : &host->other;
            if (buf->copies[side] && !host->device_lost)
                seat->provider->device->release(buf->copies[side]);
            buf->copies[side] = NULL;
        }
        buf->current = buf->base + KG_GUARD_BYTES;
    }
}
