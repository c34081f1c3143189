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
 *   MAP_PAIRS    groups of 16 with j and j+8 in a byte: word 0 has codes 2t, 2t+8, 2t+1, 2t+9 of the
 *                first group, word 1 those of the second
 *
 * One struct a type and layout:
 *
 *   F           the format (formats.h)
 *   PLANES      arrays of the tensor, one after the other; BYTES[i] for 1024 weights
 *   EXTRA       a second set of codes e, to be added to the first
 *   OFFSET      what is added to every code c
 *   NEGATED     the codes are those of -w
 *   ZERO_TAIL   weights behind the end of a row must be 0, not just anything
 *   codes       of the warp's four units, from a row whose first byte in plane i is
 *               at[i] + off[i], off known when compiled
 *   scales      a[2], b of unit 4w + t; where F::QUADS, the integers sc[2] and their factor d
 */
#ifndef KGATE_KERNELS_MMVQ_READERS_H
#define KGATE_KERNELS_MMVQ_READERS_H

#include "kernels/device/bits.h"
#include "kernels/device/f16x2.h"
#include "kernels/matvec/formats.h"

enum { MAP_HALVES, MAP_RUN, MAP_NIBBLES, MAP_PAIRS };

/* Word at byte at + off of shared memory, off known when compiled, so that its multiple of 4
   goes into the instruction; word: at + off is a multiple of 4. word_any reads up to seven
   bytes behind the word. The compiler would add that multiple before it masks, which is three
   instructions a word instead of none. */
static __device__ __forceinline__ uint32_t word_any(const uint8_t *smem, int at, int off)
{
    at += off & 3;
    const uint32_t *w = (const uint32_t *)(smem + kg_as_written(at & ~3) + (off & ~3));
    return __funnelshift_r(w[0], w[1], (unsigned)at * 8u);
}
static __device__ __forceinline__ uint32_t word(const uint8_t *smem, int at, int off)
{
    return *(const uint32_t *)(smem + at + off);
}

/* Codes of nibbles through two tables of eight. A selector with its top bit set gives eight
   copies of the sign of the entry that the other bits choose: so the entries of `low` must be
   negative, then c is -1 where the nibble is 8 or more, and those of `high` must not be, then
   e is 0 where it is less: code = c + e + [nibble >= 8]. */
struct code_tables {
    uint32_t low[2], high[2];
};

/* Once a kernel. The shuffle keeps the entries in registers: as constants they would be moved
   there at each use. */
static __device__ __forceinline__ struct code_tables
make_tables(uint32_t low0, uint32_t low1, uint32_t high0, uint32_t high1)
{
    struct code_tables t;
    t.low[0] = __shfl_sync(KG_WARP_ALL, low0, 0);
    t.low[1] = __shfl_sync(KG_WARP_ALL, low1, 0);
    t.high[0] = __shfl_sync(KG_WARP_ALL, high0, 0);
    t.high[1] = __shfl_sync(KG_WARP_ALL, high1, 0);
    return t;
}

/* The eight codes of four bytes. */
static __device__ __forceinline__ void lookup_sum(uint32_t v, const struct code_tables &t,
                                                  uint32_t c[2], uint32_t e[2])
{
    const uint32_t f = v ^ 0x88888888u;
    c[0] = kg_permute_signed(t.low[0], t.low[1], v);
    c[1] = kg_permute_signed(t.low[0], t.low[1], v >> 16);
    e[0] = kg_permute_signed(t.high[0], t.high[1], f);
    e[1] = kg_permute_signed(t.high[0], t.high[1], f >> 16);
}

/* The four codes of two bytes. */
static __device__ __forceinline__ void
lookup_pair(uint32_t v, const struct code_tables &t, uint32_t *c, uint32_t *e)
{
    *c = kg_permute_signed(t.low[0], t.low[1], v);
    *e = kg_permute_signed(t.high[0], t.high[1], v ^ 0x8888u);
}

/* IQ4: entries 0..7, and 1 more than entries 8..15. */
#define IQ4_SPLIT 0xbfad9881u, 0xf6eaddcfu, 0x271a0e02u, 0x725a4636u
/* E2M1: c = -1 - v for the positive codes, e = -v for the negative ones: -(v + 1) in all. */
#define E2M1_SPLIT 0xfcfdfeffu, 0xf3f7f9fbu, 0x03020100u, 0x0c080604u

#define READER(format, map, extra, offset, negated)                                      \
    using F = format;                                                                    \
    enum { MAP = map, EXTRA = extra, OFFSET = offset, NEGATED = negated }

struct read_base {
    static __device__ __forceinline__ struct code_tables tables(void)
    {
        struct code_tables none = {};
        return none;
    }
    enum { ZERO_TAIL = 0 };
};

