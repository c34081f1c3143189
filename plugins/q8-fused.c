/*
 * q8-fused: several tensors that read the same activations, in one launch.
 *
 * Pairs and the triple of a model that has them in Q8_0, or whatever type they have in common; and
 * for every type two and three tensors of unequal rows, each with its own scale.
 */
#include <string.h>

#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct set {
    const char *id, *names[KG_MMVQ_TENSORS]; /* up to the first NULL */
};

static const struct set sets[] = {
    {"qkv-gate", {"blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", NULL}            },
    {"shexp",    {"blk.0.ffn_gate_shexp.weight", "blk.0.ffn_up_shexp.weight", NULL}   },
    {"ssm",      {"blk.0.ssm_beta.weight", "blk.0.ssm_alpha.weight", NULL}            },
    {"q-k-v",    {"blk.3.attn_q.weight", "blk.3.attn_k.weight", "blk.3.attn_v.weight"}},
};
static const int batches[] = {1, 2, 3, 4, 5, 8};

struct cell_row {
    const struct set *set;
    int type, n, m;
};

static void run_set(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w[KG_MMVQ_TENSORS];
    int n = 0;

    for (; n < KG_MMVQ_TENSORS && row->set->names[n]; n++) {
        w[n] = kg_mv_tensor(cell, "model", row->set->names[n]);
        if (w[n].type != w[0].type || w[n].in != w[0].in)
            kg_skip(cell, "not-applicable", "%s and %s differ in type or width",
                    row->set->names[0], row->set->names[n]);
    }
    kg_mv_fused(cell, w, n, KG_SCALE_NONE, KG_LAYOUT_FILE, row->m,
                row->m == 1 ? 131 : 151 + (uint64_t)row->m);
}

/* Tiles of one tensor end inside it, and one tensor is less than a tile. */
static void run_made(struct kg_cell *cell, const void *row_)
{
    static const float scales[] = {1.31f, 0.77f, -0.5f};
    static const int outs[] = {35, 3, 33};
    const struct cell_row *row = row_;
    int block = kg_type_info(row->type)->block;
    struct kg_mv_tensor w[KG_MMVQ_TENSORS];

    for (int i = 0; i < row->n; i++) {
        w[i] = kg_mv_made(cell, row->type, KG_SCALE_NONE,
                          block == 256 ? 1280 : 33 * block, outs[i], i);
        w[i].scale = scales[i];
    }
    kg_mv_fused(cell, w, row->n, KG_SCALE_NONE, KG_LAYOUT_FILE, row->m, 137);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(sets); i++)
        for (size_t k = 0; k < COUNT(batches); k++) {
            struct cell_row *row = kg_plan_alloc(p, sizeof *row);
            *row = (struct cell_row){.set = &sets[i], .m = batches[k]};
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run_set, row, "model",
                                                KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                         "q8-fused.%s.m%d", sets[i].id, row->m);
        }
    for (size_t i = 0; i < kg_mv_n_types; i++)
        for (int n = 2; n <= 3; n++)
            for (size_t k = 0; k < COUNT(batches); k++) {
                struct cell_row *row = kg_plan_alloc(p, sizeof *row);
                *row = (struct cell_row){.type = kg_mv_types[i], .n = n, .m = batches[k]};
                /* every batch of Q8_0, two of each other type */
                if (row->type != KG_TYPE_Q8_0 && row->m != 1 && row->m != 5)
                    continue;
                kg_plan_addf(
                    p, &(struct kg_cell_spec){NULL, run_made, row, NULL, KG_CELL_ORDERED},
                    "q8-fused.made.%s.fused%d.m%d", kg_mv_type_id(row->type), n, row->m);
            }
}

static const struct kg_role roles[] = {
    {"model", "gguf", "any model: pairs and triples of Q8_0 tensors are multiplied"},
    {NULL,    NULL,   NULL                                                         },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "q8-fused",
    .summary = "two and three tensors in one launch, against each alone",
    .roles = roles,
    .plan = plan,
};
