/*
 * plugins/dsv4_cells.h: what the cells of dsv4-native do with one projection of an expert.
 *
 * Checks are named PREFIX.codes and so on, so that a cell can run several projections.
 */
#ifndef KGATE_PLUGINS_DSV4_CELLS_H
#define KGATE_PLUGINS_DSV4_CELLS_H

#include "kgate/check.h"
#include "plugins/oracle/dsv4.h"

/* Activations and their codes. */
struct kg_dsv4_act {
    const float *x; /* [m][k] */
    uint8_t *codes;
    float *scales;
    int64_t m, k;
};

/* Quantized on the host. */
struct kg_dsv4_act kg_dsv4_act_of(struct kg_cell *cell, const float *x, int64_t m,
                                  int64_t k);
/* Runs act_quant on act->x and checks that codes and scales are the host's, exactly. */
void kg_dsv4_run_act_quant(struct kg_cell *cell, const char *prefix,
                           const struct kg_dsv4_act *act);

enum kg_dsv4_check {
    KG_DSV4_F64 = 1,       /* PREFIX.f64: bound against the product in f64 */
    KG_DSV4_ALL_FORMS = 2, /* besides AUTO: PREFIX.ordered, .rows8, .tiles */
};
/* Runs the product on the host's codes and checks that it has the bits of the mirror
   (PREFIX.bits). Returns what the kernel computed, [m][n]. */
const float *kg_dsv4_run_gemm(struct kg_cell *cell, const char *prefix,
                              const struct kg_dsv4_weights *w,
                              const struct kg_dsv4_act *act, unsigned checks);

/* Runs swiglu on [m][n] and checks against f64: PREFIX.h, a bound for each element. */
const float *kg_dsv4_run_swiglu(struct kg_cell *cell, const char *prefix,
                                const float *gate, const float *up, float limit,
                                int64_t m, int64_t n);

/* The input of w2 as the product in f64 gives it from x: swiglu of both products. */
const float *kg_dsv4_hidden(struct kg_cell *cell, const struct kg_dsv4_weights *w1,
                            const struct kg_dsv4_weights *w3,
                            const struct kg_dsv4_act *act, float limit);

/* Weights made up for a shape. Neighbouring groups have different scales; all sixteen codes
   occur. group is 16 or 32. */
struct kg_dsv4_weights kg_dsv4_weights_made(struct kg_cell *cell, int group, int64_t n,
                                            int64_t k, uint64_t seed);
/* m x k activations that are sums of four test vectors, near a bell curve; row r times a
   power of two of its own. */
const float *kg_dsv4_bell(struct kg_cell *cell, int64_t m, int64_t k, uint64_t offset);

int kg_dsv4_kind(const struct kg_dsv4_weights *w);
struct kg_cost kg_dsv4_gemm_cost(const struct kg_dsv4_weights *w, int64_t m);

/* Ends the cell if an oracle ran out of memory. */
void kg_dsv4_must(struct kg_cell *cell, int rc);
/* "PREFIX.what" in the cell's memory. */
const char *kg_dsv4_name(struct kg_cell *cell, const char *prefix, const char *what);

/* plugins/dsv4_model.c: a sample of the model's experts. */
struct kg_dsv4_sample {
    const char *id;
    int layer;  /* -1: the split layer, -2: the last; clamped to the model's layers */
    int mtp;    /* -1, or the MTP layer instead */
    int expert; /* clamped */
};
struct kg_dsv4_expert {
    char prefix[48]; /* "layers.20", "mtp.0" */
    int expert;
    float limit;
    struct kg_dsv4_weights w1, w2, w3;
};
/* Does not return if a tensor is missing or not what it should be. */
struct kg_dsv4_expert kg_dsv4_expert_of(struct kg_cell *cell, const char *role,
                                        const char *prefix, int expert);
struct kg_dsv4_expert kg_dsv4_sampled(struct kg_cell *cell,
                                      const struct kg_dsv4_sample *sample);
/* The first `rows` captured inputs of the expert's block (fewer if there are fewer: *rows is
   set); test vectors if the section was told so. Does not return without either. */
const float *kg_dsv4_captured(struct kg_cell *cell, const struct kg_dsv4_expert *expert,
                              const char *role, int64_t *rows);

#endif
