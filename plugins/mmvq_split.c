/*
 * Cells about KG_LAYOUT_SPLIT: the rearrangement, and the forms that only this layout has.
 */
#include "plugins/mmvq_cells.h"
#include "plugins/oracle/mmvq.h"

void kg_mv_rearrange(struct kg_cell *cell, const struct kg_mv_tensor *w)
{
    int type = w->type->type;
    size_t bytes = (size_t)w->out * kg_row_bytes(type, w->in);
    struct kg_cost cost = {2 * (double)bytes, 0, NULL};
    uint8_t *planes = kg_alloc(cell, bytes);
    struct kg_buf *df = kg_input(cell, "w", w->data, bytes);
    struct kg_buf *dp = kg_output(cell, "planes", bytes);
    struct kg_buf *db = kg_output(cell, "blocks", bytes);

    kg_param_s(cell, "type", kg_type_name(type));
    kg_param_i(cell, "in", w->in);
    kg_param_i(cell, "out", w->out);
    if (!kg_oracle_planes(type, w->data, planes,
                          (int64_t)bytes / kg_type_info(type)->bytes))
        kg_skip(cell, "not-applicable", "%s has no split planes", kg_type_name(type));
    struct kg_buf *di = kg_input(cell, "planes-in", planes, bytes);
    KG_ARM(cell, "split", &cost,
           KG_OPS(cell, mmvq, split)(type, kg_ptr(df), kg_ptr(dp), w->in, w->out,
                                     kg_stream(cell)));
    KG_ARM(cell, "unsplit", &cost,
           KG_OPS(cell, mmvq, unsplit)(type, kg_ptr(di), kg_ptr(db), w->in, w->out,
                                       kg_stream(cell)));
    kg_check_exact(cell, "planes", kg_fetch(dp), planes, bytes, 1);
    kg_check_exact(cell, "round-trip", kg_fetch(db), w->data, bytes, 1);
}

void kg_mv_stage_a_split(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                         uint64_t offset)
{
    size_t n_in = (size_t)(w->in * m), n = (size_t)(w->out * m);
    const float *x = kg_pr(cell, n_in, offset, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, 1, KG_SCALE_NONE, m, x);
    struct kg_buf *dp = kg_mv_planes(&mv, 0);
    struct kg_buf *dx = kg_input(cell, "x-in", x, n_in * sizeof *x);
    struct kg_buf *df = kg_output(cell, "y-blocks", n * sizeof *x);
    struct kg_buf *dy = kg_output(cell, "y", n * sizeof *x);
    struct kg_cost cost = kg_mv_cost(&mv, 0, 1, m);
    double *want = kg_alloc(cell, n * sizeof *want);
    double *bound = kg_alloc(cell, n * sizeof *bound);

    cost.bytes += (double)n_in * (4 - 1.125);
    cost.engine = "f32";
    KG_ARM(cell, "stage-a", &cost,
           KG_OPS(cell, matvec, stage_a)(mv.type, kg_ptr(mv.dw[0]), kg_ptr(dx),
                                         kg_ptr(df), w->in, w->out, m, kg_stream(cell)));
    KG_ARM(cell, "stage-a-split", &cost,
           KG_OPS(cell, mmvq, stage_a_split)(mv.type, kg_ptr(dp), kg_ptr(dx), kg_ptr(dy),
                                             w->in, w->out, m, kg_stream(cell)));
    const float *y = kg_fetch(dy);
    kg_check_exact(cell, "bits", y, kg_fetch(df), n, sizeof *y);
    kg_oracle_must(
        cell, kg_oracle_linear_f32(w->type, w->data, x, want, NULL, w->in, w->out, m));
    kg_oracle_must(cell,
                   kg_oracle_stage_a_bound(w->type, w->data, x, bound, w->in, w->out, m));
    kg_check_bound(cell, "bound", y, want, bound, n);
}

void kg_mv_stage_b_split(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                         uint64_t offset)
{
    const float *x = kg_pr(cell, (size_t)(w->in * m), offset, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, 1, KG_SCALE_NONE, m, x);
    struct kg_buf *dp = kg_mv_planes(&mv, 0);
    struct kg_buf *dy = kg_output(cell, "y", (size_t)(w->out * m) * sizeof *x);
    struct kg_cost cost = kg_mv_cost(&mv, 0, 1, m);

    KG_ARM(cell, "stage-b-split", &cost,
           KG_OPS(cell, mmvq, stage_b_split)(mv.type, kg_ptr(dp), kg_ptr(mv.dq),
                                             kg_ptr(mv.dd), kg_ptr(mv.ds), kg_ptr(dy),
                                             w->in, w->out, m, kg_stream(cell)));
    const float *y = kg_fetch(dy);
    kg_mv_check_same(&mv, "bits", 0, y, kg_mv_dp4a(&mv, 0), m);
    kg_mv_check_bound(&mv, "bound", 0, y);
}

