/*
 * Error bounds from the partial sums themselves, for products whose order is fixed.
 *
 * A chain s_k = fl(s_(k-1) + t_k) of fma has one rounding a step, off by at most u = 2^-24
 * of what it rounds, which is the exact partial sum S_k and the error E_(k-1) so far:
 *
 *   E_k <= E_(k-1) + u (|S_k| + E_(k-1)),   E_0 = 0
 *
 * and an addition of two such sums a and b is off by E_a + E_b + u (|a + b| + E_a + E_b).
 * This is the running error analysis of Higham (Accuracy and Stability of Numerical
 * Algorithms, section 3.3), with the partial sums of f64 in place of the computed ones. No
 * sign is assumed. For terms of mixed signs partial sums grow with the root of their
 * number, so the bound is far below ops * u * sum |term|, which takes every partial sum for
 * the sum of all magnitudes.
 *
 * A term that was rounded r times before it is added brings r u |t_k| besides.
 *
 * Order of the f32 products: lane l takes the units of `unit` consecutive elements (32 of a
 * block type, 1 of a plain one, 4 for the router) l, l + 32, ... one after the other into
 * one accumulator, element by element; a butterfly of 5 additions joins the lanes. A product
 * and its addition are one rounding, and the weight is the oracle's f32 weight to the bit
 * (cells `dequant` see to that). q8_1.c has the integer products.
 *
 * f64 rounds the oracle's own sums, by n 2^-53 sum |term| at most; sum |term| <= 2 sum |S_k|,
 * so for n < 2^17 that is below 2^-12 of the bound, which KG_FOLD_OWN covers. Exponents: where
 * a result leaves the normal range, a rounding is off by up to 2^-150 whatever the size of
 * the term; 2^-149 is added twice for every term.
 */
#include <math.h>
#include <stdlib.h>

#include "plugins/oracle/fold.h"
#include "plugins/oracle/oracle.h"

enum { LANES = KG_FOLD_LANES };

/* [in] to [step][lane]: element `at` of lane l's units in their turn. */
static void by_lanes(const float *from, double *to, int64_t in, int64_t unit)
{
    for (int64_t i = 0; i < in; i++) {
        int64_t lane = i / unit % LANES;
        int64_t step = i / unit / LANES * unit + i % unit;
        to[step * LANES + lane] = from[i];
    }
}

struct lanes {
    double sum[LANES], err[LANES];
};

/* One step of the first n lanes: kg_fold_add without roundings before it. */
static inline void advance(struct lanes *at, const double *w, const double *x, int n)
{
    for (int l = 0; l < n; l++) {
        at->sum[l] += w[l] * x[l];
        at->err[l] += KG_FOLD_U * (fabs(at->sum[l]) + at->err[l]);
    }
}

static double bound_of(const double *w, const double *x, int64_t in, int64_t unit)
{
    struct lanes at = {{0}, {0}};
    struct kg_fold lanes[LANES];
    int64_t units = in / unit, full = units / LANES * unit;

    for (int64_t i = 0; i < full; i++)
        advance(&at, w + i * LANES, x + i * LANES, LANES);
    for (int64_t i = full; i < full + (units % LANES ? unit : 0); i++)
        advance(&at, w + i * LANES, x + i * LANES, (int)(units % LANES));
    for (int l = 0; l < LANES; l++)
        lanes[l] = (struct kg_fold){at.sum[l], at.err[l]};
    return KG_FOLD_OWN * kg_fold_lanes(lanes, LANES).err + 2 * (double)in * 0x1p-149;
}

/* Row o of w against all rows of x. */
static void bound_row(const struct kg_oracle_type *type, const uint8_t *w, float *plain,
                      double *row, const double *x, double *bound, int64_t in,
                      int64_t padded, int64_t out, int64_t m, int64_t unit)
{
    kg_oracle_dequantize(type, w, plain, in);
    by_lanes(plain, row, in, unit);
    for (int64_t r = 0; r < m; r++)
        bound[r * out] = bound_of(row, x + r * padded, in, unit);
}

int kg_oracle_chain_bound(const struct kg_oracle_type *type, const void *w,
                          const float *x, double *bound, int64_t in, int64_t out,
                          int64_t m, int64_t unit)
{
    const int64_t padded = (in + LANES * unit - 1) / (LANES * unit) * LANES * unit;
    const size_t row_bytes = kg_row_bytes(type->type, in);
    double *lanes = calloc((size_t)(m * padded) + 1, sizeof *lanes);
    int rc = lanes ? KG_OK : KG_E_MEMORY;

    for (int64_t r = 0; lanes && r < m; r++)
        by_lanes(x + r * in, lanes + r * padded, in, unit);
#pragma omp parallel
    {
        float *plain = malloc(((size_t)in + 1) * sizeof *plain);
        double *row = calloc((size_t)padded + 1, sizeof *row);
        if (!plain || !row) {
#pragma omp atomic write
            rc = KG_E_MEMORY;
        }
#pragma omp for schedule(dynamic, 16)
        for (int64_t o = 0; o < out; o++)
            if (lanes && plain && row)
                bound_row(type, (const uint8_t *)w + (size_t)o * row_bytes, plain, row,
                          lanes, bound + o, in, padded, out, m, unit);
        free(plain);
        free(row);
    }
    free(lanes);
    return rc;
}

int kg_oracle_stage_a_bound(const struct kg_oracle_type *type, const void *w,
                            const float *x, double *bound, int64_t in, int64_t out,
                            int64_t m)
{
    return kg_oracle_chain_bound(type, w, x, bound, in, out, m, type->split ? 32 : 1);
}
