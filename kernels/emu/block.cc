/*
 * emu/block.cc: the threads of one block: start, wait, exit, and faults.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule.h"

__thread struct kg_emu_thread *kg_emu_self;
__thread struct kg_emu_worker *kg_emu_current;

kg_emu_worker::kg_emu_worker()
    : job(NULL), lanes(new kg_emu_lane[KG_EMU_MAX_THREADS]), warps(), n_warps(0),
      ready_warps(0), current_warp(0), n_live(0), n_at_barrier(0), barrier_count(0),
      barrier_result(), random(0), host(), start(NULL), fault(false), arena(NULL),
      arena_used(0), static_bytes(0)
{
}

kg_emu_worker::~kg_emu_worker()
{
    for (std::unique_ptr<kg_emu_fiber> &fiber : fibers)
        kg_emu_fiber_destroy(fiber.get());
#if defined(__SANITIZE_ADDRESS__)
    if (arena != NULL)
        __asan_unpoison_memory_region(arena, KG_EMU_SHARED_MAX);
#endif
    free(arena);
}

struct kg_emu_fiber *kg_emu_idle_fiber(struct kg_emu_worker *worker)
{
    if (worker->idle.empty()) {
        std::unique_ptr<kg_emu_fiber> fiber(new kg_emu_fiber);
        if (!kg_emu_fiber_create(fiber.get(), worker->fibers.size())) {
            fprintf(stderr, "emu: no memory for a thread's stack\n");
            abort();
        }
        worker->idle.push_back(fiber.get());
        worker->fibers.push_back(std::move(fiber));
    }
    struct kg_emu_fiber *fiber = worker->idle.back();
    worker->idle.pop_back();
    return fiber;
}

static const char *wait_name(uint32_t kind)
{
    switch (kind & 0xffu) {
    case KG_EMU_SYNCWARP:
        return "__syncwarp";
    case KG_EMU_SHUFFLE:
        return "a shuffle";
    case KG_EMU_VOTE:
        return "a vote";
    case KG_EMU_MATCH:
        return "__match_any_sync";
    case KG_EMU_REDUCE:
        return "a warp reduction";
    case KG_EMU_LDMATRIX:
        return "ldmatrix";
    case KG_EMU_MMA:
        return "mma";
    default:
        return "nothing";
    }
}

void kg_emu_deadlock(struct kg_emu_worker *worker)
{
    for (uint32_t w = 0; w < worker->n_warps; w++) {
        struct kg_emu_warp *warp = &worker->warps[w];
        if (warp->waiting == 0)
            continue;
        uint32_t lane = (uint32_t)__builtin_ctz(warp->waiting);
        uint32_t missing = warp->mask[lane] & ~warp->waiting;
        for (uint32_t other = 0; missing == 0 && other < 32; other++)
            if ((warp->mask[lane] >> other & 1u) != 0 &&
                (warp->mask[other] != warp->mask[lane] ||
                 warp->kind[other] != warp->kind[lane]))
                missing = 1u << other;
        uint32_t other = missing == 0 ? lane : (uint32_t)__builtin_ctz(missing);
        bool barrier = (warp->at_barrier >> other & 1u) != 0;
        kg_emu_fault(
            "deadlock: warp %u lane %u waits in %s (mask 0x%08x) for lane %u, which "
            "waits in %s (mask 0x%08x); %u threads wait at __syncthreads",
            w, lane, wait_name(warp->kind[lane]), warp->mask[lane], other,
            barrier ? "__syncthreads" : wait_name(warp->kind[other]),
            barrier ? 0u : warp->mask[other], worker->n_at_barrier);
    }
    kg_emu_fault("deadlock: %u of %u threads wait at __syncthreads", worker->n_at_barrier,
                 worker->n_live);
}

/* Always a random thread: in order, two threads that spin could keep the rest from running. */
void kg_emu_yield(void)
{
    struct kg_emu_worker *worker = kg_emu_current;
    struct kg_emu_lane *self = kg_emu_lane_self();
    kg_emu_wake(self->warp, 1u << self->lane);
    struct kg_emu_lane *next = kg_emu_take_ready(worker, true);
    if (next == self)
        return;
    kg_emu_switch_to(worker, self->fiber, next);
    kg_emu_self = self;
}

static void release_barrier(struct kg_emu_worker *worker)
{
    worker->barrier_result = {worker->barrier_count, (int)worker->n_at_barrier};
    worker->barrier_count = 0;
    worker->n_at_barrier = 0;
    for (uint32_t w = 0; w < worker->n_warps; w++) {
        struct kg_emu_warp *warp = &worker->warps[w];
        kg_emu_wake(warp, warp->at_barrier);
        warp->at_barrier = 0;
    }
}

struct kg_emu_barrier_result kg_emu_block_barrier(int predicate)
{
    struct kg_emu_worker *worker = kg_emu_current;
    struct kg_emu_lane *self = kg_emu_lane_self();
    worker->barrier_count += predicate != 0;
    worker->n_at_barrier++;
    self->warp->at_barrier |= 1u << self->lane;
    if (worker->n_at_barrier == worker->n_live)
        release_barrier(worker);
    kg_emu_wait_for_wake();
    return worker->barrier_result;
}

