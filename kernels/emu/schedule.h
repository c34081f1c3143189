/*
 * emu/schedule.h: which thread runs next, and the way there.
 *
 * All of it is inline: after a switch the processor mispredicts every return, so there shall
 * be one only, the collective's own.
 */
#ifndef KG_EMU_SCHEDULE_H
#define KG_EMU_SCHEDULE_H

#include "runtime.h"

/* block.cc */
struct kg_emu_fiber *kg_emu_idle_fiber(struct kg_emu_worker *worker);
[[noreturn]] void kg_emu_deadlock(struct kg_emu_worker *worker);

static inline uint64_t kg_emu_next_random(struct kg_emu_worker *worker)
{
    uint64_t x = worker->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    worker->random = x;
    return x * 0x9e3779b97f4a7c15u >> 32;
}

/* One of the set bits, the r-th counted cyclically from a random place. */
static inline uint32_t kg_emu_any_bit(uint32_t bits, uint32_t r)
{
    r &= 31u;
    uint32_t rotated = r == 0 ? bits : bits >> r | bits << (32 - r);
    return ((uint32_t)__builtin_ctz(rotated) + r) & 31u;
}

/* Takes the thread that shall run next out of the ready ones; NULL if there is none. */
static inline __attribute__((always_inline)) struct kg_emu_lane *
kg_emu_take_ready(struct kg_emu_worker *worker, bool shuffled)
{
    if (worker->ready_warps == 0)
        return NULL;
    uint32_t w = worker->current_warp, lane;
    if (shuffled) {
        uint64_t r = kg_emu_next_random(worker);
        w = kg_emu_any_bit(worker->ready_warps, (uint32_t)r);
        lane = kg_emu_any_bit(worker->warps[w].ready, (uint32_t)(r >> 8));
    } else {
        if ((worker->ready_warps >> w & 1u) == 0)
            w = (uint32_t)__builtin_ctz(worker->ready_warps);
        lane = (uint32_t)__builtin_ctz(worker->warps[w].ready);
    }
    struct kg_emu_warp *warp = &worker->warps[w];
    worker->current_warp = w;
    warp->ready &= ~(1u << lane);
    if (warp->ready == 0)
        worker->ready_warps &= ~(1u << w);
    return &warp->lanes[lane];
}

/* Makes lanes runnable. */
static inline void kg_emu_wake(struct kg_emu_warp *warp, uint32_t lanes)
{
    if (lanes == 0)
        return;
    warp->ready |= lanes;
    kg_emu_current->ready_warps |= 1u << warp->index;
}

/* Goes on with `next` on its own fiber, or on an idle one if it has not started. */
static inline __attribute__((always_inline)) void
kg_emu_switch_to(struct kg_emu_worker *worker, struct kg_emu_fiber *from,
                 struct kg_emu_lane *next)
{
    struct kg_emu_fiber *to = next->fiber;
    if (to == NULL) {
        worker->start = next;
        next->fiber = to = kg_emu_idle_fiber(worker);
    }
    kg_emu_fiber_switch(from, to);
}

/* The running thread waits until it is woken. */
static inline __attribute__((always_inline)) void kg_emu_wait_for_wake(void)
{
    struct kg_emu_worker *worker = kg_emu_current;
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_lane *next = kg_emu_take_ready(worker, worker->job->seed != 0);
    if (next == NULL)
        kg_emu_deadlock(worker);
    if (next == self)
        return;
    kg_emu_switch_to(worker, self->fiber, next);
    kg_emu_self = self;
}

/* After a collective that the running lane completed: the shuffled schedule lets any of the
   ready threads go first. */
static inline void kg_emu_reschedule(void)
{
    if (kg_emu_current->job->seed != 0)
        kg_emu_yield();
}

#endif
