/*
 * kv-cache: keys and values appended to the quantized cache.
 *
 * The bytes are compared with the oracle's, which follow the rounding that kgate/ops/kv.h
 * defines; so the forms (one token, rows, sequences) are compared with one another, too.
 */
#include <math.h>
#include <string.h>

#include "kgate/check.h"
#include "plugins/oracle/kv.h"

enum { POISON = 0xff };

struct pair {
    const char *id;
    int k_type, v_type;
    double k_band, v_band; /* error of an element over the largest one */
};

/* A step is amax/127 of Q8_0, (max - min)/31 of Q5_1, amax/8 of Q4_0; half of it, and
   2^-4 of an E4M3 element, is below the bands. */
static const struct pair pairs[] = {
    {"q8_0-q5_1", KG_TYPE_Q8_0,    KG_TYPE_Q5_1,    5e-3, 3e-2},
    {"q8_0-q4_0", KG_TYPE_Q8_0,    KG_TYPE_Q4_0,    5e-3, 7e-2},
    {"q8_0-e4m3", KG_TYPE_Q8_0,    KG_TYPE_F8_E4M3, 5e-3, 7e-2},
    {"e4m3-q5_1", KG_TYPE_F8_E4M3, KG_TYPE_Q5_1,    7e-2, 3e-2},
    {"e4m3-q4_0", KG_TYPE_F8_E4M3, KG_TYPE_Q4_0,    7e-2, 7e-2},
    {"e4m3-e4m3", KG_TYPE_F8_E4M3, KG_TYPE_F8_E4M3, 7e-2, 7e-2},
};

enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static struct kg_kv_layout layout_of(const struct pair *pair, int64_t dim)
{
    struct kg_kv_layout layout = {pair->k_type, pair->v_type, dim, dim, 0, 0};

    layout.k_stride = (int64_t)kg_oracle_kv_bytes(pair->k_type, dim);
    layout.v_stride = (int64_t)kg_oracle_kv_bytes(pair->v_type, dim);
    return layout;
}

static void describe(struct kg_cell *c, const struct pair *pair, int64_t dim,
                     int64_t rows)
{
    kg_param_s(c, "k_type", kg_type_name(pair->k_type));
    kg_param_s(c, "v_type", kg_type_name(pair->v_type));
    kg_param_i(c, "dim", dim);
    kg_param_i(c, "rows", rows);
}

static struct kg_cost cost_of(const struct kg_kv_layout *l, int64_t rows)
{
    double bytes =
        4.0 * (double)(l->k_dim + l->v_dim) + (double)(l->k_stride + l->v_stride);

    return (struct kg_cost){.bytes = bytes * (double)rows};
}

static void check_band(struct kg_cell *c, const char *name, int type, const uint8_t *row,
                       const float *x, int64_t n, double limit)
{
    double *value = kg_alloc(c, (size_t)n * sizeof *value);
    double amax = 1e-6, err = 0;

    kg_oracle_kv_values(type, row, 0, n, value);
    for (int64_t i = 0; i < n; i++) {
        amax = fmax(amax, fabsf(x[i]));
        err = fmax(err, fabs(value[i] - x[i]));
    }
    kg_check_value(c, name, "band", err / amax, limit);
}

/* One token of 128 elements. Block 1 of V sweeps the 32 codes of Q5_1, so that the fifth
   bit turns at its middle; block 2 is constant, block 3 of K zero. */
