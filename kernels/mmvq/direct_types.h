/*
 * How the direct product (direct.h) takes the dots and scales of a unit out of the bytes of a
 * block. One struct a type and layout:
 *
 *   F               the format (formats.h)
 *   PLANES          arrays of the tensor, one after the other; field(i): bytes of a block in one
 *   ORDER           in which codes of q are brought to shared memory
 *   SUMS            0, or of how many parts of a unit's codes of q the sums are wanted
 *   tables          two tables of eight entries (readers.h), or none
 *   dots            the dots of unit `part` of a block with x, and its scales; plane i of the
 *                   block is at at[i] + off[i] of shared memory, off known when compiled. `sum`
 *                   is that of all 32 codes of q, or of both halves as two int16.
 */
#ifndef KGATE_KERNELS_MMVQ_DIRECT_TYPES_H
#define KGATE_KERNELS_MMVQ_DIRECT_TYPES_H

#include "kernels/device/bits.h"
#include "kernels/matvec/formats.h"

enum { ORDER_PLAIN, ORDER_NIBBLES, ORDER_PAIRS };

/* N words of shared memory that start `bit` bits (bit may be negative) behind byte at + off;
   off is known when compiled. Up to 4 bytes behind them are read. */
template <int N>
static __device__ __forceinline__ void words_any(const uint8_t *smem, int at, int off,
                                                 int bit, uint32_t v[N])
{
    const int from = 8 * (at + (off & 3)) + bit;
    const uint32_t *w = (const uint32_t *)(smem + (from >> 5) * 4 + (off & ~3));
    uint32_t a = w[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t b = w[i + 1];
        v[i] = __funnelshift_r(a, b, (unsigned)from);
        a = b;
    }
}

static __device__ __forceinline__ int dot4(const uint32_t *c, const uint32_t *x, int dot)
{
    for (int i = 0; i < 4; i++)
        dot = __dp4a((int)c[i], (int)x[i], dot);
    return dot;
}

struct direct_tables {
    uint32_t low0, low1, high0, high1;
};

/* A type in its file's layout. */
#define DIRECT(format, order, sums)                                                      \
    using F = format;                                                                    \
    enum { PLANES = 1, ORDER = order, SUMS = sums, SPREAD = 0 };                         \
    static __device__ __host__ constexpr int field(int)                                  \
    {                                                                                    \
        return F::BYTES;                                                                 \
    }
#define DOTS                                                                             \
    static __device__ __forceinline__ void dots(                                         \
        const uint8_t *smem, const int *at, const int *off, int part,                    \
        const uint32_t x[8], int sum, const struct direct_tables &t, int dot[2],         \
        float a[2], float *b)
#define UNUSED                                                                           \
    const uint8_t *const p = smem + at[0] + off[0];                                      \
    (void)p, (void)part, (void)sum, (void)t, (void)b, (void)dot

#define NO_TABLE                                                                         \
    static __device__ __forceinline__ struct direct_tables tables(void)                  \
    {                                                                                    \
        return {0, 0, 0, 0};                                                             \
    }
#define DIRECT_TABLES(...)                                                               \
    static __device__ __forceinline__ struct direct_tables tables(void)                  \
    {                                                                                    \
        return {__VA_ARGS__};                                                            \
    }
#define IQ4_DIRECT 0xbfad9881u, 0xf6eaddcfu, 0x271a0e02u, 0x725a4636u
#define E2M1_DIRECT 0xfcfdfeffu, 0xf3f7f9fbu, 0x03020100u, 0x0c080604u

/* The eight nibbles of v through two tables of eight (readers.h, code_tables). */
static __device__ __forceinline__ int table_dot(uint32_t v, const uint32_t x[2],
                                                const struct direct_tables &t, int dot)
{
    const uint32_t f = v ^ 0x88888888u;
    dot = __dp4a((int)kg_permute_signed(t.low0, t.low1, v), (int)x[0], dot);
    dot = __dp4a((int)kg_permute_signed(t.high0, t.high1, f), (int)x[0], dot);
    dot = __dp4a((int)kg_permute_signed(t.low0, t.low1, v >> 16), (int)x[1], dot);
    return __dp4a((int)kg_permute_signed(t.high0, t.high1, f >> 16), (int)x[1], dot);
}

