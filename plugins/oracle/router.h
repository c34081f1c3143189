/*
 * oracle/router.h: selection of experts, in f64.
 */
#ifndef KGATE_ORACLE_ROUTER_H
#define KGATE_ORACLE_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

enum { KG_ORACLE_ROUTER_K = 32 };

/* One token's choice. `gap` is the least distance between a chosen key and the next one in
   rank, relative to the larger of them (infinity for equal keys, which the index
   decides): below the kernel's error of a key the order is not certain. */
struct kg_oracle_choice {
    int32_t ids[KG_ORACLE_ROUTER_K];
    double weights[KG_ORACLE_ROUTER_K];
    double gap;
};

/* As kgate/ops/router.h defines topk, from its rules. `softmax` or sqrt-softplus; bias may
   be NULL; experts <= 512, k <= 32. With softmax, logit + bias is taken in f32. */
void kg_oracle_topk(const float *logits, const float *bias, bool softmax, int64_t experts,
                    int64_t k, struct kg_oracle_choice *choice);

/* How far a kernel's weight may be from `weight`. See router.c. */
double kg_oracle_topk_bound(bool softmax, int64_t experts, int64_t k, double weight);

#endif
