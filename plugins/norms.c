/*
 * norms: normalization of rows, alone and fused.
 *
 * Every kernel is held against f64. A fused one must also give the bits of the chain that it
 * replaces, and the chain's codes those of the host's quantizer. "hard" rows are those of
 * kg_hard_rows; lengths that are no multiple of a vector, a warp or a block stand beside
 * those of models, and lengths past what a row's threads hold in registers.
 */
#include "plugins/oracle/norm.h"
#include "plugins/oracle/oracle.h"
#include "plugins/row_cells.h"

#define EPS 1e-6f

enum input { PINNED, HARD, TINY /* scales of codes are subnormal */, BENCH };

struct row {
    const char *id;
    kg_cell_fn *run;
    int64_t cols, rows;
    enum input input;
};

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

/* What a cell starts with: its shape in the parameters, and the rows of the input. */
static const float *begin(struct kg_cell *c, const struct row *row, uint64_t offset,
                          float shift)
{
    if (row->input == BENCH)
        kg_needs_gpu(c);
    kg_param_i(c, "cols", row->cols);
    kg_param_i(c, "rows", row->rows);
    kg_param_f(c, "eps", EPS);
    return row->input == HARD
               ? kg_hard_rows(c, row->rows, row->cols, offset)
               : kg_pr_around(c, (size_t)(row->rows * row->cols), offset,
                              row->input == TINY ? 0x1p-133f : 1.0f, shift);
}

static const float *weight(struct kg_cell *c, const struct row *row, uint64_t offset)
{
    return kg_pr_around(c, (size_t)row->cols, offset, 0.1f, 0.5f);
}

/* Bytes of n f32 arrays in and out, of the weight, and of codes if there are any. */
static struct kg_cost cost_of(const struct row *row, double arrays, bool has_weight,
                              bool codes, double ops)
{
    double n = (double)(row->rows * row->cols);

    return (struct kg_cost){n * (4 * arrays + (codes ? 1.25 : 0)) +
                                (has_weight ? 4.0 * (double)row->cols : 0),
                            n * ops, "f32"};
}

/* `prefix`-band and -bound: got against f64 on the rows that the oracle looks at. */
static void check_norm(struct kg_cell *c, const struct row *row, const float *got,
                       const float *x, const float *w, const float *z, double divisor)
{
    struct kg_rows s = kg_sample_rows(c, row->rows, row->cols);
    size_t width = floats(row->cols);
    struct kg_reference r = kg_reference_of(c, s.count * row->cols);

    got = kg_take_rows(c, &s, got, width);
    kg_oracle_norm(kg_take_rows(c, &s, x, width), w,
                   z ? kg_take_rows(c, &s, z, width) : z, r.want, r.bound, s.count,
                   row->cols, divisor, EPS);
    kg_check_absolute(c, "band", got, r.want, r.count, 1e-4);
    kg_check_bound(c, "bound", got, r.want, r.bound, r.count);
}

static void run_rms_norm(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    const float *x = begin(c, row, 0, 0), *w = weight(c, row, 9);
    struct kg_cost cost = cost_of(row, 2, true, false, 4);
    struct kg_buf *dx = kg_input(c, "x", x, floats(row->rows * row->cols));
    struct kg_buf *dw = kg_input(c, "w", w, floats(row->cols));
    struct kg_buf *dy = kg_output(c, "y", floats(row->rows * row->cols));

    KG_ARM(c, "base", &cost,
           KG_OPS(c, norm, rms_norm)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dy), row->rows,
                                     row->cols, EPS, kg_stream(c)));
    check_norm(c, row, kg_fetch(dy), x, w, NULL, (double)row->cols);
}

static int each_row(struct kg_cell *c, const struct row *row, const float *x,
                    const float *w, float *y)
{
    for (int64_t r = 0; r < row->rows; r++)
        KG_TRY(KG_OPS(c, norm, rms_norm)(x + r * row->cols, w, y + r * row->cols, 1,
                                         row->cols, EPS, kg_stream(c)));
    return KG_OK;
}

