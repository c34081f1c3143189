#include "plugins/dsv4_synthetic.h"

#include <math.h>
#include <string.h>

#include "plugins/dsv4_cells.h"

static const float LIMIT = 10;

/* ---- act_quant ---- */

static void check_act(struct kg_cell *cell, const float *x, int64_t m, int64_t k)
{
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, x, m, k);

    kg_param_i(cell, "m", m);
    kg_param_i(cell, "k", k);
    kg_dsv4_run_act_quant(cell, "x", &act);
}

/* Rows of many magnitudes; one of zeros. */
static void run_act_range(struct kg_cell *cell, const void *row)
{
    enum { M = 33, K = 384 };
    float *x = kg_pr(cell, M * K, 17, 1.0f);

    (void)row;
    for (int i = 0; i < M * K; i++)
        x[i] = i / K == 7 ? 0 : ldexpf(x[i], 3 * (i / K) - 40);
    check_act(cell, x, M, K);
}

/* Largest values at 448 * 2^e and one ulp to either side, for every e of interest: that of
   the block decides its scale, and log2 is not exact there. */
static void run_act_ulp(struct kg_cell *cell, const void *row)
{
    enum { EXPONENTS = 40, M = 3 * EXPONENTS };
    float *x = kg_pr(cell, M * 128, 29, 1.0f);

    (void)row;
    for (int r = 0; r < M; r++) {
        float top = ldexpf(448, r / 3 - 20);
        top = r % 3 == 0   ? nextafterf(top, 0)
              : r % 3 == 1 ? top
                           : nextafterf(top, INFINITY);
        for (int i = 0; i < 128; i++)
            x[r * 128 + i] *= top;
        x[r * 128 + (37 * r) % 128] = r % 2 ? -top : top;
    }
    check_act(cell, x, M, 128);
}

/* Largest values at, around and far below the floor 1e-4, down to subnormals and 0. */
static void run_act_floor(struct kg_cell *cell, const void *row)
{
    static const float tops[] = {0x1p-149f, 0x1p-130f, 1e-30f,   1e-10f, 1e-6f, 5e-5f,
                                 9.9e-5f,   1e-4f,     1.01e-4f, 0,      2e-4f};
    enum { M = sizeof tops / sizeof tops[0] };
    float *x = kg_pr(cell, M * 128, 43, 1.0f);

    (void)row;
    for (int i = 0; i < M * 128; i++)
        x[i] *= tops[i / 128];
    for (int r = 0; r < M; r++) {
        x[r * 128] = tops[r];
        x[r * 128 + 1] = -tops[r];
    }
    check_act(cell, x, M, 128);
}

/* Scale 1: all codes, the midpoints between neighbours, and an ulp to either side of them. */
static void run_act_ties(struct kg_cell *cell, const void *row)
{
    enum { M = 16 };
    float *x = kg_alloc(cell, M * 128 * sizeof *x);
    int n = 0;

    (void)row;
    for (int r = 0; r < M; r++)
        for (int i = 0; i < 127; i++, n++) {
            int code = n / 8 % 126;
            float low = (float)kg_oracle_e4m3((uint8_t)code);
            float high = (float)kg_oracle_e4m3((uint8_t)(code + 1));
            float middle = (low + high) / 2;
            float value = n % 4 == 0   ? low
                          : n % 4 == 1 ? middle
                          : n % 4 == 2 ? nextafterf(middle, 0)
                                       : nextafterf(middle, 1000);
            x[r * 128 + i] = n / 4 % 2 ? -value : value;
        }
    for (int r = 0; r < M; r++)
        x[r * 128 + 127] = 448;
    check_act(cell, x, M, 128);
}

/* ---- products ---- */

struct product {
    const char *id;
    int group;
    int64_t m, n, k;
};

