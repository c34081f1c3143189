/*
 * fa-prefill: attention of a prompt, over f32 K and V, a 16-bit workspace made of them, and
 * the quantized cache.
 *
 * The oracle is given the operands as the arm rounds them (bf16, f16, or not at all), so
 * that the bound covers the arm's own sums and weights. The band compares with operands that
 * were not rounded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgate/check.h"
#include "plugins/oracle/attention.h"
#include "plugins/oracle/kv.h"

struct arm {
    const char *id;
    int arm;
    int rounding; /* of the operands: F32 for none */
    bool single;
};
static const struct arm arms[] = {
    {"naive",       KG_PREFILL_NAIVE,       KG_TYPE_F32,  false},
    {"bf16",        KG_PREFILL_BF16,        KG_TYPE_BF16, false},
    {"f16",         KG_PREFILL_F16,         KG_TYPE_F16,  false},
    {"single-bf16", KG_PREFILL_SINGLE_BF16, KG_TYPE_BF16, true },
    {"single-f16",  KG_PREFILL_SINGLE_F16,  KG_TYPE_F16,  true },
    {"wgmma-bf16",  KG_PREFILL_WGMMA_BF16,  KG_TYPE_BF16, false},
    {"wgmma-f16",   KG_PREFILL_WGMMA_F16,   KG_TYPE_F16,  false},
};
enum { NAIVE, BF16, F16, SINGLE_BF16, SINGLE_F16, WGMMA_BF16, WGMMA_F16, N_ARMS };

struct shape {
    const char *kind;
    int head_dim, n_heads, n_kv_heads;
    int64_t tokens, keys;
    int window;
    bool whole; /* not causal */
    bool sharp; /* scores with a deviation of 2.5 instead of nearly equal ones */
    uint64_t q_at, k_at, v_at;
    uint32_t arms;      /* 1 << arm */
    int k_type, v_type; /* of the cache; F32 where there is none */
};

#define ARM(i) (1u << (i))
#define FLASH (ARM(BF16) | ARM(F16))
#define SINGLE (ARM(SINGLE_BF16) | ARM(SINGLE_F16))

struct job {
    struct kg_cell *cell;
    const struct shape *shape;
    struct kg_prefill args;
    float *q_host, *k_host, *v_host;
    const void *k_source,
        *v_source; /* what the kernel reads: k_host or the cache's bytes */
    struct kg_buf *q, *k, *v, *k16, *v16, *out, *lse;
};

static void *quantized(struct kg_cell *c, int type, const float *x, int64_t keys,
                       int64_t dim)
{
    uint8_t *bytes = kg_alloc(c, (size_t)keys * kg_oracle_kv_bytes(type, dim));

    for (int64_t t = 0; t < keys; t++)
        kg_oracle_kv_quantize(type, x + t * dim,
                              bytes + (size_t)t * kg_oracle_kv_bytes(type, dim), dim);
    return bytes;
}

static size_t side_bytes(int type, int64_t n)
{
    return type == KG_TYPE_F32 ? (size_t)n * 4 : kg_oracle_kv_bytes(type, n);
}

static struct job make_job(struct kg_cell *c, const struct shape *s)
{
    int64_t dim = (int64_t)s->head_dim * s->n_kv_heads;
    size_t n_q = (size_t)(s->tokens * s->n_heads * s->head_dim);
    size_t n_kv = (size_t)(s->keys * dim);
    struct job job = {.cell = c, .shape = s};
    bool cache = s->k_type != KG_TYPE_F32;

