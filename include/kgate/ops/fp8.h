/*
 * kgate/ops/fp8.h: conversions of FP8 weights.
 */
#ifndef KGATE_OPS_FP8_H
#define KGATE_OPS_FP8_H

#include <stdint.h>

struct CUstream_st;

struct kg_fp8_ops {
    uint32_t size; /* sizeof(struct kg_fp8_ops) */

    /*
     * E4M3 weights with a scale for each 128 x 128 block, to Q8_0.
     *
     *   codes  [out][in] e4m3      scales [ceil(out/128)][ceil(in/128)] f32
     *   q8     [out][in/32] blocks of Q8_0 (34 bytes: f16 d, int8 q[32])
     *
     * v = e4m3(code) * scale in f32, with codes 0x7F and 0xFF read as +0. Per 32 values:
     * d32 = max |v| / 127, stored as f16 (to nearest even); q = round-half-away(v * id) with
     * id = d32 > 0 ? 1 / d32 : 0, clamped to +-127 (which only a subnormal d32 can need). A NaN
     * among v makes d NaN and its own code 0. in is a multiple of 32, need not be one of 128;
     * any out. Alignment: codes 4 bytes, scales 4, q8 2.
     */
    int (*blk_dequant_q8_0)(const uint8_t *codes, const float *scales, void *q8,
                            int64_t in, int64_t out, struct CUstream_st *stream);
};

#endif
