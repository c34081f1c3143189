/*
 * elementwise: activations, their quantized forms, rotary positions and the logits mask.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "plugins/oracle/elementwise.h"
#include "plugins/oracle/norm.h"
#include "plugins/oracle/oracle.h"
#include "plugins/row_cells.h"

struct row {
    const char *id;
    kg_cell_fn *run;
    int64_t cols, rows;
    uint64_t gate_offset, up_offset;
    float scale, shift; /* of the inputs: pr * scale + shift */
    float gate_scale, up_scale;
    unsigned flags;
};

enum flag { GELU = 1, BENCH = 2 };

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static int64_t begin(struct kg_cell *c, const struct row *row)
{
    if (row->flags & BENCH)
        kg_needs_gpu(c);
    kg_param_i(c, "cols", row->cols);
    kg_param_i(c, "rows", row->rows);
    return row->cols * row->rows;
}

/* gate and up. A bench cell takes both from one long vector, which is made once. */
struct pair {
    const float *gate, *up;
};

static struct pair make_pair(struct kg_cell *c, const struct row *row, int64_t n)
{
    if (row->flags & BENCH) {
        const float *x = kg_pr_around(c, (size_t)n + 64, 0, row->scale, row->shift);
        return (struct pair){x, x + 64};
    }
    return (struct pair){
        kg_pr_around(c, (size_t)n, row->gate_offset, row->scale, row->shift),
        kg_pr_around(c, (size_t)n, row->up_offset, row->scale, row->shift)};
}

/* "band" where the row is one of the pinned ones, and "bound", on the oracle's rows. */
static void check_act(struct kg_cell *c, const struct row *row, const float *got,
                      struct pair in, double band)
{
    struct kg_rows s = kg_sample_rows(c, row->rows, row->cols);
    size_t width = floats(row->cols);
    struct kg_reference r = kg_reference_of(c, s.count * row->cols);

    got = kg_take_rows(c, &s, got, width);
    kg_oracle_act_mul(kg_take_rows(c, &s, in.gate, width),
                      kg_take_rows(c, &s, in.up, width), row->gate_scale, row->up_scale,
                      (row->flags & GELU) != 0, r.want, r.bound, (int64_t)r.count);
    if (band > 0)
        kg_check_absolute(c, "band", got, r.want, r.count, band);
    kg_check_bound(c, "bound", got, r.want, r.bound, r.count);
}

static void run_act_mul(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t n = begin(c, row);
    struct pair in = make_pair(c, row, n);
    struct kg_cost cost = {12.0 * (double)n, 25.0 * (double)n, "f32"};
    struct kg_buf *dg = kg_input(c, "gate", in.gate, floats(n));
    struct kg_buf *du = kg_input(c, "up", in.up, floats(n));
    struct kg_buf *dy = kg_output(c, "y", floats(n));

    if (row->flags & GELU)
        KG_ARM(c, "base", &cost,
               KG_OPS(c, elementwise, gelu_mul)(kg_ptr(dg), kg_ptr(du), kg_ptr(dy), n,
                                                kg_stream(c)));
    else
        KG_ARM(c, "base", &cost,
               KG_OPS(c, elementwise, silu_mul)(kg_ptr(dg), kg_ptr(du), kg_ptr(dy), n,
                                                kg_stream(c)));
    check_act(c, row, kg_fetch(dy), in, row->scale == 1 ? 1e-5 : 0);
}

