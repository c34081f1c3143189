/*
 * gdn: the gated delta net, token by token and in chunks, against its recurrence in f64.
 *
 * Every output and every element of the final state has a derived bound (oracle/gdn.c,
 * oracle/gdn_chunk.c). The pinned shapes have bands besides: the worst relative error of an
 * element, no smaller than 1e-3 counted as its size, which outputs near zero dominate; hence
 * the wide ones of the 16-bit forms.
 */
#include <math.h>

#include "kgate/check.h"
#include "plugins/oracle/gdn.h"

enum { D = KG_ORACLE_GDN_DIM, MAX_CHECKED = 5 };

enum gates {
    PINNED,
    DECAY_0,     /* every fifth token forgets everything, by -infinity or by -200 */
    DECAY_0_ALL, /* every token */
    DECAY_1,     /* none forgets anything */
    BETA_0,      /* nothing is learned but in every seventh token */
    BETA_1,
    ZERO_STATE,
    SLOW,   /* little is forgotten, and as seldom learned as with BETA_0 */
    FROZEN, /* little is forgotten and nothing learned */
};

struct shape {
    const char *id;
    int64_t n_heads, n_tokens, chunk;
    enum gates gates;
    bool pinned; /* has bands, too */
};

static const struct shape shapes[] = {
    {"t200-c32",     4, 200, 32,  PINNED,      true },
    {"t200-c64",     4, 200, 64,  PINNED,      true },
    {"t200-c128",    4, 200, 128, PINNED,      true },
    {"t17-c64",      4, 17,  64,  PINNED,      true },
    {"t512-c64",     4, 512, 64,  PINNED,      true },
    {"h1-t1-c32",    1, 1,   32,  PINNED,      false},
    {"h3-t33-c32",   3, 33,  32,  PINNED,      false},
    {"h5-t65-c64",   5, 65,  64,  PINNED,      false},
    {"h3-t129-c128", 3, 129, 128, PINNED,      false},
    {"h2-t64-c64",   2, 64,  64,  PINNED,      false},
    {"decay-0-c32",  3, 77,  32,  DECAY_0,     false},
    {"decay-0-c64",  3, 77,  64,  DECAY_0,     false},
    {"decay-0-c128", 1, 150, 128, DECAY_0,     false},
    {"decay-0-all",  1, 40,  32,  DECAY_0_ALL, false},
    {"decay-1-c32",  3, 77,  32,  DECAY_1,     false},
    {"decay-1-c64",  1, 77,  64,  DECAY_1,     false},
    {"beta-0-c64",   3, 77,  64,  BETA_0,      false},
    {"beta-1-c32",   3, 77,  32,  BETA_1,      false},
    {"zero-state",   3, 77,  32,  ZERO_STATE,  false},
    {"slow-c32",     2, 161, 32,  SLOW,        false},
    {"slow-c64",     1, 300, 64,  SLOW,        false},
    {"frozen-c32",   1, 100, 32,  FROZEN,      false},
};

/* Sized for a GPU: 32 heads of 4096 tokens. */
static const struct shape benches[] = {
    {"c32",  32, 4096, 32,  PINNED, false},
    {"c64",  32, 4096, 64,  PINNED, false},
    {"c128", 32, 4096, 128, PINNED, false},
};

/* operand: half and bfloat16 have 11 and 8 bits; tiny: half a subnormal's step. sum: the
   tensor cores may cut off where f32 rounds. */
struct form {
    const char *name;
    double out_band, state_band;
    double operand, tiny, sum;
    const char *engine;
};

static const struct form f32_form = {"chunked", 1e-4, 2.5e-4, 0, 0, 0x1p-24, "f32"};
static const struct form mma_form = {"mma",   8e-2,    8e-1,     0x1p-11,
                                     0x1p-25, 0x1p-23, "f16-mma"};
static const struct form wgmma_form = {"wgmma",  4e-1,    8e-1,     0x1p-8,
                                       0x1p-133, 0x1p-23, "f16-mma"};

