/*
 * gemm-int8: integer products on tensor cores.
 *
 * Model cells take the tensors that the model at hand has: tile and stream-K form against
 * dp4a (1e-3) and against the f64 product of the same codes (bound). Shape cells need no
 * model: sizes that are no multiple of any tile, on weights whose scales differ from block to
 * block and row to row.
 */
#include <math.h>
#include <string.h>

#include "plugins/gemm_blocks.h"
#include "plugins/gemm_f16.h"
#include "plugins/oracle/grouped.h"

enum { WORKERS = 7 }; /* of the stream-K form: cuts tiles of every shape here */

struct tensor_row {
    const char *id, *name;
    enum kg_type type;
};

static const struct tensor_row tensors[] = {
    {"ffn_gate", "blk.0.ffn_gate.weight", KG_TYPE_Q8_0},
    {"attn_qkv", "blk.0.attn_qkv.weight", KG_TYPE_Q8_0},
    {"attn_q",   "blk.3.attn_q.weight",   KG_TYPE_Q4_K},
    {"ssm_out",  "blk.0.ssm_out.weight",  KG_TYPE_Q5_K},
    {"attn_v",   "blk.0.attn_v.weight",   KG_TYPE_Q6_K},
    {"output",   "output.weight",         KG_TYPE_Q6_K},
};
static const int tokens[] = {16, 64, 128, 512};

struct tensor_cell {
    const struct tensor_row *tensor;
    int m;
};

static void run_tensor(struct kg_cell *cell, const void *row_)
{
    const struct tensor_cell *row = row_;
    struct kg_weights w =
        kg_gemm_tensor(cell, "model", row->tensor->name, row->tensor->type, row->m);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *tile = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *cut = kg_gemm_int8(&g, "stream-k", g.dw, KG_GEMM_BLOCKS, WORKERS);
    const float *dp4a = kg_gemm_dp4a(&g);

    kg_gemm_check_bound(&g, "tile.bound", tile, 1);
    kg_gemm_check_bound(&g, "stream-k.bound", cut, WORKERS);
    kg_gemm_check_near(&g, "tile.dp4a", tile, dp4a, 1e-3);
    kg_gemm_check_near(&g, "stream-k.dp4a", cut, dp4a, 1e-3);
}

static void check_f16(struct kg_cell *cell, struct kg_weights w, int m)
{
    size_t n_w = (size_t)(w.in * w.out), n_x = (size_t)(w.in * m);
    const float *x = kg_pr(cell, n_x, 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, m, x);
    struct kg_cost cost = kg_gemm_cost(&g, 2, "f16-mma");
    struct kg_buf *dm = kg_output(cell, "mirror", n_w * 2);
    struct kg_buf *dx = kg_input(cell, "x-f32", x, n_x * sizeof *x);
    struct kg_buf *dh = kg_output(cell, "h", n_x * 2);
    struct kg_buf *dy = kg_output(cell, "y-f16", (size_t)(w.out * m) * sizeof *x);

    cost.bytes = 2 * (double)n_w + 2 * (double)n_x + 4 * (double)(w.out * m);
    KG_ARM(cell, "mirror", NULL,
           KG_OPS(cell, gemm, mirror_f16)(w.type->type, kg_ptr(g.dw), kg_ptr(dm),
                                          (int64_t)n_w, kg_stream(cell)));
    KG_ARM(cell, "to-f16", NULL,
           KG_OPS(cell, gemm, to_f16)(kg_ptr(dx), kg_ptr(dh), (int64_t)n_x,
                                      kg_stream(cell)));
    const uint16_t *mirror = kg_fetch(dm), *h = kg_fetch(dh);
    struct kg_buf *im = kg_input(cell, "mirror-in", mirror, n_w * 2);
    struct kg_buf *ih = kg_input(cell, "h-in", h, n_x * 2);
    KG_ARM(cell, "f16", &cost,
           KG_OPS(cell, gemm, f16)(kg_ptr(im), kg_ptr(ih), kg_ptr(dy), w.in, w.out, m,
                                   kg_stream(cell)));
    const float *y = kg_fetch(dy);
    const float *tile = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);

    float *f32 = kg_alloc(cell, n_w * sizeof *f32);
    kg_oracle_dequantize(w.type, w.data, f32, (int64_t)n_w);
    kg_gemm_check_halves(cell, "mirror", f32, mirror, n_w);
    kg_gemm_check_halves(cell, "h", x, h, n_x);
    kg_gemm_check_f16(&g, "f16.bound", y, mirror, h);
    kg_gemm_check_near(&g, "f16.int8", y, tile, 1e-2);
}

