/*
 * nvfp4-gemm: NVFP4 weights on tensor cores, with q8_1 activations (W4A8) and with E2M1
 * activations (W4A4, one and two levels of scales, with and without the residual path), and
 * the k-quants beside them.
 *
 * What E2M1 activations cost in accuracy depends on the model, so W4A4 against the
 * unquantized product is for information; against the product of the very codes it has a
 * bound. Two things must hold on any weights: two levels beat one where the tokens' sizes
 * spread over decades, and taking every loud channel out helps.
 */
#include <math.h>
#include <stdio.h>

#include "plugins/gemm_blocks.h"
#include "plugins/gemm_f16.h"
#include "plugins/nvfp4_cells.h"
#include "plugins/oracle/nvfp4.h"

struct cell_row {
    const char *tensor;
    enum kg_type type;
    int offset; /* of the pinned vector */
    int m;
};

static const char gate[] = "blk.0.ffn_gate.weight";

static struct kg_gemm open_row(struct kg_cell *cell, const struct cell_row *row,
                               float *(*make)(struct kg_cell *, const struct cell_row *,
                                              int64_t in))
{
    struct kg_weights w = kg_gemm_tensor(cell, "nvfp4", row->tensor, row->type, row->m);
    const float *x =
        make ? make(cell, row, w.in)
             : kg_pr(cell, (size_t)(w.in * row->m), (uint64_t)row->offset, 0.1f);

    return kg_gemm_open(cell, &w, row->m, x);
}

static void run_dp4a(struct kg_cell *cell, const void *row_)
{
    struct kg_gemm g = open_row(cell, row_, NULL);
    const float *y = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *dp4a = kg_gemm_dp4a(&g);

    kg_gemm_check_bound(&g, "bound", y, 1);
    kg_gemm_check_near(&g, "dp4a", y, dp4a, 1e-3);
}

static void run_w4a8(struct kg_cell *cell, const void *row_)
{
    struct kg_gemm g = open_row(cell, row_, NULL);
    const float *y = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);
    const float *planes =
        kg_gemm_int8(&g, "planes", kg_gemm_planes(cell, &g.w), KG_GEMM_PLANES, 0);

    kg_gemm_check_bound(&g, "bound", y, 1);
    kg_gemm_check_band(&g, "band", y, 2e-2);
    kg_gemm_check_same(&g, "planes", planes, y);
}

/* W4A8 through the f16 mirror, which holds these weights exactly; the halves of the
   activations are those of the q8_1 codes, not of the unquantized values. */
static void run_w4a8_f16(struct kg_cell *cell, const void *row_)
{
    const struct cell_row *row = row_;

    if (kg_gemm_is_emulated(cell) && row->m > 16)
        kg_skip(cell, "device-unsupported", "too slow on the emulated device");
    struct kg_gemm g = open_row(cell, row_, NULL);
    size_t n_w = (size_t)(g.w.in * g.w.out), n_x = (size_t)(g.w.in * g.m);
    struct kg_cost cost = kg_gemm_cost(&g, 2, "f16-mma");
    struct kg_buf *dm = kg_output(cell, "mirror", n_w * 2);
    struct kg_buf *dh = kg_output(cell, "h", n_x * 2);
    struct kg_buf *dy = kg_output(cell, "y-f16", (size_t)(g.w.out * g.m) * sizeof(float));
    float *w = kg_alloc(cell, n_w * sizeof *w), *x = kg_alloc(cell, n_x * sizeof *x);

    cost.bytes = 2 * (double)n_w + 2 * (double)n_x + 4 * (double)(g.w.out * g.m);
    KG_ARM(cell, "mirror", NULL,
           KG_OPS(cell, gemm, mirror_f16)(KG_TYPE_NVFP4, kg_ptr(g.dw), kg_ptr(dm),
                                          (int64_t)n_w, kg_stream(cell)));
    KG_ARM(cell, "q8-to-f16", NULL,
           KG_OPS(cell, gemm, q8_to_f16)(kg_ptr(g.dq), kg_ptr(g.dd), kg_ptr(dh), g.m,
                                         g.w.in, kg_stream(cell)));
    const uint16_t *mirror = kg_fetch(dm), *h = kg_fetch(dh);
    struct kg_buf *im = kg_input(cell, "mirror-in", mirror, n_w * 2);
    struct kg_buf *ih = kg_input(cell, "h-in", h, n_x * 2);
    KG_ARM(cell, "f16", &cost,
           KG_OPS(cell, gemm, f16)(kg_ptr(im), kg_ptr(ih), kg_ptr(dy), g.w.in, g.w.out,
                                   g.m, kg_stream(cell)));
    const float *y = kg_fetch(dy);

    kg_oracle_dequantize(g.w.type, g.w.data, w, (int64_t)n_w);
    for (size_t i = 0; i < n_x; i++)
        x[i] = g.act.d[i / 32] * (float)g.act.q[i];
    kg_gemm_check_halves(cell, "mirror", w, mirror, n_w);
    kg_gemm_check_halves(cell, "h", x, h, n_x);
    kg_gemm_check_f16(&g, "f16.bound", y, mirror, h);
    kg_gemm_check_f16_codes(&g, "codes.bound", y);
    kg_gemm_check_band(&g, "band", y, 2e-2);
    if (row->m <= 16) {
        const float *blocks = kg_gemm_blocks_f16(&g, ih);
        kg_gemm_check_blocks_f16(&g, blocks, h);
        kg_gemm_check_f16_codes(&g, "f16-blocks.codes", blocks);
    }
}

