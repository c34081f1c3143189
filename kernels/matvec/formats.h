/*
 * The quantized types: how one unit of 32 weights is unpacked. One struct a type:
 *
 *   TYPE     its number in files        BLOCK, BYTES  weights and bytes of a block
 *   ALIGN    bytes that a block's address is a multiple of when the tensor's is: loads
 *            are no wider than that, so none leaves the block
 *   GROUP    weights under one scale, of those in a unit: 16 or 32 (unit.h)
 *   MINIMUM  whether the scale comes with a minimum
 *   SCALED   whether a dot times its group's scale is exact, and in range with any d (unit.h)
 *   QUADS    whether four units are folded at once (unit.h)
 *   unpack   unit `part` (0 .. BLOCK/32 - 1) of the block at p
 *
 * A block's fields are named by byte offset; all are little-endian.
 */
#ifndef KGATE_KERNELS_MATVEC_FORMATS_H
#define KGATE_KERNELS_MATVEC_FORMATS_H

#include "kernels/matvec/codes.h"
#include "kernels/matvec/iq3s_grid.h"
#include "kernels/matvec/unit.h"
#include "kgate/types.h"

#define FORMAT_TRAITS(type, block, bytes, align, group, minimum, quads)                  \
    enum {                                                                               \
        TYPE = type,                                                                     \
        BLOCK = block,                                                                   \
        BYTES = bytes,                                                                   \
        ALIGN = align,                                                                   \
        GROUP = group,                                                                   \
        MINIMUM = minimum,                                                               \
        QUADS = quads,                                                                   \
        SCALED = type == KG_TYPE_NVFP4                                                   \
    };                                                                                   \
    static_assert(block % KG_UNIT == 0 && bytes % align == 0, "block layout")

/* Sixteen bytes at p, any multiple of 2. */
static __device__ inline void load16_a2(const uint8_t *p, uint32_t v[4])
{
    for (int i = 0; i < 4; i++)
        v[i] = kg_load_u32_a2(p + 4 * i);
}

/* Sixteen bytes at p, a multiple of 4. */
static __device__ inline void load16_a4(const uint8_t *p, uint32_t v[4])
{
    for (int i = 0; i < 4; i++)
        v[i] = kg_load_u32(p + 4 * i);
}

/* Sixteen bytes at p, a multiple of 16. */
static __device__ inline void load16(const uint8_t *p, uint32_t v[4])
{
    uint4 t = kg_load_uint4(p);
    v[0] = t.x;
    v[1] = t.y;
    v[2] = t.z;
    v[3] = t.w;
}

/* Nibbles of 16 bytes: element j low, element j + 16 high. */
static __device__ inline void split_nibbles(const uint32_t v[4], uint32_t c[8])
{
    for (int i = 0; i < 4; i++) {
        c[i] = v[i] & 0x0f0f0f0fu;
        c[i + 4] = v[i] >> 4 & 0x0f0f0f0fu;
    }
}

/* d 0, qs 2 */
struct fmt_q4_0 {
    FORMAT_TRAITS(KG_TYPE_Q4_0, 32, 18, 2, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        uint32_t v[4];
        load16_a2(p + 2, v);
        split_nibbles(v, u->c);
        for (int i = 0; i < 8; i++)
            u->c[i] = bytes_minus(u->c[i], 8);
        u->a[0] = load_half(p);
    }
};

/* d 0, m 2, qs 4 */
struct fmt_q4_1 {
    FORMAT_TRAITS(KG_TYPE_Q4_1, 32, 20, 4, 32, 1, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        uint32_t v[4];
        load16_a4(p + 4, v);
        split_nibbles(v, u->c);
        u->a[0] = load_half(p);
        u->b[0] = load_half(p + 2);
    }
};

/* d 0, qh 2, qs 6 */
struct fmt_q5_0 {
    FORMAT_TRAITS(KG_TYPE_Q5_0, 32, 22, 2, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        uint32_t v[4], qh = kg_load_u32_a2(p + 2);
        load16_a2(p + 6, v);
        split_nibbles(v, u->c);
        for (int i = 0; i < 8; i++)
            u->c[i] = bytes_minus(u->c[i] | spread_bits(qh >> 4 * i) << 4, 16);
        u->a[0] = load_half(p);
    }
};

/* d 0, m 2, qh 4, qs 8 */
struct fmt_q5_1 {
    FORMAT_TRAITS(KG_TYPE_Q5_1, 32, 24, 4, 32, 1, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        uint32_t v[4], qh = kg_load_u32(p + 4);
        load16_a4(p + 8, v);
        split_nibbles(v, u->c);
        for (int i = 0; i < 8; i++)
            u->c[i] |= spread_bits(qh >> 4 * i) << 4;
        u->a[0] = load_half(p);
        u->b[0] = load_half(p + 2);
    }
};

