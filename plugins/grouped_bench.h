/*
 * grouped_bench.h: grouped products of a size that is worth timing, for a GPU only.
 *
 * 128 experts of 4096 -> 1536. The sizes of the groups fall as 1 / (i + 8), 17 to 1 from the
 * largest to the smallest, in an order that is not sorted.
 */
#ifndef KGATE_GROUPED_BENCH_H
#define KGATE_GROUPED_BENCH_H

#include "plugins/grouped_cells.h"
#include "plugins/oracle/oracle.h"

struct kg_bench_shape {
    const char *id;
    int32_t pairs;  /* rows that experts multiply */
    int32_t tokens; /* rows of x: pairs / tokens experts each */
};
/* "4096-rows": 4096 rows in all. "4096-tokens": 4096 tokens with 8 experts each. */
extern const struct kg_bench_shape kg_bench_shapes[2];

/* The form that is timed beside others: tiles of 128 rows from 33 rows on, trimmed. */
extern const struct kg_grouped_form kg_bench_form;

/* The groups and rows of a shape, x filled. Does not return on the emulated device (SKIP
   device-unsupported). */
struct kg_groups kg_bench_groups(struct kg_cell *cell,
                                 const struct kg_bench_shape *shape);

/* Weights of all experts, `type` NULL for f16; values repeat after a million or so, so
   that making them does not take minutes. *expert_bytes: of one expert. */
const void *kg_bench_weights(struct kg_cell *cell, const struct kg_groups *g,
                             const struct kg_oracle_type *type, size_t *expert_bytes);

/* Checks results of pairs from every group against the f64 product ("sampled"). */
void kg_bench_check(struct kg_cell *cell, const struct kg_groups *g,
                    const struct kg_oracle_type *type, const void *w, size_t expert_bytes,
                    const float *y);

/* Arbitrary bytes, the half-precision scales between 2^-4 and 2^-3, all different. `offset`
   into the pinned vector. */
void kg_make_blocks(struct kg_cell *cell, const struct kg_oracle_type *type,
                    uint8_t *blocks, size_t bytes, uint64_t offset);

#endif
