#include "plugins/dsv4_cells.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void kg_dsv4_must(struct kg_cell *cell, int rc)
{
    if (rc)
        kg_error(cell, "the oracle ran out of memory");
}

const char *kg_dsv4_name(struct kg_cell *cell, const char *prefix, const char *what)
{
    char *name = kg_alloc(cell, 128);

    snprintf(name, 128, "%s.%s", prefix, what);
    return name;
}

int kg_dsv4_kind(const struct kg_dsv4_weights *w)
{
    return w->group == 16 ? KG_DSV4_NVFP4 : KG_DSV4_MXFP4;
}

struct kg_cost kg_dsv4_gemm_cost(const struct kg_dsv4_weights *w, int64_t m)
{
    double weights = (double)w->n * (double)w->k * (0.5 + 1.0 / w->group);
    double rows = (double)m * ((double)w->k * (1 + 4.0 / 128) + 4.0 * (double)w->n);

    return (struct kg_cost){weights + rows, 2.0 * (double)m * (double)w->n * (double)w->k,
                            "f16-mma"};
}

struct kg_dsv4_act kg_dsv4_act_of(struct kg_cell *cell, const float *x, int64_t m,
                                  int64_t k)
{
    struct kg_dsv4_act act = {x, kg_alloc(cell, (size_t)(m * k)),
                              kg_alloc(cell, (size_t)(m * k / 128) * 4), m, k};

    kg_oracle_dsv4_act_quant(x, act.codes, act.scales, m, k);
    return act;
}

void kg_dsv4_run_act_quant(struct kg_cell *cell, const char *prefix,
                           const struct kg_dsv4_act *act)
{
    size_t n = (size_t)(act->m * act->k), blocks = n / 128;
    struct kg_cost cost = {(double)n * 5 + (double)blocks * 4, (double)n * 3, "f32"};
    struct kg_buf *dx = kg_input(cell, kg_dsv4_name(cell, prefix, "x"), act->x, n * 4);
    struct kg_buf *dc = kg_output(cell, kg_dsv4_name(cell, prefix, "codes"), n);
    struct kg_buf *ds = kg_output(cell, kg_dsv4_name(cell, prefix, "scales"), blocks * 4);

    KG_ARM(cell, kg_dsv4_name(cell, prefix, "act-quant"), &cost,
           KG_OPS(cell, dsv4, act_quant)(kg_ptr(dx), kg_ptr(dc), kg_ptr(ds), act->m,
                                         act->k, kg_stream(cell)));
    kg_oracle_allow(cell, KG_ORACLE_ZERO);
    kg_check_exact(cell, kg_dsv4_name(cell, prefix, "codes"), kg_fetch(dc), act->codes, n,
                   1);
    kg_check_exact(cell, kg_dsv4_name(cell, prefix, "scales"), kg_fetch(ds), act->scales,
                   blocks, 4);
}

struct operands {
    struct kg_buf *codes, *scales, *w, *ws;
};

static const float *run_form(struct kg_cell *cell, const char *name,
                             const struct kg_dsv4_weights *w,
                             const struct kg_dsv4_act *act, const struct operands *in,
                             int form)
{
    struct kg_cost cost = kg_dsv4_gemm_cost(w, act->m);
    struct kg_buf *dy = kg_output(cell, name, (size_t)(act->m * w->n) * 4),
                  *scratch = NULL;
    size_t bytes = 0;
    int kind = kg_dsv4_kind(w);

    if (KG_OPS(cell, dsv4, gemm_scratch)(kind, form, act->m, w->n, w->k, &bytes) != KG_OK)
        kg_fail(cell, "gemm_scratch refuses %lld x %lld x %lld", (long long)act->m,
                (long long)w->n, (long long)w->k);
    if (bytes > 0)
        scratch = kg_scratch(cell, kg_dsv4_name(cell, name, "scratch"), bytes);
    KG_ARM(cell, name, &cost,
           KG_OPS(cell, dsv4, gemm)(kind, form, kg_ptr(in->codes), kg_ptr(in->scales),
                                    kg_ptr(in->w), kg_ptr(in->ws), w->scale2, kg_ptr(dy),
                                    act->m, w->n, w->k, kg_ptr(scratch), bytes,
                                    kg_stream(cell)));
    return kg_fetch(dy);
}

