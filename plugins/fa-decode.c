/*
 * fa-decode: attention of one query row a sequence over the quantized cache.
 *
 * Every arm is held to the f64 oracle on the bytes of the cache, within the error bound of
 * its own additions. Where the scores are small (the pinned data of `arms`) an error of the
 * keys hardly shows in the output, so the other cells draw scores with a deviation of
 * about 2.5, keys and values from different parts of the vector and of different size.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgate/check.h"
#include "plugins/oracle/attention.h"
#include "plugins/oracle/kv.h"

struct pair {
    const char *id;
    int k_type, v_type;
    double
        band; /* error against K and V that were not quantized, over the largest output */
};

/* Bands are in proportion to the error of an element of V: 1.35e-2 of the largest one for
   Q5_1, 3.2e-2 for E4M3, 6.1e-2 for Q4_0. */
static const struct pair pairs[] = {
    {"q8_0-q5_1", KG_TYPE_Q8_0,    KG_TYPE_Q5_1,    6e-2      },
    {"q8_0-e4m3", KG_TYPE_Q8_0,    KG_TYPE_F8_E4M3, 6e-2 * 2.5},
    {"q8_0-q4_0", KG_TYPE_Q8_0,    KG_TYPE_Q4_0,    6e-2 * 5  },
    {"e4m3-q5_1", KG_TYPE_F8_E4M3, KG_TYPE_Q5_1,    6e-2      },
    {"e4m3-e4m3", KG_TYPE_F8_E4M3, KG_TYPE_F8_E4M3, 6e-2 * 2.5},
    {"e4m3-q4_0", KG_TYPE_F8_E4M3, KG_TYPE_Q4_0,    6e-2 * 5  },
};

struct arm {
    const char *id;
    int arm;
};
static const struct arm arms[] = {
    {"scalar",      KG_DECODE_SCALAR                 },
    {"vector",      KG_DECODE_VECTOR                 },
    {"int8",        KG_DECODE_INT8                   },
    {"vector-deep", KG_DECODE_VECTOR | KG_DECODE_DEEP},
    {"int8-deep",   KG_DECODE_INT8 | KG_DECODE_DEEP  },
};
enum { SCALAR, VECTOR, INT8, VECTOR_DEEP, INT8_DEEP, N_ARMS };

struct draw {
    uint64_t q_at, k_at, v_at;
    float q, k, v;
};
static const struct draw pinned = {1, 7, 11, 0.2f, 0.2f, 0.2f};
static const struct draw sharp = {4211, 101, 90001, 3.0f, 2.5f, 0.7f};

/* One problem: rows query rows on caches of `keys` tokens. */
struct job {
    struct kg_cell *cell;
    const struct pair *pair;
    struct kg_decode args;
    int64_t keys, rows;
    float *q_host, *k_host, *v_host;
    uint8_t *k_bytes, *v_bytes;
    struct kg_buf *q, *k, *v, *out, *lse, *workspace;
    struct kg_buf *table, *lengths; /* of the forms that have them */
};

static void quantize(int type, const float *x, uint8_t *to, int64_t tokens, int64_t dim,
                     int64_t stride)
{
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        kg_oracle_kv_quantize(type, x + t * dim, to + t * stride, dim);
}

static struct job make_job(struct kg_cell *c, const struct pair *pair, int head_dim,
                           int n_heads, int n_kv_heads, int64_t keys, int64_t rows,
                           const struct draw *draw)
{
    int64_t dim = (int64_t)head_dim * n_kv_heads;
    int64_t k_stride = (int64_t)kg_oracle_kv_bytes(pair->k_type, dim);
    int64_t v_stride = (int64_t)kg_oracle_kv_bytes(pair->v_type, dim);
    size_t n_q = (size_t)(rows * n_heads * head_dim), n_kv = (size_t)(keys * dim);
    struct job job = {.cell = c, .pair = pair, .keys = keys, .rows = rows};

    job.args.layout =
        (struct kg_kv_layout){pair->k_type, pair->v_type, dim, dim, k_stride, v_stride};
    job.args.head_dim = head_dim;
    job.args.n_heads = n_heads;
    job.args.n_kv_heads = n_kv_heads;
    job.args.scale = 1.0f / sqrtf((float)head_dim);
    job.q_host = kg_pr(c, n_q, draw->q_at, draw->q);
    job.k_host = kg_pr(c, n_kv, draw->k_at, draw->k);
    job.v_host = kg_pr(c, n_kv, draw->v_at, draw->v);
    job.k_bytes = kg_alloc(c, (size_t)(keys * k_stride));
    job.v_bytes = kg_alloc(c, (size_t)(keys * v_stride));
    quantize(pair->k_type, job.k_host, job.k_bytes, keys, dim, k_stride);
    quantize(pair->v_type, job.v_host, job.v_bytes, keys, dim, v_stride);
    job.q = kg_input(c, "q", job.q_host, n_q * 4);
    job.k = kg_input(c, "k_cache", job.k_bytes, (size_t)(keys * k_stride));
    job.v = kg_input(c, "v_cache", job.v_bytes, (size_t)(keys * v_stride));
    kg_param_s(c, "k_type", kg_type_name(pair->k_type));
    kg_param_s(c, "v_type", kg_type_name(pair->v_type));
    kg_param_i(c, "head_dim", head_dim);
    kg_param_i(c, "heads", n_heads);
    kg_param_i(c, "kv_heads", n_kv_heads);
    kg_param_i(c, "keys", keys);
    kg_param_i(c, "rows", rows);
    return job;
}

