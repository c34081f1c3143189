/*
 * Attention in f64 over the bytes of the cache (or f32 arrays), and its bound.
 *
 * Exact: s_t = scale * sum q k_t, w_t = exp(s_t - max s) / sum, O = sum w_t v_t.
 *
 * A kernel computes weights up to a common factor, w_t (1 + h_t), where to first order
 *
 *   |h_t| <= score * u * A_t      the score, with A_t = scale * sum |q k_t|
 *          + u * (m - s_t)        rounding of the difference s_t - M, M the kernel's maximum
 *          + 2u                   exp, within one ulp
 *          + weight               the weight's own rounding to a short format, at least
 *                                 weight_floor of the largest weight
 *          + rescales * 3u        each rescaling: exp (2u) and the product (u)
 *          + u * (m - min s)      the differences M - M' of the rescalings; they add up to
 *                                 no more than the range of the scores
 *
 * An error of the maximum itself is common to all weights and cancels. Since O is a
 * quotient, the weights' errors enter as sum w_t h_t (v_t - O): a factor common to all
 * keys does nothing. Then the sums:
 *
 *   |error of O| <= sum w_t |h_t| |v_t - O|  +  value * u * sum w_t |v_t|
 *                 + (sum * u + 2u) |O|  +  product_weight * sum w_t |v_t|
 *
 * where |v_t| is the magnitude of what is added: |d| code + |m| where V is added in these
 * two parts, and product_weight is the rounding of weights that the sum of weights does not
 * share. With digits (kernels/attention/values.h) the products weight * d of 16 keys, from
 * `first` on, are off by up to 2^-22 of the largest weight times the largest |d| among
 * them; the sum of the low digits, at most 2^-13 of that a key, rounds once a rescaling more.
 * Each counts with a code of up to 31. Terms of second order are covered by a factor 1 + 8 max h; the
 * flush of weights below the normal range by 2^-126 times the largest |v|.
 *
 * Log-sum-exp m + log(sum): error sum w_t |h_t| + sum * u + 2u |lse|, and the log's own ulp.
 */
#include "plugins/oracle/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kgate/status.h"
#include "kgate/types.h"
#include "plugins/oracle/kv.h"

/* One key head, unpacked. */
struct head {
    double *k, *v;
    double *v_terms; /* magnitudes of what a kernel adds for v; v's own if NULL */
    double *v_scale; /* of each key, the largest |d|; with v_terms */
};

static double round_to(int type, double x)
{
    int mantissa = type == KG_TYPE_F16 ? 10 : 7, e;

    if (type == KG_TYPE_F32 || x == 0)
        return x;
    e = ilogb(x);
    if (type == KG_TYPE_F16 && e < -14)
        e = -14;
    return ldexp(nearbyint(ldexp(x, mantissa - e)), e - mantissa);
}

static void unpack(int type, const uint8_t *row, int64_t first, int n, int rounding,
                   double *to)
{
    if (type == KG_TYPE_F32)
        for (int i = 0; i < n; i++)
            to[i] = ((const float *)(const void *)row)[first + i];
    else
        kg_oracle_kv_values(type, row, first, n, to);
    if (rounding != KG_TYPE_F32)
        for (int i = 0; i < n; i++)
            to[i] = round_to(rounding, to[i]);
}

/* Q5_1: |d| code + |m| from the exact values, v = d * code + m. Returns the largest |d|. */
static double part_terms(const uint8_t *row, int64_t first, int n, const double *v,
                         double *terms)
{
    double largest = 0;

    for (int b = 0; b < n / 32; b++) {
        const uint8_t *block = row + kg_oracle_kv_bytes(KG_TYPE_Q5_1, first + 32 * b);
        /* Two codes show d and m; the scale's bytes are read as f16 by the same reader,
           through a block whose codes are all 0 and one whose codes are all 1. */
        uint8_t zero[24] = {0}, one[24] = {0};
        double at0[32], at1[32];
        memcpy(zero, block, 4);
        memcpy(one, block, 4);
        memset(one + 8, 0x11, 16);
        kg_oracle_kv_values(KG_TYPE_Q5_1, zero, 0, 32, at0);
        kg_oracle_kv_values(KG_TYPE_Q5_1, one, 0, 32, at1);
        double m = at0[0];
        largest = fmax(largest, fabs(at1[0] - m));
        for (int j = 0; j < 32; j++)
            terms[32 * b + j] = fabs(v[32 * b + j] - m) + fabs(m);
    }
    return largest;
}

