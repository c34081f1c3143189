/*
 * plugins/oracle/nvfp4.h: CPU references for products with E2M1 activations.
 *
 * Shapes, codes and rounding are those of kgate/ops/gemm.h. Functions that allocate return
 * KG_OK or KG_E_MEMORY. They may use OpenMP inside.
 */
#ifndef KGATE_ORACLE_NVFP4_H
#define KGATE_ORACLE_NVFP4_H

#include <stddef.h>
#include <stdint.h>

/* The k loudest channels of x [m][in], loudest first, equal ones by index. x has no NaN. */
int kg_oracle_nvfp4_channels(const float *x, int64_t m, int64_t in, int k,
                             int32_t *channels);

/* x [m][in] to codes [m][in/2], scales [m][in/16] and token_scale [m]; the channels in skip
   count as zeros. x is finite. */
void kg_oracle_nvfp4_quantize(const float *x, int64_t m, int64_t in, const int32_t *skip,
                              int k, int levels, uint8_t *codes, uint8_t *scales,
                              float *token_scale);

/* What codes and scales stand for, [m][in], without the token's scale: exact. */
void kg_oracle_nvfp4_values(const uint8_t *codes, const uint8_t *scales, double *x,
                            int64_t m, int64_t in);

/*
 * y [m][out], without the tokens' scales, and sums [m][out]: the magnitudes of the partial
 * sums after each group of 16, added up. Terms are taken in ascending k, one a group, each
 * exact; so sums * 2^-24 bounds what a kernel loses that rounds once per group (running error
 * analysis). w: out rows of NVFP4 blocks.
 */
int kg_oracle_nvfp4_linear(const void *w, const uint8_t *codes, const uint8_t *scales,
                           double *y, double *sums, int64_t in, int64_t out, int64_t m);

#endif