static const float *run_ksplit(struct kg_mv *mv, const char *arm, int width)
{
    struct kg_cell *cell = mv->cell;
    size_t n = (size_t)(mv->w[0].out * mv->m);
    struct kg_cost cost = kg_mv_cost(mv, 0, 1, mv->m);
    struct kg_buf *dp = kg_mv_planes(mv, 0);
    struct kg_buf *parts = kg_scratch(cell, "parts", 2 * n * sizeof(float));
    struct kg_buf *dy = kg_output(cell, "y", n * sizeof(float));

    KG_ARM(cell, arm, &cost,
           KG_OPS(cell, mmvq, ksplit)(mv->type,
                                      &(struct kg_mmvq_tensor){.w = kg_ptr(dp),
                                                               .y = kg_ptr(dy),
                                                               .out = mv->w[0].out,
                                                               .scale = mv->w[0].scale},
                                      kg_ptr(mv->dq), kg_ptr(mv->dd), kg_ptr(mv->ds),
                                      mv->in, mv->m, width, kg_ptr(parts),
                                      kg_stream(cell)));
    return kg_fetch(dy);
}

/*
 * What the two parts must add up to, to the bit: where d is 0, a unit changes no sum, so the
 * product of either half of k is that of the whole with the other half's d (and s) at 0.
 */
static const float *parts_added(struct kg_mv *mv, int64_t first_units)
{
    struct kg_cell *cell = mv->cell;
    size_t units = (size_t)(mv->in / 32 * mv->m), n = (size_t)(mv->w[0].out * mv->m);
    float *sum = kg_alloc(cell, n * sizeof *sum);

    for (int part = 0; part < 2; part++) {
        struct kg_mv half = *mv;
        float *d = kg_alloc(cell, units * sizeof *d),
              *s = kg_alloc(cell, units * sizeof *s);
        for (size_t u = 0; u < units; u++)
            if (((int64_t)(u % (size_t)(mv->in / 32)) >= first_units) == (part == 1)) {
                d[u] = mv->act.d[u];
                s[u] = mv->act.s[u];
            }
        half.w[0].scale = 1;
        half.dd = kg_input(cell, "d-half", d, units * sizeof *d);
        half.ds = mv->ds ? kg_input(cell, "s-half", s, units * sizeof *s) : NULL;
        const float *y = kg_mv_run(&half, part ? "second-half" : "first-half",
                                   (struct kg_mv_form){.width = 8})
                             .y[0];
        for (size_t i = 0; i < n; i++)
            sum[i] = part ? (sum[i] + y[i]) * mv->w[0].scale : y[i];
    }
    return sum;
}

/* in <= 1024 is a single part, added to nothing. */
void kg_mv_ksplit(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                  int width, uint64_t offset)
{
    const float *x = kg_pr(cell, (size_t)(w->in * m), offset, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, 1, KG_SCALE_NONE, m, x);
    const float *y = run_ksplit(&mv, "ksplit", width);
    const float *again = run_ksplit(&mv, "ksplit-again", width);
    const float *one = run_ksplit(&mv, "ksplit-width1", 1);
    const float *whole =
        kg_mv_run(&mv, "mmvq", (struct kg_mv_form){.layout = KG_LAYOUT_SPLIT}).y[0];
    int64_t groups = (w->in + 1023) / 1024;
    int64_t first_units = groups == 1 ? 0 : (groups + 1) / 2 * 32;

    kg_param_i(cell, "width", width);
    kg_mv_check_bound(&mv, "mmvq.bound", 0, whole);
    kg_mv_check_near(&mv, "mmvq", 0, y, whole, 1e-6);
    kg_mv_check_same(&mv, "again.bits", 0, again, y, m);
    kg_mv_check_same(&mv, "width1.bits", 0, one, y, m);
    kg_mv_check_same(&mv, "parts.bits", 0, y,
                     groups == 1 ? whole : parts_added(&mv, first_units), m);
    kg_mv_check_bound_cut(&mv, "bound", 0, y, first_units);
}
