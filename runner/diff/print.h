/*
 * runner/diff/print.h: a diff in the formats that people and machines read.
 */
#ifndef KG_RUNNER_DIFF_PRINT_H
#define KG_RUNNER_DIFF_PRINT_H

#include <stdio.h>

#include "runner/diff/classify.h"

#define KG_MARKDOWN_MAX 60000 /* bytes; what a comment on a pull request may hold */

struct kg_print {
    unsigned fail_on; /* 1 << class: what makes the head worse */
    size_t limit; /* text: lines a class, 0 all; cells that left or joined always all */
};

void kg_diff_print_text(FILE *out, const struct kg_diff *diff,
                        const struct kg_print *print);
/* At most KG_MARKDOWN_MAX bytes. */
void kg_diff_print_markdown(FILE *out, const struct kg_diff *diff,
                            const struct kg_print *print);
void kg_diff_print_json(FILE *out, const struct kg_diff *diff,
                        const struct kg_print *print);
/* One suite a section, one case a cell; a change in `fail_on` is a failure. */
void kg_diff_print_junit(FILE *out, const struct kg_diff *diff,
                         const struct kg_print *print);

/* What a change is attributed to, in brackets; "" where the class asks for none. */
const char *kg_change_cause_text(const struct kg_change *change, char *buffer,
                                 size_t size);
/* "3 throttled, 1 other clocks": arms whose times were left out; "" if there are none. */
const char *kg_diff_refusal_text(const struct kg_diff *diff, char *buffer, size_t size);
/* "3 broken, 1 new"; "no change" if nothing is in the classes of `mask`. */
const char *kg_diff_count_text(const struct kg_diff *diff, unsigned mask, char *buffer,
                               size_t size);

#endif