#define TABLES(...)                                                                      \
    static __device__ __forceinline__ struct code_tables tables(void)                    \
    {                                                                                    \
        return make_tables(__VA_ARGS__);                                                 \
    }

#define CODES                                                                            \
    static __device__ __forceinline__ void codes(                                        \
        const uint8_t *smem, const int *at, const int *off, int w, int t,                \
        const struct code_tables &tables, uint32_t c[4][2], uint32_t e[4][2])

#define SCALES                                                                           \
    static __device__ __forceinline__ void scales(const uint8_t *smem, const int *at,    \
                                                  const int *off, int w, int t,          \
                                                  float a[2], float *b)

/* An integer 0 <= v < 2^23 as f32: the conversion instruction is slower than this. */
static __device__ __forceinline__ float small_float(uint32_t v)
{
    return __uint_as_float(0x4b000000u | v) - 8388608.0f;
}

/* Scale and minimum of unit t of the half from the 16 bytes d, dmin, scales of Q4_K and Q5_K,
   at a multiple of 16. */
static __device__ __forceinline__ void super_scales(const uint8_t *head, int half, int t,
                                                    float a[2], float *b)
{
    const uint32_t halves = kg_load_u32(head);
    const uint32_t x = head[4 + t], y = head[8 + t];
    uint32_t sc = x & 63u, m = y & 63u;
    if (half) {
        const uint32_t z = head[12 + t];
        sc = (z & 15u) | x >> 6 << 4;
        m = z >> 4 | y >> 6 << 4;
    }
    a[0] = kg_half_to_f32(kg_half_from_bits((uint16_t)halves)) * small_float(sc);
    *b = -(kg_half_to_f32(kg_half_from_bits((uint16_t)(halves >> 16))) * small_float(m));
}

/* ue4m3_half (codes.h) of bits 0..7 and 8..15: seven bits of a code are those of a half that is 2^7
   too small, subnormal or not, and all eight tell 0x7f, which is 0, from 0xff. */
static __device__ __forceinline__ void micro_scales(uint32_t pair, float a[2])
{
    const uint32_t codes = __byte_perm(pair, 0u, 0x1404) >> 1, nan = 0x3f803f80u;
    const uint32_t v = kg_hmul2(codes & 0x3f803f80u, 0x58005800u /* 128 */);
    const uint32_t both = kg_hmul2(v, kg_unequal_half2(codes, nan));
    a[0] = kg_half_to_f32(kg_half_from_bits((uint16_t)both));
    a[1] = kg_half_to_f32(kg_half_from_bits((uint16_t)(both >> 16)));
}

#define ONE_PLANE(bytes)                                                                 \
    enum { PLANES = 1 };                                                                 \
    static __device__ __host__ constexpr int plane_bytes(int)                            \
    {                                                                                    \
        return bytes;                                                                    \
    }

/* The scales as the format unpacks them; its codes are not used and cost nothing. */
#define FORMAT_SCALES(block, part)                                                       \
    SCALES                                                                               \
    {                                                                                    \
        struct unit32 u;                                                                 \
        F::unpack(smem + at[0] + off[0] + F::BYTES * (block), part, &u);                 \
        a[0] = u.a[0];                                                                   \
        (void)b;                                                                         \
        (void)w;                                                                         \
        (void)t;                                                                         \
    }

static __device__ __forceinline__ void nibbles(uint32_t v, uint32_t c[2])
{
    c[0] = v & 0x0f0f0f0fu;
    c[1] = v >> 4 & 0x0f0f0f0fu;
}

/* Eight codes of an even unit in the low nibbles, of the next one in the high. */
static __device__ __forceinline__ void nibble_pair(uint2 v, uint32_t c[2][2])
{
    c[0][0] = v.x & 0x0f0f0f0fu;
    c[0][1] = v.y & 0x0f0f0f0fu;
    c[1][0] = v.x >> 4 & 0x0f0f0f0fu;
    c[1][1] = v.y >> 4 & 0x0f0f0f0fu;
}

struct read_q4_0 : read_base {
    READER(fmt_q4_0, MAP_HALVES, 0, -8, 0);
    ONE_PLANE(576)
    FORMAT_SCALES(4 * w + t, 0)
    CODES
    {
        (void)e;
        (void)tables;
        const int b = at[0] + 72 * w + 4 * t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            nibbles(word_any(smem, b, off[0] + 18 * u + 2), c[u]);
    }
};

