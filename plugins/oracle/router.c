/*
 * Errors of the kernel's weights, first order, u = 2^-24 (kgate/ops/router.h has the rules).
 *
 *   softmax: logit - max rounds once, which moves the exponential by u |logit - max|
 *     relatively; the exponential is within 0.75 ulp, 1.5 u. The sum of n positive ones
 *     adds ceil(n / 32) + 5 roundings, and their errors weigh in no more than the
 *     largest. One division. That is a score; a weight divides it by a sum of k of them
 *     (k - 1 roundings, floor included) and rounds. Scores' common error, the sum over all
 *     experts, is in numerator and denominator but for the floor, which only a sum below
 *     2^-14 reaches; it is counted all the same.
 *
 *     2 (spread + 1.5 + ceil(n / 32) + 5 + 1) + (k - 1) + 1
 *
 *     with spread = |logit - max|, at most -ln(weight) or 20, whichever is more: the
 *     exponentials of the chosen add up to 1 at least. (That holds where the largest logit
 *     is among the chosen, or no chosen one lies lower than 20 below it, as in all cells
 *     with a bias.) Below 2^-126 exponential and score round to 2^-149, which the division
 *     by the sum of the weights, 2^-14 at least, makes 2^-134 at most: the absolute term.
 *
 *   sqrt-softplus: softplus within 0.51 ulp, 1.02 u, which the root halves; root 1 u.
 *     2 * 1.51 + (k - 1) + 1.
 */
#include "plugins/oracle/router.h"

#include <math.h>

enum { MAX_EXPERTS = 512 };

double kg_oracle_topk_bound(bool softmax, int64_t experts, int64_t k, double weight)
{
    double lanes = (double)((experts + 31) / 32);
    double spread = weight > 0 ? fmax(20, -log(weight)) : 20;
    double units = softmax ? 2 * (spread + 1.5 + lanes + 5 + 1) : 2 * 1.51;

    return (units + (double)k) * 0x1p-24 * weight + (softmax ? 0x1p-134 : 0x1p-140);
}

/* Whether key a of expert i ranks before key b of expert j. */
static bool before(double a, int64_t i, double b, int64_t j)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? i < j : isnan(b);
    return a > b || (a == b && i < j);
}

static void softmax_scores(const float *logits, int64_t n, double *scores)
{
    double most = -INFINITY, sum = 0;

    for (int64_t e = 0; e < n; e++)
        most = logits[e] > most ? logits[e] : most;
    for (int64_t e = 0; e < n; e++) {
        double v = logits[e];
        if (isnan(v) || v == -INFINITY)
            scores[e] = 0;
        else if (isinf(most))
            scores[e] = v == most;
        else
            scores[e] = exp(v - most);
        sum += scores[e];
    }
    for (int64_t e = 0; e < n && sum > 0; e++)
        scores[e] /= sum;
}

static double softplus(double v)
{
    return v > 40 ? v : log1p(exp(v));
}

static double distance(double a, double b)
{
    if (a == b || isnan(a) || isnan(b) || isinf(a) || isinf(b))
        return INFINITY;
    return fabs(a - b) / fmax(fabs(a), fabs(b));
}

void kg_oracle_topk(const float *logits, const float *bias, bool softmax, int64_t experts,
                    int64_t k, struct kg_oracle_choice *choice)
{
    double keys[MAX_EXPERTS], scores[MAX_EXPERTS], sum = 0;
    bool taken[MAX_EXPERTS] = {false};
    double last = NAN;

    if (softmax)
        softmax_scores(logits, experts, scores);
    for (int64_t e = 0; e < experts; e++) {
        double added = bias ? bias[e] : 0;
        if (softmax) {
            keys[e] = (float)(logits[e] + added);
        } else {
            double v = fmin(logits[e], 3.402823466385288598e38);
            scores[e] = isnan(logits[e]) ? 0 : sqrt(softplus(v));
            keys[e] = isnan(logits[e]) ? NAN : scores[e] + added;
        }
    }
    choice->gap = INFINITY;
    for (int64_t rank = 0; rank <= k && rank < experts; rank++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++)
            if (!taken[e] && (best < 0 || before(keys[e], e, keys[best], best)))
                best = e;
        if (rank > 0)
            choice->gap = fmin(choice->gap, distance(last, keys[best]));
        last = keys[best];
        if (rank == k)
            break;
        taken[best] = true;
        choice->ids[rank] = (int32_t)best;
        choice->weights[rank] = scores[best];
        sum += scores[best];
    }
    for (int64_t rank = 0; rank < k; rank++)
        choice->weights[rank] /= fmax(sum, 0x1p-14);
}
