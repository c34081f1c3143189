/*
 * tests/plugins/fault.h: what the planted faults share.
 *
 * A planted fault is a section of one cell, SECTION.cell, that is right but for one
 * thing. Its kernel is the provider's upload of results that the host made, so it runs on
 * every provider.
 */
#ifndef KG_TESTS_PLUGINS_FAULT_H
#define KG_TESTS_PLUGINS_FAULT_H

#include "kgate/check.h"

enum { FAULT_ROWS = 4, FAULT_COLS = 6, FAULT_N = FAULT_ROWS * FAULT_COLS };

/* "Launches" a kernel that writes `bytes` bytes at `to`. */
#define FAULT_WRITE(cell, to, from, bytes)                                               \
    (kg_provider(cell)->device->upload((to), (from), (bytes)))

/* The oracle: twice the test vector. */
static inline double *fault_oracle(struct kg_cell *c)
{
    double *want = kg_alloc(c, FAULT_N * sizeof *want);
    for (int i = 0; i < FAULT_N; i++)
        want[i] = 2.0 * (double)kg_pr_at(c, (uint64_t)i);
    return want;
}

/* What a right kernel gives: the same bits. */
static inline float *fault_result(struct kg_cell *c)
{
    return kg_pr(c, FAULT_N, 0, 2.0f);
}

static inline void fault_check(struct kg_cell *c, struct kg_buf *y)
{
    double *bound = kg_alloc(c, FAULT_N * sizeof *bound);
    for (int i = 0; i < FAULT_N; i++)
        bound[i] = 1e-6;
    kg_check_bound(c, "y", kg_fetch(y), fault_oracle(c), bound, FAULT_N);
}

#define FAULT_SECTION(section_name, run_function)                                        \
    static void plan(struct kg_plan *p)                                                  \
    {                                                                                    \
        kg_plan_add(                                                                     \
            p, &(struct kg_cell_spec){.id = section_name ".cell", .run = run_function}); \
    }                                                                                    \
    const struct kg_section kgate_section = {.abi = KG_SECTION_ABI,                      \
                                             .size = sizeof kgate_section,               \
                                             .name = section_name,                       \
                                             .summary = "a planted fault",               \
                                             .plan = plan}

#endif