static const struct product products[] = {
    {"m1",    16, 1,  80,  1152 },
    {"m8",    16, 8,  136, 2176 },
    {"m9",    16, 9,  72,  1152 },
    {"m17",   16, 17, 100, 2432 },
    {"m65",   16, 65, 144, 640  },
    {"m1",    32, 1,  80,  1152 },
    {"m8",    32, 8,  136, 4352 },
    {"m9",    32, 9,  72,  1152 },
    {"m17",   32, 17, 100, 2432 },
    {"m65",   32, 65, 144, 640  },
 /* few groups: tiles leaves partial sums out, down to 32, 16 and 8 */
    {"k128",  16, 9,  24,  128  },
    {"k128",  32, 9,  24,  128  },
    {"k256",  16, 9,  24,  256  },
    {"k384",  16, 9,  24,  384  },
    {"k384",  32, 9,  24,  384  },
 /* three groups in a partial sum */
    {"deep",  16, 10, 24,  4480 },
    {"deep",  32, 10, 24,  8320 },
 /* and more than a stage of tiles has; too many for rows8 */
    {"far",   16, 3,  24,  18432},
    {"far",   32, 3,  24,  18432},
 /* those that rows8 knows when it is compiled */
    {"k2048", 16, 9,  24,  2048 },
    {"k2048", 32, 9,  24,  2048 },
    {"k3072", 16, 9,  24,  3072 },
    {"k3072", 32, 9,  24,  3072 },
    {"k4096", 16, 9,  24,  4096 },
    {"k4096", 32, 9,  24,  4096 },
};

/* The same for groups that need their order; "order" itself is of another k. */
static const struct product orders[] = {
    {"order",       16, 0, 0, 768 },
    {"order",       32, 0, 0, 768 },
    {"order-k2048", 16, 0, 0, 2048},
    {"order-k2048", 32, 0, 0, 2048},
};

static void describe(struct kg_cell *cell, const struct kg_dsv4_weights *w, int64_t m)
{
    kg_param_s(cell, "kind", w->group == 16 ? "nvfp4" : "mxfp4");
    kg_param_i(cell, "m", m);
    kg_param_i(cell, "n", w->n);
    kg_param_i(cell, "k", w->k);
}

static void run_shape(struct kg_cell *cell, const void *row)
{
    const struct product *p = row;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, p->group, p->n, p->k, 1);
    struct kg_dsv4_act act =
        kg_dsv4_act_of(cell, kg_dsv4_bell(cell, p->m, p->k, 61), p->m, p->k);

    describe(cell, &w, p->m);
    kg_dsv4_run_gemm(cell, "y", &w, &act,
                     p->k > 9216 ? KG_DSV4_F64 : KG_DSV4_F64 | KG_DSV4_ALL_FORMS);
}

/*
 * Groups whose sums depend on their order: a sum beyond 2^14 beside steps of 2^-10. That
 * takes codes near the largest and codes of a few 2^-9 in one group, and weights that add
 * them up: two columns of three have 6 for the former and 0.5 or 1.5 for the latter. Style
 * 3 has six codes of 448 and one that decides on which side of the limit of the kernels' own
 * test the group lies. The mirror with each group's k reversed must differ, else the cell
 * shows nothing.
 */
static void fill_order(struct kg_cell *cell, int group, int64_t m, int64_t n, int64_t k,
                       uint8_t *codes, uint8_t *nibbles)
{
    for (int64_t i = 0; i < m * k; i++) {
        uint32_t hash = (uint32_t)((kg_pr_at(cell, 5 + (uint64_t)i) + 1) * 0x1p23f);
        int64_t row = i / k, style = row % 6, at = i % group;
        bool large = style == 0   ? at % 4 != 3
                     : style == 1 ? at % 8 != 7
                                  : style == 2 && hash % 3 == 0;
        uint8_t code = large ? 0x7e - hash % 3 : hash % 20;
        if (style == 3)
            code = at < 6 ? 0x7e : at == 6 ? 0x54 + hash % 8 : hash % 8;
        if (style == 4)
            code = (uint8_t)(0x20 + hash % 64);
        /* nothing beside the group: its last bits would drown in the sum */
        if (5 * row % (k / group) != i % k / group)
            code = 0;
        codes[i] = (uint8_t)(code | (style == 5 ? hash >> 9 & 128 : 0));
    }
    for (int64_t i = 0; i < n * k; i++) {
        uint32_t hash = (uint32_t)((kg_pr_at(cell, 7 + (uint64_t)i) + 1) * 0x1p23f);
        int64_t column = i / k % 3;
        uint32_t code = column == 0 ? hash % 16 : i % 4 != 3 ? 7 : 2 * (hash % 2) + 1;
        nibbles[i / 2] |= (uint8_t)(code << 4 * (i % 2));
    }
}

