/*
 * mmvq: the products of decoding, one row of activations at a time.
 *
 * The pinned tensors of any model, whatever type they have there as long as the family knows it;
 * shapes that are no multiple of any tile, on weights whose scales differ from block to block
 * and row to row; sums of 32 activations that a half would lose; weights whose rows start
 * at no multiple of 16 bytes. `bench` cells have the shape that the speed targets are about.
 */
#include <math.h>
#include <string.h>

#include "plugins/gemm_cells.h"
#include "plugins/mmvq_cells.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct cell_row {
    const char *tensor;
    int type, layout, scale_kind;
    int in, out, m;
};

static void run_tensor(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w = kg_mv_tensor(cell, "model", row->tensor);

    kg_mv_single(cell, &w, row->m, 101);
}

static void run_shape(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w =
        kg_mv_made(cell, row->type, KG_SCALE_NONE, row->in, row->out, 0);

    kg_mv_single(cell, &w, row->m, 101);
}

/* Rows in multiples of 16 bytes, several at once: the wide product, at widths 7 and 8. */
static void run_even(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w =
        kg_mv_made(cell, row->type, KG_SCALE_NONE, row->in, row->out, 0);
    const float *x = kg_pr(cell, (size_t)row->in * (size_t)row->m, 101, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_NONE, row->m, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    const float *seven = kg_mv_run(&mv, "seven", (struct kg_mv_form){.width = 7}).y[0];
    const float *eight = kg_mv_run(&mv, "eight", (struct kg_mv_form){.width = 8}).y[0];

    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_mv_check_same(&mv, "seven.bits", 0, seven, y, row->m);
    kg_mv_check_same(&mv, "eight.bits", 0, eight, y, row->m);
}

/* NVFP4 with every code of a scale but 0xFF, of which the format does not tell. 0x7F is 0. */
static void run_scale_codes(struct kg_cell *cell, const void *row_)
{
    enum { IN = 1088, OUT = 34, M = 3, BLOCKS = IN / 64 * OUT };
    struct kg_mv_tensor w = kg_mv_made(cell, KG_TYPE_NVFP4, KG_SCALE_NONE, IN, OUT, 0);
    uint8_t *data = kg_alloc(cell, BLOCKS * 36);

    (void)row_;
    memcpy(data, w.data, BLOCKS * 36);
    for (int i = 0; i < BLOCKS * 4; i++)
        data[i / 4 * 36 + i % 4] = (uint8_t)(i % 255);
    w.data = data;
    const float *x = kg_pr(cell, IN * M, 101, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_NONE, M, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    const float *wide = kg_mv_run(&mv, "batched", (struct kg_mv_form){.width = 8}).y[0];

    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_mv_check_same(&mv, "batched.bits", 0, wide, y, M);
}

/* |sum of 32 activations| > 65504, at width 1 and 8. */
static void run_large_sums(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    struct kg_mv_tensor w =
        kg_mv_made(cell, row->type, KG_SCALE_NONE, row->in, row->out, 0);
    float *x = kg_pr(cell, (size_t)row->in * (size_t)row->m, 71, 500.0f);

    for (int i = 0; i < row->in * row->m; i++)
        x[i] += i / row->in % 2 ? -9000.0f : 9000.0f;
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_NONE, row->m, x);
    const float *y = kg_mv_run(&mv, "mmvq", (struct kg_mv_form){0}).y[0];
    const float *wide = kg_mv_run(&mv, "batched", (struct kg_mv_form){.width = 8}).y[0];

    kg_mv_check_bound(&mv, "bound", 0, y);
    kg_mv_check_same(&mv, "batched.bits", 0, wide, y, row->m);
}

/* The product of all rows of the tensor but the first, from where they are. */
static const float *run_part(struct kg_cell *cell, struct kg_mv *mv,
                             const struct cell_row *row, const char *arm,
                             const char *output, float scale, int width)
{
    size_t skip = kg_row_bytes(row->type, row->in);
    int64_t out = row->out - 1;
    struct kg_buf *dy = kg_output(cell, output, (size_t)(out * row->m) * sizeof(float));

    KG_ARM(cell, arm, NULL,
           KG_OPS(cell, mmvq, product)(row->type, KG_LAYOUT_FILE, KG_SCALE_NONE,
                                       (struct kg_mmvq_tensor[]){
                                           {.w = (uint8_t *)kg_ptr(mv->dw[0]) + skip,
                                            .y = kg_ptr(dy),
                                            .out = out,
                                            .scale = scale}
    },
                                       1, kg_ptr(mv->dq), kg_ptr(mv->dd), kg_ptr(mv->ds),
                                       mv->in, mv->m, width, kg_stream(cell)));
    return kg_fetch(dy);
}

/* All rows but the first, from where they are: the same bits as the whole tensor's, whichever
   kernel the alignment selects. */
static void run_unaligned(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    int64_t out = row->out - 1;
    size_t n = (size_t)(out * row->m);
    struct kg_mv_tensor w =
        kg_mv_made(cell, row->type, KG_SCALE_NONE, row->in, row->out, 0);
    const float *x = kg_pr(cell, (size_t)row->in * (size_t)row->m, 101, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_NONE, row->m, x);
    const float *all = kg_mv_run(&mv, "whole", (struct kg_mv_form){.width = 2}).y[0];
    float *want = kg_alloc(cell, n * sizeof *want);

    for (int r = 0; r < row->m; r++)
        memcpy(want + r * out, all + r * row->out + 1, (size_t)out * sizeof *want);
    kg_mv_check_bound(&mv, "bound", 0, all);
    for (int width = 1; width <= 2; width++) {
        const float *y = run_part(cell, &mv, row, width == 1 ? "part" : "part-batched",
                                  "y-part", 1, width);
        kg_check_exact(cell, width == 1 ? "bits" : "batched.bits", y, want, n,
                       sizeof *want);
    }
}

/* The same tensor with a scale of its own, which multiplies the finished sum. */
static void run_unaligned_scaled(struct kg_cell *cell, const void *row_)
{
    static const float scales[] = {1, 0.37f};
    const struct cell_row *row = row_;
    int64_t out = row->out - 1;
    size_t n = (size_t)(out * row->m);
    struct kg_mv_tensor w =
        kg_mv_made(cell, row->type, KG_SCALE_NONE, row->in, row->out, 0);
    const float *x = kg_pr(cell, (size_t)row->in * (size_t)row->m, 101, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, KG_SCALE_NONE, row->m, x);
    const float *y[2];
    float *want = kg_alloc(cell, n * sizeof *want);

    for (int i = 0; i < 2; i++) {
        y[i] = run_part(cell, &mv, row, i ? "scaled" : "part", i ? "y-scaled" : "y",
                        scales[i], 1);
    }
    for (size_t i = 0; i < n; i++)
        want[i] = y[0][i] * scales[1];
    kg_check_exact(cell, "bits", y[1], want, n, sizeof *want);
}

/* ---- speed ---- */

enum {
    BENCH_IN = 8192,
    BENCH_OUT = 28672,
    PERIOD = 1021,    /* rows until they repeat: a prime, so a wrong tile shows */
    SAMPLED_ROWS = 64 /* of w, checked for every row of q */
};

static struct kg_mv_tensor bench_weights(struct kg_cell *cell, const struct cell_row *row)
{
    size_t row_bytes = kg_row_bytes(row->type, BENCH_IN), bytes = BENCH_OUT * row_bytes;
    struct kg_mv_tensor w =
        kg_mv_made(cell, row->type, row->scale_kind, BENCH_IN, PERIOD, 0);
    uint8_t *data = kg_alloc(cell, bytes);
    size_t n_scales = (BENCH_OUT / 128) * (BENCH_IN / 128);
    float *scales = kg_alloc(cell, n_scales * sizeof *scales);

    for (size_t at = 0; at < bytes; at += PERIOD * row_bytes)
        memcpy(data + at, w.data,
               bytes - at < PERIOD * row_bytes ? bytes - at : PERIOD * row_bytes);
    for (size_t i = 0; i < n_scales; i++)
        scales[i] = ldexpf(1, (int)((i / 64 * 3 + i % 64 * 2) % 7) - 6);
    w.data = data;
    w.scales = scales;
    w.out = BENCH_OUT;
    return w;
}

static void run_bench(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;
    if (kg_gemm_is_emulated(cell))
        kg_skip(cell, "device-unsupported", "too large for the emulated device");
    struct kg_mv_tensor w = bench_weights(cell, row);
    const float *x = kg_pr(cell, (size_t)BENCH_IN * (size_t)row->m, 101, 0.1f);
    struct kg_mv mv = kg_mv_open(cell, &w, 1, row->scale_kind, row->m, x);
    struct kg_mv_form form = {.layout = row->layout, .width = row->m};
    const float *y = kg_mv_run(&mv, "mmvq", form).y[0];

    size_t row_bytes = kg_row_bytes(row->type, BENCH_IN),
           n = SAMPLED_ROWS * (size_t)row->m;
    float *got = kg_alloc(cell, n * sizeof *got);
    struct kg_mv sampled = mv;
    sampled.want[0] = kg_alloc(cell, n * sizeof *sampled.want[0]);
    sampled.bound[0] = kg_alloc(cell, n * sizeof *sampled.bound[0]);
    sampled.w[0].out = SAMPLED_ROWS;
    for (int k = 0; k < SAMPLED_ROWS; k++) {
        int64_t o = (int64_t)k * (BENCH_OUT - 1) / (SAMPLED_ROWS - 1);
        struct kg_mv one = mv;
        one.w[0].data = (const uint8_t *)w.data + (size_t)o * row_bytes;
        one.w[0].scales = w.scales + o / 128 * (BENCH_IN / 128);
        one.w[0].out = 1;
        kg_mv_need_want(&one, 0);
        for (int r = 0; r < row->m; r++) {
            got[r * SAMPLED_ROWS + k] = y[r * BENCH_OUT + o];
            sampled.want[0][r * SAMPLED_ROWS + k] = one.want[0][r];
            sampled.bound[0][r * SAMPLED_ROWS + k] = one.bound[0][r];
        }
    }
    kg_mv_check_bound(&sampled, "sampled", 0, got);
}

/* ---- the plan ---- */

static const char *const tensors[][2] = {
    {"ffn_gate", "blk.0.ffn_gate.weight"},
    {"attn_qkv", "blk.0.attn_qkv.weight"},
    {"attn_q",   "blk.3.attn_q.weight"  },
    {"attn_v",   "blk.0.attn_v.weight"  },
    {"output",   "output.weight"        },
};

/* in as units of 32, 64 or 256, by the type's block */
static const struct {
    int small, nvfp4, kquant, out, m;
} shapes[] = {
    {33, 33, 3,  300, 1},
    {65, 17, 9,  64,  2},
    {3,  1,  1,  3,   5},
    {1,  3,  5,  192, 1},
    {35, 19, 5,  1,   3},
 /* rows in multiples of 16 bytes, which the wide product wants */
    {80, 40, 24, 37,  7},
};

static struct cell_row *new_row(struct kg_plan *p, struct cell_row row)
{
    struct cell_row *copy = kg_plan_alloc(p, sizeof *copy);

    *copy = row;
    return copy;
}

static void plan_type(struct kg_plan *p, int type)
{
    int block = kg_type_info(type)->block, odd = (block == 256 ? 1280 : 33 * block);
    const char *id = kg_mv_type_id(type);

    for (size_t i = 0; i < COUNT(shapes); i++) {
        int units = block == 256  ? shapes[i].kquant
                    : block == 64 ? shapes[i].nvfp4
                                  : shapes[i].small;
        struct cell_row *row = new_row(p, (struct cell_row){.type = type,
                                                            .in = units * block,
                                                            .out = shapes[i].out,
                                                            .m = shapes[i].m});
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_shape, row, NULL, KG_CELL_ORDERED},
                     "mmvq.shape.%s.%dx%d-m%d", id, row->in, row->out, row->m);
    }
    struct cell_row *row = new_row(
        p, (struct cell_row){
               .type = type, .in = block == 256 ? 6144 : 2560, .out = 37, .m = 9});
    kg_plan_addf(p, &(struct kg_cell_spec){NULL, run_even, row, NULL, KG_CELL_ORDERED},
                 "mmvq.even.%s", id);
    row = new_row(p, (struct cell_row){.type = type, .in = odd, .out = 64, .m = 3});
    kg_plan_addf(p,
                 &(struct kg_cell_spec){NULL, run_large_sums, row, NULL, KG_CELL_ORDERED},
                 "mmvq.large-sums.%s", id);
    if (kg_row_bytes(type, odd) % 16 == 0)
        return; /* every row is aligned */
    row = new_row(p, (struct cell_row){.type = type, .in = odd, .out = 34, .m = 3});
    kg_plan_addf(p,
                 &(struct kg_cell_spec){NULL, run_unaligned, row, NULL, KG_CELL_ORDERED},
                 "mmvq.unaligned.%s", id);
    kg_plan_addf(
        p, &(struct kg_cell_spec){NULL, run_unaligned_scaled, row, NULL, KG_CELL_ORDERED},
        "mmvq.unaligned-scaled.%s", id);
}