/* New outputs and a workspace for up to max_length keys. */
static void make_outputs(struct job *job, int64_t rows, int64_t max_length)
{
    struct kg_cell *c = job->cell;
    size_t heads = (size_t)(rows * job->args.n_heads);
    int64_t bytes = KG_OPS(c, attention, decode_workspace)(&job->args, rows, max_length);

    if (bytes < 0)
        kg_fail(c, "decode_workspace: %lld", (long long)bytes);
    void *zeros = kg_alloc(c, (size_t)bytes);
    job->out = kg_output(c, "out", heads * (size_t)job->args.head_dim * 4);
    job->lse = kg_output(c, "lse", heads * 4);
    job->workspace = kg_inout(c, "workspace", zeros, (size_t)bytes);
}

/* The arguments with this repetition's pointers, for row `row` and the rows behind it. */
static const struct kg_decode *pointers(struct job *job, int64_t row)
{
    int64_t heads = row * job->args.n_heads;

    job->args.q = (float *)kg_ptr(job->q) + heads * job->args.head_dim;
    job->args.k_cache = kg_ptr(job->k);
    job->args.v_cache = kg_ptr(job->v);
    job->args.out = (float *)kg_ptr(job->out) + heads * job->args.head_dim;
    job->args.lse = (float *)kg_ptr(job->lse) + heads;
    job->args.workspace = kg_ptr(job->workspace);
    return &job->args;
}

static double cache_bytes(const struct job *job, int64_t keys)
{
    return (double)keys * (double)(job->args.layout.k_stride + job->args.layout.v_stride);
}

static struct kg_cost cost_of(const struct job *job, int64_t keys, const char *engine)
{
    double n = (double)job->rows * job->args.n_heads * job->args.head_dim;

    return (struct kg_cost){
        .bytes = cache_bytes(job, keys) + 8 * n,
        .ops = 4 * n * (double)keys,
        .engine = engine,
    };
}

static struct kg_cost arm_cost(const struct job *job, int arm, int64_t keys)
{
    return cost_of(job, keys, arm == INT8 || arm == INT8_DEEP ? "dp4a" : "f32");
}

/* Whether the arm reads settled keys ahead, and the provider has the launcher for it. */
static bool reads_ahead(const struct kg_cell *c, int arm)
{
    const struct kg_attention_ops *ops = kg_provider(c)->attention;

    return arms[arm].arm & KG_DECODE_DEEP && ops && ops->size >= sizeof *ops &&
           ops->decode_settled;
}

/* Row 0; as if the last key had just been appended. */
static int decode_one(struct job *job, int arm, int64_t length)
{
    struct kg_cell *c = job->cell;
    int64_t last = length - 1;

    if (length > 0 && reads_ahead(c, arm))
        return KG_OPS(c, attention, decode_settled)(arms[arm].arm, pointers(job, 0), last,
                                                    1, last, kg_stream(c));
    return KG_OPS(c, attention, decode)(arms[arm].arm, pointers(job, 0), length,
                                        kg_stream(c));
}

/* Rows that see base + 1 keys and more; as if all behind `base` had just been appended. */
static int decode_rows(struct job *job, int arm, int64_t base)
{
    struct kg_cell *c = job->cell;

    if (reads_ahead(c, arm))
        return KG_OPS(c, attention, decode_settled)(arms[arm].arm, pointers(job, 0), base,
                                                    job->rows, base, kg_stream(c));
    return KG_OPS(c, attention, decode_rows)(arms[arm].arm, pointers(job, 0), base,
                                             job->rows, kg_stream(c));
}

/* Runs one arm on row 0 with `length` keys; the output is in job->out. */
static const float *run_single(struct job *job, int arm, int64_t length)
{
    struct kg_cell *c = job->cell;
    struct kg_cost cost = arm_cost(job, arm, length);

    make_outputs(job, 1, length);
    KG_ARM(c, arms[arm].id, &cost, decode_one(job, arm, length));
    return kg_fetch(job->out);
}

/* ---- the oracle ---- */

static bool has_arm(const struct pair *pair, int arm)
{
    return (pair->k_type == KG_TYPE_Q8_0 && pair->v_type == KG_TYPE_Q5_1) ||
           arm == SCALAR || arm == VECTOR;
}

/* Keys of a split as the launchers' contract has it: 132 blocks over the key heads, steps
   of 64, at least 128. */
static int64_t split_keys(const struct job *job, int64_t keys)
{
    int64_t wanted = 132 / job->args.n_kv_heads;
    int64_t size = ((keys + wanted - 1) / wanted + 63) / 64 * 64;

    return size < 128 ? 128 : size;
}

/* Roundings of each arm; kernels/attention/decode.h and decode_scalar.cu state the order.
 *   score   scalar: a lane's hd/32 fma, 5 additions, the scale. vector: 8 fma, 2 joins, the
 *           block's scale, hd/32 - 1 additions, the scale. int8: two scales, hd/32 fma.
 *   weight  one rescaling a tile of the warp after its first, one to the warps' maximum and
 *           one to the splits'. A warp's M may lie 3 below its largest score, so that
 *           s - M rounds by 3u where the model has 0: one rescaling more covers it.
 *   sum     2 keys a tile and lane, 4 for the lanes, the warps, the splits.
 *   value   scalar: v itself, and two roundings a key. fast: p * d, then a fma a tile and the
 *           low digits (V Q5_1 with K Q8_0) or at most 8 fma a tile and 3 for chains and slots.
 *           Or a fma with m for 2 keys a tile, 4 for the lanes. Then the warps, the addition of
 *           both, the splits.
 */