static void on_exit(struct kg_emu_worker *worker, struct kg_emu_lane *self)
{
    struct kg_emu_warp *warp = self->warp;
    self->copies.clear();
    warp->live &= ~(1u << self->lane);
    worker->n_live--;
    for (uint32_t waiting = warp->waiting; waiting != 0; waiting &= waiting - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(waiting);
        if ((warp->mask[lane] >> self->lane & 1u) != 0)
            kg_emu_fault(
                "lane %u of warp %u exited, but lane %u waits for it in %s (mask "
                "0x%08x)",
                self->lane, warp->index, lane, wait_name(warp->kind[lane]),
                warp->mask[lane]);
    }
    if (worker->n_live != 0 && worker->n_at_barrier == worker->n_live)
        release_barrier(worker);
}

void kg_emu_fiber_main(void)
{
    struct kg_emu_worker *worker = kg_emu_current;
    struct kg_emu_lane *self = worker->start;
    for (;;) {
        struct kg_emu_fiber *fiber = self->fiber;
        kg_emu_self = self;
        worker->job->body(worker->job->closure);
        on_exit(worker, self);
        struct kg_emu_lane *next = kg_emu_take_ready(worker, worker->job->seed != 0);
        if (next != NULL && next->fiber == NULL) {
            next->fiber = fiber;
            self = next;
            continue;
        }
        if (next == NULL && worker->n_live != 0)
            kg_emu_deadlock(worker);
        worker->idle.push_back(fiber);
        if (next == NULL)
            kg_emu_fiber_switch(fiber, &worker->host);
        else
            kg_emu_switch_to(worker, fiber, next);
        self = worker->start;
    }
}

/* Keeps the first fault of a launch. */
static void record_fault(struct kg_emu_job *job, const char *text)
{
    if (!job->failed.exchange(true))
        snprintf(job->text, sizeof job->text, "%s", text);
}

void kg_emu_fault(const char *format, ...)
{
    struct kg_emu_worker *worker = kg_emu_current;
    struct kg_emu_lane *self = kg_emu_lane_self();
    char text[KG_EMU_TEXT];
    int n = snprintf(text, sizeof text,
                     "%s: block (%u,%u,%u) thread (%u,%u,%u): ", worker->job->kernel,
                     self->block_idx.x, self->block_idx.y, self->block_idx.z,
                     self->thread_idx.x, self->thread_idx.y, self->thread_idx.z);
    if (n < 0 || (size_t)n >= sizeof text)
        n = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    record_fault(worker->job, text);
    worker->fault = true;
    kg_emu_fiber_switch(self->fiber, &worker->host);
    abort(); /* never resumed */
}

static void start_block(struct kg_emu_worker *worker, uint64_t block)
{
    struct kg_emu_job *job = worker->job;
    uint32_t n = job->n_threads;
    uint3 index = {(unsigned)(block % job->grid.x),
                   (unsigned)(block / job->grid.x % job->grid.y),
                   (unsigned)(block / job->grid.x / job->grid.y)};
    worker->n_warps = (n + 31) / 32;
    worker->ready_warps = 0xffffffffu >> (32 - worker->n_warps);
    worker->current_warp = 0;
    worker->n_live = n;
    worker->n_at_barrier = 0;
    worker->barrier_count = 0;
    worker->fault = false;
    worker->random =
        (job->seed + 1) * 0x9e3779b97f4a7c15u ^ (block + 1) * 0xbf58476d1ce4e5b9u;
    if (worker->random == 0)
        worker->random = 1;
    uint3 thread = {0, 0, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct kg_emu_lane *lane = &worker->lanes[i];
        lane->thread_idx = thread;
        lane->block_idx = index;
        lane->block_dim = job->block;
        lane->grid_dim = job->grid;
        lane->lane = i % 32;
        lane->warp = &worker->warps[i / 32];
        lane->fiber = NULL;
        lane->copies.clear();
        lane->copy_groups = 0;
        if (++thread.x == job->block.x) {
            thread.x = 0;
            if (++thread.y == job->block.y) {
                thread.y = 0;
                thread.z++;
            }
        }
    }
    for (uint32_t w = 0; w < worker->n_warps; w++) {
        struct kg_emu_warp *warp = &worker->warps[w];
        uint32_t lanes = n - w * 32 < 32 ? n - w * 32 : 32;
        warp->live = warp->ready = 0xffffffffu >> (32 - lanes);
        warp->waiting = warp->at_barrier = 0;
        warp->index = w;
        warp->lanes = &worker->lanes[w * 32];
    }
    kg_emu_shared_reset(worker);
}

void kg_emu_run_block(struct kg_emu_worker *worker, uint64_t block)
{
    kg_emu_current = worker;
#if defined(__SANITIZE_THREAD__)
    worker->host.tsan = __tsan_get_current_fiber();
#endif
    start_block(worker, block);
    struct kg_emu_lane *first = kg_emu_take_ready(worker, worker->job->seed != 0);
    kg_emu_switch_to(worker, &worker->host, first);
    if (worker->fault) {
        /* The block's threads stay where they are; their stacks serve the next block. */
        worker->idle.clear();
        for (std::unique_ptr<kg_emu_fiber> &fiber : worker->fibers) {
            kg_emu_fiber_reset(fiber.get());
            worker->idle.push_back(fiber.get());
        }
        return;
    }
    const char *damaged = kg_emu_shared_check(worker);
    if (damaged != NULL) {
        char text[KG_EMU_TEXT];
        uint3 index = worker->lanes[0].block_idx;
        snprintf(text, sizeof text,
                 "%s: block (%u,%u,%u) wrote outside of shared array %s",
                 worker->job->kernel, index.x, index.y, index.z, damaged);
        record_fault(worker->job, text);
    }
}
