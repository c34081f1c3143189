/*
 * mmvq.h: references of kgate/ops/mmvq.h and kgate/ops/fp8.h beyond those of oracle.h.
 */
#ifndef KGATE_ORACLE_MMVQ_H
#define KGATE_ORACLE_MMVQ_H

#include "plugins/oracle/oracle.h"

/* E4M3 weights [out][in]; scales as mmvq.h's kg_scale_kind says, at most one of the two. */
struct kg_oracle_e4m3_weights {
    const uint8_t *codes;
    const float *row_scales;   /* [out], or NULL */
    const float *block_scales; /* [ceil(out/128)][ceil(in/128)], or NULL */
    int64_t in, out;
};

/*
 * y = sum over units u of 32 of (d[u] * a) * dot, times the row's scale; dot is an exact integer
 * multiple of 2^-9, a the block's scale. NaN where the row has a code of that meaning.
 * bound: what a kernel that adds in mmvq.h's order may be off by.
 */
void kg_oracle_e4m3_linear_q8_1(const struct kg_oracle_e4m3_weights *w, const int8_t *q,
                                const float *d, double *y, double *bound, int64_t m);

/* blk_dequant_q8_0 of kgate/ops/fp8.h, in the f32 operations that it names. */
void kg_oracle_e4m3_to_q8_0(const uint8_t *codes, const float *scales, uint8_t *q8,
                            int64_t in, int64_t out);

/* KG_LAYOUT_SPLIT of `blocks` blocks: false for a type that has none. */
bool kg_oracle_planes(int type, const uint8_t *from, uint8_t *to, int64_t blocks);

#endif
