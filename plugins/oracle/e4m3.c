/*
 * E4M3 weights: their product with q8_1 activations, and their conversion to Q8_0.
 *
 * A code is a multiple of 2^-9 of at most 448, so 2^9 times it is an integer below 2^18, and
 * the dot of 32 with int8 codes one below 2^30: integers hold it exactly.
 *
 * Roundings on a unit's way (bound.c has the bound that follows): the dot to f32, d * dot,
 * the fma into the lane's accumulator and those of the lane's later units, 5 additions of
 * the butterfly, and the row's scale.
 */
#include <math.h>
#include <string.h>

#include "plugins/oracle/dsv4.h"
#include "plugins/oracle/grouped.h"
#include "plugins/oracle/mmvq.h"

static bool is_nan(uint8_t code)
{
    return (code & 0x7f) == 0x7f;
}

double kg_oracle_e4m3_ops(const struct kg_oracle_e4m3_weights *w)
{
    return 2 + (double)((w->in + 1023) / 1024) + 5 + (w->row_scales ? 1 : 0);
}

void kg_oracle_e4m3_linear_q8_1(const struct kg_oracle_e4m3_weights *w, const int8_t *q,
                                const float *d, double *y, double *terms, int64_t m)
{
    int64_t units = w->in / 32, scale_cols = (w->in + 127) / 128;
    int32_t value[256];

    for (int code = 0; code < 256; code++)
        value[code] =
            is_nan((uint8_t)code) ? 0 : (int32_t)(kg_oracle_e4m3((uint8_t)code) * 512);

#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < w->out; o++) {
        const uint8_t *row = w->codes + o * w->in;
        double row_scale = w->row_scales ? w->row_scales[o] : 1;
        bool nan = false;

        for (int64_t k = 0; k < w->in; k++)
            nan = nan || is_nan(row[k]);
        for (int64_t r = 0; r < m; r++)
            y[r * w->out + o] = terms[r * w->out + o] = 0;
        for (int64_t u = 0; u < units; u++) {
            int32_t values[32];
            double scale = row_scale * 0x1p-9;
            if (w->block_scales)
                scale *= w->block_scales[o / 128 * scale_cols + u / 4];
            for (int j = 0; j < 32; j++)
                values[j] = value[row[32 * u + j]];
            for (int64_t r = 0; r < m; r++) {
                const int8_t *codes = q + r * w->in + 32 * u;
                int32_t dot = 0;
                for (int j = 0; j < 32; j++)
                    dot += values[j] * codes[j];
                double term = d[r * units + u] * (scale * dot);
                y[r * w->out + o] += term;
                terms[r * w->out + o] += fabs(term);
            }
        }
        for (int64_t r = 0; nan && r < m; r++)
            y[r * w->out + o] = NAN;
    }
}

void kg_oracle_e4m3_to_q8_0(const uint8_t *codes, const float *scales, uint8_t *q8,
                            int64_t in, int64_t out)
{
    int64_t scale_cols = (in + 127) / 128;

    for (int64_t o = 0; o < out; o++)
        for (int64_t u = 0; u < in / 32; u++, q8 += 34) {
            float scale = scales[o / 128 * scale_cols + u / 4], amax = 0;
            bool nan = false;
            float v[32];
            for (int j = 0; j < 32; j++) {
                uint8_t code = codes[o * in + 32 * u + j];
                v[j] = (is_nan(code) ? 0.0f : (float)kg_oracle_e4m3(code)) * scale;
                nan = nan || isnan(v[j]);
                amax = fmaxf(amax, fabsf(v[j]));
            }
            float d = nan ? NAN : amax / 127.0f;
            float id = d > 0 ? 1.0f / d : 0;
            uint16_t half = kg_oracle_to_half(d);
            q8[0] = (uint8_t)half;
            q8[1] = (uint8_t)(half >> 8);
            for (int j = 0; j < 32; j++) {
                float q = roundf(v[j] * id); /* halves away from zero */
                q = isnan(q) ? 0 : q > 127 ? 127 : q < -127 ? -127 : q;
                q8[2 + j] = (uint8_t)(int8_t)q;
            }
        }
}
