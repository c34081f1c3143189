/*
 * a6-split-plane: NVFP4 in split planes, through every kernel that reads them.
 *
 * Three matrices of the model under test, or of the NVFP4 model if that one has none: the first
 * two of the file, and the first that is deep enough to be cut in k. Made-up NVFP4 and Q4_0
 * of ragged shapes beside them.
 */
#include "plugins/gemm_cells.h"
#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { FIRST, SECOND, DEEP, PICKS };
enum { DEEP_IN = 6144, GEMM_TOKENS = 128 };

static const char *const pick_ids[PICKS] = {"first", "second", "deep"};

struct cell_row {
    const char *role;   /* NULL: made up */
    const char *tensor; /* NULL: the file has no such */
    int type, pick, in, m;
};

static struct kg_mv_tensor weights(struct kg_cell *cell, const struct cell_row *row)
{
    if (!row->role)
        return kg_mv_made(cell, row->type, KG_SCALE_NONE, row->in, 35, 0);
    if (!row->tensor)
        kg_skip(cell, "tensor-missing", "no %s NVFP4 matrix in the file",
                pick_ids[row->pick]);
    return kg_mv_tensor(cell, row->role, row->tensor);
}

static void run_planes(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = weights(cell, row);

    kg_mv_rearrange(cell, &w);
}

static void run_mmvq(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = weights(cell, row);

    kg_mv_batched(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT, row->m, 1, 151);
}

/* Widths 2, 4, 5, 6, 7 and 8; three rows go as four. */
static void run_batched(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = weights(cell, row);

    kg_mv_batched(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT, row->m,
                  row->m < 5 ? kg_mv_tier(row->m) : row->m, 161);
}

static void run_ksplit(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = weights(cell, row);

    if (!row->role)
        w.scale = 0.77f;
    kg_mv_ksplit(cell, &w, row->m, row->m, 161);
}

static void run_dp4a(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = weights(cell, row);

    kg_mv_stage_b_split(cell, &w, row->m, 171);
}

static void run_gemm(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor tensor = weights(cell, row);
    struct kg_weights w = {tensor.type, tensor.data, tensor.in, tensor.out};
    const float *x = kg_pr(cell, (size_t)(w.in * GEMM_TOKENS), 181, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, GEMM_TOKENS, x);
    const float *blocks = kg_gemm_int8(&g, "blocks", g.dw, KG_GEMM_BLOCKS, 0);
    const float *planes =
        kg_gemm_int8(&g, "planes", kg_gemm_planes(cell, &w), KG_GEMM_PLANES, 0);

    kg_gemm_check_same(&g, "bits", planes, blocks);
    kg_gemm_check_bound(&g, "bound", planes, 1);
}

static void run_stage_a(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = weights(cell, row);

    kg_mv_stage_a_split(cell, &w, row->m, 191);
}

static void run_law(struct kg_cell *cell, const void *row)
{
    struct kg_mv_tensor w = weights(cell, row);

    kg_mv_law(cell, &w, KG_SCALE_NONE, KG_LAYOUT_SPLIT);
}

static const struct {
    const char *id;
    kg_cell_fn *run;
    int m;
    bool ksplit; /* of the deep matrix alone */
} cells[] = {
    {"planes",     run_planes,  1,           false},
    {"mmvq.m1",    run_mmvq,    1,           false},
    {"mmvq.m2",    run_mmvq,    2,           false},
    {"batched.m2", run_batched, 2,           false},
    {"batched.m3", run_batched, 3,           false},
    {"batched.m4", run_batched, 4,           false},
    {"batched.m5", run_batched, 5,           false},
    {"batched.m6", run_batched, 6,           false},
    {"batched.m7", run_batched, 7,           false},
    {"batched.m8", run_batched, 8,           false},
    {"ksplit.m2",  run_ksplit,  2,           true },
    {"ksplit.m4",  run_ksplit,  4,           true },
    {"ksplit.m7",  run_ksplit,  7,           true },
    {"ksplit.m8",  run_ksplit,  8,           true },
    {"dp4a.m1",    run_dp4a,    1,           false},
    {"dp4a.m5",    run_dp4a,    5,           false},
    {"gemm.t128",  run_gemm,    GEMM_TOKENS, false},
    {"stage-a",    run_stage_a, 1,           false},
};

