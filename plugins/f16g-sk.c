/*
 * f16g-sk: grouped products of f16 weights. Every form against the f64 product (bound and
 * band) or, to the bit, against the scan form.
 */
#include <math.h>
#include <string.h>

#include "plugins/grouped_bench.h"

enum kind {
    PLAIN,
    GATHER,   /* rows of x in another order, each used again and again */
    TAIL,     /* 2040 rows, the last 40 pairs all read row 0 */
    INDIRECT, /* experts from last to first, with room between them */
};

struct row {
    const char *id;
    int32_t in, out;
    enum kind kind;
    int32_t n;
    int32_t sizes[8];
};

#define SKEWED                                                                           \
    8,                                                                                   \
    {                                                                                    \
        1, 3, 17, 33, 64, 129, 200, 300                                                  \
    }

static const struct row rows[] = {
  /* id           in   out  kind      groups */
    {"512x300", 512, 300,   PLAIN,                             SKEWED},
    {            "480x192",      480, 192, PLAIN,                            SKEWED      },
    {      "empty",       96,     64,     PLAIN,         8,       {0, 5, 0, 0, 40, 0, 1, 0}},
    { "one-expert",      128,    130,     PLAIN,                    4,       {0, 0, 257, 0}},
    {   "indirect",      64, 192,     INDIRECT,              5,       {2, 31, 32, 65, 128}},
    {     "gather",      64,   136,     GATHER,            6,       {7, 8, 9, 16, 17, 127}},
    {  "tail-2040",       64,      64,     TAIL, 8,       {1, 1000, 0, 500, 3, 300, 6, 230}},
    {      "k1056",       1056,     65,     PLAIN,                       3,       {7, 33, 65}},
    {      "k1152",       1152,     64,     PLAIN,                          2,       {9, 130}},
    {      "k1664",       1664,     72,     PLAIN,                          2,       {16, 33}},
    {      "k2176",       2176,     33,     PLAIN,                          2,       {1, 130}},
};

/* Halves with an exact sum of few bits less than f32 can hold, as the pinned vector's
   multiples of 2^-8. */
static void fill_halves(const struct kg_cell *cell, uint16_t *to, int64_t n,
                        uint64_t offset)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = kg_oracle_to_half(
            round((kg_pr_at(cell, (uint64_t)i + offset) - 0.5) * 256) / 256);
}

static void arrange(struct kg_cell *cell, struct kg_groups *g, enum kind kind)
{
    if (kind == INDIRECT) {
        g->experts = kg_alloc(cell, (size_t)g->groups * sizeof *g->experts);
        for (int64_t i = 0; i < g->groups; i++)
            g->experts[i] = (int32_t)(g->groups - 1 - i);
    }
    if (kind == GATHER || kind == TAIL) {
        g->rows = kg_alloc(cell, (size_t)g->pairs * sizeof *g->rows);
        if (kind == GATHER)
            g->n_rows = 23;
        for (int64_t p = 0; p < g->pairs; p++)
            g->rows[p] = kind == GATHER       ? (int32_t)(p * 5 % g->n_rows)
                         : p >= g->pairs - 40 ? 0
                                              : (int32_t)(g->pairs - 1 - p);
    }
}