/* A row of a batch has the bits that it has alone. */
static void run_alone(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    const float *x = begin(c, row, 0, 0), *w = weight(c, row, 9);
    size_t bytes = floats(row->rows * row->cols);
    struct kg_buf *dx = kg_input(c, "x", x, bytes);
    struct kg_buf *dw = kg_input(c, "w", w, floats(row->cols));
    struct kg_buf *dy = kg_output(c, "y", bytes), *da = kg_output(c, "y-alone", bytes);

    KG_ARM(c, "batch", NULL,
           KG_OPS(c, norm, rms_norm)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dy), row->rows,
                                     row->cols, EPS, kg_stream(c)));
    KG_ARM(c, "alone", NULL, each_row(c, row, kg_ptr(dx), kg_ptr(dw), kg_ptr(da)));
    kg_check_exact(c, "alone", kg_fetch(da), kg_fetch(dy), bytes / 4, 4);
}

static void run_l2_norm(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    const float *x = begin(c, row, 3, 0);
    struct kg_cost cost = cost_of(row, 2, false, false, 3);
    struct kg_buf *dx = kg_input(c, "x", x, floats(row->rows * row->cols));
    struct kg_buf *dy = kg_output(c, "y", floats(row->rows * row->cols));

    KG_ARM(c, "base", &cost,
           KG_OPS(c, norm, l2_norm)(kg_ptr(dx), kg_ptr(dy), row->rows, row->cols, EPS,
                                    kg_stream(c)));
    check_norm(c, row, kg_fetch(dy), x, NULL, NULL, 1);
}

/* rows of q, and a quarter as many (at least one) of k and of v: 4 heads share one. */
static void run_qkv(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t cols = row->cols;
    const struct row rows[3] = {
        *row,
        {"k", NULL, cols, (row->rows + 3) / 4, row->input},
        {"v", NULL, cols, (row->rows + 3) / 4, row->input},
    };
    static const char *const names[3][4] = {
        {"q", "wq", "yq", "yq-alone"},
        {"k", "wk", "yk", "yk-alone"},
        {"v", "wv", "yv", "yv-alone"},
    };
    static const uint64_t x_offset[3] = {29, 31, 37};
    const float *x[3], *w[3];
    struct kg_buf *dx[3], *dw[3], *dy[3], *da[3];

    begin(c, row, 29, 0);
    for (int i = 0; i < 3; i++) {
        int64_t n = rows[i].rows * cols;
        x[i] = row->input == HARD ? kg_hard_rows(c, rows[i].rows, cols, x_offset[i])
                                  : kg_pr(c, (size_t)n, x_offset[i], 1.0f);
        w[i] = i == 2 ? kg_pr_around(c, (size_t)cols, 0, 0.0f, 1.0f)
                      : weight(c, row, i == 0 ? 41 : 43);
        dx[i] = kg_input(c, names[i][0], x[i], floats(n));
        dw[i] = kg_input(c, names[i][1], w[i], floats(cols));
        dy[i] = kg_output(c, names[i][2], floats(n));
        da[i] = kg_output(c, names[i][3], floats(n));
    }
    KG_ARM(c, "base", NULL,
           KG_OPS(c, norm, rms_norm_qkv)(
               kg_ptr(dx[0]), kg_ptr(dx[1]), kg_ptr(dx[2]), kg_ptr(dw[0]), kg_ptr(dw[1]),
               kg_ptr(dw[2]), kg_ptr(dy[0]), kg_ptr(dy[1]), kg_ptr(dy[2]), rows[0].rows,
               rows[1].rows, cols, EPS, kg_stream(c)));
    for (int i = 0; i < 3; i++)
        KG_ARM(c, names[i][0], NULL,
               KG_OPS(c, norm, rms_norm)(kg_ptr(dx[i]), kg_ptr(dw[i]), kg_ptr(da[i]),
                                         rows[i].rows, cols, EPS, kg_stream(c)));
    int64_t n = 0;
    struct kg_reference r = kg_reference_of(c, (rows[0].rows + 2 * rows[1].rows) * cols);
    float *got = kg_alloc(c, floats((int64_t)r.count));
    for (int i = 0; i < 3; i++) {
        int64_t count = rows[i].rows * cols;
        const float *y = kg_fetch(dy[i]);
        for (int64_t k = 0; k < count; k++)
            got[n + k] = y[k];
        kg_oracle_norm(x[i], w[i], NULL, r.want + n, r.bound + n, rows[i].rows, cols,
                       (double)cols, EPS);
        kg_check_exact(c, names[i][3], y, kg_fetch(da[i]), (size_t)count, 4);
        n += count;
    }
    kg_check_absolute(c, "band", got, r.want, r.count, 1e-4);
    kg_check_bound(c, "bound", got, r.want, r.bound, r.count);
}

