/*
 * Where a tile of weights comes from: how each type and layout is copied to shared memory
 * and unpacked there.
 *
 * A source has one or two streams. Stream s holds, for each row of w, row_bytes[s] bytes,
 * of which a slab of SLAB weights takes SLAB_BYTES(s). The copy of a slab to shared memory
 * is made of whole 16-byte chunks; where the stream's slabs are not aligned to 16, the
 * copy starts up to 15 bytes early and the slab is found at `at` inside it.
 *
 *   SLAB        weights of a row that are copied together: a multiple of 64 and of BLOCK
 *   STREAMS     1 or 2
 *   slab_bytes  of stream s;  align  what slab addresses of stream s are a multiple of
 *   unpack      unit `part` of a slab, from its bytes at p0 (and p1), to unit32 (unit.h)
 *
 * Blocks with 2-byte alignment are read by aligned words and shifts, because a row of them
 * would otherwise take sixteen loads of 2 bytes; the bits are those of formats.h.
 */
#ifndef KGATE_KERNELS_GEMM_SOURCE_H
#define KGATE_KERNELS_GEMM_SOURCE_H

#include "kernels/matvec/formats.h"

/* N words at p, a multiple of 2; reads up to 2 bytes past them. */
template <int N>
static __device__ inline void load_words(const uint8_t *p, uint32_t v[N])
{
    const uint32_t shift = (uint32_t)((uintptr_t)p & 2) * 8;
    const uint8_t *from = p - ((uintptr_t)p & 2);
    uint32_t low = kg_load_u32(from);
    for (int i = 0; i < N; i++) {
        const uint32_t high = kg_load_u32(from + 4 * i + 4);
        v[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

/* Blocks as files have them. */
template <class T, int SLAB_>
struct from_blocks {
    typedef T format;
    enum { SLAB = SLAB_, STREAMS = 1 };
    static_assert(SLAB % T::BLOCK == 0 && SLAB % 64 == 0, "slab of whole blocks");
    static constexpr __host__ __device__ int slab_bytes(int)
    {
        return SLAB / T::BLOCK * T::BYTES;
    }
    static constexpr __host__ __device__ int align(int)
    {
        return T::ALIGN;
    }
    static __device__ inline void unpack(const uint8_t *p, const uint8_t *, int part,
                                         struct unit32 *u)
    {
        T::unpack(p + part / (T::BLOCK / 32) * T::BYTES, part % (T::BLOCK / 32), u);
    }
};

template <>
inline __device__ void from_blocks<fmt_q8_0, 128>::unpack(const uint8_t *p,
                                                          const uint8_t *, int part,
                                                          struct unit32 *u)
{
    p += 34 * part;
    load_words<8>(p + 2, u->c);
    u->a[0] = load_half(p);
}

static __device__ inline void q4_0_codes(const uint8_t *p, uint32_t c[8])
{
    uint32_t v[4];
    load_words<4>(p, v);
    split_nibbles(v, c);
    for (int i = 0; i < 8; i++)
        c[i] = bytes_minus(c[i], 8);
}

template <>
inline __device__ void from_blocks<fmt_q4_0, 256>::unpack(const uint8_t *p,
                                                          const uint8_t *, int part,
                                                          struct unit32 *u)
{
    p += 18 * part;
    q4_0_codes(p + 2, u->c);
    u->a[0] = load_half(p);
}

template <>
inline __device__ void from_blocks<fmt_q6_k, 256>::unpack(const uint8_t *p,
                                                          const uint8_t *, int part,
                                                          struct unit32 *u)
{
    const int half = part >> 2, quarter = part & 3;
    const float d = load_half(p + 208);
    uint32_t low[8], high[8];
    load_words<8>(p + 64 * half + 32 * (quarter & 1), low);
    load_words<8>(p + 128 + 32 * half, high);
    for (int i = 0; i < 8; i++)
        u->c[i] = bytes_minus((low[i] >> 4 * (quarter >> 1) & 0x0f0f0f0fu) |
                                  (high[i] >> 2 * quarter & 0x03030303u) << 4,
                              32);
    for (int g = 0; g < 2; g++)
        u->a[g] = d * (float)(int8_t)p[192 + 2 * part + g];
}

/* What CUTLASS's block-scaled GEMM takes (nvfp4.cu, pack): packed codes, even k in the low
   nibble, and scales in atoms of 128 rows x 4, which stay in global memory: p1 is the place
   of the row in the slab's first atom. */
struct from_cutlass {
    typedef fmt_nvfp4 format;
    enum { SLAB = 256, STREAMS = 1 };
    static constexpr __host__ __device__ int slab_bytes(int)
    {
        return 128;
    }
    static constexpr __host__ __device__ int align(int)
    {
        return 16;
    }
    static __device__ inline void unpack(const uint8_t *p0, const uint8_t *p1, int part,
                                         struct unit32 *u)
    {
        const uint4 v = kg_load_uint4(p0 + 16 * part);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        for (int i = 0; i < 4; i++) {
            uint32_t even, odd;
            lookup16(words[i], E2M1_TABLE, &even, &odd);
            u->c[2 * i] = __byte_perm(even, odd, 0x5140u);
            u->c[2 * i + 1] = __byte_perm(even, odd, 0x7362u);
        }
        for (int g = 0; g < 2; g++)
            u->a[g] = ue4m3_half(p1[part / 2 * 512 + part % 2 * 2 + g]);
    }
};

/* Split planes: first the codes of all blocks, then, at the next multiple of 16 bytes, the
   scales of all blocks. A plane keeps the order of the blocks. */
template <class T>
struct from_planes;

/* 16 bytes of nibbles a block; 2 bytes of scale. */
template <>
struct from_planes<fmt_q4_0> {
    typedef fmt_q4_0 format;
    enum { SLAB = 256, STREAMS = 2 };
    static constexpr __host__ __device__ int slab_bytes(int s)
    {
        return s ? 16 : 128;
    }
    static constexpr __host__ __device__ int align(int s)
    {
        return s ? 2 : 16;
    }
    static __device__ inline void unpack(const uint8_t *p0, const uint8_t *p1, int part,
                                         struct unit32 *u)
    {
        q4_0_codes(p0 + 16 * part, u->c);
        u->a[0] = load_half(p1 + 2 * part);
    }
};

/* 32 bytes of nibbles a block of 64; 4 bytes of scales. */
template <>
struct from_planes<fmt_nvfp4> {
    typedef fmt_nvfp4 format;
    enum { SLAB = 256, STREAMS = 2 };
    static constexpr __host__ __device__ int slab_bytes(int s)
    {
        return s ? 16 : 128;
    }
    static constexpr __host__ __device__ int align(int s)
    {
        return s ? 4 : 16;
    }
    static __device__ inline void unpack(const uint8_t *p0, const uint8_t *p1, int part,
                                         struct unit32 *u)
    {
        for (int g = 0; g < 2; g++) {
            const uint2 v = kg_load_uint2(p0 + 16 * part + 8 * g);
            uint32_t *c = u->c + 4 * g;
            lookup16(v.x, E2M1_TABLE, &c[0], &c[2]);
            lookup16(v.y, E2M1_TABLE, &c[1], &c[3]);
            u->a[g] = ue4m3_half(p1[2 * part + g]);
        }
    }
};

#endif
