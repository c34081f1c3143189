/*
 * The order of the int8 GEMM (kernels/gemm/int8.h): units of 32 weights ascending into one
 * accumulator, and the parts of a tile that stream-K cut, wherever, one after the other.
 * oracle/q8_1.c has the bound.
 */
#include "plugins/gemm_cells.h"

#include <string.h>

bool kg_gemm_is_emulated(const struct kg_cell *cell)
{
    return kg_device(cell)->cc_major == 0;
}

struct kg_weights kg_gemm_last_rows(struct kg_cell *cell, struct kg_weights w,
                                    int64_t rows)
{
    if (w.out > rows) {
        size_t row_bytes = kg_row_bytes(w.type->type, w.in);
        w.data = (const uint8_t *)w.data + (size_t)(w.out - rows) * row_bytes;
        w.out = rows;
        kg_param_s(cell, "rows", "the last ones");
    }
    return w;
}

/* Multiply-adds of one arm, in whole tiles, that the emulated device is given. */
#define EMULATED_MAX 1.6e8

struct kg_weights kg_gemm_fit(struct kg_cell *cell, struct kg_weights w, int64_t m)
{
    if (!kg_gemm_is_emulated(cell))
        return w;
    if ((double)w.in * 128 * (double)(m <= 16 ? 16 : (m + 63) / 64 * 64) > EMULATED_MAX)
        kg_skip(cell, "device-unsupported", "too large for the emulated device");
    return kg_gemm_last_rows(cell, w, 120);
}

struct kg_weights kg_gemm_tensor(struct kg_cell *cell, const char *role, const char *name,
                                 enum kg_type type, int64_t m)
{
    const struct kg_tensor *tensor = kg_tensor(cell, role, name);

    if (tensor->type != type)
        kg_skip(cell, "not-applicable", "%s is %s here, %s pinned", tensor->name,
                kg_type_name(tensor->type), kg_type_name(type));
    return kg_gemm_fit(cell, kg_weights_of(cell, tensor), m);
}

struct kg_buf *kg_gemm_planes(struct kg_cell *cell, const struct kg_weights *w)
{
    const struct kg_type_info *info = kg_type_info(w->type->type);
    bool is_q4_0 = w->type->type == KG_TYPE_Q4_0;
    size_t codes = is_q4_0 ? 16 : 32, scales = (size_t)info->bytes - codes;
    size_t n = (size_t)(w->out * (w->in / info->block));
    size_t plane = (n * codes + 15) / 16 * 16;
    uint8_t *to = kg_alloc(cell, plane + n * scales);
    const uint8_t *from = w->data;

    memset(to, 0xff, plane);
    for (size_t i = 0; i < n; i++, from += info->bytes) {
        /* both types have the scales in front */
        memcpy(to + i * codes, from + scales, codes);
        memcpy(to + plane + i * scales, from, scales);
    }
    return kg_input(cell, "w-planes", to, plane + n * scales);
}

struct kg_gemm kg_gemm_open(struct kg_cell *cell, const struct kg_weights *w, int64_t m,
                            const float *x)
{
    size_t n = (size_t)(w->in * m), blocks = n / 32;
    struct kg_gemm g = {.cell = cell, .w = *w, .m = m, .x = x};

    kg_param_s(cell, "type", kg_type_name(w->type->type));
    kg_param_i(cell, "in", w->in);
    kg_param_i(cell, "out", w->out);
    kg_param_i(cell, "m", m);
    g.act = kg_run_q8_1(cell, x, m, w->in);
    g.dw =
        kg_input(cell, "w", w->data, (size_t)w->out * kg_row_bytes(w->type->type, w->in));
    g.dq = kg_input(cell, "q-in", g.act.q, n);
    g.dd = kg_input(cell, "d-in", g.act.d, blocks * sizeof *x);
    g.ds = kg_input(cell, "s-in", g.act.s, blocks * sizeof *x);
    return g;
}

struct kg_cost kg_gemm_cost(const struct kg_gemm *g, double x_bytes, const char *engine)
{
    double in = (double)g->w.in, out = (double)g->w.out, m = (double)g->m;

    return (struct kg_cost){
        .bytes = out * (double)kg_row_bytes(g->w.type->type, g->w.in) +
                 m * (in * x_bytes + 4 * out),
        .ops = 2 * in * out * m,
        .engine = engine,
    };
}

static size_t results(const struct kg_gemm *g)
{
    return (size_t)(g->w.out * g->m);
}

