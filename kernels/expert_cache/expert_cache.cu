/*
 * The cache of experts' weights: kgate/ops/expert_cache.h says what it does.
 *
 * Host code, the same for both providers; copier.h hides how bytes travel. One lock
 * covers a cache. `use` of a slot is the number of the call that last used it, which orders
 * evictions; a search for a victim looks at every slot, which costs nothing beside the copy
 * that follows.
 */
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "kernels/expert_cache/copier.h"
#include "kgate/ops/device.h"
#include "kgate/ops/expert_cache.h"

extern const struct kg_device_ops kg_device_table;

enum slot_state { SLOT_EMPTY, SLOT_RESIDENT, SLOT_PENDING };

struct slot {
    uint64_t id;
    uint64_t use;
    enum slot_state state;
    int lane; /* of a pending slot's copy */
};

struct kg_expert_cache {
    std::mutex lock;
    class copier copier;
    std::vector<struct slot> slots;
    std::unordered_map<uint64_t, int32_t> index; /* resident and pending blocks */
    bool lane_used[COPIER_LANES] = {};
    unsigned char *memory = nullptr;
    size_t block_bytes = 0, stride = 0;
    uint64_t calls = 0;
    struct kg_expert_cache_stats stats = {};

    void *address(int32_t slot)
    {
        return memory + stride * (size_t)slot;
    }
    int32_t find(uint64_t id)
    {
        auto at = index.find(id);
        return at == index.end() ? -1 : at->second;
    }
};

static bool is_kept(uint64_t id, const uint64_t *keep, size_t n_keep)
{
    for (size_t i = 0; i < n_keep; i++)
        if (keep[i] == id)
            return true;
    return false;
}

/* An empty slot, else the resident one that was not used for longest, which is emptied; -1
   if there is none that may be taken. */
static int32_t take_slot(struct kg_expert_cache *c, const uint64_t *keep, size_t n_keep)
{
    int32_t victim = -1;
    for (size_t i = 0; i < c->slots.size(); i++) {
        const struct slot &s = c->slots[i];
        if (s.state == SLOT_EMPTY)
            return (int32_t)i;
        if (s.state == SLOT_RESIDENT && !is_kept(s.id, keep, n_keep) &&
            (victim < 0 || s.use < c->slots[(size_t)victim].use))
            victim = (int32_t)i;
    }
    if (victim >= 0) {
        c->index.erase(c->slots[(size_t)victim].id);
        c->slots[(size_t)victim].state = SLOT_EMPTY;
        c->stats.evictions++;
    }
    return victim;
}

/* Waits for a pending block and makes it resident. */
static int publish(struct kg_expert_cache *c, int32_t at)
{
    struct slot &s = c->slots[(size_t)at];
    KG_TRY(c->copier.join(s.lane));
    c->lane_used[s.lane] = false;
    s.state = SLOT_RESIDENT;
    s.use = ++c->calls;
    return KG_OK;
}

/* Copies the block in, into its slot or a free one, and makes it resident. */
static int fill(struct kg_expert_cache *c, uint64_t id, const void *host,
                const uint64_t *keep, size_t n_keep, int32_t *slot)
{
    int32_t at = c->find(id);
    if (at < 0) {
        at = take_slot(c, keep, n_keep);
        if (at < 0)
            return KG_E_MEMORY;
        c->index.emplace(id, at);
    }
    struct slot &s = c->slots[(size_t)at];
    int rc = c->copier.now(c->address(at), host);
    if (rc) {
        c->index.erase(id);
        s.state = SLOT_EMPTY;
        return rc;
    }
    c->stats.staged_bytes += c->block_bytes;
    s.id = id;
    s.state = SLOT_RESIDENT;
    s.use = ++c->calls;
    *slot = at;
    return KG_OK;
}

static void destroy(struct kg_expert_cache *c)
{
    if (!c)
        return;
    c->copier.close();
    if (c->memory)
        (void)kg_device_table.release(c->memory);
    delete c;
}

