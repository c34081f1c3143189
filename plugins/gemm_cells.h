/*
 * gemm_cells.h: what the sections about tensor-core products have in common.
 */
#ifndef KGATE_GEMM_CELLS_H
#define KGATE_GEMM_CELLS_H

#include "plugins/matvec_cells.h"

/* One product under test: weights, m tokens of activations and their q8_1 codes, on the
   host and on the device. */
struct kg_gemm {
    struct kg_cell *cell;
    struct kg_weights w;
    int64_t m;
    const float *x; /* [m][in] */
    struct kg_q8_1 act;
    struct kg_buf *dw, *dq, *dd, *ds;
    /* NULL until the first check needs them: the product of the codes, and that of the
       unquantized activations */
    struct kg_oracle_sums sums;
    double *exact;
};

/* True on a device that must not be given the shapes of the speed tables. */
bool kg_gemm_is_emulated(const struct kg_cell *cell);

/* The last `rows` rows of w, or all if it has fewer; notes the cut. */
struct kg_weights kg_gemm_last_rows(struct kg_cell *cell, struct kg_weights w,
                                    int64_t rows);

/* The tensor `name` of the artifact, if it is a matrix of `type`; else the cell ends as SKIP
   not-applicable. On the emulated device: its last rows, less than a tile; and a product
   that takes seconds there ends as SKIP device-unsupported. */
struct kg_weights kg_gemm_tensor(struct kg_cell *cell, const char *role, const char *name,
                                 enum kg_type type, int64_t m);
struct kg_weights kg_gemm_fit(struct kg_cell *cell, struct kg_weights w, int64_t m);

/* w in split planes (kgate/ops/gemm.h; Q4_0 or NVFP4), what lies between them 0xFF. */
struct kg_buf *kg_gemm_planes(struct kg_cell *cell, const struct kg_weights *w);

/* The f64 product of the unquantized activations, [m][out]. */
double *kg_gemm_exact(struct kg_gemm *g);

/* Quantizes x and checks codes, scales and sums (exact); uploads everything. */
struct kg_gemm kg_gemm_open(struct kg_cell *cell, const struct kg_weights *w, int64_t m,
                            const float *x);

/* What one arm of this product must move and compute. */
struct kg_cost kg_gemm_cost(const struct kg_gemm *g, double x_bytes, const char *engine);

/* Runs the int8 GEMM as arm `arm` into a buffer of its own, and fetches the result.
   workers > 0: the stream-K form with so many. dw: the weights in the layout. */
const float *kg_gemm_int8(struct kg_gemm *g, const char *arm, struct kg_buf *dw,
                          int layout, int workers);

/* Runs stage B (dp4a) on the same codes. */
const float *kg_gemm_dp4a(struct kg_gemm *g);

/* y against the f64 product of the very codes. A result is the sum of `in / 32` units, in at
   most `segments` parts that are added separately. */
void kg_gemm_check_bound(struct kg_gemm *g, const char *name, const float *y,
                         int segments);

/* y against another arm's result: max |difference| / max |other|. */
void kg_gemm_check_near(struct kg_gemm *g, const char *name, const float *y,
                        const float *other, double limit);

/* y against the f64 product of the unquantized activations. */
void kg_gemm_check_band(struct kg_gemm *g, const char *name, const float *y,
                        double limit);

/* No bit differs between two results of this product. */
void kg_gemm_check_same(struct kg_gemm *g, const char *name, const float *y,
                        const float *other);

#endif
