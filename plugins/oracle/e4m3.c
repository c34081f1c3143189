/*
 * E4M3 weights: their product with q8_1 activations, and their conversion to Q8_0.
 *
 * A code is a multiple of 2^-9 of at most 448, so 2^9 times it is an integer below 2^18, and
 * the dot of 32 with int8 codes one below 2^30: integers hold it exactly.
 *
 * The bound (running.c): a unit's term is rounded twice, the dot to f32 and d * dot, before
 * fma adds it to its lane's accumulator; a butterfly joins the lanes, and the row's scale
 * multiplies the sum with one rounding more.
 */
#include <math.h>
#include <string.h>

#include "plugins/oracle/dsv4.h"
#include "plugins/oracle/fold.h"
#include "plugins/oracle/grouped.h"
#include "plugins/oracle/mmvq.h"

static bool is_nan(uint8_t code)
{
    return (code & 0x7f) == 0x7f;
}

/* Row `codes` of output o against q [units][32] with scales d. */
static struct kg_fold product(const struct kg_oracle_e4m3_weights *w, int64_t o,
                              const int32_t value[256], const int8_t *q, const float *d)
{
    struct kg_fold lanes[KG_FOLD_LANES] = {
        {0, 0}
    };
    const uint8_t *row = w->codes + o * w->in;
    const float *scales =
        w->block_scales ? w->block_scales + o / 128 * ((w->in + 127) / 128) : NULL;

    for (int64_t u = 0; u < w->in / 32; u++) {
        double scale = scales ? 0x1p-9 * scales[u / 4] : 0x1p-9;
        int32_t dot = 0;
        for (int j = 0; j < 32; j++)
            dot += value[row[32 * u + j]] * q[32 * u + j];
        kg_fold_add(&lanes[u % KG_FOLD_LANES], d[u] * (scale * dot), 2);
    }
    return kg_fold_lanes(lanes, KG_FOLD_LANES);
}

void kg_oracle_e4m3_linear_q8_1(const struct kg_oracle_e4m3_weights *w, const int8_t *q,
                                const float *d, double *y, double *bound, int64_t m)
{
    int32_t value[256];

    for (int code = 0; code < 256; code++)
        value[code] =
            is_nan((uint8_t)code) ? 0 : (int32_t)(kg_oracle_e4m3((uint8_t)code) * 512);

#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < w->out; o++) {
        bool nan = false;

        for (int64_t k = 0; k < w->in; k++)
            nan = nan || is_nan(w->codes[o * w->in + k]);
        for (int64_t r = 0; r < m; r++) {
            int64_t at = r * w->out + o;
            struct kg_fold f = product(w, o, value, q + r * w->in, d + r * (w->in / 32));
            double scale = w->row_scales ? w->row_scales[o] : 1;
            y[at] = f.sum * scale;
            bound[at] = KG_FOLD_OWN * f.err + (double)w->in / 32 * 0x1p-148;
            kg_oracle_bound_scaled(&bound[at], &y[at], 1, scale, w->row_scales ? 1 : 0);
            if (nan)
                y[at] = NAN;
        }
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