/* ---- fused forms ---- */

/* Codes, scales and sums in device memory. */
struct q8_1 {
    struct kg_buf *q, *d, *s;
};

static struct q8_1 q8_1_output(struct kg_cell *c, const char *q, const char *d,
                               const char *s, int64_t n)
{
    return (struct q8_1){kg_output(c, q, (size_t)n), kg_output(c, d, floats(n / 32)),
                         kg_output(c, s, floats(n / 32))};
}

/* The fused codes against the chain's, and the chain's against the host's from its own
   f32 result y. */
static void check_q8_1(struct kg_cell *c, const struct row *row, struct q8_1 fused,
                       struct q8_1 chain, const float *y)
{
    int64_t n = row->rows * row->cols, cols = row->cols;
    struct kg_rows r = kg_sample_rows(c, row->rows, cols);
    size_t taken = (size_t)(r.count * cols);
    int8_t *q = kg_alloc(c, taken);
    float *d = kg_alloc(c, taken / 8), *s = kg_alloc(c, taken / 8);
    const void *cq = kg_fetch(chain.q), *cd = kg_fetch(chain.d), *cs = kg_fetch(chain.s);

    kg_check_exact(c, "q", kg_fetch(fused.q), cq, (size_t)n, 1);
    kg_check_exact(c, "d", kg_fetch(fused.d), cd, (size_t)n / 32, 4);
    kg_check_exact(c, "s", kg_fetch(fused.s), cs, (size_t)n / 32, 4);
    kg_oracle_q8_1(kg_take_rows(c, &r, y, floats(cols)), q, d, s, r.count, cols);
    kg_check_exact(c, "q-host", kg_take_rows(c, &r, cq, (size_t)cols), q, taken, 1);
    kg_check_exact(c, "d-host", kg_take_rows(c, &r, cd, (size_t)cols / 8), d, taken / 32,
                   4);
    kg_check_exact(c, "s-host", kg_take_rows(c, &r, cs, (size_t)cols / 8), s, taken / 32,
                   4);
}

static void run_rms_norm_q8_1(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t rows = row->rows, cols = row->cols, n = rows * cols;
    const float *x = begin(c, row, 31, 0), *w = weight(c, row, 41);
    struct kg_cost cost = cost_of(row, 1, true, true, 8);
    struct kg_buf *dx = kg_input(c, "x", x, floats(n));
    struct kg_buf *dw = kg_input(c, "w", w, floats(cols));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    struct q8_1 chain = q8_1_output(c, "q-chain", "d-chain", "s-chain", n);
    struct q8_1 fused = q8_1_output(c, "q", "d", "s", n);

    KG_ARM(c, "chain", NULL,
           KG_SEQ(KG_OPS(c, norm, rms_norm)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dy), rows,
                                            cols, EPS, kg_stream(c)),
                  KG_OPS(c, matvec, quantize_q8_1)(kg_ptr(dy), kg_ptr(chain.q),
                                                   kg_ptr(chain.d), kg_ptr(chain.s), rows,
                                                   cols, kg_stream(c))));
    const float *y = kg_fetch(dy);
    KG_ARM(c, "fused", &cost,
           KG_OPS(c, norm, rms_norm_q8_1)(kg_ptr(dx), kg_ptr(dw), kg_ptr(fused.q),
                                          kg_ptr(fused.d), kg_ptr(fused.s), rows, cols,
                                          EPS, kg_stream(c)));
    check_norm(c, row, y, x, w, NULL, (double)cols);
    check_q8_1(c, row, fused, chain, y);
}

/* Hard rows are added to rows of the same character. */
static const float *addend(struct kg_cell *c, const struct row *row)
{
    return row->input == HARD ? kg_hard_rows(c, row->rows, row->cols, 67)
                              : kg_pr(c, (size_t)(row->rows * row->cols), 67, 1.0f);
}