/* Inputs, the buffers of all arms, and the oracle's answer for some heads. */
struct problem {
    struct kg_oracle_gdn in;
    struct kg_buf *q, *k, *v, *g, *beta, *state_in, *state_out, *out, *workspace;
    int64_t chunk;
    size_t workspace_bytes;
    int n_checked;
    int64_t checked[MAX_CHECKED];
    int64_t n_out, n_state; /* elements of all checked heads */
    double *want_out, *want_state, *out_bound, *state_bound;
    float *got_out, *got_state;
};

static float *unit_rows(struct kg_cell *c, int64_t rows, uint64_t offset)
{
    float *x = kg_pr(c, (size_t)(rows * D), offset, 1.0f);

    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int i = 0; i < D; i++)
            sum += x[r * D + i] * x[r * D + i];
        for (int i = 0; i < D; i++)
            x[r * D + i] /= sqrtf(sum);
    }
    return x;
}

static void set_gates(struct kg_cell *c, enum gates gates, float *g, float *beta,
                      int64_t n_tokens, int64_t n_heads)
{
    for (int64_t i = 0; i < n_tokens * n_heads; i++) {
        const int64_t t = i / n_heads;
        g[i] = -0.02f - fabsf(kg_pr_at(c, (uint64_t)i + 29)) * 0.5f;
        beta[i] = 0.3f + fabsf(kg_pr_at(c, (uint64_t)i + 31)) * 0.6f;
        if (gates == DECAY_0_ALL || (gates == DECAY_0 && t % 5 == 2))
            g[i] = t % 2 ? -200.0f : -INFINITY;
        if (gates == DECAY_1)
            g[i] = 0;
        if (gates == SLOW || gates == FROZEN)
            g[i] *= 0x1p-4f;
        if (gates == FROZEN)
            beta[i] = 0;
        if ((gates == BETA_0 || gates == SLOW) && t % 7 != 3)
            beta[i] = 0;
        if (gates == BETA_1)
            beta[i] = 1;
    }
}

static struct problem prepare(struct kg_cell *c, const float *q, const float *k,
                              const float *v, const float *g, const float *beta,
                              const float *state, int64_t n_heads, int64_t n_tokens)
{
    struct problem p = {
        .in = {q, k, v, g, beta, NULL, n_heads, n_tokens, 0, 1.0f / sqrtf((float)D)}
    };
    const size_t rows = (size_t)(n_heads * n_tokens), bytes = rows * D * 4;
    const size_t state_bytes = (size_t)n_heads * D * D * 4;

    kg_param_i(c, "n_heads", n_heads);
    kg_param_i(c, "n_tokens", n_tokens);
    p.q = kg_input(c, "q", q, bytes);
    p.k = kg_input(c, "k", k, bytes);
    p.v = kg_input(c, "v", v, bytes);
    p.g = kg_input(c, "g", g, rows * 4);
    p.beta = kg_input(c, "beta", beta, rows * 4);
    p.state_in = kg_input(c, "state_in", state, state_bytes);
    p.state_out = kg_output(c, "state", state_bytes);
    p.out = kg_output(c, "out", bytes);
    p.n_checked = n_heads < MAX_CHECKED ? (int)n_heads : MAX_CHECKED;
    for (int i = 0; i < p.n_checked; i++)
        p.checked[i] = p.n_checked == 1 ? 0 : i * (n_heads - 1) / (p.n_checked - 1);
    p.n_out = p.n_checked * n_tokens * D;
    p.n_state = p.n_checked * D * D;
    p.want_out = kg_alloc(c, (size_t)p.n_out * 8);
    p.out_bound = kg_alloc(c, (size_t)p.n_out * 8);
    p.want_state = kg_alloc(c, (size_t)p.n_state * 8);
    p.state_bound = kg_alloc(c, (size_t)p.n_state * 8);
    p.got_out = kg_alloc(c, (size_t)p.n_out * 4);
    p.got_state = kg_alloc(c, (size_t)p.n_state * 4);
    for (int i = 0; i < p.n_checked; i++) {
        p.in.head = p.checked[i];
        p.in.state = state + p.checked[i] * D * D;
        kg_oracle_gdn(&p.in, p.want_out + i * n_tokens * D, p.want_state + i * D * D,
                      p.out_bound + i * n_tokens * D, p.state_bound + i * D * D);
    }
    p.in.state = state;
    return p;
}

