/*
 * q4_0-mmq: the int8 GEMM on a model's Q4_0 projections, in both layouts. The split planes
 * hold the same codes and scales, so they must give the same bits.
 */
#include "plugins/gemm_cells.h"

struct row {
    const char *id, *tensor;
};

static const struct row rows[] = {
    {"attn_q",   "blk.0.attn_q.weight"  },
    {"ffn_gate", "blk.0.ffn_gate.weight"},
};
static const int tokens[] = {16, 64, 128, 512};

struct cell_row {
    const struct row *row;
    int m;
};

static void run(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_weights w =
        kg_gemm_tensor(cell, "gemma", row->row->tensor, KG_TYPE_Q4_0, row->m);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 59, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *y = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *planes =
        kg_gemm_int8(&g, "planes", kg_gemm_planes(cell, &w), KG_GEMM_PLANES, 0);

    kg_gemm_check_bound(&g, "bound", y, 1);
    kg_gemm_check_band(&g, "band", y, 2e-2);
    kg_gemm_check_same(&g, "planes", planes, y);
}

/* Blocks that steal tiles by cluster launch control, from compute capability 10.0 on: the
   same tiles in another order, so the same bits. */
static void run_clc(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;

    if (kg_device(cell)->cc_major < 10)
        kg_skip(cell, "device-unsupported",
                "cluster launch control needs compute capability 10.0");
    struct kg_weights w =
        kg_gemm_tensor(cell, "gemma", row->row->tensor, KG_TYPE_Q4_0, row->m);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 59, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    struct kg_buf *dy =
        kg_output(cell, "y-clc", (size_t)(w.out * row->m) * sizeof(float));
    const float *y = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);

    KG_ARM(cell, "clc", NULL,
           KG_OPS(cell, gemm, int8_clc)(KG_TYPE_Q4_0, kg_ptr(g.dw), kg_ptr(g.dq),
                                        kg_ptr(g.dd), kg_ptr(g.ds), kg_ptr(dy), w.in,
                                        w.out, row->m, kg_stream(cell)));
    kg_gemm_check_same(&g, "clc", kg_fetch(dy), y);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
            struct cell_row *cell = kg_plan_alloc(p, sizeof *cell);
            *cell = (struct cell_row){&rows[i], tokens[t]};
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run, cell, "gemma",

                                                (tokens[t] > 128 ? KG_CELL_OPTIONAL : 0)},
                         "q4_0-mmq.%s.t%d", rows[i].id, tokens[t]);
            kg_plan_addf(
                p, &(struct kg_cell_spec){NULL, run_clc, cell, "gemma", KG_CELL_OPTIONAL},
                "q4_0-mmq.%s.clc.t%d", rows[i].id, tokens[t]);
        }
}

static const struct kg_role roles[] = {
    {"gemma", "gguf", "a model with Q4_0 projections"},
    {NULL,    NULL,   NULL                           },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "q4_0-mmq",
    .summary = "the int8 tensor-core product on Q4_0, blocks and split planes",
    .roles = roles,
    .plan = plan,
};
