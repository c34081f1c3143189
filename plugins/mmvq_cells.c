/*
 * The bound (oracle/q8_1.c): stage_b's order of additions, whatever the form, and one rounding
 * more for a tensor scale other than 1.
 */
#include "plugins/mmvq_cells.h"

#include <math.h>
#include <string.h>

#include "plugins/gemm_cells.h"
#include "plugins/oracle/mmvq.h"

/* Rows of a model's tensor that the emulated device is given: a tile and a part of one. */
enum { EMULATED_ROWS = 35 };

static size_t results(const struct kg_mv *mv, int i)
{
    return (size_t)(mv->w[i].out * mv->m);
}

static size_t weight_bytes(const struct kg_mv *mv, int i)
{
    return (size_t)mv->w[i].out * kg_row_bytes(mv->type, mv->in);
}

static size_t n_scales(const struct kg_mv_tensor *w, int scale_kind)
{
    return scale_kind == KG_SCALE_ROW
               ? (size_t)w->out
               : (size_t)((w->out + 127) / 128 * ((w->in + 127) / 128));
}

struct kg_mv kg_mv_open(struct kg_cell *cell, const struct kg_mv_tensor *w, int n,
                        int scale_kind, int64_t m, const float *x)
{
    size_t codes = (size_t)(w->in * m), blocks = codes / 32;
    struct kg_mv mv = {.cell = cell, .n = n, .scale_kind = scale_kind, .m = m, .x = x};

    mv.type = w->type ? (int)w->type->type : (int)KG_TYPE_F8_E4M3;
    mv.in = w->in;
    kg_param_s(cell, "type", kg_type_name(mv.type));
    kg_param_i(cell, "in", mv.in);
    kg_param_i(cell, "out", w->out);
    kg_param_i(cell, "m", m);
    mv.act = kg_run_q8_1(cell, x, m, mv.in);
    for (int i = 0; i < n; i++) {
        mv.w[i] = w[i];
        mv.dw[i] = kg_input(cell, "w", w[i].data, weight_bytes(&mv, i));
        if (scale_kind != KG_SCALE_NONE)
            mv.dscales[i] = kg_input(cell, "scales", w[i].scales,
                                     n_scales(&w[i], scale_kind) * sizeof(float));
    }
    mv.dq = kg_input(cell, "q-in", mv.act.q, codes);
    mv.dd = kg_input(cell, "d-in", mv.act.d, blocks * sizeof(float));
    if (w->type && w->type->has_min)
        mv.ds = kg_input(cell, "s-in", mv.act.s, blocks * sizeof(float));
    return mv;
}

struct kg_cost kg_mv_cost(const struct kg_mv *mv, int first, int n, int64_t m)
{
    double in = (double)mv->in, outs = 0;
    struct kg_cost cost = {.engine = "dp4a"};

    for (int i = first; i < first + n; i++) {
        outs += (double)mv->w[i].out;
        cost.bytes += (double)weight_bytes(mv, i);
        if (mv->scale_kind != KG_SCALE_NONE)
            cost.bytes += 4 * (double)n_scales(&mv->w[i], mv->scale_kind);
    }
    cost.bytes += (double)m * (in * (mv->ds ? 1.25 : 1.125) + 4 * outs);
    cost.ops = 2 * in * outs * (double)m;
    return cost;
}

struct kg_buf *kg_mv_planes(struct kg_mv *mv, int i)
{
    if (!mv->dplanes[i]) {
        size_t bytes = weight_bytes(mv, i);
        uint8_t *planes = kg_alloc(mv->cell, bytes);
        if (!kg_oracle_planes(mv->type, mv->w[i].data, planes,
                              (int64_t)bytes / kg_type_info(mv->type)->bytes))
            kg_skip(mv->cell, "not-applicable", "%s has no split planes",
                    kg_type_name(mv->type));
        mv->dplanes[i] = kg_input(mv->cell, "w-planes", planes, bytes);
    }
    return mv->dplanes[i];
}

static int launch(struct kg_mv *mv, const struct kg_mv_form *form, struct kg_buf **dy)
{
    struct kg_mmvq_tensor tensors[KG_MMVQ_TENSORS];

    for (int k = 0; k < form->n; k++) {
        int i = form->first + k;
        tensors[k] = (struct kg_mmvq_tensor){
            .w = kg_ptr(form->layout == KG_LAYOUT_SPLIT ? mv->dplanes[i] : mv->dw[i]),
            .y = kg_ptr(dy[i]),
            .out = mv->w[i].out,
            .scale = mv->w[i].scale,
            .scales = kg_ptr(mv->dscales[i]),
        };
    }
    int64_t block = form->row * (mv->in / 32);
    return KG_OPS(mv->cell, mmvq,
                  product)(mv->type, form->layout, mv->scale_kind, tensors, form->n,
                           (const int8_t *)kg_ptr(mv->dq) + form->row * mv->in,
                           (const float *)kg_ptr(mv->dd) + block,
                           mv->ds ? (const float *)kg_ptr(mv->ds) + block : NULL, mv->in,
                           form->m, form->width, kg_stream(mv->cell));
}

