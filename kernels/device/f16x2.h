/*
 * device/f16x2.h: pairs of halves in one register, lo in bits 0..15.
 *
 *   kg_hmul2   both products, each rounded once to nearest even; subnormals count
 */
#ifndef KG_DEVICE_F16X2_H
#define KG_DEVICE_F16X2_H

#include "device.h"

static __device__ __forceinline__ uint32_t kg_hmul2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    /* a product of two 11-bit significands is exact in f32 */
    uint32_t d = 0;
    for (int i = 0; i < 2; i++) {
        const float x = kg_half_to_f32(kg_half_from_bits((uint16_t)(a >> 16 * i))),
                    y = kg_half_to_f32(kg_half_from_bits((uint16_t)(b >> 16 * i)));
        d |= (uint32_t)kg_f32_to_half(x * y).bits << 16 * i;
    }
    return d;
#endif
}

#endif
