/*
 * runner/battery.h: a manifest made ready to run: sections chosen, plugins and model
 * files found and checked, one task for the supervisor each.
 */
#ifndef KG_RUNNER_BATTERY_H
#define KG_RUNNER_BATTERY_H

#include "runner/error.h"
#include "runner/manifest.h"
#include "runner/models.h"
#include "runner/options.h"
#include "runner/paths.h"
#include "runner/result.h"
#include "runner/supervisor.h"

struct kg_battery {
    const struct kg_options *options;
    struct kg_paths paths;
    char *manifest_path;
    struct kg_manifest *manifest;
    struct kg_models *models; /* NULL if no section asks for a file */
    struct kg_result result;  /* one section for each of the manifest */
    size_t n_tasks;           /* the selected sections whose plugin was found */
    struct kg_task *tasks;
    json_t **misses;   /* one for each section: role -> what to do about a missing file */
    json_t *artifacts; /* id -> path, bytes: for run{} */
    bool has_synthetic; /* a selected section works on a stand-in or a reduced model */
};

/* Loads everything; a model file that cannot be read or is broken is an error here, one
   that is missing is not. Clear in either case. */
int kg_battery_load(struct kg_battery *battery, const struct kg_options *options,
                    struct kg_error *error);
/* Makes the tasks run on a provider, or only plan where `provider` is NULL. Threads of
   the machine are shared by `at_once` hosts. calibration: what --bench judges by, or
   NULL. */
void kg_battery_aim(struct kg_battery *battery, const char *provider, const char *against,
                    int ordinal, json_t *calibration, unsigned at_once);
/* After the run: tells in every cell without its model file what to do about it, and
   gives every cell the command that repeats it. `device` is for --device. */
void kg_battery_annotate(struct kg_battery *battery, const char *device);
/* kg_select_cell as a watcher's select; select_context: const struct kg_select. */
bool kg_battery_select(const void *select, const struct kg_result_section *section,
                       const struct kg_result_cell *cell, char *why, size_t size);
/* Refuses what the plans in `planned` show to be a mistake: a role or param that its section
   does not have, a --cell that matches nothing, a selection without a cell. */
int kg_battery_accept(const struct kg_battery *battery, const struct kg_result *planned,
                      struct kg_error *error);
/* Plans all tasks, on the side, and asks kg_battery_accept: so such a mistake is found
   before the run leaves anything behind. Returns 0, the number of the signal that came, or a
   negative status. The tasks are to be aimed again. */
int kg_battery_rehearse(struct kg_battery *battery, struct kg_error *error);
void kg_battery_clear(struct kg_battery *battery);

#endif