    job.args = (struct kg_prefill){
        .layout = {s->k_type, s->v_type, dim, dim, (int64_t)side_bytes(s->k_type, dim),
                   (int64_t)side_bytes(s->v_type, dim)},
        .source = cache ? KG_PREFILL_CACHE : KG_PREFILL_F32,
        .head_dim = s->head_dim,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .causal = !s->whole,
        .window = s->window,
        .scale = 1.0f / sqrtf((float)s->head_dim),
        .tokens = s->tokens,
        .keys = s->keys,
    };
    job.q_host = kg_pr(c, n_q, s->q_at, s->sharp ? 3.0f : 0.2f);
    job.k_host = kg_pr(c, n_kv, s->k_at, s->sharp ? 2.5f : 0.2f);
    job.v_host = kg_pr(c, n_kv, s->v_at, s->sharp ? 0.7f : 0.2f);
    job.k_source = cache ? quantized(c, s->k_type, job.k_host, s->keys, dim) : job.k_host;
    job.v_source = cache ? quantized(c, s->v_type, job.v_host, s->keys, dim) : job.v_host;
    job.q = kg_input(c, "q", job.q_host, n_q * 4);
    job.k = kg_input(c, "k", job.k_source, side_bytes(s->k_type, (int64_t)n_kv));
    job.v = kg_input(c, "v", job.v_source, side_bytes(s->v_type, (int64_t)n_kv));
    kg_param_i(c, "head_dim", s->head_dim);
    kg_param_i(c, "heads", s->n_heads);
    kg_param_i(c, "kv_heads", s->n_kv_heads);
    kg_param_i(c, "tokens", s->tokens);
    kg_param_i(c, "keys", s->keys);
    kg_param_i(c, "window", s->window);
    return job;
}

static void make_outputs(struct job *job)
{
    size_t heads = (size_t)(job->shape->tokens * job->shape->n_heads);

    job->out = kg_output(job->cell, "out", heads * (size_t)job->shape->head_dim * 4);
    job->lse = kg_output(job->cell, "lse", heads * 4);
}

/* The arguments with this repetition's pointers. */
static const struct kg_prefill *pointers(struct job *job, bool workspace)
{
    job->args.q = kg_ptr(job->q);
    job->args.k = kg_ptr(workspace ? job->k16 : job->k);
    job->args.v = kg_ptr(workspace ? job->v16 : job->v);
    job->args.out = kg_ptr(job->out);
    job->args.lse = kg_ptr(job->lse);
    job->args.source = workspace                           ? KG_PREFILL_WORKSPACE
                       : job->shape->k_type != KG_TYPE_F32 ? KG_PREFILL_CACHE
                                                           : KG_PREFILL_F32;
    return &job->args;
}

/* Pairs of a query and a key that it sees. */
static double pairs_of(const struct shape *s)
{
    double n = 0;

    for (int64_t i = 0; i < s->tokens; i++) {
        int64_t position = s->keys - s->tokens + i;
        int64_t seen = s->whole ? s->keys : position + 1;
        if (!s->whole && s->window > 0 && seen > s->window)
            seen = s->window;
        n += seen > 0 ? (double)seen : 0;
    }
    return n;
}

static struct kg_cost cost_of(const struct job *job, int arm, bool workspace)
{
    const struct shape *s = job->shape;
    double dim = (double)s->head_dim * s->n_kv_heads;
    double sides = workspace ? 4 * dim
                             : (double)(side_bytes(s->k_type, (int64_t)dim) +
                                        side_bytes(s->v_type, (int64_t)dim));

    return (struct kg_cost){
        .bytes =
            8.0 * (double)s->tokens * s->n_heads * s->head_dim + sides * (double)s->keys,
        .ops = 4.0 * pairs_of(s) * s->n_heads * s->head_dim,
        .engine = arm == NAIVE ? "f32" : "f16-mma",
    };
}

static const float *run_arm(struct job *job, int arm)
{
    struct kg_cell *c = job->cell;
    struct kg_cost cost = cost_of(job, arm, false);

    make_outputs(job);
    KG_ARM(
        c, arms[arm].id, &cost,
        KG_OPS(c, attention, prefill)(arms[arm].arm, pointers(job, false), kg_stream(c)));
    return kg_fetch(job->out);
}

/* The same on a workspace that `stage` makes first. Under --bench both are timed together,
   so the arm's cost counts the unrounded K and V, too. */
static const float *run_staged(struct job *job, int arm, const char *name)
{
    struct kg_cell *c = job->cell;
    size_t bytes = (size_t)(job->shape->keys * job->args.layout.k_dim) * 2;
    struct kg_cost cost = cost_of(job, arm, true);

    make_outputs(job);
    job->k16 = kg_scratch(c, "k16", bytes);
    job->v16 = kg_scratch(c, "v16", bytes);
    KG_ARM(c, name, &cost,
           KG_SEQ(KG_OPS(c, attention,
                         stage)(pointers(job, false), arms[arm].rounding == KG_TYPE_F16,
                                kg_ptr(job->k16), kg_ptr(job->v16), kg_stream(c)),
                  KG_OPS(c, attention, prefill)(arms[arm].arm, pointers(job, true),
                                                kg_stream(c))));
    return kg_fetch(job->out);
}

