/*
 * kgate/ops/expert_cache.h: some experts' weights in device memory, the rest on the host.
 *
 * A cache has a fixed number of slots of one size. A block of weights is known by a 64-bit
 * id of the caller's; its bytes come from the caller each time it has to be copied, and
 * are no longer needed when the call returns. A slot is
 *
 *   empty -> resident              admit, or dispatch of a block that is not here (a miss)
 *   empty -> pending -> resident   prefetch; published by the dispatch that waits for it
 *
 * and a resident block leaves when its slot is needed: the victim is the one whose last use
 * (admit, dispatch, publication) lies furthest back, of those that are not in `keep`.
 * Pending blocks are never victims.
 *
 * Streams: kernels that read slots run on the stream given to create(). A copy into a slot
 * starts after all that was launched on that stream before the call. Prefetch copies on
 * a stream of the cache's own, and work launched after the dispatch that publishes the
 * block sees its bytes.
 *
 * Functions return 0 or a negative kg_status: KG_E_INVALID for a NULL pointer, an absurd
 * size or a bad slot, KG_E_MEMORY if every slot is pending or kept, or memory is out,
 * KG_E_DEVICE and KG_E_LAUNCH as the device says. Any thread may call, one cache from
 * several threads too; a slot returned to one thread may be evicted by another's call.
 */
#ifndef KGATE_OPS_EXPERT_CACHE_H
#define KGATE_OPS_EXPERT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct kg_expert_cache;

struct kg_expert_cache_stats {
    uint64_t hits;         /* dispatches that found the block resident */
    uint64_t misses;       /* dispatches that had to copy it or wait for its prefetch */
    uint64_t evictions;    /* resident blocks that lost their slot */
    uint64_t prefetches;   /* copies that prefetch queued */
    uint64_t staged_bytes; /* bytes of all copies, queued ones included */
};

struct kg_expert_cache_ops {
    uint32_t size; /* sizeof(struct kg_expert_cache_ops) */

    /* n_slots (1 .. 65536) slots of block_bytes each, each at a multiple of 256. */
    int (*create)(struct kg_expert_cache **cache, int32_t n_slots, size_t block_bytes,
                  struct CUstream_st *stream);
    /* Waits for pending copies. NULL does nothing. */
    void (*destroy)(struct kg_expert_cache *cache);

    /* Copies the block in and makes it resident, uncounted but for staged_bytes and
       evictions. A block that is resident gets its new bytes in its slot; one that is
       pending is waited for first. */
    int (*admit)(struct kg_expert_cache *cache, uint64_t id, const void *host,
                 const uint64_t *keep, size_t n_keep, int32_t *slot);

    /* The slot that holds the block, which is resident from now on; *hit tells whether it
       was before. */
    int (*dispatch)(struct kg_expert_cache *cache, uint64_t id, const void *host,
                    const uint64_t *keep, size_t n_keep, int32_t *slot, bool *hit);

    /* Starts copying a block. *queued is false, and nothing is done, if the block is
       resident or pending, if no slot may be taken, or if four copies are under way. */
    int (*prefetch)(struct kg_expert_cache *cache, uint64_t id, const void *host,
                    const uint64_t *keep, size_t n_keep, bool *queued);

    /* The slot of a resident block, or -1. A pending block is not resident. Changes
       nothing, the order of eviction included. */
    int32_t (*resident)(struct kg_expert_cache *cache, uint64_t id);

    /* Device address of a slot; NULL for a bad number. */
    void *(*slot_pointer)(struct kg_expert_cache *cache, int32_t slot);

    void (*stats)(struct kg_expert_cache *cache, struct kg_expert_cache_stats *stats);
};

#endif