/* The scan form against the oracle, then `sm90` alone or the visitor's forms. */
static void run(struct kg_cell *cell, const struct row *row, bool sm90)
{
    struct kg_groups g = kg_groups_made(cell, row->sizes, row->n, row->in, row->out);
    int64_t stride = (int64_t)row->in * row->out + (row->kind == INDIRECT ? 24 : 0);
    size_t n_y = (size_t)(g.pairs * g.out);
    uint16_t *w = kg_alloc(cell, (size_t)(stride * g.n_experts) * sizeof *w);
    double *want = kg_alloc(cell, n_y * sizeof *want);
    double *bound = kg_alloc(cell, n_y * sizeof *bound);
    struct kg_cost cost = kg_grouped_cost(&g, (double)row->in * row->out * 2);

    arrange(cell, &g, row->kind);
    fill_halves(cell, w, stride * g.n_experts, 101);
    fill_halves(cell, g.x, g.n_rows * g.in, 211);
    struct kg_group_bufs bufs = kg_groups_upload(cell, &g);
    struct kg_buf *dw =
        kg_input(cell, "w", w, (size_t)(stride * g.n_experts) * sizeof *w);
    struct kg_buf *dy = kg_output(cell, "y", n_y * sizeof(float));

    kg_oracle_grouped_all(&(struct kg_oracle_grouped){.groups = g.groups,
                                                      .in = g.in,
                                                      .out = g.out,
                                                      .expert_stride = stride,
                                                      .offsets = g.offsets,
                                                      .experts = g.experts,
                                                      .rows = g.rows,
                                                      .scale = g.scale,
                                                      .w = w,
                                                      .x = g.x},
                          want, bound);
    if (sm90) {
        KG_ARM(cell, "sm90", &cost, ({
                   struct kg_grouped p = kg_grouped_now(&g, &bufs, stride * 2);
                   KG_OPS(cell, grouped, sm90_gemm_f16)
                   (&p, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy), kg_stream(cell));
               }));
        kg_check_bound(cell, "sm90.bound", kg_fetch(dy), want, bound, n_y);
        return;
    }
    KG_ARM(cell, "scan", &cost, ({
               struct kg_grouped p = kg_grouped_now(&g, &bufs, stride * 2);
               KG_OPS(cell, grouped, gemm_f16)
               (&p, &(struct kg_grouped_form){0}, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy),
                kg_stream(cell));
           }));
    const float *scan = kg_fetch(dy);
    kg_check_band(cell, "scan.band", scan, want, n_y, 1e-3, 1e-3);
    kg_check_bound(cell, "scan.bound", scan, want, bound, n_y);
    for (size_t i = 0; i < kg_n_visitor_forms; i++) {
        const struct kg_named_form *f = &kg_visitor_forms[i];
        kg_reset(dy);
        KG_ARM(cell, f->name, &cost, ({
                   struct kg_grouped p = kg_grouped_now(&g, &bufs, stride * 2);
                   KG_OPS(cell, grouped, gemm_f16)
                   (&p, &f->form, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy),
                    kg_stream(cell));
               }));
        kg_check_exact(cell, f->name, kg_fetch(dy), scan, n_y, 4);
    }
}

static void run_row(struct kg_cell *cell, const void *row)
{
    run(cell, row, false);
}

static void run_sm90(struct kg_cell *cell, const void *row)
{
    run(cell, row, true);
}

static void run_bench(struct kg_cell *cell, const void *shape)
{
    static const struct kg_named_form forms[] = {
        {"trimmed", {1, 33, 1, 1}       },
        {"all-128", {1, 1, 1, 0}        },
        {"deep-32", {1, INT32_MAX, 1, 0}},
    };
    struct kg_groups g = kg_bench_groups(cell, shape);
    size_t expert_bytes, n_y = (size_t)(g.pairs * g.out);
    const void *w = kg_bench_weights(cell, &g, NULL, &expert_bytes);
    struct kg_cost cost = kg_grouped_cost(&g, (double)expert_bytes);
    struct kg_group_bufs bufs = kg_groups_upload(cell, &g);
    struct kg_buf *dw = kg_input(cell, "w", w, (size_t)g.n_experts * expert_bytes);
    struct kg_buf *dy = kg_output(cell, "y", n_y * sizeof(float));
    const float *first = NULL;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        kg_reset(dy);
        KG_ARM(cell, forms[i].name, &cost, ({
                   struct kg_grouped p = kg_grouped_now(&g, &bufs, (int64_t)expert_bytes);
                   KG_OPS(cell, grouped, gemm_f16)
                   (&p, &forms[i].form, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy),
                    kg_stream(cell));
               }));
        const float *y = kg_fetch(dy);
        if (first)
            kg_check_exact(cell, forms[i].name, y, first, n_y, 4);
        else
            kg_bench_check(cell, &g, NULL, w, expert_bytes, first = y);
    }
}

