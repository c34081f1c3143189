/*
 * Error bounds of the integer matrix-vector kernels, from the order of their additions.
 * (running.c has those of f32 products.)
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
 * The order, common to all forms (the kernels' headers state it): 32 lanes share a row;
 * lane l takes the units of 32 elements l, l + 32, l + 64, ... one after the other into
 * one accumulator; a butterfly of 5 additions joins the lanes.
 *
 *   stage B: a unit adds one term per scale group (1, or 2 where 16 elements share a
 *     scale), and one for its minimum if the type has one. Integer dot products are
 *     exact, and so are the weight's scales and minima in f32. A term is rounded once
 *     before fma adds it: d * dot, or the sum s = d * sum(q) that the activation carries.
 *     n = terms_per_unit * units_per_lane + 5 + 1.
 *
 * Exponents: where a result leaves the normal range, a rounding is off by up to 2^-150
 * whatever the size of the term. kg_oracle_bound adds 2^-149 for every term's way through
 * the sum. Not covered: stage B on activations whose own scale d is subnormal, because
 * that error would be multiplied by the weight's scale. No cell runs stage B there.
 */
#include "plugins/oracle/oracle.h"

static double units_per_lane(int64_t in)
{
    return (double)((in + 1023) / 1024);
}

double kg_oracle_stage_b_ops(const struct kg_oracle_type *type, int64_t in)
{
    int terms_per_unit = 32 / type->group + (type->has_min ? 1 : 0);

    return terms_per_unit * units_per_lane(in) + 5 + 1;
}

void kg_oracle_bound(double *bound, const double *terms, size_t count, double ops,
                     double n_terms)
{
    double nu = ops * 0x1p-24;
    double factor = nu / (1 - nu);
    double tiny = 2 * n_terms * 0x1p-149; /* its product or scale, and its addition */

    for (size_t i = 0; i < count; i++)
        bound[i] = factor * terms[i] + tiny;
}