struct read_q8_0 : read_base {
    READER(fmt_q8_0, MAP_HALVES, 0, 0, 0);
    ONE_PLANE(1088)
    FORMAT_SCALES(4 * w + t, 0)
    CODES
    {
        (void)e;
        (void)tables;
        const int b = at[0] + 136 * w + 4 * t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            for (int i = 0; i < 2; i++)
                c[u][i] = word_any(smem, b, off[0] + 34 * u + 2 + 16 * i);
    }
};

/* Two bits, and the third in another word at the unit's number in the block. */
struct read_q3_k : read_base {
    READER(fmt_q3_k, MAP_HALVES, 0, -4, 0);
    ONE_PLANE(440)
    /* Two scales of six bits in the bytes of one word: low nibbles, and two bits on top. */
    SCALES
    {
        const uint8_t *p = smem + at[0] + 110 * (w >> 1) + off[0];
        const int half = w & 1;
        const uint32_t low = kg_load_u16(p + 96 + 2 * t);
        const uint32_t high = kg_load_u16(p + 104 + 2 * (t & 1));
        const uint32_t v = (low >> 4 * half & 0x0f0fu) |
                           (high >> (4 * half + 2 * (t >> 1)) & 0x0303u) << 4;
        a[0] = __uint_as_float(__byte_perm(v, 0x4b000000u, 0x7440)) - 8388640.0f;
        a[1] = __uint_as_float(__byte_perm(v, 0x4b000000u, 0x7441)) - 8388640.0f;
        *b = load_half(p + 108);
    }
    CODES
    {
        (void)tables;
        (void)e;
        const int half = w & 1, high = at[0] + 110 * (w >> 1) + 4 * t;
        const int low = high + 32 * half;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t q = word_any(smem, low, off[0] + 32 + 16 * i);
            const uint32_t h = word_any(smem, high, off[0] + 16 * i);
            for (int u = 0; u < 4; u++) {
                const int place = 4 * half + u;
                const uint32_t bit = place < 2 ? h << (2 - place) : h >> (place - 2);
                c[u][i] = (q >> 2 * u & 0x03030303u) | (bit & 0x04040404u);
            }
        }
    }
};

struct read_q4_k : read_base {
    READER(fmt_q4_k, MAP_RUN, 0, 0, 0);
    ONE_PLANE(576)
    SCALES
    {
        super_scales(smem + at[0] + 144 * (w >> 1) + off[0], w & 1, t, a, b);
    }
    CODES
    {
        (void)e;
        (void)tables;
        const int b = at[0] + 144 * (w >> 1) + 64 * (w & 1) + 8 * t;
#pragma unroll
        for (int pair = 0; pair < 2; pair++)
            nibble_pair(kg_load_uint2(smem + b + off[0] + 16 + 32 * pair), c + 2 * pair);
    }
};

