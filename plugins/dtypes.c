/*
 * dtypes: every weight type, against the values that ggml itself gives.
 *
 * The golden file holds, for each type T, T.weight (512 x 24) and T.expected_f32, and for
 * block types T.rawbytes, whose codes are arbitrary, with T.rawbytes.expected_f32. Cells
 * come from the oracle's table of types: a new row there brings its cells along.
 */
#include <math.h>
#include <string.h>

#include "plugins/matvec_cells.h"

/* ---- cells of one type ---- */

/* NaNs differ in payload between devices: make them one, except the poison of an output
   that was not written. */
static float *canonical(struct kg_cell *cell, const float *x, size_t n)
{
    float *y = kg_alloc(cell, n * sizeof *y);

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        y[i] = x[i] == x[i] || bits == UINT32_MAX ? x[i] : NAN;
    }
    return y;
}

/* GGUF names spell the K as a capital: "q4_K.weight". */
static const struct kg_tensor *golden(struct kg_cell *cell,
                                      const struct kg_oracle_type *type, const char *what)
{
    char name[64];
    size_t length = strlen(type->id);

    memcpy(name, type->id, length);
    if (length > 2 && memcmp(name + length - 2, "_k", 2) == 0)
        name[length - 1] = 'K';
    name[length] = '.';
    strcpy(name + length + 1, what);
    return kg_tensor(cell, "golden", name);
}

static void need_type(struct kg_cell *cell, const struct kg_oracle_type *type,
                      const struct kg_tensor *tensor)
{
    if (tensor->type != type->type)
        kg_error(cell, "%s is %s in the golden file", tensor->name,
                 kg_type_name(tensor->type));
}

static void check_dequant(struct kg_cell *cell, const struct kg_oracle_type *type,
                          const char *source, const char *expected)
{
    const struct kg_tensor *src = golden(cell, type, source);
    const struct kg_tensor *want = golden(cell, type, expected);
    size_t n = (size_t)(src->ne[0] * src->ne[1]);
    struct kg_cost cost = {(double)src->bytes + 4.0 * (double)n, 0, NULL};

    need_type(cell, type, src);
    if (want->type != KG_TYPE_F32 || want->bytes != 4 * n)
        kg_error(cell, "%s and %s differ in shape", src->name, want->name);
    struct kg_buf *dsrc = kg_input(cell, source, src->data, src->bytes);
    struct kg_buf *dy = kg_output(cell, "y", 4 * n);
    KG_ARM(cell, source, &cost,
           KG_OPS(cell, matvec, dequantize)(type->type, kg_ptr(dsrc), kg_ptr(dy),
                                            (int64_t)n, kg_stream(cell)));
    kg_check_exact(cell, source, canonical(cell, kg_fetch(dy), n),
                   canonical(cell, want->data, n), n, 4);
}

static void run_dequant(struct kg_cell *cell, const void *row)
{
    const struct kg_oracle_type *type = row;

    check_dequant(cell, type, "weight", "expected_f32");
    if (type->split)
        check_dequant(cell, type, "rawbytes", "rawbytes.expected_f32");
}

/*
 * Stage A against unit vectors: output [e][b] is element e of block b, exactly. The
 * matrix is the tensor with one block a row, so that a block with an infinity spoils only
 * its own outputs: 0 * inf makes them NaN, in the kernel as in the oracle.
 */
static void run_unit(struct kg_cell *cell, const void *row)
{
    const struct kg_oracle_type *type = row;
    const struct kg_tensor *src = golden(cell, type, type->split ? "rawbytes" : "weight");
    const struct kg_type_info *info = kg_type_info(type->type);
    int64_t in = info->block > 1 ? info->block : 32;
    int64_t out = src->ne[0] * src->ne[1] / in;
    size_t n = (size_t)(in * out);
    float *x = kg_alloc(cell, (size_t)(in * in) * sizeof *x);
    double *y = kg_alloc(cell, n * sizeof *y);
    float *want = kg_alloc(cell, n * sizeof *want);

    need_type(cell, type, src);
    for (int64_t i = 0; i < in; i++)
        x[i * in + i] = 1;
    struct kg_buf *dw = kg_input(cell, "w", src->data, src->bytes);
    struct kg_buf *dx = kg_input(cell, "x", x, (size_t)(in * in) * sizeof *x);
    struct kg_buf *dy = kg_output(cell, "y", n * sizeof *want);
    KG_ARM(cell, "stage-a", NULL,
           KG_OPS(cell, matvec, stage_a)(type->type, kg_ptr(dw), kg_ptr(dx), kg_ptr(dy),
                                         in, out, in, kg_stream(cell)));
    kg_oracle_must(cell, kg_oracle_linear_f32(type, src->data, x, y, NULL, in, out, in));
    float *got = canonical(cell, kg_fetch(dy), n);
    for (size_t i = 0; i < n; i++) { /* the sign of a zero sum is not checked */
        want[i] = y[i] == y[i] ? (float)y[i] + 0.0f : NAN;
        got[i] = got[i] == 0 ? 0 : got[i];
    }
    kg_check_exact(cell, "unit", got, want, n, 4);
}

