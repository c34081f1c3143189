/*
 * oracle.h: CPU references for the gate sections.
 *
 * Plain loops in f64 that share no code with kernels/. The static library is linked into
 * every plugin. Functions that allocate return KG_OK or KG_E_MEMORY; the others cannot
 * fail. All of them may use OpenMP inside, so call them from one thread.
 */
#ifndef KGATE_ORACLE_H
#define KGATE_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kgate/status.h"
#include "kgate/types.h"

/* ---- weights ---- */

/*
 * One block taken apart: element i is scale[i / 16] * code[i] - min[i / 16]. (A type with
 * 32 elements under one scale repeats it.)
 *
 * Scales and minima are f64 and exact. So is the element: the widest case, Q5_K, spans
 * 2^-24 .. 2^27. Hence an f32 weight is one rounding of it, which is also what ggml's
 * f32 arithmetic gives: there every product is exact (an 11-bit half times at most 13
 * bits of integers) and only the subtraction rounds.
 */
struct kg_oracle_split {
    double scale[16];
    double min[16];
    int8_t code[256];
};

/* A row of the table of types. `split` is NULL for plain floats (F32, F16, BF16). */
struct kg_oracle_type {
    enum kg_type type;
    const char *id; /* as cell ids spell it: "q4_k" */
    void (*split)(const uint8_t *src, struct kg_oracle_split *out);
    int16_t group;   /* elements under one scale: 16 or 32; 0 for plain floats */
    bool quads;      /* products take four units at once, as integers times one number */
    bool has_min;    /* min is used; otherwise it is 0 everywhere */
    bool stage_b;    /* the integer path covers it */
    int16_t half_at; /* byte offset of the half-precision scale in a block; -1 if none */
    int16_t min_at;  /* likewise of the half-precision minimum */
};

extern const struct kg_oracle_type kg_oracle_types[];
extern const size_t kg_oracle_n_types;

/* The row of `type`, or NULL. */
const struct kg_oracle_type *kg_oracle_type(int type);

/* dst[i] = element i of src as f32, in ggml's CPU reading. n is a multiple of the block.
 */
void kg_oracle_dequantize(const struct kg_oracle_type *type, const void *src, float *dst,
                          int64_t n);

/*
 * Weights made up for a shape: `rows` rows of `cols` elements of arbitrary codes, packed
 * as kg_row_bytes says. The scales of block b of row r are powers of two that differ from
 * those of the neighbouring blocks and rows, so that a wrong row or block shows. dst
 * holds rows * kg_row_bytes(type, cols) bytes. All elements are finite.
 */
void kg_oracle_make_weights(const struct kg_oracle_type *type, void *dst, int64_t rows,
                            int64_t cols, uint64_t seed);

/* ---- products ---- */

/*
 * y[r][o] = sum over k of w[o][k] * x[r][k], and terms[r][o] = the sum of the magnitudes
 * of the same products. w: out rows of `in` weights of `type`, dequantized to f32 first.
 * x [m][in] f64; y and terms [m][out]; terms may be NULL.
 */
int kg_oracle_linear(const struct kg_oracle_type *type, const void *w, const double *x,
                     double *y, double *terms, int64_t in, int64_t out, int64_t m);

/* The same for f32 activations. */
int kg_oracle_linear_f32(const struct kg_oracle_type *type, const void *w, const float *x,
                         double *y, double *terms, int64_t in, int64_t out, int64_t m);

/* ---- q8_1 activations ---- */

/* As kgate/ops/matvec.h defines quantize_q8_1: x [rows][cols], q likewise, d and s
   [rows][cols / 32]. Codes saturate at +-127, and 0 * (1/d) with an infinite 1/d gives
   code 0; both happen only where d is subnormal. x must not be NaN. */
void kg_oracle_q8_1(const float *x, int8_t *q, float *d, float *s, int64_t rows,
                    int64_t cols);

/* In which order the terms of an integer product are added. */
struct kg_oracle_order {
    bool chain;  /* units ascending into one accumulator, as the int8 GEMM does (of no
                         type of quads); else stage B's: unit u to lane u % 32, or quad u to
                         lane u % 16, then a butterfly */
    int64_t cut; /* stage B in two parts, the first of so many units (a multiple of 32);
                         0: in one */
};

/* Where a product goes, all [m][out]. The last two are a chain's, and may be NULL: the sum
   of its terms' magnitudes, and its largest prefix sum less its smallest (0 is one). */
struct kg_oracle_sums {
    double *y, *bound, *terms, *range;
};

/*
 * Integer products in f64 from q8_1 codes and scales (the sums follow from both):
 *   y = sum over groups g of d * (scale[g] * sum(code * q) - min[g] * sum(q))
 * (the groups of a quad are one term)
 * and what a kernel that adds in that order may be off by (derived in q8_1.c). Weights are
 * not rounded to f32. The type must have a splitter. in: a multiple of 32 and of the block.
 */
int kg_oracle_linear_q8_1(const struct kg_oracle_type *type, const void *w,
                          const int8_t *q, const float *d,
                          const struct kg_oracle_order *order,
                          const struct kg_oracle_sums *to, int64_t in, int64_t out,
                          int64_t m);
/* The bound of a chain that is cut into at most so many parts, wherever, added in their
   order. */
double kg_oracle_cut_bound(const struct kg_oracle_type *type, int64_t in, double terms,
                           double range, int64_t segments);

/* ---- bounds: running.c and bound.c have the derivations ---- */

/* What stage A of f32 activations x [m][in] may be off by, bound [m][out], from its partial
   sums: running.c. The type is a plain one or has a splitter. */
int kg_oracle_stage_a_bound(const struct kg_oracle_type *type, const void *w,
                            const float *x, double *bound, int64_t in, int64_t out,
                            int64_t m);
/* The same where a lane takes `unit` consecutive elements at a time; `in` is a multiple. */
int kg_oracle_chain_bound(const struct kg_oracle_type *type, const void *w,
                          const float *x, double *bound, int64_t in, int64_t out,
                          int64_t m, int64_t unit);

/* bound[i] = ops*u / (1 - ops*u) * terms[i] + 2 * n_terms * 2^-149, u = 2^-24; n_terms is
   the number of terms of one output, and the last part covers results below the normal
   range. */
void kg_oracle_bound(double *bound, const double *terms, size_t count, double ops,
                     double n_terms);
/* bound[i] becomes that of the sum y[i] multiplied by `scale`, which the kernel does with
   `roundings` roundings; y[i] is the product already. */
void kg_oracle_bound_scaled(double *bound, const double *y, size_t count, double scale,
                            int roundings);

#endif