static void check_forms(struct kg_cell *cell, const char *prefix,
                        const struct kg_dsv4_weights *w, const struct kg_dsv4_act *act,
                        const struct operands *in, const float *mirror)
{
    static const struct {
        int form;
        const char *name;
    } forms[] = {
        {KG_DSV4_ORDERED, "ordered"},
        {KG_DSV4_ROWS8,   "rows8"  },
        {KG_DSV4_TILES,   "tiles"  }
    };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *name = kg_dsv4_name(cell, prefix, forms[i].name);
        const float *got = run_form(cell, name, w, act, in, forms[i].form);
        kg_oracle_allow(cell, KG_ORACLE_ZERO);
        kg_check_exact(cell, name, got, mirror, (size_t)(act->m * w->n), 4);
    }
}

const float *kg_dsv4_run_gemm(struct kg_cell *cell, const char *prefix,
                              const struct kg_dsv4_weights *w,
                              const struct kg_dsv4_act *act, unsigned checks)
{
    size_t n = (size_t)(act->m * w->n), k = (size_t)w->k, in = (size_t)act->m * k;
    float *mirror = kg_alloc(cell, n * sizeof *mirror);
    struct operands ops = {
        kg_input(cell, kg_dsv4_name(cell, prefix, "codes-in"), act->codes, in),
        kg_input(cell, kg_dsv4_name(cell, prefix, "scales-in"), act->scales, in / 32),
        kg_input(cell, kg_dsv4_name(cell, prefix, "w"), w->w, (size_t)w->n * k / 2),
        kg_input(cell, kg_dsv4_name(cell, prefix, "ws"), w->ws,
                 (size_t)w->n * k / (size_t)w->group),
    };
    const float *got =
        run_form(cell, kg_dsv4_name(cell, prefix, "gemm"), w, act, &ops, KG_DSV4_AUTO);

    kg_dsv4_must(cell, kg_oracle_dsv4_mirror(w, act->codes, act->scales, mirror, act->m));
    kg_oracle_allow(cell, KG_ORACLE_ZERO);
    kg_check_exact(cell, kg_dsv4_name(cell, prefix, "bits"), got, mirror, n, 4);
    if (checks & KG_DSV4_ALL_FORMS)
        check_forms(cell, prefix, w, act, &ops, mirror);
    if (checks & KG_DSV4_F64) {
        double *want = kg_alloc(cell, n * sizeof *want);
        double *bound = kg_alloc(cell, n * sizeof *bound);
        kg_dsv4_must(cell, kg_oracle_dsv4_f64(w, act->codes, act->scales, want, bound,
                                              NULL, act->m));
        kg_check_bound(cell, kg_dsv4_name(cell, prefix, "f64"), got, want, bound, n);
    }
    return got;
}

/*
 * The bound of h: kg_siluf within 3 ulp, an ulp being at most 2^-23 of the value, and the
 * product within half an ulp, so 3.5 * 2^-23 of |h|, and 2^-119 where silu is below 2^-126
 * (kernels/device/math.h) times up, at most 2^-115 here.
 */
