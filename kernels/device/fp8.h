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

/* Codes in bits 0..7 and 8..15 to pairs[0], those in bits 16..23 and 24..31 to pairs[1]. */
static __device__ __forceinline__ void kg_e4m3x4_to_half2(uint32_t codes,
                                                          uint32_t pairs[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %2;"
        " cvt.rn.f16x2.e4m3x2 %0, lo; cvt.rn.f16x2.e4m3x2 %1, hi; }"
        : "=r"(pairs[0]), "=r"(pairs[1])
        : "r"(codes));
#else
    pairs[0] = kg_e4m3x2_to_half2(codes);
    pairs[1] = kg_e4m3x2_to_half2(codes >> 16);
#endif
}

#endif