/* Each of the numbers that exp has trouble with against each of some factors. */
static void run_special(struct kg_cell *c, const void *row)
{
    static const float gates[] = {NAN,    INFINITY, -INFINITY, 0,       -0.0f,
                                  88.5f,  -88.3f,   -88.5f,    -104.5f, -10.1f,
                                  1e-40f, -1e38f,   1e38f};
    static const float ups[] = {1, NAN, INFINITY, 0, -2};
    enum { GATES = sizeof gates / sizeof *gates, N = GATES * 5 };
    float gate[N], up[N];

    (void)row;
    for (int i = 0; i < N; i++) {
        gate[i] = gates[i % GATES];
        up[i] = ups[i / GATES];
        /* What is 0 in f32 and not in f64 times infinity is no fault. */
        if (isinf(up[i]) && isfinite(gate[i]) && gate[i] < -10)
            up[i] = 3;
    }
    struct kg_buf *dg = kg_input(c, "gate", gate, sizeof gate);
    struct kg_buf *du = kg_input(c, "up", up, sizeof up);
    struct kg_buf *ds = kg_output(c, "silu", sizeof gate);
    struct kg_buf *dt = kg_output(c, "gelu", sizeof gate);
    struct kg_reference r = kg_reference_of(c, N);

    KG_ARM(c, "silu", NULL,
           KG_OPS(c, elementwise, silu_mul)(kg_ptr(dg), kg_ptr(du), kg_ptr(ds), N,
                                            kg_stream(c)));
    kg_oracle_act_mul(gate, up, 1, 1, false, r.want, r.bound, N);
    kg_oracle_allow(c, KG_ORACLE_NONFINITE);
    kg_check_bound(c, "silu", kg_fetch(ds), r.want, r.bound, N);
    KG_ARM(c, "gelu", NULL,
           KG_OPS(c, elementwise, gelu_mul)(kg_ptr(dg), kg_ptr(du), kg_ptr(dt), N,
                                            kg_stream(c)));
    kg_oracle_act_mul(gate, up, 1, 1, true, r.want, r.bound, N);
    kg_oracle_allow(c, KG_ORACLE_NONFINITE);
    kg_check_bound(c, "gelu", kg_fetch(dt), r.want, r.bound, N);
}

static void run_add(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t n = begin(c, row);
    struct pair in = make_pair(c, row, n);
    struct kg_cost cost = {12.0 * (double)n, (double)n, "f32"};
    struct kg_buf *da = kg_input(c, "a", in.gate, floats(n));
    struct kg_buf *db = kg_input(c, "b", in.up, floats(n));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    float *want = kg_alloc(c, floats(n));

    KG_ARM(
        c, "base", &cost,
        KG_OPS(c, elementwise, add)(kg_ptr(da), kg_ptr(db), kg_ptr(dy), n, kg_stream(c)));
    for (int64_t i = 0; i < n; i++)
        want[i] = in.gate[i] + in.up[i];
    kg_check_exact(c, "sum", kg_fetch(dy), want, (size_t)n, 4);
}

/* ---- fused with the quantizers ---- */

/* The chain at unit scales is silu_mul, else silu_mul_scaled. */
static int chain_act(struct kg_cell *c, const struct row *row, const float *gate,
                     const float *up, float *y, int64_t n)
{
    if (row->flags & GELU)
        return KG_OPS(c, elementwise, gelu_mul)(gate, up, y, n, kg_stream(c));
    if (row->gate_scale == 1 && row->up_scale == 1)
        return KG_OPS(c, elementwise, silu_mul)(gate, up, y, n, kg_stream(c));
    return KG_OPS(c, elementwise, silu_mul_scaled)(gate, up, row->gate_scale,
                                                   row->up_scale, y, n, kg_stream(c));
}

