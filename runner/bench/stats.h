/*
 * runner/bench/stats.h: what a set of timing samples says.
 *
 * Samples are microseconds per launch. Every figure is an order statistic, so that one slow
 * sample moves nothing: the median, the median absolute deviation (MAD, not scaled), and a
 * distribution-free 95 % interval of the median. The interval is [x(l), x(u)] of the sorted
 * samples with l and u = n + 1 - l, where l is the largest rank for which a binomial(n, 1/2)
 * variable is below l with probability at most 2.5 % (Conover, Practical Nonparametric
 * Statistics, section 3.2). Fewer than 6 samples cannot give 95 %; the interval is then the
 * whole range, and `interval_is_95` is false.
 */
#ifndef KG_RUNNER_BENCH_STATS_H
#define KG_RUNNER_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

struct kg_stats {
    size_t count;
    double median, mad;
    double low, high; /* the interval of the median */
    double min, max;
    bool interval_is_95;
};

/* Sorts a copy of the samples. count >= 1, every sample finite. */
struct kg_stats kg_stats_of(const double *samples, size_t count);

/* The ranks (from 1) that bound the median of n samples at 95 %; false if n < 6. */
bool kg_median_ranks(size_t n, size_t *low, size_t *high);

/* Moves the samples that were not taken under throttle to the front, keeping their order,
   and returns how many there are. throttled[i] belongs to samples[i]. */
size_t kg_drop_throttled(double *samples, const bool *throttled, size_t count);

#endif
