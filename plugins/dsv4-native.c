/*
 * dsv4-native: an expert of DeepSeek-V4 on its own four-bit weights.
 *
 * Seven experts of the model on captured inputs of their blocks: activation codes and
 * scales, the products w1, w3 and w2, the distance to the bf16 class, and one row driven
 * into the limits of SwiGLU. Then a reduced checkpoint with results of another stack, and
 * the cells of plugins/dsv4_synthetic.c, which need no model.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/dsv4_cells.h"
#include "plugins/dsv4_synthetic.h"

enum { ROWS = 8 };

static const struct kg_dsv4_sample samples[] = {
    {"layer0",   0,  -1, 0  },
    {"layer2",   2,  -1, 100},
    {"layer20",  20, -1, 7  },
    {"split",    -1, -1, 31 },
    {"last",     -2, -1, 255},
    {"mtp-e7",   0,  0,  7  },
    {"mtp-e200", 0,  0,  200},
};

enum { SAMPLES = sizeof samples / sizeof samples[0] };

struct row {
    const struct kg_dsv4_sample *sample;
    int projection; /* 1, 2, 3; 0: none */
};

static const char *const names[] = {"", "w1", "w2", "w3"};

/* One projection of a sampled expert, and the rows that go into it. */
struct operands {
    const struct kg_dsv4_weights *w;
    struct kg_dsv4_act act;
};

static struct operands operands_of(struct kg_cell *cell, const struct kg_dsv4_expert *e,
                                   int projection)
{
    int64_t rows = ROWS;
    const float *x = kg_dsv4_captured(cell, e, "captures", &rows);
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, x, rows, e->w1.k);
    struct operands out = {projection == 1 ? &e->w1 : &e->w3, act};

    if (projection == 2) {
        const float *h = kg_dsv4_hidden(cell, &e->w1, &e->w3, &act, e->limit);
        out = (struct operands){&e->w2, kg_dsv4_act_of(cell, h, rows, e->w2.k)};
    }
    kg_param_s(cell, "kind", out.w->group == 16 ? "nvfp4" : "mxfp4");
    kg_param_i(cell, "m", rows);
    kg_param_i(cell, "n", out.w->n);
    kg_param_i(cell, "k", out.w->k);
    return out;
}

