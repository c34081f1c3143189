/*
 * emu/shared.cc: block-shared memory.
 *
 * Arrays are cut from the worker's arena as the block first meets them, each between two
 * guard zones. Data and guards start as 0xFF bytes: NaN in f32, f16, bf16 and fp8, -1 in
 * integers.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

static const size_t guard_bytes = 128;
static const size_t max_slots = 64;
static const size_t arena_bytes = KG_EMU_SHARED_MAX + (max_slots + 1) * 3 * guard_bytes;

void kg_emu_shared_reset(struct kg_emu_worker *worker)
{
    if (worker->arena == NULL) {
        worker->arena = static_cast<unsigned char *>(aligned_alloc(128, arena_bytes));
        if (worker->arena == NULL)
            abort();
        worker->arena_used = arena_bytes;
    }
    POISON(worker->arena, worker->arena_used);
    worker->arena_used = 0;
    worker->static_bytes = 0;
    worker->shared.clear();
}

static unsigned char *take(struct kg_emu_worker *worker,
                           const struct kg_emu_shared_tag *tag, size_t bytes,
                           size_t align)
{
    const char *name = tag == NULL ? "dynamic shared memory" : tag->name;
    size_t total = worker->static_bytes + (tag == NULL ? 0 : worker->job->dynamic_bytes);
    if (tag != NULL) {
        total += bytes;
        worker->static_bytes += bytes;
        if (worker->static_bytes > KG_EMU_SHARED_STATIC_MAX)
            kg_emu_fault("static shared memory exceeds %u bytes with array %s",
                         KG_EMU_SHARED_STATIC_MAX, name);
    }
    if (total > KG_EMU_SHARED_MAX || align > guard_bytes ||
        worker->shared.size() >= max_slots)
        kg_emu_fault("shared memory exceeds %u bytes with %s", KG_EMU_SHARED_MAX, name);
    /* In 128-byte steps: [guard][data, rounded up][guard]. */
    size_t rounded = (bytes + guard_bytes - 1) / guard_bytes * guard_bytes;
    unsigned char *base = worker->arena + worker->arena_used;
    UNPOISON(base, rounded + 2 * guard_bytes);
    memset(base, 0xff, rounded + 2 * guard_bytes);
    unsigned char *data = base + guard_bytes;
    POISON(base, guard_bytes);
    POISON(data + bytes, rounded - bytes + guard_bytes);
    worker->arena_used += rounded + 2 * guard_bytes;
    worker->shared.push_back({tag, data, bytes});
    return data;
}

void *kg_emu_shared(const struct kg_emu_shared_tag *tag)
{
    struct kg_emu_worker *worker = kg_emu_current;
    for (const kg_emu_shared_slot &slot : worker->shared)
        if (slot.tag == tag)
            return slot.data;
    return take(worker, tag, tag->bytes, tag->align);
}

unsigned char *kg_emu_shared_dynamic(void)
{
    struct kg_emu_worker *worker = kg_emu_current;
    for (const kg_emu_shared_slot &slot : worker->shared)
        if (slot.tag == NULL)
            return slot.data;
    return take(worker, NULL, worker->job->dynamic_bytes, 128);
}

const char *kg_emu_shared_check(struct kg_emu_worker *worker)
{
    for (const kg_emu_shared_slot &slot : worker->shared) {
        size_t rounded = (slot.bytes + guard_bytes - 1) / guard_bytes * guard_bytes;
        unsigned char *end = slot.data + rounded + guard_bytes;
        UNPOISON(slot.data - guard_bytes, (size_t)(end - slot.data) + guard_bytes);
        bool intact = true;
        for (unsigned char *p = slot.data - guard_bytes; p < slot.data; p++)
            intact = intact && *p == 0xff;
        for (unsigned char *p = slot.data + slot.bytes; p < end; p++)
            intact = intact && *p == 0xff;
        if (!intact)
            return slot.tag == NULL ? "dynamic shared memory" : slot.tag->name;
    }
    return NULL;
}
