/*
 * E2M1 activations: both roundings are searches through the table of all codes, so that
 * they share nothing with the bit arithmetic of the kernels.
 */
#include "plugins/oracle/nvfp4.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kgate/status.h"
#include "plugins/oracle/split.h"

static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/* Code 0 .. 126 of UE4M3. */
static double ue4m3(int code)
{
    int exponent = code >> 3, mantissa = code & 7;

    return exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
}

/* The code nearest to a >= 0 among n ascending values; of two equally near the even one. */
static int nearest(const double *values, int n, double a)
{
    int low = 0, high = n - 1;

    if (a >= values[high])
        return high;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (values[middle] <= a)
            low = middle;
        else
            high = middle;
    }
    double below = a - values[low], above = values[high] - a;
    return below < above || (below == above && low % 2 == 0) ? low : high;
}

struct channel {
    float amax;
    int32_t index;
};

static int louder_first(const void *a_, const void *b_)
{
    const struct channel *a = a_, *b = b_;

    if (a->amax != b->amax)
        return a->amax > b->amax ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

int kg_oracle_nvfp4_channels(const float *x, int64_t m, int64_t in, int k,
                             int32_t *channels)
{
    struct channel *all = malloc((size_t)in * sizeof *all);

    if (!all)
        return KG_E_MEMORY;
    for (int64_t c = 0; c < in; c++) {
        all[c] = (struct channel){0, (int32_t)c};
        for (int64_t t = 0; t < m; t++)
            all[c].amax = fmaxf(all[c].amax, fabsf(x[t * in + c]));
    }
    qsort(all, (size_t)in, sizeof *all, louder_first);
    for (int i = 0; i < k; i++)
        channels[i] = all[i].index;
    free(all);
    return KG_OK;
}

static float masked(const float *row, int64_t c, const int32_t *skip, int k)
{
    for (int i = 0; i < k; i++)
        if (skip[i] == c)
            return 0;
    return row[c];
}

void kg_oracle_nvfp4_quantize(const float *x, int64_t m, int64_t in, const int32_t *skip,
                              int k, int levels, uint8_t *codes, uint8_t *scales,
                              float *token_scale)
{
    double table[127];

    for (int code = 0; code < 127; code++)
        table[code] = ue4m3(code);
#pragma omp parallel for
    for (int64_t t = 0; t < m; t++) {
        const float *row = x + t * in;
        float divisor = 1, largest = 0;

        for (int64_t c = 0; c < in; c++)
            largest = fmaxf(largest, fabsf(masked(row, c, skip, k)));
        if (levels == 2 && largest / 2688.0f > 0)
            divisor = largest / 2688.0f;
        token_scale[t] = divisor;
        for (int64_t g = 0; g < in / 16; g++) {
            float v[16], amax = 0;
            for (int i = 0; i < 16; i++) {
                v[i] = masked(row, 16 * g + i, skip, k) / divisor;
                amax = fmaxf(amax, fabsf(v[i]));
            }
            int scale = nearest(table, 127, (double)(amax / 6.0f));
            float inverse = scale ? 1.0f / (float)table[scale] : 0;
            scales[t * (in / 16) + g] = (uint8_t)scale;
            for (int i = 0; i < 16; i += 2) {
                int pair = 0;
                for (int j = 0; j < 2; j++) {
                    float scaled = v[i + j] * inverse;
                    int code = nearest(e2m1, 8, fabs((double)scaled));
                    pair |= (code | (signbit(scaled) ? 8 : 0)) << 4 * j;
                }
                codes[(t * in + 16 * g + i) / 2] = (uint8_t)pair;
            }
        }
    }
}

void kg_oracle_nvfp4_values(const uint8_t *codes, const uint8_t *scales, double *x,
                            int64_t m, int64_t in)
{
    for (int64_t i = 0; i < m * in; i++) {
        int code = codes[i / 2] >> i % 2 * 4 & 15;
        double value = e2m1[code & 7] * ue4m3(scales[i / 16]);
        x[i] = code & 8 ? -value : value;
    }
}

/* Twice the value of each code, and the scale of each 16. */
static void decode_tokens(const uint8_t *codes, const uint8_t *scales, int8_t *x,
                          double *scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int code = codes[i / 2] >> i % 2 * 4 & 15;
        int doubled = (int)(2 * e2m1[code & 7]);
        x[i] = (int8_t)(code & 8 ? -doubled : doubled);
    }
    for (int64_t g = 0; g < n / 16; g++)
        scale[g] = ue4m3(scales[g]) / 2;
}

int kg_oracle_nvfp4_linear(const void *w, const uint8_t *codes, const uint8_t *scales,
                           double *y, double *sums, int64_t in, int64_t out, int64_t m)
{
    const struct kg_oracle_type *type = kg_oracle_type(KG_TYPE_NVFP4);
    int8_t *x = malloc((size_t)(in * m));
    double *scale = malloc((size_t)(in / 16 * m) * sizeof *scale);

    if (!x || !scale) {
        free(x);
        free(scale);
        return KG_E_MEMORY;
    }
    decode_tokens(codes, scales, x, scale, in * m);
    memset(y, 0, (size_t)(out * m) * sizeof *y);
    memset(sums, 0, (size_t)(out * m) * sizeof *sums);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < out; o++)
        for (int64_t b = 0; b < in / 64; b++) {
            struct kg_oracle_split part;
            type->split((const uint8_t *)w + (o * (in / 64) + b) * 36, &part);
            for (int64_t t = 0; t < m; t++)
                for (int g = 0; g < 4; g++) {
                    const int8_t *from = x + t * in + b * 64 + g * 16;
                    int dot = 0;
                    for (int i = 0; i < 16; i++)
                        dot += part.code[g * 16 + i] * from[i];
                    y[t * out + o] +=
                        part.scale[g] * dot * scale[t * (in / 16) + b * 4 + g];
                    sums[t * out + o] += fabs(y[t * out + o]);
                }
        }
    free(x);
    free(scale);
    return KG_OK;
}
