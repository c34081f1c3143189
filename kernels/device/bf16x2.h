/*
 * device/bf16x2.h: pairs of bf16 in one register, lo in bits 0..15.
 *
 *   kg_bmul2          both products, each rounded once to nearest even; subnormals count
 *   kg_mma_bf16_from  D = A B + c, every element from the same c: kg_mma_bf16_16816 without
 *                     the registers that hold an initial D
 *   kg_prmt           four bytes out of b:a; a selector nibble of 8 and more gives the sign
 *                     of byte (nibble - 8) eight times. (CUDA's __byte_perm drops that bit.)
 */
#ifndef KG_DEVICE_BF16X2_H
#define KG_DEVICE_BF16X2_H

#include "device.h"

#if defined(KG_EMU)

/* A product of two 8-bit significands is exact in f32 unless it leaves its range. */
static inline uint32_t kg_bmul2(uint32_t a, uint32_t b)
{
    return kg_pack_f32_to_bf162(__uint_as_float(a << 16) * __uint_as_float(b << 16),
                                __uint_as_float(a & 0xffff0000u) *
                                    __uint_as_float(b & 0xffff0000u));
}

static inline uint32_t kg_prmt(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 15u;
        const uint32_t byte = (uint32_t)(((uint64_t)b << 32 | a) >> 8 * (s & 7u)) & 255u;
        out |= (s < 8u ? byte : byte < 128u ? 0u : 255u) << 8 * i;
    }
    return out;
}

static inline void kg_mma_bf16_from(float d[4], const uint32_t a[4], const uint32_t b[2],
                                    float c)
{
    d[0] = d[1] = d[2] = d[3] = c;
    kg_mma_bf16_16816(d, a, b);
}

#else

static __device__ __forceinline__ uint32_t kg_bmul2(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

static __device__ __forceinline__ uint32_t kg_prmt(uint32_t a, uint32_t b,
                                                   uint32_t selector)
{
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

static __device__ __forceinline__ void kg_mma_bf16_from(float d[4], const uint32_t a[4],
                                                        const uint32_t b[2], float c)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "f"(c));
}

#endif
#endif
