/*
 * oracle/gdn.h: the gated delta net of one head in f64, and how far kernels may be from it.
 * gdn.c and gdn_chunk.c have the derivations.
 */
#ifndef KGATE_ORACLE_GDN_H
#define KGATE_ORACLE_GDN_H

#include <stdint.h>

enum { KG_ORACLE_GDN_DIM = 128 };

/* One head; layouts as in kgate/ops/gdn.h. */
struct kg_oracle_gdn {
    const float *q, *k, *v, *g, *beta;
    const float *state; /* [128][128] of the head */
    int64_t n_heads, n_tokens, head;
    double scale;
};

/* How a chunked kernel computes. */
struct kg_oracle_gdn_form {
    int chunk;
    double operand; /* relative error of an operand rounded to 16 bits; 0: it is not */
    double tiny;    /* absolute error of one below the normal range */
    double sum;     /* relative error of one addition of a product with the state */
};

/* The recurrence. out [n_tokens][128], state [128][128]; and bounds of the scan's errors,
   of the same shapes, where not NULL. */
void kg_oracle_gdn(const struct kg_oracle_gdn *in, double *out, double *state,
                   double *out_bound, double *state_bound);

/* Bounds of a chunked form's errors. 0, or KG_E_MEMORY. */
int kg_oracle_gdn_chunk_bound(const struct kg_oracle_gdn *in,
                              const struct kg_oracle_gdn_form *form, double *out_bound,
                              double *state_bound);

#endif
