#include "plugins/matvec_cells.h"

#include <string.h>

/* A band measures against the largest result, which says little when the results are few:
   one sum of random signs may come out near zero. */
enum { SLICES = 8, BAND_RESULTS_MIN = 32 };

void kg_oracle_must(struct kg_cell *cell, int rc)
{
    if (rc)
        kg_error(cell, "the oracle ran out of memory");
}

static void describe(struct kg_cell *cell, const struct kg_weights *weights, int64_t m)
{
    kg_param_s(cell, "type", kg_type_name(weights->type->type));
    kg_param_i(cell, "in", weights->in);
    kg_param_i(cell, "out", weights->out);
    kg_param_i(cell, "m", m);
}

struct kg_weights kg_weights_of(struct kg_cell *cell, const struct kg_tensor *tensor)
{
    const struct kg_oracle_type *type = kg_oracle_type(tensor->type);
    struct kg_weights weights = {type, tensor->data, tensor->ne[0], tensor->ne[1]};

    kg_param_s(cell, "tensor", tensor->name);
    if (tensor->n_dims < 2 || weights.in < 1 || weights.out < 1)
        kg_skip(cell, "not-applicable", "%s is not a matrix", tensor->name);
    if (!type)
        kg_skip(cell, "not-applicable", "%s is %s, which has no oracle", tensor->name,
                kg_type_name(tensor->type));

    size_t row_bytes = kg_row_bytes(type->type, weights.in);
    kg_param_i(cell, "rows_of_tensor", weights.out);
    if (weights.out > KG_MAX_ROWS) {
        int64_t slice = KG_MAX_ROWS / SLICES;
        uint8_t *rows = kg_alloc(cell, KG_MAX_ROWS * row_bytes);
        for (int64_t i = 0; i < SLICES; i++) {
            int64_t first = (weights.out - slice) * i / (SLICES - 1);
            memcpy(rows + (size_t)(i * slice) * row_bytes,
                   (const uint8_t *)tensor->data + (size_t)first * row_bytes,
                   (size_t)slice * row_bytes);
        }
        weights.data = rows;
        weights.out = KG_MAX_ROWS;
        kg_param_s(cell, "rows", "8 slices of 512, first to last");
    }
    return weights;
}

struct kg_weights kg_weights_made(struct kg_cell *cell, const struct kg_oracle_type *type,
                                  int64_t in, int64_t out)
{
    uint8_t *data = kg_alloc(cell, (size_t)out * kg_row_bytes(type->type, in));
    struct kg_weights weights = {type, data, in, out};
    uint64_t seed = (uint64_t)((kg_pr_at(cell, 977) + 1) * 0x1p23);

    kg_oracle_make_weights(type, data, out, in, seed);
    return weights;
}

static double *doubles(struct kg_cell *cell, int64_t n)
{
    return kg_alloc(cell, (size_t)n * sizeof(double));
}

static struct kg_cost cost_of(const struct kg_weights *w, int64_t m, double x_bytes,
                              const char *engine)
{
    double weight_bytes = (double)w->out * (double)kg_row_bytes(w->type->type, w->in);

    return (struct kg_cost){
        .bytes = weight_bytes + (double)m * (x_bytes + 4.0 * (double)w->out),
        .ops = 2.0 * (double)w->in * (double)w->out * (double)m,
        .engine = engine,
    };
}

static struct kg_buf *upload(struct kg_cell *cell, const struct kg_weights *w)
{
    return kg_input(cell, "w", w->data,
                    (size_t)w->out * kg_row_bytes(w->type->type, w->in));
}

void kg_run_stage_a(struct kg_cell *cell, const struct kg_weights *w, int64_t m,
                    uint64_t offset)
{
    int64_t n_out = w->out * m;
    size_t n_in = (size_t)(w->in * m);
    const float *x = kg_pr(cell, n_in, offset, 0.1f);
    struct kg_cost cost = cost_of(w, m, 4.0 * (double)w->in, "f32");
    struct kg_buf *dw = upload(cell, w);
    struct kg_buf *dx = kg_input(cell, "x", x, n_in * sizeof *x);
    struct kg_buf *dy = kg_output(cell, "y", (size_t)n_out * sizeof *x);
    double *want = doubles(cell, n_out), *bound = doubles(cell, n_out);

    describe(cell, w, m);
    KG_ARM(cell, "stage-a", &cost,
           KG_OPS(cell, matvec, stage_a)(w->type->type, kg_ptr(dw), kg_ptr(dx),
                                         kg_ptr(dy), w->in, w->out, m, kg_stream(cell)));
    const float *got = kg_fetch(dy);
    kg_oracle_must(
        cell, kg_oracle_linear_f32(w->type, w->data, x, want, NULL, w->in, w->out, m));
    kg_oracle_must(cell,
                   kg_oracle_stage_a_bound(w->type, w->data, x, bound, w->in, w->out, m));
    if (n_out >= BAND_RESULTS_MIN)
        kg_check_band(cell, "band", got, want, (size_t)n_out, 1e-3, 1e-4);
    kg_check_bound(cell, "bound", got, want, bound, (size_t)n_out);
}

