/*
 * Error bounds of the chunked gated delta net (WY form) of kernels/gdn.
 *
 * u = 2^-24, T = (I + A)^-1. The factors of a chunk in f64, then what rounding does to them:
 *
 *   G, D    G is good to 2^-40; its difference x is rounded to f32 and exp is within 1.5 u,
 *           so D is off by eta(x) = (|x| + 1.5) u of itself; likewise gamma and rest.
 *   A       beta D (128 u sum|k_t k_s| + |dot| (eta + 2u));   P the same without beta
 *   U, W    computed x satisfies (I + A) x = b + r with |r_t| <= err(b_t)
 *           + t u (|b_t| + sum|A_ts x_s|) + sum err(A_ts) |x_s|, so it is off by |T| |r|.
 *           err(b) is u |b| for U and (eta(G) + 2u) |b| for W.
 *   delta   U - W S: err(U) + u |delta| + sum_i (err(W_i) + (2w + 128 a) |W_i|) |S_i|;
 *           w: rounding of an operand to 16 bits, a: of an addition
 *   out     scale (gamma sum|q S| (eta(G) + 2u + 2w + 128 a)
 *                  + sum_s |P| (err(delta) + w |delta|) + (err(P) + w |P|) |delta|
 *                  + (chunk a) (sum|P delta| + gamma sum|q S|)) + 2 u |out|
 *   state   2-norm over its elements, per column: sum_t rest |k_t| (err(delta)
 *           + |delta| (eta + 2u + 2w + chunk a)) + gamma |S| (eta + u + chunk a)
 *
 * In a 16-bit form, an operand below the normal range is off by `tiny`; it adds
 * tiny (sum|x| + sum|y|) to each product of x and y.
 *
 * An error E that the state had before the chunk goes through it by the exact linear map,
 * whose 2-norm is at most the product of exp(g) r over the tokens (gdn.c); the kernel's
 * factors do not amplify it beyond that, since errors of W, times |S| + |E|, are counted as
 * local. |S| stands for |S| + |E|. SLACK covers products of two of the errors, with
 * errors of 2^-8 at most in each.
 */
#include "plugins/oracle/gdn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kgate/status.h"

#define U 0x1p-24
#define SLACK (1 + 0x1p-6)
#define TINY 0x1p-120

enum { D = KG_ORACLE_GDN_DIM, C = 128 };

struct work {
    double sum[C], beta[C], growth[C]; /* G; product of exp(g) r up to a token */
    double k_norm[C], q_norm[C];
    double k[C][D], q[C][D];
    double a[C][C], a_err[C][C], inverse[C][C];
    double p[C][C], p_err[C][C];
    double u[C][D], u_err[C][D], w[C][D], w_err[C][D];
    double w_sum[C], q_sum[C];
    double s[D][D]; /* the true state, by columns */
    double err[D];  /* |E| of a column */
};

static double eta(double x)
{
    return (fmin(fabs(x), 110) + 1.5) * U; /* exp(-110) is 0 in f32 */
}