static void run_silu_q8_1(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t n = begin(c, row), cols = row->cols;
    struct pair in = make_pair(c, row, n);
    struct kg_cost cost = {9.25 * (double)n, 30.0 * (double)n, "f32"};
    struct kg_buf *dg = kg_input(c, "gate", in.gate, floats(n));
    struct kg_buf *du = kg_input(c, "up", in.up, floats(n));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    struct kg_buf *cq = kg_output(c, "q-chain", (size_t)n);
    struct kg_buf *cd = kg_output(c, "d-chain", floats(n / 32));
    struct kg_buf *cs = kg_output(c, "s-chain", floats(n / 32));
    struct kg_buf *fq = kg_output(c, "q", (size_t)n);
    struct kg_buf *fd = kg_output(c, "d", floats(n / 32));
    struct kg_buf *fs = kg_output(c, "s", floats(n / 32));

    kg_param_f(c, "gate_scale", row->gate_scale);
    kg_param_f(c, "up_scale", row->up_scale);
    KG_ARM(c, "chain", NULL,
           KG_SEQ(chain_act(c, row, kg_ptr(dg), kg_ptr(du), kg_ptr(dy), n),
                  KG_OPS(c, matvec, quantize_q8_1)(kg_ptr(dy), kg_ptr(cq), kg_ptr(cd),
                                                   kg_ptr(cs), row->rows, cols,
                                                   kg_stream(c))));
    const float *y = kg_fetch(dy);
    KG_ARM(c, "fused", &cost,
           KG_OPS(c, elementwise, silu_mul_scaled_q8_1)(
               kg_ptr(dg), kg_ptr(du), row->gate_scale, row->up_scale, kg_ptr(fq),
               kg_ptr(fd), kg_ptr(fs), n, kg_stream(c)));
    const int8_t *q = kg_fetch(cq);
    kg_check_exact(c, "q", kg_fetch(fq), q, (size_t)n, 1);
    kg_check_exact(c, "d", kg_fetch(fd), kg_fetch(cd), (size_t)n / 32, 4);
    kg_check_exact(c, "s", kg_fetch(fs), kg_fetch(cs), (size_t)n / 32, 4);
    check_act(c, row, y, in, 0);

    struct kg_rows r = kg_sample_rows(c, row->rows, cols);
    size_t taken = (size_t)(r.count * cols);
    int8_t *host_q = kg_alloc(c, taken);
    float *host_d = kg_alloc(c, taken / 8), *host_s = kg_alloc(c, taken / 8);
    kg_oracle_q8_1(kg_take_rows(c, &r, y, floats(cols)), host_q, host_d, host_s, r.count,
                   cols);
    kg_check_exact(c, "q-host", kg_take_rows(c, &r, q, (size_t)cols), host_q, taken, 1);
    kg_check_exact(c, "d-host", kg_take_rows(c, &r, kg_fetch(fd), (size_t)cols / 8),
                   host_d, taken / 32, 4);
}

static void run_d4(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t n = begin(c, row), rows = row->rows, cols = row->cols;
    size_t bytes = kg_d4_bytes(rows, cols);
    struct pair in = make_pair(c, row, n);
    struct kg_cost cost = {8.0 * (double)n + (double)bytes, 30.0 * (double)n, "f32"};
    struct kg_buf *dg = kg_input(c, "gate", in.gate, floats(n));
    struct kg_buf *du = kg_input(c, "up", in.up, floats(n));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    struct kg_buf *chain = kg_output(c, "d4-chain", bytes);
    struct kg_buf *fused = kg_output(c, "d4", bytes);

    kg_param_s(c, "activation", (row->flags & GELU) ? "gelu" : "silu");
    KG_ARM(c, "chain", NULL,
           KG_SEQ(chain_act(c, row, kg_ptr(dg), kg_ptr(du), kg_ptr(dy), n),
                  KG_OPS(c, elementwise, quantize_d4)(kg_ptr(dy), kg_ptr(chain), rows,
                                                      cols, kg_stream(c))));
    const float *y = kg_fetch(dy);
    KG_ARM(c, "fused", &cost,
           KG_OPS(c, elementwise,
                  act_quantize_d4)((row->flags & GELU) ? KG_GELU : KG_SILU, kg_ptr(dg),
                                   kg_ptr(du), kg_ptr(fused), rows, cols, kg_stream(c)));
    kg_check_exact(c, "d4", kg_fetch(fused), kg_fetch(chain), bytes, 1);
    check_act(c, row, y, in, 0);
    if (!(row->flags & BENCH)) {
        uint8_t *want = kg_alloc(c, bytes); /* zeroed: so is the padding */
        kg_oracle_d4(y, want, rows, cols);
        kg_check_exact(c, "d4-host", kg_fetch(chain), want, bytes, 1);
    }
}

/* ---- the rest ---- */

/* gate_offset, scale and shift are those of x, up_offset that of w, whose scale is 1. The
   pinned rows have dot products of hundreds, where the sigmoid is flat; "mid" ones of a few,
   where it is not. */
