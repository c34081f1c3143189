/*
 * Cells of dsv4-native for what models hardly ever hold: NaN and infinities, widths that are
 * no multiple of four, and groups at the edge of the test that tells whether order matters.
 *
 * Which results are NaN is compared, not their bits, so none of the cells with NaN is ordered.
 */
#include <math.h>
#include <string.h>

#include "plugins/dsv4_cells.h"
#include "plugins/dsv4_synthetic.h"

/* ---- act_quant ---- */

/* A NaN gives code 0x7F and does not count for the scale: the host quantizes the row with 0
   in its place. */
static void run_act_nan(struct kg_cell *cell, const void *row)
{
    enum { M = 7, K = 384, EVERY = 53 };
    const int64_t n = M * K;
    float *x = kg_pr(cell, M * K, 17, 3.0f), *without = kg_alloc(cell, M * K * sizeof *x);

    (void)row;
    memcpy(without, x, M * K * sizeof *x);
    for (int64_t i = 0; i < n; i += EVERY) {
        x[i] = i % 2 ? -NAN : NAN;
        without[i] = 0;
    }
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, without, M, K);
    for (int64_t i = 0; i < n; i += EVERY)
        act.codes[i] = 0x7f;
    act.x = x;
    kg_dsv4_run_act_quant(cell, "x", &act);
}

/* to_bf16 on what lies halfway between two bf16, of even and odd ones, and an ulp beside it. */
static void run_to_bf16(struct kg_cell *cell, const void *row)
{
    enum { EXPONENTS = 60, N = EXPONENTS * 16 };
    float *x = kg_alloc(cell, N * sizeof *x);
    uint16_t *want = kg_alloc(cell, N * sizeof *want);

    (void)row;
    for (int i = 0; i < N; i++) {
        unsigned bits =
            (unsigned)(i / 16 * 4 + 8) << 23 | (unsigned)(i % 4 + 40) << 16 | 0x8000u;
        bits += i / 4 % 4 == 1 ? 1 : i / 4 % 4 == 2 ? -1u : 0;
        bits |= i % 8 < 4 ? 0x80000000u : 0;
        memcpy(&x[i], &bits, 4);
        unsigned rest = bits & 0xffffu, high = bits >> 16;
        want[i] =
            (uint16_t)(rest > 0x8000u || (rest == 0x8000u && high % 2) ? high + 1 : high);
    }
    struct kg_buf *dx = kg_input(cell, "x", x, N * sizeof *x);
    struct kg_buf *dh = kg_output(cell, "x16", N * sizeof *want);
    KG_ARM(cell, "to-bf16", NULL,
           KG_OPS(cell, dsv4, to_bf16)(kg_ptr(dx), kg_ptr(dh), N, kg_stream(cell)));
    kg_check_exact(cell, "x16", kg_fetch(dh), want, N, sizeof *want);
}

/* ---- swiglu ---- */

/* A width that is no multiple of four, every row with a weight of its own; then NaN in the
   gate, in up, and beyond a limit in the other. */
