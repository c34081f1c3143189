/*
 * oracle/grouped.h: grouped matrix products and half precision on the host, in f64.
 */
#ifndef KGATE_ORACLE_GROUPED_H
#define KGATE_ORACLE_GROUPED_H

#include <stdint.h>

/* Nearest half, ties to even; overflow to infinity. The value as bits, and back. */
uint16_t kg_oracle_to_half(double value);
double kg_oracle_from_half(uint16_t bits);

/* As struct kg_grouped of kgate/ops/grouped.h, with arrays on the host. */
struct kg_oracle_grouped {
    int64_t groups, in, out;
    int64_t expert_stride;  /* elements */
    const int32_t *offsets; /* [groups + 1] */
    const int32_t *experts; /* [groups] or NULL */
    const int32_t *rows;    /* [pairs] or NULL */
    const float *scale;     /* [pairs] or NULL */
    const uint16_t *w;      /* [n_experts] of [out][in] halves */
    const uint16_t *x;      /* [n_rows][in] halves */
};

/*
 * Result and error bound of output o of a pair.
 *
 * Bound: products of halves are exact in f32. An mma adds 16 of them to the accumulator; in
 * which order is not documented, nor are the roundings, but what it adds is aligned to
 * the largest exponent and cut at f32's precision at worst. So each of its at most 18
 * steps (17 addends, one normalisation) is off by less than the last place of the largest
 * partial sum there can be, |accumulator| + sum |16 products|, the accumulator's own error
 * included. A subnormal half has the exponent of the smallest normal one, and a product is
 * aligned by its operands' exponents, so that a smaller operand counts as 2^-14. All
 * products of a row of w and one of x are multiples of one power of two, the lowest bit set
 * in the one row times that in the other, and so is every partial sum; where it is not below
 * that last place, nothing is cut. That is added up along the chain; the sum
 * is multiplied by |scale|, whose own rounding adds 2^-24 of the result. The emulated device
 * rounds once a product, by half a last place of a partial sum, which is less.
 */
void kg_oracle_grouped_at(const struct kg_oracle_grouped *g, int64_t pair, int64_t group,
                          int64_t o, double *y, double *bound);

/* All of them: y and bound [pairs][out]. */
void kg_oracle_grouped_all(const struct kg_oracle_grouped *g, double *y, double *bound);

#endif
