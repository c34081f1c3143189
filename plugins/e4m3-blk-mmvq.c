/*
 * e4m3-blk-mmvq: E4M3 weights with a scale for each 128 x 128 block.
 *
 * Shapes whole and ragged in both directions. `exact` cells are made so that every partial sum
 * is a multiple of 1/8 below 2^21, whatever the order: no bit may differ from the sum of
 * the integers. `codes` cells have all legal codes and scales that are no powers of two.
 */
#include <math.h>
#include <string.h>

#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct cell_row {
    int in, out, m;
};

/* Every integer of -4 .. 4 as a code. */
static const uint8_t integers[] = {0x00, 0x38, 0xb8, 0x40, 0xc0, 0x44, 0xc4, 0x48, 0xc8};

static size_t n_scales(const struct cell_row *row)
{
    return (size_t)((row->out + 127) / 128 * ((row->in + 127) / 128));
}

/* m rows against each of them alone. */
static void check_alone(struct kg_mv *mv, const float *y)
{
    int64_t out = mv->w[0].out;
    float *alone = kg_alloc(mv->cell, (size_t)(out * mv->m) * sizeof *alone);

    if (mv->m == 1)
        return;
    for (int64_t r = 0; r < mv->m; r++) {
        struct kg_mv_form form = {.row = r, .m = 1};
        memcpy(alone + r * out, kg_mv_run(mv, "row", form).y[0],
               (size_t)out * sizeof *alone);
    }
    kg_mv_check_same(mv, "m1.bits", 0, y, alone, mv->m);
}

/*
 * Codes are integers of at most 4; activations too, but for one of +-127 in each 32, which
 * makes d 1 and the codes the activations themselves (checked). A dot is at most
 * 4 * (31 * 4 + 127) = 1004, a scale 2^-3 .. 2^3, and 160 units of 8 * 1004 stay below 2^21:
 * in units of 1/8, below 2^24.
 */
static void run_exact(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    size_t n_w = (size_t)row->in * (size_t)row->out, n_x = (size_t)(row->in * row->m);
    size_t n = (size_t)(row->out * row->m), scale_cols = (size_t)(row->in + 127) / 128;
    uint8_t *codes = kg_alloc(cell, n_w);
    float *scales = kg_alloc(cell, n_scales(row) * sizeof *scales);
    float *x = kg_alloc(cell, n_x * sizeof *x), *want = kg_alloc(cell, n * sizeof *want);
    bool lossless = true;

    kg_mv_skip_large(cell, row->in, row->out, row->m);
    for (size_t i = 0; i < n_w; i++)
        codes[i] = integers[(size_t)((kg_pr_at(cell, i) + 1) * 0x1p22) % COUNT(integers)];
    for (size_t i = 0; i < n_scales(row); i++)
        scales[i] = ldexpf(1, (int)((i / scale_cols * 3 + i % scale_cols * 2) % 7) - 3);
    for (size_t i = 0; i < n_x; i++)
        x[i] = (float)((int)((kg_pr_at(cell, i + 211) + 1) * 0x1p22) % 9 - 4);
    for (size_t b = 0; b < n_x / 32; b++) /* not always the same place */
        x[b * 32 + b * 11 % 32] = b % 2 ? -127.0f : 127.0f;

    struct kg_mv_tensor w = {NULL, codes, row->in, row->out, 1, scales};
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_BLOCK, row->m, x);
    for (size_t i = 0; i < n_x; i++)
        lossless = lossless && mv.act.d[i / 32] == 1 && (float)mv.act.q[i] == x[i];
    kg_check_that(cell, "lossless", lossless, "codes that are the activations");
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    kg_mv_need_want(&mv, 0);
    for (size_t i = 0; i < n; i++)
        want[i] = (float)mv.want[0][i];
    kg_mv_check_same(&mv, "exact", 0, y, want, row->m);
    if (row->m == 1)
        return;
    y = kg_mv_run(&mv, "batched", (struct kg_mv_form){.width = 8}).y[0];
    kg_mv_check_same(&mv, "batched.exact", 0, y, want, row->m);
}

/* max |y - want| / rms(want) */
static double error_by_rms(const float *y, const double *want, size_t n)
{
    double square = 0, worst = 0;

    for (size_t i = 0; i < n; i++) {
        double err = fabs(y[i] - want[i]);
        square += want[i] * want[i];
        worst = err <= worst ? worst : err;
    }
    return worst / sqrt(square / (double)n);
}