/* The fifth bit of unit u of this half is brought to place 4 + u of its byte. */
struct read_q5_k : read_base {
    READER(fmt_q5_k, MAP_RUN, 0, 0, 0);
    ONE_PLANE(704)
    SCALES
    {
        super_scales(smem + at[0] + 176 * (w >> 1) + off[0], w & 1, t, a, b);
    }
    CODES
    {
        (void)e;
        (void)tables;
        const int half = w & 1, high = at[0] + 176 * (w >> 1) + 8 * t;
        const int low = high + 64 * half;
        uint2 h = kg_load_uint2(smem + high + off[0] + 16);
        h.x <<= half ? 0 : 4;
        h.y <<= half ? 0 : 4;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            nibble_pair(kg_load_uint2(smem + low + off[0] + 48 + 32 * pair),
                        c + 2 * pair);
            c[2 * pair][0] |= h.x >> 2 * pair & 0x10101010u;
            c[2 * pair][1] |= h.y >> 2 * pair & 0x10101010u;
            c[2 * pair + 1][0] |= h.x >> (2 * pair + 1) & 0x10101010u;
            c[2 * pair + 1][1] |= h.y >> (2 * pair + 1) & 0x10101010u;
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
    SCALES
    {
        (void)b;
        const uint8_t *p = smem + at[0] + 210 * (w >> 1) + off[0];
        const float d = load_half(p + 208);
        const int pair = kg_load_u16(p + 192 + 8 * (w & 1) + 2 * t);
        a[0] = d * (float)(int)(int8_t)pair;
        a[1] = d * (float)(int)(int8_t)(pair >> 8);
    }
    CODES
    {
        (void)e;
        (void)tables;
        const int half = w & 1, block = at[0] + 210 * (w >> 1) + 4 * t;
        const int low = block + 64 * half, high = block + 32 * half;
#pragma unroll
        for (int i = 0; i < 2; i++)
            q6_codes(word_any(smem, low, off[0] + 16 * i),
                     word_any(smem, low, off[0] + 32 + 16 * i),
                     word_any(smem, high, off[0] + 128 + 16 * i), i, c);
    }
};

struct read_iq4_xs : read_base {
    READER(fmt_iq4_xs, MAP_NIBBLES, 1, 0, 0);
    ONE_PLANE(544)
    FORMAT_SCALES(w >> 1, 4 * (w & 1) + t)
    TABLES(IQ4_SPLIT)
    CODES
    {
        const int b = at[0] + 136 * (w >> 1) + 64 * (w & 1) + 4 * t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            lookup_sum(word(smem, b, off[0] + 8 + 16 * u), tables, c[u], e[u]);
    }
};

struct read_mxfp4 : read_base {
    READER(fmt_mxfp4, MAP_NIBBLES, 1, 1, 1);
    ONE_PLANE(544)
    FORMAT_SCALES(4 * w + t, 0)
    TABLES(E2M1_SPLIT)
    CODES
    {
        const int b = at[0] + 68 * w + 4 * t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            lookup_sum(word_any(smem, b, off[0] + 17 * u + 1), tables, c[u], e[u]);
    }
};

struct read_nvfp4 : read_base {
    READER(fmt_nvfp4, MAP_PAIRS, 1, 1, 1);
    ONE_PLANE(576)
    SCALES
    {
        (void)b;
        const uint32_t pair =
            kg_load_u16(smem + at[0] + 72 * w + 36 * (t >> 1) + 2 * (t & 1) + off[0]);
        micro_scales(pair, a);
    }
    TABLES(E2M1_SPLIT)
    CODES
    {
        const uint8_t *b = smem + at[0] + 72 * w + 2 * t + off[0];
#pragma unroll
        for (int u = 0; u < 4; u++)
            for (int i = 0; i < 2; i++)
                lookup_pair(kg_load_u16(b + 36 * (u >> 1) + 4 + 16 * (u & 1) + 8 * i),
                            tables, &c[u][i], &e[u][i]);
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
    SCALES
    {
        (void)b;
        a[0] = load_half(smem + at[1] + 8 * w + 2 * t + off[1]);
    }
    CODES
    {
        (void)e;
        (void)tables;
        const int b = at[0] + 64 * w + 4 * t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            nibbles(word(smem, b, off[0] + 16 * u), c[u]);
    }
};

struct split_nvfp4 : read_base {
    READER(fmt_nvfp4, MAP_PAIRS, 1, 1, 1);
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : 64;
    }
    SCALES
    {
        (void)b;
        const uint32_t pair = kg_load_u16(smem + at[1] + 8 * w + 2 * t + off[1]);
        micro_scales(pair, a);
    }
    TABLES(E2M1_SPLIT)
    CODES
    {
        const uint8_t *b = smem + at[0] + 64 * w + 2 * t + off[0];
#pragma unroll
        for (int u = 0; u < 4; u++)
            for (int i = 0; i < 2; i++)
                lookup_pair(kg_load_u16(b + 16 * u + 8 * i), tables, &c[u][i], &e[u][i]);
    }
};

struct split_q4_k : read_base {
    READER(fmt_q4_k, MAP_RUN, 0, 0, 0);
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : 64;
    }
    SCALES
    {
        super_scales(smem + at[1] + 16 * (w >> 1) + off[1], w & 1, t, a, b);
    }
    CODES
    {
        (void)e;
        (void)tables;
        const int b = at[0] + 64 * w + 8 * t;
#pragma unroll
        for (int pair = 0; pair < 2; pair++)
            nibble_pair(kg_load_uint2(smem + b + off[0] + 32 * pair), c + 2 * pair);
    }
};

struct split_q6_k : read_base {
    READER(fmt_q6_k, MAP_HALVES, 0, -32, 0);
    enum { PLANES = 4 };
    static __device__ __host__ constexpr int plane_bytes(int i)
    {
        return i == 0 ? 512 : i == 1 ? 256 : i == 2 ? 64 : 8;
    }
    SCALES
    {
        (void)b;
        const float d = load_half(smem + at[3] + 2 * (w >> 1) + off[3]);
        const int pair = kg_load_u16(smem + at[2] + 8 * w + 2 * t + off[2]);
        a[0] = d * (float)(int)(int8_t)pair;
        a[1] = d * (float)(int)(int8_t)(pair >> 8);
    }
    CODES
    {
        (void)e;
        (void)tables;
        const int low = at[0] + 64 * w + 4 * t, high = at[1] + 32 * w + 4 * t;
#pragma unroll
        for (int i = 0; i < 2; i++)
            q6_codes(word(smem, low, off[0] + 16 * i),
                     word(smem, low, off[0] + 32 + 16 * i),
                     word(smem, high, off[1] + 16 * i), i, c);
    }
};

#endif