static struct problem of_shape(struct kg_cell *c, const struct shape *shape)
{
    const int64_t rows = shape->n_heads * shape->n_tokens;
    const float *q = unit_rows(c, rows, 11), *k = unit_rows(c, rows, 17);
    const float *v = kg_pr(c, (size_t)(rows * D), 23, 1.0f);
    float *g = kg_alloc(c, (size_t)rows * 4), *beta = kg_alloc(c, (size_t)rows * 4);
    const float *state = kg_pr(c, (size_t)(shape->n_heads * D * D), 37,
                               shape->gates == ZERO_STATE ? 0.0f : 0.5f);

    set_gates(c, shape->gates, g, beta, shape->n_tokens, shape->n_heads);
    struct problem p =
        prepare(c, q, k, v, g, beta, state, shape->n_heads, shape->n_tokens);
    kg_param_i(c, "chunk", shape->chunk);
    p.chunk = shape->chunk;
    return p;
}

/* Takes the outputs of the checked heads; all were written by the last arm. */
static void fetch(struct problem *p)
{
    const float *out = kg_fetch(p->out), *state = kg_fetch(p->state_out);

    for (int64_t i = 0; i < p->n_out; i++) {
        const int64_t h = p->checked[i / (p->in.n_tokens * D)];
        const int64_t t = i / D % p->in.n_tokens;
        p->got_out[i] = out[(t * p->in.n_heads + h) * D + i % D];
    }
    for (int64_t i = 0; i < p->n_state; i++)
        p->got_state[i] = state[p->checked[i / (D * D)] * D * D + i % (D * D)];
}

/* The worst |got - want| / max(|want|, 1e-3); NaN if any is. */
static double worst_relative(const float *got, const double *want, int64_t n)
{
    double worst = 0;

    for (int64_t i = 0; i < n; i++) {
        const double err = fabs(got[i] - want[i]) / fmax(fabs(want[i]), 1e-3);
        if (!(err <= worst))
            worst = err;
        if (isnan(worst))
            break;
    }
    return worst;
}

static double worst_absolute(const float *got, const double *want, int64_t n)
{
    double worst = 0;

    for (int64_t i = 0; i < n && !isnan(worst); i++)
        if (!(fabs(got[i] - want[i]) <= worst))
            worst = fabs(got[i] - want[i]);
    return worst;
}

/* The bound of a chunked form's state is one of the 2-norm of a whole column's error, up to
   11 times that of an element: the worst norm in units of its bound. */
static double worst_column(const struct problem *p)
{
    double worst = 0;

    for (int64_t c = 0; c < p->n_state && !isnan(worst); c += D) {
        double sum = 0;
        for (int64_t i = c; i < c + D; i++)
            sum += (p->got_state[i] - p->want_state[i]) *
                   (p->got_state[i] - p->want_state[i]);
        if (!(sqrt(sum) / p->state_bound[c] <= worst))
            worst = sqrt(sum) / p->state_bound[c];
    }
    return worst;
}

/* Launches one form; inside KG_ARM, as the pointers change between repetitions. */
static int launch(struct kg_cell *c, const struct problem *p, const struct form *form)
{
    const struct kg_gdn_args args = {
        .q = kg_ptr(p->q),
        .k = kg_ptr(p->k),
        .v = kg_ptr(p->v),
        .g = kg_ptr(p->g),
        .beta = kg_ptr(p->beta),
        .state_in = kg_ptr(p->state_in),
        .state_out = kg_ptr(p->state_out),
        .out = kg_ptr(p->out),
        .n_heads = p->in.n_heads,
        .n_tokens = p->in.n_tokens,
        .scale = (float)p->in.scale,
    };

    if (!form)
        return KG_OPS(c, gdn, gdn_scan)(&args, kg_stream(c));
    if (form == &mma_form)
        return KG_OPS(c, gdn, gdn_chunked_mma)(&args, p->chunk, kg_ptr(p->workspace),
                                               p->workspace_bytes, kg_stream(c));
    if (form == &wgmma_form)
        return KG_OPS(c, gdn, gdn_chunked_wgmma)(&args, p->chunk, kg_ptr(p->workspace),
                                                 p->workspace_bytes, kg_stream(c));
    return KG_OPS(c, gdn, gdn_chunked)(&args, p->chunk, kg_ptr(p->workspace),
                                       p->workspace_bytes, kg_stream(c));
}

