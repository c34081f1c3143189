/*
 * moe-router: which experts a token goes to, and their weights, on logits that real
 * routers got wrong: ties, near ties, NaN, infinities, all negative, a large bias, numbers
 * of experts that are no multiple of the warp.
 */
#include <math.h>

#include "kgate/check.h"
#include "plugins/oracle/router.h"

enum fill {
    PLAIN, /* with experts 17 and 200 (or the like) equal */
    NEAR,  /* all within a few ulp of 2, many equal */
    NANS,  /* every third a NaN */
    ALL_NAN,
    INFINITE,  /* some +inf, some -inf */
    MINUS_INF, /* all -inf but three */
    NEGATIVE,  /* -80 and below */
    OFFSET,    /* 1000 added to every logit */
    WIDE,      /* from -120 to 120: most probabilities underflow */
    ZEROS,     /* +0 and -0 in turn; a bias is -0 */
    LEVELS,    /* 300 more than the token before, from -600 on */
};

struct row {
    const char *id;
    enum fill fill;
    bool softmax;
    float bias; /* magnitude of the selection's bias; 0: none */
    int32_t tokens, experts, k;
};

static const struct row rows[] = {
    {"softmax-256",           PLAIN,     true,  0,    8,    256, 8 },
    {"softmax-60",            PLAIN,     true,  0,    5,    60,  4 },
    {"softmax-65",            PLAIN,     true,  0,    7,    65,  32},
    {"softmax-129",           PLAIN,     true,  0,    9,    129, 32},
    {"softmax-257",           PLAIN,     true,  0,    15,   257, 32},
    {"softmax-384",           PLAIN,     true,  0,    7,    384, 6 },
    {"softmax-512",           PLAIN,     true,  0,    3,    512, 10},
    {"softmax-8-of-8",        PLAIN,     true,  0,    9,    8,   8 },
    {"softmax-1-of-33",       PLAIN,     true,  0,    4,    33,  1 },
    {"softmax-32-of-64",      PLAIN,     true,  0,    2,    64,  32},
    {"near-tie",              NEAR,      true,  0,    16,   256, 8 },
    {"zeros",                 ZEROS,     true,  0,    2,    128, 8 },
    {"zeros-bias",            ZEROS,     true,  1,    2,    128, 8 },
    {"levels",                LEVELS,    true,  0,    5,    60,  6 },
    {"nan",                   NANS,      true,  0,    8,    256, 8 },
    {"all-nan",               ALL_NAN,   true,  0,    2,    60,  6 },
    {"infinite",              INFINITE,  true,  0,    8,    256, 8 },
    {"minus-infinite",        MINUS_INF, true,  0,    8,    256, 8 },
    {"negative",              NEGATIVE,  true,  0,    8,    256, 8 },
    {"offset-1000",           OFFSET,    true,  0,    8,    256, 8 },
    {"wide",                  WIDE,      true,  0,    8,    256, 8 },
    {"wide-8-of-8",           WIDE,      true,  0,    9,    8,   8 },
    {"bias",                  PLAIN,     true,  3,    8,    256, 8 },
    {"large-bias",            PLAIN,     true,  1e4f, 8,    256, 8 },
    {"sqrtsoftplus",          PLAIN,     false, 0,    8,    256, 6 },
    {"sqrtsoftplus-384",      PLAIN,     false, 0.5f, 8,    384, 6 },
    {"sqrtsoftplus-bias",     PLAIN,     false, 100,  8,    60,  6 },
    {"sqrtsoftplus-nan",      NANS,      false, 0.5f, 8,    256, 6 },
    {"sqrtsoftplus-all-nan",  ALL_NAN,   false, 0,    2,    60,  6 },
    {"sqrtsoftplus-infinite", INFINITE,  false, 0,    8,    256, 6 },
    {"sqrtsoftplus-negative", NEGATIVE,  false, 0,    8,    256, 6 },
    {"many-tokens",           PLAIN,     true,  0,    2051, 64,  8 },
};

static float logit(const struct kg_cell *cell, const struct row *row, int64_t t,
                   int64_t e)
{
    uint64_t i = (uint64_t)(t * row->experts + e);
    float v = kg_pr_at(cell, i + 123) * 4;
    float step = (float)(i * 2654435761u % 7); /* 0 .. 6 */

    switch (row->fill) {
    case NEAR:
        return 2 + step * 0x1p-22f; /* an ulp of 2 each */
    case NANS:
        return (t + e) % 3 == 0 ? NAN : v;
    case ALL_NAN:
        return t == 0 ? NAN : (e == 7 ? v : NAN);
    case INFINITE: /* token 0 has one +inf, token t has t + 1 */
        return e % 29 == 3 && e / 29 <= t ? INFINITY : e % 5 == 0 ? -INFINITY : v;
    case MINUS_INF:
        return t == 0 || (e != 3 && e != 100 && e != 255) ? -INFINITY : v;
    case NEGATIVE:
        return v * 2 - 88;
    case OFFSET:
        return v + 1000;
    case WIDE:
        return v * 30;
    case LEVELS:
        return v + 300 * (float)(t - 2);
    case ZEROS:
        return (t + e) % 2 ? -0.0f : 0.0f;
    default:
        return v;
    }
}