struct direct_q4_0 {
    DIRECT(fmt_q4_0, ORDER_PLAIN, 1);
    NO_TABLE
    DOTS
    {
        UNUSED;
        uint32_t v[4], c[8];
        words_any<4>(smem, at[0], off[0] + 2, 0, v);
        split_nibbles(v, c);
        dot[0] = dot4(c + 4, x + 4, dot4(c, x, -8 * sum));
        a[0] = load_half(p);
    }
};

struct direct_q8_0 {
    DIRECT(fmt_q8_0, ORDER_PLAIN, 0);
    NO_TABLE
    DOTS
    {
        UNUSED;
        uint32_t c[8];
        words_any<8>(smem, at[0], off[0] + 2, 0, c);
        dot[0] = dot4(c + 4, x + 4, dot4(c, x, 0));
        a[0] = load_half(p);
    }
};

/* Scale and minimum of Q4_K and Q5_K from the block's first 16 bytes. */
static __device__ __forceinline__ void direct_scales(const uint8_t *p, int part,
                                                     float a[2], float *b)
{
    const uint4 head = kg_load_uint4(p);
    const unsigned at = 8u * (unsigned)(part & 3);
    const uint32_t y = head.y >> at, z = head.z >> at, w = head.w >> at;
    const bool hi = part >= 4;
    const uint32_t sc = hi ? (w & 15u) | (y >> 2 & 0x30u) : y & 63u;
    const uint32_t m = hi ? (w >> 4 & 15u) | (z >> 2 & 0x30u) : z & 63u;
    a[0] = kg_half_to_f32(kg_half_from_bits((uint16_t)head.x)) * (float)(int)sc;
    *b = -(kg_half_to_f32(kg_half_from_bits((uint16_t)(head.x >> 16))) * (float)(int)m);
}

static __device__ __forceinline__ void q4_k_dots(const uint8_t *head, const uint8_t *qs,
                                                 int part, const uint32_t x[8],
                                                 int dot[2], float a[2], float *b)
{
    uint32_t c[8];
    load16(qs + 32 * (part >> 1), c);
    load16(qs + 32 * (part >> 1) + 16, c + 4);
    for (int i = 0; i < 8; i++)
        c[i] = c[i] >> 4 * (part & 1) & 0x0f0f0f0fu;
    dot[0] = dot4(c + 4, x + 4, dot4(c, x, 0));
    direct_scales(head, part, a, b);
}

struct direct_q4_k {
    DIRECT(fmt_q4_k, ORDER_PLAIN, 0);
    NO_TABLE
    DOTS
    {
        UNUSED;
        q4_k_dots(p, p + 16, part, x, dot, a, b);
    }
};

struct direct_q5_k {
    DIRECT(fmt_q5_k, ORDER_PLAIN, 0);
    NO_TABLE
    DOTS
    {
        UNUSED;
        uint32_t c[8], h[8];
        const uint8_t *qs = p + 48 + 32 * (part >> 1);
        load16(qs, c);
        load16(qs + 16, c + 4);
        load16(p + 16, h);
        load16(p + 32, h + 4);
        int high = 0, low = 0;
        for (int i = 0; i < 8; i++) {
            low = __dp4a((int)(c[i] >> 4 * (part & 1) & 0x0f0f0f0fu), (int)x[i], low);
            high = __dp4a((int)(h[i] >> part & 0x01010101u), (int)x[i], high);
        }
        dot[0] = low + 16 * high;
        direct_scales(p, part, a, b);
    }
};

