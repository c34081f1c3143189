/*
 * Readers: how the fast product takes codes and scales out of a staged tile of weights.
 *
 * A stage holds, for each of its rows, 1024 consecutive weights: 32 units, so one a lane of
 * the law (kernels/matvec/unit.h). Warp w of the block works on units 4w .. 4w + 3, 128
 * weights, which is half a block of 256. Thread t of the four that share a row of a fragment
 * holds eight codes of each unit, in two words: c[unit][0] in the first half of k of the
 * matrix instruction, c[unit][1] in the second. Which eight is the reader's choice (MAP), as
 * an integer sum has no order; activations are taken in the same way.
 *
 *   MAP_HALVES   words 4t .. 4t+3 and 16+4t .. 16+4t+3
 *   MAP_RUN      codes 8t .. 8t+7
 *   MAP_NIBBLES  as MAP_HALVES, but word 0 has codes 4t, 16+4t, 4t+1, 17+4t, word 1 the rest
 *   MAP_PAIRS    groups of 16 with j and j+8 in a byte: bytes 4t .. 4t+3 of the unit's 16
 *
 * One struct a type and layout:
 *
 *   F           the format (formats.h)
 *   PLANES      arrays of the tensor, one after the other; BYTES[i] for 1024 weights
 *   EXTRA       a second set of codes e: 0 none, 1 added to the first, 2 summed apart
 *   OFFSET      what is added to every code c
 *   NEGATED     the codes are those of -w
 *   codes       of the warp's four units; at[i] is the row's first byte in plane i
 *   scales      a[2], b of unit 4w + t
 *   factor      EXTRA == 2: dot = main * sum(c x) + extra * sum(e x) in unit u of warp w
 */
#ifndef KGATE_KERNELS_MMVQ_READERS_H
#define KGATE_KERNELS_MMVQ_READERS_H

#include "kernels/matvec/formats.h"

enum { MAP_HALVES, MAP_RUN, MAP_NIBBLES, MAP_PAIRS };

/* Word at byte `at` of shared memory: any address, a multiple of 4, two words of a multiple
   of 8. The first reads up to seven bytes behind the word. */
static __device__ __forceinline__ uint32_t word_any(const uint8_t *smem, int at)
{
    const uint32_t *w = (const uint32_t *)(smem + (at & ~3));
    return __funnelshift_r(w[0], w[1], (unsigned)at * 8u);
}
static __device__ __forceinline__ uint32_t word(const uint8_t *smem, int at)
{
    return *(const uint32_t *)(smem + at);
}

/* The eight codes of four bytes of nibbles through two tables of eight. A selector with its
   top bit set gives eight copies of the sign of the entry that the other bits choose: so the
   entries of `low` must be negative, then c is -1 where the nibble is 8 or more, and those of
   `high` must not be, then e is 0 where it is less: code = c + e + [nibble >= 8]. */
static __device__ __forceinline__ void lookup_sum(uint32_t v, uint32_t low0,
                                                  uint32_t low1, uint32_t high0,
                                                  uint32_t high1, uint32_t c[2],
                                                  uint32_t e[2])
{
    const uint32_t f = v ^ 0x88888888u;
    c[0] = __byte_perm(low0, low1, v & 0xffffu);
    c[1] = __byte_perm(low0, low1, v >> 16);
    e[0] = __byte_perm(high0, high1, f & 0xffffu);
    e[1] = __byte_perm(high0, high1, f >> 16);
}

/* IQ4: entries 0..7, and 1 more than entries 8..15. */
#define IQ4_SPLIT 0xbfad9881u, 0xf6eaddcfu, 0x271a0e02u, 0x725a4636u
/* E2M1: c = -1 - v for the positive codes, e = -v for the negative ones: -(v + 1) in all. */
#define E2M1_SPLIT 0xfcfdfeffu, 0xf3f7f9fbu, 0x03020100u, 0x0c080604u