static void run_codes(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    kg_mv_skip_large(cell, row->in, row->out, row->m);
    struct kg_mv_tensor w =
        kg_mv_made(cell, KG_TYPE_F8_E4M3, KG_SCALE_BLOCK, row->in, row->out, 0);
    const float *x = kg_pr(cell, (size_t)(row->in * row->m), 211, 0.1f);
    float *scales = kg_alloc(cell, n_scales(row) * sizeof *scales);
    bool seen[256] = {false};
    int n_seen = 0;

    for (int64_t i = 0; i < w.in * w.out; i++)
        seen[((const uint8_t *)w.data)[i]] = true;
    for (int code = 0; code < 256; code++)
        n_seen += seen[code];
    for (size_t i = 0; i < n_scales(row); i++)
        scales[i] = 0.002f + 0.5f * (kg_pr_at(cell, i + 977) * 0.5f + 0.5f);
    w.scales = scales;
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_BLOCK, row->m, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];

    kg_check_that(cell, "coverage", n_seen == 254 && !seen[0x7f] && !seen[0xff],
                  "%d of 254 legal codes", n_seen);
    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_check_value(cell, "rms", "band",
                   error_by_rms(y, mv.want[0], (size_t)(row->out * row->m)), 1e-5);
    check_alone(&mv, y);
}

static void run_law(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w =
        kg_mv_made(cell, KG_TYPE_F8_E4M3, KG_SCALE_BLOCK, row->in, row->out, 0);

    kg_mv_law(cell, &w, KG_SCALE_BLOCK, KG_LAYOUT_FILE);
}

static void run_fused(struct kg_cell *cell, const void *row_)
{
    static const float tensor_scales[] = {1.31f, 0.77f, -0.0173f};
    static const int outs[] = {35, 3, 130};
    const struct cell_row *row = row_;
    struct kg_mv_tensor w[KG_MMVQ_TENSORS];

    for (int i = 0; i < KG_MMVQ_TENSORS; i++) {
        w[i] = kg_mv_made(cell, KG_TYPE_F8_E4M3, KG_SCALE_BLOCK, row->in, outs[i], i);
        w[i].scale = tensor_scales[i];
    }
    kg_mv_fused(cell, w, KG_MMVQ_TENSORS, KG_SCALE_BLOCK, KG_LAYOUT_FILE, row->m, 151);
}

/* With several rows, all but 2080 in the wide product, which wants multiples of 64. */
static const int shapes[][2] = {
    {512,  128 },
    {5120, 512 },
    {5120, 320 },
    {2080, 256 },
    {1216, 200 },
    {5120, 1536},
};
static const int batches[] = {1, 2, 5, 9};
static const struct cell_row law_row = {1184, 130, 11};
static const struct cell_row fused_rows[] = {
    {1184, 200, 1},
    {1216, 200, 5},
};

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (size_t k = 0; k < COUNT(batches); k++) {
            struct cell_row *row = kg_plan_alloc(p, sizeof *row);
            *row = (struct cell_row){shapes[i][0], shapes[i][1], batches[k]};
            uint32_t flags =
                KG_CELL_ORDERED |
                (kg_mv_is_large(row->in, row->out, row->m) ? KG_CELL_OPTIONAL : 0);
            kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_exact, row, NULL, flags},
                         "e4m3-blk-mmvq.exact.%dx%d-m%d", row->in, row->out, row->m);
            kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_codes, row, NULL, flags},
                         "e4m3-blk-mmvq.codes.%dx%d-m%d", row->in, row->out, row->m);
        }
    kg_plan_add(p, &(struct kg_cell_spec){"e4m3-blk-mmvq.law", run_law, &law_row, NULL,
                                          KG_CELL_ORDERED});
    for (size_t k = 0; k < COUNT(fused_rows); k++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_fused, &fused_rows[k], NULL,
                                            KG_CELL_ORDERED},
                     "e4m3-blk-mmvq.fused3.m%d", fused_rows[k].m);
}

static const struct kg_section_param params[] = {
    {"shapes", "all: large shapes on the emulated device too"},
    {0       },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "e4m3-blk-mmvq",
    .summary = "E4M3 weights with 128 x 128 block scales in the product of decoding",
    .plan = plan,
    .params = params,
};
