/*
 * runner/bench/timer.h: times one launch expression on the device.
 *
 * The expression lives in somebody else's loop (a cell's KG_ARM, or the ceilings), so the timer
 * is a state machine that asks for launches:
 *
 *   kg_timer_start(&t, device, stream, &policy, n_rotations);
 *   while (kg_timer_next(&t, &rotation))
 *       kg_timer_launched(&t, launch(buffers[rotation]));
 *   kg_timer_finish(&t, &timing);
 *
 * Policy "cold" version 1: warm-up of every rotation once, at most 64 launches; one estimate;
 * then N launches are captured into a graph, N at least n_rotations and enough for 2 ms, at most
 * 4096, rotating over the buffer sets, so that when a set comes round again twice the L2 has
 * been read in between. One sample is one graph launch between two events, divided by N. Samples
 * are taken until there are 30, or until 1 s has passed and there are 5. "warm" is the
 * same with one rotation. After each sample NVML is asked whether clocks were held down; such
 * samples are dropped and counted, and replaced up to as many again.
 */
#ifndef KG_RUNNER_BENCH_TIMER_H
#define KG_RUNNER_BENCH_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kgate/ops/device.h"
#include "runner/bench/stats.h"

enum { kg_timer_max_samples = 256 };

struct kg_timer_policy {
    const char *name; /* "cold" or "warm" */
    int version;
    double sample_us;   /* a sample lasts at least this long */
    int samples;        /* how many are wanted */
    double max_seconds; /* after which a few are enough */
};
extern const struct kg_timer_policy kg_timer_cold, kg_timer_warm;

struct kg_timing {
    double us[kg_timer_max_samples]; /* microseconds a launch, in the order taken */
    size_t count;
    size_t dropped; /* under throttle */
    bool
        all_throttled; /* too few good samples: the throttled ones were kept, and are marked */
    uint64_t throttle_reasons; /* every reason seen, or-ed */
    int launches_per_sample;
    int rotations;
    struct kg_stats stats;
};

struct kg_timer {
    const struct kg_device_ops *device;
    struct CUstream_st *stream;
    const struct kg_timer_policy *policy;
    int rotations, launches, issued, phase;
    int status; /* the first error; the loop then ends */
    double launch_us;
    struct CUevent_st *from, *to;
    bool hold;                    /* stop with the graph captured: for kg_timer_pair */
    struct CUgraphExec_st *graph; /* then */
    bool throttled[kg_timer_max_samples];
    struct kg_timing timing;
};

/* KG_E_UNSUPPORTED if the device has no events and graphs. */
int kg_timer_start(struct kg_timer *timer, const struct kg_device_ops *device,
                   struct CUstream_st *stream, const struct kg_timer_policy *policy,
                   int rotations);
/* True: launch once on buffer set *rotation. False: done, or failed (see finish). */
bool kg_timer_next(struct kg_timer *timer, int *rotation);
void kg_timer_launched(struct kg_timer *timer, int status);
/* Two timers that hold their graphs: samples of both in pairs, the first one first in every
   other pair. Each ratio is one of `a` by the one of `b` taken next to it. */
struct kg_pair_timing {
    double a_us[kg_timer_max_samples], b_us[kg_timer_max_samples];
    double ratio[kg_timer_max_samples];
    size_t count, dropped;
    bool all_throttled;
};
int kg_timer_pair(struct kg_timer *a, struct kg_timer *b, struct kg_pair_timing *out);
/* Frees what start made; 0 and *timing filled (but for a timer that holds), or the first
   error. */
int kg_timer_finish(struct kg_timer *timer, struct kg_timing *timing);

#endif
