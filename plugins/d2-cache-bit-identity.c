/*
 * d2-cache-bit-identity: an expert's product from freshly staged weights and from a slot of
 * the cache: the same bits.
 */
#include "plugins/matvec_cells.h"

enum { EXPERT = 5 };

/* The product from a cache of its own, so that it can run again and again. The block goes
   in first, others push it about, and the dispatch in the end must be a hit. */
static int from_cache(const struct kg_expert_cache_ops *cache,
                      const struct kg_matvec_ops *matvec, const struct kg_device_ops *d,
                      const struct kg_weights *w, const uint8_t *experts, size_t bytes,
                      const float *x, float *y, struct CUstream_st *stream)
{
    struct kg_expert_cache *c = NULL;
    int32_t slot = -1;
    bool hit = false;
    int rc = cache->create(&c, 2, bytes, stream);

    for (uint64_t e = EXPERT - 2; !rc && e <= EXPERT; e++) /* three blocks, two slots */
        rc = cache->admit(c, e, experts + e * bytes, NULL, 0, &slot);
    if (!rc)
        rc = cache->dispatch(c, EXPERT, experts + EXPERT * bytes, NULL, 0, &slot, &hit);
    if (!rc && !hit)
        rc = KG_E_INVALID;
    if (!rc)
        rc = matvec->stage_a(w->type->type, cache->slot_pointer(c, slot), x, y, w->in,
                             w->out, 1, stream);
    if (!rc)
        rc = d->sync(stream);
    if (c)
        cache->destroy(c);
    return rc;
}

static void run(struct kg_cell *cell, const void *row)
{
    const struct kg_tensor *t = kg_tensor(cell, "qwen36", "blk.0.ffn_gate_exps.weight");
    struct kg_weights w = {kg_oracle_type(t->type), NULL, t->ne[0], t->ne[1]};

    (void)row;
    if (t->n_dims != 3 || t->ne[2] <= EXPERT || !w.type)
        kg_skip(cell, "not-applicable", "%s has no expert %d of a known type", t->name,
                EXPERT);
    size_t bytes = (size_t)w.out * kg_row_bytes(t->type, w.in), n_y = (size_t)w.out;
    const uint8_t *experts = t->data;
    const float *x = kg_pr(cell, (size_t)w.in, 999, 0.1f);
    struct kg_cost cost = {(double)bytes + 4.0 * (double)(w.in + w.out),
                           2.0 * (double)w.in * (double)w.out, "f32"};
    double *want = kg_alloc(cell, n_y * sizeof *want);
    double *bound = kg_alloc(cell, n_y * sizeof *bound);

    w.data = experts + EXPERT * bytes;
    kg_param_s(cell, "type", kg_type_name(t->type));
    kg_param_i(cell, "in", w.in);
    kg_param_i(cell, "out", w.out);
    struct kg_buf *dw = kg_input(cell, "w", w.data, bytes);
    struct kg_buf *dx = kg_input(cell, "x", x, (size_t)w.in * sizeof *x);
    struct kg_buf *dy = kg_output(cell, "y", n_y * sizeof(float));
    KG_ARM(cell, "staged", &cost,
           KG_OPS(cell, matvec, stage_a)(t->type, kg_ptr(dw), kg_ptr(dx), kg_ptr(dy),
                                         w.in, w.out, 1, kg_stream(cell)));
    const float *staged = kg_fetch(dy);
    kg_oracle_must(cell,
                   kg_oracle_linear_f32(w.type, w.data, x, want, NULL, w.in, w.out, 1));
    kg_oracle_must(cell,
                   kg_oracle_stage_a_bound(w.type, w.data, x, bound, w.in, w.out, 1));
    kg_check_bound(cell, "staged", staged, want, bound, n_y);

    kg_reset(dy);
    KG_ARM(cell, "cached", NULL, ({
               (void)KG_OPS(cell, expert_cache, create);
               from_cache(kg_provider(cell)->expert_cache, kg_provider(cell)->matvec,
                          kg_provider(cell)->device, &w, experts, bytes, kg_ptr(dx),
                          kg_ptr(dy), kg_stream(cell));
           }));
    kg_check_exact(cell, "cached", kg_fetch(dy), staged, n_y, 4);
}

static void plan(struct kg_plan *p)
{
    kg_plan_add(p, &(struct kg_cell_spec){"d2-cache-bit-identity.gate_exps", run, NULL,
                                          "qwen36", KG_CELL_ORDERED});
}

static const struct kg_role roles[] = {
    {"qwen36", "gguf", "a mixture of experts"},
    {NULL,     NULL,   NULL                  },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "d2-cache-bit-identity",
    .summary = "an expert staged against the same expert in the cache, to the bit",
    .roles = roles,
    .plan = plan,
};
