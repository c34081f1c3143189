#include "plugins/grouped_bench.h"

#include <string.h>

enum {
    EXPERTS = 128,
    IN = 4096,
    OUT = 1536,
    PERIOD = 1000003, /* f16 weights until they repeat */
    BLOCK_PERIOD = 4099,
    SAMPLED_PAIRS = 2, /* of a group */
    SAMPLED_OUTS = 24, /* of a pair */
};

const struct kg_bench_shape kg_bench_shapes[2] = {
    {"4096-rows",   4096,  4096},
    {"4096-tokens", 32768, 4096},
};

const struct kg_grouped_form kg_bench_form = {1, 33, 1, 1};

void kg_make_blocks(struct kg_cell *cell, const struct kg_oracle_type *type,
                    uint8_t *blocks, size_t bytes, uint64_t offset)
{
    size_t block_bytes = (size_t)kg_type_info(type->type)->bytes;

    for (size_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)((kg_pr_at(cell, i + offset) + 1) * 128);
    for (size_t b = 0; b < bytes / block_bytes; b++)
        for (int k = 0; k < 2; k++) {
            int at = k ? type->min_at : type->half_at;
            uint16_t half =
                (uint16_t)(0x2c00 +
                           (kg_pr_at(cell, offset + b * 7 + (uint64_t)k) + 1) * 511);
            if (at >= 0)
                memcpy(blocks + b * block_bytes + at, &half, 2);
        }
}

struct kg_groups kg_bench_groups(struct kg_cell *cell, const struct kg_bench_shape *shape)
{
    int32_t sizes[EXPERTS], left = shape->pairs;
    double sum = 0;

    if (kg_device(cell)->cc_major == 0)
        kg_skip(cell, "device-unsupported", "too large for the emulated device");
    for (int i = 0; i < EXPERTS; i++)
        sum += 1.0 / (i + 8);
    for (int i = 0; i < EXPERTS; i++) {
        int32_t n = (int32_t)(shape->pairs / (i + 8.0) / sum);
        sizes[i * 37 % EXPERTS] = n;
        left -= n;
    }
    sizes[0] += left; /* the largest gets what rounding left */

    struct kg_groups g = kg_groups_made(cell, sizes, EXPERTS, IN, OUT);
    g.n_rows = shape->tokens;
    kg_param_i(cell, "tokens", shape->tokens);
    if (shape->tokens < shape->pairs) {
        g.rows = kg_alloc(cell, (size_t)g.pairs * sizeof *g.rows);
        for (int64_t p = 0; p < g.pairs; p++) /* 1571 is odd: every token equally often */
            g.rows[p] = (int32_t)(p * 1571 % shape->tokens);
    }
    for (int64_t i = 0; i < g.n_rows * IN; i++)
        g.x[i] = kg_oracle_to_half(kg_pr_at(cell, (uint64_t)(i % PERIOD) + 211));
    return g;
}

const void *kg_bench_weights(struct kg_cell *cell, const struct kg_groups *g,
                             const struct kg_oracle_type *type, size_t *expert_bytes)
{
    size_t row_bytes = kg_row_bytes(type ? type->type : KG_TYPE_F16, g->in), period;
    size_t bytes = (size_t)(g->n_experts * g->out) * row_bytes;
    uint8_t *w = kg_alloc(cell, bytes);

    *expert_bytes = (size_t)g->out * row_bytes;
    if (type) {
        period = BLOCK_PERIOD * (size_t)kg_type_info(type->type)->bytes;
        kg_make_blocks(cell, type, w, period, 313);
    } else {
        uint16_t *halves = (uint16_t *)w;
        period = PERIOD * 2;
        for (size_t i = 0; i < PERIOD; i++)
            halves[i] = kg_oracle_to_half(kg_pr_at(cell, i + 101) * 0.25f);
    }
    for (size_t at = period; at < bytes; at += period)
        memcpy(w + at, w, bytes - at < period ? bytes - at : period);
    return w;
}

void kg_bench_check(struct kg_cell *cell, const struct kg_groups *g,
                    const struct kg_oracle_type *type, const void *w, size_t expert_bytes,
                    const float *y)
{
    size_t most = (size_t)g->groups * SAMPLED_PAIRS * SAMPLED_OUTS, n = 0;
    size_t row_bytes = expert_bytes / (size_t)g->out;
    float *got = kg_alloc(cell, most * sizeof *got);
    float *values = kg_alloc(cell, (size_t)g->in * sizeof *values);
    double *want = kg_alloc(cell, most * sizeof *want);
    double *bound = kg_alloc(cell, most * sizeof *bound);
    uint16_t *row = kg_alloc(cell, (size_t)g->in * sizeof *row);
    struct kg_oracle_grouped one = {
        .in = g->in, .rows = g->rows, .scale = g->scale, .w = row, .x = g->x};

    for (int64_t group = 0; group < g->groups; group++)
        for (int i = 0; i < SAMPLED_PAIRS; i++) {
            int64_t rows = g->offsets[group + 1] - g->offsets[group];
            int64_t p =
                g->offsets[group] + (i ? rows - 1 : group * 31 % (rows ? rows : 1));
            if (rows <= i)
                continue;
            for (int64_t k = 0; k < SAMPLED_OUTS; k++, n++) {
                int64_t o = (group * 67 + k * 65 + i * 13) % g->out;
                const uint8_t *at = (const uint8_t *)w + (size_t)group * expert_bytes +
                                    (size_t)o * row_bytes;
                if (type) {
                    kg_oracle_dequantize(type, at, values, g->in);
                    for (int64_t j = 0; j < g->in; j++)
                        row[j] = kg_oracle_to_half(values[j]);
                } else {
                    memcpy(row, at, row_bytes);
                }
                kg_oracle_grouped_at(&one, p, 0, 0, &want[n], &bound[n]);
                got[n] = y[p * g->out + o];
            }
        }
    kg_check_bound(cell, "sampled", got, want, bound, n);
}