struct kg_q8_1 kg_run_q8_1(struct kg_cell *cell, const float *x, int64_t rows,
                           int64_t cols)
{
    size_t n = (size_t)(rows * cols), n_blocks = n / 32;
    struct kg_cost cost = {(double)n * 5 + (double)n_blocks * 8, (double)n * 3, "f32"};
    struct kg_buf *dx = kg_input(cell, "x", x, n * sizeof *x);
    struct kg_buf *dq = kg_output(cell, "q", n);
    struct kg_buf *dd = kg_output(cell, "d", n_blocks * sizeof *x);
    struct kg_buf *ds = kg_output(cell, "s", n_blocks * sizeof *x);
    int8_t *q = kg_alloc(cell, n);
    float *d = kg_alloc(cell, n_blocks * sizeof *d);
    float *s = kg_alloc(cell, n_blocks * sizeof *s);

    KG_ARM(cell, "q8_1", &cost,
           KG_OPS(cell, matvec, quantize_q8_1)(kg_ptr(dx), kg_ptr(dq), kg_ptr(dd),
                                               kg_ptr(ds), rows, cols, kg_stream(cell)));
    struct kg_q8_1 got = {kg_fetch(dq), kg_fetch(dd), kg_fetch(ds)};
    kg_oracle_q8_1(x, q, d, s, rows, cols);
    kg_check_exact(cell, "q", got.q, q, n, 1);
    kg_check_exact(cell, "d", got.d, d, n_blocks, 4);
    kg_check_exact(cell, "s", got.s, s, n_blocks, 4);
    return got;
}

/*
 * bound += sum |w| * |x - d*q|, at the most: what the quantization of x may change. A code
 * is x * (1/d) rounded to an integer, and the two roundings in front of that move it by
 * at most 127 * 2^-23: |x - d*q| <= d * (1/2 + 127 * 2^-23), d normal or 0.
 */
static void add_quantization(struct kg_cell *cell, const struct kg_weights *w,
                             const float *d, double *bound, int64_t m)
{
    int64_t n_in = w->in * m, n_out = w->out * m;
    double *step = doubles(cell, n_in);
    double *unused = doubles(cell, n_out), *change = doubles(cell, n_out);

    for (int64_t i = 0; i < n_in; i++)
        step[i] = d[i / 32] * (0.5 + 127 * 0x1p-23);
    kg_oracle_must(
        cell, kg_oracle_linear(w->type, w->data, step, unused, change, w->in, w->out, m));
    for (int64_t i = 0; i < n_out; i++)
        bound[i] += change[i];
}

void kg_run_stage_b(struct kg_cell *cell, const struct kg_weights *w, int64_t m,
                    uint64_t offset)
{
    if (!w->type->stage_b)
        kg_skip(cell, "not-applicable", "stage B does not cover %s",
                kg_type_name(w->type->type));
    kg_run_stage_b_on(cell, w, m, kg_pr(cell, (size_t)(w->in * m), offset, 0.1f));
}

void kg_run_stage_b_on(struct kg_cell *cell, const struct kg_weights *w, int64_t m,
                       const float *x)
{
    int64_t n_out = w->out * m;
    size_t n_in = (size_t)(w->in * m), n_blocks = n_in / 32;
    struct kg_cost cost = cost_of(w, m, 1.25 * (double)w->in, "dp4a");
    double *exact = doubles(cell, n_out), *want = doubles(cell, n_out);
    double *bound = doubles(cell, n_out);

    describe(cell, w, m);
    struct kg_q8_1 act = kg_run_q8_1(cell, x, m, w->in);
    /* uploaded again, so that the arm's inputs are settled whatever repeats */
    struct kg_buf *dw = upload(cell, w);
    struct kg_buf *dq = kg_input(cell, "q-in", act.q, n_in);
    struct kg_buf *dd = kg_input(cell, "d-in", act.d, n_blocks * sizeof *x);
    struct kg_buf *ds = kg_input(cell, "s-in", act.s, n_blocks * sizeof *x);
    struct kg_buf *dy = kg_output(cell, "y", (size_t)n_out * sizeof *x);
    KG_ARM(cell, "stage-b", &cost,
           KG_OPS(cell, matvec, stage_b)(w->type->type, kg_ptr(dw), kg_ptr(dq),
                                         kg_ptr(dd), kg_ptr(ds), kg_ptr(dy), w->in,
                                         w->out, m, kg_stream(cell)));
    const float *got = kg_fetch(dy);
    kg_oracle_must(
        cell, kg_oracle_linear_f32(w->type, w->data, x, exact, NULL, w->in, w->out, m));
    kg_oracle_must(cell, kg_oracle_linear_q8_1(
                             w->type, w->data, act.q, act.d, &(struct kg_oracle_order){0},
                             &(struct kg_oracle_sums){want, bound, NULL, NULL}, w->in,
                             w->out, m));
    kg_check_bound(cell, "bound", got, want, bound, (size_t)n_out);
    if (n_out >= BAND_RESULTS_MIN)
        kg_check_band(cell, "band", got, exact, (size_t)n_out, 1e-3, 3e-2);
    add_quantization(cell, w, act.d, bound, m);
    kg_check_bound(cell, "unquantized", got, exact, bound, (size_t)n_out);
}
