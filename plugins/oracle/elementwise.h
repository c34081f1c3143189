/*
 * oracle/elementwise.h: CPU references for activations, rotary positions, D4 blocks and the
 * convolution, in f64; elementwise.c derives the bounds.
 */
#ifndef KGATE_ORACLE_ELEMENTWISE_H
#define KGATE_ORACLE_ELEMENTWISE_H

#include <stdbool.h>
#include <stdint.h>

/* want[i] = silu(g[i] * gs) * (u[i] * us), or with gelu: gelu(g[i]) * u[i] (scales 1). */
void kg_oracle_act_mul(const float *g, const float *u, double gs, double us, bool gelu,
                       double *want, double *bound, int64_t n);

/* x [n_tokens][n_heads][head_dim]; n_dims elements of each head rotate. */
void kg_oracle_rope_neox(const float *x, const int32_t *pos, double *want, double *bound,
                         int64_t n_tokens, int64_t n_heads, int64_t head_dim,
                         int64_t n_dims, double base, double scale);

/* y[c][t] of kgate/ops/ssm.h. */
void kg_oracle_conv1d(const float *x, const float *w, double *want, double *bound,
                      int64_t channels, int64_t n_tokens, int64_t d_conv, bool silu);

/* D4 blocks of x, byte for byte; out holds kg_d4_bytes(rows, cols) bytes, zeroed. */
void kg_oracle_d4(const float *x, uint8_t *out, int64_t rows, int64_t cols);

#endif