static const float *sum_of(struct kg_cell *c, const float *a, const float *b, int64_t n)
{
    float *sum = kg_alloc(c, floats(n));

    for (int64_t i = 0; i < n; i++)
        sum[i] = a[i] + b[i];
    return sum;
}

static void run_add_rms_norm(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t rows = row->rows, cols = row->cols, n = rows * cols;
    const float *a = begin(c, row, 61, 0), *b = addend(c, row), *w = weight(c, row, 71);
    struct kg_cost cost = cost_of(row, 4, true, false, 5);
    struct kg_buf *da = kg_input(c, "a", a, floats(n));
    struct kg_buf *db = kg_input(c, "b", b, floats(n));
    struct kg_buf *dw = kg_input(c, "w", w, floats(cols));
    struct kg_buf *dr = kg_output(c, "res", floats(n)),
                  *dy = kg_output(c, "y", floats(n));
    struct kg_buf *cr = kg_output(c, "res-chain", floats(n));
    struct kg_buf *cy = kg_output(c, "y-chain", floats(n));

    KG_ARM(c, "chain", NULL,
           KG_SEQ(KG_OPS(c, elementwise, add)(kg_ptr(da), kg_ptr(db), kg_ptr(cr), n,
                                              kg_stream(c)),
                  KG_OPS(c, norm, rms_norm)(kg_ptr(cr), kg_ptr(dw), kg_ptr(cy), rows,
                                            cols, EPS, kg_stream(c))));
    KG_ARM(c, "fused", &cost,
           KG_OPS(c, norm, add_rms_norm)(kg_ptr(da), kg_ptr(db), kg_ptr(dw), kg_ptr(dr),
                                         kg_ptr(dy), rows, cols, EPS, kg_stream(c)));
    const float *y = kg_fetch(dy), *res = kg_fetch(dr), *sum = sum_of(c, a, b, n);
    kg_check_exact(c, "res", res, kg_fetch(cr), (size_t)n, 4);
    kg_check_exact(c, "y", y, kg_fetch(cy), (size_t)n, 4);
    kg_check_exact(c, "res-host", res, sum, (size_t)n, 4);
    check_norm(c, row, y, sum, w, NULL, (double)cols);
}

static void run_add_rms_norm_q8_1(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t rows = row->rows, cols = row->cols, n = rows * cols;
    const float *a = begin(c, row, 61, 0), *b = addend(c, row), *w = weight(c, row, 71);
    struct kg_cost cost = cost_of(row, 3, true, true, 9);
    struct kg_buf *da = kg_input(c, "a", a, floats(n));
    struct kg_buf *db = kg_input(c, "b", b, floats(n));
    struct kg_buf *dw = kg_input(c, "w", w, floats(cols));
    struct kg_buf *dr = kg_output(c, "res", floats(n));
    struct kg_buf *cr = kg_output(c, "res-chain", floats(n));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    struct q8_1 chain = q8_1_output(c, "q-chain", "d-chain", "s-chain", n);
    struct q8_1 fused = q8_1_output(c, "q", "d", "s", n);

    KG_ARM(c, "chain", NULL,
           KG_SEQ(KG_OPS(c, elementwise, add)(kg_ptr(da), kg_ptr(db), kg_ptr(cr), n,
                                              kg_stream(c)),
                  KG_SEQ(KG_OPS(c, norm, rms_norm)(kg_ptr(cr), kg_ptr(dw), kg_ptr(dy),
                                                   rows, cols, EPS, kg_stream(c)),
                         KG_OPS(c, matvec, quantize_q8_1)(
                             kg_ptr(dy), kg_ptr(chain.q), kg_ptr(chain.d),
                             kg_ptr(chain.s), rows, cols, kg_stream(c)))));
    const float *y = kg_fetch(dy);
    KG_ARM(c, "fused", &cost,
           KG_OPS(c, norm, add_rms_norm_q8_1)(
               kg_ptr(da), kg_ptr(db), kg_ptr(dw), kg_ptr(dr), kg_ptr(fused.q),
               kg_ptr(fused.d), kg_ptr(fused.s), rows, cols, EPS, kg_stream(c)));
    const float *sum = sum_of(c, a, b, n), *res = kg_fetch(dr);
    kg_check_exact(c, "res", res, kg_fetch(cr), (size_t)n, 4);
    kg_check_exact(c, "res-host", res, sum, (size_t)n, 4);
    check_norm(c, row, y, sum, w, NULL, (double)cols);
    check_q8_1(c, row, fused, chain, y);
}

