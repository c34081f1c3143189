/*
 * q8mmq-gemm: the int8 GEMM on a model's Q8_0 projections, against the f64 product of the
 * unquantized activations (2e-2; 3e-3 to 6e-3 is usual on real weights) and of the codes.
 */
#include "plugins/gemm_cells.h"

struct row {
    const char *id, *tensor;
};

static const struct row rows[] = {
    {"attn_qkv",       "blk.0.attn_qkv.weight"      },
    {"ffn_gate_shexp", "blk.0.ffn_gate_shexp.weight"},
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
        kg_gemm_tensor(cell, "qwen36", row->row->tensor, KG_TYPE_Q8_0, row->m);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 53, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *y = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);

    kg_gemm_check_bound(&g, "bound", y, 1);
    kg_gemm_check_band(&g, "band", y, 2e-2);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
            struct cell_row *cell = kg_plan_alloc(p, sizeof *cell);
            *cell = (struct cell_row){&rows[i], tokens[t]};
            kg_plan_addf(p, &(struct kg_cell_spec){NULL, run, cell, "qwen36", 0},
                         "q8mmq-gemm.%s.t%d", rows[i].id, tokens[t]);
        }
}

static const struct kg_role roles[] = {
    {"qwen36", "gguf", "a model with Q8_0 projections"},
    {NULL,     NULL,   NULL                           },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "q8mmq-gemm",
    .summary = "the int8 tensor-core product on Q8_0 projections",
    .roles = roles,
    .plan = plan,
};
