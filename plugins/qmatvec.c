/*
 * qmatvec: quantized matrix-vector products on the tensors of any model.
 *
 * Not every model has every pinned tensor, and a tensor's type differs between files: the
 * cells are optional, and take whatever type they find as long as the oracle knows it.
 */
#include <string.h>

#include "plugins/matvec_cells.h"

struct row {
    const char *id;
    const char *tensor;
    void (*run)(struct kg_cell *, const struct kg_weights *, int64_t m, uint64_t offset);
    uint64_t offset; /* of the pinned vector */
};

static const struct row rows[] = {
    {"blk.0.ffn_gate.stage-a", "blk.0.ffn_gate.weight", kg_run_stage_a, 31},
    {"blk.0.attn_qkv.stage-a", "blk.0.attn_qkv.weight", kg_run_stage_a, 31},
    {"blk.3.attn_q.stage-a",   "blk.3.attn_q.weight",   kg_run_stage_a, 31},
    {"blk.0.attn_v.stage-a",   "blk.0.attn_v.weight",   kg_run_stage_a, 31},
    {"output.stage-a",         "output.weight",         kg_run_stage_a, 31},
    {"token_embd.stage-a",     "token_embd.weight",     kg_run_stage_a, 31},
    {"blk.0.ffn_gate.stage-b", "blk.0.ffn_gate.weight", kg_run_stage_b, 41},
    {"blk.0.attn_qkv.stage-b", "blk.0.attn_qkv.weight", kg_run_stage_b, 41},
    {"blk.3.attn_q.stage-b",   "blk.3.attn_q.weight",   kg_run_stage_b, 41},
    {"blk.0.attn_q.stage-b",   "blk.0.attn_q.weight",   kg_run_stage_b, 51},
    {"blk.0.attn_v.stage-b",   "blk.0.attn_v.weight",   kg_run_stage_b, 51},
    {"output.stage-b",         "output.weight",         kg_run_stage_b, 51},
    {"token_embd.stage-b",     "token_embd.weight",     kg_run_stage_b, 51},
};

static void run_tensor(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    struct kg_weights w = kg_weights_of(cell, kg_tensor(cell, "model", row->tensor));

    row->run(cell, &w, 2, row->offset);
}

/* Q2_K blocks whose scales, minima and codes all differ between rows and groups, with
   nothing random about them: 7 rows of one block, d = 2^-4, dmin = 2^-5. */
static void run_q2_k(struct kg_cell *cell, const void *row_)
{
    enum { OUT = 7, BYTES = 84 };
    uint8_t *raw = kg_alloc(cell, OUT * BYTES);
    struct kg_weights w = {kg_oracle_type(KG_TYPE_Q2_K), raw, 256, OUT};

    (void)row_;
    for (int r = 0; r < OUT; r++) {
        uint8_t *block = raw + r * BYTES;
        for (int g = 0; g < 16; g++)
            block[g] =
                (uint8_t)((1 + (3 * r + 5 * g) % 15) | (1 + (7 * r + 2 * g) % 15) << 4);
        for (int i = 0; i < 64; i++)
            block[16 + i] = (uint8_t)(41 * r + 17 * i + 13);
        memcpy(block + 80, (uint8_t[]){0x00, 0x2c, 0x00, 0x28}, 4);
    }
    kg_run_stage_a(cell, &w, 3, 79);
}

static void plan(struct kg_plan *p)
{
    kg_plan_add(p, &(struct kg_cell_spec){"qmatvec.q2_k-synthetic.stage-a", run_q2_k,
                                          NULL, NULL, KG_CELL_ORDERED});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_tensor, &rows[i], "model",
                                            KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                     "qmatvec.%s", rows[i].id);
}

static const struct kg_role roles[] = {
    {"model", "gguf", "any model: its pinned tensors are multiplied"},
    {NULL,    NULL,   NULL                                          },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "qmatvec",
    .summary = "quantized matrix-vector products, stages A and B, on a model's tensors",
    .roles = roles,
    .plan = plan,
};