static void run_mmq(struct kg_cell *cell, const void *row_)
{
    struct kg_gemm g = open_row(cell, row_, NULL);
    const float *y = kg_gemm_int8(&g, "tile", g.dw, KG_GEMM_BLOCKS, 0);

    kg_gemm_check_bound(&g, "bound", y, 1);
    kg_gemm_check_band(&g, "band", y, 2e-2);
}

static void run_w4a4(struct kg_cell *cell, const void *row_)
{
    struct kg_gemm g = open_row(cell, row_, NULL);
    struct kg_e2m1 two = kg_nvfp4_quantize(&g, "two-level", 2, NULL, NULL, 0);
    const float *y2 = kg_nvfp4_w4a4(&g, "w4a4", &two, g.dw, NULL);
    struct kg_e2m1 one = kg_nvfp4_quantize(&g, "one-level", 1, NULL, NULL, 0);
    const float *y1 = kg_nvfp4_w4a4(&g, "w4a4-one", &one, g.dw, NULL);

    kg_nvfp4_check_bound(&g, "two-level.bound", &two, y2);
    kg_nvfp4_check_bound(&g, "one-level.bound", &one, y1);
    kg_info(cell, "two-level.error", kg_nvfp4_token_error(&g, y2));
    kg_info(cell, "one-level.error", kg_nvfp4_token_error(&g, y1));
}

/* Token t scaled by 10^((t % 7) - 3). */
static float *decades(struct kg_cell *cell, const struct cell_row *row, int64_t in)
{
    static const float scale[7] = {1e-3f, 1e-2f, 1e-1f, 1, 1e1f, 1e2f, 1e3f};
    float *x = kg_pr(cell, (size_t)(in * row->m), (uint64_t)row->offset, 0.1f);

    for (int64_t i = 0; i < in * row->m; i++)
        x[i] *= scale[i / in % 7];
    return x;
}

static void run_decades(struct kg_cell *cell, const void *row_)
{
    struct kg_gemm g = open_row(cell, row_, decades);
    struct kg_e2m1 two = kg_nvfp4_quantize(&g, "two-level", 2, NULL, NULL, 0);
    const float *y2 = kg_nvfp4_w4a4(&g, "w4a4", &two, g.dw, NULL);
    struct kg_e2m1 one = kg_nvfp4_quantize(&g, "one-level", 1, NULL, NULL, 0);
    const float *y1 = kg_nvfp4_w4a4(&g, "w4a4-one", &one, g.dw, NULL);
    double e2 = kg_nvfp4_token_error(&g, y2), e1 = kg_nvfp4_token_error(&g, y1);

    kg_nvfp4_check_bound(&g, "two-level.bound", &two, y2);
    kg_nvfp4_check_bound(&g, "one-level.bound", &one, y1);
    kg_info(cell, "two-level.error", e2);
    kg_info(cell, "one-level.error", e1);
    kg_check_that(cell, "two-level-beats-one", e2 < e1, "two %.3g, one %.3g", e2, e1);
}

