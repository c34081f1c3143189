/*
 * gemm_f16.h: the checks of products through the f16 mirror.
 */
#ifndef KGATE_GEMM_F16_H
#define KGATE_GEMM_F16_H

#include "plugins/gemm_cells.h"

/* y against the f64 product of the very halves. The bounds are derived in the source. */
void kg_gemm_check_f16(struct kg_gemm *g, const char *name, const float *y,
                       const uint16_t *mirror, const uint16_t *h);

/* Every half is the nearest one to its float (exact). */
void kg_gemm_check_halves(struct kg_cell *cell, const char *name, const float *x,
                          const uint16_t *got, size_t n);

/* y against the f64 product of the q8_1 codes, where mirror_f16 rounds no weight and h
   comes from q8_to_f16. */
void kg_gemm_check_f16_codes(struct kg_gemm *g, const char *name, const float *y);

#endif
