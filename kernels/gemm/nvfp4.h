/*
 * The pieces of W4A4: how activations become E2M1 codes with UE4M3 scales.
 *
 * One row of x (a token), channels of the residual path left out (as zeros):
 *
 *   two levels   token_scale = amax(row) / (6 * 448), 1 if that is 0 or not finite
 *   one level    token_scale = 1
 *   per 16       v = x / token_scale (f32), a = max |v|
 *                scale = UE4M3(a / 6), to nearest even, saturating at 448 (code 0x7E)
 *                inverse = 1 / (f32)scale, 0 for scale 0
 *                code = E2M1(v * inverse), to nearest even, saturating at 6
 *
 * With two levels the loudest 16 of a row get the scale 448, whatever the row's decade;
 * with one level a row of small values has scales that UE4M3 cannot hold.
 */
#ifndef KGATE_KERNELS_GEMM_NVFP4_H
#define KGATE_KERNELS_GEMM_NVFP4_H

#include "kernels/gemm/launch.h"

/* Element k of a row of NVFP4 blocks, in f32 (exact). */
static __device__ inline float nvfp4_value(const uint8_t *row, int64_t k)
{
    const uint8_t *block = row + k / 64 * 36;
    const int in = (int)(k % 64), sub = in / 16, j = in % 16;
    const int code = block[4 + 8 * sub + j % 8] >> (j / 8 * 4) & 15;
    return (float)kg_e2m1_doubled((uint8_t)code) * ue4m3_half(block[sub]);
}

#endif
