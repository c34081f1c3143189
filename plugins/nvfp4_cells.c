/*
 * The bound of W4A4 (kernels/gemm/int8.h has the order): per 16 weights one product of an
 * exact integer with the weight's scale, exact itself (at most 4 + 12 bits), then one fma
 * into the accumulator, which rounds the sum so far: it is off by at most u = 2^-24 of its own
 * magnitude. With n groups and S_i the exact partial sums,
 *
 *   |computed - exact| <= u / (1 - n u) * sum over i of |S_i|
 *
 * and the token's scale multiplies the whole, with one rounding more.
 */
#include "plugins/nvfp4_cells.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plugins/oracle/nvfp4.h"

struct kg_e2m1 kg_nvfp4_quantize(struct kg_gemm *g, const char *arm, int levels,
                                 const int32_t *skip, struct kg_buf *d_skip, int k)
{
    struct kg_cell *cell = g->cell;
    size_t n = (size_t)(g->w.in * g->m), m = (size_t)g->m;
    struct kg_buf *dx = kg_input(cell, "x-f32", g->x, n * sizeof *g->x);
    struct kg_buf *dc = kg_output(cell, "codes", n / 2);
    struct kg_buf *ds = kg_output(cell, "scales", n / 16);
    struct kg_buf *dt = kg_output(cell, "token-scale", m * sizeof(float));
    uint8_t *codes = kg_alloc(cell, n / 2), *scales = kg_alloc(cell, n / 16);
    float *token = kg_alloc(cell, m * sizeof *token);
    char name[64];

    KG_ARM(cell, arm, NULL,
           KG_OPS(cell, gemm, nvfp4_quantize)(kg_ptr(dx), g->m, g->w.in, kg_ptr(d_skip),
                                              k, levels, kg_ptr(dc), kg_ptr(ds),
                                              kg_ptr(dt), kg_stream(cell)));
    struct kg_e2m1 x = {
        .codes = kg_fetch(dc), .scales = kg_fetch(ds), .token_scale = kg_fetch(dt)};
    kg_oracle_nvfp4_quantize(g->x, g->m, g->w.in, skip, k, levels, codes, scales, token);
    snprintf(name, sizeof name, "%s.codes", arm);
    kg_check_exact(cell, name, x.codes, codes, n / 2, 1);
    snprintf(name, sizeof name, "%s.scales", arm);
    kg_check_exact(cell, name, x.scales, scales, n / 16, 1);
    snprintf(name, sizeof name, "%s.token-scale", arm);
    kg_check_exact(cell, name, x.token_scale, token, m, 4);
    x.d_codes = kg_input(cell, "codes-in", x.codes, n / 2);
    x.d_scales = kg_input(cell, "scales-in", x.scales, n / 16);
    x.d_token = kg_input(cell, "token-scale-in", x.token_scale, m * sizeof *token);
    return x;
}

const float *kg_nvfp4_w4a4(struct kg_gemm *g, const char *arm, const struct kg_e2m1 *x,
                           struct kg_buf *dw, struct kg_buf *dw_scales)
{
    struct kg_cell *cell = g->cell;
    struct kg_cost cost = kg_gemm_cost(g, 0.5 + 1.0 / 16, "int8-mma");
    struct kg_buf *dy = kg_output(cell, "y", (size_t)(g->w.out * g->m) * sizeof(float));
    int layout = dw_scales ? KG_GEMM_CUTLASS : KG_GEMM_BLOCKS;

    KG_ARM(cell, arm, &cost,
           KG_OPS(cell, gemm, w4a4)(layout, kg_ptr(dw), kg_ptr(dw_scales),
                                    kg_ptr(x->d_codes), kg_ptr(x->d_scales),
                                    kg_ptr(x->d_token), kg_ptr(dy), g->w.in, g->w.out,
                                    g->m, KG_GEMM_TILE, 0, NULL, 0, kg_stream(cell)));
    return kg_fetch(dy);
}

void kg_nvfp4_check_bound(struct kg_gemm *g, const char *name, const struct kg_e2m1 *x,
                          const float *y)
{
    struct kg_cell *cell = g->cell;
    size_t n = (size_t)(g->w.out * g->m);
    double *want = kg_alloc(cell, n * sizeof *want);
    double *bound = kg_alloc(cell, n * sizeof *bound);
    double u = 0x1p-24, factor = u / (1 - (double)g->w.in / 16 * u);

    kg_oracle_must(cell, kg_oracle_nvfp4_linear(g->w.data, x->codes, x->scales, want,
                                                bound, g->w.in, g->w.out, g->m));
    for (size_t i = 0; i < n; i++) {
        double scale = x->token_scale[i / (size_t)g->w.out];
        bound[i] = scale * factor * bound[i];
        want[i] *= scale;
        bound[i] += u * (fabs(want[i]) + bound[i]) + 0x1p-149;
    }
    kg_check_bound(cell, name, y, want, bound, n);
}

double kg_nvfp4_token_error(struct kg_gemm *g, const float *y)
{
    const double *exact = kg_gemm_exact(g);
    double worst = 0;

    for (int64_t t = 0; t < g->m; t++) {
        double largest = 0, error = 0;
        for (int64_t o = 0; o < g->w.out; o++) {
            double want = exact[t * g->w.out + o],
                   diff = fabs(y[t * g->w.out + o] - want);
            largest = fmax(largest, fabs(want));
            if (!(diff <= error)) /* keeps a NaN */
                error = diff;
        }
        if (largest > 0 && !(error / largest <= worst))
            worst = error / largest;
    }
    return worst;
}