/* Loudness of few different values, so that most channels have equals; a NaN counts as 0. */
static void run_channels(struct kg_cell *cell, const void *row_)
{
    enum { M = 3, IN = 300, K = 64 };
    float *x = kg_pr(cell, M * IN, 53, 1.0f), *quiet = kg_alloc(cell, M * IN * sizeof *x);
    int32_t *want = kg_alloc(cell, K * sizeof *want);

    (void)row_;
    for (int i = 0; i < M * IN; i++) {
        bool nan = i % 7 == 3;
        quiet[i] = nan ? 0 : rintf(x[i] * 4);
        x[i] = nan ? NAN : quiet[i];
    }
    struct kg_buf *dx = kg_input(cell, "x", x, M * IN * sizeof *x);
    struct kg_buf *da = kg_scratch(cell, "amax", IN * sizeof *x);
    struct kg_buf *dk = kg_output(cell, "channels", K * sizeof *want);
    KG_ARM(cell, "channels", NULL,
           KG_OPS(cell, gemm, nvfp4_channels)(kg_ptr(dx), M, IN, K, kg_ptr(da),
                                              kg_ptr(dk), kg_stream(cell)));
    kg_oracle_must(cell, kg_oracle_nvfp4_channels(quiet, M, IN, K, want));
    kg_check_exact(cell, "channels", kg_fetch(dk), want, K, sizeof *want);
}

/* Tokens without a scale: all zeros, of either sign, and so small that a 2688th of the largest
   value is 0. The last one has groups whose sixth lies an ulp below what is halfway between two
   scales. */
static void run_zero_tokens(struct kg_cell *cell, const void *row_)
{
    enum { M = 4, IN = 192 };
    struct kg_weights w = kg_weights_made(cell, kg_oracle_type(KG_TYPE_NVFP4), IN, 8);
    float *x = kg_pr(cell, M * IN, 53, 0.1f);

    (void)row_;
    for (int i = 0; i < IN; i++) {
        x[i] = 0;
        x[IN + i] *= 0x1p-135f;
        x[2 * IN + i] = -0.0f;
        if (i % 16 == 5)
            x[3 * IN + i] = ldexpf(0x1.c7fffep0f, i / 16 - 4);
    }
    struct kg_gemm g = kg_gemm_open(cell, &w, M, x);
    kg_nvfp4_quantize(&g, "two-level", 2, NULL, NULL, 0);
    kg_nvfp4_quantize(&g, "one-level", 1, NULL, NULL, 0);
}

/* Eight channels 300 times as loud as the others, on top of the decades. */
static float *outliers(struct kg_cell *cell, const struct cell_row *row, int64_t in)
{
    float *x = decades(cell, row, in);

    for (int64_t t = 0; t < row->m; t++)
        for (int64_t c = 0; c < 8; c++)
            x[t * in + (c * 977 + 13) % in] *= 300.0f;
    return x;
}

/*
 * y with the residual: each of the k products of an exact weight and an f32 activation is
 * added by one fma, so at most k roundings more than the bound of W4A4 has.
 */