static void run_f16(struct kg_cell *cell, const void *row_)
{
    const struct tensor_cell *row = row_;

    if (kg_gemm_is_emulated(cell) && row->m > 128)
        kg_skip(cell, "device-unsupported", "too slow on the emulated device");
    check_f16(cell,
              kg_gemm_tensor(cell, "model", row->tensor->name, row->tensor->type, row->m),
              row->m);
}

/* The planes that the wgmma form of Q8_0 takes, to the byte. */
static struct kg_buf *check_mirror(struct kg_cell *cell, struct kg_gemm *g)
{
    int64_t in = g->w.in, out = g->w.out;
    size_t codes = (size_t)(in * out), plane = (codes + 15) / 16 * 16;
    size_t blocks = codes / 32, bytes = plane + blocks * sizeof(float);
    struct kg_buf *dm = kg_output(cell, "mirror", bytes);
    uint8_t *want = kg_alloc(cell, bytes);
    float *scales = (float *)(void *)(want + plane);

    KG_ARM(cell, "mirror", NULL,
           KG_OPS(cell, gemm, mirror_q8_0)(kg_ptr(g->dw), kg_ptr(dm), in, out,
                                           kg_stream(cell)));
    const uint8_t *mirror = kg_fetch(dm);
    for (size_t b = 0; b < blocks; b++) {
        const uint8_t *block = (const uint8_t *)g->w.data + b * 34;
        size_t row = b / (size_t)(in / 32), unit = b % (size_t)(in / 32);
        memcpy(want + b * 32, block + 2, 32);
        kg_oracle_dequantize(kg_oracle_type(KG_TYPE_F16), block,
                             &scales[unit * (size_t)out + row], 1);
    }
    kg_check_exact(cell, "mirror.codes", mirror, want, codes, 1);
    kg_check_exact(cell, "mirror.scales", mirror + plane, scales, blocks, sizeof(float));
    return kg_input(cell, "mirror-in", want, bytes);
}

/* The wgmma form: its results to the bit. */
static void check_wgmma(struct kg_cell *cell, struct kg_gemm *g)
{
    int64_t in = g->w.in, out = g->w.out;
    struct kg_cost cost = kg_gemm_cost(g, 1.125, "int8-wgmma");
    struct kg_buf *im = check_mirror(cell, g);
    struct kg_buf *dy = kg_output(cell, "y-wgmma", (size_t)(out * g->m) * sizeof(float));
    const float *tile = kg_gemm_int8(g, "tile", g->dw, KG_GEMM_BLOCKS, 0);
    KG_ARM(cell, "wgmma", &cost,
           KG_OPS(cell, gemm, int8_wgmma)(kg_ptr(im), kg_ptr(g->dq), kg_ptr(g->dd),
                                          kg_ptr(dy), in, out, g->m, kg_stream(cell)));
    const float *y = kg_fetch(dy);
    kg_gemm_check_bound(g, "wgmma.bound", y, 1);
    kg_gemm_check_same(g, "wgmma.tile", y, tile);
}

static void run_wgmma(struct kg_cell *cell, const void *row_)
{
    const struct tensor_cell *row = row_;
    struct kg_weights w =
        kg_gemm_tensor(cell, "model", row->tensor->name, row->tensor->type, row->m);
    const float *x = kg_pr(cell, (size_t)(w.in * row->m), 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);

    check_wgmma(cell, &g);
}

/* Ragged shapes: every type, K that is no multiple of a slab, N and T of a tile. */
struct shape {
    enum kg_type type;
    int in, out, m;
};

