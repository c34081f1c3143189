/*
 * runner/result.h: what a run found, and its JSON (docs/results.md).
 *
 * Filled by the supervisor, written by store.c. Strings and JSON values in it are owned.
 */
#ifndef KG_RUNNER_RESULT_H
#define KG_RUNNER_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "runner/events.h"

#define KG_RESULT_MAJOR 1
#define KG_RESULT_MINOR 0

struct kg_result_cell {
    char *id;
    char *role;       /* or NULL */
    bool ordered;     /* same bits on every device */
    bool optional;    /* the battery is complete without it */
    bool selected;    /* not left out by the user */
    bool interrupted; /* ERROR not-run because the user ended the run */
    enum kg_verdict verdict;
    char *reason;      /* a code; "" for PASS */
    char *detail;      /* the particulars; "" if there are none */
    char *signal_name; /* "SIGSEGV" where a host died of one, else NULL */
    char *log_tail;    /* the last lines of the log of a host that died, else NULL */
    json_t *checks;    /* array */
    json_t *done;      /* the done event (digest, params, notes, timings, ...), or NULL */
    json_t *against;   /* --against: what the other provider made of it, or NULL */
    double seconds;
    char *repro;
};

enum kg_section_status {
    KG_SECTION_NOT_RUN, /* the run ended before it began */
    KG_SECTION_OK,      /* every selected cell has a verdict of its own */
    KG_SECTION_ERROR,
    KG_SECTION_FILTERED,
};

struct kg_result_section {
    char *name;
    bool optional;
    enum kg_section_status status;
    char *reason; /* a code: "died", "bad-plugin", "protocol", "filtered", ... or "" */
    char *detail;
    char *log_tail; /* where the host died outside any cell */
    int restarts;
    double seconds;
    json_t *artifacts; /* role -> what it resolved to; or NULL */
    json_t *limits;
    json_t *plugin; /* {"digest": XXH3-128 of the file}; or NULL */
    json_t *device; /* as this section's first host told it; or NULL */
    json_t
        *health; /* {"before", "after"}: the GPU's state; or NULL where it is unknown */
    size_t n_cells;
    struct kg_result_cell *cells;
};

enum kg_run_verdict { KG_RUN_GREEN, KG_RUN_INCOMPLETE, KG_RUN_RED, KG_RUN_ERROR };

struct kg_summary {
    enum kg_run_verdict verdict;
    size_t pass, fail, skip, error; /* cells; a section in error without a cell in error
                                       counts as one error */
    size_t
        missing; /* required cells that did not pass and were not left out by the user */
    size_t left_out; /* cells and sections that the user left out */
};

struct kg_result {
    json_t *run; /* the facts of the run; owned */
    bool interrupted;
    bool
        keep_times; /* write where each cell's time went: off, so that runs compare equal */
    size_t n_sections;
    struct kg_result_section *sections;
};

void kg_result_clear(struct kg_result *result);
/* Replaces the verdict of a cell. NULL strings read as "". */
void kg_cell_set(struct kg_result_cell *cell, enum kg_verdict verdict, const char *reason,
                 const char *detail);

/* RED if anything failed or could not be judged; else INCOMPLETE if a required cell was
   skipped; else GREEN. ERROR where nothing passed and nothing failed: nothing was
   compared. An interrupted run without a FAIL is INCOMPLETE. */
void kg_result_summarise(const struct kg_result *result, struct kg_summary *summary);
const char *kg_run_verdict_name(enum kg_run_verdict verdict);
const char *kg_section_status_name(enum kg_section_status status);

/* The exit status of `kgate run`. */
int kg_result_exit_status(const struct kg_result *result,
                          const struct kg_summary *summary, bool require_complete);

/* The whole result as JSON, keys sorted when dumped. New reference. */
json_t *kg_result_json(const struct kg_result *result);

/* Which of the two providers a cell that ran on both fails on: "neither", "new", "old",
   "both"; NULL if it did not run on both. */
const char *kg_cell_fails_on(const struct kg_result_cell *cell);

/* The check that is nearest to (or furthest past) its bound; NULL if there is none. */
const json_t *kg_cell_worst_check(const struct kg_result_cell *cell);

#endif
