#include "plugins/row_cells.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 32, ALL_ELEMENTS = 1 << 20 };

void kg_needs_gpu(struct kg_cell *cell)
{
    if (kg_device(cell)->cc_major == 0)
        kg_skip(cell, "device-unsupported",
                "the emulated device has no speed to measure");
}

float *kg_hard_rows(struct kg_cell *cell, int64_t rows, int64_t cols, uint64_t offset)
{
    float *x = kg_pr(cell, (size_t)(rows * cols), offset, 1.0f);

    for (int64_t r = 0; r < rows; r++) {
        float *row = x + r * cols;
        int64_t hot = (r * 37 + cols - 1) % cols;
        for (int64_t i = 0; i < cols; i++)
            switch (r % 5) {
            case 0:
                row[i] *= 1e4f;
                break;
            case 1:
                row[i] = i == hot ? 3.0f : 0.0f;
                break;
            case 2:
                row[i] *= 0x1p-127f;
                break;
            case 3:
                row[i] = 0.0f;
                break;
            default:
                row[i] *= ldexpf(1.0f, (int)(r * 3 % 20) - 10);
            }
    }
    return x;
}

float *kg_pr_around(struct kg_cell *cell, size_t n, uint64_t offset, float scale,
                    float shift)
{
    float *x = kg_pr(cell, n, offset, scale);

    for (size_t i = 0; i < n; i++)
        x[i] += shift;
    return x;
}

struct kg_rows kg_sample_rows(struct kg_cell *cell, int64_t rows, int64_t cols)
{
    bool all = rows <= SAMPLES || rows * cols <= ALL_ELEMENTS;
    struct kg_rows s = {all ? rows : SAMPLES, cols, NULL, all};

    s.at = kg_alloc(cell, (size_t)s.count * sizeof *s.at);
    for (int64_t i = 0; i < s.count; i++)
        s.at[i] = all ? i : (rows - 1) * i / (SAMPLES - 1);
    if (!all)
        kg_param_s(cell, "rows_of_oracle", "32, first to last");
    return s;
}

const void *kg_take_rows(struct kg_cell *cell, const struct kg_rows *rows,
                         const void *array, size_t width_bytes)
{
    if (rows->all)
        return array;
    uint8_t *taken = kg_alloc(cell, (size_t)rows->count * width_bytes);
    for (int64_t i = 0; i < rows->count; i++)
        memcpy(taken + (size_t)i * width_bytes,
               (const uint8_t *)array + (size_t)rows->at[i] * width_bytes, width_bytes);
    return taken;
}

bool kg_check_absolute(struct kg_cell *cell, const char *name, const float *got,
                       const double *want, size_t count, double limit)
{
    double worst = 0;

    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= worst)) /* NaN stays: no comparison holds */
            worst = isnan(worst) ? worst : fabs(got[i] - want[i]);
    return kg_check_value(cell, name, "band", worst, limit);
}

struct kg_reference kg_reference_of(struct kg_cell *cell, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(double);

    return (struct kg_reference){kg_alloc(cell, bytes), kg_alloc(cell, bytes),
                                 (size_t)count};
}