/*
 * Roundings; kernels/attention/prefill.h and prefill.cu state the orders. mma.sync and wgmma
 * keep products exact and may cut at each addition, hence 2^-23 and one for every element;
 * their order does not matter to that count.
 *   weight: 8 significant bits of bf16, 11 of f16 with steps of 2^-24 at the bottom.
 */
static struct kg_oracle_attention_ops ops_of(const struct shape *s, int arm)
{
    double keys = (double)s->keys, tiles = ceil(keys / 32) + 1;
    struct kg_oracle_attention_ops ops = {
        .u = 0x1p-23,
        .score = s->head_dim + 2,
        .rescales = tiles + 1,
        .sum = keys / 4 + 2 * tiles + 3,
        .value = keys + 32 + tiles,
        .weight = arms[arm].rounding == KG_TYPE_F16 ? 0x1p-11 : 0x1p-8,
        .weight_floor = arms[arm].rounding == KG_TYPE_F16 ? 0x1p-25 : 0,
    };

    if (arm == WGMMA_BF16 || arm == WGMMA_F16) {
        /* The sum takes the weights unrounded. 2^x is within 2^-22, twice what is counted
           for an exponential and its rescaling. */
        ops.product_weight = ops.weight;
        ops.weight = 0;
        ops.rescales = 2 * (tiles + 2);
    }
    if (arm == NAIVE)
        ops = (struct kg_oracle_attention_ops){
            .u = 0x1p-24,
            .score = s->head_dim + 1,
            .rescales = tiles,
            .sum = 7 * tiles,
            .value = keys + tiles + 1,
        };
    return ops;
}

struct want {
    double *out, *bound, *lse, *lse_bound;
    size_t n, heads;
};

static struct want oracle(struct job *job, int arm, bool rounded, int64_t sample)
{
    struct kg_cell *c = job->cell;
    const struct shape *s = job->shape;
    int64_t dim = (int64_t)s->head_dim * s->n_kv_heads;
    struct kg_oracle_attention a = {
        .head_dim = s->head_dim,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .tokens = s->tokens,
        .keys = s->keys,
        .causal = !s->whole,
        .window = s->window,
        .scale = job->args.scale,
        .q = job->q_host,
        .k = rounded ? job->k_source : job->k_host,
        .v = rounded ? job->v_source : job->v_host,
        .k_type = rounded ? s->k_type : KG_TYPE_F32,
        .v_type = rounded ? s->v_type : KG_TYPE_F32,
        .k_stride = (int64_t)side_bytes(rounded ? s->k_type : KG_TYPE_F32, dim),
        .v_stride = (int64_t)side_bytes(rounded ? s->v_type : KG_TYPE_F32, dim),
        .round_to = rounded ? arms[arm].rounding : KG_TYPE_F32,
        .sample = sample,
    };
    struct kg_oracle_attention_ops ops = ops_of(s, arm);
    size_t heads = (size_t)(s->tokens * s->n_heads), n = heads * (size_t)s->head_dim;
    struct want w = {kg_alloc(c, n * 8),
                     kg_alloc(c, n * 8),
                     kg_alloc(c, heads * 8),
                     kg_alloc(c, heads * 8),
                     n,
                     heads};

    if (kg_oracle_attend(&a, &ops, w.out, w.bound, w.lse, w.lse_bound))
        kg_error(c, "the oracle ran out of memory");
    return w;
}

/* Queries from the first that sees a key on. Those before are all zeros, -inf. */
static size_t first_seeing(const struct shape *s)
{
    int64_t blind = s->whole || s->tokens <= s->keys ? 0 : s->tokens - s->keys;

    return (size_t)(blind * s->n_heads);
}