#define READER(format, map, extra, offset, negated)                                      \
    using F = format;                                                                    \
    enum { MAP = map, EXTRA = extra, OFFSET = offset, NEGATED = negated }

struct read_base {
    static __device__ __forceinline__ void factor(int, int, float *main, float *extra)
    {
        *main = 1.0f;
        *extra = 1.0f;
    }
};

/* The scales as the format unpacks them; its codes are not used and cost nothing. */
template <class F>
static __device__ __forceinline__ void unit_scales(const uint8_t *smem, int at, int unit,
                                                   float a[2], float *b)
{
    struct unit32 u;
    u.a[1] = 0.0f;
    u.b[0] = 0.0f;
    const int parts = F::BLOCK / KG_UNIT;
    F::unpack(smem + at + unit / parts * F::BYTES, unit % parts, &u);
    a[0] = u.a[0];
    a[1] = u.a[1];
    *b = u.b[0];
}

#define ONE_PLANE(bytes)                                                                 \
    enum { PLANES = 1 };                                                                 \
    static __device__ __host__ constexpr int plane_bytes(int)                            \
    {                                                                                    \
        return bytes;                                                                    \
    }                                                                                    \
    static __device__ __forceinline__ void scales(const uint8_t *smem, const int *at,    \
                                                  int unit, float a[2], float *b)        \
    {                                                                                    \
        unit_scales<F>(smem, at[0], unit, a, b);                                         \
    }

#define CODES                                                                            \
    static __device__ __forceinline__ void codes(const uint8_t *smem, const int *at,     \
                                                 int w, int t, uint32_t c[4][2],         \
                                                 uint32_t e[4][2])

static __device__ __forceinline__ void nibbles(uint32_t v, uint32_t c[2])
{
    c[0] = v & 0x0f0f0f0fu;
    c[1] = v >> 4 & 0x0f0f0f0fu;
}

struct read_q4_0 : read_base {
    READER(fmt_q4_0, MAP_HALVES, 0, -8, 0);
    ONE_PLANE(576)
    CODES
    {
        (void)e;
#pragma unroll
        for (int u = 0; u < 4; u++)
            nibbles(word_any(smem, at[0] + 18 * (4 * w + u) + 2 + 4 * t), c[u]);
    }
};

struct read_q8_0 : read_base {
    READER(fmt_q8_0, MAP_HALVES, 0, 0, 0);
    ONE_PLANE(1088)
    CODES
    {
        (void)e;
#pragma unroll
        for (int u = 0; u < 4; u++)
            for (int i = 0; i < 2; i++)
                c[u][i] = word_any(smem, at[0] + 34 * (4 * w + u) + 2 + 16 * i + 4 * t);
    }
};

/* Codes keep their places in the byte: main undoes the shift. e is the inverse of the high
   bit, which takes 4 away; its place is the unit's number in the block, and in place 7 it
   counts -128. */
struct read_q3_k : read_base {
    READER(fmt_q3_k, MAP_HALVES, 2, 0, 0);
    ONE_PLANE(440)
    CODES
    {
        const int block = at[0] + 110 * (w >> 1), half = w & 1;
        const uint32_t bit = 0x01010101u << 4 * half;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t q = word_any(smem, block + 32 + 32 * half + 16 * i + 4 * t);
            uint32_t h = word_any(smem, block + 16 * i + 4 * t);
            c[0][i] = q & 0x03030303u;
            c[1][i] = q & 0x0c0c0c0cu;
            c[2][i] = q & 0x30303030u;
            c[3][i] = q >> 6 & 0x03030303u;
            for (int u = 0; u < 4; u++)
                e[u][i] = ~h & bit << u;
        }
    }
    static __device__ __forceinline__ void factor(int w, int u, float *main, float *extra)
    {
        *main = u == 1 ? 0.25f : u == 2 ? 0.0625f : 1.0f;
        *extra = (w & 1) == 0 ? -4.0f / (float)(1 << u)
                              : (u == 3 ? 0.03125f : -0.25f / (float)(1 << u));
    }
};

