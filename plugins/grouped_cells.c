#include "plugins/grouped_cells.h"

const struct kg_named_form kg_visitor_forms[] = {
    {"hybrid",   {1, 64, 1, 0}       }, /* 128 rows for groups of 64 and more, deep tail */
    {"all-128",  {1, 1, 1, 0}        },
    {"deep-32",  {1, INT32_MAX, 1, 0}},
    {"short-32", {1, INT32_MAX, 0, 0}},
    {"trimmed",  {1, 33, 1, 1}       },
};
const size_t kg_n_visitor_forms = sizeof kg_visitor_forms / sizeof kg_visitor_forms[0];

struct kg_groups kg_groups_made(struct kg_cell *cell, const int32_t *sizes, int64_t n,
                                int64_t in, int64_t out)
{
    struct kg_groups g = {.groups = n, .n_experts = n, .in = in, .out = out};

    g.offsets = kg_alloc(cell, (size_t)(n + 1) * sizeof *g.offsets);
    for (int64_t i = 0; i < n; i++)
        g.offsets[i + 1] = g.offsets[i] + sizes[i];
    g.pairs = g.n_rows = g.offsets[n];
    g.scale = kg_alloc(cell, (size_t)g.pairs * sizeof *g.scale);
    for (int64_t p = 0; p < g.pairs; p++)
        g.scale[p] = 1 + (float)(p % 5) * 0.25f;
    g.x = kg_alloc(cell, (size_t)(g.pairs * in) * sizeof *g.x);
    kg_param_i(cell, "groups", n);
    kg_param_i(cell, "pairs", g.pairs);
    kg_param_i(cell, "in", in);
    kg_param_i(cell, "out", out);
    return g;
}

struct kg_group_bufs kg_groups_upload(struct kg_cell *cell, const struct kg_groups *g)
{
    size_t pairs = (size_t)g->pairs;
    struct kg_group_bufs b = {
        .offsets = kg_input(cell, "offsets", g->offsets, (size_t)(g->groups + 1) * 4),
        .scale = kg_input(cell, "scale", g->scale, pairs * 4),
        .x = kg_input(cell, "x", g->x, (size_t)(g->n_rows * g->in) * 2),
    };

    if (g->experts)
        b.experts = kg_input(cell, "experts", g->experts, (size_t)g->groups * 4);
    if (g->rows)
        b.rows = kg_input(cell, "rows", g->rows, pairs * 4);
    return b;
}

struct kg_grouped kg_grouped_now(const struct kg_groups *g,
                                 const struct kg_group_bufs *bufs, int64_t expert_stride)
{
    return (struct kg_grouped){
        .groups = g->groups,
        .pairs = g->pairs,
        .n_experts = g->n_experts,
        .n_rows = g->n_rows,
        .in = g->in,
        .out = g->out,
        .expert_stride = expert_stride,
        .offsets = kg_ptr(bufs->offsets),
        .experts = kg_ptr(bufs->experts),
        .rows = kg_ptr(bufs->rows),
        .scale = kg_ptr(bufs->scale),
    };
}

struct kg_cost kg_grouped_cost(const struct kg_groups *g, double expert_bytes)
{
    double experts = 0;

    for (int64_t i = 0; i < g->groups; i++)
        experts += g->offsets[i + 1] > g->offsets[i];
    return (struct kg_cost){
        .bytes = experts * expert_bytes + (double)(g->n_rows * g->in) * 2 +
                 (double)(g->pairs * g->out) * 4,
        .ops = 2.0 * (double)g->pairs * (double)g->in * (double)g->out,
        .engine = "f16-mma",
    };
}
