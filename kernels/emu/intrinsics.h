/*
 * emu/intrinsics.h: CUDA's integer, bit, conversion and atomic functions on the host.
 *
 * Functions that CUDA defines where C does not (saturating conversions, minimum and maximum
 * of zeros and NaNs) follow CUDA.
 */
#ifndef KG_EMU_INTRINSICS_H
#define KG_EMU_INTRINSICS_H

#include <cmath>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE4_1__)
#include <immintrin.h>
#endif

#include "emu.h"

/* Bits. */
static inline int __float_as_int(float x)
{
    int bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float __int_as_float(int bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline long long __double_as_longlong(double x)
{
    long long bits;
    memcpy(&bits, &x, 8);
    return bits;
}
static inline double __longlong_as_double(long long bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __brev(unsigned x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)((((uint64_t)hi << 32 | lo) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (shift & 31));
}
/* Four bytes out of the eight of y:x; bit 3 of a selector spreads the byte's sign. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> (4 * i) & 15u;
        unsigned byte = (unsigned)(bytes >> (8 * (s & 7u))) & 0xffu;
        if (s & 8u)
            byte = byte & 0x80u ? 0xffu : 0u;
        out |= byte << (8 * i);
    }
    return out;
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

/* Dot products of four bytes, added to c modulo 2^32. */
static inline int __dp4a(int a, int b, int c)
{
#if defined(__SSE4_1__)
    __m128i products = _mm_madd_epi16(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(a)),
                                      _mm_cvtepi8_epi16(_mm_cvtsi32_si128(b)));
    uint64_t pair = (uint64_t)_mm_cvtsi128_si64(products);
    return (int)((unsigned)c + (unsigned)pair + (unsigned)(pair >> 32));
#else
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int)(int8_t)((unsigned)a >> (8 * i)) * (int8_t)((unsigned)b >> (8 * i));
    return (int)((unsigned)c + (unsigned)sum);
#endif
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    unsigned sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (a >> (8 * i) & 0xffu) * (b >> (8 * i) & 0xffu);
    return c + sum;
}

/* Packed bytes without carry between them. */
static inline unsigned __vadd4(unsigned a, unsigned b)
{
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
static inline unsigned __vsub4(unsigned a, unsigned b)
{
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}
static inline unsigned __vsubss4(unsigned a, unsigned b)
{
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        int d = (int8_t)(a >> (8 * i)) - (int8_t)(b >> (8 * i));
        d = d > 127 ? 127 : d < -128 ? -128 : d;
        out |= ((unsigned)d & 0xffu) << (8 * i);
    }
    return out;
}
static inline unsigned __vcmpne4(unsigned a, unsigned b)
{
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= ((a ^ b) >> (8 * i) & 0xffu ? 0xffu : 0u) << (8 * i);
    return out;
}

/* Conversions saturate; NaN becomes 0. */
static inline int kg_emu_to_int(float rounded)
{
    if (rounded != rounded)
        return 0;
    if (rounded >= 2147483648.0f)
        return INT32_MAX;
    if (rounded < -2147483648.0f)
        return INT32_MIN;
    return (int)rounded;
}
static inline int __float2int_rn(float x)
{
    return kg_emu_to_int(rintf(x));
}
static inline int __float2int_rz(float x)
{
    return kg_emu_to_int(truncf(x));
}
static inline int __float2int_rd(float x)
{
    return kg_emu_to_int(floorf(x));
}
static inline int __float2int_ru(float x)
{
    return kg_emu_to_int(ceilf(x));
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

/* The number wins over a NaN; -0 is less than +0. */
static inline float kg_emu_fmaxf(float a, float b)
{
    if (a != a)
        return b;
    if (b != b)
        return a;
    if (a == b)
        return __uint_as_float(a == 0.0f ? __float_as_uint(a) & __float_as_uint(b)
                                         : __float_as_uint(a));
    return a > b ? a : b;
}
static inline float kg_emu_fminf(float a, float b)
{
    if (a != a)
        return b;
    if (b != b)
        return a;
    if (a == b)
        return __uint_as_float(a == 0.0f ? __float_as_uint(a) | __float_as_uint(b)
                                         : __float_as_uint(a));
    return a < b ? a : b;
}
#define fmaxf kg_emu_fmaxf
#define fminf kg_emu_fminf

#define KG_EMU_MINMAX(T)                                                                 \
    static inline T min(T a, T b)                                                        \
    {                                                                                    \
        return b < a ? b : a;                                                            \
    }                                                                                    \
    static inline T max(T a, T b)                                                        \
    {                                                                                    \
        return a < b ? b : a;                                                            \
    }
KG_EMU_MINMAX(int)
KG_EMU_MINMAX(unsigned)
KG_EMU_MINMAX(long)
KG_EMU_MINMAX(unsigned long)
KG_EMU_MINMAX(long long)
KG_EMU_MINMAX(unsigned long long)
#undef KG_EMU_MINMAX
static inline float min(float a, float b)
{
    return kg_emu_fminf(a, b);
}
static inline float max(float a, float b)
{
    return kg_emu_fmaxf(a, b);
}

/* Memory. */
template <typename T>
static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T>
static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T>
static inline void __stcs(T *p, T value)
{
    *p = value;
}
static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
[[noreturn]] static inline void __trap(void)
{
    kg_emu_fault("the kernel executed __trap()");
}

#define KG_EMU_ATOMICS(T)                                                                \
    static inline T atomicExch(T *p, T value)                                            \
    {                                                                                    \
        return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);                          \
    }                                                                                    \
    static inline T atomicAdd(T *p, T value)                                             \
    {                                                                                    \
        return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);                           \
    }                                                                                    \
    static inline T atomicCAS(T *p, T expected, T value)                                 \
    {                                                                                    \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED,        \
                                    __ATOMIC_RELAXED);                                   \
        return expected;                                                                 \
    }                                                                                    \
    static inline T atomicMax(T *p, T value)                                             \
    {                                                                                    \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                    \
        while (old < value &&                                                            \
               !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED,     \
                                            __ATOMIC_RELAXED))                           \
            ;                                                                            \
        return old;                                                                      \
    }                                                                                    \
    static inline T atomicMin(T *p, T value)                                             \
    {                                                                                    \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                    \
        while (value < old &&                                                            \
               !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED,     \
                                            __ATOMIC_RELAXED))                           \
            ;                                                                            \
        return old;                                                                      \
    }                                                                                    \
    static inline T atomicAnd(T *p, T value)                                             \
    {                                                                                    \
        return __atomic_fetch_and(p, value, __ATOMIC_RELAXED);                           \
    }                                                                                    \
    static inline T atomicOr(T *p, T value)                                              \
    {                                                                                    \
        return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);                            \
    }                                                                                    \
    static inline T atomicXor(T *p, T value)                                             \
    {                                                                                    \
        return __atomic_fetch_xor(p, value, __ATOMIC_RELAXED);                           \
    }
KG_EMU_ATOMICS(int)
KG_EMU_ATOMICS(unsigned)
KG_EMU_ATOMICS(unsigned long long)
#undef KG_EMU_ATOMICS

static inline float atomicAdd(float *p, float value)
{
    unsigned *bits = (unsigned *)p;
    unsigned old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(bits, &old,
                                        __float_as_uint(__uint_as_float(old) + value),
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return __uint_as_float(old);
}

#endif
