/*
 * f16g-kq-direct: grouped products straight from quantized blocks, in every form, against
 * the same product of a copy of the weights in f16: to the bit. The copy is compared with
 * the oracle's weights, its product with the f64 one.
 */
#include <stdio.h>
#include <string.h>

#include "plugins/grouped_bench.h"

struct row {
    const char *id;
    enum kg_type type;
    const char *role;   /* NULL: made up */
    const char *tensor; /* with %d for the layer; the first one of the type */
    int32_t in, out;
};

static const struct row rows[] = {
    {"q4_k",             KG_TYPE_Q4_K,   NULL,     NULL,                          512, 300},
    {"q6_k",             KG_TYPE_Q6_K,   NULL,     NULL,                          512, 300},
    {"iq4_xs",           KG_TYPE_IQ4_XS, NULL,     NULL,                          512, 300},
    {"iq3_s",            KG_TYPE_IQ3_S,  NULL,     NULL,                          512, 300},
    {"gate_exps.q4_k",   KG_TYPE_Q4_K,   "ornith", "blk.%d.ffn_gate_exps.weight", 0,   0  },
    {"down_exps.q6_k",   KG_TYPE_Q6_K,   "ornith", "blk.%d.ffn_down_exps.weight", 0,   0  },
    {"gate_exps.iq3_s",  KG_TYPE_IQ3_S,  "qwen36", "blk.%d.ffn_gate_exps.weight", 0,   0  },
    {"down_exps.iq4_xs", KG_TYPE_IQ4_XS, "qwen36", "blk.%d.ffn_down_exps.weight", 0,   0  },
};

static const int32_t made_sizes[] = {1, 3, 17, 33, 64, 129, 200, 300};
static const int32_t real_sizes[] = {5, 33, 64, 80, 129, 17};
enum { N_MADE = 8, N_REAL = 6, LAYERS = 64 };

static const struct kg_tensor *carrier(struct kg_cell *cell, const struct row *row)
{
    const struct kg_artifact *artifact = kg_artifact(cell, row->role);

    for (int layer = 0; layer < LAYERS; layer++) {
        char name[64];
        snprintf(name, sizeof name, row->tensor, layer);
        const struct kg_tensor *t = kg_artifact_find(artifact, name);
        if (t && t->type == row->type && t->n_dims == 3) {
            kg_param_s(cell, "tensor", t->name);
            if (t->ne[0] % 256 != 0 || t->ne[2] < N_REAL)
                kg_skip(cell, "not-applicable", "%s: %lld wide, %lld experts", t->name,
                        (long long)t->ne[0], (long long)t->ne[2]);
            return t;
        }
    }
    kg_skip(cell, "tensor-missing", "no %s of type %s", row->tensor,
            kg_type_name(row->type));
}

/* What the copy in f16 must hold: group g's expert, rounded. */
static uint16_t *rounded(struct kg_cell *cell, const struct kg_oracle_type *type,
                         const uint8_t *blocks, size_t expert_bytes,
                         const struct kg_groups *g)
{
    size_t n = (size_t)(g->in * g->out);
    uint16_t *halves = kg_alloc(cell, (size_t)g->groups * n * sizeof *halves);
    float *values = kg_alloc(cell, n * sizeof *values);

    for (int64_t i = 0; i < g->groups; i++) {
        int64_t expert = g->experts ? g->experts[i] : i;
        kg_oracle_dequantize(type, blocks + (size_t)expert * expert_bytes, values,
                             (int64_t)n);
        for (size_t k = 0; k < n; k++)
            halves[(size_t)i * n + k] = kg_oracle_to_half(values[k]);
    }
    return halves;
}

/* The visitor's forms from the blocks against the scan form from the copy; with `sm90`, the
   wgmma form of each. */
