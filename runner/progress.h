/*
 * runner/progress.h: what `kgate run` shows while it works and at its end.
 *
 * On a terminal one live line tells the section, the cell, how far it is and for how
 * long; elsewhere there is one line a section. Cells that fail or cannot be judged have a
 * line of their own in both. All text from hosts and files is escaped.
 */
#ifndef KG_RUNNER_PROGRESS_H
#define KG_RUNNER_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "runner/result.h"
#include "runner/supervisor.h"

struct kg_progress {
    FILE *out;
    bool live;  /* out is a terminal that can move its cursor */
    bool color; /* it is a terminal and NO_COLOR is not set */
    bool quiet, verbose;
    char *drawn; /* the live line that is on the screen, or NULL */
    double started;
    size_t n_sections, sections_done;
    size_t cells_planned, cells_done; /* selected ones */
    size_t section_name_width;
    const struct kg_result_section *section; /* what the live line shows */
    const struct kg_result_cell *cell;
    double cell_since;
};

/* How the run is described above its progress; strings may come from anywhere. */
struct kg_banner {
    const char *manifest, *device, *provider, *selection, *note;
};

void kg_progress_open(struct kg_progress *progress, FILE *out, bool quiet, bool verbose,
                      bool no_color);
void kg_progress_banner(struct kg_progress *progress, const struct kg_banner *banner);
/* Fills in the functions of a watcher; its select stays. */
void kg_progress_watch(struct kg_progress *progress, struct kg_watcher *watcher,
                       const struct kg_result *result);
/* Removes the live line. */
void kg_progress_close(struct kg_progress *progress);

/* The end of a run: verdict, counts, what failed and how to repeat it, what was skipped
   and why, and where the result is. `where` may be NULL. */
void kg_progress_summary(const struct kg_progress *progress,
                         const struct kg_result *result, const char *where);

#endif
