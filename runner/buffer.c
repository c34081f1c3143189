/*
 * Device buffers between guards.
 *
 * One allocation holds guard, payload, guard. The guard behind starts right after the
 * last byte of the payload, whatever its alignment, and runs to the end of the
 * allocation. The bytes of inputs are kept, so that a kernel that writes to one shows.
 */
#define XXH_INLINE_ALL
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "runner/cell.h"

#define CHUNK ((size_t)1 << 20) /* of an input that is read back */

static const struct kg_device_ops *device_of(const struct kg_cell *cell)
{
    return cell->host->seat.provider->device;
}

static uint8_t *primary(const struct kg_buf *buf)
{
    return buf->base + KG_GUARD_BYTES;
}

static size_t rear_bytes(const struct kg_buf *buf)
{
    return buf->total - KG_GUARD_BYTES - buf->bytes;
}

/* Poison for what the kernel writes, the host's bytes for what it reads. */
static void set_content(struct kg_buf *buf)
{
    struct kg_cell *cell = buf->cell;
    const struct kg_device_ops *d = device_of(cell);
    if (buf->bytes == 0)
        return;
    if (buf->kind == KG_BUF_OUTPUT || buf->kind == KG_BUF_SCRATCH)
        kg_cell_device(cell, d->fill(primary(buf), KG_POISON, buf->bytes), "poisoning of",
                       buf->name);
    else if (buf->kind == KG_BUF_INOUT)
        kg_cell_device(cell, d->copy(primary(buf), buf->origin, buf->bytes), "copy of",
                       buf->name);
    else
        kg_cell_device(cell, d->upload(primary(buf), buf->host, buf->bytes), "upload of",
                       buf->name);
}

static struct kg_buf *create(struct kg_cell *cell, enum kg_buf_kind kind,
                             const char *function, const char *name, const void *host,
                             size_t bytes)
{
    kg_cell_outside_arm(cell, function);
    bool has_bytes = kind == KG_BUF_INPUT || kind == KG_BUF_INOUT;
    name = kg_cell_name(cell, "a buffer", name);
    if (bytes > SIZE_MAX / 2)
        kg_cell_misuse(cell, "%s %s of %zu bytes", function, name, bytes);
    if (has_bytes && host == NULL && bytes > 0)
        kg_cell_misuse(cell, "%s %s without bytes", function, name);

    double start = kg_seconds_now();
    const struct kg_device_ops *d = device_of(cell);
    struct kg_buf *buf = kg_alloc(cell, sizeof *buf);
    *buf = (struct kg_buf){
        .cell = cell,
        .kind = kind,
        .name = name,
        .bytes = bytes,
        .guard = kind == KG_BUF_OUTPUT ? KG_GUARD_OUTPUT : KG_POISON,
        .total = KG_GUARD_BYTES + (bytes + 255) / 256 * 256 + KG_GUARD_BYTES,
        .host = host,
    };
    void *pointer = NULL;
    kg_cell_device(cell, d->alloc(&pointer, buf->total), "allocation of", name);
    buf->base = pointer;
    buf->current = primary(buf);
    *cell->buffers_tail = buf; /* from here on the cell's end releases it */
    cell->buffers_tail = &buf->next;

    kg_cell_device(cell, d->fill(buf->base, buf->guard, KG_GUARD_BYTES), "guarding of",
                   name);
    kg_cell_device(cell, d->fill(primary(buf) + bytes, buf->guard, rear_bytes(buf)),
                   "guarding of", name);
    if (kind == KG_BUF_INPUT && bytes > 0 && bytes <= KG_VERIFY_BYTES_MAX) {
        buf->verified = true;
        buf->content = XXH3_64bits(host, bytes);
        /* A copy: the cell's array may be gone when the buffer is verified. */
        buf->host = memcpy(kg_cell_block(cell, bytes, false)->start, host, bytes);
        cell->inputs = XXH3_64bits_withSeed(&buf->content, sizeof buf->content,
                                            cell->inputs + bytes);
    }
    if (kind == KG_BUF_INOUT && bytes > 0) {
        kg_cell_device(cell, d->alloc(&pointer, bytes), "allocation of", name);
        buf->origin = pointer;
        kg_cell_device(cell, d->upload(buf->origin, host, bytes), "upload of", name);
    }
    set_content(buf);
    cell->times.upload += kg_seconds_now() - start;
    return buf;
}