static void check_outputs(struct job *job, int arm, const char *id, const float *out,
                          const float *lse)
{
    const struct shape *s = job->shape;
    struct want w = oracle(job, arm, true, 0);
    size_t at = first_seeing(s), dim = (size_t)s->head_dim;
    char name[64];

    snprintf(name, sizeof name, "%s.bound", id);
    kg_check_bound(job->cell, name, out, w.out, w.bound, w.n);
    snprintf(name, sizeof name, "%s.lse", id);
    kg_check_bound(job->cell, name, lse + at, w.lse + at, w.lse_bound + at, w.heads - at);
    if (at == 0)
        return;
    float *zeros = kg_alloc(job->cell, at * dim * 4),
          *minus = kg_alloc(job->cell, at * 4);
    for (size_t i = 0; i < at; i++)
        minus[i] = -INFINITY;
    snprintf(name, sizeof name, "%s.blind", id);
    kg_oracle_allow(job->cell, KG_ORACLE_ZERO);
    kg_check_exact(job->cell, name, out, zeros, at * dim, 4);
    snprintf(name, sizeof name, "%s.blind-lse", id);
    kg_oracle_allow(job->cell, KG_ORACLE_NONFINITE);
    kg_check_exact(job->cell, name, lse, minus, at, 4);
}

static void run_shape(struct kg_cell *c, const void *row)
{
    const struct shape *s = row;
    struct job job = make_job(c, s);
    bool banded = !s->sharp && s->k_type == KG_TYPE_F32;
    const char *option = kg_option(c, "staged");
    bool all = option && strcmp(option, "all") == 0;
    struct want plain = {0};

    if (banded)
        plain = oracle(&job, NAIVE, false, 0);
    for (int arm = 0; arm < N_ARMS; arm++) {
        char name[64];
        if (!(s->arms & ARM(arm)))
            continue;
        const float *got = run_arm(&job, arm);
        const float *lse = kg_fetch(job.lse);
        check_outputs(&job, arm, arms[arm].id, got, lse);
        if (banded) {
            snprintf(name, sizeof name, "%s.band", arms[arm].id);
            kg_check_band(c, name, got, plain.out, plain.n, 1e-3,
                          arm == NAIVE ? 1e-4 : 2e-2);
        }
        /* One format shows a fault of the staging; both with the parameter `staged: all`. */
        if (arm == NAIVE || (arms[arm].rounding == KG_TYPE_F16 && !all))
            continue;
        snprintf(name, sizeof name, "%s-staged", arms[arm].id);
        const float *staged = run_staged(&job, arm, name);
        kg_check_exact(c, name, got, staged,
                       (size_t)(s->tokens * s->n_heads * s->head_dim), 4);
    }
}

/* A cache with bytes between the tokens: the results are those of the packed one. */
static struct kg_buf *padded(struct kg_cell *c, const char *name, const void *packed,
                             int64_t keys, int64_t stride, int64_t pad)
{
    size_t bytes = (size_t)(keys * (stride + pad));
    uint8_t *spread = kg_alloc(c, bytes);

    memset(spread, 0xff, bytes);
    for (int64_t t = 0; t < keys; t++)
        memcpy(spread + t * (stride + pad), (const uint8_t *)packed + t * stride,
               (size_t)stride);
    return kg_input(c, name, spread, bytes);
}

static void run_padded(struct kg_cell *c, const void *row)
{
    enum { PAD = 20 };
    const struct shape *s = row;
    struct job job = make_job(c, s);
    struct kg_kv_layout packed = job.args.layout;
    struct kg_buf *k = job.k, *v = job.v;
    struct kg_buf *k_far =
        padded(c, "k-padded", job.k_source, s->keys, packed.k_stride, PAD);
    struct kg_buf *v_far =
        padded(c, "v-padded", job.v_source, s->keys, packed.v_stride, 2 * PAD);

    for (int arm = NAIVE; arm <= F16; arm++) {
        job.k = k;
        job.v = v;
        job.args.layout = packed;
        const float *want = run_arm(&job, arm);
        check_outputs(&job, arm, arms[arm].id, want, kg_fetch(job.lse));
        job.k = k_far;
        job.v = v_far;
        job.args.layout.k_stride += PAD;
        job.args.layout.v_stride += 2 * PAD;
        kg_check_exact(c, arms[arm].id, run_arm(&job, arm), want,
                       (size_t)(s->tokens * s->n_heads * s->head_dim), 4);
    }
}