static void run_sigmoid_dot(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t n = begin(c, row), rows = row->rows, cols = row->cols;
    const float *x = kg_pr_around(c, (size_t)n, row->gate_offset, row->scale, row->shift);
    const float *w = kg_pr_around(c, (size_t)cols, row->up_offset, 1.0f, row->shift);
    struct kg_cost cost = {4.0 * (double)(n + cols + rows), 2.0 * (double)n, "f32"};
    struct kg_buf *dx = kg_input(c, "x", x, floats(n));
    struct kg_buf *dw = kg_input(c, "w", w, floats(cols));
    struct kg_buf *dy = kg_output(c, "y", floats(rows));
    struct kg_rows s = kg_sample_rows(c, rows, cols);
    struct kg_reference r = kg_reference_of(c, s.count);

    KG_ARM(c, "base", &cost,
           KG_OPS(c, elementwise, sigmoid_dot)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dy), rows,
                                               cols, kg_stream(c)));
    const float *got = kg_take_rows(c, &s, kg_fetch(dy), sizeof *got);
    kg_oracle_sigmoid_dot(kg_take_rows(c, &s, x, floats(cols)), w, r.want, r.bound,
                          s.count, cols);
    kg_check_absolute(c, "band", got, r.want, r.count, 1e-5);
    kg_check_bound(c, "bound", got, r.want, r.bound, r.count);
}

struct rope {
    const char *id;
    int64_t tokens, heads, head_dim, n_dims;
    int32_t first_position, step;
    float base, scale;
    bool bench;
};

static void run_rope(struct kg_cell *c, const void *row_)
{
    const struct rope *row = row_;
    int64_t width = row->heads * row->head_dim, n = row->tokens * width;

    if (row->bench)
        kg_needs_gpu(c);
    const float *x = kg_pr(c, (size_t)n, 5, 1.0f);
    int32_t *pos = kg_alloc(c, (size_t)row->tokens * sizeof *pos);
    struct kg_cost cost = {8.0 * (double)n, 3.0 * (double)n, "f32"};

    kg_param_i(c, "tokens", row->tokens);
    kg_param_i(c, "heads", row->heads);
    kg_param_i(c, "head_dim", row->head_dim);
    kg_param_i(c, "n_dims", row->n_dims);
    kg_param_i(c, "first_position", row->first_position);
    kg_param_f(c, "freq_base", row->base);
    kg_param_f(c, "freq_scale", row->scale);
    for (int64_t t = 0; t < row->tokens; t++)
        pos[t] = row->first_position + (int32_t)t * row->step;
    struct kg_buf *dx = kg_inout(c, "x", x, floats(n));
    struct kg_buf *dp = kg_input(c, "pos", pos, (size_t)row->tokens * sizeof *pos);
    KG_ARM(c, "base", &cost,
           KG_OPS(c, elementwise, rope_neox)(kg_ptr(dx), kg_ptr(dp), row->tokens,
                                             row->heads, row->head_dim, row->n_dims,
                                             row->base, row->scale, kg_stream(c)));
    struct kg_rows s = kg_sample_rows(c, row->tokens, width);
    struct kg_reference r = kg_reference_of(c, s.count * width);
    const float *got = kg_take_rows(c, &s, kg_fetch(dx), floats(width));
    kg_oracle_rope_neox(kg_take_rows(c, &s, x, floats(width)),
                        kg_take_rows(c, &s, pos, sizeof *pos), r.want, r.bound, s.count,
                        row->heads, row->head_dim, row->n_dims, row->base, row->scale);
    kg_check_absolute(c, "band", got, r.want, r.count, 1e-4);
    kg_check_bound(c, "bound", got, r.want, r.bound, r.count);
}

static int64_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

struct mask {
    const char *id;
    int64_t n, rows, col, words;
};

