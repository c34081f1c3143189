/*
 * runner/cmd_models.h: `kgate models`, what every id of models.yaml resolves to and why.
 */
#ifndef KG_RUNNER_CMD_MODELS_H
#define KG_RUNNER_CMD_MODELS_H

#include <stdio.h>

#include "runner/error.h"
#include "runner/options.h"
#include "runner/paths.h"

/* Writes the table (or JSON) to `out`. Returns the exit status: 0, 1 if --verify found a
   file whose SHA-256 is another one, 2 with the error set if models.yaml is no good. */
int kg_cmd_models(const struct kg_options *options, const struct kg_paths *paths,
                  FILE *out, struct kg_error *error);

#endif
