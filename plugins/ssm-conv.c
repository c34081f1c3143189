/*
 * ssm-conv: the causal depthwise convolution, over many tokens and for one.
 */
#include "plugins/oracle/elementwise.h"
#include "plugins/row_cells.h"

struct row {
    const char *id;
    kg_cell_fn *run;
    int64_t channels, n_tokens, d_conv;
    float scale; /* of x */
    bool silu, bench;
};

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static void describe(struct kg_cell *c, const struct row *row)
{
    if (row->bench)
        kg_needs_gpu(c);
    kg_param_i(c, "channels", row->channels);
    kg_param_i(c, "n_tokens", row->n_tokens);
    kg_param_i(c, "d_conv", row->d_conv);
}

static void run_conv1d(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t channels = row->channels, n_tokens = row->n_tokens, d_conv = row->d_conv;
    int64_t width = n_tokens + d_conv - 1, n = channels * n_tokens;

    describe(c, row);
    const float *x = kg_pr(c, (size_t)(channels * width), 13, row->scale);
    const float *w = kg_pr(c, (size_t)(channels * d_conv), 21, 0.3f);
    struct kg_cost cost = {4.0 * (double)(channels * (width + d_conv) + n),
                           (double)n * (2.0 * (double)d_conv + 22), "f32"};
    struct kg_buf *dx = kg_input(c, "x", x, floats(channels * width));
    struct kg_buf *dw = kg_input(c, "w", w, floats(channels * d_conv));
    struct kg_buf *dy = kg_output(c, "y", floats(n));
    KG_ARM(c, "base", &cost,
           KG_OPS(c, ssm, ssm_conv1d)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dy), channels,
                                      n_tokens, d_conv, row->silu, kg_stream(c)));
    struct kg_rows s = kg_sample_rows(c, channels, n_tokens);
    struct kg_reference r = kg_reference_of(c, s.count * n_tokens);
    const float *got = kg_take_rows(c, &s, kg_fetch(dy), floats(n_tokens));
    kg_oracle_conv1d(kg_take_rows(c, &s, x, floats(width)),
                     kg_take_rows(c, &s, w, floats(d_conv)), r.want, r.bound, s.count,
                     n_tokens, d_conv, row->silu);
    if (row->scale == 1)
        kg_check_absolute(c, "band", got, r.want, r.count, 1e-5);
    kg_check_bound(c, "bound", got, r.want, r.bound, r.count);
}

/* Output and rolled state of the fused step, to the bit those of the two kernels that it
   replaces; the output against f64, the state against the host. */