static struct kg_oracle_attention_ops ops_of(const struct job *job, int arm, int64_t keys)
{
    int head_dim = job->args.head_dim, warps = head_dim <= 128   ? 16
                                               : head_dim <= 256 ? 8
                                                                 : 4;
    double size = (double)split_keys(job, keys), splits = ceil((double)keys / size);
    double blocks = head_dim / 32, tiles = ceil(fmin(size, (double)keys) / 16);
    double own = ceil(tiles / warps), active = fmin(tiles, warps);
    bool digits = has_arm(job->pair, INT8);
    double product = digits ? own + 2 : head_dim == 64 ? 4 * own + 5 : 8 * own + 3;
    struct kg_oracle_attention_ops ops = {
        .u = 0x1p-24,
        .score = arm == VECTOR || arm == VECTOR_DEEP ? blocks + 11 : blocks + 2,
        .rescales = own + (own > 1 ? 2 : 1),
        .sum = 2 * own + 3 + active + splits,
        .value = fmax(product, 2 * own + 4) + active + 1 + splits,
        .digits = digits,
    };

    if (arm == SCALAR)
        ops = (struct kg_oracle_attention_ops){
            .u = 0x1p-24,
            .score = blocks + 6,
            .rescales = (double)keys,
            .sum = 2 * (double)keys,
            .value = 2 * (double)keys + 1,
        };
    return ops;
}

struct want {
    double *out, *bound, *lse, *lse_bound;
    size_t n, heads;
};

/* Row r of `rows` sees keys - rows + r + 1 of the job's keys. q: the rows' queries. */
static struct want oracle(struct job *job, const float *q, const uint8_t *k,
                          const uint8_t *v, int64_t keys, int64_t rows, int arm)
{
    struct kg_cell *c = job->cell;
    const struct kg_decode *d = &job->args;
    struct kg_oracle_attention a = {
        .head_dim = d->head_dim,
        .n_heads = d->n_heads,
        .n_kv_heads = d->n_kv_heads,
        .tokens = rows,
        .keys = keys,
        .causal = true,
        .window = d->window,
        .scale = d->scale,
        .q = q,
        .k = k,
        .v = v,
        .k_type = job->pair->k_type,
        .v_type = job->pair->v_type,
        .k_stride = d->layout.k_stride,
        .v_stride = d->layout.v_stride,
        .round_to = KG_TYPE_F32,
        .q_int8 = arm == INT8 || arm == INT8_DEEP,
    };
    int64_t seen = d->window > 0 && d->window < keys ? d->window : keys;
    struct kg_oracle_attention_ops ops = ops_of(job, arm, seen);
    size_t heads = (size_t)(rows * d->n_heads), n = heads * (size_t)d->head_dim;
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

static void check_bounds(struct job *job, const char *id, const float *out,
                         const float *lse, const struct want *w)
{
    char name[80];

    snprintf(name, sizeof name, "%s.bound", id);
    kg_check_bound(job->cell, name, out, w->out, w->bound, w->n);
    snprintf(name, sizeof name, "%s.lse", id);
    kg_check_bound(job->cell, name, lse, w->lse, w->lse_bound, w->heads);
}

/* ---- arms: the pinned data, against K and V that were not quantized, too ---- */

struct arms_row {
    const struct pair *pair;
    int64_t keys;
};

static double relative(const float *got, const double *want, size_t n)
{
    double err = 0, top = 1e-3;

    for (size_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= err))
            err = fabs(got[i] - want[i]);
        top = fmax(top, fabs(want[i]));
    }
    return err / top;
}

static double *unquantized(struct job *job)
{
    struct kg_oracle_attention a = {
        .head_dim = job->args.head_dim,
        .n_heads = job->args.n_heads,
        .n_kv_heads = job->args.n_kv_heads,
        .tokens = 1,
        .keys = job->keys,
        .causal = true,
        .scale = job->args.scale,
        .q = job->q_host,
        .k = job->k_host,
        .v = job->v_host,
        .k_type = KG_TYPE_F32,
        .v_type = KG_TYPE_F32,
        .k_stride = job->args.layout.k_dim * 4,
        .v_stride = job->args.layout.v_dim * 4,
    };
    struct kg_oracle_attention_ops ops = {0};
    size_t bytes = (size_t)job->args.n_heads * (size_t)job->args.head_dim * 8;
    double *out = kg_alloc(job->cell, bytes), *unused = kg_alloc(job->cell, bytes);

    if (kg_oracle_attend(&a, &ops, out, unused, NULL, NULL))
        kg_error(job->cell, "the oracle ran out of memory");
    return out;
}

static void run_arms(struct kg_cell *c, const void *row_)
{
    const struct arms_row *row = row_;
    struct job job = make_job(c, row->pair, 256, 16, 4, row->keys, 1, &pinned);
    const double *plain = unquantized(&job);
    double rel[3] = {0};

    for (int arm = SCALAR; arm <= INT8; arm++) {
        if (!has_arm(row->pair, arm))
            continue;
        const float *got = run_single(&job, arm, row->keys);
        const float *lse = kg_fetch(job.lse);
        struct want w =
            oracle(&job, job.q_host, job.k_bytes, job.v_bytes, row->keys, 1, arm);
        check_bounds(&job, arms[arm].id, got, lse, &w);
        rel[arm] = relative(got, plain, w.n);
        kg_check_value(c, arms[arm].id, "band", rel[arm], row->pair->band);
        if (arm != SCALAR)
            kg_check_value(c, arm == VECTOR ? "vector-over-scalar" : "int8-over-scalar",
                           "band", fmax(0, rel[arm] - rel[SCALAR]),
                           arm == VECTOR ? 2.5e-3 : 1e-2);
    }
}

/* ---- shapes: every arm on sharp data, within its bound; deep has the bits of base ---- */

struct shape {
    const char *kind;
    int head_dim, n_heads, n_kv_heads;
    int64_t keys;
    int window;
    const struct pair *pair;
};