struct kg_mv_y kg_mv_run(struct kg_mv *mv, const char *arm, struct kg_mv_form form)
{
    static const char *const names[KG_MMVQ_TENSORS] = {"y", "y1", "y2"};
    struct kg_buf *dy[KG_MMVQ_TENSORS];
    struct kg_mv_y result = {{NULL}};

    form.n = form.n ? form.n : mv->n - form.first;
    form.m = form.m ? form.m : mv->m - form.row;
    form.width = form.width ? form.width : 1;
    struct kg_cost cost = kg_mv_cost(mv, form.first, form.n, form.m);
    for (int i = form.first; i < form.first + form.n; i++) {
        if (form.layout == KG_LAYOUT_SPLIT)
            kg_mv_planes(mv, i);
        dy[i] = kg_output(mv->cell, names[i],
                          (size_t)(mv->w[i].out * form.m) * sizeof(float));
    }
    KG_ARM(mv->cell, arm, &cost, launch(mv, &form, dy));
    for (int i = form.first; i < form.first + form.n; i++)
        result.y[i] = kg_fetch(dy[i]);
    return result;
}

const float *kg_mv_dp4a(struct kg_mv *mv, int i)
{
    struct kg_cell *cell = mv->cell;
    struct kg_cost cost = kg_mv_cost(mv, i, 1, mv->m);
    struct kg_buf *dy = kg_output(cell, "y-dp4a", results(mv, i) * sizeof(float));

    KG_ARM(cell, "dp4a", &cost,
           KG_OPS(cell, matvec, stage_b)(mv->type, kg_ptr(mv->dw[i]), kg_ptr(mv->dq),
                                         kg_ptr(mv->dd), kg_ptr(mv->ds), kg_ptr(dy),
                                         mv->in, mv->w[i].out, mv->m, kg_stream(cell)));
    return kg_fetch(dy);
}

/* ---- checks ---- */

static struct kg_oracle_e4m3_weights e4m3_of(const struct kg_mv *mv, int i)
{
    return (struct kg_oracle_e4m3_weights){
        .codes = mv->w[i].data,
        .row_scales = mv->scale_kind == KG_SCALE_ROW ? mv->w[i].scales : NULL,
        .block_scales = mv->scale_kind == KG_SCALE_BLOCK ? mv->w[i].scales : NULL,
        .in = mv->in,
        .out = mv->w[i].out,
    };
}

/* The oracle's product of tensor i in that order, scale included, and its bound. */
static void product_of(const struct kg_mv *mv, int i, int64_t cut, double *want,
                       double *bound)
{
    const struct kg_mv_tensor *w = &mv->w[i];
    const struct kg_oracle_order order = {.cut = cut};
    const struct kg_oracle_sums to = {.y = want, .bound = bound};
    size_t n = results(mv, i);

    if (w->type) {
        kg_oracle_must(mv->cell,
                       kg_oracle_linear_q8_1(w->type, w->data, mv->act.q, mv->act.d,
                                             &order, &to, mv->in, w->out, mv->m));
    } else {
        struct kg_oracle_e4m3_weights e4m3 = e4m3_of(mv, i);
        kg_oracle_e4m3_linear_q8_1(&e4m3, mv->act.q, mv->act.d, want, bound, mv->m);
    }
    if (w->scale == 1)
        return;
    for (size_t k = 0; k < n; k++)
        want[k] *= w->scale;
    kg_oracle_bound_scaled(bound, want, n, w->scale, 1);
}

void kg_mv_need_want(struct kg_mv *mv, int i)
{
    size_t n = results(mv, i);

    if (mv->want[i])
        return;
    mv->want[i] = kg_alloc(mv->cell, n * sizeof(double));
    mv->bound[i] = kg_alloc(mv->cell, n * sizeof(double));
    product_of(mv, i, 0, mv->want[i], mv->bound[i]);
}

void kg_mv_check_bound(struct kg_mv *mv, const char *name, int i, const float *y)
{
    kg_mv_need_want(mv, i);
    kg_check_bound(mv->cell, name, y, mv->want[i], mv->bound[i], results(mv, i));
}

void kg_mv_check_bound_cut(struct kg_mv *mv, const char *name, int i, const float *y,
                           int64_t first_units)
{
    size_t n = results(mv, i);
    double *want = kg_alloc(mv->cell, n * sizeof *want);
    double *bound = kg_alloc(mv->cell, n * sizeof *bound);

    product_of(mv, i, first_units, want, bound);
    kg_check_bound(mv->cell, name, y, want, bound, n);
}

void kg_mv_check_same(struct kg_mv *mv, const char *name, int i, const float *y,
                      const float *other, int64_t n)
{
    kg_check_exact(mv->cell, name, y, other, (size_t)(mv->w[i].out * n), sizeof *y);
}

void kg_mv_check_near(struct kg_mv *mv, const char *name, int i, const float *y,
                      const float *other, double limit)
{
    size_t n = results(mv, i);
    double *want = kg_alloc(mv->cell, n * sizeof *want);

    for (size_t k = 0; k < n; k++)
        want[k] = other[k];
    kg_check_band(mv->cell, name, y, want, n, 1e-3, limit);
}

