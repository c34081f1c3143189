/*
 * runner/diff/facts.h: the facts of a run that a diff and a report look at.
 *
 * The only file that knows where the "run" object keeps them.
 */
#ifndef KG_RUNNER_DIFF_FACTS_H
#define KG_RUNNER_DIFF_FACTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "runner/diff/load.h"

/* What may have caused a change. Bits, so that several can be suspected. */
enum kg_cause {
    KG_CAUSE_KERNEL = 1u << 0,    /* the provider's digest changed */
    KG_CAUSE_SECTION = 1u << 1,   /* the section's plugin, with its oracle, changed */
    KG_CAUSE_BOUND = 1u << 2,     /* the check's bound changed */
    KG_CAUSE_ARTIFACT = 1u << 3,  /* another model file, or its content changed */
    KG_CAUSE_DRIVER = 1u << 4,    /* GPU driver or CUDA version */
    KG_CAUSE_DEVICE = 1u << 5,    /* another GPU, or emulated against real */
    KG_CAUSE_SEED = 1u << 6,      /* seed or schedule seed */
    KG_CAUSE_PARAMS = 1u << 7,    /* the cell's own parameters changed */
    KG_CAUSE_SELECTION = 1u << 8, /* the user left the cell out, or ended the run */
    KG_CAUSE_RUNNER = 1u << 9,    /* kgate itself */
};

enum kg_fact {
    KG_FACT_COMMIT,
    KG_FACT_DIRTY,
    KG_FACT_STARTED,
    KG_FACT_KGATE,
    KG_FACT_MANIFEST,
    KG_FACT_MANIFEST_DIGEST,
    KG_FACT_SELECTION,
    KG_FACT_SEED,
    KG_FACT_SCHEDULE,
    KG_FACT_PROVIDER,
    KG_FACT_PROVIDER_BUILD,
    KG_FACT_PROVIDER_DIGEST,
    KG_FACT_AGAINST_DIGEST,
    KG_FACT_HOST,
    KG_FACT_CPU,
    KG_FACT_DEVICE,
    KG_FACT_DEVICE_CC,
    KG_FACT_DRIVER,
    KG_FACT_CUDA,
    KG_FACT_SM_CLOCK,
    KG_FACT_MEM_CLOCK,
    KG_FACT_POWER_LIMIT,
    KG_FACT_ECC,
    KG_FACT_TIMING_POLICY,
    KG_FACT_TIMING_VERSION,
    KG_FACT_NOISE,
    KG_FACT_COPY,
    KG_FACT_READ,
    KG_FACT_F16,
    KG_FACT_INT8,
    KG_FACT_SYNTHETIC,
    KG_FACT_INTERRUPTED,
    KG_N_FACTS
};

/* For people: "GPU driver". */
const char *kg_fact_label(enum kg_fact fact);
/* What it explains when it differs; 0 for those that explain nothing. */
unsigned kg_fact_cause(enum kg_fact fact);
/* Whether a difference is reported as a change of environment. */
bool kg_fact_is_environment(enum kg_fact fact);
/* As text, in the result's memory; NULL if the result does not have it. */
const char *kg_fact(struct kg_record *record, enum kg_fact fact);
/* Differs in two results. A fact that only one has differs too. */
bool kg_fact_differs(struct kg_record *base, struct kg_record *head, enum kg_fact fact);

/* "kernel", "section", ...: of one bit. */
const char *kg_cause_name(unsigned cause);
/* Names of all bits, ", " between; "not explained" for none. */
const char *kg_cause_text(unsigned causes, char *buffer, size_t size);

/* Timings: the relative noise floor of the run; NaN if it has none. */
double kg_fact_noise_floor(const struct kg_record *record);
/* Why the times of two runs cannot be compared, or NULL if they can. */
const char *kg_fact_times_refused(struct kg_record *base, struct kg_record *head,
                                  char *buffer, size_t size);

#endif
