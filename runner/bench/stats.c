#include "runner/bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_sorted(const double *x, size_t n)
{
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

bool kg_median_ranks(size_t n, size_t *low, size_t *high)
{
    /* P(B < l) = sum of C(n, i) / 2^n for i < l. Summed from logarithms, so that a large n
       does not underflow the first terms into a wrong rank. */
    double below = 0;
    size_t l = 0;
    for (size_t i = 0; i <= n / 2; i++) {
        double term = exp(lgamma((double)n + 1) - lgamma((double)i + 1) -
                          lgamma((double)(n - i) + 1) - (double)n * log(2.0));
        if (below + term > 0.025)
            break;
        below += term;
        l = i + 1;
    }
    *low = l;
    *high = n + 1 - l;
    return l >= 1;
}

struct kg_stats kg_stats_of(const double *samples, size_t count)
{
    struct kg_stats s = {.count = count};
    double *x = malloc(2 * count * sizeof *x);
    if (!x)
        abort();
    double *deviation = x + count;
    memcpy(x, samples, count * sizeof *x);
    qsort(x, count, sizeof *x, by_value);
    s.median = median_of_sorted(x, count);
    s.min = x[0];
    s.max = x[count - 1];
    for (size_t i = 0; i < count; i++)
        deviation[i] = fabs(x[i] - s.median);
    qsort(deviation, count, sizeof *deviation, by_value);
    s.mad = median_of_sorted(deviation, count);
    size_t low, high;
    s.interval_is_95 = kg_median_ranks(count, &low, &high);
    s.low = s.interval_is_95 ? x[low - 1] : s.min;
    s.high = s.interval_is_95 ? x[high - 1] : s.max;
    free(x);
    return s;
}

size_t kg_drop_throttled(double *samples, const bool *throttled, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!throttled[i])
            samples[kept++] = samples[i];
    return kept;
}