static void unpack_head(const struct kg_oracle_attention *a, bool digits, int kv_head,
                        struct head *head)
{
    int n = a->head_dim;
    int64_t first = (int64_t)kv_head * n;

#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < a->keys; t++) {
        const uint8_t *k = (const uint8_t *)a->k + t * a->k_stride;
        const uint8_t *v = (const uint8_t *)a->v + t * a->v_stride;
        unpack(a->k_type, k, first, n, a->round_to, head->k + t * n);
        unpack(a->v_type, v, first, n, a->round_to, head->v + t * n);
        if (digits)
            head->v_scale[t] =
                part_terms(v, first, n, head->v + t * n, head->v_terms + t * n);
    }
}

/* q as the kernel has it: rounded, or as int8 codes times their scale. */
static void load_query(const struct kg_oracle_attention *a, const float *q, double *to)
{
    for (int b = 0; b < a->head_dim; b += 32) {
        float amax = 0;
        for (int i = 0; i < 32; i++)
            amax = fmaxf(amax, fabsf(q[b + i]));
        float d = amax / 127.0f, id = d > 0 ? 1.0f / d : 0;
        for (int i = 0; i < 32; i++)
            to[b + i] = a->q_int8 ? (double)d * nearbyintf(q[b + i] * id)
                                  : round_to(a->round_to, q[b + i]);
    }
}

/* s_t and A_t. */
static void score(const struct kg_oracle_attention *a, const double *q, const double *k,
                  double *s, double *terms)
{
    double sum = 0, magnitude = 0;

    for (int b = 0; b < a->head_dim; b += 32) {
        double part = 0, abs_part = 0;
#pragma omp simd reduction(+ : part, abs_part)
        for (int i = b; i < b + 32; i++) {
            part += q[i] * k[i];
            abs_part += fabs(q[i] * k[i]);
        }
        sum += part;
        magnitude += a->q_int8 ? fabs(part) : abs_part;
    }
    *s = a->scale * sum;
    *terms = fabs(a->scale) * magnitude;
}

struct result {
    double *out, *bound, *lse, *lse_bound;
};

/* What the digits' rounding adds to the error of any element; w: the weights over their sum. */
static double digit_error(const struct kg_oracle_attention_ops *ops,
                          const struct head *head, const double *w, int64_t first,
                          int64_t end)
{
    double error = 0;

    if (!ops->digits)
        return 0;
    for (int64_t tile = first; tile < end; tile += 16) {
        double weight = 0, scale = 0;
        int64_t t = tile;
        for (; t < tile + 16 && t < end; t++) {
            weight = fmax(weight, w[t]);
            scale = fmax(scale, head->v_scale[t]);
        }
        error += (double)(t - tile) * 31 * weight * scale;
    }
    return error * (0x1p-22 + ops->rescales * 0x1p-37);
}

/* One query of one head; `scratch` holds head_dim + 2 * keys numbers. */
static void attend(const struct kg_oracle_attention *a,
                   const struct kg_oracle_attention_ops *ops, const struct head *head,
                   const float *query, int64_t first, int64_t end, double *scratch,
                   struct result r)
{
    int n = a->head_dim;
    double *q = scratch, *w = q + n, *h = w + a->keys;
    double max = -INFINITY, min = INFINITY, sum = 0, h_max = 0, h_mean = 0, v_max = 0;

