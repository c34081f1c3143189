#include "runner/bench/timer.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "kgate/status.h"
#include "runner/bench/nvml.h"

enum { min_samples = 5, max_launches = 4096, max_warm_up = 64, estimate_launches = 8 };
enum phase { phase_warm_up, phase_estimate, phase_capture, phase_done };

const struct kg_timer_policy kg_timer_cold = {"cold", 1, 2000, 30, 1.0};
const struct kg_timer_policy kg_timer_warm = {"warm", 1, 2000, 30, 1.0};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keeps the first error, and says whether there is one. */
static bool failed(struct kg_timer *timer, int status)
{
    if (timer->status == 0)
        timer->status = status;
    return timer->status != 0;
}

int kg_timer_start(struct kg_timer *timer, const struct kg_device_ops *device,
                   struct CUstream_st *stream, const struct kg_timer_policy *policy,
                   int rotations)
{
    memset(timer, 0, sizeof *timer);
    timer->device = device;
    timer->stream = stream;
    timer->policy = policy;
    timer->rotations = rotations > 0 ? rotations : 1;
    if (!device->event_create || !device->event_record || !device->event_elapsed_us ||
        !device->graph_begin || !device->graph_end || !device->graph_launch)
        return timer->status = KG_E_UNSUPPORTED;
    timer->launches = timer->rotations < max_warm_up ? timer->rotations : max_warm_up;
    if (failed(timer, device->event_create(&timer->from)) ||
        failed(timer, device->event_create(&timer->to)))
        return timer->status;
    return 0;
}

/* Microseconds a launch. */
static bool take_sample(struct kg_timer *timer, struct CUgraphExec_st *graph, double *us)
{
    const struct kg_device_ops *d = timer->device;
    if (failed(timer, d->event_record(timer->from, timer->stream)) ||
        failed(timer, d->graph_launch(graph, timer->stream)) ||
        failed(timer, d->event_record(timer->to, timer->stream)) ||
        failed(timer, d->sync(timer->stream)) ||
        failed(timer, d->event_elapsed_us(timer->from, timer->to, us)))
        return false;
    *us /= timer->launches;
    return true;
}

static void take_samples(struct kg_timer *timer, struct CUgraphExec_st *graph)
{
    const struct kg_device_ops *d = timer->device;
    struct kg_timing *out = &timer->timing;
    size_t wanted = (size_t)timer->policy->samples, good = 0;
    double start = seconds_now();
    if (failed(timer, d->graph_launch(graph, timer->stream)) ||
        failed(timer, d->sync(timer->stream)))
        return;
    while (good < wanted && out->count < 2 * wanted &&
           out->count < kg_timer_max_samples) {
        if (good >= min_samples && seconds_now() - start > timer->policy->max_seconds)
            break;
        double us = 0;
        if (!take_sample(timer, graph, &us))
            return;
        uint64_t reasons = kg_nvml_throttle();
        out->throttle_reasons |= reasons;
        timer->throttled[out->count] = kg_is_throttled(reasons);
        good += !timer->throttled[out->count];
        out->us[out->count++] = us;
    }
    if (good < min_samples) {
        out->all_throttled = true;
        return;
    }
    out->dropped = out->count - good;
    out->count = kg_drop_throttled(out->us, timer->throttled, out->count);
}

/* Sets up the next phase once the launches of this one have been issued. */
static void advance(struct kg_timer *timer)
{
    const struct kg_device_ops *d = timer->device;
    struct CUgraphExec_st *graph = NULL;
    double us = 0;
    timer->issued = 0;
    switch (timer->phase) {
    case phase_warm_up:
        if (failed(timer, d->sync(timer->stream)) ||
            failed(timer, d->event_record(timer->from, timer->stream)))
            return;
        timer->launches = estimate_launches;
        timer->phase = phase_estimate;
        return;
    case phase_estimate:
        if (failed(timer, d->event_record(timer->to, timer->stream)) ||
            failed(timer, d->sync(timer->stream)) ||
            failed(timer, d->event_elapsed_us(timer->from, timer->to, &us)))
            return;
        timer->launch_us = us / estimate_launches;
        timer->launches = (int)fmin(
            max_launches, ceil(timer->policy->sample_us / fmax(timer->launch_us, 0.1)));
        if (timer->launches < timer->rotations)
            timer->launches = timer->rotations;
        if (failed(timer, d->graph_begin(timer->stream)))
            return;
        timer->phase = phase_capture;
        return;
    case phase_capture:
        timer->phase = phase_done;
        if (failed(timer, d->graph_end(timer->stream, &graph)))
            return;
        if (timer->hold) {
            timer->graph = graph;
            return;
        }
        take_samples(timer, graph);
        failed(timer, d->graph_destroy(graph));
        return;
    default:
        return;
    }
}

bool kg_timer_next(struct kg_timer *timer, int *rotation)
{
    if (timer->status == 0 && timer->issued == timer->launches)
        advance(timer);
    if (timer->status != 0 || timer->phase == phase_done)
        return false;
    *rotation = timer->issued % timer->rotations;
    return true;
}

void kg_timer_launched(struct kg_timer *timer, int status)
{
    timer->issued++;
    if (failed(timer, status) && timer->phase == phase_capture) {
        /* A capture that is left open would swallow every later launch. */
        struct CUgraphExec_st *graph = NULL;
        if (timer->device->graph_end(timer->stream, &graph) == 0)
            timer->device->graph_destroy(graph);
    }
}

int kg_timer_pair(struct kg_timer *a, struct kg_timer *b, struct kg_pair_timing *out)
{
    bool throttled[kg_timer_max_samples];
    size_t wanted = (size_t)a->policy->samples, good = 0;
    double unused, start = seconds_now();
    memset(out, 0, sizeof *out);
    if (!take_sample(a, a->graph, &unused))
        return a->status;
    if (!take_sample(b, b->graph, &unused))
        return b->status;
    while (good < wanted && out->count < 2 * wanted &&
           out->count < kg_timer_max_samples) {
        if (good >= min_samples && seconds_now() - start > 2 * a->policy->max_seconds)
            break;
        size_t i = out->count++;
        bool b_first = i % 2;
        for (int turn = 0; turn < 2; turn++) {
            bool is_b = (turn == 1) != b_first;
            struct kg_timer *timer = is_b ? b : a;
            double *us = is_b ? &out->b_us[i] : &out->a_us[i];
            if (!take_sample(timer, timer->graph, us))
                return timer->status;
        }
        out->ratio[i] = out->a_us[i] / out->b_us[i];
        throttled[i] = kg_is_throttled(kg_nvml_throttle());
        good += !throttled[i];
    }
    if (good < min_samples) {
        out->all_throttled = true;
        return 0;
    }
    out->dropped = out->count - good;
    kg_drop_throttled(out->a_us, throttled, out->count);
    kg_drop_throttled(out->b_us, throttled, out->count);
    out->count = kg_drop_throttled(out->ratio, throttled, out->count);
    return 0;
}

int kg_timer_finish(struct kg_timer *timer, struct kg_timing *timing)
{
    if (timer->from)
        timer->device->event_destroy(timer->from);
    if (timer->to)
        timer->device->event_destroy(timer->to);
    if (timer->graph)
        timer->device->graph_destroy(timer->graph);
    timer->from = timer->to = NULL;
    timer->graph = NULL;
    if (timer->status != 0 || timer->hold)
        return timer->status;
    timer->timing.launches_per_sample = timer->launches;
    timer->timing.rotations = timer->rotations;
    timer->timing.stats = kg_stats_of(timer->timing.us, timer->timing.count);
    *timing = timer->timing;
    return 0;
}
