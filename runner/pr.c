/*
 * The pinned test vector. It is part of the format: digests of committed baselines depend
 * on every bit of it.
 */
#include "runner/cell.h"

uint64_t kg_seed_shift(uint64_t seed)
{
    /* The finalizer of splitmix64: nearby seeds land far apart. */
    uint64_t z = seed + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static float pr_value(uint64_t i)
{
    uint32_t x = (uint32_t)((i * UINT64_C(2654435761)) ^ UINT64_C(0x9E3779B9));
    /* 24 bits: every step is exact in f32. */
    return (float)(x >> 8) * 0x1p-24f * 2.0f - 1.0f;
}

float kg_pr_at(const struct kg_cell *cell, uint64_t i)
{
    return pr_value(i + cell->host->pr_shift);
}

float *kg_pr(struct kg_cell *cell, size_t n, uint64_t offset, float scale)
{
    if (n > SIZE_MAX / sizeof(float))
        kg_cell_misuse(cell, "kg_pr of %zu values", n);
    float *values = kg_alloc(cell, n * sizeof *values);
    uint64_t shift = offset + cell->host->pr_shift;
    for (size_t i = 0; i < n; i++)
        values[i] = pr_value(i + shift) * scale;
    return values;
}