const float *kg_dsv4_run_swiglu(struct kg_cell *cell, const char *prefix,
                                const float *gate, const float *up, float limit,
                                int64_t m, int64_t n)
{
    size_t count = (size_t)(m * n);
    struct kg_cost cost = {12.0 * (double)count, 20.0 * (double)count, "f32"};
    struct kg_buf *dg =
        kg_input(cell, kg_dsv4_name(cell, prefix, "gate"), gate, count * 4);
    struct kg_buf *du = kg_input(cell, kg_dsv4_name(cell, prefix, "up"), up, count * 4);
    struct kg_buf *dh = kg_output(cell, kg_dsv4_name(cell, prefix, "h"), count * 4);
    double *g = kg_alloc(cell, count * sizeof *g), *u = kg_alloc(cell, count * sizeof *u);
    double *want = kg_alloc(cell, count * sizeof *want);
    double *bound = kg_alloc(cell, count * sizeof *bound);

    KG_ARM(cell, kg_dsv4_name(cell, prefix, "swiglu"), &cost,
           KG_OPS(cell, dsv4, swiglu)(kg_ptr(dg), kg_ptr(du), NULL, limit, kg_ptr(dh), m,
                                      n, kg_stream(cell)));
    for (size_t i = 0; i < count; i++) {
        g[i] = (double)gate[i];
        u[i] = (double)up[i];
    }
    kg_oracle_dsv4_swiglu(g, u, (double)limit, want, count);
    for (size_t i = 0; i < count; i++)
        bound[i] = 3.5 * 0x1p-23 * fabs(want[i]) + 0x1p-115;
    kg_check_bound(cell, kg_dsv4_name(cell, prefix, "h"), kg_fetch(dh), want, bound,
                   count);
    return kg_fetch(dh);
}

const float *kg_dsv4_hidden(struct kg_cell *cell, const struct kg_dsv4_weights *w1,
                            const struct kg_dsv4_weights *w3,
                            const struct kg_dsv4_act *act, float limit)
{
    size_t n = (size_t)(act->m * w1->n);
    double *gate = kg_alloc(cell, n * sizeof *gate), *up = kg_alloc(cell, n * sizeof *up);
    double *unused = kg_alloc(cell, n * sizeof *unused);
    float *h = kg_alloc(cell, n * sizeof *h);

    kg_dsv4_must(cell, kg_oracle_dsv4_f64(w1, act->codes, act->scales, gate, unused, NULL,
                                          act->m));
    kg_dsv4_must(
        cell, kg_oracle_dsv4_f64(w3, act->codes, act->scales, up, unused, NULL, act->m));
    kg_oracle_dsv4_swiglu(gate, up, (double)limit, gate, n);
    for (size_t i = 0; i < n; i++)
        h[i] = (float)gate[i];
    return h;
}

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 29) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

struct kg_dsv4_weights kg_dsv4_weights_made(struct kg_cell *cell, int group, int64_t n,
                                            int64_t k, uint64_t seed)
{
    int64_t groups = k / group;
    uint8_t *w = kg_alloc(cell, (size_t)(n * k / 2));
    uint8_t *ws = kg_alloc(cell, (size_t)(n * groups));

    seed = scramble(seed + (uint64_t)((kg_pr_at(cell, 977) + 1) * 0x1p23f));
    for (int64_t i = 0; i < n * k / 2; i++)
        w[i] = (uint8_t)(scramble(seed + (uint64_t)i) >> 17);
    for (int64_t o = 0; o < n; o++)
        for (int64_t j = 0; j < groups; j++) {
            int step = (int)((3 * o + 2 * j) % 7);
            int mantissa = (int)(scramble(seed ^ (uint64_t)(o * groups + j)) & 7);
            ws[o * groups + j] =
                (uint8_t)(group == 16 ? (5 + step) << 3 | mantissa : 117 + step);
        }
    return (struct kg_dsv4_weights){group, w, ws, group == 16 ? 0.00347f : 0, n, k};
}

const float *kg_dsv4_bell(struct kg_cell *cell, int64_t m, int64_t k, uint64_t offset)
{
    float *x = kg_alloc(cell, (size_t)(m * k) * sizeof *x);

    for (int64_t i = 0; i < m * k; i++) {
        float sum = 0;
        for (uint64_t v = 0; v < 4; v++)
            sum += kg_pr_at(cell, offset + 4 * (uint64_t)i + v);
        x[i] = ldexpf(sum, (int)(i / k % 5) - 3);
    }
    return x;
}
