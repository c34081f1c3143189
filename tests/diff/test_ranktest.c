/* The rank test against tables and closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runner/diff/ranktest.h"

enum { MOST = 400 };

static struct kg_rank rank(const double *a, size_t n_a, const double *b, size_t n_b)
{
    double x[MOST], y[MOST];
    struct kg_rank r;
    memcpy(x, a, n_a * sizeof *a);
    memcpy(y, b, n_b * sizeof *b);
    kg_rank_test(x, n_a, y, n_b, &r);
    return r;
}

static void near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.12g, want %.12g", got, want);
}

/* Ages at diagnosis of five men and four women, an example in many textbooks: U is 17 of
   20, and the exact two-sided p is 2 * 7 / C(9, 4) = 14 / 126. */
static void test_textbook(void **state)
{
    (void)state;
    const double men[] = {19, 22, 16, 29, 24}, women[] = {20, 11, 17, 12};
    struct kg_rank r = rank(men, 5, women, 4);
    assert_true(r.exact);
    near(r.u, 17, 0);
    near(r.p, 14.0 / 126.0, 1e-12);
    near(r.delta, -0.7, 1e-12);
    r = rank(women, 4, men, 5); /* the other way round: the same p */
    near(r.u, 3, 0);
    near(r.p, 14.0 / 126.0, 1e-12);
}

/* No overlap: one arrangement of C(m + n, m) on either side. */
static void test_no_overlap(void **state)
{
    (void)state;
    const double low[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const double high[] = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    struct kg_rank r = rank(low, 10, high, 10);
    near(r.p, 2.0 / 184756.0, 1e-12);
    near(r.delta, 1, 1e-12);
    r = rank(low, 5, high, 5);
    near(r.p, 2.0 / 252.0, 1e-12);
    r = rank(low, 3, high, 3);
    near(r.p, 0.1, 1e-12);
    r = rank(low, 1, high, 1);
    near(r.p, 1, 1e-12);
}

/* A pair of samples of 1 .. m + n without ties whose U is the given one: values of `a` are
   pushed up past values of `b`, one pair at a time. */
static struct kg_rank with_u(size_t m, size_t n, size_t u)
{
    double a[MOST], b[MOST];
    for (size_t j = 0; j < n; j++)
        b[j] = (double)j + 1;
    for (size_t i = 0; i < m; i++) {
        size_t beats = u < n ? u : n;
        u -= beats;
        a[i] = (double)beats + 0.5 + 0.001 * (double)i;
    }
    return rank(a, m, b, n);
}

/* Critical values of U, two-sided: the largest U that is significant at 0.05 and at 0.01,
   as printed in tables. */
static void test_critical_values(void **state)
{
    (void)state;
    static const struct {
        size_t m, n, at_05, at_01;
    } rows[] = {
        {5,  5,  2,   0  },
        {6,  6,  5,   2  },
        {7,  7,  8,   4  },
        {8,  8,  13,  7  },
        {9,  9,  17,  11 },
        {10, 10, 23,  16 },
        {5,  10, 8,   4  },
        {8,  12, 22,  15 },
        {12, 12, 37,  27 },
        {15, 15, 64,  51 },
        {20, 20, 127, 105},
        {10, 20, 55,  42 }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kg_rank in = with_u(rows[i].m, rows[i].n, rows[i].at_05);
        struct kg_rank out = with_u(rows[i].m, rows[i].n, rows[i].at_05 + 1);
        assert_true(in.exact && in.u == (double)rows[i].at_05);
        if (!(in.p <= 0.05 && out.p > 0.05))
            fail_msg("%zu, %zu at 0.05: p %.5f and %.5f", rows[i].m, rows[i].n, in.p,
                     out.p);
        in = with_u(rows[i].m, rows[i].n, rows[i].at_01);
        out = with_u(rows[i].m, rows[i].n, rows[i].at_01 + 1);
        if (!(in.p <= 0.01 && out.p > 0.01))
            fail_msg("%zu, %zu at 0.01: p %.5f and %.5f", rows[i].m, rows[i].n, in.p,
                     out.p);
    }
}

/* Ties: the variance is m n / 12 (N + 1 - sum(t^3 - t) / (N (N - 1))), by hand here. */
static void test_ties(void **state)
{
    (void)state;
    const double a[] = {1, 2, 2, 3, 5}, b[] = {2, 4, 5, 5, 6, 7};
    struct kg_rank r = rank(a, 5, b, 6);
    /* U: 1 -> 0; 2, 2 -> 0.5 each; 3 -> 1; 5 -> 2 + 1 = 3: 5 in all. Three 2s, three 5s. */
    double variance = 30.0 / 12 * (12 - (24.0 + 24.0) / 110);
    double z = (fabs(5 - 15.0) - 0.5) / sqrt(variance);
    assert_false(r.exact);
    near(r.u, 5, 0);
    near(r.p, erfc(z / sqrt(2)), 1e-12);
    const double same[] = {3, 3, 3, 3};
    r = rank(same, 4, same, 4);
    near(r.p, 1, 0);
    near(r.ratio, 1, 0);
}

/* Above 20 a side the approximation takes over; next to the limit it must be near the exact
   value. */
static void test_large(void **state)
{
    (void)state;
    double a[MOST], b[MOST];
    for (int i = 0; i < 300; i++) {
        a[i] = 100 + (i * 37 % 300) * 0.01;
        b[i] = a[i] * 1.02;
    }
    struct kg_rank r = rank(a, 300, b, 300);
    assert_false(r.exact);
    assert_true(r.p < 1e-20 && r.delta > 0.7);
    near(r.ratio, 1.02, 2e-3);
    r = rank(a, 300, a, 300);
    near(r.p, 1, 1e-9);
    near(r.delta + 1, 1, 1e-12);
    /* 20 and 21 a side, no ties, in the middle of the range. */
    struct kg_rank exact = with_u(20, 20, 130), approximate = with_u(21, 20, 137);
    assert_true(exact.exact && !approximate.exact);
    near(approximate.p, exact.p, 0.1);
}

static void test_ratio(void **state)
{
    (void)state;
    const double a[] = {1, 2, 4}, b[] = {2, 4, 8};
    /* b / a: 0.5 1 1 2 2 2 4 4 8 */
    near(rank(a, 3, b, 3).ratio, 2, 1e-12);
    const double zero[] = {0, 1};
    assert_true(isnan(rank(zero, 2, b, 3).ratio));
    assert_true(isnan(rank(a, 0, b, 3).p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_textbook),        cmocka_unit_test(test_no_overlap),
        cmocka_unit_test(test_critical_values), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_large),           cmocka_unit_test(test_ratio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
