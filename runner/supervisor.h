/*
 * runner/supervisor.h: runs the host processes of a battery and judges how they end.
 *
 * One poll loop over all hosts. The supervisor loads no plugin and touches no device. A
 * host that crashes, hangs, is killed, ends without a word or talks nonsense costs the
 * cell it was in; a new host goes on at the next cell. What a host says is checked in
 * events.c and then against the state of its section here.
 */
#ifndef KG_RUNNER_SUPERVISOR_H
#define KG_RUNNER_SUPERVISOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner/error.h"
#include "runner/result.h"

enum kg_task_mode { KG_TASK_RUN, KG_TASK_PLAN, KG_TASK_PROBE };

/* One section to run. `section` is filled with cells, verdicts and the status. */
struct kg_task {
    enum kg_task_mode mode;
    json_t *order; /* the job object that goes to the host; borrowed */
    struct kg_result_section *section;
    double cell_seconds; /* limits */
    double section_seconds;
    uint64_t memory_bytes;
    char *log_path; /* borrowed; NULL: the log is read and dropped */
};

/* What the supervisor tells while it works. Every member may be NULL. */
struct kg_watcher {
    void *context; /* for all but select */
    /* Decides whether a planned cell runs. If not, writes why. */
    const void *select_context;
    bool (*select)(const void *select_context, const struct kg_result_section *section,
                   const struct kg_result_cell *cell, char *why, size_t size);
    void (*section_begun)(void *context, const struct kg_result_section *section);
    void (*planned)(void *context, const struct kg_result_section *section);
    void (*cell_begun)(void *context, const struct kg_result_section *section,
                       const struct kg_result_cell *cell);
    void (*cell_done)(void *context, const struct kg_result_section *section,
                      const struct kg_result_cell *cell);
    /* --against: the cell, which is done, has run on the other provider. */
    void (*cell_compared)(void *context, const struct kg_result_section *section,
                          const struct kg_result_cell *cell);
    /* A verdict that was announced is replaced: the host died right after the cell. */
    void (*cell_revised)(void *context, const struct kg_result_section *section,
                         const struct kg_result_cell *cell);
    void (*section_done)(void *context, const struct kg_result_section *section);
    void (*tick)(void *context); /* about ten times a second */
};

/* Runs the jobs in order, `at_once` at a time. Returns 0, or the number of the signal
   (SIGINT, SIGTERM, SIGHUP) that ended the run early; all hosts are gone by then. Fails
   with a negative status only if it could not work at all. */
int kg_supervise(struct kg_task *jobs, size_t n_jobs, unsigned at_once,
                 const struct kg_watcher *watcher, struct kg_error *error);

#endif
