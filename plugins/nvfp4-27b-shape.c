/*
 * nvfp4-27b-shape: W4A4 on two shapes of a 27B model, K 17408 (17 * 1024) and 5120, against
 * dp4a for information (0.25 is where one would look closer) and against its own codes.
 */
#include "plugins/nvfp4_cells.h"

struct cell_row {
    const char *tensor;
    int m;
};

static const struct cell_row rows[] = {
    {"ffn_down", 16 },
    {"ffn_down", 512},
    {"ffn_gate", 16 },
    {"ffn_gate", 512},
};

static void run(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    const char *name =
        row->tensor[4] == 'd' ? "blk.0.ffn_down.weight" : "blk.0.ffn_gate.weight";
    struct kg_weights w = kg_gemm_tensor(cell, "qwen36", name, KG_TYPE_NVFP4, row->m);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *dp4a = kg_gemm_dp4a(&g);
    struct kg_e2m1 codes = kg_nvfp4_quantize(&g, "quantize", 2, NULL, NULL, 0);
    const float *y = kg_nvfp4_w4a4(&g, "w4a4", &codes, g.dw, NULL);
    double largest = 1e-3, error = 0;

    for (int64_t i = 0; i < w.out * row->m; i++) {
        double size = dp4a[i] < 0 ? -dp4a[i] : dp4a[i];
        double diff = y[i] < dp4a[i] ? dp4a[i] - y[i] : y[i] - dp4a[i];
        largest = size > largest ? size : largest;
        error = diff <= error ? error : diff;
    }
    kg_nvfp4_check_bound(&g, "bound", &codes, y);
    kg_info(cell, "dp4a", error / largest);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run, &rows[i], "qwen36",
                                            rows[i].m > 128 ? KG_CELL_OPTIONAL : 0},
                     "nvfp4-27b-shape.%s.t%d", rows[i].tensor, rows[i].m);
}

static const struct kg_role roles[] = {
    {"qwen36", "gguf", "a 27B model with NVFP4 feed-forward weights"},
    {NULL,     NULL,   NULL                                         },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "nvfp4-27b-shape",
    .summary = "W4A4 on the feed-forward shapes of a 27B model",
    .roles = roles,
    .plan = plan,
};
