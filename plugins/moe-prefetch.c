/*
 * moe-prefetch: the cache of experts. A script of calls on a cache of its own, and what
 * each must answer; then the slots' bytes.
 */
#include <stdio.h>
#include <string.h>

#include "kgate/check.h"

enum { SLOTS = 8, BLOCK = 4096, RAGGED = 4000, MOST_READS = 4 };

struct script {
    struct kg_cell *cell;
    size_t bytes; /* of a block */
    const struct kg_expert_cache_ops *ops;
    struct kg_expert_cache *cache;
    const struct kg_device_ops *device;
    uint8_t *to; /* device memory for what the script reads out */
    int rc;      /* of the first call that failed */
    char wrong[160];
};

/* Bytes of block `id`: no two blocks, and no two 256-byte parts of one, are alike. */
static const uint8_t *block(struct kg_cell *cell, uint64_t id)
{
    uint8_t *bytes = kg_alloc(cell, BLOCK);

    for (int i = 0; i < BLOCK; i++)
        bytes[i] = (uint8_t)(id * 37 + (uint64_t)i / 256 * 11 + (uint64_t)i);
    return bytes;
}

#define EXPECT(s, condition)                                                             \
    do {                                                                                 \
        if (!(condition) && !(s)->wrong[0])                                              \
            snprintf((s)->wrong, sizeof(s)->wrong, "line %d: %s", __LINE__, #condition); \
    } while (0)

static void failed(struct script *s, int rc)
{
    if (rc && !s->rc)
        s->rc = rc;
}

static int32_t admit(struct script *s, uint64_t id, const uint64_t *keep, size_t n)
{
    int32_t slot = -1;
    failed(s, s->ops->admit(s->cache, id, block(s->cell, id), keep, n, &slot));
    return slot;
}

static int32_t dispatch(struct script *s, uint64_t id, bool want_hit)
{
    int32_t slot = -1;
    bool hit = !want_hit;
    failed(s, s->ops->dispatch(s->cache, id, block(s->cell, id), NULL, 0, &slot, &hit));
    EXPECT(s, hit == want_hit);
    return slot;
}

static bool prefetch(struct script *s, uint64_t id, const uint64_t *keep, size_t n)
{
    bool queued = false;
    failed(s, s->ops->prefetch(s->cache, id, block(s->cell, id), keep, n, &queued));
    return queued;
}

static bool is_here(struct script *s, uint64_t id)
{
    return s->ops->resident(s->cache, id) >= 0;
}

/* Copies the block's slot behind what was read before. */
static void read_out(struct script *s, uint64_t id)
{
    const void *from = s->ops->slot_pointer(s->cache, s->ops->resident(s->cache, id));
    if (from)
        failed(s, s->device->copy(s->to, from, s->bytes));
    s->to += s->bytes;
}

static struct kg_expert_cache_stats stats(struct script *s)
{
    struct kg_expert_cache_stats t = {0};
    s->ops->stats(s->cache, &t);
    return t;
}

/* A full cache, one block fetched behind its back while another is protected. */
static void publication(struct script *s)
{
    uint64_t keep = 0, next = SLOTS;

    for (uint64_t id = 0; id < SLOTS; id++)
        admit(s, id, NULL, 0);
    EXPECT(s, prefetch(s, next, &keep, 1));
    EXPECT(s, !is_here(s, next));
    EXPECT(s, is_here(s, keep));
    EXPECT(s, !is_here(s, 1));              /* the oldest that was not protected */
    EXPECT(s, !prefetch(s, next, NULL, 0)); /* under way already */
    int32_t slot = dispatch(s, next, false);
    read_out(s, next);
    EXPECT(s, s->ops->resident(s->cache, next) == slot);
    EXPECT(s, dispatch(s, next, true) == slot);
    EXPECT(s, !prefetch(s, next, NULL, 0)); /* here already */
    read_out(s, keep);
    struct kg_expert_cache_stats t = stats(s);
    EXPECT(s, t.hits == 1);
    EXPECT(s, t.misses == 1);
    EXPECT(s, t.evictions == 1);
    EXPECT(s, t.prefetches == 1);
    EXPECT(s, t.staged_bytes == (SLOTS + 1) * BLOCK);
}

/* Use decides who leaves, not age; protected blocks stay whatever their use. */
static void eviction(struct script *s)
{
    for (uint64_t id = 0; id < SLOTS; id++)
        admit(s, id, NULL, 0);
    dispatch(s, 0, true);
    dispatch(s, 1, true);
    EXPECT(s, is_here(s, 2));
    dispatch(s, 100, false); /* 2 leaves */
    EXPECT(s, !is_here(s, 2));
    EXPECT(s, is_here(s, 0) && is_here(s, 1) && is_here(s, 3));
    uint64_t keep[] = {3, 4};
    admit(s, 101, keep, 2); /* 5 leaves */
    EXPECT(s, is_here(s, 3) && is_here(s, 4) && !is_here(s, 5));
    EXPECT(s, is_here(s, 6) && s->ops->resident(s->cache, 6) >= 0); /* a look is no use */
    dispatch(s, 102, false);                                        /* 3 leaves */
    EXPECT(s, !is_here(s, 3) && is_here(s, 4));
    read_out(s, 100);
    read_out(s, 102);
    struct kg_expert_cache_stats t = stats(s);
    EXPECT(s, t.hits == 2);
    EXPECT(s, t.misses == 2);
    EXPECT(s, t.evictions == 3);
    EXPECT(s, t.staged_bytes == (SLOTS + 3) * BLOCK);
}

/* Four copies under way at one time, and no more; slots run out; a block admitted while
   it is pending; its newer bytes win. */
static void limits(struct script *s)
{
    uint64_t all[SLOTS];
    int32_t slot = 0;

    for (uint64_t id = 0; id < 4; id++)
        EXPECT(s, prefetch(s, id, NULL, 0));
    EXPECT(s, !prefetch(s, 4, NULL, 0));
    EXPECT(s, stats(s).prefetches == 4);
    for (uint64_t id = 0; id < SLOTS; id++) /* the first four are waited for */
        admit(s, all[id] = id, NULL, 0);
    EXPECT(s, s->ops->admit(s->cache, 50, block(s->cell, 50), all, SLOTS, &slot) ==
                  KG_E_MEMORY);
    EXPECT(s, !prefetch(s, 50, all, SLOTS));
    EXPECT(s, stats(s).evictions == 0);
    failed(s, s->ops->admit(s->cache, 3, block(s->cell, 77), NULL, 0, &slot));
    EXPECT(s, slot == s->ops->resident(s->cache, 3));
    EXPECT(s, s->ops->slot_pointer(s->cache, SLOTS) == NULL);
    EXPECT(s, s->ops->slot_pointer(s->cache, -1) == NULL);
    EXPECT(s, s->ops->resident(s->cache, 50) == -1);
    read_out(s, 3); /* holds 77's bytes */
    read_out(s, 7);
}

/* Four copies under way at one time, waited for in another order than they began in; each
   lane is free afterwards. Blocks are no multiple of a slot's alignment long. */
static void lanes(struct script *s)
{
    static const uint64_t order[] = {12, 10, 13, 11};

    for (uint64_t id = 10; id < 14; id++)
        EXPECT(s, prefetch(s, id, NULL, 0));
    for (int i = 0; i < 4; i++) {
        int32_t slot = dispatch(s, order[i], false);
        EXPECT(s, (uintptr_t)s->ops->slot_pointer(s->cache, slot) % 256 == 0);
        read_out(s, order[i]);
    }
    for (uint64_t id = 10; id < 14; id++)
        EXPECT(s, !prefetch(s, id, NULL, 0)); /* here, slot 0 among them */
    for (uint64_t id = 20; id < 24; id++)
        EXPECT(s, prefetch(s, id, NULL, 0));
    EXPECT(s, stats(s).prefetches == 8);
}

struct row {
    const char *id;
    void (*script)(struct script *);
    size_t bytes; /* of a block */
    int n_reads;
    uint64_t reads[MOST_READS]; /* whose bytes it reads out */
};

static const struct row rows[] = {
    {"publication", publication, BLOCK,  2, {SLOTS, 0}      },
    {"eviction",    eviction,    BLOCK,  2, {100, 102}      },
    {"limits",      limits,      BLOCK,  2, {77, 7}         },
    {"lanes",       lanes,       RAGGED, 4, {12, 10, 13, 11}},
};

static int play(struct script *s, const struct row *row, uint8_t *to,
                struct CUstream_st *stream)
{
    s->to = to;
    s->rc = s->ops->create(&s->cache, SLOTS, row->bytes, stream);
    if (s->rc)
        return s->rc;
    row->script(s);
    s->ops->destroy(s->cache);
    return s->rc;
}

static void run(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    struct script s = {.cell = cell, .bytes = row->bytes};
    size_t total = (size_t)row->n_reads * row->bytes;
    struct kg_buf *out = kg_output(cell, "slots", total);
    uint8_t *want = kg_alloc(cell, total);

    KG_ARM(cell, "cache", NULL, ({
               (void)KG_OPS(cell, expert_cache, stats);
               s.ops = kg_provider(cell)->expert_cache;
               s.device = kg_provider(cell)->device;
               play(&s, row, kg_ptr(out), kg_stream(cell));
           }));
    kg_check_that(cell, "answers", s.wrong[0] == '\0', "%s", s.wrong);
    for (int i = 0; i < row->n_reads; i++)
        memcpy(want + (size_t)i * row->bytes, block(cell, row->reads[i]), row->bytes);
    kg_check_exact(cell, "bytes", kg_fetch(out), want, total, 1);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run, &rows[i], NULL, KG_CELL_ORDERED},
                     "moe-prefetch.%s", rows[i].id);
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "moe-prefetch",
    .summary = "the cache of experts: prefetch, publication, eviction, counters",
    .plan = plan,
};