struct read_q4_k : read_base {
    READER(fmt_q4_k, MAP_RUN, 0, 0, 0);
    ONE_PLANE(576)
    CODES
    {
        (void)e;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint2 v = kg_load_uint2(smem + at[0] + 144 * (w >> 1) + 16 + 64 * (w & 1) +
                                    32 * pair + 8 * t);
            c[2 * pair][0] = v.x & 0x0f0f0f0fu;
            c[2 * pair][1] = v.y & 0x0f0f0f0fu;
            c[2 * pair + 1][0] = v.x >> 4 & 0x0f0f0f0fu;
            c[2 * pair + 1][1] = v.y >> 4 & 0x0f0f0f0fu;
        }
    }
};

/* The fifth bit of unit u of this half is brought to place 4 + u of its byte. */
struct read_q5_k : read_base {
    READER(fmt_q5_k, MAP_RUN, 0, 0, 0);
    ONE_PLANE(704)
    CODES
    {
        (void)e;
        const int block = at[0] + 176 * (w >> 1), half = w & 1;
        uint2 h = kg_load_uint2(smem + block + 16 + 8 * t);
        h.x <<= half ? 0 : 4;
        h.y <<= half ? 0 : 4;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint2 v = kg_load_uint2(smem + block + 48 + 64 * half + 32 * pair + 8 * t);
            for (int i = 0; i < 2; i++) {
                uint32_t q = i ? v.y : v.x, b = i ? h.y : h.x;
                c[2 * pair][i] = (q & 0x0f0f0f0fu) | (b >> 2 * pair & 0x10101010u);
                c[2 * pair + 1][i] =
                    (q >> 4 & 0x0f0f0f0fu) | (b >> (2 * pair + 1) & 0x10101010u);
            }
        }
    }
};

/* ql0, ql1: the two runs of 32 bytes of this half; word i of either. */
static __device__ __forceinline__ void q6_codes(uint32_t ql0, uint32_t ql1, uint32_t h,
                                                int i, uint32_t c[4][2])
{
    c[0][i] = (ql0 & 0x0f0f0f0fu) | (h << 4 & 0x30303030u);
    c[1][i] = (ql1 & 0x0f0f0f0fu) | (h << 2 & 0x30303030u);
    c[2][i] = (ql0 >> 4 & 0x0f0f0f0fu) | (h & 0x30303030u);
    c[3][i] = (ql1 >> 4 & 0x0f0f0f0fu) | (h >> 2 & 0x30303030u);
}

struct read_q6_k : read_base {
    READER(fmt_q6_k, MAP_HALVES, 0, -32, 0);
    ONE_PLANE(840)
    CODES
    {
        (void)e;
        const int block = at[0] + 210 * (w >> 1), half = w & 1;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int k = 16 * i + 4 * t;
            q6_codes(word_any(smem, block + 64 * half + k),
                     word_any(smem, block + 64 * half + 32 + k),
                     word_any(smem, block + 128 + 32 * half + k), i, c);
        }
    }
};

struct read_iq4_xs : read_base {
    READER(fmt_iq4_xs, MAP_NIBBLES, 1, 0, 0);
    ONE_PLANE(544)
    CODES
    {
        const int qs = at[0] + 136 * (w >> 1) + 8 + 64 * (w & 1) + 4 * t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            lookup_sum(word(smem, qs + 16 * u), IQ4_SPLIT, c[u], e[u]);
    }
};

struct read_mxfp4 : read_base {
    READER(fmt_mxfp4, MAP_NIBBLES, 1, 1, 1);
    ONE_PLANE(544)
    CODES
    {
#pragma unroll
        for (int u = 0; u < 4; u++)
            lookup_sum(word_any(smem, at[0] + 17 * (4 * w + u) + 1 + 4 * t), E2M1_SPLIT,
                       c[u], e[u]);
    }
};