static void run_round_trip(struct kg_cell *c, const void *row_)
{
    const struct pair *pair = row_;
    const int64_t n = 128;
    struct kg_kv_layout layout = layout_of(pair, n);
    struct kg_cost cost = cost_of(&layout, 1);
    float *k = kg_pr(c, (size_t)n, 71, 1.3f), *v = kg_pr(c, (size_t)n, 91, 0.7f);
    uint8_t *k_want = kg_alloc(c, (size_t)layout.k_stride);
    uint8_t *v_want = kg_alloc(c, (size_t)layout.v_stride);

    for (int i = 0; i < n; i++)
        v[i] += 0.1f;
    for (int i = 0; i < 32; i++) {
        v[32 + i] = (float)i * 0.05f;
        if (pair->v_type != KG_TYPE_Q4_0)
            v[64 + i] = 0.625f;
        k[96 + i] = 0;
    }
    describe(c, pair, n, 1);
    struct kg_buf *dk = kg_input(c, "k", k, (size_t)n * 4);
    struct kg_buf *dv = kg_input(c, "v", v, (size_t)n * 4);
    struct kg_buf *kc = kg_output(c, "k_cache", (size_t)layout.k_stride);
    struct kg_buf *vc = kg_output(c, "v_cache", (size_t)layout.v_stride);
    KG_ARM(c, "append", &cost,
           KG_OPS(c, kv, append)(&layout, kg_ptr(dk), kg_ptr(dv), kg_ptr(kc), kg_ptr(vc),
                                 0, kg_stream(c)));
    const uint8_t *k_got = kg_fetch(kc), *v_got = kg_fetch(vc);
    kg_oracle_kv_quantize(pair->k_type, k, k_want, n);
    kg_oracle_kv_quantize(pair->v_type, v, v_want, n);
    kg_check_exact(c, "k", k_got, k_want, (size_t)layout.k_stride, 1);
    kg_check_exact(c, "v", v_got, v_want, (size_t)layout.v_stride, 1);
    check_band(c, "k-round-trip", pair->k_type, k_got, k, n, pair->k_band);
    check_band(c, "v-round-trip", pair->v_type, v_got, v, n, pair->v_band);
    if (pair->v_type == KG_TYPE_Q5_1) /* whole steps: only f16 rounds the scale */
        check_band(c, "v-fifth-bit", pair->v_type, v_got + 24, v + 32, 32, 0x1p-11);
}

/*
 * One token whose elements lie on the edges of each format's rounding, a block a case. For
 * Q8_0 a scale of 1 with codes on halves, and scales halfway between two f16; for Q5_1 a step
 * of 1 with elements between two codes, and a minimum halfway between two f16; for Q4_0 equal
 * magnitudes of both signs, of which the first gives the scale and the other would be code
 * 16; for E4M3 halfway values of normal and subnormal numbers and of the largest.
 */
static void fill_ties(float *x)
{
    /* The first is the largest; an ulp of d moves the others over a half. */
    static const float near_halves[] = {0x1.00007ap+0f, 0x1.020484p-8f, 0x1.8306c2p-7f,
                                        0x1.4285a4p-6f};
    static const float eights[] = {8, -8},
                       scales[] = {1 + 0x1p-11f, 1 + 0x5p-11f, 0x5p-25f};
    static const float e4m3[] = {1.0625f,  1.1875f,   17,     19,  0x1p-10f,
                                 0x3p-10f, 0x5p-10f,  448,    464, 480,
                                 1000,     0x1fp-11f, 0x1p-7f};

    for (int i = 0; i < 32; i++) {
        x[i] = i == 31 ? 127 : (float)(i - 16) + 0.5f;
        x[32 + i] = i == 0 || i == 31 ? (float)i : (float)i - 0.5f;
        for (int b = 0; b < 2; b++)
            x[64 + 32 * b + i] =
                i % 17 == 3 ? eights[i / 17 ^ b] : (float)(i % 15) - 7.5f;
        for (int b = 0; b < 3; b++)
            x[128 + 32 * b + i] = 127 * scales[b] * (i % 9 == 4 ? -1 : (float)i / 32);
        x[224 + i] = e4m3[i % 13] * (i % 2 ? -1 : 1);
        x[256 + i] = 1 + 0x1p-11f + (float)(i * 5 % 32) * 0x1p-5f;
        x[288 + i] = near_halves[i % 4];
    }
}