static const struct {
    const char *id;
    kg_cell_fn *run;
    int m;
} made_cells[] = {
    {"planes",  run_planes,  1},
    {"law",     run_law,     1},
    {"ksplit",  run_ksplit,  5},
    {"dp4a",    run_dp4a,    5},
    {"stage-a", run_stage_a, 3},
};

/* The NVFP4 matrices of a file, as names. */
static void pick(const struct kg_artifact *artifact, const char *names[PICKS])
{
    const struct kg_tensor *t[PICKS] = {
        kg_mv_find(artifact, KG_TYPE_NVFP4, 64, 64, 1, 0),
        kg_mv_find(artifact, KG_TYPE_NVFP4, 64, 64, 1, 1),
        kg_mv_find(artifact, KG_TYPE_NVFP4, 512, DEEP_IN, 1, 0),
    };

    for (int i = 0; i < PICKS; i++)
        names[i] = t[i] ? t[i]->name : NULL;
}

static void plan_model(struct kg_plan *p)
{
    const char *role = "model", *names[PICKS] = {NULL};
    const struct kg_artifact *model = kg_plan_artifact(p, role);

    if (model)
        pick(model, names);
    if (!names[FIRST]) {
        role = "nvfp4";
        model = kg_plan_artifact(p, role);
        if (model)
            pick(model, names);
    }
    for (int i = 0; i < PICKS; i++)
        for (size_t k = 0; k < COUNT(cells); k++) {
            struct cell_row *row = kg_plan_alloc(p, sizeof *row);
            *row = (struct cell_row){
                .role = role, .tensor = names[i], .pick = i, .m = cells[k].m};
            if (cells[k].ksplit && i != DEEP)
                continue;
            kg_plan_addf(
                p, &(struct kg_cell_spec){NULL, cells[k].run, row, role, KG_CELL_ORDERED},
                "a6-split-plane.%s.%s", pick_ids[i], cells[k].id);
        }
}

static void plan_made(struct kg_plan *p, int type, int in)
{
    for (size_t k = 0; k < COUNT(made_cells); k++) {
        struct cell_row *row = kg_plan_alloc(p, sizeof *row);
        *row = (struct cell_row){.type = type, .in = in, .m = made_cells[k].m};
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, made_cells[k].run, row, NULL, KG_CELL_ORDERED},
            "a6-split-plane.made.%s.%d.%s", kg_mv_type_id(type), in, made_cells[k].id);
    }
}

/* Rows that start at multiples of 16 bytes in both planes: a stage of 4096 weights, and a part. */
static void plan_even(struct kg_plan *p, int type)
{
    struct cell_row *row = kg_plan_alloc(p, sizeof *row);

    *row = (struct cell_row){.type = type, .in = 4352, .m = 1};
    kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_law, row, NULL, KG_CELL_ORDERED},
                 "a6-split-plane.made.%s.%d.law", kg_mv_type_id(type), row->in);
}

static void plan(struct kg_plan *p)
{
    plan_model(p);
    plan_made(p, KG_TYPE_NVFP4, 64 * 33);
    plan_made(p, KG_TYPE_NVFP4, 64 * 15); /* a single part */
    plan_made(p, KG_TYPE_Q4_0, 32 * 33);
    plan_even(p, KG_TYPE_NVFP4);
    plan_even(p, KG_TYPE_Q4_0);
}

static const struct kg_role roles[] = {
    {"model", "gguf", "the model under test, if it has NVFP4 weights"},
    {"nvfp4", "gguf", "a model with NVFP4 weights, otherwise"        },
    {NULL,    NULL,   NULL                                           },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "a6-split-plane",
    .summary = "NVFP4 and Q4_0 in split planes, through every kernel that reads them",
    .roles = roles,
    .plan = plan,
};