static void run_gated_rmsnorm_q8_1(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t rows = row->rows, cols = row->cols, n = rows * cols;
    const float *x = begin(c, row, 83, 0), *w = weight(c, row, 97);
    /* hard rows: gates over the whole of silu's curve */
    const float *z =
        kg_pr_around(c, (size_t)n, 89, row->input == HARD ? 30.0f : 1.0f, -0.5f);
    struct kg_cost cost = cost_of(row, 2, true, true, 28);
    struct kg_buf *dx = kg_input(c, "x", x, floats(n));
    struct kg_buf *dw = kg_input(c, "w", w, floats(cols));
    struct kg_buf *dz = kg_input(c, "z", z, floats(n));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    struct q8_1 chain = q8_1_output(c, "q-chain", "d-chain", "s-chain", n);
    struct q8_1 fused = q8_1_output(c, "q", "d", "s", n);

    KG_ARM(
        c, "chain", NULL,
        KG_SEQ(KG_OPS(c, norm, gated_rmsnorm)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dz),
                                              kg_ptr(dy), rows, cols, EPS, kg_stream(c)),
               KG_OPS(c, matvec, quantize_q8_1)(kg_ptr(dy), kg_ptr(chain.q),
                                                kg_ptr(chain.d), kg_ptr(chain.s), rows,
                                                cols, kg_stream(c))));
    const float *y = kg_fetch(dy);
    KG_ARM(c, "fused", &cost,
           KG_OPS(c, norm, gated_rmsnorm_q8_1)(
               kg_ptr(dx), kg_ptr(dw), kg_ptr(dz), kg_ptr(fused.q), kg_ptr(fused.d),
               kg_ptr(fused.s), rows, cols, EPS, kg_stream(c)));
    check_norm(c, row, y, x, w, z, (double)cols);
    check_q8_1(c, row, fused, chain, y);
}

/* Lengths: rows of one warp end at 512, of 128 threads at 2048, of 512 at 8192; a thread
   keeps 16 elements, so that above 16384 rows are read twice. */