static void run_decode(struct kg_cell *c, const void *row_)
{
    const struct row *row = row_;
    int64_t channels = row->channels, d_conv = row->d_conv, kept = d_conv - 1;

    describe(c, row);
    const float *token = kg_pr(c, (size_t)channels, 31, row->scale);
    const float *state = kg_pr(c, (size_t)(channels * kept), 41, 0.7f * row->scale);
    const float *w = kg_pr(c, (size_t)(channels * d_conv), 51, 0.3f);
    struct kg_buf *dt = kg_input(c, "token", token, floats(channels));
    struct kg_buf *dw = kg_input(c, "w", w, floats(channels * d_conv));
    struct kg_buf *cs = kg_inout(c, "state-chain", state, floats(channels * kept));
    struct kg_buf *fs = kg_inout(c, "state", state, floats(channels * kept));
    struct kg_buf *dx = kg_output(c, "x", floats(channels * d_conv));
    struct kg_buf *cy = kg_output(c, "y-chain", floats(channels));
    struct kg_buf *fy = kg_output(c, "y", floats(channels));

    KG_ARM(c, "chain", NULL,
           KG_SEQ(KG_OPS(c, ssm, conv_assemble_and_roll)(
                      kg_ptr(dt), kg_ptr(cs), kg_ptr(dx), channels, d_conv, kg_stream(c)),
                  KG_OPS(c, ssm, ssm_conv1d)(kg_ptr(dx), kg_ptr(dw), kg_ptr(cy), channels,
                                             1, d_conv, true, kg_stream(c))));
    KG_ARM(c, "fused", NULL,
           KG_OPS(c, ssm, ssm_conv1d_fused_decode)(kg_ptr(dt), kg_ptr(fs), kg_ptr(dw),
                                                   kg_ptr(fy), channels, d_conv,
                                                   kg_stream(c)));
    float *x = kg_alloc(c, floats(channels * d_conv));
    float *rolled = kg_alloc(c, floats(channels * kept));
    for (int64_t i = 0; i < channels; i++)
        for (int64_t j = 0; j < d_conv; j++) {
            float v = j < kept ? state[i * kept + j] : token[i];
            x[i * d_conv + j] = v;
            if (j > 0)
                rolled[i * kept + j - 1] = v;
        }
    struct kg_reference r = kg_reference_of(c, channels);
    const float *y = kg_fetch(fy), *after = kg_fetch(fs);
    kg_oracle_conv1d(x, w, r.want, r.bound, channels, 1, d_conv, true);
    kg_check_exact(c, "y", y, kg_fetch(cy), (size_t)channels, 4);
    kg_check_exact(c, "state", after, kg_fetch(cs), (size_t)(channels * kept), 4);
    kg_check_exact(c, "state-host", after, rolled, (size_t)(channels * kept), 4);
    kg_check_exact(c, "x-host", kg_fetch(dx), x, (size_t)(channels * d_conv), 4);
    kg_check_bound(c, "bound", y, r.want, r.bound, r.count);
}

static const struct row rows[] = {
    {"conv1d.8x5",          run_conv1d, 8,    5,    4, 1,    true,  false},
    {"conv1d.linear.8x5",   run_conv1d, 8,    5,    4, 1,    false, false},
    {"conv1d.1x1",          run_conv1d, 1,    1,    4, 1,    true,  false},
    {"conv1d.3x1025",       run_conv1d, 3,    1025, 4, 1,    true,  false},
    {"conv1d.tiles.2x4101", run_conv1d, 2,    4101, 4, 1,    true,  false},
    {"conv1d.tiles.2x4100", run_conv1d, 2,    4100, 4, 1,    true,  false},
    {"conv1d.wide.9x300",   run_conv1d, 9,    300,  4, 100,  true,  false},
    {"conv1d.large.5x257",  run_conv1d, 5,    257,  4, 1e4f, true,  false},
    {"conv1d.d2.5x33",      run_conv1d, 5,    33,   2, 1,    true,  false},
    {"conv1d.d3.5x33",      run_conv1d, 5,    33,   3, 1,    true,  false},
    {"conv1d.d5.5x33",      run_conv1d, 5,    33,   5, 1,    true,  false},
    {"conv1d.d8.2x1030",    run_conv1d, 2,    1030, 8, 1,    true,  false},
    {"fused_decode.96",     run_decode, 96,   1,    4, 1,    true,  false},
    {"fused_decode.1",      run_decode, 1,    1,    4, 1,    true,  false},
    {"fused_decode.1025",   run_decode, 1025, 1,    4, 100,  true,  false},
    {"fused_decode.d2.257", run_decode, 257,  1,    2, 1,    true,  false},
    {"fused_decode.d8.33",  run_decode, 33,   1,    8, 1,    true,  false},
    {"bench.conv1d",        run_conv1d, 8192, 8192, 4, 1,    true,  true },
};

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, rows[i].run, &rows[i], NULL,
                                            KG_CELL_ORDERED |
                                                (rows[i].bench ? KG_CELL_OPTIONAL : 0u)},
                     "ssm-conv.%s", rows[i].id);
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "ssm-conv",
    .summary = "the causal depthwise convolution, over many tokens and fused for one",
    .plan = plan,
};