/* The signed bytes at `pair` times d. */
static __device__ __forceinline__ void q6_k_scales(float d, const uint8_t *pair,
                                                   float a[2])
{
    const int both = kg_load_u16(pair);
    a[0] = d * (float)(int)(int8_t)both;
    a[1] = d * (float)(int)(int8_t)(both >> 8);
}

struct direct_q6_k {
    DIRECT(fmt_q6_k, ORDER_PLAIN, 2);
    NO_TABLE
    DOTS
    {
        UNUSED;
        const int half = part >> 2, quarter = part & 3;
        uint32_t c[8], h[8];
        words_any<8>(smem, at[0] + 64 * half + 32 * (quarter & 1), off[0],
                     4 * (quarter >> 1), c);
        words_any<8>(smem, at[0] + 32 * half, off[0] + 128, 2 * quarter - 4, h);
        for (int i = 0; i < 8; i++)
            c[i] = (c[i] & 0x0f0f0f0fu) | (h[i] & 0x30303030u);
        dot[0] = dot4(c, x, -32 * (int)(int16_t)sum);
        dot[1] = dot4(c + 4, x + 4, -32 * (sum >> 16));
        q6_k_scales(load_half(p + 208), p + 192 + 2 * part, a);
    }
};

struct direct_iq4_xs {
    DIRECT(fmt_iq4_xs, ORDER_NIBBLES, 0);
    DIRECT_TABLES(IQ4_DIRECT)
    DOTS
    {
        UNUSED;
        const uint2 v = kg_load_uint2(p + 8 + 16 * part);
        const uint2 w = kg_load_uint2(p + 16 + 16 * part);
        const uint2 head = kg_load_uint2(p);
        dot[0] = table_dot(v.x, x, t, 0);
        dot[0] = table_dot(v.y, x + 2, t, dot[0]);
        dot[0] = table_dot(w.x, x + 4, t, dot[0]);
        dot[0] = table_dot(w.y, x + 6, t, dot[0]);
        const uint32_t low = head.y >> 4 * part & 15u;
        const uint32_t high = head.x >> (16 + 2 * part) & 3u;
        a[0] = kg_half_to_f32(kg_half_from_bits((uint16_t)head.x)) *
               (float)((int)(low | high << 4) - 32);
    }
};

/* v: the bytes of a unit, pair: its two scales. */
static __device__ __forceinline__ void nvfp4_dots(const uint32_t v[4], uint32_t pair,
                                                  const uint32_t x[8], int sum,
                                                  const struct direct_tables &t,
                                                  int dot[2], float a[2])
{
    const int s0 = table_dot(v[0], x, t, (int)(int16_t)sum);
    const int s1 = table_dot(v[2], x + 4, t, sum >> 16);
    dot[0] = -table_dot(v[1], x + 2, t, s0);
    dot[1] = -table_dot(v[3], x + 6, t, s1);
    for (int g = 0; g < 2; g++) {
        const uint32_t code = pair >> 8 * g & 255u;
        const float scale = __uint_as_float((code & 127u) << 20) * 0x1p119f;
        a[g] = code == 127u ? 0.0f : scale;
    }
}

struct direct_nvfp4 {
    DIRECT(fmt_nvfp4, ORDER_PAIRS, 2);
    DIRECT_TABLES(E2M1_DIRECT)
    DOTS
    {
        UNUSED;
        uint32_t v[4];
        load16_a4(p + 4 + 16 * part, v);
        nvfp4_dots(v, kg_load_u16(p + 2 * part), x, sum, t, dot, a);
    }
};

struct direct_mxfp4 {
    DIRECT(fmt_mxfp4, ORDER_NIBBLES, 1);
    DIRECT_TABLES(E2M1_DIRECT)
    DOTS
    {
        UNUSED;
        uint32_t v[4];
        words_any<4>(smem, at[0], off[0] + 1, 0, v);
        int n = sum;
        for (int i = 0; i < 4; i++)
            n = table_dot(v[i], x + 2 * i, t, n);
        dot[0] = -n;
        a[0] = e8m0_half(p[0]);
    }
};

#endif