static void run_golden_a(struct kg_cell *cell, const void *row)
{
    const struct kg_tensor *src = golden(cell, row, "weight");

    need_type(cell, row, src);
    struct kg_weights w = kg_weights_of(cell, src);
    kg_run_stage_a(cell, &w, 2, 61);
}

static void run_golden_b(struct kg_cell *cell, const void *row)
{
    const struct kg_tensor *src = golden(cell, row, "weight");

    need_type(cell, row, src);
    struct kg_weights w = kg_weights_of(cell, src);
    kg_run_stage_b(cell, &w, 2, 61);
}

/* ---- ragged shapes ---- */

/* Odd numbers of blocks, few and odd rows, batches around the kernels' tile of four. A
   plain float type counts 37 elements as a block. */
struct shape {
    int blocks, out, m;
};

static const struct shape shapes[] = {
    {1,  1, 1},
    {3,  3, 2},
    {5,  7, 5},
    {17, 3, 1},
    {33, 7, 5},
    {65, 1, 2},
};

struct ragged {
    const struct kg_oracle_type *type;
    const struct shape *shape;
    int64_t in;
};

static void run_ragged_a(struct kg_cell *cell, const void *row)
{
    const struct ragged *r = row;
    struct kg_weights w = kg_weights_made(cell, r->type, r->in, r->shape->out);

    kg_run_stage_a(cell, &w, r->shape->m, 7);
}

static void run_ragged_b(struct kg_cell *cell, const void *row)
{
    const struct ragged *r = row;
    struct kg_weights w = kg_weights_made(cell, r->type, r->in, r->shape->out);

    kg_run_stage_b(cell, &w, r->shape->m, 7);
}

/* ---- q8_1 ---- */

struct q8_1_row {
    const char *id;
    int64_t rows, cols;
    /* fills block b of x, which starts as the pinned vector */
    void (*fill)(float *x, int64_t b);
};

/* d = 2^(b - 2), so that every other value is half way between two codes. */
static void fill_ties(float *x, int64_t b)
{
    float d = ldexpf(1, (int)(b % 8) - 2);

    for (int i = 0; i < 32; i++)
        x[i] = d * ((float)(i - 16) + 0.5f) * (i % 3 == 0 ? 3 : 1);
    x[b % 32] = b % 2 ? -127 * d : 127 * d;
}

static void fill_zero_blocks(float *x, int64_t b)
{
    for (int i = 0; i < 32 && b % 2 == 0; i++)
        x[i] = i % 5 == 0 ? -0.0f : 0.0f;
}

/* The sum of a block goes from 65504, the largest half, to past 10^37. */
static void fill_large_sum(float *x, int64_t b)
{
    static const float levels[] = {2047, 2048, 3000, 1e6f, 1e20f, 5e35f};

    for (int i = 0; i < 32; i++)
        x[i] = levels[b / 2 % 6] * (b % 2 ? -1 : 1) * (1 - (float)i / 4096);
}

/* amax = 127 * 2^-n: the scale is the smallest normal, subnormal with a finite inverse,
   with an infinite one, the smallest subnormal, and zero though the block is not. */
static void fill_tiny(float *x, int64_t b)
{
    static const int exponents[] = {-126, -127, -128, -133, -149, -151};
    double top = ldexp(127, exponents[b % 6]);

    for (int i = 0; i < 32; i++)
        x[i] = (float)(top * (1 - i / 16.0));
}