static void run_product(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    struct kg_dsv4_expert e = kg_dsv4_sampled(cell, row->sample);
    struct operands in = operands_of(cell, &e, row->projection);

    kg_dsv4_run_act_quant(cell, names[row->projection], &in.act);
    kg_dsv4_run_gemm(cell, names[row->projection], in.w, &in.act, KG_DSV4_F64);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/*
 * What quantizing the activations changes: the distance between the native product and
 * that of bf16 weights and rows. A code has a relative error of up to 2^-4, spread evenly,
 * which makes 2^-4 / sqrt(3) * norm(x . w) of the sum of k independent ones. The ratio of
 * the two is recorded; the bf16 product itself is held to its f64 twin: k additions that
 * may each truncate, hence 2^-23.
 */
static void run_shift(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    struct kg_dsv4_expert e = kg_dsv4_sampled(cell, row->sample);
    struct operands in = operands_of(cell, &e, row->projection);
    const struct kg_dsv4_weights *w = in.w;
    size_t n_x = (size_t)(in.act.m * w->k), n_w = (size_t)(w->n * w->k);
    size_t n = (size_t)(in.act.m * w->n);
    struct kg_buf *dx = kg_input(cell, "x", in.act.x, n_x * 4);
    struct kg_buf *dw = kg_input(cell, "w", w->w, n_w / 2);
    struct kg_buf *ds = kg_input(cell, "ws", w->ws, n_w / (size_t)w->group);
    struct kg_buf *dx16 = kg_output(cell, "x16", n_x * 2);
    struct kg_buf *dw16 = kg_output(cell, "w16", n_w * 2);
    struct kg_buf *dy = kg_output(cell, "y", n * 4);
    struct kg_cost cost = {2.0 * (double)(n_x + n_w) + 4.0 * (double)n,
                           2.0 * (double)n * (double)w->k, "f16-mma"};
    double *want = kg_alloc(cell, n * sizeof *want),
           *bound = kg_alloc(cell, n * sizeof *want);
    double *ratio = kg_alloc(cell, n * sizeof *ratio), largest = 0;
    float *native = kg_alloc(cell, n * sizeof *native);

    KG_ARM(cell, "to-bf16", NULL,
           KG_SEQ(KG_OPS(cell, dsv4, to_bf16)(kg_ptr(dx), kg_ptr(dx16), (int64_t)n_x,
                                              kg_stream(cell)),
                  KG_OPS(cell, dsv4, dequant_bf16)(kg_dsv4_kind(w), kg_ptr(dw),
                                                   kg_ptr(ds), w->scale2, kg_ptr(dw16),
                                                   w->n, w->k, kg_stream(cell))));
    KG_ARM(cell, "bf16", &cost,
           KG_OPS(cell, dsv4, gemm_bf16)(kg_ptr(dx16), kg_ptr(dw16), kg_ptr(dy), in.act.m,
                                         w->n, w->k, kg_stream(cell)));
    const float *got = kg_fetch(dy);
    kg_dsv4_must(cell, kg_oracle_dsv4_bf16(w, in.act.x, want, bound, in.act.m));
    for (size_t i = 0; i < n; i++)
        bound[i] *= (double)w->k * 0x1p-23;
    kg_check_bound(cell, "bf16", got, want, bound, n);

    kg_dsv4_must(cell,
                 kg_oracle_dsv4_mirror(w, in.act.codes, in.act.scales, native, in.act.m));
    kg_dsv4_must(cell, kg_oracle_dsv4_norm(w, in.act.x, ratio, in.act.m));
    for (size_t i = 0; i < n; i++) {
        double shift = fabs((double)native[i] - (double)got[i]);
        double predicted = 0x1p-4 / sqrt(3) * ratio[i];
        largest = fmax(largest, shift);
        ratio[i] = predicted > 0 ? shift / predicted : 0;
    }
    qsort(ratio, n, sizeof *ratio, ascending);
    kg_info(cell, "shift.max", largest);
    kg_info(cell, "ratio.min", ratio[0]);
    kg_info(cell, "ratio.median", ratio[n / 2]);
    kg_info(cell, "ratio.p95", ratio[n - 1 - n / 20]);
    kg_info(cell, "ratio.max", ratio[n - 1]);
}

/* One captured row times 50 must reach both limits of SwiGLU; every step is checked. */
static void run_saturation(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    struct kg_dsv4_expert e = kg_dsv4_sampled(cell, row->sample);
    int64_t rows = 1, n = e.w1.n;
    const float *captured = kg_dsv4_captured(cell, &e, "captures", &rows);
    float *x = kg_alloc(cell, (size_t)e.w1.k * sizeof *x);
    int64_t gates = 0, ups = 0;
    double largest = 0, worst = 0;

    for (int64_t i = 0; i < e.w1.k; i++)
        x[i] = captured[i] * 50;
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, x, 1, e.w1.k);
    kg_dsv4_run_act_quant(cell, "x", &act);
    const float *gate = kg_dsv4_run_gemm(cell, "w1", &e.w1, &act, KG_DSV4_F64);
    const float *up = kg_dsv4_run_gemm(cell, "w3", &e.w3, &act, KG_DSV4_F64);
    const float *h = kg_dsv4_run_swiglu(cell, "swiglu", gate, up, e.limit, 1, n);
    for (int64_t i = 0; i < n; i++) {
        double g = (double)gate[i], u = (double)up[i], want;
        gates += gate[i] > e.limit;
        ups += fabsf(up[i]) > e.limit;
        kg_oracle_dsv4_swiglu(&g, &u, (double)e.limit, &want, 1);
        largest = fmax(largest, fabs(want));
        double error = fabs((double)h[i] - want);
        worst = !(error <= worst) ? error : worst;
    }
    kg_check_that(cell, "gate-limit", gates > 0, "%lld of %lld gates are above %g",
                  (long long)gates, (long long)n, (double)e.limit);
    kg_check_that(cell, "up-limit", ups > 0, "%lld of %lld ups are beyond %g",
                  (long long)ups, (long long)n, (double)e.limit);
    kg_check_value(cell, "h", "bound", worst, 2e-6 * largest);

    struct kg_dsv4_act hidden = kg_dsv4_act_of(cell, h, 1, e.w2.k);
    kg_dsv4_run_act_quant(cell, "h", &hidden);
    kg_dsv4_run_gemm(cell, "w2", &e.w2, &hidden, KG_DSV4_F64);
}

/* ---- the reduced checkpoint, against another stack ---- */

static const struct kg_tensor *expected(struct kg_cell *cell, const char *prefix,
                                        const char *what)
{
    char name[128];

    snprintf(name, sizeof name, "%s.%s", prefix, what);
    return kg_tensor(cell, "expected", name);
}

/* A copy of `bytes` bytes of the tensor, aligned as any element wants it. */
static const void *copied(struct kg_cell *cell, const struct kg_tensor *t, size_t bytes)
{
    void *copy = kg_alloc(cell, bytes);

    if (t->bytes < bytes)
        kg_error(cell, "%s holds %llu bytes, fewer than the %zu expected", t->name,
                 (unsigned long long)t->bytes, bytes);
    memcpy(copy, t->data, bytes);
    return copy;
}

/* Quantizes x and compares with the other stack's codes and scales. Returns those. */
static struct kg_dsv4_act foreign_act(struct kg_cell *cell, const char *prefix,
                                      const char *name, const float *x, int64_t k,
                                      const char *codes, const char *scales)
{
    size_t n = (size_t)(ROWS * k);
    struct kg_dsv4_act act = {x, kg_alloc(cell, n), kg_alloc(cell, n / 32), ROWS, k};

    memcpy(act.codes, copied(cell, expected(cell, prefix, codes), n), n);
    memcpy(act.scales, copied(cell, expected(cell, prefix, scales), n / 32), n / 32);
    kg_dsv4_run_act_quant(cell, name, &act);
    return act;
}