static void run_bench_sm90(struct kg_cell *cell, const void *shape)
{
    struct kg_groups g = kg_bench_groups(cell, shape);
    size_t expert_bytes;
    const void *w = kg_bench_weights(cell, &g, NULL, &expert_bytes);
    struct kg_cost cost = kg_grouped_cost(&g, (double)expert_bytes);
    struct kg_group_bufs bufs = kg_groups_upload(cell, &g);
    struct kg_buf *dw = kg_input(cell, "w", w, (size_t)g.n_experts * expert_bytes);
    struct kg_buf *dy = kg_output(cell, "y", (size_t)(g.pairs * g.out) * sizeof(float));

    KG_ARM(cell, "sm90", &cost, ({
               struct kg_grouped p = kg_grouped_now(&g, &bufs, (int64_t)expert_bytes);
               KG_OPS(cell, grouped, sm90_gemm_f16)
               (&p, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy), kg_stream(cell));
           }));
    kg_bench_check(cell, &g, NULL, w, expert_bytes, kg_fetch(dy));
}

/* Three experts so far apart that the last begins past 2^31 elements. What lies between
   them is never read, so only the experts are uploaded. */
static void run_far(struct kg_cell *cell, const void *unused)
{
    static const int32_t sizes[] = {5, 40, 129};
    enum { IN = 128, OUT = 192, N = 3 };
    const int64_t stride = (1ll << 30) + 4096; /* elements */
    struct kg_groups g = kg_groups_made(cell, sizes, N, IN, OUT);
    size_t n_y = (size_t)(g.pairs * OUT), expert = (size_t)IN * OUT;
    uint16_t *w = kg_alloc(cell, N * expert * sizeof *w);
    double *want = kg_alloc(cell, n_y * sizeof *want);
    double *bound = kg_alloc(cell, n_y * sizeof *bound);

    (void)unused;
    if (kg_device(cell)->cc_major == 0)
        kg_skip(cell, "device-unsupported", "4 GiB of weights");
    fill_halves(cell, w, (int64_t)(N * expert), 101);
    fill_halves(cell, g.x, g.n_rows * IN, 211);
    struct kg_group_bufs bufs = kg_groups_upload(cell, &g);
    struct kg_buf *dw =
        kg_scratch(cell, "w", ((size_t)stride * (N - 1) + expert) * sizeof *w);
    struct kg_buf *dy = kg_output(cell, "y", n_y * sizeof(float));
    kg_oracle_grouped_all(&(struct kg_oracle_grouped){.groups = N,
                                                      .in = IN,
                                                      .out = OUT,
                                                      .expert_stride = (int64_t)expert,
                                                      .offsets = g.offsets,
                                                      .scale = g.scale,
                                                      .w = w,
                                                      .x = g.x},
                          want, bound);
    for (size_t i = 0; i < kg_n_visitor_forms; i++) {
        const struct kg_named_form *f = &kg_visitor_forms[i];
        kg_reset(dy);
        KG_ARM(cell, f->name, NULL, ({
                   struct kg_grouped p = kg_grouped_now(&g, &bufs, stride * 2);
                   const struct kg_device_ops *d = kg_provider(cell)->device;
                   uint16_t *to = kg_ptr(dw);
                   int rc = 0;
                   for (size_t e = 0; !rc && e < N; e++)
                       rc = d->upload(to + e * (size_t)stride, w + e * expert,
                                      expert * sizeof *w);
                   KG_SEQ(rc, KG_OPS(cell, grouped, gemm_f16)(&p, &f->form, to,
                                                              kg_ptr(bufs.x), kg_ptr(dy),
                                                              kg_stream(cell)));
               }));
        kg_check_bound(cell, f->name, kg_fetch(dy), want, bound, n_y);
    }
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_row, &rows[i], NULL, 0},
                     "f16g-sk.%s", rows[i].id);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].in % 64 == 0)
            kg_plan_addf(
                p,
                &(struct kg_cell_spec){NULL, run_sm90, &rows[i], NULL, KG_CELL_OPTIONAL},
                "f16g-sk.%s.sm90", rows[i].id);
    kg_plan_add(p, &(struct kg_cell_spec){"f16g-sk.far-experts", run_far, NULL, NULL,
                                          KG_CELL_OPTIONAL});
    for (size_t i = 0; i < 2; i++) {
        const struct kg_bench_shape *shape = &kg_bench_shapes[i];
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run_bench, shape, NULL, KG_CELL_OPTIONAL},
            "f16g-sk.bench.%s", shape->id);
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run_bench_sm90, shape, NULL, KG_CELL_OPTIONAL},
            "f16g-sk.bench.%s.sm90", shape->id);
    }
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "f16g-sk",
    .summary = "grouped f16 products of a mixture of experts, in every form",
    .plan = plan,
};