    for (int i = 0; i < n; i++)
        r.out[i] = r.bound[i] = 0;
    if (r.lse) {
        *r.lse = -INFINITY;
        *r.lse_bound = 0;
    }
    if (first >= end)
        return;
    load_query(a, query, q);
    for (int64_t t = first; t < end; t++) {
        score(a, q, head->k + t * n, &w[t], &h[t]);
        max = fmax(max, w[t]);
        min = fmin(min, w[t]);
    }
    for (int64_t t = first; t < end; t++) {
        h[t] = ops->score * ops->u * h[t] +
               0x1p-24 * ((max - w[t]) + (max - min) + 2 + 3 * ops->rescales) +
               ops->weight;
        h_max = fmax(h_max, h[t]);
        w[t] = exp(w[t] - max);
        sum += w[t];
    }
    for (int64_t t = first; t < end; t++) {
        const double *v = head->v + t * n;
        w[t] /= sum;
        h_mean += w[t] * h[t];
#pragma omp simd
        for (int i = 0; i < n; i++)
            r.out[i] += w[t] * v[i];
    }
    for (int64_t t = first; t < end; t++) {
        const double *v = head->v + t * n;
        const double *terms = head->v_terms ? head->v_terms + t * n : v;
        double floor = ops->weight_floor / sum;
        double weight_error = w[t] * h[t] + (ops->product_weight > 0 ? 0 : floor);
        double rounding = w[t] * ops->value * ops->u;
        double product = ops->product_weight > 0 ? w[t] * ops->product_weight + floor : 0;
#pragma omp simd reduction(max : v_max)
        for (int i = 0; i < n; i++) {
            r.bound[i] += weight_error * fabs(v[i] - r.out[i]) + product * fabs(v[i]) +
                          rounding * fabs(terms[i]);
            v_max = fmax(v_max, fabs(v[i]));
        }
    }
    double rounded = digit_error(ops, head, w, first, end);
    for (int i = 0; i < n; i++)
        r.bound[i] = (r.bound[i] + rounded + (ops->sum + 2) * ops->u * fabs(r.out[i])) *
                         (1 + 8 * h_max) +
                     0x1p-126 * v_max;
    if (r.lse) {
        *r.lse = max + log(sum);
        *r.lse_bound = (h_mean + ops->sum * ops->u) * (1 + 8 * h_max) +
                       0x1p-23 * (fabs(*r.lse) + fabs(log(sum)) + fabs(max));
    }
}

static void attend_head(const struct kg_oracle_attention *a,
                        const struct kg_oracle_attention_ops *ops, int kv_head,
                        const struct head *head, double *out, double *bound, double *lse,
                        double *lse_bound)
{
    int group = a->n_heads / a->n_kv_heads;
    int64_t per_thread = a->head_dim + 2 * a->keys;
    int64_t step = a->sample > 1 ? a->sample : 1;

#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < a->tokens * group; i++) {
        int64_t token = i / group, head_index = kv_head * group + i % group;
        int64_t at = token * a->n_heads + head_index;
        int64_t position = a->keys - a->tokens + token;
        int64_t end = a->causal ? position + 1 : a->keys;
        int64_t first = a->causal && a->window > 0 ? end - a->window : 0;
        struct result r = {out + at * a->head_dim, bound + at * a->head_dim,
                           lse ? lse + at : NULL, lse ? lse_bound + at : NULL};
        double *own = malloc((size_t)per_thread * sizeof *own);
        if (at % step != 0 || !own) {
            for (int j = 0; j < a->head_dim; j++)
                r.bound[j] = NAN;
            if (lse)
                *r.lse_bound = NAN;
        } else {
            attend(a, ops, head, a->q + at * a->head_dim, first < 0 ? 0 : first, end, own,
                   r);
        }
        free(own);
    }
}

int kg_oracle_attend(const struct kg_oracle_attention *a,
                     const struct kg_oracle_attention_ops *ops, double *out,
                     double *bound, double *lse, double *lse_bound)
{
    bool digits = ops->digits && a->v_type == KG_TYPE_Q5_1;
    size_t keys = (size_t)a->keys, n = keys * (size_t)a->head_dim;
    double *memory = malloc((digits ? 3 * n + keys : 2 * n + 1) * sizeof *memory);
    struct head head = {memory, memory + n, digits ? memory + 2 * n : NULL,
                        digits ? memory + 3 * n : NULL};

    if (!memory)
        return KG_E_MEMORY;
    for (int h = 0; h < a->n_kv_heads; h++) {
        unpack_head(a, digits, h, &head);
        attend_head(a, ops, h, &head, out, bound, lse, lse_bound);
    }
    free(memory);
    return KG_OK;
}