/* The other stack multiplies scale * scale_2 in f64, where we round to f32: each term is off
   by one rounding more. */
static void foreign_product(struct kg_cell *cell, const char *prefix, const char *name,
                            const struct kg_dsv4_weights *w,
                            const struct kg_dsv4_act *act)
{
    size_t n = (size_t)(ROWS * w->n);
    double *unused = kg_alloc(cell, n * sizeof(double));
    double *bound = kg_alloc(cell, n * sizeof(double));
    double *terms = kg_alloc(cell, n * sizeof(double));
    const float *got = kg_dsv4_run_gemm(cell, name, w, act, 0);
    const double *want = copied(
        cell, expected(cell, prefix, kg_dsv4_name(cell, strrchr(name, 'w'), "f64")),
        n * 8);

    kg_dsv4_must(
        cell, kg_oracle_dsv4_f64(w, act->codes, act->scales, unused, bound, terms, ROWS));
    for (size_t i = 0; i < n; i++)
        bound[i] += 1.001 * 0x1p-24 * terms[i];
    kg_check_bound(cell, kg_dsv4_name(cell, name, "foreign"), got, want, bound, n);
}

static void run_golden(struct kg_cell *cell, const void *row_)
{
    const char *block = row_;
    static const int experts[] = {0, 3, 7};
    int64_t rows = ROWS;
    struct kg_dsv4_expert first = kg_dsv4_expert_of(cell, "reduced", block, 0);
    const float *x = kg_dsv4_captured(cell, &first, "reduced-captures", &rows);
    char prefix[96];

    if (rows != ROWS)
        kg_error(cell, "fewer than %d captured rows", ROWS);
    struct kg_dsv4_act act =
        foreign_act(cell, block, "x", x, first.w1.k, "codes", "scales");
    for (size_t i = 0; i < sizeof experts / sizeof experts[0]; i++) {
        snprintf(prefix, sizeof prefix, "%s.experts.%d.h", block, experts[i]);
        if (!kg_artifact_find(kg_artifact(cell, "expected"), prefix))
            continue;
        struct kg_dsv4_expert e = kg_dsv4_expert_of(cell, "reduced", block, experts[i]);
        prefix[strlen(prefix) - 2] = '\0';
        char id[8];
        snprintf(id, sizeof id, "e%d", experts[i]);
        foreign_product(cell, prefix, kg_dsv4_name(cell, id, "w1"), &e.w1, &act);
        foreign_product(cell, prefix, kg_dsv4_name(cell, id, "w3"), &e.w3, &act);
        const float *h =
            copied(cell, expected(cell, prefix, "h"), (size_t)(ROWS * e.w2.k) * 4);
        struct kg_dsv4_act hidden = foreign_act(cell, prefix, kg_dsv4_name(cell, id, "h"),
                                                h, e.w2.k, "h_codes", "h_scales");
        foreign_product(cell, prefix, kg_dsv4_name(cell, id, "w2"), &e.w2, &hidden);
    }
}

/* ---- plan ---- */

static const char *const blocks[] = {"layers.0", "layers.1", "layers.2", "mtp.0"};

static void plan(struct kg_plan *p)
{
    static const int order[] = {1, 3, 2};
    static struct row rows[SAMPLES][3];

    kg_dsv4_plan_synthetic(p);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_golden, blocks[i], "expected",
                                            KG_CELL_ORDERED},
                     "dsv4-native.golden.%s", blocks[i]);
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < 3; j++) {
            rows[i][j] = (struct row){&samples[i], order[j]};
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run_product, &rows[i][j], "model",
                                                KG_CELL_ORDERED},
                         "dsv4-native.%s.%s", samples[i].id, names[order[j]]);
        }
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < 3; j++)
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run_shift, &rows[i][j], "model",
                                                KG_CELL_OPTIONAL},
                         "dsv4-native.shift.%s.%s", samples[i].id, names[order[j]]);
    kg_plan_add(p,
                &(struct kg_cell_spec){"dsv4-native.saturation.layer20", run_saturation,
                                       &rows[2][0], "model", KG_CELL_ORDERED});
    kg_plan_add(p, &(struct kg_cell_spec){"dsv4-native.saturation.mtp-e7", run_saturation,
                                          &rows[5][0], "model", KG_CELL_ORDERED});
}

static const struct kg_role roles[] = {
    {"model",            "safetensors-dir", "a DeepSeek-V4 checkpoint with FP4 experts"    },
    {"captures",         "safetensors",     "inputs of its MoE blocks (capture_moe_x.py)"  },
    {"reduced",          "safetensors-dir", "the reduced checkpoint"                       },
    {"reduced-captures", "safetensors",     "inputs of the reduced checkpoint's MoE blocks"},
    {"expected",         "safetensors",     "what another stack computed from the two"     },
    {NULL,               NULL,              NULL                                           },
};

static const struct kg_section_param params[] = {
    {"synthetic-activations", "true: made-up activations stand in"},
    {0                      },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "dsv4-native",
    .summary = "DeepSeek-V4 experts on their NVFP4 and MXFP4 weights",
    .roles = roles,
    .plan = plan,
    .params = params,
};
