/*
 * runner/diff/classify.h: what changed from one result to another, and why.
 */
#ifndef KG_RUNNER_DIFF_CLASSIFY_H
#define KG_RUNNER_DIFF_CLASSIFY_H

#include "runner/diff/facts.h"
#include "runner/diff/load.h"

/* In order of weight; reports list them so. */
enum kg_change_class {
    KG_CHANGE_BROKEN,        /* fails or cannot be judged, and did not before */
    KG_CHANGE_COVERAGE_LOST, /* judged before, now skipped, gone, or short of a check */
    KG_CHANGE_MARGIN_WORSE,  /* nearer to its bound than the spread explains */
    KG_CHANGE_SLOWER,
    KG_CHANGE_STILL_FAILING, /* failed in both */
    KG_CHANGE_BITS,          /* the digest differs, the cell passes in both */
    KG_CHANGE_BOUND,         /* a check is held to another bound */
    KG_CHANGE_LEFT,          /* gone, but it was skipped before too */
    KG_CHANGE_NEW,           /* joined, or judged for the first time */
    KG_CHANGE_FIXED,
    KG_CHANGE_MARGIN_BETTER,
    KG_CHANGE_FASTER,
    KG_CHANGE_ENVIRONMENT, /* a fact of the run; `what` is its label, no cell */
    KG_N_CHANGES
};

/* "broken", "coverage-lost", ... as --fail-on takes them. */
const char *kg_change_name(enum kg_change_class class);
/* The class of that name; KG_N_CHANGES if there is none. */
enum kg_change_class kg_change_of_name(const char *name, size_t length);

struct kg_change {
    enum kg_change_class class;
    unsigned causes; /* kg_cause bits; 0: nothing recorded explains it */
    const struct kg_record_cell *base; /* NULL: joined */
    const struct kg_record_cell *head; /* NULL: gone */
    const char *what;                  /* check, digest or arm; fact; NULL: the verdict */
    const char *detail;                /* one line */
    double weight;                     /* worst first within a class */
    double base_value, head_value;     /* margins, bounds or medians; NaN otherwise */
    double p, effect;                  /* rank test; NaN otherwise */
};

/* A cell that was looked at; one of the two may be NULL. */
struct kg_pair {
    const struct kg_record_cell *base, *head;
};

struct kg_diff_options {
    const char *const *only; /* substrings of section names; none: all */
    size_t n_only;
    double margin_rise;   /* a smaller relative rise of a margin is not reported (0.1) */
    double alpha;         /* a larger p is not reported (0.01) */
    size_t n_spread_runs; /* only passed on, to be printed */
};

/* Why the times of one arm are not compared. */
enum kg_refusal {
    KG_REFUSE_POLICY,
    KG_REFUSE_SERIES,
    KG_REFUSE_SAMPLES,
    KG_REFUSE_CLOCKS,
    KG_REFUSE_THROTTLED,
    KG_REFUSE_INVALID,
    KG_N_REFUSALS
};
const char *kg_refusal_name(enum kg_refusal refusal);

struct kg_diff {
    struct kg_record *base, *head;
    size_t n_changes;
    struct kg_change *changes; /* by class, then worst first, then id */
    size_t counts[KG_N_CHANGES];
    size_t n_pairs;
    struct kg_pair *pairs;             /* by id */
    size_t n_cells_base, n_cells_head; /* looked at, after `only` */
    size_t n_common, n_same;           /* in both; of those, without any change */
    size_t n_timed;                    /* arms whose times were compared */
    const char *times_refused; /* why no times were compared; NULL if they were, or if
                                  neither has any */
    const char *data_refused;  /* why margins and digests were not compared; NULL if they
                                 were: with other test data they are not the same ones */
    size_t n_times_refused[KG_N_REFUSALS]; /* arms left out, by reason */
    size_t n_spread_runs; /* further runs that the spread of margins comes from */
    struct kg_arena arena;
};

/* Both records stay the caller's and must outlive the diff. KG_E_INVALID (one line in
   `error`) if there is no common cell. Clear in either case. */
int kg_diff_make(struct kg_diff *diff, struct kg_record *base, struct kg_record *head,
                 const struct kg_diff_options *options, struct kg_error *error);
void kg_diff_clear(struct kg_diff *diff);

/* Changes of the classes in `fail_on` (1 << class). */
size_t kg_diff_worse(const struct kg_diff *diff, unsigned fail_on);

/* For the files behind classify.c. `detail` is printf'ed. */
struct kg_change *kg_diff_add(struct kg_diff *diff, enum kg_change_class class,
                              const struct kg_record_cell *base,
                              const struct kg_record_cell *head, unsigned causes,
                              const char *format, ...) KG_PRINTF(6, 7);

#endif