static void run_order(struct kg_cell *cell, const void *row)
{
    const struct product *p = row;
    enum { M = 70, N = 48 };
    const int64_t k = p->k, g = p->group;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, p->group, N, k, 2);
    struct kg_dsv4_act act = {NULL, kg_alloc(cell, (size_t)(M * k)),
                              kg_alloc(cell, (size_t)(M * k / 32)), M, k};
    struct kg_dsv4_weights backward = w;
    uint8_t *nibbles = kg_alloc(cell, (size_t)(N * k / 2));
    uint8_t *codes_back = kg_alloc(cell, (size_t)(M * k));
    uint8_t *nibbles_back = kg_alloc(cell, (size_t)(N * k / 2));
    float *y = kg_alloc(cell, M * N * sizeof *y),
          *y_back = kg_alloc(cell, M * N * sizeof *y);
    int64_t differ = 0;

    fill_order(cell, p->group, M, N, k, act.codes, nibbles);
    w.w = nibbles;
    for (int64_t i = 0; i < M * k / 128; i++)
        act.scales[i] = ldexpf(1, (int)(i % 9) - 6);
    for (int64_t i = 0; i < M * k; i++)
        codes_back[i / g * g + g - 1 - i % g] = act.codes[i];
    for (int64_t i = 0; i < N * k / 2; i++)
        nibbles_back[i / (g / 2) * (g / 2) + g / 2 - 1 - i % (g / 2)] =
            (uint8_t)(nibbles[i] >> 4 | nibbles[i] << 4);
    backward.w = nibbles_back;
    describe(cell, &w, M);
    kg_dsv4_must(cell, kg_oracle_dsv4_mirror(&w, act.codes, act.scales, y, M));
    kg_dsv4_must(cell,
                 kg_oracle_dsv4_mirror(&backward, codes_back, act.scales, y_back, M));
    for (int i = 0; i < M * N; i++)
        differ += memcmp(&y[i], &y_back[i], 4) != 0;
    kg_check_that(cell, "order-matters", differ > M * N / 50,
                  "%lld of %d outputs change when groups are summed backwards",
                  (long long)differ, M * N);
    kg_dsv4_run_gemm(cell, "y", &w, &act, KG_DSV4_F64 | KG_DSV4_ALL_FORMS);
}

/* Every weight code (8 is -0) in every position of a group, under every finite scale code:
   row o has scale code o, so that tiles of extreme and of usual scales occur. */
static void run_codes(struct kg_cell *cell, const void *row)
{
    const struct product *p = row;
    enum { N = 256, M = 3 };
    int64_t k = 640, groups = k / p->group;
    uint8_t *nibbles = kg_alloc(cell, (size_t)(N * k / 2));
    uint8_t *scales = kg_alloc(cell, (size_t)(N * groups));
    struct kg_dsv4_weights w = {p->group, nibbles, scales, p->group == 16 ? 0.0131f : 0,
                                N,        k};
    float *x = kg_pr(cell, (size_t)(M * k), 71, 1.0f);

    for (int64_t i = 0; i < N * k; i++) {
        int64_t o = i / k, at = i % k;
        int code = (int)((at + at / p->group + o) % 16);
        nibbles[i / 2] |= (uint8_t)(code << 4 * (i % 2));
    }
    for (int64_t i = 0; i < N * groups; i++) {
        int code = (int)(i / groups);
        bool is_nan = p->group == 16 ? (code & 127) == 127 : code == 255;
        scales[i] = (uint8_t)(is_nan ? code - 1 : code);
    }
    /* Act scales from 2^-22 to 2^-17: the largest E8M0 times that stays finite, the smallest
       is below f32's normal range. */
    for (int64_t i = 0; i < M * k; i++)
        x[i] *= i / k == 0 ? 1e-4f : i / k == 1 ? 1e-3f : 3e-3f;
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, x, M, k);
    describe(cell, &w, M);
    kg_dsv4_run_gemm(cell, "y", &w, &act, KG_DSV4_ALL_FORMS);
}

