#include "plugins/oracle/grouped.h"

#include <math.h>
#include <string.h>

enum { MMA_K = 16, MMA_STEPS = 18, NO_BITS = 1000 };

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

/* Exponent of the lowest bit that is set; NO_BITS for 0. */
static int lowest_bit(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;

    if (exponent > 0)
        mantissa |= 1024;
    return mantissa ? __builtin_ctz((unsigned)mantissa) + (exponent ? exponent : 1) - 25
                    : NO_BITS;
}

static int lowest_of(const uint16_t *halves, int64_t n)
{
    int lowest = NO_BITS;

    for (int64_t i = 0; i < n; i++) {
        int bit = lowest_bit(halves[i]);
        lowest = bit < lowest ? bit : lowest;
    }
    return lowest;
}

struct chain {
    double sum, err;
};

static const float NORMAL = 0x1p-14f; /* the smallest normal half */

/* One mma: 16 products, all multiples of 2^quantum. */
static inline void advance(struct chain *c, const float *w, const float *x, int quantum)
{
    double part[4] = {0}, size[4] = {0};

    for (int i = 0; i < MMA_K; i++) {
        part[i % 4] += (double)w[i] * (double)x[i];
        size[i % 4] +=
            (double)fmaxf(fabsf(w[i]), NORMAL) * (double)fmaxf(fabsf(x[i]), NORMAL);
    }
    double largest = fabs(c->sum) + c->err + (size[0] + size[1]) + (size[2] + size[3]);
    int unit = largest > 0 ? ilogb(largest) - 23 : quantum;
    c->sum += (part[0] + part[1]) + (part[2] + part[3]);
    if (unit > quantum)
        c->err += MMA_STEPS * ldexp(1, unit);
}

static void finish(const struct chain *c, double scale, double *y, double *bound)
{
    *y = c->sum * scale;
    *bound = c->err * fabs(scale);
    *bound += 0x1p-24 * (fabs(*y) + *bound);
}

void kg_oracle_grouped_at(const struct kg_oracle_grouped *g, int64_t pair, int64_t group,
                          int64_t o, double *y, double *bound)
{
    int64_t expert = g->experts ? g->experts[group] : group;
    int64_t row = g->rows ? g->rows[pair] : pair;
    const uint16_t *w = g->w + expert * g->expert_stride + o * g->in;
    const uint16_t *x = g->x + row * g->in;
    const int quantum = lowest_of(w, g->in) + lowest_of(x, g->in);
    struct chain c = {0, 0};

    for (int64_t k = 0; k < g->in; k += MMA_K) {
        float wf[MMA_K] = {0}, xf[MMA_K] = {0};
        for (int64_t i = 0; i < MMA_K && k + i < g->in; i++) {
            wf[i] = (float)kg_oracle_from_half(w[k + i]);
            xf[i] = (float)kg_oracle_from_half(x[k + i]);
        }
        advance(&c, wf, xf, quantum);
    }
    finish(&c, g->scale ? g->scale[pair] : 1, y, bound);
}

static float table[65536];

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
            int w_bits = lowest_of(w + o * g->in, g->in);
            for (int64_t p = first; p < end; p++) {
                const uint16_t *x = g->x + (g->rows ? g->rows[p] : p) * g->in;
                int64_t i = p * g->out + o;
                struct chain c = {0, 0};
                for (int64_t k = 0; k < g->in; k++)
                    xf[k] = table[x[k]];
                int quantum = w_bits + lowest_of(x, g->in);
                for (int64_t k = 0; k < g->in; k += MMA_K)
                    advance(&c, wf + k, xf + k, quantum);
                finish(&c, g->scale ? g->scale[p] : 1, &y[i], &bound[i]);
            }
        }
    }
}
