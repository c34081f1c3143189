/*
 * fast-router-batch: the router's product, one token at a time and in a batch. Both must
 * give a token the same bits, whatever the number of tokens.
 */
#include <stdio.h>
#include <string.h>

#include "kgate/check.h"
#include "plugins/oracle/oracle.h"

static const int32_t points[] = {
    1,  2,  3,   4,   5,   7,   8,   9,   15,  16,  17,  31,   32,   33,   63,   64,
    65, 75, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048};
enum {
    N_POINTS = sizeof points / sizeof points[0],
    MOST = 2048,
    CHECKED = 64,     /* tokens that the oracle evaluates */
    EMU_EXPERTS = 10, /* on the emulated device; not a multiple of the tile's 4 */
};

struct router {
    int64_t in, experts;
    const float *w, *x;
    struct kg_buf *dw, *dx, *dy;
};

static struct kg_cost cost_of(const struct router *r, int64_t m)
{
    return (struct kg_cost){
        .bytes = 4.0 * (double)(r->in * r->experts + m * (r->in + r->experts)),
        .ops = 2.0 * (double)r->in * (double)r->experts * (double)m,
        .engine = "f32",
    };
}

static const float *product(struct kg_cell *cell, const struct router *r, int64_t m,
                            bool batch)
{
    char arm[32];
    struct kg_cost cost = cost_of(r, m);

    snprintf(arm, sizeof arm, "%s-m%d", batch ? "batch" : "plain", (int)m);
    kg_reset(r->dy);
    if (batch)
        KG_ARM(cell, arm, &cost,
               KG_OPS(cell, router, matvec_batch)(kg_ptr(r->dw), kg_ptr(r->dx),
                                                  kg_ptr(r->dy), r->in, r->experts, m,
                                                  kg_stream(cell)));
    else
        KG_ARM(cell, arm, &cost,
               KG_OPS(cell, router, matvec)(kg_ptr(r->dw), kg_ptr(r->dx), kg_ptr(r->dy),
                                            r->in, r->experts, m, kg_stream(cell)));
    return kg_fetch(r->dy);
}

/* Against f64, within what the partial sums allow: a lane takes 4 elements at a time. */
static void check_oracle(struct kg_cell *cell, const struct router *r, const float *y,
                         int64_t m)
{
    const struct kg_oracle_type *f32 = kg_oracle_type(KG_TYPE_F32);
    size_t n = (size_t)(m * r->experts);
    double *want = kg_alloc(cell, n * sizeof *want);
    double *bound = kg_alloc(cell, n * sizeof *bound);

    if (kg_oracle_linear_f32(f32, r->w, r->x, want, NULL, r->in, r->experts, m) != 0 ||
        kg_oracle_chain_bound(f32, r->w, r->x, bound, r->in, r->experts, m, 4) != 0)
        kg_error(cell, "the oracle ran out of memory");
    kg_check_bound(cell, "bound", y, want, bound, n);
}

static void compare(struct kg_cell *cell, struct router *r, const int32_t *m, int n)
{
    int64_t most = m[n - 1];
    size_t row = (size_t)r->experts;
    char name[48];

    kg_param_i(cell, "in", r->in);
    kg_param_i(cell, "experts", r->experts);
    kg_param_i(cell, "tokens", most);
    r->dw = kg_input(cell, "w", r->w, (size_t)(r->in * r->experts) * 4);
    r->dx = kg_input(cell, "x", r->x, (size_t)(r->in * most) * 4);
    r->dy = kg_output(cell, "y", (size_t)(r->experts * most) * 4);

    const float *all = product(cell, r, most, false);
    check_oracle(cell, r, all, most < CHECKED ? most : CHECKED);
    for (int i = 0; i < n; i++) {
        const float *plain = i == n - 1 ? all : product(cell, r, m[i], false);
        const float *batch = product(cell, r, m[i], true);
        size_t count = (size_t)m[i] * row;
        snprintf(name, sizeof name, "m%d.twin", (int)m[i]);
        kg_check_exact(cell, name, batch, plain, count, 4);
        if (i == n - 1)
            break; /* the same comparison */
        snprintf(name, sizeof name, "m%d.prefix", (int)m[i]);
        kg_check_exact(cell, name, batch, all, count, 4);
    }
}

static void run_made(struct kg_cell *cell, const void *row)
{
    static const int32_t few[] = {1, 3, 4, 5, 33};
    struct router r = {.in = 388, .experts = 61}; /* lanes with unequal shares */

    (void)row;
    r.w = kg_pr(cell, (size_t)(r.in * r.experts), 17, 0.5f);
    r.x = kg_pr(cell, (size_t)(r.in * 33), 7, 2.0f);
    compare(cell, &r, few, sizeof few / sizeof few[0]);
}

static void run_real(struct kg_cell *cell, const void *row)
{
    const struct kg_tensor *t = kg_tensor(cell, "qwen36", "blk.0.ffn_gate_inp.weight");
    struct router r = {.in = t->ne[0], .experts = t->ne[1]};

    (void)row;
    if (t->type != KG_TYPE_F32 || t->n_dims != 2)
        kg_skip(cell, "not-applicable", "%s is not an F32 matrix", t->name);
    if (kg_device(cell)->cc_major == 0 && r.experts > EMU_EXPERTS) {
        r.experts = EMU_EXPERTS;
        kg_note(cell, "the first %d experts only, on the emulated device", EMU_EXPERTS);
    }
    float *w = kg_alloc(cell, (size_t)(r.in * r.experts) * sizeof *w);
    float *x = kg_alloc(cell, (size_t)(r.in * MOST) * sizeof *x);
    memcpy(w, t->data, (size_t)(r.in * r.experts) * sizeof *w);
    for (int64_t i = 0; i < r.in * MOST; i++)
        x[i] = (kg_pr_at(cell, (uint64_t)i + 7) - 0.5f) * 4;
    r.w = w;
    r.x = x;
    compare(cell, &r, points, N_POINTS);
}

static void plan(struct kg_plan *p)
{
    kg_plan_add(p, &(struct kg_cell_spec){"fast-router-batch.388x61", run_made, NULL,
                                          NULL, KG_CELL_ORDERED});
    kg_plan_add(p, &(struct kg_cell_spec){"fast-router-batch.ffn_gate_inp", run_real,
                                          NULL, "qwen36", 0});
}

static const struct kg_role roles[] = {
    {"qwen36", "gguf", "a model with an F32 router"},
    {NULL,     NULL,   NULL                        },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "fast-router-batch",
    .summary = "the router's product by the token and by the batch, to the bit",
    .roles = roles,
    .plan = plan,
};
