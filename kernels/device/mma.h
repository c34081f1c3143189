/*
 * device/mma.h: ldmatrix and mma.sync. Every lane of the warp must call.
 *
 * D += A B with A m x k row-major and B k x n column-major. Fragments, with g = lane / 4 and
 * t = lane % 4:
 *
 *   d[0], d[1]   row g,     columns 2t, 2t + 1       d[2], d[3]   row g + 8
 *
 *   k = 32, bytes (e = 0..3 within a register)       k = 16, halves (e = 0..1)
 *   a[0]  row g,     k = 4t + e                      row g,     k = 2t + e
 *   a[1]  row g + 8, k = 4t + e                      row g + 8, k = 2t + e
 *   a[2]  row g,     k = 4t + e + 16                 row g,     k = 2t + e + 8
 *   a[3]  row g + 8, k = 4t + e + 16                 row g + 8, k = 2t + e + 8
 *   b[0]  k = 4t + e,      column g                  k = 2t + e,     column g
 *   b[1]  k = 4t + e + 16, column g                  k = 2t + e + 8, column g
 *
 * The integer form is exact modulo 2^32. Float forms accumulate in f32: the emulation adds
 * the products to d in ascending k, rounding each time; the order and the rounding
 * inside the hardware are not documented, so results agree within a bound only.
 *
 * The _from forms set D = A B + c, one c for all elements, the _add forms D = A B + C; C may be
 * D. k = 16, bytes: a[0], a[1] and b[0] of the k = 32 picture.
 *
 * kg_ldmatrix_xN loads N 8 x 8 matrices of 2-byte elements from shared memory; lane 8i + r
 * passes the address of row r of matrix i, aligned to 16 bytes (x2: lanes 0..15, x1: lanes
 * 0..7; the others pass any shared address). r[i] gets elements 2t, 2t + 1 of row g of
 * matrix i; the _trans forms get them of the transposed matrix.
 */
#ifndef KG_DEVICE_MMA_H
#define KG_DEVICE_MMA_H

#include <stdint.h>

#if defined(KG_EMU)

#include "../emu/mma.h"

static inline void kg_mma_s8_16832(int d[4], const uint32_t a[4], const uint32_t b[2])
{
    kg_emu_mma(KG_EMU_MMA_S8, d, a, b);
}
static inline void kg_mma_s8_16832_from(int d[4], const uint32_t a[4],
                                        const uint32_t b[2], int c)
{
    d[0] = d[1] = d[2] = d[3] = c;
    kg_emu_mma(KG_EMU_MMA_S8, d, a, b);
}
static inline void kg_mma_s8_16816_from(int d[4], const uint32_t a[2],
                                        const uint32_t b[1], int c)
{
    const uint32_t a4[4] = {a[0], a[1], 0, 0}, b2[2] = {b[0], 0};
    d[0] = d[1] = d[2] = d[3] = c;
    kg_emu_mma(KG_EMU_MMA_S8, d, a4, b2);
}
static inline void kg_mma_s8_16832_add(int d[4], const uint32_t a[4], const uint32_t b[2],
                                       const int c[4])
{
    int sum[4] = {c[0], c[1], c[2], c[3]};
    kg_emu_mma(KG_EMU_MMA_S8, sum, a, b);
    for (int i = 0; i < 4; i++)
        d[i] = sum[i];
}
static inline void kg_mma_s8_16816_add(int d[4], const uint32_t a[2], const uint32_t b[1],
                                       const int c[4])
{
    const uint32_t a4[4] = {a[0], a[1], 0, 0}, b2[2] = {b[0], 0};
    kg_mma_s8_16832_add(d, a4, b2, c);
}
static inline void kg_mma_f16_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    kg_emu_mma(KG_EMU_MMA_F16, d, a, b);
}
static inline void kg_mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    kg_emu_mma(KG_EMU_MMA_BF16, d, a, b);
}
/* k = 32; sm_89 and up. */
static inline void kg_mma_e4m3_16832(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    kg_emu_mma(KG_EMU_MMA_E4M3, d, a, b);
}
static inline void kg_ldmatrix_x1(uint32_t r[1], const void *row)
{
    kg_emu_ldmatrix(r, row, 1, false);
}
static inline void kg_ldmatrix_x2(uint32_t r[2], const void *row)
{
    kg_emu_ldmatrix(r, row, 2, false);
}
static inline void kg_ldmatrix_x4(uint32_t r[4], const void *row)
{
    kg_emu_ldmatrix(r, row, 4, false);
}
static inline void kg_ldmatrix_x1_trans(uint32_t r[1], const void *row)
{
    kg_emu_ldmatrix(r, row, 1, true);
}
static inline void kg_ldmatrix_x2_trans(uint32_t r[2], const void *row)
{
    kg_emu_ldmatrix(r, row, 2, true);
}
static inline void kg_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    kg_emu_ldmatrix(r, row, 4, true);
}