static void run_swiglu_ragged(struct kg_cell *cell, const void *row)
{
    enum { M = 3, N = 37, COUNT = M * N };
    static const float weights[M] = {0.8125f, 1.9f, -0.37f};
    const float limit = 10;
    float *gate = kg_pr(cell, COUNT, 19, 15.0f), *up = kg_pr(cell, COUNT, 401, 15.0f);
    double g[COUNT], u[COUNT], bound[COUNT];
    int wrong = 0;

    (void)row;
    struct kg_buf *dg = kg_input(cell, "gate", gate, COUNT * 4);
    struct kg_buf *du = kg_input(cell, "up", up, COUNT * 4);
    struct kg_buf *dw = kg_input(cell, "row-weight", weights, sizeof weights);
    struct kg_buf *dh = kg_output(cell, "h", COUNT * 4);
    KG_ARM(cell, "weighted", NULL,
           KG_OPS(cell, dsv4, swiglu)(kg_ptr(dg), kg_ptr(du), kg_ptr(dw), limit,
                                      kg_ptr(dh), M, N, kg_stream(cell)));
    for (int i = 0; i < COUNT; i++) {
        g[i] = (double)gate[i];
        u[i] = (double)up[i];
    }
    kg_oracle_dsv4_swiglu(g, u, (double)limit, g, COUNT);
    for (int i = 0; i < COUNT; i++) {
        g[i] *= (double)weights[i / N];
        bound[i] = 4 * 0x1p-23 * fabs(g[i]) + 0x1p-114; /* as in swiglu.lanes */
    }
    kg_check_bound(cell, "h", kg_fetch(dh), g, bound, COUNT);

    for (int i = 0; i < COUNT; i++) {
        gate[i] = i % 5 == 0 ? NAN : i % 5 == 1 ? 400 : gate[i];
        up[i] = i % 5 == 2 ? NAN : i % 5 == 3 ? -400 : i % 10 == 0 ? NAN : up[i];
    }
    for (int width = N; width <= N + 3; width += 3) { /* 37, and 40 by fours */
        int rows = width == N ? M : 2, count = rows * width;
        struct kg_buf *ng = kg_input(cell, "gate-nan", gate, (size_t)count * 4);
        struct kg_buf *nu = kg_input(cell, "up-nan", up, (size_t)count * 4);
        struct kg_buf *nh = kg_output(cell, "h-nan", (size_t)count * 4);
        KG_ARM(cell, width == N ? "nan" : "nan-4", NULL,
               KG_OPS(cell, dsv4, swiglu)(kg_ptr(ng), kg_ptr(nu), NULL, limit, kg_ptr(nh),
                                          rows, width, kg_stream(cell)));
        const float *h = kg_fetch(nh);
        for (int i = 0; i < count; i++)
            wrong += !isnan(h[i]) == (isnan(gate[i]) || isnan(up[i]));
    }
    kg_check_that(cell, "nan", wrong == 0,
                  "%d values are NaN that should not be, or not NaN", wrong);
}

/* ---- products ---- */

struct kind {
    const char *id;
    int group;
};

static const int forms[] = {KG_DSV4_AUTO, KG_DSV4_ORDERED, KG_DSV4_ROWS8, KG_DSV4_TILES};
static const char *const form_names[] = {"auto", "ordered", "rows8", "tiles"};

/* One NaN code among the activations makes its row NaN, one NaN scale among the weights its
   column, and nothing else. */
static void run_gemm_nan(struct kg_cell *cell, const void *row)
{
    const struct kind *kind = row;
    enum { M = 9, N = 40, NAN_ROW = 4, NAN_COLUMN = 21 };
    const int64_t k = 512, groups = k / kind->group;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, kind->group, N, k, 8);
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, kg_dsv4_bell(cell, M, k, 83), M, k);
    uint8_t *ws = kg_alloc(cell, (size_t)(N * groups));

    memcpy(ws, w.ws, (size_t)(N * groups));
    ws[NAN_COLUMN * groups + groups / 2] = kind->group == 16 ? 0x7f : 0xff;
    act.codes[NAN_ROW * k + 3 * kind->group + 5] = 0xff;
    for (int part = 0; part < 2; part++) { /* the weights' NaN in the second part only */
        struct kg_buf *dc = kg_input(cell, "codes", act.codes, (size_t)(M * k));
        struct kg_buf *da =
            kg_input(cell, "scales", act.scales, (size_t)(M * k / 128) * 4);
        struct kg_buf *dw = kg_input(cell, "w", w.w, (size_t)(N * k / 2));
        struct kg_buf *ds = kg_input(cell, "ws", part ? ws : w.ws, (size_t)(N * groups));
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            struct kg_buf *dy = kg_output(cell, "y", M * N * 4), *scratch = NULL;
            size_t bytes = 0;
            int wrong = 0, code = kg_dsv4_kind(&w);
            if (KG_OPS(cell, dsv4, gemm_scratch)(code, forms[f], M, N, k, &bytes) !=
                KG_OK)
                kg_fail(cell, "gemm_scratch refuses");
            if (bytes > 0)
                scratch = kg_scratch(cell, "scratch", bytes);
            const char *name = kg_dsv4_name(cell, form_names[f], part ? "scale" : "code");
            KG_ARM(cell, name, NULL,
                   KG_OPS(cell, dsv4, gemm)(code, forms[f], kg_ptr(dc), kg_ptr(da),
                                            kg_ptr(dw), kg_ptr(ds), w.scale2, kg_ptr(dy),
                                            M, N, k, kg_ptr(scratch), bytes,
                                            kg_stream(cell)));
            const float *y = kg_fetch(dy);
            for (int i = 0; i < M * N; i++)
                wrong +=
                    !isnan(y[i]) == (i / N == NAN_ROW || (part && i % N == NAN_COLUMN));
            kg_check_that(cell, name, wrong == 0,
                          "%d results are NaN that should not be, or not NaN", wrong);
        }
    }
}

