/*
 * Cells that several sections make: one form of the product against another, and against f64.
 * The bound comes first: a reference that is NaN could not be compared with (ERROR), and is
 * a wrong result itself (FAIL).
 */
#include <stdio.h>
#include <string.h>

#include "plugins/mmvq_cells.h"

void kg_mv_single(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                  uint64_t offset)
{
    const float *x = kg_pr(cell, (size_t)(w->in * m), offset, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, 1, KG_SCALE_NONE, m, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    const float *dp4a = kg_mv_dp4a(&mv, 0);

    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_mv_check_bound(&mv, "dp4a.bound", 0, dp4a);
    kg_mv_check_near(&mv, "dp4a", 0, y, dp4a, 1e-3);
    kg_mv_check_same(&mv, "dp4a.bits", 0, y, dp4a, m);
}

void kg_mv_batched(struct kg_cell *cell, const struct kg_mv_tensor *w, int scale_kind,
                   int layout, int64_t m, int width, uint64_t offset)
{
    const float *x = kg_pr(cell, (size_t)(w->in * m), offset, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, 1, scale_kind, m, x);
    const float *one = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    struct kg_mv_form form = {.layout = layout, .width = width};
    const float *y = kg_mv_run(&mv, "batched", form).y[0];

    kg_param_i(cell, "width", width);
    kg_mv_check_bound(&mv, "one.bound", 0, one);
    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_mv_check_near(&mv, "near", 0, y, one, 1e-3);
    kg_mv_check_same(&mv, "bits", 0, y, one, m);
    if (w->type)
        kg_mv_check_same(&mv, "dp4a.bits", 0, y, kg_mv_dp4a(&mv, 0), m);
}

void kg_mv_law(struct kg_cell *cell, const struct kg_mv_tensor *w, int scale_kind,
               int layout)
{
    enum { ROWS = 11 }; /* two groups of eight, the second of three */
    const float *x = kg_pr(cell, (size_t)w->in * ROWS, 131, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, 1, scale_kind, ROWS, x);
    float *alone = kg_alloc(cell, (size_t)(w->out * ROWS) * sizeof *alone);
    char name[32];

    for (int r = 0; r < ROWS; r++) {
        struct kg_mv_form form = {.layout = layout, .row = r, .m = 1};
        snprintf(name, sizeof name, "row%d", r);
        memcpy(alone + r * w->out, kg_mv_run(&mv, name, form).y[0],
               (size_t)w->out * sizeof *alone);
    }
    for (int m = 1; m <= 8; m++)
        for (int pass = 0; pass < 2; pass++) {
            int width = pass ? kg_mv_tier(m) : m;
            struct kg_mv_form form = {.layout = layout, .width = width, .m = m};
            if (pass && width == m)
                continue;
            snprintf(name, sizeof name, "m%d.w%d", m, width);
            kg_mv_check_same(&mv, name, 0, kg_mv_run(&mv, name, form).y[0], alone, m);
        }
    static const int widths[] = {3, 8, 16};
    for (int k = 0; k < (mv.type == KG_TYPE_Q6_K ? 3 : 2); k++) {
        int width = widths[k];
        struct kg_mv_form form = {.layout = layout, .width = width};
        snprintf(name, sizeof name, "m%d.w%d", ROWS, width);
        kg_mv_check_same(&mv, name, 0, kg_mv_run(&mv, name, form).y[0], alone, ROWS);
    }
    kg_mv_check_bound(&mv, "bound", 0, alone);
}

void kg_mv_fused(struct kg_cell *cell, const struct kg_mv_tensor *w, int n,
                 int scale_kind, int layout, int64_t m, uint64_t offset)
{
    const float *x = kg_pr(cell, (size_t)(w->in * m), offset, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, w, n, scale_kind, m, x);
    int widths[2] = {(int)m, kg_mv_tier(m)};
    struct kg_mv_y one[KG_MMVQ_TENSORS];
    char name[32];

    for (int i = 0; i < n; i++) {
        struct kg_mv_form form = {.layout = layout, .first = i, .n = 1};
        snprintf(name, sizeof name, "alone%d", i);
        one[i] = kg_mv_run(&mv, name, form);
    }
    for (int k = 0; k < 2; k++) {
        struct kg_mv_form form = {.layout = layout, .width = widths[k]};
        if (k && widths[1] == widths[0])
            continue;
        snprintf(name, sizeof name, "fused%d.w%d", n, widths[k]);
        struct kg_mv_y all = kg_mv_run(&mv, name, form);
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "bits%d.w%d", i, widths[k]);
            kg_mv_check_same(&mv, name, i, all.y[i], one[i].y[i], m);
            snprintf(name, sizeof name, "bound%d.w%d", i, widths[k]);
            kg_mv_check_bound(&mv, name, i, all.y[i]);
        }
    }
}
