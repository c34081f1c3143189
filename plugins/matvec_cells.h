/*
 * matvec_cells.h: what the sections about matrix-vector products have in common.
 */
#ifndef KGATE_MATVEC_CELLS_H
#define KGATE_MATVEC_CELLS_H

#include "kgate/check.h"
#include "plugins/oracle/oracle.h"

/* A matrix of quantized weights on the host: `out` rows of `in`. */
struct kg_weights {
    const struct kg_oracle_type *type;
    const void *data;
    int64_t in, out;
};

enum { KG_MAX_ROWS = 4096 }; /* of a tensor that one cell evaluates */

/* The first matrix of a tensor (of a stack of experts, expert 0). Of a matrix with more
   than KG_MAX_ROWS rows it takes eight slices of consecutive rows, the first slice at its
   start, the last at its end, the others evenly between. Records what was taken in the
   cell's parameters. Does not return (SKIP not-applicable) if the tensor is no matrix of
   a type that the oracle knows. */
struct kg_weights kg_weights_of(struct kg_cell *cell, const struct kg_tensor *tensor);

/* Weights made up for a shape; see kg_oracle_make_weights. */
struct kg_weights kg_weights_made(struct kg_cell *cell, const struct kg_oracle_type *type,
                                  int64_t in, int64_t out);

/* Runs stage A on m rows of the pinned vector, x[i] = pr(i + offset) * 0.1, and checks
   it against the f64 product: "bound", and "band" (1e-4 of the largest result) unless the
   results are too few for a band. */
void kg_run_stage_a(struct kg_cell *cell, const struct kg_weights *weights, int64_t m,
                    uint64_t offset);

/* Quantizes the same activations to q8_1 (exact: "q", "d", "s") and runs stage B on the
   codes. Its result is checked against the f64 product of the very codes ("bound") and
   against that of the unquantized activations ("band", 3e-2, unless the results are too
   few; "unquantized", a bound that adds half a step of every code). Does not return (SKIP
   not-applicable) if stage B does not cover the type. */
void kg_run_stage_b(struct kg_cell *cell, const struct kg_weights *weights, int64_t m,
                    uint64_t offset);

/* The same on activations x [m][in] of the caller's; the type must be one of stage B's. */
void kg_run_stage_b_on(struct kg_cell *cell, const struct kg_weights *weights, int64_t m,
                       const float *x);

/* What a kernel made of activations: codes, scales and sums. Valid until the cell ends. */
struct kg_q8_1 {
    const int8_t *q;
    const float *d, *s;
};

/* Runs quantize_q8_1 on x [rows][cols], compares codes, scales and sums with the host's
   (exact: "q", "d", "s"), and returns the kernel's. */
struct kg_q8_1 kg_run_q8_1(struct kg_cell *cell, const float *x, int64_t rows,
                           int64_t cols);

/* Ends the cell as ERROR if rc says that the oracle ran out of memory. */
void kg_oracle_must(struct kg_cell *cell, int rc);

#endif