struct kg_buf *kg_input(struct kg_cell *cell, const char *name, const void *host,
                        size_t bytes)
{
    return create(cell, KG_BUF_INPUT, "kg_input", name, host, bytes);
}

struct kg_buf *kg_output(struct kg_cell *cell, const char *name, size_t bytes)
{
    return create(cell, KG_BUF_OUTPUT, "kg_output", name, NULL, bytes);
}

struct kg_buf *kg_inout(struct kg_cell *cell, const char *name, const void *host,
                        size_t bytes)
{
    return create(cell, KG_BUF_INOUT, "kg_inout", name, host, bytes);
}

struct kg_buf *kg_scratch(struct kg_cell *cell, const char *name, size_t bytes)
{
    return create(cell, KG_BUF_SCRATCH, "kg_scratch", name, NULL, bytes);
}

void *kg_ptr(struct kg_buf *buf)
{
    if (buf == NULL)
        return NULL;
    const struct kg_cell *cell = buf->cell;
    if (cell->arm_state == KG_ARM_RUNNING)
        buf->used_in = cell->arm_number;
    return buf->current;
}

void kg_reset(struct kg_buf *buf)
{
    struct kg_cell *cell = buf->cell;
    kg_cell_outside_arm(cell, "kg_reset");
    double start = kg_seconds_now();
    if (buf->kind != KG_BUF_INPUT) /* its bytes are verified to be the first ones */
        set_content(buf);
    buf->fetched_at = 0;
    buf->fetched = NULL;
    buf->used_in = 0;
    cell->times.upload += kg_seconds_now() - start;
}

const void *kg_fetch(struct kg_buf *buf)
{
    struct kg_cell *cell = buf->cell;
    kg_cell_outside_arm(cell, "kg_fetch");
    if (cell->arm_number == 0)
        kg_cell_misuse(cell, "kg_fetch of %s before any arm ran", buf->name);
    if (buf->fetched_at == cell->arm_number)
        return buf->fetched;
    /* Fetched, then handed to a later arm, then fetched again: the poison is long gone,
       and an arm that writes nothing would pass on its predecessor's results. */
    if (buf->kind == KG_BUF_OUTPUT && buf->fetched_at != 0 &&
        buf->used_in > buf->fetched_at)
        kg_cell_misuse(cell,
                       "output %s was fetched, used by arm %s without a kg_reset, and "
                       "fetched again",
                       buf->name, cell->arm);

    double start = kg_seconds_now();
    struct kg_block *block = kg_cell_block(cell, buf->bytes, false);
    if (buf->bytes > 0)
        kg_cell_device(cell,
                       device_of(cell)->download(block->start, primary(buf), buf->bytes),
                       "download of", buf->name);
    block->output = buf->kind != KG_BUF_INPUT;
    buf->fetched_at = cell->arm_number;
    buf->fetched = block->start;
    cell->times.download += kg_seconds_now() - start;
    if (buf->kind == KG_BUF_OUTPUT || buf->kind == KG_BUF_INOUT)
        kg_digest_record(cell, buf, block->start);
    return block->start;
}

/* ---- verification ---- */

static const char *kind_name(enum kg_buf_kind kind)
{
    static const char *const names[] = {"input", "output", "inout", "scratch"};
    return names[kind];
}

/* Reports a write that should not be and leaves the cell: what other buffers hold after
   it means nothing. */