static const struct q8_1_row q8_1_rows[] = {
    {"random",      5, 224,  NULL            },
    {"one-block",   1, 32,   NULL            },
    {"ties",        3, 256,  fill_ties       },
    {"zero-blocks", 3, 160,  fill_zero_blocks},
    {"large-sum",   2, 192,  fill_large_sum  },
    {"tiny",        2, 192,  fill_tiny       },
    {"long-row",    1, 4128, NULL            },
};

static void run_q8_1(struct kg_cell *cell, const void *row_)
{
    const struct q8_1_row *row = row_;
    float *x = kg_pr(cell, (size_t)(row->rows * row->cols), 17, 0.1f);

    for (int64_t b = 0; row->fill && b < row->rows * row->cols / 32; b++)
        row->fill(x + 32 * b, b);
    kg_param_i(cell, "rows", row->rows);
    kg_param_i(cell, "cols", row->cols);
    kg_run_q8_1(cell, x, row->rows, row->cols);
}

/* Blocks with a NaN, and with an infinity, whose scale is one and whose sum is NaN, between
   plain ones. NaNs differ in payload between devices, so the codes alone are compared as
   they are. */
static void run_q8_1_nan(struct kg_cell *cell, const void *row)
{
    enum { BLOCKS = 12, N = 32 * BLOCKS };
    static const float values[] = {NAN, INFINITY, -INFINITY};
    float *x = kg_pr(cell, N, 19, 0.1f);
    int8_t *q = kg_alloc(cell, N);
    float *d = kg_alloc(cell, BLOCKS * sizeof *d),
          *s = kg_alloc(cell, BLOCKS * sizeof *s);

    (void)row;
    for (int b = 0; b < BLOCKS; b++) /* every third block is plain, each lane is hit */
        if (b % 3 != 2)
            x[32 * b + 11 * b % 32] = values[b / 3 % 3];
    struct kg_buf *dx = kg_input(cell, "x", x, N * sizeof *x);
    struct kg_buf *dq = kg_output(cell, "q", N);
    struct kg_buf *dd = kg_output(cell, "d", BLOCKS * sizeof *d);
    struct kg_buf *ds = kg_output(cell, "s", BLOCKS * sizeof *s);
    KG_ARM(cell, "q8_1", NULL,
           KG_OPS(cell, matvec, quantize_q8_1)(kg_ptr(dx), kg_ptr(dq), kg_ptr(dd),
                                               kg_ptr(ds), 2, N / 2, kg_stream(cell)));
    kg_oracle_q8_1(x, q, d, s, 2, N / 2);
    kg_check_exact(cell, "q", kg_fetch(dq), q, N, 1);
    kg_check_exact(cell, "d", canonical(cell, kg_fetch(dd), BLOCKS),
                   canonical(cell, d, BLOCKS), BLOCKS, 4);
    kg_check_exact(cell, "s", canonical(cell, kg_fetch(ds), BLOCKS),
                   canonical(cell, s, BLOCKS), BLOCKS, 4);
}

/* ---- eight-bit scales ---- */

/* Every scale code of MXFP4 and NVFP4, with every element code in both nibbles. */
static void run_scale_codes(struct kg_cell *cell, const void *row)
{
    const struct kg_oracle_type *type = row;
    const struct kg_type_info *info = kg_type_info(type->type);
    size_t bytes = (size_t)info->bytes, n = (size_t)info->block * 256;
    size_t n_scales = bytes - (size_t)info->block / 2;
    uint8_t *w = kg_alloc(cell, 256 * bytes);
    float *want = kg_alloc(cell, n * sizeof *want);

    for (size_t b = 0; b < 256; b++)
        for (size_t i = 0; i < bytes; i++)
            w[b * bytes + i] = i < n_scales ? (uint8_t)(b + 64 * i)
                                            : (uint8_t)(i % 16 | (i + b) % 16 << 4);
    struct kg_buf *dw = kg_input(cell, "w", w, 256 * bytes);
    struct kg_buf *dy = kg_output(cell, "y", n * sizeof *want);
    KG_ARM(cell, "dequantize", NULL,
           KG_OPS(cell, matvec, dequantize)(type->type, kg_ptr(dw), kg_ptr(dy),
                                            (int64_t)n, kg_stream(cell)));
    kg_oracle_dequantize(type, w, want, (int64_t)n);
    kg_check_exact(cell, "values", kg_fetch(dy), want, n, 4);
}