/* Each array once, and what the formulas take: three passes over the state for a token;
   in chunks, five triangular products besides. */
static struct kg_cost cost_of(const struct problem *p, const char *engine)
{
    const double rows = (double)(p->in.n_heads * p->in.n_tokens);

    return (struct kg_cost){.bytes =
                                rows * (16 * D + 8) + 8.0 * D * D * (double)p->in.n_heads,
                            .ops = rows * (6.0 * D * D + 5.0 * D * (double)p->chunk),
                            .engine = engine};
}

static void scan(struct kg_cell *c, struct problem *p)
{
    const struct kg_cost cost = cost_of(p, "f32");

    KG_ARM(c, "scan", &cost, launch(c, p, NULL));
    fetch(p);
    kg_check_bound(c, "scan-out", p->got_out, p->want_out, p->out_bound,
                   (size_t)p->n_out);
    kg_check_bound(c, "scan-state", p->got_state, p->want_state, p->state_bound,
                   (size_t)p->n_state);
}

/* Runs a chunked form and checks it by its bound. */
static void chunked(struct kg_cell *c, struct problem *p, const struct form *form)
{
    const struct kg_oracle_gdn_form how = {(int)p->chunk, form->operand, form->tiny,
                                           form->sum};
    const struct kg_cost cost = cost_of(p, form->engine);
    const float *state = p->in.state;

    p->workspace_bytes =
        KG_OPS(c, gdn, gdn_workspace_bytes)(p->in.n_heads, p->in.n_tokens, p->chunk);
    p->workspace = kg_scratch(c, "workspace", p->workspace_bytes);
    KG_ARM(c, form->name, &cost, launch(c, p, form));
    fetch(p);
    for (int i = 0; i < p->n_checked; i++) {
        p->in.head = p->checked[i];
        p->in.state = state + p->checked[i] * D * D;
        if (kg_oracle_gdn_chunk_bound(&p->in, &how, p->out_bound + i * p->in.n_tokens * D,
                                      p->state_bound + i * D * D) != 0)
            kg_error(c, "out of memory for the bounds");
    }
    p->in.state = state;
    kg_check_bound(c, "out", p->got_out, p->want_out, p->out_bound, (size_t)p->n_out);
    kg_check_bound(c, "state", p->got_state, p->want_state, p->state_bound,
                   (size_t)p->n_state);
    kg_check_value(c, "state-norm", "bound", worst_column(p), 1);
}

/* Small vectors, no state before: q, k, v of a tenth, 3 tokens of one head. */
static void run_scan_pinned(struct kg_cell *c, const void *row)
{
    enum { T = 3 };
    float g[T], beta[T];
    const float *state = kg_alloc(c, (size_t)D * D * 4);

    (void)row;
    for (int i = 0; i < T; i++) {
        g[i] = -0.05f - fabsf(kg_pr_at(c, (uint64_t)i)) * 0.1f;
        beta[i] = 0.5f + kg_pr_at(c, (uint64_t)i + 3) * 0.2f;
    }
    struct problem p = prepare(c, kg_pr(c, D * T, 0, 0.1f), kg_pr(c, D * T, 5, 0.1f),
                               kg_pr(c, D * T, 9, 0.1f), g, beta, state, 1, T);
    scan(c, &p);
    kg_check_value(c, "max-abs", "band", worst_absolute(p.got_out, p.want_out, p.n_out),
                   1e-4);
}

static void run_scan(struct kg_cell *c, const void *row)
{
    struct problem p = of_shape(c, row);

    scan(c, &p);
}

