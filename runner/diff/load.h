/*
 * runner/diff/load.h: a result file as `kgate diff`, `report` and `results` see it.
 *
 * The file is input from elsewhere: it is read by a strict JSON reader with limits on size
 * and depth, every field has its type checked, and ids and names are kept as they are (to
 * be escaped by whoever prints them). Unknown members are skipped, so that a later minor
 * version can be read.
 */
#ifndef KG_RUNNER_DIFF_LOAD_H
#define KG_RUNNER_DIFF_LOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "runner/arena.h"
#include "runner/error.h"
#include "runner/events.h"

#define KG_RECORD_SCHEMA "kgate.result"
#define KG_RECORD_MAJOR 1
#define KG_RECORD_MAX_BYTES ((size_t)256 << 20)

struct kg_record_check {
    const char *name, *class_name, *metric; /* metric may be NULL */
    double value, bound, margin;            /* NaN where the file has none */
    double spread;      /* run to run, natural log units; NaN if not recorded */
    double worst_index; /* NaN if not recorded */
    double worst_got, worst_want;
};

struct kg_record_digest {
    const char *key, *hex; /* "ARM/BUFFER" */
};

struct kg_record_timing {
    const char *arm, *policy, *policy_version, *series, *engine; /* NULL if absent */
    size_t n_samples;
    double *samples_us;
    double median_us, mad_us, ci95_us[2];
    double gbps, tflops, roofline_percent;
    double sm_mhz, mem_mhz; /* of the GPU at the end of the series; NaN if not recorded */
    bool throttled, invalid;
};

struct kg_record_cell {
    const char *id, *section;
    enum kg_verdict verdict;
    bool ordered, optional;
    const char *reason, *detail, *repro, *role, *log_tail; /* NULL if absent or "" */
    double seconds;
    size_t n_checks, n_digests, n_timings;
    struct kg_record_check *checks;
    struct kg_record_digest *digests;
    struct kg_record_timing *timings;
    const char *params; /* JSON text, params_size bytes */
    size_t params_size;
    /* --against; NULL and NaN if the cell did not run on another provider. */
    const char *fails_on;          /* "neither", "new", "old", "both" */
    const char *other_detail;      /* what the other provider came to */
    double outputs, equal_outputs; /* compared, and equal to the bit */
};

struct kg_record_section {
    const char *name, *status; /* status may be NULL */
    const char *reason, *detail;
    const char *digest;    /* of the plugin; NULL if not recorded */
    const char *artifacts; /* what it was given, JSON text; NULL if not recorded */
    size_t artifacts_size;
    const char *log_tail; /* NULL if absent */
    double seconds;
};

struct kg_record {
    char *path;
    char *text; /* the file; strings point into it */
    size_t size;
    int major, minor;
    json_t *run; /* the "run" object */
    const char *verdict;
    size_t n_sections, n_cells;
    struct kg_record_section *sections; /* as in the file */
    struct kg_record_cell *cells;       /* sorted by id, which is unique */
    size_t counts[KG_ERROR + 1];        /* of the cells, by verdict */
    struct kg_arena arena;
};

/* Reads a file. On failure the error is one line with the file's name; clear the result
   in either case. KG_E_IO: cannot be read or is over KG_RECORD_MAX_BYTES; KG_E_FORMAT: not
   a result file; KG_E_UNSUPPORTED: another major version of the schema. */
int kg_record_load(struct kg_record *result, const char *path, struct kg_error *error);
void kg_record_clear(struct kg_record *result);

const struct kg_record_cell *kg_record_find(const struct kg_record *result,
                                            const char *id);
const struct kg_record_section *kg_record_section_find(const struct kg_record *result,
                                                       const char *name);

#endif
