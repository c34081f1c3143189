/*
 * runner/diff/ranktest.h: are the times of two runs from the same distribution?
 *
 * The Mann-Whitney U test, two-sided: no assumption on the shape of the distribution, and
 * one wild sample moves a rank, not a mean. Exact for samples without ties of up to
 * KG_RANK_EXACT each; else the normal approximation with the correction for ties and for
 * continuity.
 */
#ifndef KG_RUNNER_DIFF_RANKTEST_H
#define KG_RUNNER_DIFF_RANKTEST_H

#include <stdbool.h>
#include <stddef.h>

enum { KG_RANK_EXACT = 20 };

struct kg_rank {
    bool exact;
    double u;     /* of the first sample: pairs (a, b) with a > b, ties count one half */
    double p;     /* two-sided; NaN if either sample is empty */
    double delta; /* Cliff's delta: P(b > a) - P(b < a), in [-1, 1] */
    double ratio; /* Hodges-Lehmann: the median of b / a over all pairs; NaN where a
                     sample has a value that is not above zero */
};

/* Sorts both samples. Over 200 values, the ratio is taken from 200 quantiles. */
void kg_rank_test(double *a, size_t n_a, double *b, size_t n_b, struct kg_rank *out);

#endif