static void compare(struct kg_cell *cell, bool sm90, const struct kg_oracle_type *type,
                    const uint8_t *blocks, size_t expert_bytes, struct kg_groups *g)
{
    size_t n_w = (size_t)(g->groups * g->in * g->out), n_y = (size_t)(g->pairs * g->out);
    struct kg_groups direct = *g; /* of the copy: its experts lie in the groups' order */
    direct.experts = NULL;
    struct kg_cost cost = kg_grouped_cost(g, (double)expert_bytes);
    struct kg_cost copied = kg_grouped_cost(g, (double)(g->in * g->out) * 2);
    struct kg_cost unpack = {(double)g->groups *
                                 ((double)expert_bytes + 2 * (double)(g->in * g->out)),
                             2 * (double)n_w, "f32"};
    double *want = kg_alloc(cell, n_y * sizeof *want);
    double *bound = kg_alloc(cell, n_y * sizeof *bound);

    kg_param_s(cell, "type", kg_type_name(type->type));
    for (int64_t p = 0; p < g->pairs; p++)
        g->scale[p] = 0.5f + kg_pr_at(cell, (uint64_t)p + 733);
    for (int64_t i = 0; i < g->n_rows * g->in; i++)
        g->x[i] = (uint16_t)((0x2c00 + (kg_pr_at(cell, (uint64_t)i + 619) + 1) * 2047)) |
                  (uint16_t)((i & 1) << 15);

    struct kg_group_bufs bufs = kg_groups_upload(cell, g);
    struct kg_buf *dblocks =
        kg_input(cell, "w", blocks, (size_t)g->n_experts * expert_bytes);
    struct kg_buf *dcopy = kg_output(cell, "copy", n_w * 2);
    struct kg_buf *dy = kg_output(cell, "y", n_y * sizeof(float));
    int64_t stride = (int64_t)expert_bytes;

    KG_ARM(cell, "copy", &unpack, ({
               struct kg_grouped p = kg_grouped_now(g, &bufs, stride);
               KG_OPS(cell, grouped, dequantize_f16)
               (&p, type->type, kg_ptr(dblocks), kg_ptr(dcopy), kg_stream(cell));
           }));
    const uint16_t *copy = kg_fetch(dcopy);
    kg_check_exact(cell, "copy", copy, rounded(cell, type, blocks, expert_bytes, g), n_w,
                   2);

    struct kg_buf *dw = kg_input(cell, "copy-in", copy, n_w * 2);
    struct kg_group_bufs plain = bufs;
    plain.experts = NULL;
    KG_ARM(cell, "copied", &copied, ({
               struct kg_grouped p = kg_grouped_now(&direct, &plain, g->in * g->out * 2);
               KG_OPS(cell, grouped, gemm_f16)
               (&p, &(struct kg_grouped_form){0}, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy),
                kg_stream(cell));
           }));
    const float *y = kg_fetch(dy);
    kg_oracle_grouped_all(&(struct kg_oracle_grouped){.groups = g->groups,
                                                      .in = g->in,
                                                      .out = g->out,
                                                      .expert_stride = g->in * g->out,
                                                      .offsets = g->offsets,
                                                      .scale = g->scale,
                                                      .w = copy,
                                                      .x = g->x},
                          want, bound);
    kg_check_bound(cell, "bound", y, want, bound, n_y);
    if (sm90) {
        kg_reset(dy);
        KG_ARM(cell, "sm90", &cost, ({
                   struct kg_grouped p = kg_grouped_now(g, &bufs, stride);
                   KG_OPS(cell, grouped, sm90_gemm_quant)
                   (&p, type->type, kg_ptr(dblocks), kg_ptr(bufs.x), kg_ptr(dy),
                    kg_stream(cell));
               }));
        kg_check_exact(cell, "sm90", kg_fetch(dy), y, n_y, 4);
        return;
    }
    for (size_t i = 0; i < kg_n_visitor_forms; i++) {
        const struct kg_named_form *f = &kg_visitor_forms[i];
        kg_reset(dy);
        KG_ARM(cell, f->name, &cost, ({
                   struct kg_grouped p = kg_grouped_now(g, &bufs, stride);
                   KG_OPS(cell, grouped, gemm_quant)
                   (&p, &f->form, type->type, kg_ptr(dblocks), kg_ptr(bufs.x), kg_ptr(dy),
                    kg_stream(cell));
               }));
        kg_check_exact(cell, f->name, kg_fetch(dy), y, n_y, 4);
    }
}

static void run_synthetic(struct kg_cell *cell, const struct row *row, bool sm90)
{
    const struct kg_oracle_type *type = kg_oracle_type(row->type);
    struct kg_groups g = kg_groups_made(cell, made_sizes, N_MADE, row->in, row->out);
    size_t used = (size_t)row->out * kg_row_bytes(row->type, row->in);
    size_t expert_bytes = (used + 15) / 16 * 16 + 48; /* room between them */
    uint8_t *blocks = kg_alloc(cell, N_MADE * expert_bytes);

    for (int i = 0; i < N_MADE; i++)
        kg_make_blocks(cell, type, blocks + (size_t)i * expert_bytes, used,
                       313 + (uint64_t)i * used);
    g.experts = kg_alloc(cell, N_MADE * sizeof *g.experts);
    for (int i = 0; i < N_MADE; i++)
        g.experts[i] = N_MADE - 1 - i;
    compare(cell, sm90, type, blocks, expert_bytes, &g);
}

static void run_made(struct kg_cell *cell, const void *row)
{
    run_synthetic(cell, row, false);
}

static void run_made_sm90(struct kg_cell *cell, const void *row)
{
    if (kg_device(cell)->cc_major == 0)
        kg_skip(cell, "device-unsupported", "wgmma");
    run_synthetic(cell, row, true);
}

static void run_real(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    const struct kg_tensor *t = carrier(cell, row);
    struct kg_groups g = kg_groups_made(cell, real_sizes, N_REAL, t->ne[0], t->ne[1]);
    size_t expert_bytes = (size_t)t->ne[1] * kg_row_bytes(row->type, t->ne[0]);

    if (expert_bytes % 16 != 0)
        kg_skip(cell, "not-applicable", "%s: an expert is %zu bytes, no multiple of 16",
                t->name, expert_bytes);
    compare(cell, false, kg_oracle_type(row->type), t->data, expert_bytes, &g);
}

