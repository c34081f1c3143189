/*
 * q8_1 activations on the host, and stage B in f64 on the codes that a kernel made.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

        for (int j = 0; j < 32; j++)
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

struct sums {
    double y;
    double terms;
};

/* One block of weights against the q8_1 blocks that it covers. The 16-groups of a scale
   are joined first, as the kernel's integers are. */
static void add_block(struct sums *sums, const struct kg_oracle_type *type,
                      const struct kg_oracle_split *part, int block, const int8_t *q,
                      const float *d)
{
    int step = type->group;

    for (int i0 = 0; i0 < block; i0 += step) {
        double scale = part->scale[i0 / 16], min = part->min[i0 / 16];
        int dot = 0, sum = 0;
        for (int i = i0; i < i0 + step; i++) {
            dot += part->code[i] * q[i];
            sum += q[i];
        }
        double product = d[i0 / 32] * (scale * dot);
        double offset = d[i0 / 32] * (min * sum);
        sums->y += product - offset;
        sums->terms += fabs(product) + fabs(offset);
    }
}

int kg_oracle_linear_q8_1(const struct kg_oracle_type *type, const void *w,
                          const int8_t *q, const float *d, double *y, double *terms,
                          int64_t in, int64_t out, int64_t m)
{
    const struct kg_type_info *info = kg_type_info(type->type);
    int64_t blocks = in / info->block;

#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < out; o++) {
        const uint8_t *row = (const uint8_t *)w + o * blocks * info->bytes;
        for (int64_t r = 0; r < m; r++)
            y[r * out + o] = terms[r * out + o] = 0;
        for (int64_t b = 0; b < blocks; b++) {
            struct kg_oracle_split part;
            type->split(row + b * info->bytes, &part);
            for (int64_t r = 0; r < m; r++) {
                int64_t at = b * info->block;
                struct sums sums = {y[r * out + o], terms[r * out + o]};
                add_block(&sums, type, &part, info->block, q + r * in + at,
                          d + (r * in + at) / 32);
                y[r * out + o] = sums.y;
                terms[r * out + o] = sums.terms;
            }
        }
    }
    return KG_OK;
}