static void run_ties(struct kg_cell *c, const void *row_)
{
    enum { N = 320 };
    const struct pair *pair = row_;
    struct kg_kv_layout layout = layout_of(pair, N);
    struct kg_cost cost = cost_of(&layout, 1);
    float *x = kg_alloc(c, N * sizeof *x);
    uint8_t *k_want = kg_alloc(c, (size_t)layout.k_stride);
    uint8_t *v_want = kg_alloc(c, (size_t)layout.v_stride);

    fill_ties(x);
    describe(c, pair, N, 1);
    struct kg_buf *dx = kg_input(c, "x", x, N * sizeof *x);
    struct kg_buf *kc = kg_output(c, "k_cache", (size_t)layout.k_stride);
    struct kg_buf *vc = kg_output(c, "v_cache", (size_t)layout.v_stride);
    KG_ARM(c, "append", &cost,
           KG_OPS(c, kv, append)(&layout, kg_ptr(dx), kg_ptr(dx), kg_ptr(kc), kg_ptr(vc),
                                 0, kg_stream(c)));
    kg_oracle_kv_quantize(pair->k_type, x, k_want, N);
    kg_oracle_kv_quantize(pair->v_type, x, v_want, N);
    kg_check_exact(c, "k", kg_fetch(kc), k_want, (size_t)layout.k_stride, 1);
    kg_check_exact(c, "v", kg_fetch(vc), v_want, (size_t)layout.v_stride, 1);
}

/* Host caches of `slots` poisoned slots into which rows went from slot0 on. */
static uint8_t *want_rows(struct kg_cell *c, int type, const float *x, int64_t dim,
                          int64_t stride, int64_t slot0, int64_t rows, int64_t slots)
{
    uint8_t *cache = kg_alloc(c, (size_t)(slots * stride));

    memset(cache, POISON, (size_t)(slots * stride));
    for (int64_t r = 0; r < rows; r++)
        kg_oracle_kv_quantize(type, x + r * dim, cache + (slot0 + r) * stride, dim);
    return cache;
}

struct rows_job {
    struct kg_kv_layout layout;
    struct kg_buf *k, *v, *kc, *vc;
    int64_t slot0, rows;
};

static int append_each(struct kg_cell *c, const struct rows_job *job)
{
    for (int64_t r = 0; r < job->rows; r++)
        KG_TRY(KG_OPS(c, kv, append)(
            &job->layout, (float *)kg_ptr(job->k) + r * job->layout.k_dim,
            (float *)kg_ptr(job->v) + r * job->layout.v_dim, kg_ptr(job->kc),
            kg_ptr(job->vc), job->slot0 + r, kg_stream(c)));
    return KG_OK;
}

/* T rows at once and one by one; the slots around them stay poisoned. `pad`: bytes that a
   token's row is longer than its elements. */