static void run_shape(struct kg_cell *c, const void *row)
{
    const struct shape *s = row;
    struct job job =
        make_job(c, s->pair, s->head_dim, s->n_heads, s->n_kv_heads, s->keys, 1, &sharp);
    const float *base[N_ARMS] = {NULL}, *base_lse[N_ARMS] = {NULL};

    job.args.window = s->window;
    kg_param_i(c, "window", s->window);
    for (int arm = 0; arm < N_ARMS; arm++) {
        if (!has_arm(s->pair, arm))
            continue;
        base[arm] = run_single(&job, arm, s->keys);
        base_lse[arm] = kg_fetch(job.lse);
        if (arm < VECTOR_DEEP) {
            struct want w =
                oracle(&job, job.q_host, job.k_bytes, job.v_bytes, s->keys, 1, arm);
            check_bounds(&job, arms[arm].id, base[arm], base_lse[arm], &w);
            continue;
        }
        int twin = arm - VECTOR_DEEP + VECTOR;
        size_t heads = (size_t)s->n_heads;
        kg_check_exact(c, arms[arm].id, base[arm], base[twin],
                       heads * (size_t)s->head_dim, 4);
        kg_check_exact(c, arm == INT8_DEEP ? "int8-deep.lse" : "vector-deep.lse",
                       base_lse[arm], base_lse[twin], heads, 4);
    }
}

/* A row that sees no key: zeros and -inf, whatever lies in the cache. */
static void run_masked(struct kg_cell *c, const void *row)
{
    (void)row;
    struct job job = make_job(c, &pairs[0], 128, 8, 2, 4, 1, &sharp);
    float zeros[8 * 128] = {0}, lse[8];

    memset(job.k_bytes, 0xff, (size_t)(job.keys * job.args.layout.k_stride));
    for (int i = 0; i < 8; i++)
        lse[i] = -INFINITY;
    for (int arm = 0; arm < N_ARMS; arm++) {
        char name[64];
        const float *got = run_single(&job, arm, 0);
        kg_oracle_allow(c, KG_ORACLE_ZERO);
        kg_check_exact(c, arms[arm].id, got, zeros, 8 * 128, 4);
        snprintf(name, sizeof name, "%s.lse", arms[arm].id);
        kg_oracle_allow(c, KG_ORACLE_NONFINITE);
        kg_check_exact(c, name, kg_fetch(job.lse), lse, 8, 4);
    }
}

/* A cache with bytes between the tokens: the results are those of the packed one. */
static struct kg_buf *padded(struct kg_cell *c, const char *name, const uint8_t *packed,
                             int64_t keys, int64_t stride, int64_t pad)
{
    size_t bytes = (size_t)(keys * (stride + pad));
    uint8_t *spread = kg_alloc(c, bytes);

    memset(spread, 0xff, bytes);
    for (int64_t t = 0; t < keys; t++)
        memcpy(spread + t * (stride + pad), packed + t * stride, (size_t)stride);
    return kg_input(c, name, spread, bytes);
}

static void run_padded(struct kg_cell *c, const void *row)
{
    enum { KEYS = 140, K_PAD = 8, V_PAD = 48 };
    (void)row;
    struct job job = make_job(c, &pairs[0], 128, 8, 2, KEYS, 1, &sharp);
    struct kg_kv_layout packed = job.args.layout;
    struct kg_buf *k = job.k, *v = job.v;
    struct kg_buf *k_far =
        padded(c, "k_padded", job.k_bytes, KEYS, packed.k_stride, K_PAD);
    struct kg_buf *v_far =
        padded(c, "v_padded", job.v_bytes, KEYS, packed.v_stride, V_PAD);

    for (int arm = 0; arm < N_ARMS; arm++) {
        job.k = k;
        job.v = v;
        job.args.layout = packed;
        const float *want = run_single(&job, arm, KEYS);
        job.k = k_far;
        job.v = v_far;
        job.args.layout.k_stride += K_PAD;
        job.args.layout.v_stride += V_PAD;
        kg_check_exact(c, arms[arm].id, run_single(&job, arm, KEYS), want, 8 * 128, 4);
    }
}

/* A key whose scale is NaN makes the heads that see it NaN, and no others. */
static void run_nan(struct kg_cell *c, const void *row)
{
    enum { KEYS = 200, KEY = 150 };
    (void)row;
    struct job job = make_job(c, &pairs[0], 128, 8, 2, KEYS, 1, &sharp);
    int64_t stride = job.args.layout.k_stride;
    uint8_t *d = job.k_bytes + KEY * stride + stride / 2 + 34;

    d[0] = 0xff;
    d[1] = 0x7f;
    job.k = kg_input(c, "k_nan", job.k_bytes, (size_t)(KEYS * stride));
    for (int arm = 0; arm < N_ARMS; arm++)
        for (int64_t length = KEY; length <= KEYS; length += KEYS - KEY) {
            const float *got = run_single(&job, arm, length);
            int wrong = 0;
            char name[64];
            for (int i = 0; i < 8 * 128; i++)
                wrong += !isnan(got[i]) == (i >= 4 * 128 && length > KEY);
            snprintf(name, sizeof name, "%s.%d", arms[arm].id, (int)length);
            kg_check_that(c, name, wrong == 0,
                          "%d outputs are NaN that should not be, or not NaN", wrong);
        }
}

/* The whole set of arms takes a while on the emulated device: without the parameter
   `deep_arms: all`, depths from 1000 on run the int8 arm and its rewrite under a bucket; rows as deep leave the scalar arm out. */
static bool every_arm(const struct kg_cell *c)
{
    const char *option = kg_option(c, "deep_arms");

    return option && strcmp(option, "all") == 0;
}