static double length(const double *x)
{
    double sum = 0;

    for (int i = 0; i < D; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Everything of `n` tokens from `first` that needs no state. */
static void factors(const struct kg_oracle_gdn *in, const struct kg_oracle_gdn_form *form,
                    struct work *x, int64_t first, int n)
{
    double sum = 0, growth = 1;

    for (int t = 0; t < n; t++) {
        const int64_t at = (first + t) * in->n_heads + in->head;
        x->q_sum[t] = 0;
        for (int i = 0; i < D; i++) {
            x->k[t][i] = in->k[at * D + i];
            x->q[t][i] = in->q[at * D + i];
            x->q_sum[t] += fabs(x->q[t][i]);
        }
        sum += fmax(in->g[at], -1000);
        x->sum[t] = sum;
        x->beta[t] = in->beta[at];
        x->k_norm[t] = length(x->k[t]);
        x->q_norm[t] = length(x->q[t]);
        growth *= exp((double)in->g[at]) *
                  fmax(1, fabs(1 - x->beta[t] * x->k_norm[t] * x->k_norm[t]));
        x->growth[t] = growth;
    }
    for (int t = 0; t < n; t++)
        for (int s = 0; s <= t; s++) {
            const double arg = x->sum[t] - x->sum[s], d = exp(arg);
            double kk = 0, qk = 0, abs_kk = 0, abs_qk = 0;
            for (int i = 0; i < D; i++) {
                kk += x->k[t][i] * x->k[s][i];
                qk += x->q[t][i] * x->k[s][i];
                abs_kk += fabs(x->k[t][i] * x->k[s][i]);
                abs_qk += fabs(x->q[t][i] * x->k[s][i]);
            }
            const double two = eta(arg) + 2 * U;
            x->a[t][s] = x->beta[t] * d * kk;
            x->a_err[t][s] = fabs(x->beta[t]) * d * (D * U * abs_kk + two * fabs(kk));
            x->p[t][s] = d * qk;
            x->p_err[t][s] =
                d * (D * U * abs_qk + (two + form->operand) * fabs(qk)) +
                form->tiny / fabs(in->scale); /* P is rounded with scale in it */
        }
    for (int t = 0; t < n; t++) /* T = I - A T, row by row */
        for (int s = 0; s <= t; s++) {
            double sum_t = t == s ? 1 : 0;
            for (int r = s; r < t; r++)
                sum_t -= x->a[t][r] * x->inverse[r][s];
            x->inverse[t][s] = sum_t;
        }
}

/* Column c of U or W and its error: (I + A) y = b. */
static void solve(const struct work *x, int n, const double *b, double b_error,
                  const double *b_eta, double (*y)[D], double (*y_err)[D], int c)
{
    double r[C];

    for (int t = 0; t < n; t++) {
        double value = b[t], terms = fabs(b[t]), from_a = 0;
        for (int s = 0; s < t; s++) {
            value -= x->a[t][s] * y[s][c];
            terms += fabs(x->a[t][s] * y[s][c]);
            from_a += x->a_err[t][s] * fabs(y[s][c]);
        }
        y[t][c] = value;
        r[t] = (b_error + (b_eta ? b_eta[t] : 0)) * fabs(b[t]) + t * U * terms + from_a;
    }
    for (int t = 0; t < n; t++) {
        y_err[t][c] = 0;
        for (int s = 0; s <= t; s++)
            y_err[t][c] += fabs(x->inverse[t][s]) * r[s];
    }
}

static void solve_all(const struct kg_oracle_gdn *in, struct work *x, int64_t first,
                      int n)
{
    double b_eta[C];

    for (int t = 0; t < n; t++)
        b_eta[t] = eta(x->sum[t]);
#pragma omp parallel for
    for (int c = 0; c < D; c++) {
        double b[C];
        for (int t = 0; t < n; t++)
            b[t] = x->beta[t] * in->v[((first + t) * in->n_heads + in->head) * D + c];
        solve(x, n, b, U, NULL, x->u, x->u_err, c);
        for (int t = 0; t < n; t++)
            b[t] = x->beta[t] * exp(x->sum[t]) * x->k[t][c];
        solve(x, n, b, 2 * U, b_eta, x->w, x->w_err, c);
    }
}

/* One column of the state through the chunk. */
static void column(const struct kg_oracle_gdn *in, const struct kg_oracle_gdn_form *form,
                   struct work *x, int64_t first, int n, int c, double *out_bound)
{
    const double adds = form->sum, w2 = 2 * form->operand, tiny = form->tiny;
    const double chain = form->chunk * adds, scale = fabs(in->scale);
    double delta[C], d_err[C], s[D], s_sum = 0;
    const double before = x->err[c];

    for (int i = 0; i < D; i++) {
        s[i] = fabs(x->s[c][i]) + before;
        s_sum += s[i];
    }
    for (int t = 0; t < n; t++) {
        double dot = 0, err = 0;
        for (int i = 0; i < D; i++) {
            dot += x->w[t][i] * x->s[c][i];
            err += (x->w_err[t][i] + (w2 + D * adds) * fabs(x->w[t][i])) * s[i];
        }
        delta[t] = x->u[t][c] - dot;
        d_err[t] =
            err + x->u_err[t][c] + U * fabs(delta[t]) + tiny * (x->w_sum[t] + s_sum);
    }
    for (int t = 0; t < n; t++) {
        const double gamma = exp(x->sum[t]);
        double dot = 0, terms = 0, o = 0, o_terms = 0, err = 0;
        for (int i = 0; i < D; i++) {
            dot += x->q[t][i] * x->s[c][i];
            terms += fabs(x->q[t][i]) * s[i];
        }
        for (int r = 0; r <= t; r++) {
            const double p = fabs(x->p[t][r]);
            o += x->p[t][r] * delta[r];
            o_terms += fabs(x->p[t][r] * delta[r]);
            err += p * (d_err[r] + form->operand * fabs(delta[r]) + tiny) +
                   x->p_err[t][r] * fabs(delta[r]);
        }
        err += gamma * terms * (eta(x->sum[t]) + 2 * U + w2 + D * adds) +
               tiny * (gamma * x->q_sum[t] + s_sum / scale) +
               chain * (o_terms + gamma * terms) + x->q_norm[t] * x->growth[t] * before;
        out_bound[(first + t) * D + c] =
            SLACK * scale * (err + 2 * U * fabs(gamma * dot + o)) + TINY;
    }
    const double all = x->sum[n - 1];
    double state_err =
        x->growth[n - 1] * before + exp(all) * length(s) * (eta(all) + U + chain);
    for (int t = 0; t < n; t++) {
        const double rest = all - x->sum[t];
        state_err +=
            exp(rest) * x->k_norm[t] *
                (d_err[t] + tiny + fabs(delta[t]) * (eta(rest) + 2 * U + w2 + chain)) +
            tiny * sqrt(D) * fabs(delta[t]);
    }
    for (int i = 0; i < D; i++) {
        double next = exp(all) * x->s[c][i];
        for (int t = 0; t < n; t++)
            next += exp(all - x->sum[t]) * x->k[t][i] * delta[t];
        x->s[c][i] = next;
    }
    x->err[c] = SLACK * state_err + TINY;
}

int kg_oracle_gdn_chunk_bound(const struct kg_oracle_gdn *in,
                              const struct kg_oracle_gdn_form *form, double *out_bound,
                              double *state_bound)
{
    struct work *x = calloc(1, sizeof *x);

    if (!x)
        return KG_E_MEMORY;
    for (int i = 0; i < D * D; i++)
        x->s[i / D][i % D] = in->state[i];
    for (int64_t first = 0; first < in->n_tokens; first += form->chunk) {
        const int64_t left = in->n_tokens - first;
        const int n = left < form->chunk ? (int)left : form->chunk;
        factors(in, form, x, first, n);
        solve_all(in, x, first, n);
        for (int t = 0; t < n; t++) {
            x->w_sum[t] = 0;
            for (int i = 0; i < D; i++)
                x->w_sum[t] += fabs(x->w[t][i]);
        }
#pragma omp parallel for
        for (int c = 0; c < D; c++)
            column(in, form, x, first, n, c, out_bound);
    }
    for (int i = 0; i < D * D; i++)
        state_bound[i] = x->err[i / D];
    free(x);
    return KG_OK;
}