static const struct row rows[] = {
    {"rms_norm.320x4",                  run_rms_norm,           320,   4,      PINNED},
    {"rms_norm.hard.320x9",             run_rms_norm,           320,   9,      HARD  },
    {"rms_norm.hard.1x5",               run_rms_norm,           1,     5,      HARD  },
    {"rms_norm.hard.33x9",              run_rms_norm,           33,    9,      HARD  },
    {"rms_norm.hard.513x5",             run_rms_norm,           513,   5,      HARD  },
    {"rms_norm.hard.1152x8",            run_rms_norm,           1152,  8,      HARD  },
    {"rms_norm.hard.5002x2",            run_rms_norm,           5002,  2,      HARD  },
    {"rms_norm.hard.8192x5",            run_rms_norm,           8192,  5,      HARD  },
    {"rms_norm.hard.9001x1",            run_rms_norm,           9001,  1,      HARD  },
    {"rms_norm.hard.20004x2",           run_rms_norm,           20004, 2,      HARD  },
    {"rms_norm.hard.20003x1",           run_rms_norm,           20003, 1,      HARD  },
    {"rms_norm.alone.320x9",            run_alone,              320,   9,      HARD  },
    {"rms_norm.alone.4096x5",           run_alone,              4096,  5,      HARD  },
    {"rms_norm_qkv.512x128",            run_qkv,                512,   128,    PINNED},
    {"rms_norm_qkv.hard.130x5",         run_qkv,                130,   5,      HARD  },
    {"rms_norm_qkv.hard.1056x9",        run_qkv,                1056,  9,      HARD  },
    {"l2_norm.128x6",                   run_l2_norm,            128,   6,      PINNED},
    {"l2_norm.hard.33x9",               run_l2_norm,            33,    9,      HARD  },
    {"l2_norm.hard.1030x2",             run_l2_norm,            1030,  2,      HARD  },
    {"l2_norm.hard.4100x5",             run_l2_norm,            4100,  5,      HARD  },
    {"add_rms_norm.4096x1",             run_add_rms_norm,       4096,  1,      PINNED},
    {"add_rms_norm.hard.100x9",         run_add_rms_norm,       100,   9,      HARD  },
    {"add_rms_norm.hard.1027x5",        run_add_rms_norm,       1027,  5,      HARD  },
    {"add_rms_norm.hard.20004x1",       run_add_rms_norm,       20004, 1,      HARD  },
    {"rms_norm_q8_1.4096x1",            run_rms_norm_q8_1,      4096,  1,      PINNED},
    {"rms_norm_q8_1.tiny.256x3",        run_rms_norm_q8_1,      256,   3,      TINY  },
    {"rms_norm_q8_1.tiny.96x5",         run_rms_norm_q8_1,      96,    5,      TINY  },
    {"rms_norm_q8_1.4096x5",            run_rms_norm_q8_1,      4096,  5,      PINNED},
    {"rms_norm_q8_1.hard.32x9",         run_rms_norm_q8_1,      32,    9,      HARD  },
    {"rms_norm_q8_1.hard.1056x8",       run_rms_norm_q8_1,      1056,  8,      HARD  },
    {"rms_norm_q8_1.hard.16416x2",      run_rms_norm_q8_1,      16416, 2,      HARD  },
    {"add_rms_norm_q8_1.4096x1",        run_add_rms_norm_q8_1,  4096,  1,      PINNED},
    {"add_rms_norm_q8_1.4096x2",        run_add_rms_norm_q8_1,  4096,  2,      PINNED},
    {"add_rms_norm_q8_1.4096x4",        run_add_rms_norm_q8_1,  4096,  4,      PINNED},
    {"add_rms_norm_q8_1.4096x5",        run_add_rms_norm_q8_1,  4096,  5,      PINNED},
    {"add_rms_norm_q8_1.4096x8",        run_add_rms_norm_q8_1,  4096,  8,      PINNED},
    {"add_rms_norm_q8_1.hard.1184x9",   run_add_rms_norm_q8_1,  1184,  9,      HARD  },
    {"add_rms_norm_q8_1.hard.16416x1",  run_add_rms_norm_q8_1,  16416, 1,      HARD  },
    {"gated_rmsnorm_q8_1.128x16",       run_gated_rmsnorm_q8_1, 128,   16,     PINNED},
    {"gated_rmsnorm_q8_1.128x80",       run_gated_rmsnorm_q8_1, 128,   80,     PINNED},
    {"gated_rmsnorm_q8_1.hard.544x9",   run_gated_rmsnorm_q8_1, 544,   9,      HARD  },
    {"gated_rmsnorm_q8_1.hard.16416x1", run_gated_rmsnorm_q8_1, 16416, 1,      HARD  },
    {"bench.rms_norm",                  run_rms_norm,           8192,  8192,   BENCH },
    {"bench.l2_norm",                   run_l2_norm,            8192,  8192,   BENCH },
    {"bench.add_rms_norm",              run_add_rms_norm,       8192,  8192,   BENCH },
    {"bench.rms_norm_q8_1",             run_rms_norm_q8_1,      8192,  8192,   BENCH },
    {"bench.add_rms_norm_q8_1",         run_add_rms_norm_q8_1,  8192,  8192,   BENCH },
    {"bench.gated_rmsnorm_q8_1",        run_gated_rmsnorm_q8_1, 8192,  8192,   BENCH },
    {"bench.gated_rmsnorm_q8_1-heads",  run_gated_rmsnorm_q8_1, 128,   524288, BENCH },
};

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t optional = rows[i].input == BENCH ? KG_CELL_OPTIONAL : 0;
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, rows[i].run, &rows[i], NULL,
                                            KG_CELL_ORDERED | optional},
                     "norms.%s", rows[i].id);
    }
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "norms",
    .summary = "rms and l2 norms of rows, alone and fused with add, gate and q8_1",
    .plan = plan,
};