static void run_residual(struct kg_cell *cell, const void *row_)
{
    static const int ks[] = {0, 4, 8, 16, 32, 64};
    static const char *const arms[] = {"k0", "k4", "k8", "k16", "k32", "k64"};
    static const char *const products[] = {"w4a4-k0",  "w4a4-k4",  "w4a4-k8",
                                           "w4a4-k16", "w4a4-k32", "w4a4-k64"};
    const struct cell_row *row = row_;
    struct kg_gemm g = open_row(cell, row_, outliers);
    size_t n_in = (size_t)(g.w.in * g.m), n = (size_t)(g.w.out * g.m);
    struct kg_buf *dx = kg_input(cell, "x", g.x, n_in * sizeof *g.x);
    struct kg_buf *da = kg_scratch(cell, "amax", (size_t)g.w.in * sizeof(float));
    struct kg_buf *dk = kg_output(cell, "channels", 64 * sizeof(int32_t));
    int32_t *want = kg_alloc(cell, 64 * sizeof *want);
    float *w = kg_alloc(cell, (size_t)(g.w.in * g.w.out) * sizeof *w);
    double first = 0;
    char name[64];

    KG_ARM(cell, "channels", NULL,
           KG_OPS(cell, gemm, nvfp4_channels)(kg_ptr(dx), g.m, g.w.in, 64, kg_ptr(da),
                                              kg_ptr(dk), kg_stream(cell)));
    const int32_t *channels = kg_fetch(dk);
    kg_oracle_must(cell, kg_oracle_nvfp4_channels(g.x, g.m, g.w.in, 64, want));
    kg_check_exact(cell, "channels", channels, want, 64, sizeof *want);
    kg_oracle_dequantize(g.w.type, g.w.data, w, g.w.in * g.w.out);
    struct kg_buf *dc = kg_input(cell, "channels-in", channels, 64 * sizeof *want);
    for (int i = 0; i < 6; i++) {
        int k = ks[i];
        struct kg_e2m1 x = kg_nvfp4_quantize(&g, arms[i], 2, channels, dc, k);
        const float *base = kg_nvfp4_w4a4(&g, products[i], &x, g.dw, NULL);
        struct kg_buf *dy = kg_inout(cell, "y-residual", base, n * sizeof *base);
        snprintf(name, sizeof name, "residual-%s", arms[i]);
        KG_ARM(cell, name, NULL,
               KG_OPS(cell, gemm, nvfp4_residual)(kg_ptr(g.dw), kg_ptr(dx), kg_ptr(dc), k,
                                                  kg_ptr(dy), g.w.in, g.w.out, g.m,
                                                  kg_stream(cell)));
        const float *y = kg_fetch(dy);
        /* the sum so far plus the exact channels, from the base that the kernel had */
        double *sum = kg_alloc(cell, n * sizeof *sum);
        double *bound = kg_alloc(cell, n * sizeof *bound);
        for (size_t r = 0; r < n; r++) {
            size_t t = r / (size_t)g.w.out, o = r % (size_t)g.w.out;
            sum[r] = base[r];
            bound[r] = fabs(sum[r]);
            for (int j = 0; j < k; j++) {
                double term = (double)w[o * (size_t)g.w.in + (size_t)channels[j]] *
                              g.x[t * (size_t)g.w.in + (size_t)channels[j]];
                sum[r] += term;
                bound[r] += fabs(term);
            }
        }
        kg_oracle_bound(bound, bound, n, k, k);
        snprintf(name, sizeof name, "%s.residual", arms[i]);
        kg_check_bound(cell, name, y, sum, bound, n);
        snprintf(name, sizeof name, "%s.bound", arms[i]);
        kg_nvfp4_check_bound(&g, name, &x, base);

        double error = kg_nvfp4_token_error(&g, y);
        snprintf(name, sizeof name, "%s.error", arms[i]);
        kg_info(cell, name, error);
        if (k == 0)
            first = error;
        snprintf(name, sizeof name, "%s-beats-none", arms[i]);
        if (k >= 8)
            kg_check_that(cell, name, error < first, "%.3g with, %.3g without", error,
                          first);
    }
    (void)row;
}

/* The operand of CUTLASS's block-scaled GEMM: there and back to the byte, and the product
   from it to the bit. */
