/*
 * nvfp4-mmvq: the product of decoding on a model's NVFP4 weights.
 */
#include "plugins/mmvq_cells.h"

static const int batches[] = {1, 2};

static void run(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = kg_mv_tensor(cell, "nvfp4", "blk.0.ffn_gate.weight");

    if (w.type->type != KG_TYPE_NVFP4)
        kg_skip(cell, "not-applicable", "blk.0.ffn_gate.weight is %s here",
                kg_type_name(w.type->type));
    kg_mv_single(cell, &w, *(const int *)row, 111);
}

static void plan(struct kg_plan *p)
{
    for (int i = 0; i < 2; i++)
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run, &batches[i], "nvfp4", KG_CELL_ORDERED},
            "nvfp4-mmvq.ffn_gate.m%d", batches[i]);
}

static const struct kg_role roles[] = {
    {"nvfp4", "gguf", "a model with an NVFP4 ffn_gate"},
    {NULL,    NULL,   NULL                            },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "nvfp4-mmvq",
    .summary = "the matrix-vector product of decoding on NVFP4 weights",
    .roles = roles,
    .plan = plan,
};
