/*
 * runner/commands.h: the commands of kgate, each in a file of its own.
 */
#ifndef KG_RUNNER_COMMANDS_H
#define KG_RUNNER_COMMANDS_H

#include "runner/error.h"
#include "runner/options.h"

/* Each returns the exit status; 2 with the error set is a line on stderr. argv is what
   the result records. */
int kg_cmd_run(const struct kg_options *options, int argc, char **argv,
               struct kg_error *error);
int kg_cmd_list(const struct kg_options *options, struct kg_error *error);

#endif
