/*
 * dtype5: five weight types on the tensors of two models that serve them.
 *
 * The type is what a row gates; the tensor is a known carrier of it. Another revision of
 * the file may lack the tensor or store it as another type: then the smallest matrix of
 * the type takes its place.
 */
#include <string.h>

#include "plugins/matvec_cells.h"

struct row {
    const char *id;
    const char *role;
    const char *tensor;
    enum kg_type type;
    void (*run)(struct kg_cell *, const struct kg_weights *, int64_t m, uint64_t offset);
};

static const struct row rows[] = {
    {"nvfp4.stage-a",  "qwen35", "blk.0.ffn_gate.weight",       KG_TYPE_NVFP4,  kg_run_stage_a},
    {"nvfp4.stage-b",  "qwen35", "blk.0.ffn_gate.weight",       KG_TYPE_NVFP4,  kg_run_stage_b},
    {"q5_k.stage-a",   "qwen35", "blk.0.attn_gate.weight",      KG_TYPE_Q5_K,   kg_run_stage_a},
    {"q5_k.stage-b",   "qwen35", "blk.0.attn_gate.weight",      KG_TYPE_Q5_K,   kg_run_stage_b},
    {"iq3_s.stage-a",  "qwen36", "blk.0.ffn_gate_exps.weight",  KG_TYPE_IQ3_S,
     kg_run_stage_a                                                                           },
    {"iq4_xs.stage-a", "qwen36", "blk.0.ffn_down_exps.weight",  KG_TYPE_IQ4_XS,
     kg_run_stage_a                                                                           },
    {"iq4_xs.stage-b", "qwen36", "blk.0.ffn_down_exps.weight",  KG_TYPE_IQ4_XS,
     kg_run_stage_b                                                                           },
    {"q3_k.stage-a",   "qwen36", "blk.40.ffn_gate_exps.weight", KG_TYPE_Q3_K,
     kg_run_stage_a                                                                           },
    {"q3_k.stage-b",   "qwen36", "blk.40.ffn_gate_exps.weight", KG_TYPE_Q3_K,
     kg_run_stage_b                                                                           },
};

static bool is_weight_matrix(const struct kg_tensor *tensor)
{
    size_t length = strlen(tensor->name);

    return tensor->n_dims >= 2 && tensor->ne[1] > 1 && length >= 7 &&
           strcmp(tensor->name + length - 7, ".weight") == 0;
}

static const struct kg_tensor *carrier(struct kg_cell *cell, const struct row *row)
{
    const struct kg_artifact *artifact = kg_artifact(cell, row->role);
    const struct kg_tensor *pinned = kg_artifact_find(artifact, row->tensor);
    const struct kg_tensor *best = NULL;

    if (pinned && pinned->type == row->type)
        return pinned;
    for (size_t i = 0; i < kg_artifact_count(artifact); i++) {
        const struct kg_tensor *tensor = kg_artifact_at(artifact, i);
        if (tensor->type == row->type && is_weight_matrix(tensor) &&
            (!best || tensor->bytes < best->bytes))
            best = tensor;
    }
    if (!best)
        kg_skip(cell, "tensor-missing", "no %s weight in the file (%s pinned)",
                kg_type_name(row->type), row->tensor);
    kg_note(cell, "%s is %s here: %s takes its place", row->tensor,
            pinned ? kg_type_name(pinned->type) : "absent", best->name);
    return best;
}

static void run_row(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    struct kg_weights w = kg_weights_of(cell, carrier(cell, row));

    row->run(cell, &w, 2, 61);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_row, &rows[i], rows[i].role,
                                            KG_CELL_ORDERED},
                     "dtype5.%s", rows[i].id);
}

static const struct kg_role roles[] = {
    {"qwen35", "gguf", "a model with NVFP4 and Q5_K weights"        },
    {"qwen36", "gguf", "a model with IQ3_S, IQ4_XS and Q3_K weights"},
    {NULL,     NULL,   NULL                                         },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "dtype5",
    .summary = "NVFP4, Q5_K, IQ3_S, IQ4_XS and Q3_K on the weights of two models",
    .roles = roles,
    .plan = plan,
};
