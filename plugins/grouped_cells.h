/*
 * grouped_cells.h: what the sections about grouped products have in common.
 */
#ifndef KGATE_GROUPED_CELLS_H
#define KGATE_GROUPED_CELLS_H

#include "kgate/check.h"
#include "plugins/oracle/grouped.h"

/* The groups of a product on the host, and its rows of x. */
struct kg_groups {
    int64_t groups, pairs, n_experts, n_rows, in, out;
    int32_t *offsets, *experts, *rows; /* experts, rows: NULL if direct */
    float *scale;
    uint16_t *x;
};

/* `sizes` (n of them) laid end to end; experts and rows direct; scale[p] = 1 + p % 5 / 4;
   x all zero. */
struct kg_groups kg_groups_made(struct kg_cell *cell, const int32_t *sizes, int64_t n,
                                int64_t in, int64_t out);

/* The arrays in device memory. */
struct kg_group_bufs {
    struct kg_buf *offsets, *experts, *rows, *scale, *x;
};
struct kg_group_bufs kg_groups_upload(struct kg_cell *cell, const struct kg_groups *g);

/* The product that a launcher is given; made inside KG_ARM, where addresses are settled. */
struct kg_grouped kg_grouped_now(const struct kg_groups *g,
                                 const struct kg_group_bufs *bufs, int64_t expert_stride);

/* The forms of the visitor, by the names that arms and checks carry. */
struct kg_named_form {
    const char *name;
    struct kg_grouped_form form;
};
extern const struct kg_named_form kg_visitor_forms[];
extern const size_t kg_n_visitor_forms;

/* Bytes that the product must move at the least, and its operations. */
struct kg_cost kg_grouped_cost(const struct kg_groups *g, double expert_bytes);

#endif