#else

static __device__ __forceinline__ void kg_mma_s8_16832(int d[4], const uint32_t a[4],
                                                       const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void kg_mma_s8_16832_from(int d[4], const uint32_t a[4],
                                                            const uint32_t b[2], int c)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c));
}
static __device__ __forceinline__ void kg_mma_s8_16816_from(int d[4], const uint32_t a[2],
                                                            const uint32_t b[1], int c)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c));
}

static __device__ __forceinline__ void
kg_mma_s8_16832_add(int d[4], const uint32_t a[4], const uint32_t b[2], const int c[4])
{
    int r[4];
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
          "r"(c[1]), "r"(c[2]), "r"(c[3]));
    for (int i = 0; i < 4; i++)
        d[i] = r[i];
}
static __device__ __forceinline__ void
kg_mma_s8_16816_add(int d[4], const uint32_t a[2], const uint32_t b[1], const int c[4])
{
    int r[4];
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    for (int i = 0; i < 4; i++)
        d[i] = r[i];
}

#define KG_MMA_F32(name, shape)                                                          \
    static __device__ __forceinline__ void name(float d[4], const uint32_t a[4],         \
                                                const uint32_t b[2])                     \
    {                                                                                    \
        asm volatile("mma.sync.aligned." shape                                           \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"  \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),            \
                       "r"(b[1]));                                                       \
    }
KG_MMA_F32(kg_mma_f16_16816, "m16n8k16.row.col.f32.f16.f16.f32")
KG_MMA_F32(kg_mma_bf16_16816, "m16n8k16.row.col.f32.bf16.bf16.f32")
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
KG_MMA_F32(kg_mma_e4m3_16832, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
#endif
#undef KG_MMA_F32

#define KG_LDMATRIX(suffix, modifier)                                                    \
    static __device__ __forceinline__ void kg_ldmatrix_x1##suffix(uint32_t r[1],         \
                                                                  const void *row)       \
    {                                                                                    \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" modifier ".shared.b16 {%0}, [%1];"  \
                     : "=r"(r[0])                                                        \
                     : "r"((uint32_t)__cvta_generic_to_shared(row))                      \
                     : "memory");                                                        \
    }                                                                                    \
    static __device__ __forceinline__ void kg_ldmatrix_x2##suffix(uint32_t r[2],         \
                                                                  const void *row)       \
    {                                                                                    \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" modifier                            \
                     ".shared.b16 {%0, %1}, [%2];"                                       \
                     : "=r"(r[0]), "=r"(r[1])                                            \
                     : "r"((uint32_t)__cvta_generic_to_shared(row))                      \
                     : "memory");                                                        \
    }                                                                                    \
    static __device__ __forceinline__ void kg_ldmatrix_x4##suffix(uint32_t r[4],         \
                                                                  const void *row)       \
    {                                                                                    \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier                            \
                     ".shared.b16 {%0, %1, %2, %3}, [%4];"                               \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                    \
                     : "r"((uint32_t)__cvta_generic_to_shared(row))                      \
                     : "memory");                                                        \
    }
KG_LDMATRIX(, "")
KG_LDMATRIX(_trans, ".trans")
#undef KG_LDMATRIX

#endif
#endif