static const struct shape shapes[] = {
    {KG_TYPE_Q8_0,   1056, 64,  1  },
    {KG_TYPE_Q8_0,   2112, 192, 17 },
    {KG_TYPE_Q8_0,   1664, 129, 103},
    {KG_TYPE_Q8_0,   32,   64,  479},
    {KG_TYPE_Q4_0,   1056, 300, 15 },
    {KG_TYPE_Q4_0,   2176, 64,  103},
    {KG_TYPE_Q4_0,   2112, 64,  479},
    {KG_TYPE_NVFP4,  1152, 64,  16 },
    {KG_TYPE_NVFP4,  192,  192, 103},
    {KG_TYPE_NVFP4,  2112, 129, 17 },
    {KG_TYPE_NVFP4,  1664, 64,  103},
    {KG_TYPE_NVFP4,  320,  64,  512},
    {KG_TYPE_Q4_K,   768,  192, 1  },
    {KG_TYPE_Q4_K,   2304, 64,  103},
    {KG_TYPE_Q5_K,   1280, 192, 17 },
    {KG_TYPE_Q6_K,   768,  300, 15 },
    {KG_TYPE_Q6_K,   1792, 64,  103},
    {KG_TYPE_IQ4_XS, 256,  192, 479},
    {KG_TYPE_IQ4_XS, 2304, 129, 17 },
};

static void run_shape(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    const float *x = kg_pr(cell, (size_t)row->in * row->m, 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *tile = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *again = kg_gemm_int8(&g, "tile-again", g.dw, KG_GEMM_BLOCKS, 0);
    const float *one = kg_gemm_int8(&g, "stream-k-1", g.dw, KG_GEMM_BLOCKS, 1);
    const float *cut = kg_gemm_int8(&g, "stream-k", g.dw, KG_GEMM_BLOCKS, WORKERS);
    const float *recut =
        kg_gemm_int8(&g, "stream-k-again", g.dw, KG_GEMM_BLOCKS, WORKERS);

    kg_gemm_check_bound(&g, "tile.bound", tile, 1);
    kg_gemm_check_bound(&g, "stream-k.bound", cut, WORKERS);
    /* one worker cuts no tile */
    kg_gemm_check_same(&g, "stream-k-1.tile", one, tile);
    kg_gemm_check_same(&g, "tile.again", again, tile);
    kg_gemm_check_same(&g, "stream-k.again", recut, cut);
}

static void run_f16_shape(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;

    check_f16(cell, kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out),
              row->m);
}

/* to_f16 where it rounds and overflows: on and an ulp beside what lies halfway between two
   halves, from the subnormal ones to the largest, and beyond them. */
static void run_halves(struct kg_cell *cell, const void *row_)
{
    enum { EXPONENTS = 44, EACH = 8, BEYOND = 8, N = EXPONENTS * EACH + BEYOND };
    static const float beyond[BEYOND] = {65504, 65519.996f, 65520,    65536,
                                         70000, 131072,     INFINITY, 3e38f};
    float *x = kg_alloc(cell, N * sizeof *x);
    uint16_t *want = kg_alloc(cell, N * sizeof *want);

    (void)row_;
    for (int e = 0; e < EXPONENTS; e++)
        for (int i = 0; i < EACH; i++) {
            /* 2^(e-27) times 1 + (2i+1) 2^-11: halfway, and every other an ulp off */
            float half = ldexpf(1 + (float)(2 * i + 1) * 0x1p-11f, e - 27);
            half = i % 4 == 2   ? nextafterf(half, 0)
                   : i % 4 == 3 ? nextafterf(half, 1e9f)
                                : half;
            x[e * EACH + i] = i % 2 ? -half : half;
        }
    memcpy(x + N - BEYOND, beyond, sizeof beyond);
    for (int i = 0; i < N; i++)
        want[i] = kg_oracle_to_half((double)x[i]);
    struct kg_buf *dx = kg_input(cell, "x", x, N * sizeof *x);
    struct kg_buf *dh = kg_output(cell, "h", N * sizeof *want);
    KG_ARM(cell, "to-f16", NULL,
           KG_OPS(cell, gemm, to_f16)(kg_ptr(dx), kg_ptr(dh), N, kg_stream(cell)));
    kg_check_exact(cell, "h", kg_fetch(dh), want, N, sizeof *want);
}

static void run_mirror(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    struct kg_gemm g =
        kg_gemm_open(cell, &w, row->m, kg_pr(cell, (size_t)row->in * row->m, 71, 0.1f));

    check_mirror(cell, &g);
}

