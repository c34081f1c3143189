/*
 * runner/bench/pair.h: --bench with --against: an arm on both providers, sample beside sample.
 *
 * In the second pass over a cell (the provider that is compared with), after the checked
 * repetition of an arm that the first pass ran too: the launch expression is captured into a
 * graph on the provider under test, then on the other one, each on copies of the buffers of its
 * own; then the graphs are timed in pairs, the one under test first in every other pair. The
 * ratio of a pair is free of what drifts slowly, clocks and heat; its median has the
 * distribution-free 95 % interval of stats.h. The pair of an arm that took its launcher
 * outside of KG_ARM would be one kernel timed twice, so there is none.
 */
#ifndef KG_RUNNER_BENCH_PAIR_H
#define KG_RUNNER_BENCH_PAIR_H

#include <stdbool.h>

struct kg_cell;

bool kg_pair_begin(struct kg_cell *cell);
bool kg_pair_next(struct kg_cell *cell);
void kg_pair_launched(struct kg_cell *cell, int status);
/* Ends a pair that is under way; the cell's own provider works again. */
void kg_pair_abort(struct kg_cell *cell);

#endif
