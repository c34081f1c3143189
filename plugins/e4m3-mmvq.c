/*
 * e4m3-mmvq: E4M3 weights with one scale a tensor or a row.
 *
 * The codes are pseudorandom and all legal ones occur. Every fused tensor has a scale and a
 * number of rows of its own.
 */
#include <string.h>

#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct cell_row {
    int in, out, m, width, n, scale_kind;
    float scale; /* of the tensor; 0: 1 */
};

static struct kg_mv_tensor made(struct kg_cell *cell, const struct cell_row *row, int out,
                                int index)
{
    return kg_mv_made(cell, KG_TYPE_F8_E4M3, row->scale_kind, row->in, out, index);
}

/* m rows against each of them alone. */
static void run_single(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    kg_mv_skip_large(cell, row->in, row->out, row->m);
    struct kg_mv_tensor w = made(cell, row, row->out, 0);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 151, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, row->scale_kind, row->m, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    float *alone = kg_alloc(cell, (size_t)(w.out * row->m) * sizeof *alone);

    kg_mv_check_bound(&mv, "bound", 0, y);
    for (int r = 0; r < row->m && row->m > 1; r++) {
        struct kg_mv_form form = {.row = r, .m = 1};
        memcpy(alone + r * w.out, kg_mv_run(&mv, "row", form).y[0],
               (size_t)w.out * sizeof *alone);
    }
    if (row->m > 1)
        kg_mv_check_same(&mv, "m1.bits", 0, y, alone, row->m);
}

static void run_batched(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = made(cell, row, row->out, 0);

    kg_mv_batched(cell, &w, row->scale_kind, KG_LAYOUT_FILE, row->m, row->width, 151);
}

static void run_law(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = made(cell, row, row->out, 0);

    kg_mv_law(cell, &w, row->scale_kind, KG_LAYOUT_FILE);
}

static void run_fused(struct kg_cell *cell, const void *row_)
{
    static const float scales[] = {1.31f, 0.77f, -0.0173f};
    const struct cell_row *row = row_;
    const int outs[] = {row->out, 33, 3};
    struct kg_mv_tensor w[KG_MMVQ_TENSORS];

    for (int i = 0; i < row->n; i++) {
        w[i] = made(cell, row, outs[i], i);
        w[i].scale = scales[i];
    }
    kg_mv_fused(cell, w, row->n, row->scale_kind, KG_LAYOUT_FILE, row->m, 151);
}

/* A code of NaN spoils its row, at every m, and no other. */
static void run_nan(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = made(cell, row, row->out, 0);
    uint8_t *codes = kg_alloc(cell, (size_t)(w.in * w.out));

    memcpy(codes, w.data, (size_t)(w.in * w.out));
    codes[5 * w.in + 31] = 0x7f;
    codes[w.in * w.out - 1] = 0xff;
    w.data = codes;
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 151, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, row->scale_kind, row->m, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    const float *wide = kg_mv_run(&mv, "batched", (struct kg_mv_form){.width = 8}).y[0];

    kg_oracle_allow(cell, KG_ORACLE_NONFINITE);
    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_oracle_allow(cell, KG_ORACLE_NONFINITE);
    kg_mv_check_bound(&mv, "batched.bound", 0, wide);
}

/* Rows that start at any byte: the same bits as when they start at a multiple of 16. */
static void run_unaligned(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    size_t n = (size_t)(row->out * row->m), bytes = (size_t)row->in * (size_t)row->out;
    struct kg_mv_tensor w = made(cell, row, row->out, 0);
    if (row->scale != 0) { /* and row scales that are no powers of two */
        float *scales = kg_alloc(cell, (size_t)row->out * sizeof *scales);
        for (int o = 0; o < row->out && w.scales; o++)
            scales[o] = w.scales[o] * (1 + (float)o / 64);
        w.scale = row->scale;
        w.scales = w.scales ? scales : NULL;
    }
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 151, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, row->scale_kind, row->m, x);
    const float *y = kg_mv_run(&mv, "aligned", (struct kg_mv_form){0}).y[0];
    uint8_t *shifted = kg_alloc(cell, bytes + 1);
    struct kg_buf *dy = kg_output(cell, "y-shifted", n * sizeof *y);

    shifted[0] = 0x7f;
    memcpy(shifted + 1, w.data, bytes);
    struct kg_buf *dw = kg_input(cell, "w-shifted", shifted, bytes + 1);
    KG_ARM(cell, "shifted", NULL,
           KG_OPS(cell, mmvq, product)(KG_TYPE_F8_E4M3, KG_LAYOUT_FILE, row->scale_kind,
                                       (struct kg_mmvq_tensor[]){
                                           {.w = (uint8_t *)kg_ptr(dw) + 1,
                                            .y = kg_ptr(dy),
                                            .out = w.out,
                                            .scale = w.scale,
                                            .scales = kg_ptr(mv.dscales[0])}
    },
                                       1, kg_ptr(mv.dq), kg_ptr(mv.dd), NULL, w.in,
                                       row->m, row->width, kg_stream(cell)));
    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_mv_check_same(&mv, "bits", 0, kg_fetch(dy), y, row->m);
}