/* Straight from the blocks, and by way of a copy in f16 that is made each time. */
static void run_bench(struct kg_cell *cell, const void *shape)
{
    const struct kg_oracle_type *type = kg_oracle_type(KG_TYPE_Q4_K);
    struct kg_groups g = kg_bench_groups(cell, shape);
    size_t expert_bytes, n_y = (size_t)(g.pairs * g.out);
    const void *blocks = kg_bench_weights(cell, &g, type, &expert_bytes);
    struct kg_cost cost = kg_grouped_cost(&g, (double)expert_bytes);
    struct kg_group_bufs bufs = kg_groups_upload(cell, &g);
    size_t copy_bytes = (size_t)(g.n_experts * g.in * g.out) * 2;
    struct kg_buf *dw = kg_input(cell, "w", blocks, (size_t)g.n_experts * expert_bytes);
    struct kg_buf *dcopy = kg_scratch(cell, "copy", copy_bytes);
    struct kg_buf *dy = kg_output(cell, "y", n_y * sizeof(float));

    KG_ARM(cell, "copied", &cost, ({
               struct kg_grouped p = kg_grouped_now(&g, &bufs, (int64_t)expert_bytes);
               struct kg_grouped q = kg_grouped_now(&g, &bufs, g.in * g.out * 2);
               KG_SEQ(KG_OPS(cell, grouped, dequantize_f16)(
                          &p, type->type, kg_ptr(dw), kg_ptr(dcopy), kg_stream(cell)),
                      KG_OPS(cell, grouped, gemm_f16)(&q, &kg_bench_form, kg_ptr(dcopy),
                                                      kg_ptr(bufs.x), kg_ptr(dy),
                                                      kg_stream(cell)));
           }));
    const float *copied = kg_fetch(dy);
    kg_bench_check(cell, &g, type, blocks, expert_bytes, copied);
    kg_reset(dy);
    KG_ARM(cell, "direct", &cost, ({
               struct kg_grouped p = kg_grouped_now(&g, &bufs, (int64_t)expert_bytes);
               KG_OPS(cell, grouped, gemm_quant)
               (&p, &kg_bench_form, type->type, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy),
                kg_stream(cell));
           }));
    kg_check_exact(cell, "direct", kg_fetch(dy), copied, n_y, 4);
}

static void run_bench_sm90(struct kg_cell *cell, const void *shape)
{
    const struct kg_oracle_type *type = kg_oracle_type(KG_TYPE_Q4_K);
    struct kg_groups g = kg_bench_groups(cell, shape);
    size_t expert_bytes;
    const void *blocks = kg_bench_weights(cell, &g, type, &expert_bytes);
    struct kg_cost cost = kg_grouped_cost(&g, (double)expert_bytes);
    struct kg_group_bufs bufs = kg_groups_upload(cell, &g);
    struct kg_buf *dw = kg_input(cell, "w", blocks, (size_t)g.n_experts * expert_bytes);
    struct kg_buf *dy = kg_output(cell, "y", (size_t)(g.pairs * g.out) * sizeof(float));

    KG_ARM(cell, "sm90", &cost, ({
               struct kg_grouped p = kg_grouped_now(&g, &bufs, (int64_t)expert_bytes);
               KG_OPS(cell, grouped, sm90_gemm_quant)
               (&p, type->type, kg_ptr(dw), kg_ptr(bufs.x), kg_ptr(dy), kg_stream(cell));
           }));
    kg_bench_check(cell, &g, type, blocks, expert_bytes, kg_fetch(dy));
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, rows[i].role ? run_real : run_made,
                                            &rows[i], rows[i].role, 0},
                     "f16g-kq-direct.%s", rows[i].id);
    kg_plan_add(p, &(struct kg_cell_spec){"f16g-kq-direct.q4_k.sm90", run_made_sm90,
                                          &rows[0], NULL, KG_CELL_OPTIONAL});
    for (size_t i = 0; i < 2; i++) {
        const struct kg_bench_shape *shape = &kg_bench_shapes[i];
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run_bench, shape, NULL, KG_CELL_OPTIONAL},
            "f16g-kq-direct.bench.q4_k.%s", shape->id);
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run_bench_sm90, shape, NULL, KG_CELL_OPTIONAL},
            "f16g-kq-direct.bench.q4_k.%s.sm90", shape->id);
    }
}

static const struct kg_role roles[] = {
    {"ornith", "gguf", "a model with experts of Q4_K and Q6_K"   },
    {"qwen36", "gguf", "a model with experts of IQ3_S and IQ4_XS"},
    {NULL,     NULL,   NULL                                      },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "f16g-kq-direct",
    .summary = "grouped products straight from quantized blocks, against a copy in f16",
    .roles = roles,
    .plan = plan,
};
