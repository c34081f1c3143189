/*
 * runner/choose.h: which provider and device a run uses.
 */
#ifndef KG_RUNNER_CHOOSE_H
#define KG_RUNNER_CHOOSE_H

#include <jansson.h>
#include <stdbool.h>

#include "runner/error.h"
#include "runner/options.h"
#include "runner/paths.h"

struct kg_choice {
    char *provider; /* absolute path */
    char *against;  /* or NULL */
    char *device;   /* for --device in a repro line: "emu", "cuda:0" */
    char *note;     /* why auto fell back to emu; or NULL */
    json_t *facts;  /* the device event of the probe; or NULL: nothing was probed */
    int ordinal;
    int lock; /* a descriptor that holds the device's lock; -1 */
    int interrupted;
    bool bench; /* the probe measures the ceilings (facts "bench") */
};

/* Asks a short-lived host whether the provider's device can be opened, and takes the
   device's lock where it is a GPU. With `auto`, no device means emu. Clear in either
   case. */
int kg_choose(struct kg_choice *choice, const struct kg_options *options,
              const struct kg_paths *paths, struct kg_error *error);
void kg_choice_clear(struct kg_choice *choice);

#endif
