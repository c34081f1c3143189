/*
 * row_cells.h: what the sections about rows of floats have in common.
 */
#ifndef KGATE_ROW_CELLS_H
#define KGATE_ROW_CELLS_H

#include "kgate/check.h"

/* Ends a bench cell (SKIP device-unsupported) on the emulated device. */
void kg_needs_gpu(struct kg_cell *cell);

/* [rows][cols] whose rows take turns in what real kernels tripped over: values up to 1e4,
   one value among zeros, subnormal numbers, zeros, a scale of its own per row. The first row
   is never all zero. Everything comes from pr(i + offset). */
float *kg_hard_rows(struct kg_cell *cell, int64_t rows, int64_t cols, uint64_t offset);

/* pr(i + offset) * scale + shift, n of them. */
float *kg_pr_around(struct kg_cell *cell, size_t n, uint64_t offset, float scale,
                    float shift);

/* Rows for an oracle to look at: all of them up to 2^20 elements, else 32 from first to last.
 */
struct kg_rows {
    int64_t count, cols;
    int64_t *at;
    bool all;
};
struct kg_rows kg_sample_rows(struct kg_cell *cell, int64_t rows, int64_t cols);

/* These rows of an array [..][width], packed; the array itself if they are all. width may
   differ from cols: that of one value per row is 1. */
const void *kg_take_rows(struct kg_cell *cell, const struct kg_rows *rows,
                         const void *array, size_t width_bytes);

/* band: the largest |got - want| is at most `limit`, absolute. */
bool kg_check_absolute(struct kg_cell *cell, const char *name, const float *got,
                       const double *want, size_t count, double limit);

/* How many elements a bound and its reference have. */
struct kg_reference {
    double *want, *bound;
    size_t count;
};
struct kg_reference kg_reference_of(struct kg_cell *cell, int64_t count);

#endif
