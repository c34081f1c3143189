/*
 * runner/lookup.h: the runs in the results folder, and the names by which they are asked
 * for. The layout is that of runner/store.h.
 */
#ifndef KG_RUNNER_LOOKUP_H
#define KG_RUNNER_LOOKUP_H

#include <stddef.h>

#include "runner/error.h"

struct kg_run_entry {
    char *name;       /* of the run's folder: TIME-COMMIT-HOST */
    char *path;       /* of its result.json */
    char started[17]; /* "20260101T120000Z" */
    char commit[8];   /* "" if the run knew none */
    const char *host; /* in name */
};

struct kg_run_list {
    struct kg_run_entry *runs; /* newest first */
    size_t n;
};

/* The runs that have a result. No folder is an empty list. Clear in either case. */
int kg_runs_list(const char *results_dir, struct kg_run_list *list,
                 struct kg_error *error);
void kg_runs_clear(struct kg_run_list *list);

/* The result file that `asked` means, in new memory: a file, a folder of a run,
   "@latest", "@previous" (the newest but one), the name of a baseline
   (DIR/baselines/NAME.json), the name of a run, or 4 to 40 digits that the commit of a run
   begins with (the newest such run). KG_E_IO, with a line that says what was tried. */
int kg_runs_lookup(const char *results_dir, const char *asked, char **path,
                   struct kg_error *error);

#endif