/* ---- rows: a few rows at once are the rows one by one ---- */

struct rows_row {
    int64_t base, rows;
};

static int decode_each(struct job *job, int arm, int64_t base)
{
    struct kg_cell *c = job->cell;

    for (int64_t r = 0; r < job->rows; r++)
        KG_TRY(KG_OPS(c, attention, decode)(arms[arm].arm, pointers(job, r), base + r + 1,
                                            kg_stream(c)));
    return KG_OK;
}

static void run_rows(struct kg_cell *c, const void *row_)
{
    const struct rows_row *row = row_;
    int64_t keys = row->base + row->rows;
    struct draw draw = pinned;
    draw.q_at = 3;
    draw.q = 6;
    struct job job = make_job(c, &pairs[0], 256, 16, 4, keys, row->rows, &draw);
    size_t n = (size_t)(row->rows * 16 * 256);

    for (int arm = 0; arm < N_ARMS; arm++) {
        char name[64];
        struct kg_cost cost = arm_cost(&job, arm, keys);
        if (arm == SCALAR && keys > 1000 && !every_arm(c))
            continue;
        make_outputs(&job, row->rows, keys);
        KG_ARM(c, arms[arm].id, &cost, decode_rows(&job, arm, row->base));
        const float *got = kg_fetch(job.out), *lse = kg_fetch(job.lse);
        struct want w =
            oracle(&job, job.q_host, job.k_bytes, job.v_bytes, keys, row->rows, arm);
        check_bounds(&job, arms[arm].id, got, lse, &w);
        make_outputs(&job, row->rows, keys);
        snprintf(name, sizeof name, "%s-loop", arms[arm].id);
        KG_ARM(c, name, NULL, decode_each(&job, arm, row->base));
        kg_check_exact(c, name, got, kg_fetch(job.out), n, 4);
    }
}

/* ---- sequences: caches of uneven depth in one launch are the sequences one by one ---- */

struct seqs_row {
    const char *id;
    int head_dim, n_heads, n_kv_heads, batch;
    int32_t depth[8];
};

static const struct seqs_row seqs_rows[] = {
    {"4-uneven", 256, 16, 4, 4, {96, 128, 257, 511}                     },
    {"8-even",   256, 16, 4, 8, {200, 200, 200, 200, 200, 200, 200, 200}},
    {"2-short",  128, 8,  2, 2, {1, 33}                                 },
    {"3-empty",  128, 10, 2, 3, {129, 0, 640}                           },
    {"8-ragged", 64,  6,  1, 8, {7, 64, 65, 128, 129, 300, 31, 1}       },
};

static int decode_seq_each(struct job *job, int arm, const struct seqs_row *row,
                           const uint64_t *table)
{
    struct kg_cell *c = job->cell;

    for (int z = 0; z < row->batch; z++) {
        pointers(job, z);
        job->args.k_cache = (const uint8_t *)job->args.k_cache + table[2 * z];
        job->args.v_cache = (const uint8_t *)job->args.v_cache + table[2 * z + 1];
        KG_TRY(KG_OPS(c, attention, decode)(arms[arm].arm, &job->args, row->depth[z],
                                            kg_stream(c)));
    }
    return KG_OK;
}

/* The sequences' caches lie one behind the other, padded to 16 bytes, in one buffer. */
static void run_seqs(struct kg_cell *c, const void *row_)
{
    const struct seqs_row *row = row_;
    struct draw draw = {31, 13, 17, 6, 0.2f, 0.2f};
    uint64_t table[16];
    int64_t keys = 0, longest = 0;

    for (int z = 0; z < row->batch; z++) {
        keys += (row->depth[z] + 15) / 16 * 16;
        longest = row->depth[z] > longest ? row->depth[z] : longest;
    }
    struct job job = make_job(c, &pairs[0], row->head_dim, row->n_heads, row->n_kv_heads,
                              keys, row->batch, &draw);
    for (int64_t z = 0, at = 0; z < row->batch; at += (row->depth[z++] + 15) / 16 * 16) {
        table[2 * z] = (uint64_t)(at * job.args.layout.k_stride);
        table[2 * z + 1] = (uint64_t)(at * job.args.layout.v_stride);
    }
    job.table = kg_input(c, "table", table, (size_t)row->batch * 16);
    job.lengths = kg_input(c, "lengths", row->depth, (size_t)row->batch * 4);
    for (int arm = 0; arm < N_ARMS; arm++) {
        char name[64];
        size_t per_row = (size_t)(row->n_heads * row->head_dim);
        make_outputs(&job, row->batch, longest);
        KG_ARM(c, arms[arm].id, NULL,
               KG_OPS(c, attention, decode_seqs)(arms[arm].arm, pointers(&job, 0),
                                                 kg_ptr(job.table), kg_ptr(job.lengths),
                                                 row->batch, longest, kg_stream(c)));
        const float *got = kg_fetch(job.out), *lse = kg_fetch(job.lse);
        make_outputs(&job, row->batch, longest);
        snprintf(name, sizeof name, "%s-loop", arms[arm].id);
        KG_ARM(c, name, NULL, decode_seq_each(&job, arm, row, table));
        kg_check_exact(c, name, got, kg_fetch(job.out), per_row * (size_t)row->batch, 4);
        for (int z = 0; z < row->batch; z++) {
            if (row->depth[z] == 0)
                continue;
            struct want w =
                oracle(&job, job.q_host + (size_t)z * per_row, job.k_bytes + table[2 * z],
                       job.v_bytes + table[2 * z + 1], row->depth[z], 1, arm);
            snprintf(name, sizeof name, "%s.%d", arms[arm].id, z);
            check_bounds(&job, name, got + (size_t)z * per_row, lse + z * row->n_heads,
                         &w);
        }
    }
}