/* A key that is NaN makes the rows that see it NaN, and no others. */
static void run_nan(struct kg_cell *c, const void *row)
{
    enum { KEY = 50 };
    const struct shape *s = row;
    struct job job = make_job(c, s);
    int64_t per_head = s->head_dim, blind = KEY - (s->keys - s->tokens);
    float *k = kg_alloc(c, (size_t)(s->keys * s->n_kv_heads * per_head) * 4);

    memcpy(k, job.k_host, (size_t)(s->keys * s->n_kv_heads * per_head) * 4);
    k[(KEY * s->n_kv_heads + s->n_kv_heads - 1) * per_head + 3] = NAN;
    job.k = kg_input(c, "k-nan", k, (size_t)(s->keys * s->n_kv_heads * per_head) * 4);
    for (int arm = NAIVE; arm <= F16; arm++) {
        const float *got = run_arm(&job, arm);
        long long wrong = 0;
        for (int64_t i = 0; i < s->tokens * s->n_heads * per_head; i++) {
            int head = (int)(i / per_head % s->n_heads);
            bool sees = i / per_head / s->n_heads >= blind &&
                        head >= s->n_heads - s->n_heads / s->n_kv_heads;
            wrong += !isnan(got[i]) == sees;
        }
        kg_check_that(c, arms[arm].id, wrong == 0,
                      "%lld outputs are NaN that should not be, or not NaN", wrong);
    }
}

/* ---- wgmma: on a workspace only ---- */

static void run_wgmma(struct kg_cell *c, const void *row)
{
    const struct shape *s = row;

    if (kg_device(c)->cc_major != 9)
        kg_skip(c, "device-unsupported", "wgmma needs sm_90a");
    struct job job = make_job(c, s);
    for (int arm = WGMMA_BF16; arm <= WGMMA_F16; arm++) {
        const float *got = run_staged(&job, arm, arms[arm].id);
        check_outputs(&job, arm, arms[arm].id, got, kg_fetch(job.lse));
    }
}

/* ---- bench ---- */

enum { SAMPLE = 1009 };

static void check_sampled(struct job *job, int arm, const char *id, const float *got,
                          int64_t step)
{
    const struct shape *s = job->shape;
    struct want w = oracle(job, arm, true, step);
    size_t dim = (size_t)s->head_dim, n = 0;
    float *some = kg_alloc(job->cell, (w.heads / (size_t)step + 1) * dim * 4);

    for (size_t i = 0; i < w.heads; i += (size_t)step, n += dim) {
        memcpy(some + n, got + i * dim, dim * 4);
        memmove(w.out + n, w.out + i * dim, dim * 8);
        memmove(w.bound + n, w.bound + i * dim, dim * 8);
    }
    kg_check_bound(job->cell, id, some, w.out, w.bound, n);
}

static void run_bench(struct kg_cell *c, const void *row)
{
    const struct shape *s = row;

    if (kg_device(c)->cc_major == 0)
        kg_skip(c, "device-unsupported", "sized for a GPU");
    struct job job = make_job(c, s);
    size_t bytes = (size_t)(s->keys * job.args.layout.k_dim) * 2;
    for (int arm = BF16; arm < N_ARMS; arm++) {
        if (!(s->arms & ARM(arm)) ||
            ((arm == WGMMA_BF16 || arm == WGMMA_F16) && kg_device(c)->cc_major != 9))
            continue;
        char name[64];
        struct kg_cost cost = cost_of(&job, arm, true);
        snprintf(name, sizeof name, "%s-stage", arms[arm].id);
        job.k16 = kg_output(c, "k16", bytes);
        job.v16 = kg_output(c, "v16", bytes);
        make_outputs(&job);
        KG_ARM(c, name, NULL,
               KG_OPS(c, attention,
                      stage)(pointers(&job, false), arms[arm].rounding == KG_TYPE_F16,
                             kg_ptr(job.k16), kg_ptr(job.v16), kg_stream(c)));
        job.k16 = kg_input(c, "k16-in", kg_fetch(job.k16), bytes);
        job.v16 = kg_input(c, "v16-in", kg_fetch(job.v16), bytes);
        KG_ARM(c, arms[arm].id, &cost,
               KG_OPS(c, attention, prefill)(arms[arm].arm, pointers(&job, true),
                                             kg_stream(c)));
        check_sampled(&job, arm, arms[arm].id, kg_fetch(job.out), SAMPLE);
    }
}

/* ---- plan ---- */

