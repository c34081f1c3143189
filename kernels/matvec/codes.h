/*
 * Helpers that turn packed weight bits into int8 codes, four to a 32-bit word.
 *
 * "Word" means four codes in memory order, element 4i in the low byte. Every helper is
 * integer work (or one conversion), so it gives the same bits everywhere.
 */
#ifndef KGATE_KERNELS_MATVEC_CODES_H
#define KGATE_KERNELS_MATVEC_CODES_H

#include <stdint.h>

#include "kernels/device/device.h"

/* Codebooks of sixteen int8 values, entry 4i in the low byte of word i. */
#define IQ4_TABLE 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u
/* Twice the value of an E2M1 code; code 8, a negative zero, reads 0. */
#define E2M1_TABLE 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu

static __device__ inline float load_half(const uint8_t *p)
{
    return kg_half_to_f32(kg_half_from_bits(kg_load_u16(p)));
}

/* Four codes 0 <= c < 128, less `bias` each: adding 128 - bias cannot carry into the next
   byte, and flipping the top bit takes the 128 away again. */
static __device__ inline uint32_t bytes_minus(uint32_t word, uint32_t bias)
{
    return (word + (0x80u - bias) * 0x01010101u) ^ 0x80808080u;
}

/* Bit i of `bits` (i < 4) to bit 0 of byte i. The four shifted copies do not overlap in
   the bits that the mask keeps. */
static __device__ inline uint32_t spread_bits(uint32_t bits)
{
    return ((bits & 15u) * 0x00204081u) & 0x01010101u;
}

/* The eight nibbles of `packed` through a codebook: *low gets the entries of the low
   nibbles of the four bytes, *high those of the high nibbles. A byte selector has three
   bits, so each half of the codebook is looked up and the nibble's top bit chooses. */
static __device__ inline void lookup16(uint32_t packed, uint32_t t0, uint32_t t1,
                                       uint32_t t2, uint32_t t3, uint32_t *low,
                                       uint32_t *high)
{
    uint32_t index = packed & 0x77777777u;
    uint32_t pick = 0x32103210u | ((packed & 0x88888888u) >> 1);
    uint32_t a =
        __byte_perm(__byte_perm(t0, t1, index), __byte_perm(t2, t3, index), pick);
    index >>= 16;
    pick >>= 16;
    uint32_t b =
        __byte_perm(__byte_perm(t0, t1, index), __byte_perm(t2, t3, index), pick);
    *low = __byte_perm(a, b, 0x6420u);
    *high = __byte_perm(a, b, 0x7531u);
}

/* Scale and minimum of group j (0..7) in the twelve packed bytes of Q4_K and Q5_K. */
static __device__ inline void k_scale_min(const uint8_t *q, int j, int *scale,
                                          int *minimum)
{
    if (j < 4) {
        *scale = q[j] & 63;
        *minimum = q[j + 4] & 63;
    } else {
        *scale = (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
        *minimum = (q[j + 4] >> 4) | (q[j] >> 6) << 4;
    }
}

/* Scale j (0..15) of Q3_K, 0..63, from its twelve packed bytes. */
static __device__ inline int q3_scale(const uint8_t *q, int j)
{
    int low = j < 8 ? q[j] & 15 : q[j - 8] >> 4;
    return low | (q[8 + (j & 3)] >> (2 * (j >> 2)) & 3) << 4;
}

/* Half of the E8M0 scale e: 2^(e-128), with 255 read as the finite 2^127 (ggml's CPU
   rule; the format's own meaning of 255 is NaN). The two smallest are subnormal. */
static __device__ inline float e8m0_half(int e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    return __uint_as_float(bits);
}

/* Half of the UE4M3 scale by ggml's CPU rule: byte 0x7F reads 0, otherwise bit 7 is ignored,
   so that 0xFF reads 480. */
static __device__ inline float ue4m3_half(int code)
{
    int e = code >> 3 & 15, m = code & 7;
    if (code == 0x7f)
        return 0.0f;
    if (e == 0)
        return (float)m * 0x1p-10f;
    return __uint_as_float((uint32_t)(e + 119) << 23 | (uint32_t)m << 20);
}

#endif