/* s * scale below f32's normal range, where it loses bits: the product must still come out
   as if it had been made first. */
static void run_tiny(struct kg_cell *cell, struct kg_dsv4_weights w,
                     struct kg_dsv4_act act)
{
    w.scale2 = 0x1.9ac2p-118f;
    for (int64_t i = 0; i < act.m * act.k / 128; i++)
        act.scales[i] = ldexpf(1, -8 - (int)(i % 14));
    kg_dsv4_run_gemm(cell, "tiny", &w, &act, KG_DSV4_ALL_FORMS);
}

/* s * scale is infinite, sub * scale * s would not be: four codes of 2^-9, of weights 0.5, in
   a group of column 3 with the largest scale. */
static void run_huge(struct kg_cell *cell, struct kg_dsv4_weights w,
                     struct kg_dsv4_act act)
{
    const int64_t groups = w.k / w.group, j = 5;
    uint8_t *nibbles = kg_alloc(cell, (size_t)(w.n * w.k / 2));
    uint8_t *scales = kg_alloc(cell, (size_t)(w.n * groups));

    memcpy(nibbles, w.w, (size_t)(w.n * w.k / 2));
    memcpy(scales, w.ws, (size_t)(w.n * groups));
    scales[3 * groups + j] = 254;
    for (int64_t i = 0; i < w.group / 2; i++)
        nibbles[3 * w.k / 2 + j * w.group / 2 + i] = 0x11;
    for (int64_t r = 0; r < act.m; r++)
        for (int64_t i = 0; i < w.group; i++)
            act.codes[r * act.k + j * w.group + i] = i < 4;
    for (int64_t i = 0; i < act.m * act.k / 128; i++)
        act.scales[i] = 128;
    w.w = nibbles;
    w.ws = scales;
    kg_dsv4_run_gemm(cell, "huge", &w, &act, KG_DSV4_ALL_FORMS);
}

/* Scales out of the usual range: the order of s * scale and sub shows. */
static void run_scales(struct kg_cell *cell, const void *row)
{
    const struct product *p = row;
    enum { M = 9, N = 40 };
    int64_t k = 512;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, p->group, N, k, 3);
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, kg_dsv4_bell(cell, M, k, 83), M, k);

    describe(cell, &w, M);
    for (int64_t i = 0; i < M * k / 128; i++)
        act.scales[i] = ldexpf(1, i % 3 == 0 ? 20 : i % 3 == 1 ? -126 : 60);
    kg_dsv4_run_gemm(cell, "y", &w, &act, KG_DSV4_ALL_FORMS);
    if (p->group == 16)
        run_tiny(cell, w, act);
    else
        run_huge(cell, w, act);
}

/* Zero blocks of weights and of activations, and a column and a row of nothing else. */
static void run_zero(struct kg_cell *cell, const void *row)
{
    const struct product *p = row;
    enum { M = 9, N = 48 };
    int64_t k = 768;
    struct kg_dsv4_weights w = kg_dsv4_weights_made(cell, p->group, N, k, 4);
    uint8_t *nibbles = kg_alloc(cell, (size_t)(N * k / 2));
    float *x = kg_alloc(cell, (size_t)(M * k) * sizeof *x);

    memcpy(nibbles, w.w, (size_t)(N * k / 2));
    memcpy(x, kg_dsv4_bell(cell, M, k, 97), (size_t)(M * k) * sizeof *x);
    for (int64_t i = 0; i < N * k / 2; i++)
        if (i / (k / 2) == 5 || i / (p->group / 2) % 3 == 1)
            nibbles[i] = i % 2 ? 0x08 : 0x80; /* zeros of both signs */
    for (int64_t i = 0; i < M * k; i++)
        if (i / k == 4 || (i / k + i % k / 128) % 3 == 0)
            x[i] = i % 2 ? 0.0f : -0.0f;
    w.w = nibbles;
    struct kg_dsv4_act act = kg_dsv4_act_of(cell, x, M, k);
    describe(cell, &w, M);
    kg_dsv4_run_act_quant(cell, "x", &act);
    kg_dsv4_run_gemm(cell, "y", &w, &act, KG_DSV4_F64 | KG_DSV4_ALL_FORMS);
}

