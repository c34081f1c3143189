/*
 * Error bounds of sums from their number of roundings, where the partial sums are not known.
 *
 * With unit roundoff u = 2^-24, a term that passes through n roundings carries a factor
 * (1 + e_1) ... (1 + e_n), |e_i| <= u, so it is off by at most n*u / (1 - n*u) of itself
 * (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1). Summed over the
 * terms:
 *
 *   |computed - exact| <= n*u / (1 - n*u) * sum |term|
 *
 * where n is the number of roundings on the longest path of any term. So n is what the
 * kernel's order of additions says, and nothing else is chosen.
 *
 * Exponents: where a result leaves the normal range, a rounding is off by up to 2^-150
 * whatever the size of the term. kg_oracle_bound adds 2^-149 for every term's way through
 * the sum.
 */
#include <math.h>

#include "plugins/oracle/oracle.h"

static const double u = 0x1p-24;

void kg_oracle_bound(double *bound, const double *terms, size_t count, double ops,
                     double n_terms)
{
    double factor = ops * u / (1 - ops * u);
    double tiny = 2 * n_terms * 0x1p-149; /* its product or scale, and its addition */

    for (size_t i = 0; i < count; i++)
        bound[i] = factor * terms[i] + tiny;
}

void kg_oracle_bound_scaled(double *bound, const double *y, size_t count, double scale,
                            int roundings)
{
    double factor = roundings * u / (1 - roundings * u);

    for (size_t i = 0; i < count; i++) {
        bound[i] *= fabs(scale);
        bound[i] += factor * (fabs(y[i]) + bound[i]) + roundings * 0x1p-149;
    }
}
