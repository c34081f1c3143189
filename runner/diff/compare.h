/* runner/diff/compare.h: the parts of a comparison of two cells, for classify.c. */
#ifndef KG_RUNNER_DIFF_COMPARE_H
#define KG_RUNNER_DIFF_COMPARE_H

#include "runner/diff/attribute.h"
#include "runner/diff/classify.h"

/* Both add what they find to the diff; both cells passed. */
void kg_compare_checks(struct kg_diff *diff, const struct kg_diff_options *options,
                       const struct kg_record_cell *base,
                       const struct kg_record_cell *head, unsigned causes);
void kg_compare_digests(struct kg_diff *diff, const struct kg_record_cell *base,
                        const struct kg_record_cell *head, unsigned causes);
/* `floor`: relative; differences up to it are noise. */
void kg_compare_times(struct kg_diff *diff, const struct kg_diff_options *options,
                      const struct kg_record_cell *base,
                      const struct kg_record_cell *head, unsigned causes, double floor);

#endif