const float *kg_gemm_int8(struct kg_gemm *g, const char *arm, struct kg_buf *dw,
                          int layout, int workers)
{
    struct kg_cell *cell = g->cell;
    struct kg_cost cost =
        kg_gemm_cost(g, 1.0 + (g->w.type->has_min ? 8.0 : 4.0) / 32, "int8-mma");
    int form = workers > 0 ? KG_GEMM_STREAM_K : KG_GEMM_TILE;
    struct kg_buf *dy = kg_output(cell, "y", results(g) * sizeof(float));
    struct kg_buf *dp = NULL;
    size_t bytes = 0;

    if (KG_OPS(cell, gemm, int8_workspace)(g->m, form, workers, &bytes))
        kg_fail(cell, "int8_workspace refused %d workers", workers);
    if (bytes)
        dp = kg_scratch(cell, "partial", bytes);
    KG_ARM(cell, arm, &cost,
           KG_OPS(cell, gemm, int8)(g->w.type->type, layout, kg_ptr(dw), kg_ptr(g->dq),
                                    kg_ptr(g->dd), kg_ptr(g->ds), kg_ptr(dy), g->w.in,
                                    g->w.out, g->m, form, workers, kg_ptr(dp), bytes,
                                    kg_stream(cell)));
    return kg_fetch(dy);
}

const float *kg_gemm_dp4a(struct kg_gemm *g)
{
    struct kg_cell *cell = g->cell;
    struct kg_cost cost = kg_gemm_cost(g, 1.25, "dp4a");
    struct kg_buf *dy = kg_output(cell, "y-dp4a", results(g) * sizeof(float));

    KG_ARM(cell, "dp4a", &cost,
           KG_OPS(cell, matvec, stage_b)(g->w.type->type, kg_ptr(g->dw), kg_ptr(g->dq),
                                         kg_ptr(g->dd), kg_ptr(g->ds), kg_ptr(dy),
                                         g->w.in, g->w.out, g->m, kg_stream(cell)));
    return kg_fetch(dy);
}

static void need_want(struct kg_gemm *g)
{
    size_t bytes = results(g) * sizeof(double);

    if (g->sums.y)
        return;
    g->sums = (struct kg_oracle_sums){kg_alloc(g->cell, bytes), kg_alloc(g->cell, bytes),
                                      kg_alloc(g->cell, bytes), kg_alloc(g->cell, bytes)};
    kg_oracle_must(g->cell,
                   kg_oracle_linear_q8_1(g->w.type, g->w.data, g->act.q, g->act.d,
                                         &(struct kg_oracle_order){.chain = true},
                                         &g->sums, g->w.in, g->w.out, g->m));
}

void kg_gemm_check_bound(struct kg_gemm *g, const char *name, const float *y,
                         int segments)
{
    size_t n = results(g);
    double *bound = NULL;

    need_want(g);
    if (segments > 1) {
        bound = kg_alloc(g->cell, n * sizeof *bound);
        for (size_t i = 0; i < n; i++)
            bound[i] = kg_oracle_cut_bound(g->w.type, g->w.in, g->sums.terms[i],
                                           g->sums.range[i], segments);
    }
    kg_check_bound(g->cell, name, y, g->sums.y, bound ? bound : g->sums.bound, n);
}

void kg_gemm_check_near(struct kg_gemm *g, const char *name, const float *y,
                        const float *other, double limit)
{
    size_t n = results(g);
    double *want = kg_alloc(g->cell, n * sizeof *want);

    for (size_t i = 0; i < n; i++)
        want[i] = other[i];
    kg_check_band(g->cell, name, y, want, n, 1e-3, limit);
}

double *kg_gemm_exact(struct kg_gemm *g)
{
    if (!g->exact) {
        g->exact = kg_alloc(g->cell, results(g) * sizeof *g->exact);
        kg_oracle_must(g->cell, kg_oracle_linear_f32(g->w.type, g->w.data, g->x, g->exact,
                                                     NULL, g->w.in, g->w.out, g->m));
    }
    return g->exact;
}

void kg_gemm_check_band(struct kg_gemm *g, const char *name, const float *y, double limit)
{
    kg_check_band(g->cell, name, y, kg_gemm_exact(g), results(g), 1e-3, limit);
}

void kg_gemm_check_same(struct kg_gemm *g, const char *name, const float *y,
                        const float *other)
{
    kg_check_exact(g->cell, name, y, other, results(g), sizeof *y);
}
