#include "runner/bench/pair.h"

#include "runner/bench/copies.h"
#include "runner/bench/timer.h"
#include "runner/cell.h"

enum { side_new, side_old };

struct kg_pair_run {
    struct kg_timer timers[2];
    struct kg_pair_timing timing;
    int side, rotations;
    bool open;
};

static void start_side(struct kg_cell *cell, int side)
{
    struct kg_pair_run *pair = cell->pair;
    struct kg_host *host = cell->host;
    pair->side = side;
    if (host->swapped != (side == side_old))
        kg_host_swap(host);
    kg_copies_make(cell, pair->rotations);
    kg_timer_start(&pair->timers[side], host->seat.provider->device, host->seat.stream,
                   &kg_timer_cold, pair->rotations);
    pair->timers[side].hold = true;
}

bool kg_pair_begin(struct kg_cell *cell)
{
    if (cell->ops_taken_in != cell->arm_number ||
        json_object_get(cell->first->arms_done, cell->arm) == NULL)
        return false;
    if (!cell->pair)
        cell->pair = kg_alloc(cell, sizeof *cell->pair);
    *cell->pair = (struct kg_pair_run){.rotations = kg_copies_wanted(cell), .open = true};
    start_side(cell, side_new);
    return true;
}

void kg_pair_abort(struct kg_cell *cell)
{
    struct kg_pair_run *pair = cell->pair;
    struct kg_timing unused;
    if (!pair || !pair->open)
        return;
    pair->open = false;
    for (int side = 0; side < 2 && !cell->host->device_lost; side++)
        if (pair->timers[side].device)
            kg_timer_finish(&pair->timers[side], &unused);
    if (!cell->host->swapped)
        kg_host_swap(cell->host);
    kg_copies_drop(cell);
}

static json_t *pair_json(const struct kg_pair_run *pair)
{
    const struct kg_pair_timing *t = &pair->timing;
    struct kg_stats a = kg_stats_of(t->a_us, t->count),
                    b = kg_stats_of(t->b_us, t->count);
    struct kg_stats ratio = kg_stats_of(t->ratio, t->count);
    json_t *ratios = json_array();
    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(ratios, json_real(t->ratio[i]));
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:[f,f], s:b, s:o, s:i, s:b, s:i}",
                     "policy", kg_timer_cold.name, "policy_version",
                     kg_timer_cold.version, "new_us", a.median, "old_us", b.median,
                     "ratio", ratio.median, "ci95", ratio.low, ratio.high, "ci_is_95",
                     ratio.interval_is_95, "ratios", ratios, "dropped", (int)t->dropped,
                     "throttled", t->all_throttled, "rotations", pair->rotations);
}

/* Samples of both, if both could be captured. */
static void finish(struct kg_cell *cell, int status)
{
    struct kg_pair_run *pair = cell->pair;
    if (status == 0)
        status = kg_timer_pair(&pair->timers[side_new], &pair->timers[side_old],
                               &pair->timing);
    json_t *json = NULL;
    if (status == 0)
        json = pair_json(pair);
    else if (status != KG_E_DEVICE)
        json =
            json_pack("{s:o}", "error", kg_event_text(kg_cell_device_text(cell, status)));
    cell->host->device_lost = cell->host->device_lost || status == KG_E_DEVICE;
    kg_pair_abort(cell);
    if (json == NULL)
        kg_cell_device(cell, status, "timing of", cell->arm);
    if (!cell->pairs)
        cell->pairs = json_object();
    json_object_set_new(cell->pairs, cell->arm, json);
}

bool kg_pair_next(struct kg_cell *cell)
{
    struct kg_pair_run *pair = cell->pair;
    int rotation;
    while (!kg_timer_next(&pair->timers[pair->side], &rotation)) {
        int status = pair->timers[pair->side].status;
        if (status != 0 || pair->side == side_old) {
            finish(cell, status);
            return false;
        }
        start_side(cell, side_old);
    }
    kg_copies_turn(cell, rotation);
    return true;
}

void kg_pair_launched(struct kg_cell *cell, int status)
{
    kg_timer_launched(&cell->pair->timers[cell->pair->side], status);
}
