/*
 * gemm_blocks.h: the products of quantized blocks with halves, without a mirror (f16_blocks
 * of kgate/ops/gemm.h).
 */
#ifndef KGATE_GEMM_BLOCKS_H
#define KGATE_GEMM_BLOCKS_H

#include "plugins/gemm_cells.h"

/* True if f16_blocks takes this type. */
bool kg_gemm_has_blocks_f16(const struct kg_gemm *g);

/* Runs it on dh, the halves of the activations [m][in], as arm "f16-blocks". */
const float *kg_gemm_blocks_f16(struct kg_gemm *g, struct kg_buf *dh);

/* Checks y: the weights that the kernel makes are near the exact ones, and y is near the f64
   product of these and h. Bounds are derived in the source. */
void kg_gemm_check_blocks_f16(struct kg_gemm *g, const float *y, const uint16_t *h);

#endif
