/*
 * The f16 mirror: one chain of mma over ascending k, as the grouped products have, hence their
 * bound (oracle/grouped.h) against the f64 product of the kernel's own halves.
 */
#include "plugins/gemm_f16.h"

#include <math.h>

#include "plugins/oracle/grouped.h"

void kg_gemm_check_f16(struct kg_gemm *g, const char *name, const float *y,
                       const uint16_t *mirror, const uint16_t *h)
{
    const int32_t offsets[] = {0, (int32_t)g->m};
    size_t n = (size_t)(g->w.out * g->m);
    double *want = kg_alloc(g->cell, n * sizeof *want);
    double *bound = kg_alloc(g->cell, n * sizeof *bound);

    kg_oracle_grouped_all(&(struct kg_oracle_grouped){.groups = 1,
                                                      .in = g->w.in,
                                                      .out = g->w.out,
                                                      .offsets = offsets,
                                                      .w = mirror,
                                                      .x = h},
                          want, bound);
    kg_check_bound(g->cell, name, y, want, bound, n);
}

/* A float to the nearest half, ties to even, by search in the 32768 values of its sign. */
static uint16_t nearest_half(const float *halves, float x)
{
    float a = fabsf(x);
    int low = 0,
        high = 0x7c00; /* halves[low] <= a < halves[high], infinity counts as 65536 */

    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (halves[middle] <= a)
            low = middle;
        else
            high = middle;
    }
    double below = a - (double)halves[low];
    double above = (high == 0x7c00 ? 65536.0 : (double)halves[high]) - a;
    int code = below < above || (below == above && low % 2 == 0) ? low : high;
    return (uint16_t)(code | (signbit(x) ? 0x8000 : 0));
}

void kg_gemm_check_halves(struct kg_cell *cell, const char *name, const float *x,
                          const uint16_t *got, size_t n)
{
    uint16_t *codes = kg_alloc(cell, 0x7c01 * sizeof *codes);
    float *halves = kg_alloc(cell, 0x7c01 * sizeof *halves);
    uint16_t *want = kg_alloc(cell, n * sizeof *want);

    for (int i = 0; i <= 0x7c00; i++)
        codes[i] = (uint16_t)i;
    kg_oracle_dequantize(kg_oracle_type(KG_TYPE_F16), codes, halves, 0x7c01);
    for (size_t i = 0; i < n; i++)
        want[i] = nearest_half(halves, x[i]);
    kg_check_exact(cell, name, got, want, n, sizeof *want);
}

/* Of the sum of magnitudes: in / 16 instructions each add 16 products and the sum so far, and
   no addition loses more than the last place of the largest partial sum. A product passes
   16 additions of its own instruction, the sum in / 16 more. */
static double f16_error(int64_t in)
{
    double nu = (16 + (double)in / 16) * 0x1p-23;
    return nu / (1 - nu);
}

/*
 * The same product against that of the codes. h is the nearest half of fl(d * q), so it differs
 * from d * q by at most e = 2^-11 + 2^-23 of it, or, below the normal halves, by 2^-25; the
 * mirror of these weights is exact.
 */
void kg_gemm_check_f16_codes(struct kg_gemm *g, const char *name, const float *y)
{
    const double e = 0x1p-11 + 0x1p-23, sum = f16_error(g->w.in);
    size_t n = (size_t)(g->w.out * g->m), n_x = (size_t)(g->w.in * g->m);
    double *x = kg_alloc(g->cell, n_x * sizeof *x);
    double *want = kg_alloc(g->cell, n * sizeof *want);
    double *bound = kg_alloc(g->cell, n * sizeof *bound);
    double *row = kg_alloc(g->cell, (size_t)g->w.out * sizeof *row);
    float *w = kg_alloc(g->cell, (size_t)g->w.in * sizeof *w);
    size_t row_bytes = kg_row_bytes(g->w.type->type, g->w.in);

    for (size_t i = 0; i < n_x; i++)
        x[i] = (double)g->act.d[i / 32] * g->act.q[i];
    kg_oracle_must(g->cell, kg_oracle_linear(g->w.type, g->w.data, x, want, bound,
                                             g->w.in, g->w.out, g->m));
    for (size_t o = 0; o < (size_t)g->w.out; o++) {
        kg_oracle_dequantize(g->w.type, (const uint8_t *)g->w.data + o * row_bytes, w,
                             g->w.in);
        for (int64_t k = 0; k < g->w.in; k++)
            row[o] += fabs((double)w[k]);
    }
    for (size_t i = 0; i < n; i++)
        bound[i] = (e + sum * (1 + e)) * bound[i] +
                   0x1p-25 * (1 + sum) * row[i % (size_t)g->w.out];
    kg_check_bound(g->cell, name, y, want, bound, n);
}
