/*
 * Error bounds of the chunked gated delta net (WY form) of kernels/gdn.
 *
 * u = 2^-24, T = (I + A)^-1. The factors of a chunk in f64, then what rounding does to them:
 *
 * Where the order of a sum is known (all but the tensor cores' own), `run` is the sum of
 * |partial sums| after each of its fma: it is off by u run at most, which is far below the
 * n u sum|terms| of an unknown order.
 *
 *   G, D    G is good to 2^-40; its difference x is rounded to f32 and exp is within 1.5 u,
 *           so D is off by eta(x) = (|x| + 1.5) u of itself; likewise gamma and rest.
 *   A       beta D (u run + |dot| (eta + 2u));   P the same without beta
 *   U, W    computed x satisfies (I + A) x = b + r with |r_t| <= err(b_t) + u run
 *           + sum err(A_ts) |x_s|, so it is off by |T| |r|.
 *           err(b) is u |b| for U and (eta(G) + 2u) |b| for W.
 *   delta   U - W S: err(U) + u |delta| + sum_i (err(W_i) + 2w |W_i|) |S_i| + sum(W S)
 *   out     scale (gamma (sum|q S| (eta(G) + 2u + 2w) + sum(q S))
 *                  + sum_s |P| (err(delta) + w |delta|) + (err(P) + w |P|) |delta|
 *                  + sum(P delta on top of gamma q S)) + 2 u |out|
 *   state   2-norm over its elements, per column: sum_t rest |k_t| (direct(delta)
 *           + |delta| (eta + 2u + 2w)) + gamma |S| (eta + u) + sum(k delta on top of that)
 *           + sum_t (growth behind t) |k_t| |r_t|; direct(delta) is err(delta) without
 *           err(U) and err(W): these come from r, of U and of W times |S|, which is as if
 *           the recurrence had a delta that is off by r_t, and so goes on as E does.
 *
 * w: rounding of an operand to 16 bits. sum(): what the additions lose, u run in f32; on
 * tensor cores 128 or chunk times 2^-23 (they may cut off) of sum|terms|.
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
#include <stdbool.h>
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
    struct solution {
        double x[C][D], residual[C][D], err[C][D];
    } u, w;
    double step[C]; /* exp(g) r of a token */
    double w_sum[C], q_sum[C];
    double s[D][D]; /* the true state, by columns */
    double err[D];  /* |E| of a column */
};

static double eta(double x)
{
    return (fmin(fabs(x), 110) + 1.5) * U; /* exp(-110) is 0 in f32 */
}