static void run_wgmma_shape(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    const float *x = kg_pr(cell, (size_t)row->in * row->m, 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);

    check_wgmma(cell, &g);
}

/* The activations as halves of their codes. */
static struct kg_buf *half_codes(struct kg_gemm *g, const uint16_t **h)
{
    size_t n = (size_t)(g->w.in * g->m);
    struct kg_buf *dh = kg_output(g->cell, "h", n * 2);

    KG_ARM(g->cell, "q8-to-f16", NULL,
           KG_OPS(g->cell, gemm, q8_to_f16)(kg_ptr(g->dq), kg_ptr(g->dd), kg_ptr(dh),
                                            g->m, g->w.in, kg_stream(g->cell)));
    *h = kg_fetch(dh);
    return kg_input(g->cell, "h-in", *h, n * 2);
}

/* Blocks with halves, without a mirror. */
static void run_f16_blocks(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    const float *x = kg_pr(cell, (size_t)row->in * row->m, 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const uint16_t *h;
    struct kg_buf *dh = half_codes(&g, &h);
    const float *y = kg_gemm_blocks_f16(&g, dh);

    kg_gemm_check_blocks_f16(&g, y, h);
    kg_gemm_check_band(&g, "band", y, 2e-2);
}

/*
 * The shapes of the speed tables, too large for the emulated device. 64 rows, from the first
 * to the last, are compared with the f64 product of the codes.
 */
enum { SAMPLES = 64 };

static const float *sampled(const struct kg_gemm *g, const float *y)
{
    float *to = kg_alloc(g->cell, (size_t)(SAMPLES * g->m) * sizeof *to);

    for (int64_t t = 0; t < g->m; t++)
        for (int64_t i = 0; i < SAMPLES; i++)
            to[t * SAMPLES + i] = y[t * g->w.out + (g->w.out - 1) * i / (SAMPLES - 1)];
    return to;
}

static void run_bench(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;

    if (kg_gemm_is_emulated(cell))
        kg_skip(cell, "device-unsupported", "too large for the emulated device");
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    const float *x = kg_pr(cell, (size_t)row->in * row->m, 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x), few = g;
    size_t row_bytes = kg_row_bytes(row->type, row->in);
    uint8_t *rows = kg_alloc(cell, SAMPLES * row_bytes);
    int workers = 2 * kg_device(cell)->sm_count;

    for (int64_t i = 0; i < SAMPLES; i++)
        memcpy(rows + (size_t)i * row_bytes,
               (const uint8_t *)w.data +
                   (size_t)((w.out - 1) * i / (SAMPLES - 1)) * row_bytes,
               row_bytes);
    few.w.data = rows;
    few.w.out = SAMPLES;
    kg_gemm_check_bound(&few, "tile.bound",
                        sampled(&g, kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0)),
                        1);
    const float *cut = kg_gemm_int8(&g, "stream-k", g.dw, KG_GEMM_BLOCKS, workers);
    kg_gemm_check_bound(&few, "stream-k.bound", sampled(&g, cut), workers);
    if (row->m <= 16 && kg_gemm_has_blocks_f16(&g)) {
        const uint16_t *h;
        struct kg_buf *dh = half_codes(&g, &h);
        kg_gemm_check_blocks_f16(&few, sampled(&g, kg_gemm_blocks_f16(&g, dh)), h);
    }
}

/* A token's results do not depend on how many others there are: the tiles of 16, 64 and
   128 tokens give the same bits. */
static void run_batch(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    static const int few[] = {1, 16, 17, 64, 65};
    static const char *const arms[] = {"t1", "t16", "t17", "t64", "t65"};
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    const float *x = kg_pr(cell, (size_t)row->in * row->m, 71, 0.1f);
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *all = kg_gemm_int8(&g, "all", g.dw, KG_GEMM_BLOCKS, 0);

    kg_gemm_check_bound(&g, "bound", all, 1);
    for (int i = 0; i < 5; i++) {
        struct kg_gemm part = g;
        part.m = few[i];
        kg_gemm_check_same(&part, arms[i],
                           kg_gemm_int8(&part, arms[i], g.dw, KG_GEMM_BLOCKS, 0), all);
    }
}

/*
 * Products whose every partial sum is a small integer times one power of two: f32 adds
 * them without rounding in any order, so tile and stream-K form agree with each other and
 * with the oracle to the bit, wherever tiles are cut.
 */
