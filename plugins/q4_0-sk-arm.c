/*
 * q4_0-sk-arm: tile and stream-K form, both forced, where K and N are no multiple of a tile
 * and the token count is odd. Timings never choose the form here, so that neither hides.
 */
#include <stdio.h>

#include "plugins/gemm_cells.h"

enum { WORKERS = 132 }; /* of the stream-K form: one a multiprocessor of an H200 */

static void run_forms(struct kg_cell *cell, struct kg_weights w, int m)
{
    const float *x = kg_pr(cell, (size_t)w.in * (size_t)m, 83, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, m, x);
    /* on the emulated device there are few tiles: few workers cut them all the same */
    int workers = kg_gemm_is_emulated(cell) ? 3 : WORKERS;
    const float *tile = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *cut = kg_gemm_int8(&g, "stream-k", g.dw, KG_GEMM_BLOCKS, workers);

    kg_gemm_check_bound(&g, "tile.bound", tile, 1);
    kg_gemm_check_bound(&g, "stream-k.bound", cut, workers);
    kg_gemm_check_band(&g, "tile.band", tile, 2e-2);
    kg_gemm_check_band(&g, "stream-k.band", cut, 2e-2);
}

/* 2112 -> 2560: d = 1, nibbles (31 block + 7 byte) mod 251. */
static void run_synthetic(struct kg_cell *cell, const void *m_)
{
    enum { IN = 2112, OUT = 2560, BLOCKS = IN / 32 * OUT };
    uint8_t *data = kg_alloc(cell, (size_t)BLOCKS * 18);

    for (size_t b = 0; b < BLOCKS; b++) {
        uint8_t *block = data + b * 18;
        block[1] = 0x3c;
        for (size_t k = 0; k < 16; k++)
            block[2 + k] = (uint8_t)((b * 31 + k * 7) % 251);
    }
    struct kg_weights w = {kg_oracle_type(KG_TYPE_Q4_0), data, IN, OUT};
    run_forms(cell, kg_gemm_fit(cell, w, *(const int *)m_), *(const int *)m_);
}

static const char *const tensors[] = {"attn_q",      "attn_k",   "attn_v",
                                      "attn_output", "ffn_gate", "ffn_down"};
static const int tokens[] = {103, 229, 479, 1024, 2048, 2151};
static const int synthetic_tokens[] = {103, 479};

struct cell_row {
    const char *tensor;
    int m;
};

static void run_tensor(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    char name[64];

    snprintf(name, sizeof name, "blk.0.%s.weight", row->tensor);
    run_forms(cell, kg_gemm_tensor(cell, "gemma", name, KG_TYPE_Q4_0, row->m), row->m);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < 2; i++)
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run_synthetic, &synthetic_tokens[i], NULL, 0},
            "q4_0-sk-arm.synthetic.2112x2560-t%d", synthetic_tokens[i]);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
            struct cell_row *cell = kg_plan_alloc(p, sizeof *cell);
            *cell = (struct cell_row){tensors[i], tokens[t]};
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run_tensor, cell, "gemma",
                                                tokens[t] > 229 ? KG_CELL_OPTIONAL : 0},
                         "q4_0-sk-arm.%s.t%d", tensors[i], tokens[t]);
        }
}

static const struct kg_role roles[] = {
    {"gemma", "gguf", "a model with Q4_0 projections and ragged sizes"},
    {NULL,    NULL,   NULL                                            },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "q4_0-sk-arm",
    .summary = "tile and stream-K form of the int8 product, forced, on ragged sizes",
    .roles = roles,
    .plan = plan,
};