static void run_cutlass(struct kg_cell *cell, const void *row_)
{
    struct kg_gemm g = open_row(cell, row_, NULL);
    int64_t in = g.w.in, out = g.w.out;
    size_t n = (size_t)(in * out), row_bytes = kg_row_bytes(KG_TYPE_NVFP4, in);
    size_t atoms = (size_t)((out + 127) / 128 * (in / 64) * 512);
    struct kg_buf *dc = kg_output(cell, "codes", n / 2);
    struct kg_buf *ds = kg_output(cell, "scales", atoms);
    struct kg_buf *db = kg_output(cell, "back", (size_t)out * row_bytes);
    uint8_t *codes = kg_alloc(cell, n / 2), *scales = kg_alloc(cell, atoms);

    KG_ARM(cell, "pack", NULL,
           KG_OPS(cell, gemm, cutlass_pack)(kg_ptr(g.dw), kg_ptr(dc), kg_ptr(ds), in, out,
                                            kg_stream(cell)));
    const uint8_t *got_codes = kg_fetch(dc), *got_scales = kg_fetch(ds);
    for (size_t i = 0; i < n; i++) { /* element by element, by the format's definition */
        const uint8_t *block = (const uint8_t *)g.w.data + i / 64 * 36;
        size_t k = i % 64, s = k / 16, j = k % 16;
        size_t row = i / (size_t)in, group = i % (size_t)in / 16;
        codes[i / 2] |=
            (uint8_t)((block[4 + 8 * s + j % 8] >> (j < 8 ? 0 : 4) & 15) << i % 2 * 4);
        scales[(row / 128 * ((size_t)in / 64) + group / 4) * 512 + row % 32 * 16 +
               row % 128 / 32 * 4 + group % 4] = block[s];
    }
    kg_check_exact(cell, "codes", got_codes, codes, n / 2, 1);
    kg_check_exact(cell, "scales", got_scales, scales, atoms, 1);

    struct kg_buf *ic = kg_input(cell, "codes-in", got_codes, n / 2);
    struct kg_buf *is = kg_input(cell, "scales-in", got_scales, atoms);
    KG_ARM(cell, "unpack", NULL,
           KG_OPS(cell, gemm, cutlass_unpack)(kg_ptr(ic), kg_ptr(is), kg_ptr(db), in, out,
                                              kg_stream(cell)));
    kg_check_exact(cell, "back", kg_fetch(db), g.w.data, (size_t)out * row_bytes, 1);

    struct kg_e2m1 x = kg_nvfp4_quantize(&g, "quantize", 2, NULL, NULL, 0);
    const float *blocks = kg_nvfp4_w4a4(&g, "blocks", &x, g.dw, NULL);
    const float *packed = kg_nvfp4_w4a4(&g, "packed", &x, ic, is);
    kg_nvfp4_check_bound(&g, "bound", &x, packed);
    kg_gemm_check_same(&g, "packed", packed, blocks);
    double error = kg_nvfp4_token_error(&g, packed);
    kg_info(cell, "error", error);
}

/* The native block-scale instruction of compute capability 12.0: the same operands, sums in
   the hardware's order. */
static void run_native(struct kg_cell *cell, const void *row_)
{
    if (kg_device(cell)->cc_major != 12)
        kg_skip(cell, "device-unsupported",
                "block-scale mma needs compute capability 12.0");
    struct kg_gemm g = open_row(cell, row_, NULL);
    struct kg_e2m1 x = kg_nvfp4_quantize(&g, "quantize", 2, NULL, NULL, 0);
    const float *blocks = kg_nvfp4_w4a4(&g, "blocks", &x, g.dw, NULL);
    struct kg_buf *dy = kg_output(cell, "y", (size_t)(g.w.out * g.m) * sizeof(float));

    KG_ARM(cell, "native", NULL,
           KG_OPS(cell, gemm, w4a4_native)(
               kg_ptr(g.dw), kg_ptr(x.d_codes), kg_ptr(x.d_scales), kg_ptr(x.d_token),
               kg_ptr(dy), g.w.in, g.w.out, g.m, kg_stream(cell)));
    const float *y = kg_fetch(dy);
    kg_gemm_check_near(&g, "native", y, blocks, 1e-5);
}

/*
 * Where rounding decides: group g's largest value is 6 times the middle between the scale
 * codes g and g + 1 (exact in f32), and the others are at the middles between E2M1 codes
 * times the scale that the even code has, in both signs.
 */
