/*
 * The cache of experts' weights on the emulated device, under ThreadSanitizer.
 *
 *   test_expert_cache          one thread reads four blocks again and again while two
 *                              others push blocks through the same cache; every byte read
 *                              must be the block's, and the counters must add up
 *   test_expert_cache early    reads the slots while a copy is under way, without the wait:
 *                              ThreadSanitizer must end this with a data race
 *
 * The cache's source is compiled into the test, so that it is instrumented whatever the
 * build is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <thread>

#include "kernels/expert_cache/expert_cache.cu"

static int test_alloc(void **pointer, size_t bytes)
{
    *pointer = malloc(bytes);
    return *pointer ? KG_OK : KG_E_MEMORY;
}

static int test_release(void *pointer)
{
    free(pointer);
    return KG_OK;
}

static struct kg_device_ops memory_only()
{
    struct kg_device_ops ops = {};
    ops.size = sizeof ops;
    ops.alloc = test_alloc;
    ops.release = test_release;
    return ops;
}
const struct kg_device_ops kg_device_table = memory_only();

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

enum { SLOTS = 8, BLOCK = 4096, READ = 4, ROUNDS = 2000, PUSHERS = 2 };

static const struct kg_expert_cache_ops &ops = kg_expert_cache_table;
static const uint64_t kept[READ] = {0, 1, 2, 3};
static std::atomic<uint64_t> n_dispatched, n_queued;

static void make(unsigned char *bytes, uint64_t id)
{
    for (int i = 0; i < BLOCK; i++)
        bytes[i] = (unsigned char)(id * 37 + (uint64_t)i);
}

static void read_blocks(struct kg_expert_cache *cache)
{
    unsigned char bytes[BLOCK];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t id = kept[i % READ];
        int32_t slot;
        bool hit;
        make(bytes, id);
        CHECK(ops.dispatch(cache, id, bytes, kept, READ, &slot, &hit) == KG_OK);
        CHECK(hit == (i >= READ)); /* the others may not evict it */
        CHECK(memcmp(ops.slot_pointer(cache, slot), bytes, BLOCK) == 0);
        n_dispatched++;
    }
}

static void push_blocks(struct kg_expert_cache *cache, uint64_t first)
{
    unsigned char bytes[BLOCK];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t id = first + (uint64_t)(i * 7 % 23);
        int32_t slot;
        bool flag;
        make(bytes, id);
        CHECK(ops.prefetch(cache, id, bytes, kept, READ, &flag) == KG_OK);
        n_queued += flag;
        memset(bytes, 0xee, sizeof bytes); /* free again: the cache has its own copy */
        make(bytes, id);
        CHECK(ops.dispatch(cache, id, bytes, kept, READ, &slot, &flag) == KG_OK);
        n_dispatched++;
        CHECK(ops.resident(cache, id) < SLOTS);
    }
}

static void under_load(void)
{
    struct kg_expert_cache *cache;
    CHECK(ops.create(&cache, SLOTS, BLOCK, NULL) == KG_OK);
    /* The readers' blocks lie in slots of their own before anybody pushes. */
    std::thread reader(read_blocks, cache);
    reader.join();
    std::thread threads[PUSHERS + 1];
    for (int i = 0; i < PUSHERS; i++)
        threads[i] = std::thread(push_blocks, cache, 1000 + 100 * (uint64_t)i);
    threads[PUSHERS] = std::thread([cache] {
        unsigned char bytes[BLOCK];
        for (int i = 0; i < ROUNDS; i++) {
            const uint64_t id = kept[i % READ];
            int32_t slot;
            bool hit;
            make(bytes, id);
            CHECK(ops.dispatch(cache, id, bytes, kept, READ, &slot, &hit) == KG_OK);
            CHECK(hit);
            CHECK(memcmp(ops.slot_pointer(cache, slot), bytes, BLOCK) == 0);
            n_dispatched++;
        }
    });
    for (std::thread &thread : threads)
        thread.join();
    struct kg_expert_cache_stats stats;
    ops.stats(cache, &stats);
    CHECK(stats.hits + stats.misses == n_dispatched);
    CHECK(stats.prefetches == n_queued);
    CHECK(n_queued > 0 && stats.evictions > 0);
    CHECK(stats.staged_bytes % BLOCK == 0);
    CHECK(stats.staged_bytes / BLOCK <= stats.misses + stats.prefetches);
    CHECK(stats.evictions <= stats.staged_bytes / BLOCK);
    ops.destroy(cache);
}

/* Pending at the end: destroy() waits. */
static void left_pending(void)
{
    struct kg_expert_cache *cache;
    unsigned char bytes[BLOCK];
    CHECK(ops.create(&cache, SLOTS, BLOCK, NULL) == KG_OK);
    for (uint64_t id = 0; id < COPIER_LANES; id++) {
        bool queued;
        make(bytes, id);
        CHECK(ops.prefetch(cache, id, bytes, NULL, 0, &queued) == KG_OK && queued);
        CHECK(ops.resident(cache, id) == -1);
    }
    ops.destroy(cache);
}

static void refusals(void)
{
    struct kg_expert_cache *cache = NULL;
    bool flag;
    int32_t slot;
    CHECK(ops.create(NULL, 1, 1, NULL) == KG_E_INVALID);
    CHECK(ops.create(&cache, 0, 1, NULL) == KG_E_INVALID);
    CHECK(ops.create(&cache, 65537, 1, NULL) == KG_E_INVALID);
    CHECK(ops.create(&cache, 1, 0, NULL) == KG_E_INVALID);
    CHECK(ops.create(&cache, 65536, SIZE_MAX, NULL) == KG_E_INVALID && !cache);
    ops.destroy(NULL);
    CHECK(ops.create(&cache, 1, 1, NULL) == KG_OK);
    CHECK(ops.admit(cache, 1, NULL, NULL, 0, &slot) == KG_E_INVALID);
    CHECK(ops.admit(cache, 1, "a", NULL, 1, &slot) == KG_E_INVALID);
    CHECK(ops.dispatch(cache, 1, "a", NULL, 0, &slot, NULL) == KG_E_INVALID);
    CHECK(ops.prefetch(cache, 1, "a", NULL, 0, NULL) == KG_E_INVALID);
    CHECK(ops.prefetch(NULL, 1, "a", NULL, 0, &flag) == KG_E_INVALID);
    CHECK(ops.resident(NULL, 1) == -1);
    ops.destroy(cache);
}

static void early(void)
{
    struct kg_expert_cache *cache;
    unsigned char bytes[BLOCK];
    CHECK(ops.create(&cache, SLOTS, BLOCK, NULL) == KG_OK);
    for (int round = 0; round < 100; round++) {
        const uint64_t id = (uint64_t)round;
        bool flag;
        int32_t slot;
        unsigned sum = 0;
        make(bytes, id);
        CHECK(ops.prefetch(cache, id, bytes, NULL, 0, &flag) == KG_OK && flag);
        for (int32_t i = 0; i < SLOTS; i++)
            sum += *(volatile unsigned char *)ops.slot_pointer(cache, i);
        CHECK(sum <= 255 * SLOTS);
        CHECK(ops.dispatch(cache, id, bytes, NULL, 0, &slot, &flag) == KG_OK);
    }
    ops.destroy(cache);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "early") == 0) {
        early();
        return 0;
    }
    under_load();
    left_pending();
    refusals();
    return 0;
}