static void plan_bench(struct kg_plan *p, int type, int layout, int scale_kind)
{
    for (int m = 1; m <= 8; m += 7) {
        struct cell_row *row = new_row(
            p, (struct cell_row){
                   .type = type, .layout = layout, .scale_kind = scale_kind, .m = m});
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_bench, row, NULL,
                                            KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                     "mmvq.bench.%s%s.m%d", kg_mv_type_id(type),
                     layout == KG_LAYOUT_SPLIT      ? "-split"
                     : scale_kind == KG_SCALE_BLOCK ? "-blk"
                                                    : "",
                     m);
    }
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(tensors); i++)
        for (int m = 1; m <= 2; m++) {
            struct cell_row *row =
                new_row(p, (struct cell_row){.tensor = tensors[i][1], .m = m});
            kg_plan_addf(p,
                         &(struct kg_cell_spec){NULL, run_tensor, row, "model",
                                                KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                         "mmvq.%s.m%d", tensors[i][0], m);
        }
    for (size_t i = 0; i < kg_mv_n_types; i++)
        plan_type(p, kg_mv_types[i]);
    kg_plan_add(p, &(struct kg_cell_spec){"mmvq.scale-codes.nvfp4", run_scale_codes, NULL,
                                          NULL, KG_CELL_ORDERED});
    for (size_t i = 0; i < kg_mv_n_types; i++) {
        plan_bench(p, kg_mv_types[i], KG_LAYOUT_FILE, KG_SCALE_NONE);
        if (kg_mv_splits(kg_mv_types[i]))
            plan_bench(p, kg_mv_types[i], KG_LAYOUT_SPLIT, KG_SCALE_NONE);
    }
    plan_bench(p, KG_TYPE_F8_E4M3, KG_LAYOUT_FILE, KG_SCALE_NONE);
    plan_bench(p, KG_TYPE_F8_E4M3, KG_LAYOUT_FILE, KG_SCALE_BLOCK);
}

static const struct kg_role roles[] = {
    {"model", "gguf", "any model: its pinned tensors are multiplied"},
    {NULL,    NULL,   NULL                                          },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "mmvq",
    .summary = "the matrix-vector products of decoding, every type, and their speed",
    .roles = roles,
    .plan = plan,
};