struct read_nvfp4 : read_base {
    READER(fmt_nvfp4, MAP_PAIRS, 1, 1, 1);
    ONE_PLANE(576)
    CODES
    {
#pragma unroll
        for (int u = 0; u < 4; u++)
            lookup_sum(
                word(smem, at[0] + 36 * (2 * w + (u >> 1)) + 4 + 16 * (u & 1) + 4 * t),
                E2M1_SPLIT, c[u], e[u]);
    }
};

/* KG_LAYOUT_SPLIT. All planes but Q6_K's d have whole words. */
struct split_q4_0 : read_base {
    READER(fmt_q4_0, MAP_HALVES, 0, -8, 0);
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : 64;
    }
    CODES
    {
        (void)e;
#pragma unroll
        for (int u = 0; u < 4; u++)
            nibbles(word(smem, at[0] + 16 * (4 * w + u) + 4 * t), c[u]);
    }
    static __device__ __forceinline__ void scales(const uint8_t *smem, const int *at,
                                                  int unit, float a[2], float *)
    {
        a[0] = load_half(smem + at[1] + 2 * unit);
    }
};

struct split_nvfp4 : read_base {
    READER(fmt_nvfp4, MAP_PAIRS, 1, 1, 1);
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : 64;
    }
    CODES
    {
#pragma unroll
        for (int u = 0; u < 4; u++)
            lookup_sum(word(smem, at[0] + 16 * (4 * w + u) + 4 * t), E2M1_SPLIT, c[u],
                       e[u]);
    }
    static __device__ __forceinline__ void scales(const uint8_t *smem, const int *at,
                                                  int unit, float a[2], float *)
    {
        const int pair = kg_load_u16(smem + at[1] + 2 * unit);
        a[0] = ue4m3_half(pair & 255);
        a[1] = ue4m3_half(pair >> 8);
    }
};

struct split_q4_k : read_base {
    READER(fmt_q4_k, MAP_RUN, 0, 0, 0);
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : 64;
    }
    CODES
    {
        (void)e;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint2 v = kg_load_uint2(smem + at[0] + 64 * w + 32 * pair + 8 * t);
            c[2 * pair][0] = v.x & 0x0f0f0f0fu;
            c[2 * pair][1] = v.y & 0x0f0f0f0fu;
            c[2 * pair + 1][0] = v.x >> 4 & 0x0f0f0f0fu;
            c[2 * pair + 1][1] = v.y >> 4 & 0x0f0f0f0fu;
        }
    }
    static __device__ __forceinline__ void scales(const uint8_t *smem, const int *at,
                                                  int unit, float a[2], float *b)
    {
        const uint8_t *head = smem + at[1] + 16 * (unit / 8);
        int sc, m;
        k_scale_min(head + 4, unit % 8, &sc, &m);
        a[0] = load_half(head) * (float)sc;
        *b = -(load_half(head + 2) * (float)m);
    }
};

struct split_q6_k : read_base {
    READER(fmt_q6_k, MAP_HALVES, 0, -32, 0);
    enum { PLANES = 4 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : i == 1 ? 256 : i == 2 ? 64 : 8;
    }
    CODES
    {
        (void)e;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int k = 16 * i + 4 * t;
            q6_codes(word(smem, at[0] + 64 * w + k), word(smem, at[0] + 64 * w + 32 + k),
                     word(smem, at[1] + 32 * w + k), i, c);
        }
    }
    static __device__ __forceinline__ void scales(const uint8_t *smem, const int *at,
                                                  int unit, float a[2], float *)
    {
        const float d = load_half(smem + at[3] + 2 * (unit / 8));
        const int pair = kg_load_u16(smem + at[2] + 2 * unit);
        a[0] = d * (float)(int8_t)pair;
        a[1] = d * (float)(int8_t)(pair >> 8);
    }
};

#endif
