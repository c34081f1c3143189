/*
 * device/bits.h: byte selection with signs, a dot product of mixed signs, maxima of halves, and
 * values whose origin the compiler shall not see.
 */
#ifndef KG_DEVICE_BITS_H
#define KG_DEVICE_BITS_H

#include "device.h"

/* Byte i of the result is byte (s & 7) of y:x for nibble s = i of the selector's low 16 bits or,
   where s has its top bit set, eight copies of that byte's sign. __byte_perm is not this:
   it ignores the top bits. */
static __device__ __forceinline__ uint32_t kg_permute_signed(uint32_t x, uint32_t y,
                                                             uint32_t selector)
{
#if defined(__CUDA_ARCH__)
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(selector));
    return r;
#else
    const uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 15u;
        const uint32_t byte = (uint32_t)(bytes >> 8 * (s & 7u)) & 255u;
        r |= (s & 8u ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
#endif
}

/* c plus the dot of four unsigned bytes of a with four signed ones of b. */
static __device__ __forceinline__ int kg_dp4a_us(uint32_t a, uint32_t b, int c)
{
#if defined(__CUDA_ARCH__)
    int r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#else
    for (int i = 0; i < 4; i++)
        c += (int)(a >> 8 * i & 255u) * (int)(int8_t)(b >> 8 * i);
    return c;
#endif
}

/* The larger of both upper and of both lower halves, unsigned. */
static __device__ __forceinline__ uint32_t kg_max_u16x2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    return __vmaxu2(a, b);
#else
    return max(a & 0xffff0000u, b & 0xffff0000u) | max(a & 0xffffu, b & 0xffffu);
#endif
}

/* The value itself. A constant that has been through stays in a register instead of being
   fetched at each use; a pointer to shared memory needs no more work to become the address
   that cp.async wants. */
static __device__ __forceinline__ uint32_t kg_opaque(uint32_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(v));
#endif
    return v;
}

/* The value itself, computed as it is written: what is added to it later is not moved into the
   expression it came from. Equal ones are computed once. */
static __device__ __forceinline__ int kg_as_written(int v)
{
#if defined(__CUDA_ARCH__)
    asm("" : "+r"(v));
#endif
    return v;
}

template <typename T>
static __device__ __forceinline__ T *kg_opaque(T *p)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(p));
#endif
    return p;
}

#endif