/* ---- swiglu, and the chain ---- */

/*
 * Each kind of value has lanes of its own and a check of its own: silu(10) is 9.99954602, so
 * that a limit behind silu is off by 4.5e-5; a lower limit of the gate shows only below -10.
 */
static void run_lanes(struct kg_cell *cell, const void *row)
{
    static const struct {
        const char *name;
        float gate, up;
    } lanes[] = {
        {"gate-above",          11,  1  },
        {"gate-far-above",      400, -1 },
        {"gate-below",          -11, 1  },
        {"gate-far-below",      -40, 2  },
        {"up-above",            2,   12 },
        {"up-below",            2,   -12},
        {"both-above",          13,  14 },
        {"gate-below-up-above", -12, 15 },
        {"inside",              3,   -4 },
        {"at-the-limit",        10,  10 },
        {"at-minus-the-limit",  -10, -10},
    };
    enum { LANES = sizeof lanes / sizeof lanes[0], EACH = 64, N = LANES * EACH, M = 2 };
    float *gate = kg_alloc(cell, M * N * sizeof *gate),
          *up = kg_alloc(cell, M * N * sizeof *up);
    float *weights = kg_alloc(cell, M * sizeof *weights);
    double *g = kg_alloc(cell, M * N * sizeof *g), *u = kg_alloc(cell, M * N * sizeof *u);
    double *bound = kg_alloc(cell, M * N * sizeof *bound);

    (void)row;
    for (int i = 0; i < M * N; i++) {
        /* up to 1/8 away from the limit, on the same side of it */
        float spread = 1 + (kg_pr_at(cell, (uint64_t)i) + 1) / 32;
        bool at = lanes[i % N / EACH].name[0] == 'a';
        gate[i] = lanes[i % N / EACH].gate * (at ? 1 : spread);
        up[i] = lanes[i % N / EACH].up * (at ? 1 : spread);
        g[i] = (double)gate[i];
        u[i] = (double)up[i];
    }
    weights[0] = 0.8125f;
    weights[1] = 1.9f;
    struct kg_buf *dg = kg_input(cell, "gate", gate, M * N * 4);
    struct kg_buf *du = kg_input(cell, "up", up, M * N * 4);
    struct kg_buf *dw = kg_input(cell, "row-weight", weights, M * 4);
    struct kg_buf *dh = kg_output(cell, "h", M * N * 4);
    struct kg_buf *dp = kg_output(cell, "weighted", M * N * 4);
    KG_ARM(cell, "swiglu", NULL,
           KG_OPS(cell, dsv4, swiglu)(kg_ptr(dg), kg_ptr(du), NULL, LIMIT, kg_ptr(dh), M,
                                      N, kg_stream(cell)));
    const float *h = kg_fetch(dh);
    KG_ARM(cell, "weighted", NULL,
           KG_OPS(cell, dsv4, swiglu)(kg_ptr(dg), kg_ptr(du), kg_ptr(dw), LIMIT,
                                      kg_ptr(dp), M, N, kg_stream(cell)));
    const float *weighted = kg_fetch(dp);
    kg_oracle_dsv4_swiglu(g, u, (double)LIMIT, g, M * N);
    /* as in kg_dsv4_run_swiglu; half an ulp more for the row's weight */
    for (int i = 0; i < M * N; i++)
        bound[i] = 3.5 * 0x1p-23 * fabs(g[i]) + 0x1p-115;
    for (int lane = 0; lane < LANES; lane++)
        kg_check_bound(cell, lanes[lane].name, h + lane * EACH, g + lane * EACH,
                       bound + lane * EACH, EACH);
    for (int i = 0; i < M * N; i++) {
        g[i] *= (double)weights[i / N];
        bound[i] = 4 * 0x1p-23 * fabs(g[i]) + 0x1p-114;
    }
    kg_check_bound(cell, "all-rows-weighted", weighted, g, bound, M * N);
}

