/*
 * The gated delta net token by token in f64, and the error bound of the scan in f32.
 *
 * u = 2^-24. For a column with state S, an error E of the state goes through a token as
 *
 *   E' = e (I - beta k k^T) E + L,   e = exp(g),
 *
 * with L what rounding adds in this token. The matrix is symmetric with eigenvalues 1 and
 * 1 - beta |k|^2, so |E'| <= e r |E| + |L| with r = max(1, |1 - beta |k|^2|), in the
 * 2-norm; element by element the same bound would grow with every token. Each of the
 * quantities below is taken at the computed state, which is within |E| of S.
 *
 * The scan's dot products: 4 fma, 2 additions, 3 levels of a butterfly, so n = 9 roundings
 * of sum|terms|. exp is within 0.75 ulp, 1.5 u. With K = dot(S, k):
 *
 *   K:      n u sum|S_i k_i|
 *   delta:  beta (e (that + 1.5 u |K|) + u |v - e K|) + u |delta|
 *   L_i:    |k_i| (error of delta) + 2.5 u e |S_i| + u |S'_i|
 *   out:    scale (e r |q| |E| + n u sum|k_i q_i| |delta| + |dot(k, q)| (error of delta)
 *                  + n u e sum|S_i q_i| + 2.5 u e |dot(S, q)| + u |out/scale|) + u |out|
 *
 * Products of two errors come to less than 2^-10 of the sum of these for all that runs here
 * (n u is 2^-20, |E| / |S| below 2^-16), which SLACK covers; TINY covers results below
 * the normal range.
 */
#include "plugins/oracle/gdn.h"

#include <math.h>
#include <string.h>

#define U 0x1p-24
#define SLACK (1 + 0x1p-10)
#define TINY 0x1p-120

enum { D = KG_ORACLE_GDN_DIM };

static double norm(const double *x)
{
    double sum = 0;

    for (int i = 0; i < D; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void column(const struct kg_oracle_gdn *in, int c, double *out, double *state,
                   double *out_bound, double *state_bound)
{
    const double n = 9;
    double s[D], next[D], k[D], q[D], err = 0;

    for (int i = 0; i < D; i++)
        s[i] = in->state[c * D + i];
    for (int64_t t = 0; t < in->n_tokens; t++) {
        const int64_t at = t * in->n_heads + in->head;
        const double e = exp((double)in->g[at]), beta = in->beta[at];
        const double v = in->v[at * D + c];
        double sk = 0, sq = 0, kq = 0, abs_sk = 0, abs_sq = 0, abs_kq = 0, kk = 0;

        for (int i = 0; i < D; i++) {
            k[i] = in->k[at * D + i];
            q[i] = in->q[at * D + i];
            sk += s[i] * k[i];
        }
        const double delta = beta * (v - e * sk);
        double o = 0;
        for (int i = 0; i < D; i++) {
            next[i] = e * s[i] + k[i] * delta;
            o += next[i] * q[i];
        }
        out[t * D + c] = o * in->scale;
        if (out_bound) {
            for (int i = 0; i < D; i++) {
                abs_sk += fabs(s[i] * k[i]);
                abs_sq += fabs(s[i] * q[i]);
                abs_kq += fabs(k[i] * q[i]);
                sq += s[i] * q[i];
                kq += k[i] * q[i];
                kk += k[i] * k[i];
            }
            const double r = fmax(1, fabs(1 - beta * kk));
            const double d_err = fabs(beta) * (e * (n * U * abs_sk + 1.5 * U * fabs(sk)) +
                                               U * fabs(v - e * sk)) +
                                 U * fabs(delta);
            const double o_err = e * r * norm(q) * err + n * U * abs_kq * fabs(delta) +
                                 fabs(kq) * d_err + n * U * e * abs_sq +
                                 2.5 * U * e * fabs(sq) + U * fabs(o);
            out_bound[t * D + c] =
                SLACK * (fabs(in->scale) * o_err + U * fabs(o * in->scale)) + TINY;
            err = SLACK * (e * r * err + sqrt(kk) * d_err + 2.5 * U * e * norm(s) +
                           U * norm(next)) +
                  TINY;
        }
        memcpy(s, next, sizeof s);
    }
    for (int i = 0; i < D; i++) {
        state[c * D + i] = s[i];
        if (state_bound)
            state_bound[c * D + i] = err;
    }
}

void kg_oracle_gdn(const struct kg_oracle_gdn *in, double *out, double *state,
                   double *out_bound, double *state_bound)
{
#pragma omp parallel for
    for (int c = 0; c < D; c++)
        column(in, c, out, state, out_bound, state_bound);
}
