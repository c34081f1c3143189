/*
 * runner/bench/show.h: the tables that --bench and --timings print, from the result's JSON.
 */
#ifndef KG_RUNNER_BENCH_SHOW_H
#define KG_RUNNER_BENCH_SHOW_H

#include <jansson.h>
#include <stdio.h>

/* The ceilings, then a line for each timed arm: time, rate, percent of its roofline. */
void kg_show_bench(FILE *out, const json_t *result);

/* Where the wall time went, a line a section: set-up, upload, kernel, download, oracle. */
void kg_show_times(FILE *out, const json_t *result);

#endif