/* ---- deep: the rewrite and the length on the device, at depth ---- */

struct deep_row {
    int head_dim, n_heads, n_kv_heads;
    int64_t depth;
};

static const float *run_dc(struct job *job, int arm, int64_t bucket, const char *name)
{
    struct kg_cell *c = job->cell;

    make_outputs(job, 1, bucket);
    KG_ARM(c, name, NULL,
           KG_OPS(c, attention, decode_dc)(arms[arm].arm, pointers(job, 0),
                                           kg_ptr(job->lengths), bucket, kg_stream(c)));
    return kg_fetch(job->out);
}

static void run_deep(struct kg_cell *c, const void *row_)
{
    const struct deep_row *row = row_;
    struct draw draw = {1, 7, 11, 6, 0.2f, 0.2f};
    struct job job = make_job(c, &pairs[0], row->head_dim, row->n_heads, row->n_kv_heads,
                              row->depth, 1, &draw);
    int32_t depth = (int32_t)row->depth;
    size_t n = (size_t)(row->n_heads * row->head_dim);
    bool all = row->depth < 1000 || every_arm(c);

    job.lengths = kg_input(c, "length", &depth, 4);
    for (int base = all ? VECTOR : INT8; base <= INT8; base++) {
        int deep = base - VECTOR + VECTOR_DEEP;
        const float *want = run_single(&job, base, row->depth);
        const float *lse = kg_fetch(job.lse);
        struct want w =
            oracle(&job, job.q_host, job.k_bytes, job.v_bytes, row->depth, 1, base);
        check_bounds(&job, arms[base].id, want, lse, &w);
        if (all)
            kg_check_exact(c, arms[deep].id, run_single(&job, deep, row->depth), want, n,
                           4);
        for (int form = 0; form < 4; form++) {
            int arm = form & 1 ? deep : base;
            int64_t bucket = row->depth + (form & 2 ? 128 : 0);
            char name[64];
            if (!all && form != 3)
                continue;
            snprintf(name, sizeof name, "%s-dc.%s", arms[arm].id,
                     form & 2 ? "bucket" : "exact");
            kg_check_exact(c, name, run_dc(&job, arm, bucket, name), want, n, 4);
        }
    }
}

/* ---- bench: shapes that a GPU is timed on ---- */

static void run_bench(struct kg_cell *c, const void *row)
{
    const struct shape *s = row;

    if (kg_device(c)->cc_major == 0)
        kg_skip(c, "device-unsupported", "sized for a GPU");
    struct job job =
        make_job(c, s->pair, s->head_dim, s->n_heads, s->n_kv_heads, s->keys, 1, &sharp);
    const float *base = NULL;
    for (int arm = VECTOR; arm < N_ARMS; arm++) {
        const float *got = run_single(&job, arm, s->keys);
        if (arm == INT8) {
            const float *lse = kg_fetch(job.lse);
            struct want w =
                oracle(&job, job.q_host, job.k_bytes, job.v_bytes, s->keys, 1, arm);
            check_bounds(&job, arms[arm].id, got, lse, &w);
            base = got;
        }
        if (arm == INT8_DEEP)
            kg_check_exact(c, arms[arm].id, got, base, (size_t)(s->n_heads * s->head_dim),
                           4);
    }
}

/* ---- overlapped: the launch ahead writes the last keys or values, all others are settled ---- */

/* That launch is a product of one row of q, which lets the next one start early and stores its
   results last. They are the cache's bytes of the last tokens: floats c * 2^-80, small integers c,
   whose upper halves are finite as f16, too. Few rows, so that multiprocessors are left for decode,
   and long ones, so that an arm that reads too early is there before the results. The same
   with many rows of q keeps the device busy until both launches have been queued. */
enum { OVER_KEYS = 2100, OVER_LAST = 4, OVER_IN = 32768, OVER_BUSY = 16 };

struct writer {
    struct kg_buf *w, *q, *d, *busy;
    int64_t out;
    float *y_host; /* what it stores */
};

static struct writer make_writer(struct kg_cell *c, int64_t out)
{
    const size_t row_bytes = OVER_IN / 32 * 18, units = OVER_IN / 32;
    struct writer w = {.out = out};
    uint8_t *bytes = kg_alloc(c, (size_t)out * row_bytes);
    int8_t *q = kg_alloc(c, OVER_BUSY * OVER_IN);
    float *ones = kg_alloc(c, OVER_BUSY * units * 4);

    w.y_host = kg_alloc(c, (size_t)out * 4);
    memset(q, 0, OVER_BUSY * OVER_IN);
    for (size_t r = 0; r < OVER_BUSY; r++)
        q[r * OVER_IN] = 1;
    for (size_t u = 0; u < OVER_BUSY * units; u++)
        ones[u] = 1.0f;
    for (int64_t o = 0; o < out; o++) {
        const int code = (int)(o % 7) + 1;
        for (size_t u = 0; u < units; u++) {
            uint8_t *block = bytes + (size_t)o * row_bytes + 18 * u;
            block[0] = 0x00;
            block[1] = 0x3c; /* 1 */
            memset(block + 2, 0x88, 16);
        }
        bytes[(size_t)o * row_bytes + 2] = (uint8_t)(0x80 | (8 + code));
        w.y_host[o] = (float)code * 0x1p-80f;
    }
    w.w = kg_input(c, "w", bytes, (size_t)out * row_bytes);
    w.q = kg_input(c, "w_q", q, OVER_BUSY * OVER_IN);
    w.d = kg_input(c, "w_d", ones, OVER_BUSY * units * 4);
    w.busy = kg_scratch(c, "busy", (size_t)(OVER_BUSY * out) * 4);
    return w;
}

