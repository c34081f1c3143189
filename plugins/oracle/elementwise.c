/*
 * References of the elementwise sections, and how far f32 kernels may be from them.
 *
 * u = 2^-24, the relative error of one operation; results below 2^-126 are off by 2^-150.
 *
 * act_mul: silu is within 3 u of its value (2.9 measured, device/math.h), 2^-120 absolute
 *   where exp leaves the range; so is gelu (2.7 measured). The scaled gate a = g * gs is off by u
 *   if gs is not 1: silu moves by |a silu'(a)| u with |a silu'(a)| <= (1 + |a|) |silu(a)|,
 *   because silu' = silu/a + silu (1 - sigmoid). The scaled up is off by u; the product by u.
 *
 * rope: sine and cosine are within 0.51 ulp, 1.02 u, of those of the f64 angle, whose own
 *   error is below 2^-50 (1 + |angle|). One product is rounded, the other is inside an fma,
 *   which rounds the result: |x0 c| (1.02 + 1) + |x1 s| (1.02 + 1 + 1), in units of u,
 *   whichever of the two products was rounded first.
 *
 * conv1d: d_conv fmas, d_conv u sum|terms|, on the accumulator; the slope of silu is at most
 *   1.1; silu adds 3 u of the result.
 */
#include "plugins/oracle/elementwise.h"

#include <math.h>
#include <string.h>

#include "plugins/oracle/oracle.h"

#define U 0x1p-24

/* The limits at -infinity are 0. */
static double silu(double x)
{
    return x == -INFINITY ? -0.0 : x / (1 + exp(-x));
}

static double gelu(double x)
{
    double t = sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x);

    return x == -INFINITY ? -0.0 : x / (1 + exp(-2 * t));
}

void kg_oracle_act_mul(const float *g, const float *u, double gs, double us, bool is_gelu,
                       double *want, double *bound, int64_t n)
{
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        double a = g[i] * gs, b = u[i] * us, f = is_gelu ? gelu(a) : silu(a);
        double ops = is_gelu ? 3 : 3 + (gs == 1 ? 0 : 1 + fabs(a));
        want[i] = f * b;
        ops += (us == 1 ? 0 : 1) + 1;
        bound[i] =
            ops * U * (1 + ops * U) * fabs(want[i]) + 0x1p-120 * fabs(b) + 0x1p-148;
    }
}

void kg_oracle_rope_neox(const float *x, const int32_t *pos, double *want, double *bound,
                         int64_t n_tokens, int64_t n_heads, int64_t head_dim,
                         int64_t n_dims, double base, double scale)
{
    int64_t half = n_dims / 2;

#pragma omp parallel for
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t h = 0; h < n_heads; h++) {
            int64_t at = (t * n_heads + h) * head_dim;
            for (int64_t j = 0; j < head_dim; j++) {
                want[at + j] = x[at + j];
                bound[at + j] = 0;
            }
            for (int64_t j = 0; j < half; j++) {
                double angle = pos[t] * pow(base, -2.0 * (double)j / (double)n_dims);
                angle *= scale;
                double c = cos(angle), s = sin(angle);
                double x0 = x[at + j], x1 = x[at + j + half];
                double off =
                    0x1p-50 * (1 + fabs(angle)) * (fabs(x0) + fabs(x1)) + 0x1p-148;
                want[at + j] = x0 * c - x1 * s;
                want[at + j + half] = x0 * s + x1 * c;
                bound[at + j] = U * (2.02 * fabs(x0 * c) + 3.02 * fabs(x1 * s)) + off;
                bound[at + j + half] =
                    U * (2.02 * fabs(x0 * s) + 3.02 * fabs(x1 * c)) + off;
            }
        }
}

void kg_oracle_conv1d(const float *x, const float *w, double *want, double *bound,
                      int64_t channels, int64_t n_tokens, int64_t d_conv, bool is_silu)
{
#pragma omp parallel for
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < n_tokens; t++) {
            const float *row = x + c * (n_tokens + d_conv - 1) + t;
            double sum = 0, terms = 0;
            for (int64_t j = 0; j < d_conv; j++) {
                double term = (double)row[j] * w[c * d_conv + j];
                sum += term;
                terms += fabs(term);
            }
            double off = (double)d_conv * U * (1 + (double)d_conv * U) * terms + 0x1p-146;
            double y = is_silu ? silu(sum) : sum;
            want[c * n_tokens + t] = y;
            bound[c * n_tokens + t] =
                is_silu ? 1.1 * off + 3 * U * (fabs(y) + off) + 0x1p-120 : off;
        }
}

void kg_oracle_d4(const float *x, uint8_t *out, int64_t rows, int64_t cols)
{
#pragma omp parallel for
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k += 32) {
            uint8_t *block = out + ((k / 128) * rows + r) * 144;
            int8_t q[32];
            float d, s;
            kg_oracle_q8_1(x + r * cols + k, q, &d, &s, 1, 32);
            memcpy(block + k % 128 / 32 * 4, &d, 4);
            memcpy(block + 16 + k % 128, q, 32);
        }
}