static void run_exact(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    size_t row_bytes = kg_row_bytes(KG_TYPE_Q8_0, row->in), blocks = row_bytes / 34;
    uint8_t *data = kg_alloc(cell, (size_t)row->out * row_bytes);
    float *x = kg_alloc(cell, (size_t)row->in * row->m * sizeof *x);

    for (size_t b = 0; b < (size_t)row->out * blocks; b++) {
        uint8_t *block = data + b * 34;
        memcpy(block, (uint8_t[]){0, 0x3c}, 2); /* 1.0 */
        for (size_t j = 0; j < 32; j++)
            block[2 + j] = (uint8_t)(int8_t)((int)((b * 7 + j * 5) % 15) - 7);
    }
    for (size_t i = 0; i < (size_t)row->in * row->m; i++) /* d is 1 */
        x[i] = i % 32 == 0 ? 127.0f : (float)((int)(i * 11 % 31) - 15);

    struct kg_weights w = {kg_oracle_type(KG_TYPE_Q8_0), data, row->in, row->out};
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    const float *tile = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    kg_gemm_check_bound(&g, "bound", tile, 1);
    float *want = kg_alloc(cell, (size_t)row->out * row->m * sizeof *want);
    for (size_t i = 0; i < (size_t)row->out * row->m; i++)
        want[i] = (float)g.sums.y[i];
    kg_gemm_check_same(&g, "tile.exact", tile, want);
    static const int cuts[] = {2, 3, 5, 13, 64};
    static const char *const arms[] = {"k2", "k3", "k5", "k13", "k64"};
    for (int i = 0; i < 5; i++)
        kg_gemm_check_same(
            &g, arms[i], kg_gemm_int8(&g, arms[i], g.dw, KG_GEMM_BLOCKS, cuts[i]), tile);
}

/* Sums of 32 activations beyond the largest f16, which a q8_1 block with f16 sums loses. */
static void run_large_sums(struct kg_cell *cell, const void *row_)
{
    const struct shape *row = row_;
    struct kg_weights w =
        kg_weights_made(cell, kg_oracle_type(row->type), row->in, row->out);
    float *x = kg_pr(cell, (size_t)row->in * row->m, 71, 500.0f);

    for (size_t i = 0; i < (size_t)row->in * row->m; i++)
        x[i] += 9000.0f;
    struct kg_gemm g = kg_gemm_open(cell, &w, row->m, x);
    kg_gemm_check_bound(&g, "tile.bound",
                        kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0), 1);
}

static const struct shape batch_shapes[] = {
    {KG_TYPE_Q4_K,  512, 192, 130},
    {KG_TYPE_Q8_0,  672, 64,  130},
    {KG_TYPE_NVFP4, 448, 64,  130},
};
static const struct shape exact_shapes[] = {
    {KG_TYPE_Q8_0, 2112, 192, 17 },
    {KG_TYPE_Q8_0, 1056, 64,  103}
};
/* of the f16 mirror: k that is no multiple of its step of 64 */
static const struct shape f16_shapes[] = {
    {KG_TYPE_Q8_0, 1056, 300, 15},
    {KG_TYPE_Q8_0, 96,   130, 70},
    {KG_TYPE_Q6_K, 768,  129, 17},
};
static const struct shape mirror_shape = {KG_TYPE_Q8_0, 1056, 37, 1};
static const struct shape large_shape = {KG_TYPE_Q4_K, 512, 64, 17};

