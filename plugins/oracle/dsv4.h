/*
 * plugins/oracle/dsv4.h: CPU references for an expert of DeepSeek-V4.
 *
 * Shapes and codes are those of kgate/ops/dsv4.h. Nothing here can fail but for memory:
 * functions that allocate return KG_OK or KG_E_MEMORY. They may use OpenMP inside.
 */
#ifndef KGATE_ORACLE_DSV4_H
#define KGATE_ORACLE_DSV4_H

#include <stddef.h>
#include <stdint.h>

/* Weights of one projection, as a file or a maker gives them. */
struct kg_dsv4_weights {
    int group;         /* 16: NVFP4, 32: MXFP4 */
    const uint8_t *w;  /* [n][k/2] */
    const uint8_t *ws; /* [n][k/group] */
    float scale2;      /* NVFP4 only */
    int64_t n, k;
};

/* Exact values; NaN for codes that are NaN. e2m1: bits 0..3. */
double kg_oracle_e4m3(uint8_t code);
double kg_oracle_e8m0(uint8_t code);
double kg_oracle_e2m1(uint8_t code);

/* codes [m][k] and scales [m][k/128] of x [m][k], which has no NaN or infinity. */
void kg_oracle_dsv4_act_quant(const float *x, uint8_t *codes, float *scales, int64_t m,
                              int64_t k);

/* The mirror: y [m][n] in f32, every operation in the order that kgate/ops/dsv4.h gives. */
int kg_oracle_dsv4_mirror(const struct kg_dsv4_weights *w, const uint8_t *codes,
                          const float *scales, float *y, int64_t m);

/* The same product in f64: y; what that order of additions may be off by, from its partial
   sums (running.c); and, unless NULL, the sums of the magnitudes of term_j. A term is
   rounded once: s * scale, rounded in the mirror, is exact where no result leaves f32's
   range. */
int kg_oracle_dsv4_f64(const struct kg_dsv4_weights *w, const uint8_t *codes,
                       const float *scales, double *y, double *bound, double *terms,
                       int64_t m);

/* h [count] in f64 from gate and up: the definition of kg_dsv4_ops.swiglu without row
   weights. */
void kg_oracle_dsv4_swiglu(const double *gate, const double *up, double limit, double *h,
                           size_t count);

/* norm[r][o] = sqrt(sum over k of (x[r][k] * w[o][k])^2), w dequantized. */
int kg_oracle_dsv4_norm(const struct kg_dsv4_weights *w, const float *x, double *norm,
                        int64_t m);

/* y [m][n] in f64 of bf16 weights and activations (kgate/ops/dsv4.h), and terms. */
int kg_oracle_dsv4_bf16(const struct kg_dsv4_weights *w, const float *x, double *y,
                        double *terms, int64_t m);

#endif
