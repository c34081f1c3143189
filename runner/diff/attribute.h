/*
 * runner/diff/attribute.h: which recorded differences can have caused a change.
 */
#ifndef KG_RUNNER_DIFF_ATTRIBUTE_H
#define KG_RUNNER_DIFF_ATTRIBUTE_H

#include "runner/diff/classify.h"

struct kg_attribution {
    unsigned run;             /* causes that hold for every cell */
    const char *base_section; /* the section that `section` was worked out for */
    unsigned section;
    const char *role;
};

void kg_attribute_init(struct kg_attribution *a, struct kg_record *base,
                       struct kg_record *head);
/* Causes for a pair of cells, either may be NULL: run, section, artifact, parameters. */
unsigned kg_attribute_cell(struct kg_attribution *a, struct kg_record *base,
                           struct kg_record *head, const struct kg_record_cell *b,
                           const struct kg_record_cell *h);
/* What the section was given differs: another file, or another content. `role`: only that
   one; NULL: any. */
bool kg_attribute_artifacts(const struct kg_record_section *b,
                            const struct kg_record_section *h, const char *role);
/* The bound of a check is another one. In a check of class "bound" the bound recorded is
   that of the worst element, so two are compared only if the same element is the worst. */
bool kg_attribute_bound(const struct kg_record_check *b, const struct kg_record_check *h);
/* Both cells have output digests and all of them are equal: the kernel wrote the same
   bits, so what changed is on the side of the section. */
bool kg_attribute_same_output(const struct kg_record_cell *b,
                              const struct kg_record_cell *h);

#endif
