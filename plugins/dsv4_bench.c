#include "plugins/dsv4_synthetic.h"

#include <string.h>

#include "plugins/dsv4_cells.h"

/* Columns of a product that are compared. */
enum { SAMPLED = 16 };

struct row {
    const char *id;
    int group, form;
    int64_t m, n, k;
};

static const struct row rows[] = {
    {"gemm.nvfp4.m8.2048x4096",         16, KG_DSV4_AUTO,    8,   2048, 4096},
    {"gemm.nvfp4.m8.4096x2048",         16, KG_DSV4_AUTO,    8,   4096, 2048},
    {"gemm.mxfp4.m8.2048x4096",         32, KG_DSV4_AUTO,    8,   2048, 4096},
    {"gemm.mxfp4.m8.4096x2048",         32, KG_DSV4_AUTO,    8,   4096, 2048},
    {"gemm.nvfp4.m1.2048x4096",         16, KG_DSV4_AUTO,    1,   2048, 4096},
    {"gemm.nvfp4.m8.3072x7168",         16, KG_DSV4_AUTO,    8,   3072, 7168},
    {"gemm.nvfp4.m8.7168x3072",         16, KG_DSV4_AUTO,    8,   7168, 3072},
    {"gemm.nvfp4.m64.2048x4096",        16, KG_DSV4_AUTO,    64,  2048, 4096},
    {"gemm.nvfp4.m512.2048x4096",       16, KG_DSV4_AUTO,    512, 2048, 4096},
    {"gemm.nvfp4.m512.4096x2048",       16, KG_DSV4_AUTO,    512, 4096, 2048},
    {"gemm.mxfp4.m512.2048x4096",       32, KG_DSV4_AUTO,    512, 2048, 4096},
    {"gemm.nvfp4.m512.3072x7168",       16, KG_DSV4_AUTO,    512, 3072, 7168},
    {"gemm.nvfp4.m32.rows8.2048x4096",  16, KG_DSV4_ROWS8,   32,  2048, 4096},
    {"gemm.nvfp4.m32.tiles.2048x4096",  16, KG_DSV4_TILES,   32,  2048, 4096},
    {"gemm.nvfp4.m512.rows8.2048x4096", 16, KG_DSV4_ROWS8,   512, 2048, 4096},
    {"gemm.nvfp4.m8.ordered.2048x4096", 16, KG_DSV4_ORDERED, 8,   2048, 4096},
};

static void only_on_a_gpu(struct kg_cell *cell)
{
    if (kg_device(cell)->cc_major == 0)
        kg_skip(cell, "device-unsupported", "too large for the emulated device");
}

/* The sampled columns: spread over all tiles, first and last among them. */
static int64_t column(const struct row *row, int i)
{
    return (row->n - 1) * i / (SAMPLED - 1);
}

static void run_gemm(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    size_t m = (size_t)row->m, n = (size_t)row->n, k = (size_t)row->k;
    size_t w_row = k / 2, ws_row = k / (size_t)row->group, scratch_bytes = 0;

    only_on_a_gpu(cell);
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, row->group, row->n, row->k, 11);
    struct kg_dsv4_weights few = {row->group, NULL, NULL, w.scale2, SAMPLED, row->k};
    struct kg_dsv4_act act =
        kg_dsv4_act_of(cell, kg_dsv4_bell(cell, row->m, row->k, 61), row->m, row->k);
    uint8_t *few_w = kg_alloc(cell, SAMPLED * w_row);
    uint8_t *few_ws = kg_alloc(cell, SAMPLED * ws_row);
    float *want = kg_alloc(cell, m * SAMPLED * 4),
          *seen = kg_alloc(cell, m * SAMPLED * 4);
    struct kg_buf *dc = kg_input(cell, "codes", act.codes, m * k);
    struct kg_buf *ds = kg_input(cell, "scales", act.scales, m * k / 32);
    struct kg_buf *dw = kg_input(cell, "w", w.w, n * w_row);
    struct kg_buf *dws = kg_input(cell, "ws", w.ws, n * ws_row);
    struct kg_buf *dy = kg_output(cell, "y", m * n * 4), *scratch = NULL;
    struct kg_cost cost = kg_dsv4_gemm_cost(&w, row->m);
    int kind = kg_dsv4_kind(&w);

    KG_OPS(cell, dsv4, gemm_scratch)
    (kind, row->form, row->m, row->n, row->k, &scratch_bytes);
    if (scratch_bytes > 0)
        scratch = kg_scratch(cell, "scratch", scratch_bytes);
    kg_param_i(cell, "m", row->m);
    KG_ARM(cell, "gemm", &cost,
           KG_OPS(cell, dsv4, gemm)(kind, row->form, kg_ptr(dc), kg_ptr(ds), kg_ptr(dw),
                                    kg_ptr(dws), w.scale2, kg_ptr(dy), row->m, row->n,
                                    row->k, kg_ptr(scratch), scratch_bytes,
                                    kg_stream(cell)));
    const float *got = kg_fetch(dy);
    for (int i = 0; i < SAMPLED; i++) {
        size_t o = (size_t)column(row, i);
        memcpy(few_w + (size_t)i * w_row, w.w + o * w_row, w_row);
        memcpy(few_ws + (size_t)i * ws_row, w.ws + o * ws_row, ws_row);
        for (size_t r = 0; r < m; r++)
            seen[r * SAMPLED + (size_t)i] = got[r * n + o];
    }
    few.w = few_w;
    few.ws = few_ws;
    kg_dsv4_must(cell, kg_oracle_dsv4_mirror(&few, act.codes, act.scales, want, row->m));
    kg_check_exact(cell, "bits", seen, want, m * SAMPLED, 4);
}

static void run_act_quant(struct kg_cell *cell, const void *row)
{
    (void)row;
    only_on_a_gpu(cell);
    struct kg_dsv4_act act =
        kg_dsv4_act_of(cell, kg_dsv4_bell(cell, 512, 4096, 61), 512, 4096);
    kg_dsv4_run_act_quant(cell, "x", &act);
}

static void run_swiglu(struct kg_cell *cell, const void *row)
{
    (void)row;
    only_on_a_gpu(cell);
    kg_dsv4_run_swiglu(cell, "swiglu", kg_pr(cell, 512 * 2048, 61, 15.0f),
                       kg_pr(cell, 512 * 2048, 67, 15.0f), 10, 512, 2048);
}

void kg_dsv4_plan_bench(struct kg_plan *plan)
{
    enum { FLAGS = KG_CELL_ORDERED | KG_CELL_OPTIONAL };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(plan, &(struct kg_cell_spec){NULL, run_gemm, &rows[i], NULL, FLAGS},
                     "dsv4-native.bench.%s", rows[i].id);
    kg_plan_add(plan, &(struct kg_cell_spec){"dsv4-native.bench.act-quant.512x4096",
                                             run_act_quant, NULL, NULL, FLAGS});
    kg_plan_add(plan, &(struct kg_cell_spec){"dsv4-native.bench.swiglu.512x2048",
                                             run_swiglu, NULL, NULL, FLAGS});
}