KG_NORETURN static void stray(struct kg_buf *buf, const char *when, const char *prefix,
                              const char *what, uint64_t first, uint64_t bad,
                              uint64_t count)
{
    struct kg_cell *cell = buf->cell;
    char name[KG_NAME_MAX + 16];
    char failure[512];
    snprintf(name, sizeof name, "%s.%s", prefix, buf->name);
    snprintf(failure, sizeof failure,
             "%s: %s %s %s, first at byte %llu of it, %llu bytes changed", when, what,
             kind_name(buf->kind), buf->name, (unsigned long long)first,
             (unsigned long long)bad);
    struct kg_check check = {
        .name = name,
        .class_name = "exact",
        .metric = "differing-bytes",
        .value = (double)bad,
        .margin = HUGE_VAL,
        .bad = bad,
        .count = count,
        .text = failure,
    };
    kg_check_report(cell, &check, failure);
    /* The detail is the failed check; nothing to add. */
    kg_cell_leave(cell, KG_FAIL, "check-failed", "%s", "");
}

static void verify_guard(struct kg_buf *buf, const char *when, bool behind)
{
    struct kg_cell *cell = buf->cell;
    uint8_t bytes[KG_GUARD_BYTES + 256];
    size_t count = behind ? rear_bytes(buf) : KG_GUARD_BYTES;
    const uint8_t *from = behind ? primary(buf) + buf->bytes : buf->base;
    kg_cell_device(cell, device_of(cell)->download(bytes, from, count), "guards of",
                   buf->name);
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == buf->guard)
            continue;
        /* Distance from the payload: behind, 0 is the byte after its end; in front, 1 is
           the byte before its start. */
        if (bad++ == 0 || !behind)
            first = behind ? i : KG_GUARD_BYTES - i;
    }
    if (bad > 0 && behind)
        stray(buf, when, "guard", "stray write behind", buf->bytes + first, bad, count);
    if (bad > 0)
        stray(buf, when, "guard", "stray write in front of (counted backwards)", first,
              bad, count);
}

static void verify_input(struct kg_buf *buf, const char *when)
{
    struct kg_cell *cell = buf->cell;
    if (!buf->verified || buf->bytes == 0)
        return;
    if (cell->chunk == NULL)
        cell->chunk = kg_cell_block(cell, CHUNK, false)->start;
    uint8_t *chunk = cell->chunk;
    uint64_t bad = 0, first = 0;
    const uint8_t *host = buf->host;
    for (size_t at = 0; at < buf->bytes; at += CHUNK) {
        size_t n = buf->bytes - at < CHUNK ? buf->bytes - at : CHUNK;
        kg_cell_device(cell, device_of(cell)->download(chunk, primary(buf) + at, n),
                       "verification of", buf->name);
        if (memcmp(chunk, host + at, n) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (chunk[i] != host[at + i] && bad++ == 0)
                first = at + i;
    }
    if (bad > 0)
        stray(buf, when, "input", "write to", first, bad, buf->bytes);
}

void kg_buffers_verify_arm(struct kg_cell *cell)
{
    double start = kg_seconds_now();
    char when[KG_NAME_MAX + 16];
    snprintf(when, sizeof when, "after arm %s", cell->arm);
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next) {
        verify_guard(buf, when, false);
        verify_guard(buf, when, true);
        if (buf->used_in == cell->arm_number && buf->bytes <= KG_VERIFY_ARM_MAX)
            verify_input(buf, when);
    }
    cell->times.download += kg_seconds_now() - start;
}

void kg_buffers_verify_all(struct kg_cell *cell)
{
    double start = kg_seconds_now();
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next) {
        verify_guard(buf, "at the end", false);
        verify_guard(buf, "at the end", true);
        verify_input(buf, "at the end");
    }
    cell->times.download += kg_seconds_now() - start;
}

int kg_buffers_release(struct kg_cell *cell)
{
    const struct kg_device_ops *d = cell->buffers != NULL ? device_of(cell) : NULL;
    int first = 0;
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next) {
        void *parts[2] = {buf->base, buf->origin};
        for (int i = 0; i < 2; i++) {
            if (parts[i] == NULL || cell->host->device_lost || first == KG_E_DEVICE)
                continue;
            int rc = d->release(parts[i]);
            if (rc != 0 && first == 0)
                first = rc;
        }
    }
    cell->buffers = NULL;
    cell->buffers_tail = &cell->buffers;
    return first;
}