/* Both f32 forms; chunking may cost 32 times the error of the scan. */
static void run_chunked(struct kg_cell *c, const void *row)
{
    const struct shape *shape = row;
    struct problem p = of_shape(c, shape);

    scan(c, &p);
    const double scan_out = worst_relative(p.got_out, p.want_out, p.n_out);
    const double scan_state = worst_relative(p.got_state, p.want_state, p.n_state);
    kg_reset(p.out);
    kg_reset(p.state_out);
    chunked(c, &p, &f32_form);
    if (!shape->pinned)
        return;
    const double out = worst_relative(p.got_out, p.want_out, p.n_out);
    const double state = worst_relative(p.got_state, p.want_state, p.n_state);
    kg_info(c, "scan-out-rel", scan_out);
    kg_info(c, "scan-state-rel", scan_state);
    kg_check_value(c, "out-rel", "band", out, f32_form.out_band);
    kg_check_value(c, "state-rel", "band", state, f32_form.state_band);
    kg_check_value(c, "out-over-scan", "band", out, fmax(32 * scan_out, 1e-6));
    kg_check_value(c, "state-over-scan", "band", state, fmax(32 * scan_state, 1e-6));
}

static void run_16_bits(struct kg_cell *c, const struct shape *shape,
                        const struct form *form)
{
    struct problem p = of_shape(c, shape);

    chunked(c, &p, form);
    if (!shape->pinned)
        return;
    kg_check_value(c, "out-rel", "band", worst_relative(p.got_out, p.want_out, p.n_out),
                   form->out_band);
    kg_check_value(c, "state-rel", "band",
                   worst_relative(p.got_state, p.want_state, p.n_state),
                   form->state_band);
}

static void run_mma(struct kg_cell *c, const void *row)
{
    run_16_bits(c, row, &mma_form);
}

static void run_wgmma(struct kg_cell *c, const void *row)
{
    if (kg_device(c)->cc_major != 9)
        kg_skip(c, "device-unsupported", "wgmma needs compute capability 9.0");
    run_16_bits(c, row, &wgmma_form);
}

static void need_gpu(struct kg_cell *c)
{
    if (kg_device(c)->cc_major == 0)
        kg_skip(c, "device-unsupported", "sized for a GPU");
}

static void bench_scan(struct kg_cell *c, const void *row)
{
    need_gpu(c);
    run_scan(c, row);
}

static void bench_chunked(struct kg_cell *c, const void *row)
{
    need_gpu(c);
    struct problem p = of_shape(c, row);
    chunked(c, &p, &f32_form);
}

static void bench_mma(struct kg_cell *c, const void *row)
{
    need_gpu(c);
    run_mma(c, row);
}

static void add(struct kg_plan *plan, const char *form, kg_cell_fn *run,
                const struct shape *shape, uint32_t flags)
{
    kg_plan_addf(plan, &(struct kg_cell_spec){NULL, run, shape, NULL, flags}, "gdn.%s.%s",
                 form, shape->id);
}

static void plan(struct kg_plan *plan)
{
    kg_plan_add(plan, &(struct kg_cell_spec){"gdn.scan.h1-t3", run_scan_pinned, NULL,
                                             NULL, KG_CELL_ORDERED});
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        add(plan, "chunked", run_chunked, &shapes[i], KG_CELL_ORDERED);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].chunk <= 64) {
            add(plan, "mma", run_mma, &shapes[i], 0);
            add(plan, "wgmma", run_wgmma, &shapes[i], KG_CELL_OPTIONAL);
        }
    const uint32_t optional = KG_CELL_OPTIONAL;
    add(plan, "bench.scan", bench_scan, &benches[1], optional | KG_CELL_ORDERED);
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        add(plan, "bench.chunked", bench_chunked, &benches[i],
            optional | KG_CELL_ORDERED);
        if (benches[i].chunk <= 64) {
            add(plan, "bench.mma", bench_mma, &benches[i], optional);
            add(plan, "bench.wgmma", run_wgmma, &benches[i], optional);
        }
    }
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "gdn",
    .summary = "gated delta net: scan, chunked WY form in f32 and on tensor cores",
    .plan = plan,
};