/* Every seventh id is allowed, from 3 on; the ids past the mask are not. */
static void run_mask(struct kg_cell *c, const void *row_)
{
    const struct mask *row = row_;
    int64_t n = row->n, total = row->rows * n, words = row->words;
    const float *x = kg_pr(c, (size_t)total, 0, 8.0f);
    uint32_t *mask = kg_alloc(c, (size_t)words * 4);
    float *want = kg_alloc(c, floats(total));

    kg_param_i(c, "n", n);
    kg_param_i(c, "col", row->col);
    kg_param_i(c, "mask_words", words);
    for (int64_t i = 3; i < words * 32; i += 7)
        mask[i / 32] |= 1u << i % 32;
    memcpy(want, x, floats(total));
    for (int64_t i = 0; i < n; i++)
        if (i >= words * 32 || i % 7 != 3)
            want[row->col * n + i] = -FLT_MAX;
    struct kg_buf *dx = kg_inout(c, "logits", x, floats(total));
    struct kg_buf *dm = kg_input(c, "mask", mask, (size_t)words * 4);
    KG_ARM(c, "base", NULL,
           KG_OPS(c, elementwise, mask_logits_col)(kg_ptr(dx), kg_ptr(dm), row->col, n,
                                                   words, kg_stream(c)));
    const float *got = kg_fetch(dx);
    int64_t best = argmax(got + row->col * n, n);
    int64_t best_want = argmax(want + row->col * n, n);
    kg_check_exact(c, "logits", got, want, (size_t)total, 4);
    kg_check_that(c, "argmax", best == best_want, "%lld, not %lld", (long long)best,
                  (long long)best_want);
}

/* Plain inputs are pr; "wide" ones reach into both tails of silu and gelu, "large" ones past
   where exp overflows, "tiny" ones give subnormal results. */
static const struct row rows[] = {
    {"silu_mul.1024",                    run_act_mul,     1024,  1,  0,  1,  1,        0,     1,     1,     0   },
    {"silu_mul.1027",                    run_act_mul,     1027,  1,  0,  1,  1,        0,     1,     1,     0   },
    {"silu_mul.wide.4099",               run_act_mul,     4099,  1,  0,  1,  90,       0,     1,     1,     0   },
    {"silu_mul.large.4100",              run_act_mul,     4100,  1,  0,  1,  1e4f,     0,     1,     1,     0   },
    {"silu_mul.tiny.257",                run_act_mul,     257,   1,  0,  1,  0x1p-66f, 0,     1,     1,     0   },
    {"gelu_mul.wide.4099",               run_act_mul,     4099,  1,  17, 29, 12,       0,     1,     1,     GELU},
    {"gelu_mul.5",                       run_act_mul,     5,     1,  17, 29, 1,        0,     1,     1,     GELU},
    {"add.4099",                         run_add,         4099,  1,  61, 67, 1e4f,     0,     1,     1,     0   },
    {"silu_mul_scaled_q8_1.2048",        run_silu_q8_1,   2048,  1,  3,  5,  1,        0,     1.31f, 0.77f, 0   },
    {"silu_mul_scaled_q8_1.2048x5",      run_silu_q8_1,   2048,  5,  7,  11, 1,        0,     1,     1,     0   },
    {"silu_mul_scaled_q8_1.32",          run_silu_q8_1,   32,    1,  7,  11, 1,        0,     0.5f,  3,     0   },
    {"silu_mul_scaled_q8_1.wide.1056x9", run_silu_q8_1,   1056,  9,  7,  11, 90,       0,     1.31f,
     0.77f,                                                                                                 0   },
    {"act_quantize_d4.silu.768x33",      run_d4,          768,   33, 17, 29, 4,        0,     1,     1,     0   },
    {"act_quantize_d4.silu.512x7",       run_d4,          512,   7,  17, 29, 4,        0,     1,     1,     0   },
    {"act_quantize_d4.gelu.704x29",      run_d4,          704,   29, 17, 29, 4,        0,     1,     1,     GELU},
    {"act_quantize_d4.silu.32x1",        run_d4,          32,    1,  17, 29, 4,        0,     1,     1,     0   },
    {"sigmoid_dot.2048x3",               run_sigmoid_dot, 2048,  3,  13, 41, 1,        -0.5f, 1,     1,     0   },
    {"sigmoid_dot.mid.2048x9",           run_sigmoid_dot, 2048,  9,  13, 41, 0.01f,    0,     1,     1,     0   },
    {"sigmoid_dot.mid.33x8",             run_sigmoid_dot, 33,    8,  13, 41, 1,        0,     1,     1,     0   },
    {"sigmoid_dot.mid.35x9",             run_sigmoid_dot, 35,    9,  13, 41, 1,        0,     1,     1,     0   },
    {"sigmoid_dot.mid.1026x5",           run_sigmoid_dot, 1026,  5,  13, 41, 0.02f,    0,     1,     1,     0   },
    {"sigmoid_dot.mid.20004x2",          run_sigmoid_dot, 20004, 2,  13, 41, 0.0003f,  0,     1,     1,     0   },
    {"sigmoid_dot.mid.9003x9",           run_sigmoid_dot, 9003,  9,  13, 41, 0.0005f,  0,     1,     1,     0   },
};

