/*
 * iq4xs-mmq: the int8 GEMM on IQ4_XS against dp4a, on made-up blocks and on a model's tensor.
 */
#include <string.h>

#include "plugins/gemm_cells.h"

static void run_weights(struct kg_cell *cell, struct kg_weights w, int m)
{
    const float *x = kg_pr(cell, (size_t)w.in * (size_t)m, 47, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, m, x);
    const float *tile = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *dp4a = kg_gemm_dp4a(&g);

    kg_gemm_check_bound(&g, "bound", tile, 1);
    kg_gemm_check_near(&g, "dp4a", tile, dp4a, 1e-3);
}

/* 512 -> 300: arbitrary bytes, block scales near 2^-4. */
static void run_synthetic(struct kg_cell *cell, const void *m_)
{
    enum { IN = 512, OUT = 300, BLOCKS = IN / 256, ROW = BLOCKS * 136 };
    uint8_t *data = kg_alloc(cell, OUT * ROW);

    for (size_t i = 0; i < OUT * ROW; i++) {
        float v = kg_pr_at(cell, i + 409) * 256.0f;
        data[i] = v > 0 ? (uint8_t)v : 0;
    }
    for (size_t r = 0; r < OUT; r++)
        for (size_t b = 0; b < BLOCKS; b++) {
            float v = kg_pr_at(cell, r * 7 + b + 3) * 512.0f;
            unsigned half = 0x2c00u + (v > 0 ? (unsigned)v : 0u);
            data[r * ROW + b * 136] = (uint8_t)half;
            data[r * ROW + b * 136 + 1] = (uint8_t)(half >> 8);
        }
    run_weights(cell, (struct kg_weights){kg_oracle_type(KG_TYPE_IQ4_XS), data, IN, OUT},
                *(const int *)m_);
}

/* The first matrix of the type whose rows are whole blocks and at least 128. */
static void run_tensor(struct kg_cell *cell, const void *m_)
{
    const struct kg_artifact *artifact = kg_artifact(cell, "kat");
    int m = *(const int *)m_;

    for (size_t i = 0; i < kg_artifact_count(artifact); i++) {
        const struct kg_tensor *t = kg_artifact_at(artifact, i);
        if (t->type == KG_TYPE_IQ4_XS && t->n_dims == 2 && t->ne[0] % 256 == 0 &&
            t->ne[1] >= 128) {
            run_weights(cell, kg_gemm_tensor(cell, "kat", t->name, KG_TYPE_IQ4_XS, m), m);
            return;
        }
    }
    kg_skip(cell, "tensor-missing", "no IQ4_XS matrix of 128 rows or more");
}

static const int tokens[] = {16, 64, 128, 512};

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_synthetic, &tokens[i], NULL,
                                            KG_CELL_ORDERED},
                     "iq4xs-mmq.synthetic.512x300-t%d", tokens[i]);
        kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_tensor, &tokens[i], "kat", 0},
                     "iq4xs-mmq.tensor.t%d", tokens[i]);
    }
}

static const struct kg_role roles[] = {
    {"kat", "gguf", "a model with IQ4_XS matrices"},
    {NULL,  NULL,   NULL                          },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "iq4xs-mmq",
    .summary = "the int8 tensor-core product on IQ4_XS against dp4a",
    .roles = roles,
    .plan = plan,
};