static void run_rows_of(struct kg_cell *c, const struct pair *pair, int64_t dim,
                        int64_t v_dim, int64_t slot0, int64_t rows, int64_t pad)
{
    const int64_t slots = slot0 + rows + 2;
    struct rows_job job = {.layout = layout_of(pair, dim), .slot0 = slot0, .rows = rows};
    job.layout.v_dim = v_dim;
    job.layout.v_stride = (int64_t)kg_oracle_kv_bytes(pair->v_type, v_dim);
    struct kg_cost cost = cost_of(&job.layout, rows);
    size_t n_k = (size_t)(rows * dim), n_v = (size_t)(rows * v_dim);
    float *k = kg_pr(c, n_k, 301, 1.1f), *v = kg_pr(c, n_v, 401, 0.6f);

    for (size_t i = 0; i < n_v; i++)
        v[i] -= 0.1f;
    job.layout.k_stride += pad;
    job.layout.v_stride += pad;
    size_t k_bytes = (size_t)(slots * job.layout.k_stride);
    size_t v_bytes = (size_t)(slots * job.layout.v_stride);
    describe(c, pair, dim, rows);
    if (v_dim != dim)
        kg_param_i(c, "v_dim", v_dim);
    kg_param_i(c, "slot0", slot0);
    kg_param_i(c, "pad", pad);
    job.k = kg_input(c, "k", k, n_k * 4);
    job.v = kg_input(c, "v", v, n_v * 4);
    job.kc = kg_output(c, "k_cache", k_bytes);
    job.vc = kg_output(c, "v_cache", v_bytes);
    const uint8_t *k_want =
        want_rows(c, pair->k_type, k, dim, job.layout.k_stride, slot0, rows, slots);
    const uint8_t *v_want =
        want_rows(c, pair->v_type, v, v_dim, job.layout.v_stride, slot0, rows, slots);
    KG_ARM(c, "rows", &cost,
           KG_OPS(c, kv, append_rows)(&job.layout, kg_ptr(job.k), kg_ptr(job.v),
                                      kg_ptr(job.kc), kg_ptr(job.vc), slot0, rows,
                                      kg_stream(c)));
    kg_check_exact(c, "rows-k", kg_fetch(job.kc), k_want, k_bytes, 1);
    kg_check_exact(c, "rows-v", kg_fetch(job.vc), v_want, v_bytes, 1);
    if (rows > 64)
        return;
    kg_reset(job.kc);
    kg_reset(job.vc);
    KG_ARM(c, "loop", NULL, append_each(c, &job));
    kg_check_exact(c, "loop-k", kg_fetch(job.kc), k_want, k_bytes, 1);
    kg_check_exact(c, "loop-v", kg_fetch(job.vc), v_want, v_bytes, 1);
}

static void run_rows(struct kg_cell *c, const void *row)
{
    run_rows_of(c, row, 128, 128, 3, 7, 0);
}

/* Keys longer than values. */
static void run_uneven(struct kg_cell *c, const void *row)
{
    run_rows_of(c, row, 192, 128, 2, 5, 0);
}

static void run_strided(struct kg_cell *c, const void *row)
{
    run_rows_of(c, row, 1056, 1056, 5, 3, 20);
}

static void run_bench(struct kg_cell *c, const void *row)
{
    if (kg_device(c)->cc_major == 0)
        kg_skip(c, "device-unsupported", "sized for a GPU");
    run_rows_of(c, row, 1024, 1024, 0, 8192, 0);
}

/* ---- sequences ---- */

struct seqs {
    const char *id;
    int batch;
    int32_t depth[8]; /* tokens of each sequence with the one that is appended */
};

static const struct seqs sequences[] = {
    {"4", 4, {96, 128, 257, 511}                     },
    {"8", 8, {200, 200, 200, 200, 200, 200, 200, 200}},
    {"2", 2, {1, 33}                                 },
};

static int append_seq_each(struct kg_cell *c, const struct rows_job *job,
                           const struct seqs *seqs, const uint64_t *table)
{
    for (int z = 0; z < seqs->batch; z++)
        KG_TRY(KG_OPS(c, kv, append)(&job->layout,
                                     (float *)kg_ptr(job->k) + z * job->layout.k_dim,
                                     (float *)kg_ptr(job->v) + z * job->layout.v_dim,
                                     (uint8_t *)kg_ptr(job->kc) + table[2 * z],
                                     (uint8_t *)kg_ptr(job->vc) + table[2 * z + 1],
                                     seqs->depth[z] - 1, kg_stream(c)));
    return KG_OK;
}

