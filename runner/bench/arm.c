#include "runner/bench/arm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bench/nvml.h"
#include "runner/bench/timer.h"
#include "runner/cell.h"

enum { rotations_max = 4096 };

struct kg_bench_run {
    struct kg_timer timer;
    struct kg_gpu_state before;
    bool warm, open;
};

int kg_bench_job_read(const json_t *json, struct kg_bench_job *out)
{
    memset(out, 0, sizeof *out);
    if (json == NULL || json_is_null(json))
        return 0;
    out->on = true;
    out->warm = json_is_true(json_object_get(json, "warm"));
    return kg_calibration_read(json_object_get(json, "calibration"), &out->calibration);
}

static bool is_used(const struct kg_buf *buf)
{
    return buf->used_in == buf->cell->arm_number && buf->bytes > 0;
}

static size_t stride_of(const struct kg_buf *buf)
{
    return (buf->bytes + 255) / 256 * 256;
}

/* So many copies that twice the L2 passes before a set comes round again, as far as half of
   the free memory goes. */
static int rotations(const struct kg_cell *cell)
{
    const struct kg_device_info *device = &cell->host->device;
    double set = 0;
    for (const struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next)
        set += is_used(buf) ? (double)stride_of(buf) : 0;
    double wanted = ceil(2 * (double)device->l2_bytes / fmax(set, 1)) + 1;
    double fits = floor((double)device->mem_free / 2 / fmax(set, 1));
    return (int)fmax(1, fmin(rotations_max, fmin(wanted, fits)));
}

static void copy_buffer(struct kg_buf *buf, int count)
{
    struct kg_cell *cell = buf->cell;
    const struct kg_device_ops *d = cell->host->provider->device;
    void *copies = NULL;
    buf->stride = stride_of(buf);
    kg_cell_device(cell, d->alloc(&copies, buf->stride * (size_t)count), "copies of",
                   buf->name);
    buf->copies = copies;
    bool poisoned = buf->kind == KG_BUF_OUTPUT || buf->kind == KG_BUF_SCRATCH;
    const uint8_t *from = buf->origin ? buf->origin : buf->base + KG_GUARD_BYTES;
    if (poisoned)
        kg_cell_device(cell, d->fill(copies, KG_POISON, buf->stride * (size_t)count),
                       "poisoning of", buf->name);
    for (int i = 0; i < count && !poisoned; i++)
        kg_cell_device(cell,
                       d->copy(buf->copies + buf->stride * (size_t)i, from, buf->bytes),
                       "copies of", buf->name);
}

static void drop_copies(struct kg_cell *cell)
{
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next) {
        if (buf->copies && !cell->host->device_lost)
            cell->host->provider->device->release(buf->copies);
        buf->copies = NULL;
        buf->current = buf->base + KG_GUARD_BYTES;
    }
}

static void start_series(struct kg_cell *cell, bool warm)
{
    struct kg_bench_run *run = cell->bench;
    const struct kg_device_ops *d = cell->host->provider->device;
    int count = warm ? 1 : rotations(cell);
    run->warm = warm;
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next)
        if (is_used(buf))
            copy_buffer(buf, count);
    run->before = kg_nvml_state();
    run->open = true;
    kg_cell_device(cell,
                   kg_timer_start(&run->timer, d, cell->host->stream,
                                  warm ? &kg_timer_warm : &kg_timer_cold, count),
                   "timing of", cell->arm);
}

bool kg_bench_begin(struct kg_cell *cell)
{
    const struct kg_bench_job *job = &cell->host->job.bench;
    if (!job->on || !cell->has_cost)
        return false;
    if (!cell->bench)
        cell->bench = kg_alloc(cell, sizeof *cell->bench);
    start_series(cell, false);
    return true;
}

static json_t *timing_json(const struct kg_cell *cell, const struct kg_timing *t)
{
    const struct kg_bench_run *run = cell->bench;
    const struct kg_timer_policy *policy = run->timer.policy;
    struct kg_roofline r = kg_roofline_of(&cell->cost, t->stats.median,
                                          &cell->host->job.bench.calibration.ceilings);
    struct kg_gpu_state after = kg_nvml_state();
    char throttle[128];
    json_t *samples = json_array();
    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(samples, json_real(t->us[i]));
    json_t *o = json_pack(
        "{s:s, s:i, s:o, s:f, s:f, s:[f,f], s:b, s:i, s:i, s:i, s:b, s:s}", "policy",
        policy->name, "policy_version", policy->version, "samples_us", samples,
        "median_us", t->stats.median, "mad_us", t->stats.mad, "ci95_us", t->stats.low,
        t->stats.high, "ci_is_95", t->stats.interval_is_95, "launches",
        t->launches_per_sample, "rotations", t->rotations, "dropped", (int)t->dropped,
        "throttled", t->all_throttled, "throttle",
        kg_throttle_text(t->throttle_reasons, throttle, sizeof throttle));
    json_t *more = json_pack(
        "{s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:s, s:b, s:o, s:o}", "bytes",
        cell->cost.bytes, "ops", cell->cost.ops, "engine",
        cell->cost.engine ? cell->cost.engine : "", "gbps", r.gbps, "tflops", r.tflops,
        "floor_us", r.floor_us, "roofline_percent", r.percent, "bound_by",
        r.memory_bound ? "memory" : "compute", "invalid", run->warm ? 0 : r.invalid,
        "gpu_before", kg_gpu_state_json(&run->before), "gpu_after",
        kg_gpu_state_json(&after));
    json_object_update_new(o, more);
    return o;
}

/* The series that ended, into the cell's timings: "ARM", or "ARM@warm". */
static void end_series(struct kg_cell *cell)
{
    struct kg_bench_run *run = cell->bench;
    struct kg_timing *timing = kg_alloc(cell, sizeof *timing);
    run->open = false;
    int rc = kg_timer_finish(&run->timer, timing);
    drop_copies(cell);
    kg_cell_device(cell, rc, "timing of", cell->arm);
    char key[KG_NAME_MAX + 8];
    snprintf(key, sizeof key, "%s%s", cell->arm, run->warm ? "@warm" : "");
    if (!cell->timings)
        cell->timings = json_object();
    json_object_set_new(cell->timings, key, timing_json(cell, timing));
}

bool kg_bench_next(struct kg_cell *cell)
{
    struct kg_bench_run *run = cell->bench;
    int rotation;
    if (!kg_timer_next(&run->timer, &rotation)) {
        end_series(cell);
        if (run->warm || !cell->host->job.bench.warm)
            return false;
        start_series(cell, true);
        if (!kg_timer_next(&run->timer, &rotation)) {
            end_series(cell);
            return false;
        }
    }
    for (struct kg_buf *buf = cell->buffers; buf != NULL; buf = buf->next)
        if (buf->copies)
            buf->current = buf->copies + buf->stride * (size_t)rotation;
    return true;
}

void kg_bench_launched(struct kg_cell *cell, int status)
{
    kg_timer_launched(&cell->bench->timer, status);
}

void kg_bench_abort(struct kg_cell *cell)
{
    struct kg_timing unused;
    if (cell->bench && cell->bench->open && !cell->host->device_lost) {
        cell->bench->open = false;
        kg_timer_finish(&cell->bench->timer, &unused);
    }
    drop_copies(cell);
}
