#include "runner/bench/arm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bench/copies.h"
#include "runner/bench/nvml.h"
#include "runner/bench/pair.h"
#include "runner/bench/timer.h"
#include "runner/cell.h"

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

static void start_series(struct kg_cell *cell, bool warm)
{
    struct kg_bench_run *run = cell->bench;
    const struct kg_device_ops *d = cell->host->seat.provider->device;
    int count = warm ? 1 : kg_copies_wanted(cell);
    run->warm = warm;
    kg_copies_make(cell, count);
    run->before = kg_nvml_state();
    run->open = true;
    kg_cell_device(cell,
                   kg_timer_start(&run->timer, d, cell->host->seat.stream,
                                  warm ? &kg_timer_warm : &kg_timer_cold, count),
                   "timing of", cell->arm);
}

bool kg_bench_begin(struct kg_cell *cell)
{
    const struct kg_bench_job *job = &cell->host->job.bench;
    if (!job->on || !cell->has_cost)
        return false;
    if (cell->first)
        return kg_pair_begin(cell);
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
    kg_copies_drop(cell);
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
    if (cell->first)
        return kg_pair_next(cell);
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
    kg_copies_turn(cell, rotation);
    return true;
}

void kg_bench_launched(struct kg_cell *cell, int status)
{
    if (cell->first)
        kg_pair_launched(cell, status);
    else
        kg_timer_launched(&cell->bench->timer, status);
}

void kg_bench_abort(struct kg_cell *cell)
{
    struct kg_timing unused;
    kg_pair_abort(cell);
    if (cell->bench && cell->bench->open && !cell->host->device_lost) {
        cell->bench->open = false;
        kg_timer_finish(&cell->bench->timer, &unused);
    }
    kg_copies_drop(cell);
}
