/*
 * runner/options.h: the command line.
 *
 *   kgate run [options] MANIFEST      kgate list [options] MANIFEST
 *   kgate models [options]            kgate version             kgate help [COMMAND]
 *
 * MANIFEST is a path, or the name of a manifest that comes with kgate ("quick"); it
 * defaults to "quick". Strings point into argv or the environment and must outlive the
 * options; the lists are owned.
 */
#ifndef KG_RUNNER_OPTIONS_H
#define KG_RUNNER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runner/error.h"
#include "runner/select.h"

enum kg_command {
    KG_COMMAND_RUN,
    KG_COMMAND_LIST,
    KG_COMMAND_MODELS,
    KG_COMMAND_VERSION,
    KG_COMMAND_HELP
};

enum kg_device_choice { KG_DEVICE_AUTO, KG_DEVICE_EMU, KG_DEVICE_CUDA };

/* --param SECTION.KEY=VALUE */
struct kg_param_override {
    char *section, *key; /* owned */
    const char *value;
};

struct kg_options {
    enum kg_command command;
    bool help_asked;         /* `--help` after a command: command is KG_COMMAND_HELP */
    enum kg_command help_on; /* KG_COMMAND_HELP: the command; KG_COMMAND_HELP for all */

    /* what to run */
    const char *manifest; /* never NULL for run and list */
    struct kg_select select;
    size_t n_params;
    struct kg_param_override *params;

    /* on what */
    enum kg_device_choice device;
    int ordinal;             /* cuda:N; 0 otherwise */
    const char *device_text; /* as typed, "auto" by default */
    const char *provider;    /* --provider or NULL */
    const char *against;     /* --against or NULL */
    size_t n_plugin_dirs;    /* --plugin-dir, in order; replaces the default folder */
    const char **plugin_dirs;
    const char *model;       /* --model or NULL */
    const char *models_file; /* --models or NULL */
    const char *models_dir;  /* KGATE_MODELS_DIR or NULL */
    bool synthetic_activations;

    /* how */
    unsigned jobs; /* sections at a time; 0: not given */
    bool has_seed;
    uint64_t seed;
    uint64_t schedule_seed; /* 0: the natural order */
    double limit_cell;      /* seconds; 0: what the manifest says */
    double limit_section;
    bool bench, bench_warm, timings;
    bool require_complete;

    /* what comes out */
    const char *results; /* --results or NULL */
    const char *output;  /* --output or NULL */
    bool quiet, verbose, no_color, json;
    bool cells;  /* list: the cells too */
    bool verify; /* models: compare sha256 */
};

/* Fills `options` from the command line and KGATE_ONLY, KGATE_FAST, KGATE_MODELS_DIR
   (an option wins over its twin; an empty variable is an absent one). On failure the
   error is one line for stderr; exit with 2. Clear the options in either case. */
int kg_options_parse(int argc, char **argv, struct kg_options *options,
                     struct kg_error *error);
void kg_options_clear(struct kg_options *options);
/* Help on one command, or (KG_COMMAND_HELP) the overview. */
void kg_options_help(enum kg_command command, FILE *out);
const char *kg_command_name(enum kg_command command);

#endif
