/*
 * Norms in f64, and how far f32 kernels may be from them.
 *
 * u = 2^-24: each operation has a relative error of at most u unless its result is below
 * 2^-126, where the error is at most 2^-150 absolute.
 *
 * Sum over a row: T threads take vectors of 4 elements in turn and add them one by one by
 * fma, so ceil(ceil(cols/4) / T) * 4 roundings; then log2(T) levels of additions between
 * lanes and warps. T is 32, 128, 512, 1024 for up to 512, 2048, 8192, more elements.
 *
 * Norm: all terms of the sum of squares are positive, so n roundings are n u of it. Then
 * division by the length (1) and eps (1). The root halves what came so far and adds 1, the
 * reciprocal 1. One for each further factor; silu brings 3 of its own (device/math.h says
 * 3.0 units of 2^-24) and 1 to multiply. So, relative to the result, first order:
 *
 *   ops = (n + 2) / 2 + 2 + 1 + [w] + [z] 4
 *
 * Squares below the normal range are off by 2^-150 each, which eps hides: their sum moves
 * scale by less than cols * 2^-150 / eps, nothing for eps >= 1e-12. A result below the
 * normal range, or a product on the way to one, is off by up to 2^-150 times what the later
 * factors make of it: w and silu(z) of the cells are below 2^8, hence 2^-140. silu's own
 * absolute error, 2^-120, is multiplied by x * scale * w.
 *
 * Sigmoid of a dot product: the sum is off by n u sum|terms|; the slope of the sigmoid is at
 * most s (1 - s) around there, to second order; kg_sigmoidf adds 3 u of the result.
 */
#include "plugins/oracle/norm.h"

#include <math.h>

#define U 0x1p-24

double kg_oracle_row_ops(int64_t cols)
{
    int64_t threads = cols <= 512 ? 32 : cols <= 2048 ? 128 : cols <= 8192 ? 512 : 1024;
    int64_t vectors = (cols + 3) / 4;

    return (double)((vectors + threads - 1) / threads * 4) + log2((double)threads);
}

static double silu(double z)
{
    return z / (1 + exp(-z));
}

void kg_oracle_norm(const float *x, const float *w, const float *z, double *want,
                    double *bound, int64_t rows, int64_t cols, double divisor, float eps)
{
    double ops = (kg_oracle_row_ops(cols) + 2) / 2 + 3 + (w ? 1 : 0) + (z ? 4 : 0);

#pragma omp parallel for
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < cols; i++)
            sum += (double)x[r * cols + i] * x[r * cols + i];
        double scale = 1 / sqrt(sum / divisor + eps);
        for (int64_t i = 0; i < cols; i++) {
            int64_t at = r * cols + i;
            double y = x[at] * scale * (w ? w[i] : 1);
            want[at] = z ? y * silu(z[at]) : y;
            bound[at] = ops * U / (1 - ops * U) * fabs(want[at]) + 0x1p-140 +
                        (z ? fabs(y) * 0x1p-120 : 0);
        }
    }
}

void kg_oracle_sigmoid_dot(const float *x, const float *w, double *want, double *bound,
                           int64_t rows, int64_t cols)
{
    double ops = kg_oracle_row_ops(cols);

#pragma omp parallel for
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, terms = 0;
        for (int64_t i = 0; i < cols; i++) {
            double term = (double)x[r * cols + i] * w[i];
            sum += term;
            terms += fabs(term);
        }
        double off = ops * U / (1 - ops * U) * terms;
        double s = 1 / (1 + exp(-sum));
        want[r] = s;
        /* |s'(t)| changes by a factor of at most exp(off) over the interval */
        bound[r] = s * (1 - s) * off * exp(off) + 3 * U * s * (1 + off) + 0x1p-126;
    }
}