static void run_seqs(struct kg_cell *c, const void *row)
{
    const struct seqs *seqs = row;
    const struct pair *pair = &pairs[0];
    const int64_t dim = 256;
    struct rows_job job = {.layout = layout_of(pair, dim), .rows = seqs->batch};
    size_t n = (size_t)(job.rows * dim);
    const float *k = kg_pr(c, n, 23, 0.2f), *v = kg_pr(c, n, 27, 0.2f);
    int32_t slots[8];
    uint64_t table[16], k_bytes = 0, v_bytes = 0;

    for (int z = 0; z < seqs->batch; z++) {
        slots[z] = seqs->depth[z] - 1;
        table[2 * z] = k_bytes;
        table[2 * z + 1] = v_bytes;
        k_bytes += (uint64_t)(seqs->depth[z] * job.layout.k_stride);
        v_bytes += (uint64_t)(seqs->depth[z] * job.layout.v_stride);
    }
    describe(c, pair, dim, job.rows);
    uint8_t *k_want = kg_alloc(c, k_bytes), *v_want = kg_alloc(c, v_bytes);
    memset(k_want, POISON, k_bytes);
    memset(v_want, POISON, v_bytes);
    for (int z = 0; z < seqs->batch; z++) {
        kg_oracle_kv_quantize(pair->k_type, k + z * dim,
                              k_want + table[2 * z] + slots[z] * job.layout.k_stride,
                              dim);
        kg_oracle_kv_quantize(pair->v_type, v + z * dim,
                              v_want + table[2 * z + 1] + slots[z] * job.layout.v_stride,
                              dim);
    }
    job.k = kg_input(c, "k", k, n * 4);
    job.v = kg_input(c, "v", v, n * 4);
    struct kg_buf *d_table = kg_input(c, "table", table, (size_t)seqs->batch * 16);
    struct kg_buf *d_slots = kg_input(c, "slots", slots, (size_t)seqs->batch * 4);
    job.kc = kg_output(c, "k_cache", k_bytes);
    job.vc = kg_output(c, "v_cache", v_bytes);
    struct kg_cost cost = cost_of(&job.layout, job.rows);
    KG_ARM(c, "seqs", &cost,
           KG_OPS(c, kv, append_seqs)(&job.layout, kg_ptr(job.k), kg_ptr(job.v),
                                      kg_ptr(job.kc), kg_ptr(job.vc), kg_ptr(d_table),
                                      kg_ptr(d_slots), seqs->batch, kg_stream(c)));
    kg_check_exact(c, "seqs-k", kg_fetch(job.kc), k_want, k_bytes, 1);
    kg_check_exact(c, "seqs-v", kg_fetch(job.vc), v_want, v_bytes, 1);
    kg_reset(job.kc);
    kg_reset(job.vc);
    KG_ARM(c, "loop", NULL, append_seq_each(c, &job, seqs, table));
    kg_check_exact(c, "loop-k", kg_fetch(job.kc), k_want, k_bytes, 1);
    kg_check_exact(c, "loop-v", kg_fetch(job.vc), v_want, v_bytes, 1);
}

static void add_pairs(struct kg_plan *p, const char *form, kg_cell_fn *run,
                      uint32_t flags)
{
    for (int i = 0; i < N_PAIRS; i++)
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run, &pairs[i], NULL, KG_CELL_ORDERED | flags},
            "kv-cache.%s.%s", form, pairs[i].id);
}

static void plan(struct kg_plan *p)
{
    add_pairs(p, "round-trip", run_round_trip, 0);
    add_pairs(p, "ties", run_ties, 0);
    add_pairs(p, "rows", run_rows, 0);
    add_pairs(p, "strided", run_strided, 0);
    add_pairs(p, "uneven", run_uneven, 0);
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++)
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run_seqs, &sequences[i], NULL, KG_CELL_ORDERED},
            "kv-cache.seqs.%s", sequences[i].id);
    kg_plan_addf(p,
                 &(struct kg_cell_spec){NULL, run_bench, &pairs[0], NULL,
                                        KG_CELL_ORDERED | KG_CELL_OPTIONAL},
                 "kv-cache.bench.rows-8192");
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "kv-cache",
    .summary = "appending keys and values to the quantized cache",
    .plan = plan,
};
