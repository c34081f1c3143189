/*
 * device/f16x2.h: pairs of halves in one register, lo in bits 0..15.
 *
 *   kg_round_half2    two numbers rounded to nearest even; below 2^-13 to multiples of 2^-24
 *   kg_hmul2, kg_hadd2, kg_hsub2   both products, sums, differences, each rounded once to
 *                     nearest even; subnormals count
 *   kg_hmul2_by<I>    both times half I of s
 *   kg_unequal_half2  1 where a and b differ, else 0
 *   kg_hfma2_low_high a * lo of s + hi of s for both a, rounded once
 *   kg_min_abs_half2  min(|a|, b) of both, b not being negative; NaN if one is
 *   kg_mma_f16_from   D = A B + c, every element from the same c: kg_mma_f16_16816 without
 *                     the registers that hold an initial D
 */
#ifndef KG_DEVICE_F16X2_H
#define KG_DEVICE_F16X2_H

#include "device.h"

static __device__ __forceinline__ uint32_t kg_round_half2(float lo, float hi)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
#else
    return kg_pack_f32_to_half2(lo, hi);
#endif
}

/* Both halves by themselves, where there is no such instruction. */
static __device__ __forceinline__ uint32_t kg_each_half(
    uint32_t a, uint32_t b, struct kg_half (*op)(struct kg_half a, struct kg_half b))
{
    return kg_pack_half2(
        op(kg_half_from_bits((uint16_t)a), kg_half_from_bits((uint16_t)b)),
        op(kg_half_from_bits((uint16_t)(a >> 16)),
           kg_half_from_bits((uint16_t)(b >> 16))));
}

static __device__ __forceinline__ uint32_t kg_hmul2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return kg_each_half(a, b, kg_hmul);
#endif
}

static __device__ __forceinline__ uint32_t kg_hadd2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return kg_each_half(a, b, kg_hadd);
#endif
}

static __device__ __forceinline__ uint32_t kg_hsub2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return kg_hadd2(a, b ^ 0x80008000u);
#endif
}

template <int I>
static __device__ __forceinline__ uint32_t kg_hmul2_by(uint32_t a, uint32_t s)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    if (I)
        asm("{ .reg .b16 lo, hi; .reg .b32 p; mov.b32 {lo, hi}, %2; mov.b32 p, {hi, hi};"
            " mul.rn.f16x2 %0, %1, p; }"
            : "=r"(d)
            : "r"(a), "r"(s));
    else
        asm("{ .reg .b16 lo, hi; .reg .b32 p; mov.b32 {lo, hi}, %2; mov.b32 p, {lo, lo};"
            " mul.rn.f16x2 %0, %1, p; }"
            : "=r"(d)
            : "r"(a), "r"(s));
    return d;
#else
    return kg_hmul2(a, (s >> 16 * I & 0xffffu) * 0x10001u);
#endif
}

static __device__ __forceinline__ uint32_t kg_unequal_half2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("set.neu.f16x2.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    uint32_t d = 0;
    for (int i = 0; i < 32; i += 16)
        if (!(kg_half_to_f32(kg_half_from_bits((uint16_t)(a >> i))) ==
              kg_half_to_f32(kg_half_from_bits((uint16_t)(b >> i)))))
            d |= 0x3c00u << i;
    return d;
#endif
}

static __device__ __forceinline__ uint32_t kg_hfma2_low_high(uint32_t a, uint32_t s)
{
#if defined(__CUDA_ARCH__)
    uint32_t d;
    asm("{ .reg .b16 lo, hi; .reg .b32 p, q; mov.b32 {lo, hi}, %2; mov.b32 p, {lo, lo};"
        " mov.b32 q, {hi, hi}; fma.rn.f16x2 %0, %1, p, q; }"
        : "=r"(d)
        : "r"(a), "r"(s));
    return d;
#else
    const struct kg_half lo = kg_half_from_bits((uint16_t)s),
                         hi = kg_half_from_bits((uint16_t)(s >> 16));
    return kg_pack_half2(kg_hfma(kg_half_from_bits((uint16_t)a), lo, hi),
                         kg_hfma(kg_half_from_bits((uint16_t)(a >> 16)), lo, hi));
#endif
}

static __device__ __forceinline__ uint32_t kg_min_abs_half2(uint32_t a, uint32_t b)
{
    uint32_t d;
#if defined(__CUDA_ARCH__)
    asm("{ .reg .b32 x; abs.f16x2 x, %1; min.NaN.f16x2 %0, x, %2; }"
        : "=r"(d)
        : "r"(a), "r"(b));
#else
    d = 0;
    for (int i = 0; i < 32; i += 16) { /* magnitudes are in the order of their bits */
        const uint32_t x = a >> i & 0x7fffu, y = b >> i & 0xffffu;
        d |= (x > 0x7c00u || y > 0x7c00u ? 0x7fffu : min(x, y)) << i;
    }
#endif
    return d;
}

static __device__ __forceinline__ void kg_mma_f16_from(float d[4], const uint32_t a[4],
                                                       const uint32_t b[2], float c)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "f"(c));
#else
    d[0] = d[1] = d[2] = d[3] = c;
    kg_mma_f16_16816(d, a, b);
#endif
}

#endif
