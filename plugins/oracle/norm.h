/*
 * oracle/norm.h: CPU references for norms, in f64, each with the bound that an f32 kernel
 * must keep. norm.c has the derivation.
 */
#ifndef KGATE_ORACLE_NORM_H
#define KGATE_ORACLE_NORM_H

#include <stdint.h>

/* want[i] = x[i] * scale * w[i] * silu(z[i]) for each row, with
     scale = 1 / sqrt(sum(x^2) / divisor + eps)
   w and z may be NULL: a factor of 1. x, z, want, bound [rows][cols], w [cols]. divisor is
   cols for rms norms, 1 for l2. */
void kg_oracle_norm(const float *x, const float *w, const float *z, double *want,
                    double *bound, int64_t rows, int64_t cols, double divisor, float eps);

/* Additions that the longest chain of a row's sum goes through: the order of additions is
   that of the norm kernels. */
double kg_oracle_row_ops(int64_t cols);

/* want[r] = 1 / (1 + exp(-dot(x[r], w))). */
void kg_oracle_sigmoid_dot(const float *x, const float *w, double *want, double *bound,
                           int64_t rows, int64_t cols);

#endif