static const int shapes[][2] = {
    {5120, 512},
    {2048, 320},
    {1056, 300},
    {2080, 1  },
};
static const int batches[] = {1, 2, 5, 9};

static struct cell_row *new_row(struct kg_plan *p, struct cell_row row)
{
    struct cell_row *copy = kg_plan_alloc(p, sizeof *copy);

    *copy = row;
    return copy;
}

static void add(struct kg_plan *p, kg_cell_fn *run, const char *what, struct cell_row row)
{
    bool large = run == run_single && kg_mv_is_large(row.in, row.out, row.m);
    /* IEEE 754 leaves the sign and payload of a NaN open. */
    uint32_t ordered = run == run_nan ? 0 : KG_CELL_ORDERED;

    kg_plan_addf(p,
                 &(struct kg_cell_spec){NULL, run, new_row(p, row), NULL,
                                        ordered | (large ? KG_CELL_OPTIONAL : 0)},
                 "e4m3-mmvq.%s%s.%dx%d-m%d",
                 row.scale_kind == KG_SCALE_ROW ? "row-scale." : "", what, row.in,
                 row.out, row.m);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (size_t k = 0; k < (i < 2 ? COUNT(batches) : COUNT(batches) - 1); k++)
            add(p, run_single, "single",
                (struct cell_row){
                    .in = shapes[i][0], .out = shapes[i][1], .m = batches[k]});
    for (int m = 2; m <= 8; m++)
        add(p, run_batched, "batched",
            (struct cell_row){.in = 2048, .out = 35, .m = m, .width = kg_mv_tier(m)});
    for (int n = 2; n <= 3; n++)
        for (int m = 1; m <= 8; m++)
            add(p, run_fused, n == 2 ? "fused2" : "fused3",
                (struct cell_row){.in = 1056, .out = 35, .m = m, .n = n});
    for (int kind = KG_SCALE_NONE; kind <= KG_SCALE_ROW; kind++) {
        struct cell_row row = {.in = 1056, .out = 35, .m = 8, .scale_kind = kind};
        add(p, run_law, "law", row);
        row.m = 3;
        add(p, run_nan, "nan", row);
        for (row.width = 1; row.width <= 8; row.width += 7)
            add(p, run_unaligned, row.width == 1 ? "unaligned" : "unaligned-w8", row);
        row.width = 1;
        row.scale = -0.0173f;
        add(p, run_unaligned, "unaligned-scaled", row);
        /* The wide product wants multiples of 64. */
        row = (struct cell_row){.in = 1088, .out = 35, .m = 8, .scale_kind = kind};
        add(p, run_law, "law", row);
        row.m = 3;
        add(p, run_nan, "nan", row);
    }
    add(p, run_single, "single",
        (struct cell_row){.in = 1056, .out = 192, .m = 5, .scale_kind = KG_SCALE_ROW});
    add(p, run_fused, "fused3",
        (struct cell_row){
            .in = 1088, .out = 35, .m = 5, .n = 3, .scale_kind = KG_SCALE_ROW});
}

static const struct kg_section_param params[] = {
    {"shapes", "all: large shapes on the emulated device too"},
    {0       },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "e4m3-mmvq",
    .summary = "the matrix-vector product of decoding on E4M3 weights",
    .plan = plan,
    .params = params,
};
