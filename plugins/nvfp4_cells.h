/*
 * nvfp4_cells.h: W4A4 cells: E2M1 activations against NVFP4 weights.
 */
#ifndef KGATE_NVFP4_CELLS_H
#define KGATE_NVFP4_CELLS_H

#include "plugins/gemm_cells.h"

/* Activations after the quantizer, as the kernel made them. */
struct kg_e2m1 {
    const uint8_t *codes, *scales;
    const float *token_scale;
    struct kg_buf *d_codes, *d_scales, *d_token; /* inputs with the same bytes */
};

/* Quantizes g->x without the k channels of skip (d_skip: the same on the device) and checks
   every code, scale and token scale against the host's (exact). `arm` names the launch and
   the checks; levels 1 or 2. */
struct kg_e2m1 kg_nvfp4_quantize(struct kg_gemm *g, const char *arm, int levels,
                                 const int32_t *skip, struct kg_buf *d_skip, int k);

/* Runs the product as `arm` on weights dw (and dw_scales: the layout of CUTLASS). */
const float *kg_nvfp4_w4a4(struct kg_gemm *g, const char *arm, const struct kg_e2m1 *x,
                           struct kg_buf *dw, struct kg_buf *dw_scales);

/* y against the f64 product of the codes, within the bound of the source file. */
void kg_nvfp4_check_bound(struct kg_gemm *g, const char *name, const struct kg_e2m1 *x,
                          const float *y);

/* The largest over tokens of max |y - exact| / max |exact|. */
double kg_nvfp4_token_error(struct kg_gemm *g, const float *y);

#endif