static const struct row benches[] = {
    {"bench.silu_mul",             run_act_mul,     8192, 8192, 0,  1,  1,       0, 1,     1,     BENCH       },
    {"bench.gelu_mul",             run_act_mul,     8192, 8192, 0,  1,  1,       0, 1,     1,     GELU | BENCH},
    {"bench.add",                  run_add,         8192, 8192, 0,  1,  1,       0, 1,     1,     BENCH       },
    {"bench.silu_mul_scaled_q8_1", run_silu_q8_1,   8192, 8192, 0,  1,  1,       0, 1.31f, 0.77f,
     BENCH                                                                                                    },
    {"bench.act_quantize_d4",      run_d4,          8192, 8192, 0,  1,  4,       0, 1,     1,     BENCH       },
    {"bench.sigmoid_dot",          run_sigmoid_dot, 8192, 8192, 13, 41, 0.0025f, 0, 1,     1,     BENCH       },
};

static const struct rope ropes[] = {
    {"rope_neox.128x3",        3, 1,  128, 128, 0,      1,  1e6f, 1,     false},
    {"rope_neox.partial.9x16", 9, 16, 256, 64,  0,      1,  1e7f, 1,     false},
    {"rope_neox.far.5x7",      5, 7,  80,  80,  131067, 1,  1e4f, 0.25f, false},
    {"rope_neox.narrow.8x3",   8, 3,  66,  22,  100,    77, 1e4f, 1,     false},
    {"rope_neox.heads.2x70",   2, 70, 128, 128, 4095,   1,  5e5f, 1,     false},
};

static const struct rope rope_bench = {
    "bench.rope_neox", 8192, 64, 128, 128, 0, 1, 1e6f, 1, true};

static const struct mask masks[] = {
    {"mask_logits_col.4099",       4099, 2, 1, 126},
    {"mask_logits_col.exact.4096", 4096, 3, 1, 128},
    {"mask_logits_col.long.100",   100,  2, 0, 9  },
};

static void plan(struct kg_plan *p)
{
#define ADD_ROWS(table, fn, cell_flags)                                                  \
    for (size_t i = 0; i < sizeof(table) / sizeof(table)[0]; i++)                        \
    kg_plan_addf(p,                                                                      \
                 &(struct kg_cell_spec){NULL, fn, &(table)[i], NULL,                     \
                                        KG_CELL_ORDERED | (cell_flags)},                 \
                 "elementwise.%s", (table)[i].id)
    ADD_ROWS(rows, rows[i].run, 0);
    /* IEEE 754 leaves the sign and payload of a NaN open: no ordered cell. */
    kg_plan_add(
        p, &(struct kg_cell_spec){"elementwise.special", run_special, NULL, NULL, 0});
    ADD_ROWS(ropes, run_rope, 0);
    ADD_ROWS(masks, run_mask, 0);
    ADD_ROWS(benches, benches[i].run, KG_CELL_OPTIONAL);
    kg_plan_addf(p,
                 &(struct kg_cell_spec){NULL, run_rope, &rope_bench, NULL,
                                        KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                 "elementwise.%s", rope_bench.id);
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "elementwise",
    .summary = "activations and their quantized forms, rotary positions, the logits mask",
    .plan = plan,
};