/* d 0, qs 2 */
struct fmt_q8_0 {
    FORMAT_TRAITS(KG_TYPE_Q8_0, 32, 34, 2, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        load16_a2(p + 2, u->c);
        load16_a2(p + 18, u->c + 4);
        u->a[0] = load_half(p);
    }
};

/* scales 0, qs 16, d 80, dmin 82. 128 weights to 32 bytes of two-bit codes. */
struct fmt_q2_k {
    FORMAT_TRAITS(KG_TYPE_Q2_K, 256, 84, 4, 16, 1, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        const uint8_t *qs = p + 16 + 32 * (part >> 2);
        const float d = load_half(p + 80), dmin = load_half(p + 82);
        load16_a4(qs, u->c);
        load16_a4(qs + 16, u->c + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = u->c[i] >> 2 * (part & 3) & 0x03030303u;
        for (int g = 0; g < 2; g++) {
            int sc = p[2 * part + g];
            u->a[g] = d * (float)(sc & 15);
            u->b[g] = -(dmin * (float)(sc >> 4));
        }
    }
};

/* hmask 0, qs 32, scales 96, d 108. The third bit of unit i is bit i of hmask. */
struct fmt_q3_k {
    FORMAT_TRAITS(KG_TYPE_Q3_K, 256, 110, 2, 16, 0, 1);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        const uint8_t *qs = p + 32 + 32 * (part >> 2);
        const float d = load_half(p + 108);
        uint32_t high[8];
        load16_a2(p, high);
        load16_a2(p + 16, high + 4);
        load16_a2(qs, u->c);
        load16_a2(qs + 16, u->c + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = bytes_minus((u->c[i] >> 2 * (part & 3) & 0x03030303u) |
                                      (high[i] >> part & 0x01010101u) << 2,
                                  4);
        u->d = d;
        for (int g = 0; g < 2; g++) {
            u->sc[g] = q3_scale(p + 96, 2 * part + g) - 32;
            u->a[g] = d * (float)u->sc[g];
        }
    }
};

/* d 0, dmin 2, scales 4, qs 16. Units 2i and 2i+1 share 32 bytes, low nibbles first. */
struct fmt_q4_k {
    FORMAT_TRAITS(KG_TYPE_Q4_K, 256, 144, 16, 32, 1, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        const uint8_t *qs = p + 16 + 32 * (part >> 1);
        int sc, m;
        load16(qs, u->c);
        load16(qs + 16, u->c + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = u->c[i] >> 4 * (part & 1) & 0x0f0f0f0fu;
        k_scale_min(p + 4, part, &sc, &m);
        u->a[0] = load_half(p) * (float)sc;
        u->b[0] = -(load_half(p + 2) * (float)m);
    }
};

/* d 0, dmin 2, scales 4, qh 16, qs 48. The fifth bit of unit i is bit i of qh. */
struct fmt_q5_k {
    FORMAT_TRAITS(KG_TYPE_Q5_K, 256, 176, 16, 32, 1, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        const uint8_t *qs = p + 48 + 32 * (part >> 1);
        uint32_t high[8];
        int sc, m;
        load16(p + 16, high);
        load16(p + 32, high + 4);
        load16(qs, u->c);
        load16(qs + 16, u->c + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = (u->c[i] >> 4 * (part & 1) & 0x0f0f0f0fu) |
                      (high[i] >> part & 0x01010101u) << 4;
        k_scale_min(p + 4, part, &sc, &m);
        u->a[0] = load_half(p) * (float)sc;
        u->b[0] = -(load_half(p + 2) * (float)m);
    }
};

/* ql 0, qh 128, scales 192, d 208. Of 128 weights, units 0 and 2 take the low and high
   nibbles of the first 32 bytes of ql, units 1 and 3 those of the second. */
struct fmt_q6_k {
    FORMAT_TRAITS(KG_TYPE_Q6_K, 256, 210, 2, 16, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        const int half = part >> 2, quarter = part & 3;
        const uint8_t *ql = p + 64 * half + 32 * (quarter & 1);
        const uint8_t *qh = p + 128 + 32 * half;
        const float d = load_half(p + 208);
        uint32_t high[8];
        load16_a2(ql, u->c);
        load16_a2(ql + 16, u->c + 4);
        load16_a2(qh, high);
        load16_a2(qh + 16, high + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = bytes_minus((u->c[i] >> 4 * (quarter >> 1) & 0x0f0f0f0fu) |
                                      (high[i] >> 2 * quarter & 0x03030303u) << 4,
                                  32);
        for (int g = 0; g < 2; g++)
            u->a[g] = d * (float)(int8_t)p[192 + 2 * part + g];
    }
};

/* d 0, qs 2 */
struct fmt_iq4_nl {
    FORMAT_TRAITS(KG_TYPE_IQ4_NL, 32, 18, 2, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        uint32_t v[4];
        load16_a2(p + 2, v);
        for (int i = 0; i < 4; i++)
            lookup16(v[i], IQ4_TABLE, &u->c[i], &u->c[i + 4]);
        u->a[0] = load_half(p);
    }
};

/* d 0, scales_h 2, scales_l 4, qs 8 */
struct fmt_iq4_xs {
    FORMAT_TRAITS(KG_TYPE_IQ4_XS, 256, 136, 8, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        int low = p[4 + (part >> 1)] >> 4 * (part & 1) & 15;
        int high = kg_load_u16(p + 2) >> 2 * part & 3;
        for (int i = 0; i < 2; i++) {
            uint2 v = kg_load_uint2(p + 8 + 16 * part + 8 * i);
            lookup16(v.x, IQ4_TABLE, &u->c[2 * i], &u->c[2 * i + 4]);
            lookup16(v.y, IQ4_TABLE, &u->c[2 * i + 1], &u->c[2 * i + 5]);
        }
        u->a[0] = load_half(p) * (float)((low | high << 4) - 32);
    }
};

/* d 0, qs 2, qh 66, signs 74, scales 106. Word i of a unit is one entry of the codebook,
   its index byte i of the unit's eight in qs with bit i of its qh on top. */
struct fmt_iq3_s {
    FORMAT_TRAITS(KG_TYPE_IQ3_S, 256, 110, 2, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        const int nibble = p[106 + (part >> 1)] >> 4 * (part & 1) & 15;
        const uint32_t signs = kg_load_u32_a2(p + 74 + 4 * part);
        for (int i = 0; i < 8; i++) {
            int index = p[2 + 8 * part + i] | (p[66 + part] >> i & 1) << 8;
            uint32_t minus = spread_bits(signs >> 4 * i);
            /* two's complement a byte: magnitudes are odd, so the + 1 never carries */
            u->c[i] = (iq3s_grid[index] ^ minus * 255u) + minus;
        }
        u->a[0] = load_half(p) * (float)(1 + 2 * nibble);
    }
};

/* e 0, qs 1. Codes are twice the E2M1 value, the scale half of E8M0's. */
struct fmt_mxfp4 {
    FORMAT_TRAITS(KG_TYPE_MXFP4, 32, 17, 1, 32, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int, struct unit32 *u)
    {
        for (int i = 0; i < 4; i++)
            lookup16(kg_load_u32_a1(p + 1 + 4 * i), E2M1_TABLE, &u->c[i], &u->c[i + 4]);
        u->a[0] = e8m0_half(p[0]);
    }
};

/* d 0 (four UE4M3 scales), qs 4. Each 16 weights have eight bytes, element j low and
   j + 8 high. Codes are twice the E2M1 value, scales half of UE4M3's. */
struct fmt_nvfp4 {
    FORMAT_TRAITS(KG_TYPE_NVFP4, 64, 36, 4, 16, 0, 0);
    static __device__ inline void unpack(const uint8_t *p, int part, struct unit32 *u)
    {
        for (int g = 0; g < 2; g++) {
            const uint8_t *qs = p + 4 + 16 * part + 8 * g;
            uint32_t *c = u->c + 4 * g;
            lookup16(kg_load_u32(qs), E2M1_TABLE, &c[0], &c[2]);
            lookup16(kg_load_u32(qs + 4), E2M1_TABLE, &c[1], &c[3]);
            u->a[g] = ue4m3_half(p[2 * part + g]);
        }
    }
};

/* Unit u of the row of blocks at `row`. */
template <class T>
static __device__ inline void unpack_unit(const uint8_t *row, int64_t u,
                                          struct unit32 *out)
{
    const int parts = T::BLOCK / KG_UNIT;
    T::unpack(row + u / parts * T::BYTES, (int)(u % parts), out);
}

/* Plain types: one value each, at element k. */
struct fmt_f32 {
    enum { TYPE = KG_TYPE_F32, BYTES = 4, ALIGN = 4 };
    static __device__ inline float load(const uint8_t *row, int64_t k)
    {
        return __uint_as_float(kg_load_u32(row + 4 * k));
    }
};

struct fmt_f16 {
    enum { TYPE = KG_TYPE_F16, BYTES = 2, ALIGN = 2 };
    static __device__ inline float load(const uint8_t *row, int64_t k)
    {
        return load_half(row + 2 * k);
    }
};

struct fmt_bf16 {
    enum { TYPE = KG_TYPE_BF16, BYTES = 2, ALIGN = 2 };
    static __device__ inline float load(const uint8_t *row, int64_t k)
    {
        return __uint_as_float((uint32_t)kg_load_u16(row + 2 * k) << 16);
    }
};

#endif