/* The whole of an expert, with w1 and w3 under different scale_2. */
static void run_expert(struct kg_cell *cell, const void *row)
{
    const struct product *p = row;
    enum { M = 5 };
    int64_t hidden = 640, inter = 384;
    struct kg_dsv4_weights w1 = kg_dsv4_weights_made(cell, p->group, inter, hidden, 5);
    struct kg_dsv4_weights w3 = kg_dsv4_weights_made(cell, p->group, inter, hidden, 6);
    struct kg_dsv4_weights w2 = kg_dsv4_weights_made(cell, p->group, hidden, inter, 7);
    struct kg_dsv4_act act =
        kg_dsv4_act_of(cell, kg_dsv4_bell(cell, M, hidden, 101), M, hidden);

    w3.scale2 *= 3.7f;
    w2.scale2 *= 0.21f;
    describe(cell, &w1, M);
    kg_param_f(cell, "w1.scale2", (double)w1.scale2);
    kg_param_f(cell, "w3.scale2", (double)w3.scale2);
    kg_dsv4_run_act_quant(cell, "x", &act);
    const float *gate = kg_dsv4_run_gemm(cell, "w1", &w1, &act, KG_DSV4_F64);
    const float *up = kg_dsv4_run_gemm(cell, "w3", &w3, &act, KG_DSV4_F64);
    const float *h = kg_dsv4_run_swiglu(cell, "swiglu", gate, up, LIMIT, M, inter);
    struct kg_dsv4_act mid = kg_dsv4_act_of(cell, h, M, inter);
    kg_dsv4_run_act_quant(cell, "h", &mid);
    kg_dsv4_run_gemm(cell, "w2", &w2, &mid, KG_DSV4_F64);
}

void kg_dsv4_plan_synthetic(struct kg_plan *plan)
{
    static const struct product kinds[] = {
        {"nvfp4", 16, 0, 0, 0},
        {"mxfp4", 32, 0, 0, 0}
    };
    static const struct {
        const char *id;
        kg_cell_fn *run;
        bool of_kind;
    } cells[] = {
        {"act-quant.range", run_act_range, false},
        {"act-quant.ulp",   run_act_ulp,   false},
        {"act-quant.floor", run_act_floor, false},
        {"act-quant.ties",  run_act_ties,  false},
        {"swiglu.lanes",    run_lanes,     false},
        {"gemm.codes",      run_codes,     true },
        {"gemm.scales",     run_scales,    true },
        {"gemm.zero-block", run_zero,      true },
        {"expert",          run_expert,    true },
    };

    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        for (int kind = 0; kind < (cells[i].of_kind ? 2 : 1); kind++)
            kg_plan_addf(plan,
                         &(struct kg_cell_spec){NULL, cells[i].run, &kinds[kind], NULL,
                                                KG_CELL_ORDERED},
                         cells[i].of_kind ? "dsv4-native.%s.%s" : "dsv4-native.%s",
                         cells[i].id, kinds[kind].id);
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        kg_plan_addf(
            plan,
            &(struct kg_cell_spec){NULL, run_shape, &products[i], NULL, KG_CELL_ORDERED},
            "dsv4-native.gemm.%s.%s", products[i].id,
            products[i].group == 16 ? "nvfp4" : "mxfp4");
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        kg_plan_addf(
            plan,
            &(struct kg_cell_spec){NULL, run_order, &orders[i], NULL, KG_CELL_ORDERED},
            "dsv4-native.gemm.%s.%s", orders[i].id,
            orders[i].group == 16 ? "nvfp4" : "mxfp4");
    kg_dsv4_plan_special(plan);
    kg_dsv4_plan_bench(plan);
}
