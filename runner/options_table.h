/*
 * runner/options_table.h: every option once; the parser and the help both read it.
 */
#ifndef KG_RUNNER_OPTIONS_TABLE_H
#define KG_RUNNER_OPTIONS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "runner/options.h"

enum option_id {
    OPT_TAG,
    OPT_ONLY,
    OPT_CELL,
    OPT_FAST,
    OPT_SHARD,
    OPT_PARAM,
    OPT_DEVICE,
    OPT_PROVIDER,
    OPT_AGAINST,
    OPT_PLUGIN_DIR,
    OPT_MODEL,
    OPT_MODELS,
    OPT_SYNTHETIC_ACTIVATIONS,
    OPT_JOBS,
    OPT_SEED,
    OPT_SCHEDULE,
    OPT_LIMIT_CELL,
    OPT_LIMIT_SECTION,
    OPT_REQUIRE_COMPLETE,
    OPT_BENCH,
    OPT_BENCH_WARM,
    OPT_TIMINGS,
    OPT_RESULTS,
    OPT_OUTPUT,
    OPT_CELLS,
    OPT_VERIFY,
    OPT_JSON,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_NO_COLOR,
    OPT_HELP,
};

enum option_group { GROUP_WHAT, GROUP_ON, GROUP_HOW, GROUP_OUT, N_GROUPS };

/* Commands an option belongs to. */
enum {
    FOR_RUN = 1,
    FOR_LIST = 2,
    FOR_MODELS = 4,
    FOR_ALL = 7,
    FOR_VERSION = 8,
    FOR_HELP = 16
};

struct option_row {
    enum option_id id;
    const char *name;
    char letter;          /* 0 if it has none */
    const char *argument; /* NULL: takes none */
    unsigned commands;
    enum option_group group;
    const char *help; /* lines are separated by \n */
};

extern const struct option_row option_rows[];
extern const size_t n_option_rows;

/* Does what an option says; `text` is its value, NULL if it takes none. */
int kg_option_apply(enum option_id id, const char *text, struct kg_options *options,
                    struct kg_error *error);
/* Appends the items of "a,b" to a list. Lenient: empty items are passed over. */
int kg_option_add_csv(char ***list, size_t *n, const char *text, const char *option,
                      bool lenient, struct kg_error *error);

#endif
