/*
 * oracle/attention.h: softmax attention in f64, with a bound on what a kernel in f32 may
 * differ from it.
 */
#ifndef KGATE_ORACLE_ATTENTION_H
#define KGATE_ORACLE_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The operands as the kernel sees them, so that the bound covers its arithmetic alone. */
struct kg_oracle_attention {
    int head_dim, n_heads, n_kv_heads;
    int64_t tokens, keys; /* query i stands at position keys - tokens + i */
    bool causal;
    int64_t window; /* keys a causal query sees at most; 0: all */
    double scale;
    const float *q; /* [tokens][n_heads][head_dim] */
    const void *k, *v;
    int k_type, v_type;         /* a cache type, or KG_TYPE_F32 */
    int64_t k_stride, v_stride; /* bytes from one key to the next */
    int round_to; /* q, k and v are rounded to it first: KG_TYPE_F32 (not), F16, BF16 */
    bool q_int8; /* q is quantized per 32 elements, and a block's products are integers */
    /* Of all queries x heads only every `sample`th is computed (and the rest is left 0 with
       a NaN bound): 0 or 1 for all. */
    int64_t sample;
};

/* How a kernel adds up: roundings on the longest path, u each. bound.c states the model in
   general, attention.c for this. */
struct kg_oracle_attention_ops {
    double u;            /* of an addition: 2^-24; 2^-23 where mma.sync accumulates */
    double score;        /* of a product q * k (or a block's sum, with q_int8) */
    double rescales;     /* times that a weight is rescaled to a new maximum */
    double sum;          /* of a weight in the sum of weights */
    double value;        /* of a product weight * v */
    double weight;       /* relative rounding of a weight itself, 0 if it stays f32 */
    double weight_floor; /* absolute rounding of small ones, the largest weight being 1 */
    double
        product_weight; /* as `weight`, where the sum of weights takes them unrounded */
    bool digits; /* V Q5_1 is added as d * code and m, and weight * d in two digits */
};

/*
 * out and bound [tokens][n_heads][head_dim]; lse and lse_bound [tokens][n_heads], may be
 * NULL. A query that sees no key gives zeros and -inf with a bound of 0. Returns KG_OK or
 * KG_E_MEMORY.
 */
int kg_oracle_attend(const struct kg_oracle_attention *a,
                     const struct kg_oracle_attention_ops *ops, double *out,
                     double *bound, double *lse, double *lse_bound);

#endif