static void run_ties(struct kg_cell *cell, const void *row_)
{
    enum { GROUPS = 126, IN = 2048 };
    static const float ties[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    float *x = kg_alloc(cell, 2 * IN * sizeof *x);

    (void)row_;
    for (int g = 0; g < GROUPS; g++) {
        uint8_t codes[2] = {(uint8_t)g, (uint8_t)(g + 1)};
        double v[32], scale[2];
        kg_oracle_nvfp4_values((const uint8_t[16]){2, 0, 0, 0, 0, 0, 0, 0, 2}, codes, v,
                               1, 32);
        scale[0] = v[0]; /* E2M1 code 2 is 1 */
        scale[1] = v[16];
        float even = (float)scale[g % 2], middle = (float)((scale[0] + scale[1]) / 2);
        for (int i = 0; i < 16; i++) {
            float value = i == 0 ? 6 * middle : ties[i % 7] * even;
            x[g * 16 + i] = i % 2 ? -value : value;
            x[IN + g * 16 + i] = -x[g * 16 + i]; /* the second token */
        }
    }
    struct kg_gemm g = {
        .cell = cell,
        .w = {kg_oracle_type(KG_TYPE_NVFP4), NULL, IN, 1},
        .m = 2,
        .x = x,
    };
    kg_nvfp4_quantize(&g, "one-level", 1, NULL, NULL, 0);
    kg_nvfp4_quantize(&g, "two-level", 2, NULL, NULL, 0);
}

struct plan_row {
    const char *id;
    kg_cell_fn *run;
    const char *tensor;
    enum kg_type type;
    int offset;
    int m[4];
    uint32_t flags;
};

static const struct plan_row rows[] = {
    {"q5_k",
     run_dp4a,                    "blk.0.attn_gate.weight",
     KG_TYPE_Q5_K,                                                         91,
     {16, 64, 128, 512},
     KG_CELL_OPTIONAL                                                                               },
    {"nvfp4",       run_dp4a,     gate,                     KG_TYPE_NVFP4, 81, {16, 64, 128, 512}, 0},
    {"w4a4",        run_w4a4,     gate,                     KG_TYPE_NVFP4, 83, {16, 64, 128, 512}, 0},
    {"decades",     run_decades,  gate,                     KG_TYPE_NVFP4, 83, {16, 128},          0},
    {"residual",    run_residual, gate,                     KG_TYPE_NVFP4, 83, {128},              0},
    {"w4a8",        run_w4a8,     gate,                     KG_TYPE_NVFP4, 83, {16, 64, 128, 512}, 0},
    {"w4a8-f16",
     run_w4a8_f16,                gate,
     KG_TYPE_NVFP4,                                                        83,
     {16, 64, 128, 512},
     KG_CELL_OPTIONAL                                                                               },
    {"q4_k-mmq",
     run_mmq,                     "blk.3.attn_q.weight",
     KG_TYPE_Q4_K,                                                         87,
     {16, 64, 128, 512},
     KG_CELL_OPTIONAL                                                                               },
    {"q5_k-mmq",
     run_mmq,                     "blk.0.attn_gate.weight",
     KG_TYPE_Q5_K,                                                         87,
     {16, 64, 128, 512},
     KG_CELL_OPTIONAL                                                                               },
    {"cutlass",     run_cutlass,  gate,                     KG_TYPE_NVFP4, 87, {128, 512},         0},
    {"w4a4-native",
     run_native,                  gate,
     KG_TYPE_NVFP4,                                                        83,
     {16, 64, 128, 512},
     KG_CELL_OPTIONAL                                                                               },
};

static void plan(struct kg_plan *p)
{
    kg_plan_add(p, &(struct kg_cell_spec){"nvfp4-gemm.ties", run_ties, NULL, NULL,
                                          KG_CELL_ORDERED});
    kg_plan_add(p, &(struct kg_cell_spec){"nvfp4-gemm.channels", run_channels, NULL, NULL,
                                          KG_CELL_ORDERED});
    kg_plan_add(p, &(struct kg_cell_spec){"nvfp4-gemm.zero-tokens", run_zero_tokens, NULL,
                                          NULL, KG_CELL_ORDERED});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t t = 0; t < 4 && rows[i].m[t]; t++) {
            struct cell_row *cell = kg_plan_alloc(p, sizeof *cell);
            *cell = (struct cell_row){rows[i].tensor, rows[i].type, rows[i].offset,
                                      rows[i].m[t]};
            kg_plan_addf(
                p,
                &(struct kg_cell_spec){NULL, rows[i].run, cell, "nvfp4", rows[i].flags},
                "nvfp4-gemm.%s.t%d", rows[i].id, rows[i].m[t]);
        }
}

static const struct kg_role roles[] = {
    {"nvfp4", "gguf", "a model with NVFP4 weights"},
    {NULL,    NULL,   NULL                        },
};

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "nvfp4-gemm",
    .summary = "NVFP4 tensor-core products: W4A8, W4A4, residual path, CUTLASS's layout",
    .roles = roles,
    .plan = plan,
};
