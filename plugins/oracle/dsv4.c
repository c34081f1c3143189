#include "plugins/oracle/dsv4.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kgate/status.h"
#include "plugins/oracle/fold.h"

enum { PARTS = 128, ACT_BLOCK = 128 };

double kg_oracle_e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double value =
        exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);

    if ((code & 127) == 127)
        return (double)NAN;
    return code & 128 ? -value : value;
}

double kg_oracle_e8m0(uint8_t code)
{
    return code == 255 ? (double)NAN : ldexp(1, code - 127);
}

double kg_oracle_e2m1(uint8_t code)
{
    static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

    return code & 8 ? -values[code & 7] : values[code & 7];
}

/* The nearest code by its distance; `values` are those of codes 0 .. 126, ascending. On a tie
   the even one wins. */
static uint8_t nearest(const double values[127], double x)
{
    double a = fabs(x);
    int best = 0;

    for (int code = 1; code <= 126; code++) {
        double step = fabs(a - values[code]) - fabs(a - values[best]);
        if (step < 0 || (step == 0 && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(signbit(x) ? best | 128 : best);
}

/* The smallest power of two >= v > 0. */
static double power_above(double v)
{
    int exponent;
    double fraction = frexp(v, &exponent); /* in [1/2, 1) */

    return ldexp(1, fraction == 0.5 ? exponent - 1 : exponent);
}

void kg_oracle_dsv4_act_quant(const float *x, uint8_t *codes, float *scales, int64_t m,
                              int64_t k)
{
    const float inverse = 1.0f / 448.0f;
    double values[127];

    for (int code = 0; code <= 126; code++)
        values[code] = kg_oracle_e4m3((uint8_t)code);
#pragma omp parallel for
    for (int64_t b = 0; b < m * (k / ACT_BLOCK); b++) {
        const float *v = x + b * ACT_BLOCK;
        float amax = 1e-4f;
        for (int i = 0; i < ACT_BLOCK; i++)
            amax = fabsf(v[i]) > amax ? fabsf(v[i]) : amax;
        const float product = amax * inverse; /* rounded to f32: part of the definition */
        const double scale = power_above((double)product);
        scales[b] = (float)scale;
        for (int i = 0; i < ACT_BLOCK; i++)
            codes[b * ACT_BLOCK + i] = nearest(values, (double)v[i] / scale);
    }
}

static float weight_scale(const struct kg_dsv4_weights *w, int64_t o, int64_t j)
{
    uint8_t code = w->ws[o * (w->k / w->group) + j];

    if (w->group == 32)
        return (float)kg_oracle_e8m0(code);
    return (float)kg_oracle_e4m3(code) * w->scale2;
}

static uint8_t nibble(const struct kg_dsv4_weights *w, int64_t o, int64_t i)
{
    uint8_t pair = w->w[o * (w->k / 2) + i / 2];

    return i % 2 ? pair >> 4 : pair & 15;
}

/* The activations' codes as f32, [m][k]. */
static float *decode_codes(const uint8_t *codes, int64_t count)
{
    float table[256], *values = malloc((size_t)count * sizeof *values);

    for (int c = 0; c < 256; c++)
        table[c] = (float)kg_oracle_e4m3((uint8_t)c);
    for (int64_t i = 0; values && i < count; i++)
        values[i] = table[codes[i]];
    return values;
}

static float halving_tree(float part[PARTS])
{
    for (int h = PARTS / 2; h > 0; h /= 2)
        for (int t = 0; t < h; t++)
            part[t] = part[t] + part[t + h];
    return part[0];
}

int kg_oracle_dsv4_mirror(const struct kg_dsv4_weights *w, const uint8_t *codes,
                          const float *scales, float *y, int64_t m)
{
    int64_t groups = w->k / w->group, blocks = w->k / ACT_BLOCK;
    float *x = decode_codes(codes, m * w->k);
    bool failed = !x;

#pragma omp parallel for if (!failed)
    for (int64_t o = 0; o < w->n; o++) {
        float *row = failed ? NULL : malloc((size_t)w->k * sizeof *row);
        if (!row) {
#pragma omp atomic write
            failed = true;
            continue;
        }
        for (int64_t i = 0; i < w->k; i++)
            row[i] = (float)kg_oracle_e2m1(nibble(w, o, i));
        for (int64_t r = 0; r < m; r++) {
            float part[PARTS] = {0};
            for (int64_t j = 0; j < groups; j++) {
                const float *a = x + r * w->k + j * w->group, *b = row + j * w->group;
                float sub = 0;
                for (int i = 0; i < w->group; i++)
                    sub = sub + a[i] * b[i];
                float scale =
                    weight_scale(w, o, j) * scales[r * blocks + j * w->group / ACT_BLOCK];
                float term = sub * scale;
                part[j % PARTS] = part[j % PARTS] + term;
            }
            y[r * w->n + o] = halving_tree(part);
        }
        free(row);
    }
    free(x);
    return failed ? KG_E_MEMORY : KG_OK;
}

/*
 * A group's sum of products and its error. A product is exact, and a multiple of 2^-9 * 2^-1;
 * so is every partial sum, and f32 holds those up to 2^14 exactly. The larger ones are rounded.
 */
static struct kg_fold group_sum(const float *x, const double *row, int64_t group)
{
    struct kg_fold f = {0, 0};

    for (int64_t i = 0; i < group; i++) {
        f.sum += (double)x[i] * row[i];
        if (fabs(f.sum) + f.err > 0x1p14)
            f.err += KG_FOLD_U * (fabs(f.sum) + f.err);
    }
    return f;
}

static struct kg_fold halving_fold(struct kg_fold part[PARTS])
{
    for (int h = PARTS / 2; h > 0; h /= 2)
        for (int t = 0; t < h; t++)
            kg_fold_join(&part[t], &part[t + h]);
    return part[0];
}

int kg_oracle_dsv4_f64(const struct kg_dsv4_weights *w, const uint8_t *codes,
                       const float *scales, double *y, double *bound, double *terms,
                       int64_t m)
{
    int64_t groups = w->k / w->group, blocks = w->k / ACT_BLOCK;
    float *x = decode_codes(codes, m * w->k);
    bool failed = !x;

#pragma omp parallel for if (!failed)
    for (int64_t o = 0; o < w->n; o++) {
        double *row = failed ? NULL : malloc((size_t)w->k * sizeof *row);
        if (!row) {
#pragma omp atomic write
            failed = true;
            continue;
        }
        for (int64_t i = 0; i < w->k; i++)
            row[i] = kg_oracle_e2m1(nibble(w, o, i));
        for (int64_t r = 0; r < m; r++) {
            struct kg_fold part[PARTS] = {
                {0, 0}
            };
            double magnitude = 0;
            for (int64_t j = 0; j < groups; j++) {
                const double scale = (double)weight_scale(w, o, j) *
                                     scales[r * blocks + j * w->group / ACT_BLOCK];
                struct kg_fold term =
                    group_sum(x + r * w->k + j * w->group, row + j * w->group, w->group);
                term.sum *= scale;
                term.err *= fabs(scale);
                term.err += KG_FOLD_U * (fabs(term.sum) + term.err);
                if (j < PARTS)
                    part[j] = term; /* added to 0 */
                else
                    kg_fold_join(&part[j % PARTS], &term);
                magnitude += fabs(term.sum);
            }
            const struct kg_fold all = halving_fold(part);
            y[r * w->n + o] = all.sum;
            bound[r * w->n + o] = KG_FOLD_OWN * all.err;
            if (terms)
                terms[r * w->n + o] = magnitude;
        }
        free(row);
    }
    free(x);
    return failed ? KG_E_MEMORY : KG_OK;
}

void kg_oracle_dsv4_swiglu(const double *gate, const double *up, double limit, double *h,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double g = gate[i] > limit ? limit : gate[i];
        double u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        h[i] = g / (1 + exp(-g)) * u;
    }
}

int kg_oracle_dsv4_norm(const struct kg_dsv4_weights *w, const float *x, double *norm,
                        int64_t m)
{
#pragma omp parallel for
    for (int64_t o = 0; o < w->n; o++)
        for (int64_t r = 0; r < m; r++) {
            double sum = 0;
            for (int64_t i = 0; i < w->k; i++) {
                double p = kg_oracle_e2m1(nibble(w, o, i)) *
                           (double)weight_scale(w, o, i / w->group) *
                           (double)x[r * w->k + i];
                sum += p * p;
            }
            norm[r * w->n + o] = sqrt(sum);
        }
    return KG_OK;
}

/* x rounded to eight significant bits, ties to even; x is in bf16's normal range or 0. */
static double bf16(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);

    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

int kg_oracle_dsv4_bf16(const struct kg_dsv4_weights *w, const float *x, double *y,
                        double *terms, int64_t m)
{
    double *rounded = malloc((size_t)(m * w->k) * sizeof *rounded);

    if (!rounded)
        return KG_E_MEMORY;
    for (int64_t i = 0; i < m * w->k; i++)
        rounded[i] = bf16((double)x[i]);
#pragma omp parallel for
    for (int64_t o = 0; o < w->n; o++)
        for (int64_t r = 0; r < m; r++) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < w->k; i++) {
                float weight = (float)kg_oracle_e2m1(nibble(w, o, i)) *
                               weight_scale(w, o, i / w->group);
                double p = bf16((double)weight) * rounded[r * w->k + i];
                sum += p;
                magnitude += fabs(p);
            }
            y[r * w->n + o] = sum;
            terms[r * w->n + o] = magnitude;
        }
    free(rounded);
    return KG_OK;
}