/* Two keys nearer to each other than the kernel's error would make the order of the ids a
   matter of luck: such data is no test, and ends the cell as ERROR. */
static void run_row(struct kg_cell *cell, const void *row_)
{
    const struct row *row = row_;
    size_t n_logits = (size_t)row->tokens * (size_t)row->experts;
    size_t n = (size_t)row->tokens * (size_t)row->k;
    float *logits = kg_alloc(cell, n_logits * sizeof *logits);
    float *bias = kg_alloc(cell, (size_t)row->experts * sizeof *bias);
    int32_t *ids = kg_alloc(cell, n * sizeof *ids);
    double *want = kg_alloc(cell, n * sizeof *want);
    double *bound = kg_alloc(cell, n * sizeof *bound);
    struct kg_cost cost = {4.0 * (double)n_logits + 8.0 * (double)n,
                           4.0 * (double)n_logits, "f32"};
    double largest = 0;
    /* A biased key is one rounding away, a root 1.51 u more. */
    double certain = row->softmax ? 0 : 4 * 0x1p-24 * (1 + row->bias);

    for (int64_t t = 0; t < row->tokens; t++) {
        float *line = logits + t * row->experts;
        for (int64_t e = 0; e < row->experts; e++)
            line[e] = logit(cell, row, t, e);
        if (row->fill == PLAIN && row->experts > 20) {
            float *other = &line[row->experts * 200 / 256];
            if (t % 2) /* so that the tie is among the chosen */
                *other = 3.96875f;
            line[17] = *other;
        }
    }
    for (int64_t e = 0; e < row->experts; e++)
        bias[e] =
            row->fill == ZEROS ? -0.0f : kg_pr_at(cell, (uint64_t)e + 4001) * row->bias;
    if (row->bias > 0 && row->experts > 20)
        bias[17] = bias[row->experts * 200 / 256];
    for (int64_t t = 0; t < row->tokens; t++) {
        struct kg_oracle_choice choice;
        kg_oracle_topk(logits + t * row->experts, row->bias > 0 ? bias : NULL,
                       row->softmax, row->experts, row->k, &choice);
        if (choice.gap < certain)
            kg_error(cell, "token %lld: keys %g apart, the order is not certain",
                     (long long)t, choice.gap);
        for (int64_t j = 0; j < row->k; j++) {
            ids[t * row->k + j] = choice.ids[j];
            want[t * row->k + j] = choice.weights[j];
            bound[t * row->k + j] = kg_oracle_topk_bound(row->softmax, row->experts,
                                                         row->k, choice.weights[j]);
            largest = fmax(largest, choice.weights[j]);
        }
    }
    kg_param_i(cell, "tokens", row->tokens);
    kg_param_i(cell, "experts", row->experts);
    kg_param_i(cell, "k", row->k);
    kg_param_s(cell, "scoring", row->softmax ? "softmax" : "sqrt-softplus");

    struct kg_buf *dl = kg_input(cell, "logits", logits, n_logits * sizeof *logits);
    struct kg_buf *db =
        row->bias > 0 ? kg_input(cell, "bias", bias, (size_t)row->experts * sizeof *bias)
                      : NULL;
    struct kg_buf *di = kg_output(cell, "ids", n * sizeof *ids);
    struct kg_buf *dw = kg_output(cell, "weights", n * sizeof(float));
    KG_ARM(cell, "topk", &cost,
           KG_OPS(cell, router, topk)(
               kg_ptr(dl), kg_ptr(db),
               row->softmax ? KG_ROUTER_SOFTMAX : KG_ROUTER_SQRT_SOFTPLUS, kg_ptr(di),
               kg_ptr(dw), row->tokens, row->experts, row->k, kg_stream(cell)));
    kg_check_exact(cell, "ids", kg_fetch(di), ids, n, sizeof *ids);
    const float *weights = kg_fetch(dw);
    kg_oracle_allow(cell, KG_ORACLE_ZERO);
    kg_check_bound(cell, "weights", weights, want, bound, n);
    if (largest >= 1e-3) /* what the band's floor makes sense of */
        kg_check_band(cell, "band", weights, want, n, 1e-3, 1e-5);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run_row, &rows[i], NULL, KG_CELL_ORDERED},
            "moe-router.%s", rows[i].id);
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "moe-router",
    .summary = "selection of experts and their weights",
    .plan = plan,
};