static int create(struct kg_expert_cache **cache, int32_t n_slots, size_t block_bytes,
                  struct CUstream_st *stream)
{
    if (!cache || n_slots < 1 || n_slots > 65536 || block_bytes < 1 ||
        block_bytes > PTRDIFF_MAX / 65536 - 256)
        return KG_E_INVALID;
    *cache = nullptr;
    struct kg_expert_cache *c = new (std::nothrow) kg_expert_cache;
    if (!c)
        return KG_E_MEMORY;
    c->block_bytes = block_bytes;
    c->stride = (block_bytes + 255) / 256 * 256;
    int rc = KG_OK;
    try {
        c->slots.resize((size_t)n_slots);
        c->index.reserve((size_t)n_slots);
    } catch (const std::bad_alloc &) {
        rc = KG_E_MEMORY;
    }
    if (!rc) {
        void *memory = nullptr;
        rc = kg_device_table.alloc(&memory, c->stride * (size_t)n_slots);
        c->memory = (unsigned char *)memory;
    }
    if (!rc)
        rc = c->copier.open(block_bytes, stream);
    if (rc) {
        destroy(c);
        return rc;
    }
    *cache = c;
    return KG_OK;
}

static int admit(struct kg_expert_cache *c, uint64_t id, const void *host,
                 const uint64_t *keep, size_t n_keep, int32_t *slot)
{
    if (!c || !host || !slot || (n_keep > 0 && !keep))
        return KG_E_INVALID;
    std::lock_guard<std::mutex> lock(c->lock);
    const int32_t at = c->find(id);
    if (at >= 0 && c->slots[(size_t)at].state == SLOT_PENDING)
        KG_TRY(publish(c, at));
    try {
        return fill(c, id, host, keep, n_keep, slot);
    } catch (const std::bad_alloc &) {
        return KG_E_MEMORY;
    }
}

static int dispatch(struct kg_expert_cache *c, uint64_t id, const void *host,
                    const uint64_t *keep, size_t n_keep, int32_t *slot, bool *hit)
{
    if (!c || !host || !slot || !hit || (n_keep > 0 && !keep))
        return KG_E_INVALID;
    std::lock_guard<std::mutex> lock(c->lock);
    const int32_t at = c->find(id);
    *hit = at >= 0 && c->slots[(size_t)at].state == SLOT_RESIDENT;
    if (*hit) {
        c->slots[(size_t)at].use = ++c->calls;
        c->stats.hits++;
        *slot = at;
        return KG_OK;
    }
    c->stats.misses++;
    if (at >= 0) {
        *slot = at;
        return publish(c, at);
    }
    try {
        return fill(c, id, host, keep, n_keep, slot);
    } catch (const std::bad_alloc &) {
        return KG_E_MEMORY;
    }
}

static int prefetch(struct kg_expert_cache *c, uint64_t id, const void *host,
                    const uint64_t *keep, size_t n_keep, bool *queued)
{
    if (!c || !host || !queued || (n_keep > 0 && !keep))
        return KG_E_INVALID;
    *queued = false;
    std::lock_guard<std::mutex> lock(c->lock);
    int lane = 0;
    while (lane < COPIER_LANES && c->lane_used[lane])
        lane++;
    if (c->find(id) >= 0 || lane == COPIER_LANES)
        return KG_OK;
    const int32_t at = take_slot(c, keep, n_keep);
    if (at < 0)
        return KG_OK;
    try {
        c->index.emplace(id, at);
    } catch (const std::bad_alloc &) {
        return KG_E_MEMORY;
    }
    struct slot &s = c->slots[(size_t)at];
    int rc = c->copier.start(lane, c->address(at), host);
    if (rc) {
        c->index.erase(id);
        return rc;
    }
    c->lane_used[lane] = true;
    s.id = id;
    s.state = SLOT_PENDING;
    s.lane = lane;
    c->stats.prefetches++;
    c->stats.staged_bytes += c->block_bytes;
    *queued = true;
    return KG_OK;
}

static int32_t resident(struct kg_expert_cache *c, uint64_t id)
{
    if (!c)
        return -1;
    std::lock_guard<std::mutex> lock(c->lock);
    const int32_t at = c->find(id);
    return at >= 0 && c->slots[(size_t)at].state == SLOT_RESIDENT ? at : -1;
}

static void *slot_pointer(struct kg_expert_cache *c, int32_t slot)
{
    /* The table of slots does not change after create(). */
    if (!c || slot < 0 || (size_t)slot >= c->slots.size())
        return nullptr;
    return c->address(slot);
}

static void stats(struct kg_expert_cache *c, struct kg_expert_cache_stats *out)
{
    if (!c || !out)
        return;
    std::lock_guard<std::mutex> lock(c->lock);
    *out = c->stats;
}

extern const struct kg_expert_cache_ops kg_expert_cache_table;
const struct kg_expert_cache_ops kg_expert_cache_table = {
    sizeof(struct kg_expert_cache_ops),
    create,
    destroy,
    admit,
    dispatch,
    prefetch,
    resident,
    slot_pointer,
    stats,
};
