/*
 * device/fp8.h: pairs of E4M3 codes to pairs of halves, exact; a NaN stays one.
 */
#ifndef KG_DEVICE_FP8_H
#define KG_DEVICE_FP8_H

#include "device.h"

/* Code in bits 0..7 to the half in bits 0..15, bits 8..15 to 16..31; the rest is ignored. */
static __device__ __forceinline__ uint32_t kg_e4m3x2_to_half2(uint32_t codes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)codes));
    return halves;
#else
    return kg_pack_f32_to_half2(kg_e4m3_to_f32((uint8_t)codes),
                                kg_e4m3_to_f32((uint8_t)(codes >> 8)));
#endif
}

#endif
