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
 * number, so the bound is far below ops * u * sum |term| of bound.c, which has every
 * partial sum as large as the sum of all magnitudes.
 *
 * The order is that of bound.c's stage A, with `unit` consecutive elements (32 of a block
 * type, 1 of a plain one, 4 for the router) in place of 32: lane l takes the units l, l + 32,
 * ... one after the other into one accumulator, element by element; a butterfly joins the
 * lanes.
 *
 * f64 rounds the oracle's own sums, by n 2^-53 sum |term| at most; sum |term| <= 2 sum |S_k|,
 * so for n < 2^17 that is below 2^-12 of the bound, which OWN covers. Below the normal range
 * a rounding is off by 2^-150: 2^-149 for each term, as in bound.c.
 */
#include <math.h>
#include <stdlib.h>

#include "plugins/oracle/oracle.h"

#define U 0x1p-24
#define OWN (1 + 0x1p-12)

enum { LANES = 32 };

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

/* One step of the first n lanes. */
static inline void advance(struct lanes *at, const double *w, const double *x, int n)
{
    for (int l = 0; l < n; l++) {
        at->sum[l] += w[l] * x[l];
        at->err[l] += U * (fabs(at->sum[l]) + at->err[l]);
    }
}

static double bound_of(const double *w, const double *x, int64_t in, int64_t unit)
{
    struct lanes at = {{0}, {0}};
    int64_t units = in / unit, full = units / LANES * unit;

    for (int64_t i = 0; i < full; i++)
        advance(&at, w + i * LANES, x + i * LANES, LANES);
    for (int64_t i = full; i < full + (units % LANES ? unit : 0); i++)
        advance(&at, w + i * LANES, x + i * LANES, (int)(units % LANES));
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        for (int l = 0; l < distance; l++) {
            double err = at.err[l] + at.err[l + distance];
            at.sum[l] += at.sum[l + distance];
            at.err[l] = err + U * (fabs(at.sum[l]) + err);
        }
    return OWN * at.err[0] + 2 * (double)in * 0x1p-149;
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