/* dot(x, y) in ascending order; *run becomes the sum of |partial sums|. */
static double dot_run(const double *x, const double *y, double *run)
{
    double sum = 0;

    *run = 0;
    for (int i = 0; i < D; i++) {
        sum += x[i] * y[i];
        *run += fabs(sum);
    }
    return sum;
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
        x->step[t] = exp((double)in->g[at]) *
                     fmax(1, fabs(1 - x->beta[t] * x->k_norm[t] * x->k_norm[t]));
        growth *= x->step[t];
        x->growth[t] = growth;
    }
    for (int t = 0; t < n; t++)
        for (int s = 0; s <= t; s++) {
            const double arg = x->sum[t] - x->sum[s], d = exp(arg);
            double kk_run, qk_run;
            const double kk = dot_run(x->k[t], x->k[s], &kk_run);
            const double qk = dot_run(x->q[t], x->k[s], &qk_run);
            const double two = eta(arg) + 2 * U;
            x->a[t][s] = x->beta[t] * d * kk;
            x->a_err[t][s] = fabs(x->beta[t]) * d * (U * kk_run + two * fabs(kk));
            x->p[t][s] = d * qk;
            x->p_err[t][s] =
                d * (U * qk_run + (two + form->operand) * fabs(qk)) +
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

/* Column c of U or W, what its residual may be, and its error: (I + A) x = b. */
static void solve(const struct work *x, int n, const double *b, double b_error,
                  const double *b_eta, struct solution *y, int c)
{
    for (int t = 0; t < n; t++) {
        double value = b[t], run = 0, from_a = 0;
        for (int s = 0; s < t; s++) {
            value -= x->a[t][s] * y->x[s][c];
            run += fabs(value);
            from_a += x->a_err[t][s] * fabs(y->x[s][c]);
        }
        y->x[t][c] = value;
        y->residual[t][c] =
            (b_error + (b_eta ? b_eta[t] : 0)) * fabs(b[t]) + U * run + from_a;
    }
    for (int t = 0; t < n; t++) {
        y->err[t][c] = 0;
        for (int s = 0; s <= t; s++)
            y->err[t][c] += fabs(x->inverse[t][s]) * y->residual[s][c];
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
        solve(x, n, b, U, NULL, &x->u, c);
        for (int t = 0; t < n; t++)
            b[t] = x->beta[t] * exp(x->sum[t]) * x->k[t][c];
        solve(x, n, b, 2 * U, b_eta, &x->w, c);
    }
}

/* delta of a column; its error, the part of it that comes by the residuals of U and W, and
   these. s: |S| + |E|. */
struct delta {
    double x[C], err[C], direct[C], residual[C];
};

static void deltas(const struct kg_oracle_gdn_form *form, const struct work *x, int n,
                   int c, const double *s, double s_sum, struct delta *delta)
{
    for (int t = 0; t < n; t++) {
        double run, terms = 0, err = x->u.err[t][c], residual = x->u.residual[t][c];
        const double dot = dot_run(x->w.x[t], x->s[c], &run);
        for (int i = 0; i < D; i++) {
            terms += fabs(x->w.x[t][i]) * s[i];
            err += x->w.err[t][i] * s[i];
            residual += x->w.residual[t][i] * s[i];
        }
        delta->x[t] = x->u.x[t][c] - dot;
        delta->residual[t] = residual;
        delta->direct[t] = U * fabs(delta->x[t]) + 2 * form->operand * terms +
                           form->tiny * (x->w_sum[t] + s_sum) +
                           (form->operand == 0 ? U * run : D * form->sum * terms);
        delta->err[t] = err + delta->direct[t];
    }
}

/* One column of the state through the chunk. */
static void column(const struct kg_oracle_gdn *in, const struct kg_oracle_gdn_form *form,
                   struct work *x, int64_t first, int n, int c, double *out_bound)
{
    const bool ordered = form->operand == 0;
    const double w2 = 2 * form->operand, tiny = form->tiny, scale = fabs(in->scale);
    const double before = x->err[c], all = x->sum[n - 1];
    struct delta delta;
    double s[D], s_sum = 0;

    for (int i = 0; i < D; i++) {
        s[i] = fabs(x->s[c][i]) + before;
        s_sum += s[i];
    }
    deltas(form, x, n, c, s, s_sum, &delta);
    for (int t = 0; t < n; t++) {
        const double gamma = exp(x->sum[t]);
        double dot_runs, terms = 0, runs = 0, err = 0;
        double o = gamma * dot_run(x->q[t], x->s[c], &dot_runs);
        for (int i = 0; i < D; i++)
            terms += gamma * fabs(x->q[t][i]) * s[i];
        double all_terms = terms;
        for (int r = 0; r <= t; r++) {
            const double p = fabs(x->p[t][r]);
            o += x->p[t][r] * delta.x[r];
            runs += fabs(o);
            all_terms += p * fabs(delta.x[r]);
            err += p * (delta.err[r] + form->operand * fabs(delta.x[r]) + tiny) +
                   x->p_err[t][r] * fabs(delta.x[r]);
        }
        err += terms * (eta(x->sum[t]) + 2 * U + w2) +
               tiny * (gamma * x->q_sum[t] + s_sum / scale) +
               x->q_norm[t] * x->growth[t] * before;
        err += ordered ? U * (gamma * dot_runs + runs)
                       : form->sum * (D * terms + form->chunk * all_terms);
        out_bound[(first + t) * D + c] = SLACK * scale * (err + 2 * U * fabs(o)) + TINY;
    }
    double size = exp(all) * length(s);
    double err = x->growth[n - 1] * before + size * (eta(all) + U), runs = 0;
    for (int i = 0; i < D; i++)
        x->s[c][i] *= exp(all);
    double after = 1; /* growth behind token t */
    for (int t = n - 1; t >= 0; after *= x->step[t--])
        err += after * x->k_norm[t] * delta.residual[t];
    for (int t = 0; t < n; t++) {
        const double rest = exp(all - x->sum[t]), d = fabs(delta.x[t]);
        for (int i = 0; i < D; i++)
            x->s[c][i] += rest * x->k[t][i] * delta.x[t];
        runs += length(x->s[c]);
        size += rest * x->k_norm[t] * d;
        err += rest * x->k_norm[t] *
                   (delta.direct[t] + tiny + d * (eta(all - x->sum[t]) + 2 * U + w2)) +
               tiny * sqrt(D) * d;
    }
    err += ordered ? U * runs : form->chunk * form->sum * size;
    x->err[c] = SLACK * err + TINY;
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
                x->w_sum[t] += fabs(x->w.x[t][i]);
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
