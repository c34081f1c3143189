#include "runner/diff/ranktest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/escape.h"

enum { RATIO_VALUES = 200, MAX_U = KG_RANK_EXACT * KG_RANK_EXACT };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The number of arrangements of m and n values for each U, by
       f(m, n, u) = f(m - 1, n, u - n) + f(m, n - 1, u):
   the largest of all is one of the m (it beats all n of the others) or one of the n.
   At most C(40, 20) = 1.4e11, exact in a double. Kept for the next call, since all arms
   of a run have the same number of samples. */
static const double *distribution(size_t m, size_t n)
{
    static double rows[KG_RANK_EXACT + 1][MAX_U + 1];
    static size_t kept_m, kept_n;
    if (kept_m == m && kept_n == n)
        return rows[m];
    memset(rows, 0, sizeof rows);
    for (size_t i = 0; i <= m; i++)
        rows[i][0] = 1; /* n = 0 */
    for (size_t k = 1; k <= n; k++)
        for (size_t i = 1; i <= m; i++)
            for (size_t u = i * k + 1; u-- > k;)
                rows[i][u] += rows[i - 1][u - k];
    kept_m = m;
    kept_n = n;
    return rows[m];
}

static double p_exact(size_t m, size_t n, double u)
{
    const double *f = distribution(m, n);
    size_t low = (size_t)(u < (double)(m * n) - u ? u : (double)(m * n) - u);
    double total = 0, tail = 0;
    for (size_t i = 0; i <= m * n; i++) {
        total += f[i];
        if (i <= low)
            tail += f[i];
    }
    return fmin(1.0, 2 * tail / total);
}

/* ties: the sum of t^3 - t over groups of t equal values. */
static double p_normal(double m, double n, double u, double ties)
{
    double total = m + n;
    double variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)));
    if (!(variance > 0))
        return 1; /* all values are equal */
    double z = (fabs(u - m * n / 2) - 0.5) / sqrt(variance);
    return z <= 0 ? 1 : erfc(z / sqrt(2));
}

/* Value i of `count` evenly spaced ones of a sorted sample. */
static double quantile(const double *sorted, size_t n, size_t i, size_t count)
{
    return sorted[n <= count ? i : (2 * i + 1) * n / (2 * count)];
}

static double ratio(const double *a, size_t n_a, const double *b, size_t n_b)
{
    size_t m = n_a < RATIO_VALUES ? n_a : RATIO_VALUES;
    size_t n = n_b < RATIO_VALUES ? n_b : RATIO_VALUES;
    if (!(a[0] > 0) || !(b[0] > 0))
        return NAN;
    double *all = kg_xcalloc(m * n, sizeof *all);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            all[i * n + j] = quantile(b, n_b, j, n) / quantile(a, n_a, i, m);
    qsort(all, m * n, sizeof *all, ascending);
    size_t half = m * n / 2;
    double median = m * n % 2 ? all[half] : sqrt(all[half - 1] * all[half]);
    free(all);
    return median;
}

void kg_rank_test(double *a, size_t n_a, double *b, size_t n_b, struct kg_rank *out)
{
    *out = (struct kg_rank){.p = NAN, .delta = NAN, .ratio = NAN, .u = NAN};
    if (n_a == 0 || n_b == 0)
        return;
    qsort(a, n_a, sizeof *a, ascending);
    qsort(b, n_b, sizeof *b, ascending);
    double u = 0, ties = 0;
    size_t i = 0, j = 0;
    while (i < n_a || j < n_b) {
        double v = j == n_b || (i < n_a && a[i] <= b[j]) ? a[i] : b[j];
        size_t before = j, in_a = 0, in_b = 0;
        for (; i < n_a && a[i] == v; i++)
            in_a++;
        for (; j < n_b && b[j] == v; j++)
            in_b++;
        u += (double)in_a * ((double)before + (double)in_b / 2);
        double t = (double)(in_a + in_b);
        ties += t * t * t - t;
    }
    double pairs = (double)n_a * (double)n_b;
    out->u = u;
    out->delta = 1 - 2 * u / pairs;
    out->exact = ties == 0 && n_a <= KG_RANK_EXACT && n_b <= KG_RANK_EXACT;
    out->p =
        out->exact ? p_exact(n_a, n_b, u) : p_normal((double)n_a, (double)n_b, u, ties);
    out->ratio = ratio(a, n_a, b, n_b);
}