/*
 * Stage B on E8M0 scales at both ends of the f32 range, where scale times activation alone
 * leaves it though the result does not: the first half of a row's units has activations
 * of 1000 and the second of 2^-8; even rows have the largest scale and only zeros as codes
 * in the first half, odd rows zeros there and the smallest scales in the second.
 */
static void run_scale_range(struct kg_cell *cell, const void *row)
{
    enum { UNITS = 6, OUT = 5, IN = 32 * UNITS };
    struct kg_weights w = kg_weights_made(cell, row, IN, OUT);
    uint8_t *blocks = kg_alloc(cell, OUT * UNITS * 17);
    float *x = kg_pr(cell, IN, 23, 1);

    memcpy(blocks, w.data, OUT * UNITS * 17);
    w.data = blocks;
    for (int i = 0; i < OUT * UNITS; i++) {
        uint8_t *block = blocks + 17 * i;
        bool odd_row = i / UNITS % 2 != 0, first = i % UNITS < UNITS / 2;
        if (first)
            memset(block + 1, 0, 16);
        if (first && !odd_row)
            block[0] = 254;
        if (!first && odd_row)
            block[0] = (uint8_t)(i % 3);
    }
    for (int i = 0; i < IN; i++)
        x[i] *= i < IN / 2 ? 1000 : 0x1p-8f;
    kg_run_stage_b_on(cell, &w, 1, x);
}

/* ---- plan ---- */

static void add(struct kg_plan *p, const struct kg_oracle_type *type, const char *what,
                kg_cell_fn *run)
{
    /* MXFP4 blocks can hold infinities, and 0 * inf is a NaN whose sign and payload IEEE 754
       leaves open: a GPU's differ from a CPU's. */
    bool makes_nan = type->type == KG_TYPE_MXFP4 && run == run_unit;
    kg_plan_addf(p,
                 &(struct kg_cell_spec){NULL, run, type, "golden",
                                        makes_nan ? 0 : KG_CELL_ORDERED},
                 "dtypes.%s.%s", type->id, what);
}

static void add_ragged(struct kg_plan *p, const struct kg_oracle_type *type,
                       const char *stage, kg_cell_fn *run)
{
    const struct kg_type_info *info = kg_type_info(type->type);

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct ragged *row = kg_plan_alloc(p, sizeof *row);
        *row = (struct ragged){type, &shapes[i],
                               shapes[i].blocks * (info->block > 1 ? info->block : 37)};
        kg_plan_addf(p, &(struct kg_cell_spec){NULL, run, row, NULL, KG_CELL_ORDERED},
                     "dtypes.%s.%s.%dx%d-m%d", type->id, stage, (int)row->in,
                     row->shape->out, row->shape->m);
    }
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof q8_1_rows / sizeof q8_1_rows[0]; i++)
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run_q8_1, &q8_1_rows[i], NULL, KG_CELL_ORDERED},
            "dtypes.q8_1.%s", q8_1_rows[i].id);
    kg_plan_add(p,
                &(struct kg_cell_spec){"dtypes.q8_1.nan", run_q8_1_nan, NULL, NULL, 0});
    for (size_t i = 0; i < kg_oracle_n_types; i++) {
        const struct kg_oracle_type *type = &kg_oracle_types[i];
        if (type->type == KG_TYPE_MXFP4 || type->type == KG_TYPE_NVFP4)
            add(p, type, "scale-codes", run_scale_codes);
        if (type->type == KG_TYPE_MXFP4)
            add(p, type, "scale-range", run_scale_range);
        add(p, type, "dequant", run_dequant);
        add(p, type, "unit", run_unit);
        add(p, type, "stage-a", run_golden_a);
        add_ragged(p, type, "stage-a", run_ragged_a);
        if (type->stage_b) {
            add(p, type, "stage-b", run_golden_b);
            add_ragged(p, type, "stage-b", run_ragged_b);
        }
    }
}

static const struct kg_role roles[] = {
    {"golden", "gguf", "every weight type with ggml's own values"},
    {NULL,     NULL,   NULL                                      },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "dtypes",
    .summary = "dequantization, stages A and B and q8_1 for every weight type",
    .roles = roles,
    .plan = plan,
};
