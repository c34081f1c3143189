/*
 * nvfp4-batched: several rows of activations with a model's NVFP4 weights, one tensor
 * at a time, and gate and up of a feed-forward block in one launch, in both layouts.
 */
#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct cell_row {
    int m, width, layout;
};

static const struct cell_row batches[] = {
    {2, 2, 0},
    {3, 4, 0},
    {4, 4, 0},
    {5, 8, 0},
    {6, 8, 0},
    {8, 8, 0},
};

static struct kg_mv_tensor tensor(struct kg_cell *cell, const char *name)
{
    struct kg_mv_tensor w = kg_mv_tensor(cell, "nvfp4", name);

    if (w.type->type != KG_TYPE_NVFP4)
        kg_skip(cell, "not-applicable", "%s is %s here", name,
                kg_type_name(w.type->type));
    return w;
}

static void run_batched(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = tensor(cell, "blk.0.ffn_gate.weight");

    kg_mv_batched(cell, &w, KG_SCALE_NONE, KG_LAYOUT_FILE, row->m, row->width, 141);
}

static void run_dual(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w[2] = {tensor(cell, "blk.0.ffn_gate.weight"),
                                tensor(cell, "blk.0.ffn_up.weight")};

    if (w[0].in != w[1].in)
        kg_skip(cell, "not-applicable", "gate and up differ in width");
    kg_mv_fused(cell, w, 2, KG_SCALE_NONE, row->layout, row->m, 151);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(batches); i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_batched, &batches[i], "nvfp4",
                                            KG_CELL_ORDERED},
                     "nvfp4-batched.ffn_gate.m%d-w%d", batches[i].m, batches[i].width);
    for (int m = 2; m <= 7; m++)
        for (int layout = KG_LAYOUT_FILE; layout <= KG_LAYOUT_SPLIT; layout++) {
            struct cell_row *row = kg_plan_alloc(p, sizeof *row);
            *row = (struct cell_row){m, 0, layout};
            kg_plan_addf(
                p, &(struct kg_cell_spec){NULL, run_dual, row, "nvfp4", KG_CELL_ORDERED},
                "nvfp4-batched.dual%s.m%d", layout == KG_LAYOUT_SPLIT ? "-split" : "", m);
        }
}

static const struct kg_role roles[] = {
    {"nvfp4", "gguf", "a model with NVFP4 ffn_gate and ffn_up"},
    {NULL,    NULL,   NULL                                    },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "nvfp4-batched",
    .summary = "NVFP4 products of 2 to 8 rows of activations, and gate and up at once",
    .roles = roles,
    .plan = plan,
};
