/*
 * batched: several rows of activations that share one reading of the weights.
 *
 * One matrix of each of a model's types; and the law across batch, for every type.
 */
#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const enum kg_type model_types[] = {KG_TYPE_Q8_0, KG_TYPE_Q4_K, KG_TYPE_Q5_K,
                                           KG_TYPE_Q6_K};
static const int batches[][2] = {
    {2, 2},
    {3, 4},
    {4, 4},
    {5, 8},
    {6, 8},
    {8, 8},
    {5, 5},
    {6, 6},
    {7, 7},
};

struct cell_row {
    int type, m, width;
};

static void run_model(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    const struct kg_tensor *tensor =
        kg_mv_find(kg_artifact(cell, "model"), row->type, 256, 256, 4, 0);

    if (!tensor)
        kg_skip(cell, "tensor-missing", "no matrix of %s in the file",
                kg_type_name(row->type));
    struct kg_mv_tensor w = kg_mv_tensor(cell, "model", tensor->name);
    kg_mv_batched(cell, &w, KG_SCALE_NONE, KG_LAYOUT_FILE, row->m, row->width, 131);
}

static void run_law(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    int block = kg_type_info(row->type)->block;
    struct kg_mv_tensor w = kg_mv_made(cell, row->type, KG_SCALE_NONE,
                                       block == 256 ? 1280 : 33 * block, 35, 0);

    kg_mv_law(cell, &w, KG_SCALE_NONE, KG_LAYOUT_FILE);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(model_types); i++)
        for (size_t k = 0; k < COUNT(batches); k++) {
            struct cell_row *row = kg_plan_alloc(p, sizeof *row);
            *row = (struct cell_row){model_types[i], batches[k][0], batches[k][1]};
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run_model, row, "model",
                                                KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                         "batched.%s.m%d-w%d", kg_mv_type_id(row->type), row->m,
                         row->width);
        }
    for (size_t i = 0; i < kg_mv_n_types; i++) {
        struct cell_row *row = kg_plan_alloc(p, sizeof *row);
        row->type = kg_mv_types[i];
        kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_law, row, NULL, KG_CELL_ORDERED},
                     "batched.law.%s", kg_mv_type_id(row->type));
    }
}

static const struct kg_role roles[] = {
    {"model", "gguf", "any model: one matrix of each type is multiplied"},
    {NULL,    NULL,   NULL                                              },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "batched",
    .summary = "products of 2 to 16 rows of activations, bit for bit those of one row",
    .roles = roles,
    .plan = plan,
};