static const struct shape bench_shapes[] = {
    {KG_TYPE_Q8_0,  4096, 12288, 512},
    {KG_TYPE_Q4_K,  4096, 12288, 512},
    {KG_TYPE_NVFP4, 4096, 12288, 512},
    {KG_TYPE_Q8_0,  8192, 28672, 16 },
    {KG_TYPE_Q4_K,  8192, 28672, 16 },
    {KG_TYPE_NVFP4, 8192, 28672, 16 },
};
/* of the products with f16 of the blocks themselves */
static const struct shape f16_block_shapes[] = {
    {KG_TYPE_NVFP4, 1152, 64,  16},
    {KG_TYPE_NVFP4, 64,   17,  1 },
    {KG_TYPE_NVFP4, 2112, 129, 15},
    {KG_TYPE_Q4_K,  1280, 64,  16},
    {KG_TYPE_Q4_K,  256,  17,  1 },
    {KG_TYPE_Q4_K,  2304, 129, 15},
};
static const struct shape wgmma_shapes[] = {
    {KG_TYPE_Q8_0, 128,  64,  1  },
    {KG_TYPE_Q8_0, 1152, 192, 103},
    {KG_TYPE_Q8_0, 2176, 129, 257},
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void plan_shapes(struct kg_plan *p, kg_cell_fn *run, const char *what,
                        const struct shape *list, size_t n, uint32_t flags)
{
    for (size_t i = 0; i < n; i++)
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run, &list[i], NULL, KG_CELL_ORDERED | flags},
            "gemm-int8.%s.%s.%dx%d-t%d", what, kg_oracle_type(list[i].type)->id,
            list[i].in, list[i].out, list[i].m);
}

static void plan(struct kg_plan *p)
{
    plan_shapes(p, run_shape, "shape", shapes, COUNT(shapes), 0);
    plan_shapes(p, run_batch, "batch", batch_shapes, COUNT(batch_shapes), 0);
    plan_shapes(p, run_exact, "exact", exact_shapes, COUNT(exact_shapes), 0);
    plan_shapes(p, run_large_sums, "large-sums", &large_shape, 1, 0);
    plan_shapes(p, run_mirror, "mirror", &mirror_shape, 1, 0);
    kg_plan_add(p, &(struct kg_cell_spec){"gemm-int8.halves", run_halves, NULL, NULL,
                                          KG_CELL_ORDERED});
    for (size_t i = 0; i < COUNT(f16_shapes); i++)
        kg_plan_addf(p,
                     &(struct kg_cell_spec){NULL, run_f16_shape, &f16_shapes[i], NULL, 0},
                     "gemm-int8.f16.%s.%dx%d-t%d", kg_oracle_type(f16_shapes[i].type)->id,
                     f16_shapes[i].in, f16_shapes[i].out, f16_shapes[i].m);
    plan_shapes(p, run_bench, "bench", bench_shapes, COUNT(bench_shapes),
                KG_CELL_OPTIONAL);
    for (size_t i = 0; i < COUNT(f16_block_shapes); i++) /* not ordered, as those below */
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run_f16_blocks, &f16_block_shapes[i], NULL, 0},
            "gemm-int8.f16-blocks.%s.%dx%d-t%d",
            kg_oracle_type(f16_block_shapes[i].type)->id, f16_block_shapes[i].in,
            f16_block_shapes[i].out, f16_block_shapes[i].m);
    plan_shapes(p, run_wgmma_shape, "wgmma", wgmma_shapes, COUNT(wgmma_shapes),
                KG_CELL_OPTIONAL);
    for (size_t i = 0; i < COUNT(tensors); i++)
        for (size_t t = 0; t < COUNT(tokens); t++) {
            struct tensor_cell *cell = kg_plan_alloc(p, sizeof *cell);
            *cell = (struct tensor_cell){&tensors[i], tokens[t]};
            kg_plan_addf(
                p,
                &(struct kg_cell_spec){NULL, run_tensor, cell, "model", KG_CELL_OPTIONAL},
                "gemm-int8.%s.t%d", tensors[i].id, tokens[t]);
            /* not ordered: the tensor core adds halves in an order of its own */
            kg_plan_addf(
                p, &(struct kg_cell_spec){NULL, run_f16, cell, "model", KG_CELL_OPTIONAL},
                "gemm-int8.%s.f16.t%d", tensors[i].id, tokens[t]);
            if (tensors[i].type == KG_TYPE_Q8_0)
                kg_plan_addf(p,
                             &(struct kg_cell_spec){NULL, run_wgmma, cell, "model",
                                                    KG_CELL_OPTIONAL},
                             "gemm-int8.%s.wgmma.t%d", tensors[i].id, tokens[t]);
        }
}

static const struct kg_role roles[] = {
    {"model", "gguf", "any model: its pinned tensors are multiplied"},
    {NULL,    NULL,   NULL                                          },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "gemm-int8",
    .summary = "int8 tensor-core products, tile and stream-K form, with dp4a beside them",
    .roles = roles,
    .plan = plan,
};
