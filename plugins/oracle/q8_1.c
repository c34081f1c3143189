/*
 * q8_1 activations on the host, and stage B in f64 on the codes that a kernel made.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/oracle/fold.h"
#include "plugins/oracle/split.h"

/* x * id rounded to the nearest integer, ties to even, kept in an int8. The product is
   an f32 one. It leaves [-127, 127] only when amax is so small that d is subnormal and
   has few bits, or 1/d overflows; see kg_oracle_q8_1. */
static int8_t code_of(float x, float id)
{
    float scaled = x * id;

    if (!(scaled > -127.0f)) /* NaN is 0 * inf: a zero in a block whose 1/d overflows */
        return scaled != scaled ? 0 : -127;
    if (scaled > 127.0f)
        return 127;
    return (int8_t)nearbyintf(scaled);
}

void kg_oracle_q8_1(const float *x, int8_t *q, float *d, float *s, int64_t rows,
                    int64_t cols)
{
#pragma omp parallel for
    for (int64_t b = 0; b < rows * (cols / 32); b++) {
        float amax = 0;
        int sum = 0;

        for (int j = 0; j < 32; j++) /* a NaN is above all and stays */
            if (!(fabsf(x[32 * b + j]) <= amax) && amax == amax) /* a NaN stays */
                amax = fabsf(x[32 * b + j]);
        float scale = amax / 127.0f;
        float id = scale > 0 ? 1.0f / scale : 0;
        for (int j = 0; j < 32; j++) {
            q[32 * b + j] = code_of(x[32 * b + j], id);
            sum += q[32 * b + j];
        }
        d[b] = scale;
        s[b] = scale * (float)sum;
    }
}

/* ---- stage B ---- */

/*
 * The error of a sum of integer products, from its partial sums (running.c). A unit of 32
 * weights adds one term per scale group (1, or 2 where 16 elements share a scale), then one
 * for its minimum if the type has one. Integer dot products are exact, and so are the weight's scales
 * and minima in f32. A term is rounded once before fma adds it: d * dot or a * dot, or the sum
 * s = d * sum(q) that the activation carries. Stage B of NVFP4 takes a * dot first, 4 bits times 15:
 * exact, so its terms are not rounded before (a chain counts one rounding all the same).
 *
 * Where a type has quads, four units whose scales are integers times one number d_w, the dots of a unit
 * make one exact integer D, and a quad one term d_w f with f = d_0 D_0 + ... + d_3 D_3, a chain of its
 * own of four roundings, which start at 0. Both chains are the same for d_w f and d_w times each
 * of its terms, as their errors are relative: so a quad is folded from terms d_w d_j D_j without
 * roundings before, and joined to its lane as another sum. A subnormal f is exact: all its terms are
 * multiples of 2^-149.
 *
 * Where a chain is cut at places that are not known, into `segments` parts that are added in
 * their order, every partial sum is a difference of two prefix sums, so at most R, the
 * largest prefix less the smallest. With N = terms + segments additions:
 *
 *   E <= u (sum |term| + N (R + E)),  hence  E <= u (sum |term| + N R) / (1 - N u)
 *
 * Not covered: activations whose own scale d is subnormal, because that error would be
 * multiplied by the weight's scale. No cell runs integer products there.
 */
struct state {
    struct kg_fold lanes[KG_FOLD_LANES]; /* a chain has one */
    struct kg_fold first;                /* of two parts */
    double terms, low, high;             /* sum of magnitudes; prefix sums' range */
};

/* Lanes of stage B's butterfly. */
static int lanes_of(const struct kg_oracle_type *type)
{
    return type->quads ? 16 : KG_FOLD_LANES;
}

static void add_term(struct state *s, const struct kg_oracle_order *order, int64_t unit,
                     double term, int roundings)
{
    struct kg_fold *lane = &s->lanes[order->chain ? 0 : unit % KG_FOLD_LANES];

    kg_fold_add(lane, term, roundings);
    if (order->chain) {
        s->terms += fabs(term);
        s->low = lane->sum < s->low ? lane->sum : s->low;
        s->high = lane->sum > s->high ? lane->sum : s->high;
    }
}

static int dot_of(const struct kg_oracle_split *part, const int8_t *q, int first, int n)
{
    int dot = 0;

    for (int i = first; i < first + n; i++)
        dot += part->code[i] * q[i];
    return dot;
}