/*
 * Groups of 448 and a few codes of the binades below the one in which products stop to depend
 * on their order: 2^-6 for groups of 16, 2^-6 and 2^-5 for groups of 32. No code has a finer
 * step, so only a look at these tells that the sum needs its order.
 */
static void run_gemm_coarse(struct kg_cell *cell, const void *row)
{
    const struct kind *kind = row;
    enum { M = 66, N = 24 };
    const int64_t k = 384;
    const int group = kind->group;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, group, N, k, 9);
    struct kg_dsv4_act act = {NULL, kg_alloc(cell, (size_t)(M * k)),
                              kg_alloc(cell, (size_t)(M * k / 32)), M, k};
    uint8_t *nibbles = kg_alloc(cell, (size_t)(N * k / 2));

    memset(act.codes, 0, (size_t)(M * k));
    for (int64_t r = 0; r < M; r++)
        for (int i = 0; i < group; i++) {
            unsigned hash =
                (unsigned)((kg_pr_at(cell, (uint64_t)(r * 64 + i)) + 1) * 0x1p20f);
            unsigned low = group == 16 || r % 2 ? 0x10 : 0x18;
            act.codes[r * k + 5 * r % (k / group) * group + i] =
                (uint8_t)(i % 5 == 4 ? low + hash % 8 : 0x7e);
        }
    for (int64_t i = 0; i < M * k / 128; i++)
        act.scales[i] = ldexpf(1, (int)(i % 9) - 6);
    for (int64_t i = 0; i < N * k; i++) {
        unsigned hash = (unsigned)((kg_pr_at(cell, 7 + (uint64_t)i) + 1) * 0x1p20f);
        unsigned code = i % group % 5 == 4 ? 1 + hash % 3 : 7;
        nibbles[i / 2] = (uint8_t)((i % 2 ? nibbles[i / 2] : 0) | code << 4 * (i % 2));
    }
    w.w = nibbles;
    kg_dsv4_run_gemm(cell, "y", &w, &act, KG_DSV4_F64 | KG_DSV4_ALL_FORMS);
}

/* Activation scales of 2^-126 to 2^-122: beside weight scales that bring the product back, so
   that only the order of the multiplications keeps it from underflow, and beside small ones, so
   that every term is subnormal and rounds. */
static void run_gemm_small_scales(struct kg_cell *cell, const void *row)
{
    const struct kind *kind = row;
    enum { M = 9, N = 24, RAISED = 40 };
    const int64_t k = 384, groups = k / kind->group;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, kind->group, N, k, 10);
    struct kg_dsv4_weights raised = w;
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, kg_dsv4_bell(cell, M, k, 89), M, k);
    uint8_t *ws = kg_alloc(cell, (size_t)(N * groups));

    for (int64_t i = 0; i < N * groups; i++)
        ws[i] = (uint8_t)(kind->group == 32 ? w.ws[i] + RAISED : w.ws[i]);
    raised.ws = ws;
    raised.scale2 = ldexpf(w.scale2, RAISED);
    for (int64_t i = 0; i < M * k / 128; i++)
        act.scales[i] = ldexpf(1, (int)(i % 5) - 126);
    for (int64_t i = 0; i < M * k; i++)
        act.codes[i] = (uint8_t)(i % 128 < 64 ? act.codes[i] & 0x87 : act.codes[i]);
    kg_dsv4_run_gemm(cell, "y", &raised, &act, KG_DSV4_ALL_FORMS);
    kg_dsv4_run_gemm(cell, "tiny", &w, &act, KG_DSV4_ALL_FORMS);
}

