/*
 * kgate/ops/router.h: which experts a token goes to, and with what weight.
 *
 * A launcher validates, enqueues on `stream`, and returns. KG_E_INVALID: a negative size, a
 * missing pointer, k > experts, an unknown scoring, a pointer that is less aligned than 4
 * bytes (w and x: 16). KG_E_UNSUPPORTED: more than 512 experts, k > 32, or `in` not a
 * multiple of 4. No tokens, or k of 0: nothing is done.
 */
#ifndef KGATE_OPS_ROUTER_H
#define KGATE_OPS_ROUTER_H

#include <stdint.h>

struct CUstream_st;

enum kg_router_scoring {
    KG_ROUTER_SOFTMAX = 0,
    KG_ROUTER_SQRT_SOFTPLUS = 1,
};

struct kg_router_ops {
    uint32_t size; /* sizeof(struct kg_router_ops) */

    /*
     * For every token the k experts of the highest key, highest first, equal keys by
     * ascending index: ids [tokens][k] and weights [tokens][k] from logits
     * [tokens][experts]. `bias` [experts] or NULL takes part in the selection only.
     *
     *   softmax         key = logit + bias (f32), which orders as the probabilities do;
     *                   score = exp(logit - max) / sum of the same
     *   sqrt-softplus   score = sqrt(log(1 + exp(logit))); key = score + bias (f32)
     *
     *   weight = score / max(sum of the k scores, 2^-14)
     *
     * so the weights add up to 1 unless all scores are tiny. The order is that of the exact
     * probabilities: two logits that differ are told apart even where their probabilities
     * round to one f32. -0 and +0 are one key.
     *
     * Infinite and NaN: a NaN key is below every other, -inf included, and NaN keys are
     * equal to each other. A NaN logit has score 0 and takes no part in maximum and sum.
     * With softmax, a logit of -inf has score 0; if any is +inf, these share the whole
     * probability equally; if none is above -inf, all scores are 0. With sqrt-softplus,
     * -inf scores 0 and +inf scores as the largest finite f32 logit does. So the ids are
     * always k different ones in range, and the weights are finite.
     *
     * Order of additions: lane l of a warp adds experts l, l + 32, ... in ascending order
     * from +0; a butterfly over distances 16, 8, 4, 2, 1 joins the lanes. The k scores are
     * added in the order of the ids.
     */
    int (*topk)(const float *logits, const float *bias, int scoring, int32_t *ids,
                float *weights, int64_t tokens, int64_t experts, int64_t k,
                struct CUstream_st *stream);

    /*
     * logits[t][e] = sum over k of w[e][k] * x[t][k]; w [experts][in], x [tokens][in],
     * f32. Lane l of a warp takes k = 4 (l + 32 i) + 0 .. 3 for i = 0, 1, ..., each product
     * and addition one fmaf into one accumulator from +0; then the butterfly. A token's
     * logits are the same bits whatever the number of tokens.
     */
    int (*matvec)(const float *w, const float *x, float *logits, int64_t in,
                  int64_t experts, int64_t tokens, struct CUstream_st *stream);
    /* The same bits, for many tokens: a warp makes 4 tokens by 4 experts. */
    int (*matvec_batch)(const float *w, const float *x, float *logits, int64_t in,
                        int64_t experts, int64_t tokens, struct CUstream_st *stream);
};

#endif