/* The quad that begins at element `first` of a block. */
static struct kg_fold quad_of(const struct kg_oracle_split *part, int first,
                              const int8_t *q, const float *d)
{
    struct kg_fold f = {0, 0};

    for (int i = first; i < first + 128; i += 32) {
        double joint = part->scale[i / 16] * dot_of(part, q, i, 16) +
                       part->scale[i / 16 + 1] * dot_of(part, q, i + 16, 16);
        kg_fold_add(&f, d[i / 32] * joint, 0);
    }
    return f;
}

/* One block of weights against the q8_1 blocks that it covers. The 16-groups of a scale
   are joined first, as the kernel's integers are. */
static void add_block(struct state *s, const struct kg_oracle_order *order,
                      const struct kg_oracle_type *type,
                      const struct kg_oracle_split *part, int block, int64_t unit,
                      const int8_t *q, const float *d)
{
    const int step = type->quads ? 128 : type->group, lanes = lanes_of(type);
    const int roundings = type->type == KG_TYPE_NVFP4 && !order->chain ? 0 : 1;

    for (int i0 = 0; i0 < block; i0 += step) {
        const int64_t u = unit + i0 / 32;
        int sum = 0;
        if (!order->chain && i0 % 32 == 0 && u == order->cut) {
            s->first = kg_fold_lanes(s->lanes, lanes);
            memset(s->lanes, 0, sizeof s->lanes);
        }
        if (type->quads) {
            struct kg_fold quad = quad_of(part, i0, q, d);
            kg_fold_join(&s->lanes[u / 4 % lanes], &quad);
            continue;
        }
        add_term(s, order, u,
                 d[i0 / 32] * (part->scale[i0 / 16] * dot_of(part, q, i0, step)),
                 roundings);
        for (int i = i0; type->has_min && i < i0 + step; i++)
            sum += q[i];
        if (type->has_min)
            add_term(s, order, u, -d[i0 / 32] * (part->min[i0 / 16] * sum), 1);
    }
}

static struct kg_fold result_of(struct state *s, const struct kg_oracle_type *type,
                                const struct kg_oracle_order *order)
{
    struct kg_fold all =
        order->chain ? s->lanes[0] : kg_fold_lanes(s->lanes, lanes_of(type));

    if (order->cut > 0) {
        kg_fold_join(&s->first, &all);
        all = s->first;
    }
    return all;
}

static double terms_of(const struct kg_oracle_type *type, int64_t in)
{
    if (type->quads)
        return (double)in / 128;
    return (double)(in / 32 * (32 / type->group + (type->has_min ? 1 : 0)));
}

double kg_oracle_cut_bound(const struct kg_oracle_type *type, int64_t in, double terms,
                           double range, int64_t segments)
{
    double n = terms_of(type, in) + (double)segments;

    return KG_FOLD_OWN * KG_FOLD_U * (terms + n * range) / (1 - n * KG_FOLD_U) +
           2 * n * 0x1p-149;
}

int kg_oracle_linear_q8_1(const struct kg_oracle_type *type, const void *w,
                          const int8_t *q, const float *d,
                          const struct kg_oracle_order *order,
                          const struct kg_oracle_sums *to, int64_t in, int64_t out,
                          int64_t m)
{
    const double tiny = 2 * terms_of(type, in) * 0x1p-149;
    const struct kg_type_info *info = kg_type_info(type->type);
    int64_t blocks = in / info->block, units = info->block / 32;
    int rc = KG_OK;

    if (order->chain && type->quads)
        return KG_E_UNSUPPORTED;
#pragma omp parallel
    {
        struct state *state = malloc(((size_t)m + 1) * sizeof *state);
        if (!state) {
#pragma omp atomic write
            rc = KG_E_MEMORY;
        }
#pragma omp for schedule(static)
        for (int64_t o = 0; o < out; o++) {
            const uint8_t *row = (const uint8_t *)w + o * blocks * info->bytes;
            if (!state)
                continue;
            memset(state, 0, (size_t)m * sizeof *state);
            for (int64_t b = 0; b < blocks; b++) {
                struct kg_oracle_split part;
                type->split(row + b * info->bytes, &part);
                for (int64_t r = 0; r < m; r++) {
                    int64_t at = b * info->block;
                    add_block(&state[r], order, type, &part, info->block, b * units,
                              q + r * in + at, d + (r * in + at) / 32);
                }
            }
            for (int64_t r = 0; r < m; r++) {
                struct kg_fold all = result_of(&state[r], type, order);
                to->y[r * out + o] = all.sum;
                to->bound[r * out + o] = KG_FOLD_OWN * all.err + tiny;
                if (to->terms)
                    to->terms[r * out + o] = state[r].terms;
                if (to->range)
                    to->range[r * out + o] = state[r].high - state[r].low;
            }
        }
        free(state);
    }
    return rc;
}