/* The pinned shapes and offsets. */
static const struct shape pinned[] = {
    {"naive",  64,  2,  1, 4,   4,   0,  false, false, 0,  7,  11, ARM(NAIVE),     0,            0           },
    {"hd256",  256, 16, 4, 16,  16,  0,  false, false, 0,  7,  11, FLASH | SINGLE, 0,            0           },
    {"hd256",  256, 16, 4, 64,  64,  0,  false, false, 0,  7,  11, FLASH | SINGLE, 0,            0           },
    {"hd256",  256, 16, 4, 100, 100, 0,  false, false, 0,  7,  11, FLASH | SINGLE, 0,            0           },
    {"hd256",  256, 16, 4, 256, 256, 0,  false, false, 0,  7,  11, FLASH,          0,            0           },
    {"window", 256, 4,  1, 64,  64,  32, false, false, 47, 53, 61, FLASH | SINGLE, 0,            0           },
    {"window", 256, 4,  1, 100, 100, 32, false, false, 47, 53, 61, FLASH | SINGLE, 0,            0           },
    {"hd512",  512, 8,  1, 64,  64,  0,  false, false, 13, 17, 23, FLASH | SINGLE, 0,            0           },
    {"hd512",  512, 8,  1, 100, 100, 0,  false, false, 13, 17, 23, FLASH | SINGLE, 0,            0           },
    {"hd512g", 512, 8,  4, 64,  64,  0,  false, false, 29, 31, 37, FLASH | SINGLE, 0,            0           },
    {"hd512g", 512, 8,  4, 100, 100, 0,  false, false, 29, 31, 37, FLASH | SINGLE, 0,            0           },
    {"cache",  256, 16, 4, 64,  192, 0,  false, false, 5,  7,  11, FLASH,          KG_TYPE_Q8_0,
     KG_TYPE_Q5_1                                                                                            },
    {"cache",  256, 16, 4, 100, 100, 0,  false, false, 5,  7,  11, FLASH | SINGLE,
     KG_TYPE_Q8_0,                                                                               KG_TYPE_Q5_1},
    {"cache",  256, 16, 4, 37,  297, 0,  false, false, 5,  7,  11, FLASH,          KG_TYPE_Q8_0,
     KG_TYPE_Q5_1                                                                                            },
};

static void add(struct kg_plan *p, struct shape shape, kg_cell_fn *run, uint32_t flags,
                const char *id)
{
    struct shape *row = kg_plan_alloc(p, sizeof *row);

    *row = shape;
    kg_plan_addf(p, &(struct kg_cell_spec){NULL, run, row, NULL, flags}, "fa-prefill.%s",
                 id);
}

static struct shape sharp(int head_dim, int n_heads, int n_kv_heads, int64_t tokens,
                          int64_t keys, int window, uint32_t which)
{
    return (struct shape){"",   head_dim, n_heads, n_kv_heads,  tokens,
                          keys, window,   false,   true,        4211,
                          101,  90001,    which,   KG_TYPE_F32, KG_TYPE_F32};
}

static void plan_sharp(struct kg_plan *p)
{
    static const int lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    static const int groups[] = {1, 5, 6, 7, 8, 16, 20, 24, 64};
    static const int dims[] = {64, 96, 128, 192, 256, 512};
    static const int caches[][2] = {
        {KG_TYPE_Q8_0,    KG_TYPE_Q4_0   },
        {KG_TYPE_Q8_0,    KG_TYPE_F8_E4M3},
        {KG_TYPE_F8_E4M3, KG_TYPE_Q5_1   },
    };
    const uint32_t all = ARM(NAIVE) | FLASH;
    char id[64];

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        snprintf(id, sizeof id, "length.%d", lengths[i]);
        add(p, sharp(128, 4, 2, lengths[i], lengths[i], 0, all), run_shape, 0, id);
    }
    for (int d = -1; d <= 1; d++) {
        snprintf(id, sizeof id, "window-edge.w64-t%d", 64 + d);
        add(p, sharp(64, 4, 2, 64 + d, 64 + d, 64, all), run_shape, 0, id);
        snprintf(id, sizeof id, "window-edge.w%d-t130", 64 + d);
        add(p, sharp(64, 4, 2, 130, 130, 64 + d, all), run_shape, 0, id);
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        snprintf(id, sizeof id, "gqa.%d", groups[i]);
        add(p, sharp(64, 2 * groups[i], 2, 5, 70, 0, all), run_shape, 0, id);
    }
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        snprintf(id, sizeof id, "head.%d", dims[i]);
        add(p, sharp(dims[i], 4, 2, 40, 75, 0, all | (dims[i] >= 256 ? SINGLE : 0)),
            run_shape, 0, id);
    }
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        struct shape s = sharp(96, 4, 2, 30, 75, 0, all);
        s.k_type = caches[i][0];
        s.v_type = caches[i][1];
        snprintf(id, sizeof id, "cache-types.%s-%s", kg_type_name(s.k_type),
                 kg_type_name(s.v_type));
        for (char *x = id; *x; x++)
            *x = *x >= 'A' && *x <= 'Z' ? (char)(*x + 32) : *x;
        add(p, s, run_shape, 0, id);
    }
    struct shape pad = sharp(96, 4, 2, 30, 75, 0, all);
    pad.k_type = KG_TYPE_Q8_0;
    pad.v_type = KG_TYPE_Q5_1;
    add(p, pad, run_padded, 0, "padded");
    add(p, sharp(64, 4, 2, 40, 70, 0, all), run_nan, 0, "nan");
    add(p, sharp(128, 4, 2, 70, 64, 0, all), run_shape, 0, "blind");
    struct shape whole = sharp(128, 4, 2, 33, 97, 0, all);
    whole.whole = true;
    add(p, whole, run_shape, 0, "whole");
}