/* Rows whose scales lie 2^15 to 2^22 and 2^20 to 2^27 apart, the large one beside codes of 0
   only, so that what the small ones add is not lost in a sum. */
static void run_gemm_wide_scales(struct kg_cell *cell, const void *row)
{
    const struct kind *kind = row;
    enum { M = 8, N = 24 };
    const int64_t k = 384;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, kind->group, N, k, 11);

    for (int nearest = 15; nearest <= 20; nearest += 5) {
        struct kg_dsv4_act act = kg_dsv4_act_of(cell, kg_dsv4_bell(cell, M, k, 97), M, k);
        for (int64_t i = 0; i < M * 3; i++)
            act.scales[i] = ldexpf(1, i % 3 == 1 ? 2 : 2 - nearest - (int)(i / 3));
        for (int64_t i = 0; i < M * k; i++)
            act.codes[i] = (uint8_t)(i / 128 % 3 == 1 ? 0
                                     : i % 128 < 64   ? act.codes[i] & 0x87
                                                      : act.codes[i]);
        kg_dsv4_run_gemm(cell, nearest == 15 ? "near" : "far", &w, &act,
                         KG_DSV4_ALL_FORMS);
    }
    /* no powers of two, as act_quant never gives them */
    struct kg_dsv4_act odd = kg_dsv4_act_of(cell, kg_dsv4_bell(cell, M, k, 97), M, k);
    for (int64_t i = 0; i < M * 3; i++)
        odd.scales[i] *= i % 2 ? 1.375f : 1;
    kg_dsv4_run_gemm(cell, "odd", &w, &odd, KG_DSV4_ALL_FORMS);
}

void kg_dsv4_plan_special(struct kg_plan *plan)
{
    static const struct kind kinds[] = {
        {"nvfp4", 16},
        {"mxfp4", 32}
    };

    kg_plan_add(plan, &(struct kg_cell_spec){"dsv4-native.act-quant.nan", run_act_nan,
                                             NULL, NULL, KG_CELL_ORDERED});
    kg_plan_add(plan, &(struct kg_cell_spec){"dsv4-native.to-bf16", run_to_bf16, NULL,
                                             NULL, KG_CELL_ORDERED});
    kg_plan_add(plan, &(struct kg_cell_spec){"dsv4-native.swiglu.ragged",
                                             run_swiglu_ragged, NULL, NULL, 0});
    for (int i = 0; i < 2; i++) {
        kg_plan_addf(plan, &(struct kg_cell_spec){NULL, run_gemm_nan, &kinds[i], NULL, 0},
                     "dsv4-native.gemm.nan.%s", kinds[i].id);
        kg_plan_addf(plan,
                     &(struct kg_cell_spec){NULL, run_gemm_coarse, &kinds[i], NULL,
                                            KG_CELL_ORDERED},
                     "dsv4-native.gemm.coarse.%s", kinds[i].id);
        kg_plan_addf(plan,
                     &(struct kg_cell_spec){NULL, run_gemm_small_scales, &kinds[i], NULL,
                                            KG_CELL_ORDERED},
                     "dsv4-native.gemm.small-scales.%s", kinds[i].id);
        kg_plan_addf(plan,
                     &(struct kg_cell_spec){NULL, run_gemm_wide_scales, &kinds[i], NULL,
                                            KG_CELL_ORDERED},
                     "dsv4-native.gemm.wide-scales.%s", kinds[i].id);
    }
}
