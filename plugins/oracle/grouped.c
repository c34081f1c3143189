#include "plugins/oracle/grouped.h"

#include <math.h>
#include <string.h>

enum { MMA_K = 16, MMA_STEPS = 18 };

double kg_oracle_from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 0    ? ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                    : ldexp(1024 + mantissa, exponent - 25);

    return bits & 0x8000 ? -value : value;
}

uint16_t kg_oracle_to_half(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    int exponent;

    if (isnan(value))
        return 0x7fff;
    if (size == 0)
        return sign;
    if (size >= 65520)
        return sign | 0x7c00;
    frexp(size, &exponent); /* size in [2^(exponent-1), 2^exponent) */
    int step = exponent - 11 < -24 ? -24 : exponent - 11;
    double units = nearbyint(ldexp(size, -step));
    if (step == -24) /* subnormal, or the first normal binade: one scale of bits */
        return sign | (uint16_t)units;
    /* units is 1024 .. 2048; 2048 carries into the exponent by itself */
    return sign | (uint16_t)(((step + 24) << 10) + (int)units);
}

void kg_oracle_grouped_at(const struct kg_oracle_grouped *g, int64_t pair, int64_t group,
                          int64_t o, double *y, double *bound)
{
    int64_t expert = g->experts ? g->experts[group] : group;
    int64_t row = g->rows ? g->rows[pair] : pair;
    const uint16_t *w = g->w + expert * g->expert_stride + o * g->in;
    const uint16_t *x = g->x + row * g->in;
    double scale = g->scale ? g->scale[pair] : 1, sum = 0, largest = 0;

    for (int64_t k = 0; k < g->in; k++) {
        double term = kg_oracle_from_half(w[k]) * kg_oracle_from_half(x[k]);
        if (k % MMA_K == 0)
            largest += fabs(sum);
        largest += fabs(term);
        sum += term;
    }
    *y = sum * scale;
    *bound = 1.01 * MMA_STEPS * 0x1p-23 * largest * fabs(scale) + 0x1p-24 * fabs(*y);
}

static float table[65536];

static void chain(const float *w, const float *x, int64_t in, double *sum_,
                  double *largest_)
{
    double sum = 0, largest = 0;

    for (int64_t k = 0; k < in; k += MMA_K) {
        double part[4] = {0}, size[4] = {0};
        for (int i = 0; i < MMA_K; i++) {
            double term = (double)w[k + i] * (double)x[k + i];
            part[i % 4] += term;
            size[i % 4] += fabs(term);
        }
        largest += fabs(sum) + (size[0] + size[1]) + (size[2] + size[3]);
        sum += (part[0] + part[1]) + (part[2] + part[3]);
    }
    *sum_ = sum;
    *largest_ = largest;
}

void kg_oracle_grouped_all(const struct kg_oracle_grouped *g, double *y, double *bound)
{
    for (int i = 0; i < 65536; i++)
        table[i] = (float)kg_oracle_from_half((uint16_t)i);
    for (int64_t group = 0; group < g->groups; group++) {
        int64_t expert = g->experts ? g->experts[group] : group;
        const uint16_t *w = g->w + expert * g->expert_stride;
        int64_t first = g->offsets[group], end = g->offsets[group + 1];
#pragma omp parallel for schedule(static)
        for (int64_t o = 0; o < g->out; o++) {
            enum { LONGEST = 8192 };
            float wf[LONGEST], xf[LONGEST];
            if (g->in > LONGEST || g->in % MMA_K != 0) {
                for (int64_t p = first; p < end; p++)
                    kg_oracle_grouped_at(g, p, group, o, &y[p * g->out + o],
                                         &bound[p * g->out + o]);
                continue;
            }
            for (int64_t k = 0; k < g->in; k++)
                wf[k] = table[w[o * g->in + k]];
            for (int64_t p = first; p < end; p++) {
                int64_t row = g->rows ? g->rows[p] : p, i = p * g->out + o;
                double scale = g->scale ? g->scale[p] : 1, sum, largest;
                for (int64_t k = 0; k < g->in; k++)
                    xf[k] = table[g->x[row * g->in + k]];
                chain(wf, xf, g->in, &sum, &largest);
                y[i] = sum * scale;
                bound[i] = 1.01 * MMA_STEPS * 0x1p-23 * largest * fabs(scale) +
                           0x1p-24 * fabs(y[i]);
            }
        }
    }
}