static int write_rows(struct kg_cell *c, const struct writer *w, float *to, int64_t m)
{
    const struct kg_mmvq_tensor tensor = {kg_ptr(w->w), to, w->out, 0x1p-80f, NULL};

    return KG_OPS(c, mmvq, product)(KG_TYPE_Q4_0, KG_LAYOUT_FILE, KG_SCALE_NONE, &tensor,
                                    1, kg_ptr(w->q), kg_ptr(w->d), NULL, OVER_IN, m, 1,
                                    kg_stream(c));
}

static const bool overlapped_values[] = {false, true};

static void run_overlapped(struct kg_cell *c, const void *row)
{
    const bool values = *(const bool *)row;
    enum { HD = 128, HEADS = 8, KV_HEADS = 2, FIRST = OVER_KEYS - OVER_LAST };
    struct job job = make_job(c, &pairs[0], HD, HEADS, KV_HEADS, OVER_KEYS, 1, &sharp);
    const struct kg_kv_layout *l = &job.args.layout;
    const int64_t stride = values ? l->v_stride : l->k_stride, at = FIRST * stride;
    const size_t last_bytes = (size_t)(OVER_LAST * stride);
    uint8_t *bytes = values ? job.v_bytes : job.k_bytes;
    const size_t n_bytes = (size_t)(OVER_KEYS * stride);
    const struct writer writer = make_writer(c, (int64_t)last_bytes / 4);
    uint8_t *before = memcpy(kg_alloc(c, n_bytes), bytes, n_bytes);

    memset(before + at, 0x55, last_bytes);
    memcpy(bytes + at, writer.y_host, last_bytes);
    *(values ? &job.v : &job.k) = kg_input(c, "cache_after", bytes, n_bytes);
    for (int base = VECTOR; base <= INT8; base++) {
        int deep = base - VECTOR + VECTOR_DEEP;
        const float *want = run_single(&job, base, OVER_KEYS);
        struct want w =
            oracle(&job, job.q_host, job.k_bytes, job.v_bytes, OVER_KEYS, 1, deep);
        struct job old = job;
        struct kg_buf *cache = kg_inout(c, "cache_before", before, n_bytes);
        *(values ? &old.v : &old.k) = cache;
        make_outputs(&old, 1, OVER_KEYS);
        float *last = (float *)((char *)kg_ptr(cache) + at);
        /* Once before: a kernel's first launch takes longer than all that runs ahead. */
        KG_ARM(c, arms[deep].id, NULL,
               KG_SEQ(KG_SEQ(decode_one(&old, deep, OVER_KEYS),
                             write_rows(c, &writer, kg_ptr(writer.busy), OVER_BUSY)),
                      KG_SEQ(write_rows(c, &writer, last, 1),
                             KG_OPS(c, attention, decode_settled)(
                                 arms[deep].arm, pointers(&old, 0), OVER_KEYS - 1, 1,
                                 FIRST, kg_stream(c)))));
        const float *got = kg_fetch(old.out);
        check_bounds(&old, arms[deep].id, got, kg_fetch(old.lse), &w);
        kg_check_exact(c, arms[deep].id, got, want, HEADS * HD, 4);
    }
}

/* ---- offsets past 2^31 elements: a few tokens, far apart ---- */

static void run_far(struct kg_cell *c, const void *row)
{
    (void)row;
    enum { KEYS = 40 };
    const int64_t stride = INT64_C(1) << 26; /* 40 tokens span 2.6e9 bytes */

    if (kg_device(c)->cc_major == 0)
        kg_skip(c, "device-unsupported", "5 GiB of cache");
    struct job job = make_job(c, &pairs[0], 128, 8, 2, KEYS, 1, &sharp);
    struct kg_kv_layout packed = job.args.layout;
    struct kg_buf *k = kg_input(c, "k", job.k_host, (size_t)(KEYS * packed.k_dim) * 4);
    struct kg_buf *v = kg_input(c, "v", job.v_host, (size_t)(KEYS * packed.v_dim) * 4);
    job.k = kg_scratch(c, "k_far", (size_t)(KEYS * stride));
    job.v = kg_scratch(c, "v_far", (size_t)(KEYS * stride));
    job.args.layout.k_stride = job.args.layout.v_stride = stride;
    for (int arm = 0; arm < N_ARMS; arm++) {
        make_outputs(&job, 1, KEYS);
        KG_ARM(c, arms[arm].id, NULL,
               KG_SEQ(KG_OPS(c, kv, append_rows)(&job.args.layout, kg_ptr(k), kg_ptr(v),
                                                 kg_ptr(job.k), kg_ptr(job.v), 0, KEYS,
                                                 kg_stream(c)),
                      KG_OPS(c, attention, decode)(arms[arm].arm, pointers(&job, 0), KEYS,
                                                   kg_stream(c))));
        const float *got = kg_fetch(job.out), *lse = kg_fetch(job.lse);
        job.args.layout = packed;
        struct want w = oracle(&job, job.q_host, job.k_bytes, job.v_bytes, KEYS, 1, arm);
        job.args.layout.k_stride = job.args.layout.v_stride = stride;
        check_bounds(&job, arms[arm].id, got, lse, &w);
    }
}

/* ---- plan ---- */

static void add_shape(struct kg_plan *p, kg_cell_fn *run, uint32_t flags,
                      struct shape shape, const char *id)
{
    struct shape *row = kg_plan_alloc(p, sizeof *row);

    *row = shape;
    if (!row->pair)
        row->pair = &pairs[0];
    kg_plan_addf(p, &(struct kg_cell_spec){NULL, run, row, NULL, KG_CELL_ORDERED | flags},
                 "fa-decode.%s.%s", shape.kind, id);
}

