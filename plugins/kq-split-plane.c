/*
 * kq-split-plane: Q4_K and Q6_K in split planes, against their blocks as in the file.
 *
 * A model's first matrix of each type; and made-up ones of ragged shapes, which also go
 * through the forms with k in two parts and through stages A and B.
 */
#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const enum kg_type types[] = {KG_TYPE_Q4_K, KG_TYPE_Q6_K};
static const int batches[][2] = {
    {1,  1 },
    {2,  2 },
    {3,  4 },
    {4,  4 },
    {5,  8 },
    {8,  8 },
    {12, 16}, /* Q6_K alone */
};

struct cell_row {
    int type, m, width;
};

static struct kg_mv_tensor from_model(struct kg_cell *cell, int type)
{
    const struct kg_tensor *tensor =
        kg_mv_find(kg_artifact(cell, "model"), type, 256, 256, 4, 0);

    if (!tensor)
        kg_skip(cell, "tensor-missing", "no matrix of %s in the file",
                kg_type_name(type));
    return kg_mv_tensor(cell, "model", tensor->name);
}

static void run_model(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = from_model(cell, row->type);

    kg_mv_batched(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT, row->m, row->width,
                  row->m == 1 ? 151 : 161);
}

static void run_model_planes(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = from_model(cell, row->type);

    kg_mv_rearrange(cell, &w);
}

static struct kg_mv_tensor made(struct kg_cell *cell, const struct cell_row *row)
{
    return kg_mv_made(cell, row->type, KG_SCALE_NONE, 2304, 35, 0);
}

static void run_planes(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = made(cell, row);

    kg_mv_rearrange(cell, &w);
}

static void run_law(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = kg_mv_made(cell, row->type, KG_SCALE_NONE, 1280, 35, 0);

    kg_mv_law(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT);
}

/* Rows that start at multiples of 16 bytes in all planes: a stage of 4096 weights, and a part. */
static void run_law_even(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = kg_mv_made(cell, row->type, KG_SCALE_NONE, 6144, 35, 0);

    kg_mv_law(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT);
}

static void run_batched(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = made(cell, row);

    kg_mv_batched(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT, 5, 8, 161);
}

static void run_ksplit(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = made(cell, row);

    w.scale = 1.31f;
    kg_mv_ksplit(cell, &w, 5, 8, 161);
}

static void run_stage_a(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = made(cell, row);

    kg_mv_stage_a_split(cell, &w, 3, 191);
}

static void run_stage_b(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = made(cell, row);

    kg_mv_stage_b_split(cell, &w, 5, 171);
}

static const struct {
    const char *id;
    kg_cell_fn *run;
} made_cells[] = {
    {"planes",   run_planes  },
    {"law",      run_law     },
    {"law-even", run_law_even},
    {"batched",  run_batched },
    {"ksplit",   run_ksplit  },
    {"stage-a",  run_stage_a },
    {"stage-b",  run_stage_b },
};

static void plan_type(struct kg_plan *p, int type)
{
    const char *id = kg_mv_type_id(type);
    uint32_t model_flags = KG_CELL_ORDERED | KG_CELL_OPTIONAL;
    struct cell_row *of_type = kg_plan_alloc(p, sizeof *of_type);

    of_type->type = type;
    kg_plan_addf(
        p, &(struct kg_cell_spec){NULL, run_model_planes, of_type, "model", model_flags},
        "kq-split-plane.%s.planes", id);
    for (size_t k = 0; k < COUNT(batches); k++) {
        struct cell_row *row = kg_plan_alloc(p, sizeof *row);
        *row = (struct cell_row){type, batches[k][0], batches[k][1]};
        if (row->width > 8 && type != KG_TYPE_Q6_K)
            continue;
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_model, row, "model", model_flags},
                     "kq-split-plane.%s.m%d-w%d", id, row->m, row->width);
    }
    for (size_t k = 0; k < COUNT(made_cells); k++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, made_cells[k].run, of_type, NULL,
                                            KG_CELL_ORDERED},
                     "kq-split-plane.made.%s.%s", id, made_cells[k].id);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(types); i++)
        plan_type(p, types[i]);
}

static const struct kg_role roles[] = {
    {"model", "gguf", "any model: its first Q4_K and Q6_K matrices are rearranged"},
    {NULL,    NULL,   NULL                                                        },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "kq-split-plane",
    .summary = "Q4_K and Q6_K in split planes, bit for bit as in the file's blocks",
    .roles = roles,
    .plan = plan,
};