/* ---- weights ---- */

const enum kg_type kg_mv_types[] = {
    KG_TYPE_Q4_0, KG_TYPE_Q8_0,   KG_TYPE_Q3_K,  KG_TYPE_Q4_K,  KG_TYPE_Q5_K,
    KG_TYPE_Q6_K, KG_TYPE_IQ4_XS, KG_TYPE_NVFP4, KG_TYPE_MXFP4,
};
const size_t kg_mv_n_types = sizeof kg_mv_types / sizeof kg_mv_types[0];

const char *kg_mv_type_id(int type)
{
    return type == KG_TYPE_F8_E4M3 ? "e4m3" : kg_oracle_type(type)->id;
}

bool kg_mv_has(int type)
{
    for (size_t i = 0; i < kg_mv_n_types; i++)
        if ((int)kg_mv_types[i] == type)
            return true;
    return false;
}

bool kg_mv_splits(int type)
{
    return type == KG_TYPE_Q4_0 || type == KG_TYPE_NVFP4 || type == KG_TYPE_Q4_K ||
           type == KG_TYPE_Q6_K;
}

/* The high byte of a pseudorandom word. */
static uint8_t next_byte(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(*state >> 56);
}

/* Codes with about equal chances, NaNs replaced by 0 and -0; neighbouring scales differ. */
static struct kg_mv_tensor made_e4m3(struct kg_cell *cell, int scale_kind, int64_t in,
                                     int64_t out, int index)
{
    struct kg_mv_tensor w = {.in = in, .out = out, .scale = 1};
    uint8_t *codes = kg_alloc(cell, (size_t)(in * out));
    uint64_t state = (uint64_t)((kg_pr_at(cell, 977) + 1) * 0x1p23) + (uint64_t)index;
    size_t n = n_scales(&w, scale_kind),
           row = scale_kind == KG_SCALE_ROW ? 1 : (size_t)((in + 127) / 128);
    float *scales = kg_alloc(cell, n * sizeof *scales);

    for (int64_t k = 0; k < in * out; k++) {
        codes[k] = next_byte(&state);
        if ((codes[k] & 0x7f) == 0x7f)
            codes[k] &= 0x80;
    }
    for (size_t k = 0; k < n; k++)
        scales[k] = ldexpf(1, (int)((k / row * 3 + k % row * 2 + (size_t)index) % 7) - 6);
    w.data = codes;
    w.scales = scales;
    return w;
}

struct kg_mv_tensor kg_mv_made(struct kg_cell *cell, int type, int scale_kind, int64_t in,
                               int64_t out, int index)
{
    const struct kg_oracle_type *row = kg_oracle_type(type);

    if (type == KG_TYPE_F8_E4M3)
        return made_e4m3(cell, scale_kind, in, out, index);
    struct kg_weights w = kg_weights_made(cell, row, in, out + index);
    return (struct kg_mv_tensor){.type = row,
                                 .data = (const uint8_t *)w.data +
                                         (size_t)index * kg_row_bytes(type, in),
                                 .in = in,
                                 .out = out,
                                 .scale = 1};
}

struct kg_mv_tensor kg_mv_tensor(struct kg_cell *cell, const char *role, const char *name)
{
    const struct kg_tensor *tensor = kg_tensor(cell, role, name);

    if (!kg_mv_has(tensor->type))
        kg_skip(cell, "not-applicable", "%s is %s here", tensor->name,
                kg_type_name(tensor->type));
    struct kg_weights w = kg_weights_of(cell, tensor);
    if (kg_gemm_is_emulated(cell))
        w = kg_gemm_last_rows(cell, w, EMULATED_ROWS);
    return (struct kg_mv_tensor){
        .type = w.type, .data = w.data, .in = w.in, .out = w.out, .scale = 1};
}

const struct kg_tensor *kg_mv_find(const struct kg_artifact *artifact, int type,
                                   int64_t in_multiple, int64_t in_min, int64_t out_min,
                                   int skip)
{
    for (size_t i = 0; i < kg_artifact_count(artifact); i++) {
        const struct kg_tensor *t = kg_artifact_at(artifact, i);
        if ((int)t->type == type && t->n_dims == 2 && t->ne[0] % in_multiple == 0 &&
            t->ne[0] >= in_min && t->ne[1] >= out_min && skip-- == 0)
            return t;
    }
    return NULL;
}

int kg_mv_tier(int64_t m)
{
    int width = 1;

    while (width < m && width < 16)
        width *= 2;
    return width;
}

bool kg_mv_is_large(int64_t in, int64_t out, int64_t m)
{
    return in * out > 1 << 20 && m > 1;
}

void kg_mv_skip_large(struct kg_cell *cell, int64_t in, int64_t out, int64_t m)
{
    const char *option = kg_option(cell, "shapes");

    if (kg_mv_is_large(in, out, m) && kg_gemm_is_emulated(cell) &&
        !(option && strcmp(option, "all") == 0))
        kg_skip(
            cell, "device-unsupported",
            "takes seconds on the emulated device; the parameter shapes: all runs it");
}