static void plan_shapes(struct kg_plan *p)
{
    static const int lengths[] = {1,   2,   31,  32,  33,  63,  64,  65, 127,
                                  128, 129, 255, 256, 257, 384, 385, 640};
    static const int groups[] = {1, 5, 6, 7, 8, 16, 20, 24, 64};
    static const int dims[] = {64, 96, 128, 192, 256, 512};
    char id[64];

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        snprintf(id, sizeof id, "%d", lengths[i]);
        add_shape(p, run_shape, 0,
                  (struct shape){"length", 128, 8, 2, lengths[i], 0, NULL}, id);
    }
    for (int window = 64; window <= 192; window += 128)
        for (int d = -1; d <= 1; d++) {
            snprintf(id, sizeof id, "w%d-t%d", window, window + d);
            add_shape(p, run_shape, 0,
                      (struct shape){"window", 128, 8, 2, window + d, window, NULL}, id);
        }
    add_shape(p, run_shape, 0, (struct shape){"window", 128, 8, 2, 700, 192, NULL},
              "w192-t700");
    /* Rows of all key heads that are a multiple of 32 bytes. */
    add_shape(p, run_shape, 0, (struct shape){"heads", 128, 8, 4, 200, 0, NULL},
              "128-8x4-t200");
    add_shape(p, run_shape, 0, (struct shape){"heads", 256, 8, 4, 150, 0, NULL},
              "256-8x4-t150");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        snprintf(id, sizeof id, "%d", groups[i]);
        add_shape(p, run_shape, 0,
                  (struct shape){"gqa", 64, 2 * groups[i], 2, 129, 0, NULL}, id);
    }
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (size_t j = 0; j < sizeof pairs / sizeof pairs[0]; j += 5) {
            snprintf(id, sizeof id, "%d-%s", dims[i], pairs[j].id);
            add_shape(p, run_shape, 0,
                      (struct shape){"head", dims[i], 12, 2, 161, 0, &pairs[j]}, id);
        }
}

static void plan(struct kg_plan *p)
{
    static const int64_t keys[] = {64, 128, 257};
    static const struct rows_row rows[] = {
        {95,   5},
        {127,  4},
        {256,  3},
        {1000, 5},
    };
    static const int64_t depths[] = {511, 512, 513, 3071, 3073, 4096, 6144, 6200};
    struct kg_cell_spec spec = {.flags = KG_CELL_ORDERED};

    spec.run = run_arms;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (size_t j = 0; j < sizeof keys / sizeof keys[0]; j++) {
            struct arms_row *row = kg_plan_alloc(p, sizeof *row);
            *row = (struct arms_row){&pairs[i], keys[j]};
            spec.row = row;
            kg_plan_addf(p, &spec, "fa-decode.arms.%s-t%lld", pairs[i].id,
                         (long long)keys[j]);
        }
    plan_shapes(p);
    spec.run = run_masked;
    kg_plan_addf(p, &spec, "fa-decode.masked");
    spec.run = run_padded;
    kg_plan_addf(p, &spec, "fa-decode.padded");
    kg_plan_add(p, &(struct kg_cell_spec){"fa-decode.nan", run_nan, NULL, NULL, 0});
    spec.run = run_rows;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        spec.row = &rows[i];
        kg_plan_addf(p, &spec, "fa-decode.rows.base%lld-t%lld", (long long)rows[i].base,
                     (long long)rows[i].rows);
    }
    spec.run = run_seqs;
    for (size_t i = 0; i < sizeof seqs_rows / sizeof seqs_rows[0]; i++) {
        spec.row = &seqs_rows[i];
        kg_plan_addf(p, &spec, "fa-decode.seqs.%s", seqs_rows[i].id);
    }
    spec.run = run_deep;
    for (int geometry = 0; geometry < 2; geometry++)
        for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
            struct deep_row *row = kg_plan_alloc(p, sizeof *row);
            *row = geometry == 0 ? (struct deep_row){256, 16, 2, depths[i]}
                                 : (struct deep_row){256, 32, 8, depths[i]};
            spec.row = row;
            kg_plan_addf(p, &spec, "fa-decode.deep.%dx%d-t%lld", row->n_heads,
                         row->n_kv_heads, (long long)depths[i]);
        }
    for (int i = 0; i < 2; i++)
        kg_plan_add(p, &(struct kg_cell_spec){i ? "fa-decode.overlapped.values"
                                                : "fa-decode.overlapped.keys",
                                              run_overlapped, &overlapped_values[i], NULL,
                                              0});
    spec.flags |= KG_CELL_OPTIONAL;
    spec.run = run_far;
    kg_plan_addf(p, &spec, "fa-decode.far");
    add_shape(p, run_bench, KG_CELL_OPTIONAL,
              (struct shape){"bench", 128, 32, 8, 4096, 0, NULL}, "128-32x8-t4096");
    add_shape(p, run_bench, KG_CELL_OPTIONAL,
              (struct shape){"bench", 128, 32, 8, 32768, 0, NULL}, "128-32x8-t32768");
    add_shape(p, run_bench, KG_CELL_OPTIONAL,
              (struct shape){"bench", 256, 16, 4, 4096, 0, NULL}, "256-16x4-t4096");
    add_shape(p, run_bench, KG_CELL_OPTIONAL,
              (struct shape){"bench", 128, 64, 8, 32768, 0, NULL}, "128-64x8-t32768");
}

static const struct kg_section_param params[] = {
    {"deep_arms", "all: every arm at every depth"},
    {0          },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "fa-decode",
    .summary = "attention of single rows over the quantized KV cache",
    .plan = plan,
    .params = params,
};
