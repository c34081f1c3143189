/*
 * runner/report/report.h: results as one page to read.
 *
 * The page is whole in itself: no network, no script, plots as SVG in it. All that comes
 * from the results is escaped (runner/diff/markup.h), and the page forbids scripts besides.
 */
#ifndef KG_RUNNER_REPORT_REPORT_H
#define KG_RUNNER_REPORT_REPORT_H

#include <stdio.h>

#include "runner/diff/facts.h"
#include "runner/diff/load.h"

struct kg_report {
    struct kg_record *runs; /* oldest first; the last one is what the page is about */
    size_t n;
};

/* The whole page. Errors of writing are left in `out`. */
void kg_report_write(FILE *out, const struct kg_report *report);

/* ---- its parts, in the order of the page ---- */

extern const char kg_report_style[];
/* Cells that failed or could not be judged: what was seen and how to see it again. */
void kg_report_failures(FILE *out, const struct kg_report *report);
void kg_report_against(FILE *out, const struct kg_report *report);
void kg_report_sections(FILE *out, const struct kg_report *report);
/* A row a section, a dot a cell. */
void kg_report_margins(FILE *out, const struct kg_report *report);
void kg_report_skips(FILE *out, const struct kg_report *report);
/* Every cell, by section, with its margin and, of several runs, its history. */
void kg_report_cells(FILE *out, const struct kg_report *report);
void kg_report_timings(FILE *out, const struct kg_report *report);
void kg_report_environment(FILE *out, const struct kg_report *report);
/* The runs of the history, one a line. */
void kg_report_runs(FILE *out, const struct kg_report *report);

/* ---- shared ---- */

struct kg_record *kg_report_head(const struct kg_report *report);
/* The check nearest to its bound, or the one that failed worst; NULL if nothing counts. */
const struct kg_record_check *kg_report_worst(const struct kg_record_cell *cell);
/* "pass", "fail", "skip", "error": the class of an element. */
const char *kg_report_class(enum kg_verdict verdict);
/* 1.23e-05; "" for NaN. */
const char *kg_report_number(double value, char buffer[32]);

/* ---- plot.c: margins on a log scale, the bound at 1 ---- */

/* The axis of the column of marks, and one mark of it. */
void kg_plot_axis(FILE *out);
void kg_plot_mark(FILE *out, const struct kg_record_check *check, const char *class_name);
/* n points (NaN: none) in the order of the runs; `log`: margins, the bound marked. */
void kg_plot_line(FILE *out, const double *values, size_t n, bool log);
/* One bar a run; 0 (KG_NO_VERDICT): the run does not have the cell. */
void kg_plot_strip(FILE *out, const enum kg_verdict *verdicts, size_t n);
/* A row a section of the overview; `y` its middle. */
double kg_plot_x(double margin, double left, double width);

enum { KG_PLOT_LOW = -6, KG_PLOT_HIGH = 2 }; /* decades */

#endif