/* A tile has 128 keys; 96, 80 and 64 with heads of 192, 256 and 512. */
static void plan_wgmma(struct kg_plan *p)
{
    static const struct {
        const char *id;
        int64_t tokens, keys;
        int window;
        bool whole;
    } rows[] = {
        {"128",     128, 128, 0,   false},
        {"200-455", 200, 455, 0,   false},
        {"1-129",   1,   129, 0,   false},
        {"window",  300, 300, 100, false},
        {"whole",   130, 259, 0,   true },
        {"blind",   140, 100, 0,   false},
        {"81",      81,  81,  0,   false},
        {"80-160",  80,  160, 0,   false},
    };
    static const int dims[] = {128, 64, 96, 192, 256, 512};
    char id[64], head[16] = "";

    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
        if (d > 0)
            snprintf(head, sizeof head, "hd%d.", dims[d]);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct shape s =
                sharp(dims[d], 8, 2, rows[i].tokens, rows[i].keys, rows[i].window, 0);
            s.whole = rows[i].whole;
            snprintf(id, sizeof id, "wgmma.%s%s", head, rows[i].id);
            add(p, s, run_wgmma, KG_CELL_OPTIONAL, id);
        }
        snprintf(id, sizeof id, "wgmma.%smqa", head);
        add(p, sharp(dims[d], 5, 1, 77, 193, 0, 0), run_wgmma, KG_CELL_OPTIONAL, id);
    }
}

static void plan(struct kg_plan *p)
{
    const uint32_t wgmma = ARM(WGMMA_BF16) | ARM(WGMMA_F16);
    char id[64];

    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        snprintf(id, sizeof id, "%s.t%lld-k%lld", pinned[i].kind,
                 (long long)pinned[i].tokens, (long long)pinned[i].keys);
        add(p, pinned[i], run_shape, 0, id);
    }
    plan_sharp(p);
    plan_wgmma(p);
    add(p, sharp(64, 32, 8, 4096, 4096, 0, wgmma), run_bench, KG_CELL_OPTIONAL,
        "bench.64-32x8-t4096");
    add(p, sharp(128, 32, 8, 4096, 4096, 0, FLASH | wgmma), run_bench, KG_CELL_OPTIONAL,
        "bench.128-32x8-t4096");
    add(p, sharp(256, 16, 4, 2048, 2048, 0, FLASH | SINGLE | wgmma), run_bench,
        KG_CELL_OPTIONAL, "bench.256-16x4-t2048");
    add(p, sharp(256, 16, 4, 4096, 4096, 0, wgmma), run_bench, KG_CELL_OPTIONAL,
        "bench.256-16x4-t4096");
    add(p, sharp(512, 8, 1, 2048, 2048, 0, FLASH | SINGLE | wgmma), run_bench,
        KG_CELL_OPTIONAL, "bench.512-8x1-t2048");
}

static const struct kg_section_param params[] = {
    {"staged", "all: both 16-bit formats are staged"},
    {0       },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "fa-prefill",
    .summary = "attention of prompts over f32, 16-bit and quantized K and V",
    .plan = plan,
    .params = params,
};
