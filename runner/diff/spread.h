/*
 * runner/diff/spread.h: how far margins wander from run to run of one build.
 */
#ifndef KG_RUNNER_DIFF_SPREAD_H
#define KG_RUNNER_DIFF_SPREAD_H

#include "runner/diff/load.h"

/* Looks for up to `most` further runs in the results folder with the provider, manifest,
   seed and device of `base`, newest first, and sets the spread of each of base's checks to
   the standard deviation of the logarithm of its margins over base and those runs, where
   that is more than the spread that the result records. Cells whose section's plugin is
   another one are left out. *used: how many runs there were. Runs that cannot be read are
   passed over. */
int kg_spread_measure(struct kg_record *base, const char *results_dir, size_t most,
                      size_t *used, struct kg_error *error);

#endif
