/*
 * The int8 GEMM for up to 16 tokens: the same arithmetic and the same bits as int8.h, in a
 * form whose work per byte of weights is small, because reading them is what takes the time.
 *
 * A warp has 16 rows and all 16 tokens, so its weights are nobody else's. They come through a
 * ring of its own, a step of two slabs at a time: one box of a tensor map where there is TMA
 * and rows start at multiples of 16 bytes, else cp.async. Only the activations are the
 * block's, four steps of them; a warp says when its share of the next step has landed and waits
 * for the others' of this one (split_barrier.h), so warps need not keep step.
 *
 * Issue and the traffic of shared memory limit it, so a thread reads no word of weights twice:
 * with t = lane % 4, its words of a row's unit are (fragment, element order in the tensor
 * core)
 *
 *   word t of the unit's codes,  word t + 4     k = 4t .., k = 16 + 4t ..
 *
 * except NVFP4: there a thread takes the eight codes in word t of the 16 packed bytes, that
 * is of group t / 2, and the activations are stored in that order. The product of one group is
 * the k32 product with the other group's activations at zero. Sums of integers have no order.
 *
 * Scales are unpacked once for the warp into shared memory.
 *
 * Launches overlap (overlap.h): weights are read before the launch ahead is complete.
 */
#ifndef KGATE_KERNELS_GEMM_NARROW_H
#define KGATE_KERNELS_GEMM_NARROW_H

#include "kernels/device/bits.h"
#include "kernels/device/mma_u8.h"
#include "kernels/device/overlap.h"
#include "kernels/device/split_barrier.h"
#include "kernels/gemm/int8.h"

/* Words t and t + 4 of unit `part` of a slab, from its bytes at p; table: its type's codebook. */
template <class S>
struct narrow_codes;

template <class T>
struct narrow_table {
    static __device__ inline void get(uint32_t *)
    {
    }
};
template <>
struct narrow_table<fmt_iq4_xs> {
    static __device__ inline void get(uint32_t table[4])
    {
        const uint32_t t[4] = {IQ4_TABLE};
        for (int i = 0; i < 4; i++)
            table[i] = kg_opaque(t[i]);
    }
};
template <>
struct narrow_table<fmt_nvfp4> {
    static __device__ inline void get(uint32_t table[4])
    {
        const uint32_t t[4] = {E2M1_TABLE};
        for (int i = 0; i < 4; i++)
            table[i] = kg_opaque(t[i]);
    }
};

static __device__ inline void narrow_lookup(uint32_t v, const uint32_t table[4],
                                            uint32_t c[2])
{
    lookup16(v, table[0], table[1], table[2], table[3], &c[0], &c[1]);
}

static __device__ inline void split_q4_0(uint32_t v, uint32_t c[2])
{
    c[0] = bytes_minus(v & 0x0f0f0f0fu, 8);
    c[1] = bytes_minus(v >> 4 & 0x0f0f0f0fu, 8);
}

template <>
struct narrow_codes<from_blocks<fmt_q4_0, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t,
                                       const uint32_t *, uint32_t c[2])
    {
        uint32_t v;
        load_words<1>(p + 18 * part + 2 + 4 * t, &v);
        split_q4_0(v, c);
    }
};

template <>
struct narrow_codes<from_planes<fmt_q4_0>> {
    static __device__ inline void load(const uint8_t *p, int part, int t,
                                       const uint32_t *, uint32_t c[2])
    {
        split_q4_0(kg_load_u32(p + 16 * part + 4 * t), c);
    }
};

template <>
struct narrow_codes<from_blocks<fmt_q6_k, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t,
                                       const uint32_t *, uint32_t c[2])
    {
        const int half = part >> 2, quarter = part & 3;
        for (int i = 0; i < 2; i++) {
            uint32_t low, high;
            load_words<1>(p + 64 * half + 32 * (quarter & 1) + 16 * i + 4 * t, &low);
            load_words<1>(p + 128 + 32 * half + 16 * i + 4 * t, &high);
            c[i] = bytes_minus((low >> 4 * (quarter >> 1) & 0x0f0f0f0fu) |
                                   (high >> 2 * quarter & 0x03030303u) << 4,
                               32);
        }
    }
};

template <>
struct narrow_codes<from_blocks<fmt_iq4_xs, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t,
                                       const uint32_t *table, uint32_t c[2])
    {
        narrow_lookup(kg_load_u32(p + 8 + 16 * part + 4 * t), table, c);
    }
};

template <>
struct narrow_codes<from_blocks<fmt_nvfp4, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t,
                                       const uint32_t *table, uint32_t c[2])
    {
        narrow_lookup(kg_load_u32(p + 36 * (part >> 1) + 4 + 16 * (part & 1) + 4 * t),
                      table, c);
    }
};

template <>
struct narrow_codes<from_planes<fmt_nvfp4>> {
    static __device__ inline void load(const uint8_t *p, int part, int t,
                                       const uint32_t *table, uint32_t c[2])
    {
        narrow_lookup(kg_load_u32(p + 16 * part + 4 * t), table, c);
    }
};

/* Scales and minima of the rows of a slab: opened once, then asked unit by unit, a[group]
   and b. */
template <class S>
struct narrow_scales {
    typedef typename S::format T;
    const uint8_t *p0, *p1;
    __device__ inline narrow_scales(const uint8_t *p0_, const uint8_t *p1_)
        : p0(p0_), p1(p1_)
    {
    }
    __device__ inline void get(int n, float a[2], float *b) const
    {
        struct unit32 u;
        S::unpack(p0, p1, n, &u); /* the codes are not used: no loads */
        a[0] = u.a[0];
        a[1] = u.a[T::GROUP == 16 ? 1 : 0];
        *b = T::MINIMUM ? u.b[0] : 0.0f;
    }
};

/* The eight pairs of six bits of a super-block: units 0 .. 3 have them in the low bits of
   words 0 (scale) and 1 (minimum); units 4 .. 7 have the low four bits in word 2 and the
   high two on top of words 0 and 1. */
struct narrow_k_scales {
    uint32_t sc[2], m[2], magic;
    float d, dmin;
    __device__ inline narrow_k_scales(const uint8_t *p, const uint8_t *)
    {
        const uint4 h = kg_load_uint4(p);
        magic = kg_opaque(0x4b000000u); /* 2^23 */
        d = kg_half_to_f32(kg_half_from_bits((uint16_t)h.x));
        dmin = -kg_half_to_f32(kg_half_from_bits((uint16_t)(h.x >> 16)));
        sc[0] = h.y & 0x3f3f3f3fu;
        sc[1] = (h.w & 0x0f0f0f0fu) | (h.y >> 2 & 0x30303030u);
        m[0] = h.z & 0x3f3f3f3fu;
        m[1] = (h.w >> 4 & 0x0f0f0f0fu) | (h.z >> 2 & 0x30303030u);
    }
    /* fl(scale * n) for byte n of four: 2^23 + n needs no conversion. */
    static __device__ inline float times(float scale, uint32_t bytes, int at,
                                         uint32_t magic)
    {
        const float n = __uint_as_float(__byte_perm(bytes, magic, 0x7540u | at));
        return fmaf(scale, n, -(scale * 0x1p23f));
    }
    __device__ inline void get(int n, float a[2], float *b) const
    {
        a[0] = a[1] = times(d, sc[n / 4], n % 4, magic);
        *b = times(dmin, m[n / 4], n % 4, magic);
    }
};

template <>
struct narrow_scales<from_blocks<fmt_q4_k, 256>> : narrow_k_scales {
    using narrow_k_scales::narrow_k_scales;
    /* the codes of odd units are 16 times too large (narrow_fragments) */
    __device__ inline void get(int n, float a[2], float *b) const
    {
        narrow_k_scales::get(n, a, b);
        if (n % 2)
            a[0] = times(d * 0.0625f, sc[n / 4], n % 4, magic);
    }
};

template <>
struct narrow_scales<from_blocks<fmt_q5_k, 256>> : narrow_k_scales {
    using narrow_k_scales::narrow_k_scales;
};

/* ue4m3_half (codes.h) of four codes at once: 0x7F becomes 0 and bit 7 goes, then the bits
   of a code are those of an f32 that is 2^119 too small. */
struct narrow_nvfp4_scales {
    uint32_t w[4];
    __device__ inline narrow_nvfp4_scales(const uint8_t *p, int pitch, int blocks = 4)
    {
        for (int i = 0; i < blocks; i++) {
            const uint32_t v = kg_load_u32(p + pitch * i);
            const uint32_t other =
                ((((v ^ 0x7f7f7f7fu) & 0x7f7f7f7fu) + 0x7f7f7f7fu) | v) & 0x80808080u;
            w[i] = v & (other - (other >> 7));
        }
    }
    __device__ inline void get(int n, float a[2], float *b) const
    {
        const uint32_t v = w[n / 2];
        for (int g = 0; g < 2; g++) {
            const int at = n % 2 * 2 + g;
            const uint32_t bits = at < 3 ? v << (20 - 8 * at) : v >> 4;
            a[g] = __uint_as_float(bits & 0x07f00000u) * 0x1p119f;
        }
        *b = 0.0f;
    }
};

template <>
struct narrow_scales<from_blocks<fmt_nvfp4, 256>> : narrow_nvfp4_scales {
    __device__ inline narrow_scales(const uint8_t *p, const uint8_t *)
        : narrow_nvfp4_scales(p, 36)
    {
    }
};

template <>
struct narrow_scales<from_planes<fmt_nvfp4>> : narrow_nvfp4_scales {
    __device__ inline narrow_scales(const uint8_t *, const uint8_t *p)
        : narrow_nvfp4_scales(p, 4)
    {
    }
};

/* The fragments of units part and part + 1 of 16 rows: low and high are the rows of the
   thread, row that of its address in ldmatrix (device/mma.h). */
template <class S>
struct narrow_fragments {
    static __device__ inline void load(const uint8_t *low, const uint8_t *high,
                                       const uint8_t *, int part, int t,
                                       const uint32_t *table, uint32_t a[2][4])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t c[2];
            narrow_codes<S>::load(low, part + i, t, table, c);
            a[i][0] = c[0];
            a[i][2] = c[1];
            narrow_codes<S>::load(high, part + i, t, table, c);
            a[i][1] = c[0];
            a[i][3] = c[1];
        }
    }
};

/* 34 part + 2 bytes behind p: which words those are in does not depend on the part if p is
   rounded to a word before it for odd parts, after it for even ones. */
template <>
struct narrow_fragments<from_blocks<fmt_q8_0, 128>> {
    static __device__ inline void row(const uint8_t *p, int part, int t, uint32_t *first,
                                      uint32_t *second)
    {
        p += 2 * (~part & 1);
        const uint32_t odd = (uint32_t)((uintptr_t)p & 2), shift = odd * 8;
        const uint8_t *words = p - odd + 34 * part + 2 * (part & 1) + 4 * t;
        *first = __funnelshift_r(kg_load_u32(words), kg_load_u32(words + 4), shift);
        *second =
            __funnelshift_r(kg_load_u32(words + 16), kg_load_u32(words + 20), shift);
    }
    static __device__ inline void load(const uint8_t *low, const uint8_t *high,
                                       const uint8_t *, int part, int t, const uint32_t *,
                                       uint32_t a[2][4])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            row(low, part + i, t, &a[i][0], &a[i][2]);
            row(high, part + i, t, &a[i][1], &a[i][3]);
        }
    }
};

/* Where 32 bytes have two units, aligned to 16. */
template <>
struct narrow_fragments<from_blocks<fmt_q4_k, 256>> {
    static __device__ inline void load(const uint8_t *, const uint8_t *,
                                       const uint8_t *row, int part, int,
                                       const uint32_t *, uint32_t a[2][4])
    {
        uint32_t v[4];
        kg_ldmatrix_x4(v, row + 16 + 16 * part);
        for (int i = 0; i < 4; i++) {
            a[0][i] = v[i] & 0x0f0f0f0fu;
            a[1][i] = v[i] & 0xf0f0f0f0u; /* unsigned, and the scale is a sixteenth */
        }
    }
};

template <>
struct narrow_fragments<from_blocks<fmt_q5_k, 256>> {
    static __device__ inline void load(const uint8_t *, const uint8_t *,
                                       const uint8_t *row, int part, int,
                                       const uint32_t *, uint32_t a[2][4])
    {
        uint32_t v[4], h[4];
        kg_ldmatrix_x4(v, row + 48 + 16 * part);
        kg_ldmatrix_x4(h, row + 16);
        for (int i = 0; i < 4; i++) {
            a[0][i] = (v[i] & 0x0f0f0f0fu) | (h[i] >> part & 0x01010101u) << 4;
            a[1][i] = (v[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> (part + 1) & 0x01010101u) << 4;
        }
    }
};

enum {
    NARROW_ROWS = 16, /* of a warp */
    NARROW_STAGES = 2,
    NARROW_X_STAGES = 4,
    NARROW_WARPS = 16,        /* at most in a block, one block a multiprocessor */
    NARROW_LIMIT = 227 * 1024 /* bytes of a block */
};

/* The weights of a warp: a ring of steps of two slabs of 16 rows. */
template <class S>
struct narrow_shape {
    enum {
        SLAB_UNITS = S::SLAB / 32,
        UNITS = 2 * SLAB_UNITS, /* of a step */
    };
    static constexpr __host__ __device__ int chunks(int s)
    {
        return (2 * S::slab_bytes(s) + (S::align(s) < 16 ? 16 - S::align(s) : 0) + 15) /
               16;
    }
    /* as gemm_shape's */
    static constexpr __host__ __device__ int pitch(int s)
    {
        return ((chunks(s) + (S::align(s) == 2 ? 1 : 0)) | 1) * 16;
    }
    enum {
        RAW0 = NARROW_ROWS * pitch(0),
        RAW = RAW0 + (S::STREAMS == 2 ? NARROW_ROWS * pitch(1) : 0),
    };
};

/* Shared memory of a form F: barriers, activations, and for each warp its ring and scales. */
template <class F>
struct narrow_memory {
    enum {
        RINGS_AT = 32, /* barriers of the rings; those of the activations are in front */
        X_AT = 384,
        WARPS_AT = X_AT + NARROW_X_STAGES * F::X_STAGE,
        RING = NARROW_STAGES * narrow_shape<typename F::source>::RAW,
        WARP = RING + (F::SCALES + 127) / 128 * 128,
        FIT = (NARROW_LIMIT - WARPS_AT) / WARP,
        MOST = FIT < NARROW_WARPS ? FIT : NARROW_WARPS, /* warps of a block */
    };
    static_assert(WARP % 128 == 0 && RING % 256 == 0 && WARPS_AT % 128 == 0,
                  "where boxes land");
    static constexpr __host__ __device__ int bytes(int warps)
    {
        return WARPS_AT + warps * WARP;
    }
};

/* Of the fragments of a warp, for gemm_store. */
struct narrow_tile {
    enum { MI = 1, NI = 2 };
};

/* Starts the copy of chunks FIRST and up of a step of 16 rows of stream ST: as many lanes a
   row as its chunks fill, then the rest. */
template <class S, int ST, int FIRST>
static __device__ inline void narrow_copy_rows(const uint8_t *from, uint32_t row_bytes,
                                               unsigned char *to)
{
    typedef narrow_shape<S> N;
    constexpr int left = N::chunks(ST) - FIRST;
    constexpr int width = left >= 16  ? 16
                          : left >= 8 ? 8
                          : left >= 4 ? 4
                          : left >= 2 ? 2
                                      : 1;
    constexpr int rows = 32 / width;
    const int lane = threadIdx.x % 32, r = lane / width;
    const int at = 16 * (FIRST + lane % width);
    if (rows <= NARROW_ROWS || r < NARROW_ROWS) {
        const uint8_t *p = from + (uint64_t)((uint32_t)r * row_bytes);
        unsigned char *const slot = to + (r * N::pitch(ST) + at);
#pragma unroll
        for (int j = 0; j < (NARROW_ROWS + rows - 1) / rows; j++) {
            const uint8_t *chunk = p;
            if (S::align(ST) < 16)
                chunk = (const uint8_t *)((uintptr_t)p & ~(uintptr_t)15);
            kg_cp_async_16(slot + j * rows * N::pitch(ST), chunk + at);
            p += rows * row_bytes;
        }
    }
    if constexpr (left > width)
        narrow_copy_rows<S, ST, FIRST + width>(from, row_bytes, to);
}

/* Starts the copy of the step at `slab` of 16 rows of stream ST. full: the row has the whole
   step. Rows past the end become zeros; bytes past the end of the tensor are not read. */
template <class S, int ST>
static __device__ inline void narrow_copy_stream(const gemm_int8_args &g,
                                                 unsigned char *to, int64_t row0,
                                                 int slab, bool full)
{
    typedef narrow_shape<S> N;
    constexpr int n = N::chunks(ST);
    const int64_t row_bytes = g.row_bytes[ST];
    const uint8_t *const from = g.w[ST] + (int64_t)slab * S::slab_bytes(ST);
    if (full && row0 + NARROW_ROWS < g.out) { /* what is too much lies in the next row */
        narrow_copy_rows<S, ST, 0>(from + row0 * row_bytes, (uint32_t)row_bytes, to);
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < NARROW_ROWS * n; i += 32) {
        const int r = i / n, chunk = i % n;
        const uint8_t *p = from + (row0 + r) * row_bytes;
        int left = 0;
        if (row0 + r < g.out) {
            if (S::align(ST) < 16)
                p = (const uint8_t *)((uintptr_t)p & ~(uintptr_t)15);
            const uint8_t *stop = g.w[ST] + (row0 + r + 1) * row_bytes;
            left = (int)min((int64_t)16, (int64_t)(stop - p) - 16 * chunk);
        } else {
            p = g.w[ST] - 16 * chunk;
        }
        kg_cp_async_16(to + r * N::pitch(ST) + 16 * chunk, p + 16 * chunk, max(0, left));
    }
}

/* The tensor map of the weights comes along where there is TMA (KG_SPLIT_BARRIER), one stream
   and rows that start at multiples of 16 bytes. */
struct narrow_args {
    gemm_int8_args g;
    alignas(64) unsigned char map[128];
    bool mapped;
};

/* Starts the copy of the step at `slab` of the warp's rows: it arrives at the barrier if the
   weights are mapped, else it belongs to the current group of cp.async. */
template <class S>
static __device__ inline void narrow_copy_w(const narrow_args &args, unsigned char *stage,
                                            int64_t row0, int slab, int slab1,
                                            uint64_t *barrier)
{
    typedef narrow_shape<S> N;
    const gemm_int8_args &g = args.g;
#if KG_SPLIT_BARRIER
    if (args.mapped) {
        if (threadIdx.x % 32 == 0) {
            kg_split_expect(barrier, N::RAW);
            kg_split_load_box(stage, args.map, slab * S::slab_bytes(0) / 16 * 8,
                              (int)row0, barrier);
        }
        return;
    }
#endif
    (void)barrier;
    const bool full = slab + 2 <= slab1 && (slab + 2) * N::SLAB_UNITS <= g.units;
    narrow_copy_stream<S, 0>(g, stage, row0, slab, full);
    if (S::STREAMS == 2)
        narrow_copy_stream<S, S::STREAMS - 1>(g, stage + N::RAW0, row0, slab, full);
}

/* The bytes of row r of the warp in a stage (stream ST). */
template <class S, int ST>
static __device__ inline const uint8_t *narrow_row(const gemm_int8_args &g,
                                                   const unsigned char *stage,
                                                   int64_t row0, int r, int slab)
{
    typedef narrow_shape<S> N;
    stage += (ST ? N::RAW0 : 0) + r * N::pitch(ST);
    if (S::align(ST) < 16)
        stage += ((uint32_t)(row0 + r) * (uint32_t)g.row_bytes[ST] +
                  (uint32_t)slab * (uint32_t)S::slab_bytes(ST)) %
                 16;
    return stage;
}

/* Which warps bring the activations: where the multiprocessor's four schedulers have not as
   many warps each, those of the schedulers that have fewer. */
struct narrow_bringers {
    int first, count; /* of this warp among them, 16 if it is none; all of them */
    __device__ inline narrow_bringers()
    {
        const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
        const int more = warps % 4, fewer = 4 - more;
        count = more && warps > 4 ? warps / 4 * fewer : warps;
        first = count == warps     ? warp
                : warp % 4 >= more ? warp / 4 * fewer + warp % 4 - more
                                   : 16;
    }
};

/* Where token t's scale lies among 16, so that the four of a thread are side by side. */
static __device__ inline int narrow_slot(int t)
{
    return (t & 6) << 1 | (t & 8) >> 2 | (t & 1);
}

/* What a thread reads of a slab: the scales of its rows, x and its address in ldmatrix, d and
   s of its tokens, and its rows (narrow_fragments). */
struct narrow_place {
    const float *scales;
    const unsigned char *x;
    const float *d;
    const uint8_t *low, *high, *matrix;
};

/* The int8 form of the law in int8.h. */
template <class S>
struct narrow_int8 {
    typedef S source;
    typedef typename S::format T;
    typedef narrow_shape<S> N;
    enum {
        SLAB_UNITS = N::SLAB_UNITS,
        UNITS = N::UNITS,
        GROUPS = 32 / T::GROUP,
        PERMUTED = (int)T::TYPE == (int)KG_TYPE_NVFP4,
        X_PITCH = 32 * UNITS + 16,
        X_BYTES = 16 * X_PITCH,
        D_BYTES = UNITS * 20 * 4, /* four words between units, for the banks */
        X_STAGE = X_BYTES + D_BYTES * (T::MINIMUM ? 2 : 1),
        A_WORDS = SLAB_UNITS * GROUPS * 16,                /* of a slab */
        B_WORDS = (T::MINIMUM ? SLAB_UNITS * 16 : 0) + 16, /* 16 for the banks */
        SCALES = 2 * 4 * (A_WORDS + B_WORDS),              /* of one warp */
    };
    uint32_t table[4];

    __device__ inline narrow_int8()
    {
        narrow_table<T>::get(table);
    }

    /* Starts the copy of one step of activations: those who bring them take the tokens in
       turn. Nothing is read of a token or unit that is not there. */
    static __device__ inline void copy_x(const gemm_int8_args &g, unsigned char *x,
                                         int unit0, const narrow_bringers &by)
    {
        const int lane = threadIdx.x % 32;
        const int units = min((int)UNITS, g.units - unit0);
        const int u = lane % UNITS; /* scales in the first lanes, sums in the others */
        const float *const scales = (T::MINIMUM && lane >= UNITS ? g.s : g.d) + u;
        unsigned char *const scales_to = x + (X_BYTES + lane / UNITS * D_BYTES + u * 80);
#pragma unroll 1
        for (int t = by.first; t < 16; t += by.count) {
            const int left = t < (int)g.m ? units : 0;
            const uint32_t at = (uint32_t)t * (uint32_t)g.units + (uint32_t)unit0;
            const int8_t *const q = g.q + (uint64_t)at * 32;
            unsigned char *const to = x + t * X_PITCH;
            if (PERMUTED) { /* words 0 1 4 5 2 3 6 7 of a unit, two at a time */
                const int p = lane % 4, place = lane - p + (p >> 1 | (p & 1) << 1);
#pragma unroll
                for (int j = 0; j < UNITS / 8; j++)
                    kg_cp_async_8(to + 256 * j + 8 * place, q + 256 * j + 8 * lane,
                                  lane / 4 + 8 * j < left ? 8 : 0);
            } else if (UNITS == 16 || lane < 2 * UNITS) {
                kg_cp_async_16(to + 16 * lane, q + 16 * lane, lane / 2 < left ? 16 : 0);
            }
            if (lane < UNITS * (T::MINIMUM ? 2 : 1))
                kg_cp_async_4(scales_to + 4 * narrow_slot(t), scales + at,
                              u < left ? 4 : 0);
        }
    }

    /* Units part and part + 1 of a slab, the second only if `both`. */
    static __device__ inline void pair(const narrow_place &at, const uint32_t *table,
                                       int part, bool both, float acc[2][4])
    {
        const int lane = threadIdx.x % 32, tig = lane % 4;
        uint32_t a[2][4];
        narrow_fragments<S>::load(at.low, at.high, at.matrix, part, tig, table, a);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (i == 1 && !both)
                break;
            const int u = part + i;
            uint32_t b[GROUPS][4];
            kg_ldmatrix_x4(b[0], at.x + u * 32);
            if (PERMUTED) {
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    b[GROUPS - 1][r] = tig < 2 ? 0u : b[0][r];
                    b[0][r] = tig < 2 ? b[0][r] : 0u;
                }
            }
            const float4 dx = kg_load_float4(at.d + u * 20);
            const float2 d[2] = {make_float2(dx.x, dx.y), make_float2(dx.z, dx.w)};
#pragma unroll
            for (int group = 0; group < GROUPS; group++) {
                const float2 v = *(const float2 *)(at.scales + (u * GROUPS + group) * 16);
                const float c0 = -(v.x * GEMM_MAGIC), c1 = -(v.y * GEMM_MAGIC);
#pragma unroll
                for (int ni = 0; ni < 2; ni++) {
                    int dot[4];
                    if ((int)T::TYPE == (int)KG_TYPE_Q4_K && i == 1)
                        kg_mma_u8s8_16832_from(dot, a[i], b[0] + 2 * ni, GEMM_MAGIC_BITS);
                    else if (T::GROUP == 32 || PERMUTED)
                        kg_mma_s8_16832_from(dot, a[i], b[group] + 2 * ni,
                                             GEMM_MAGIC_BITS);
                    else
                        kg_mma_s8_16816_from(dot, a[i] + 2 * group, b[0] + 2 * ni + group,
                                             GEMM_MAGIC_BITS);
                    float *to = acc[ni];
                    to[0] = gemm_fold(to[0], dot[0], v.x, c0, d[ni].x);
                    to[1] = gemm_fold(to[1], dot[1], v.x, c0, d[ni].y);
                    to[2] = gemm_fold(to[2], dot[2], v.y, c1, d[ni].x);
                    to[3] = gemm_fold(to[3], dot[3], v.y, c1, d[ni].y);
                }
            }
            if (T::MINIMUM) {
                const float2 m = *(const float2 *)(at.scales + A_WORDS + u * 16);
                const float4 sx = kg_load_float4(at.d + D_BYTES / 4 + u * 20);
#pragma unroll
                for (int ni = 0; ni < 2; ni++) {
                    const float2 s =
                        ni ? make_float2(sx.z, sx.w) : make_float2(sx.x, sx.y);
                    float *to = acc[ni];
                    to[0] = fmaf(m.x, s.x, to[0]);
                    to[1] = fmaf(m.x, s.y, to[1]);
                    to[2] = fmaf(m.y, s.x, to[2]);
                    to[3] = fmaf(m.y, s.y, to[3]);
                }
            }
        }
    }

    /* The scales of a step: a lane has a slab of a row. */
    static __device__ inline void unpack_scales(const gemm_int8_args &g, float *scales,
                                                const unsigned char *stage, int64_t row0,
                                                int slab)
    {
        const int r = threadIdx.x % 16, half = threadIdx.x / 16 % 2;
        const narrow_scales<S> from(
            narrow_row<S, 0>(g, stage, row0, r, slab) + half * S::slab_bytes(0),
            narrow_row<S, S::STREAMS - 1>(g, stage, row0, r, slab) +
                half * S::slab_bytes(S::STREAMS - 1));
        scales += gemm_scale_slot(r) + half * (A_WORDS + B_WORDS);
#pragma unroll
        for (int n = 0; n < SLAB_UNITS; n++) {
            float a[2], b;
            from.get(n, a, &b);
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
                scales[(n * GROUPS + group) * 16] = a[group];
            if (T::MINIMUM)
                scales[A_WORDS + n * 16] = b;
        }
    }

    static __device__ inline void finish(float[2][4])
    {
    }

    /* One step: `units` units from slab on, of which the copies have landed. */
    __device__ inline void step(const gemm_int8_args &g, float *scales,
                                const unsigned char *stage, const unsigned char *x,
                                int64_t row0, int slab, int units, float acc[2][4]) const
    {
        const int lane = threadIdx.x % 32;
        unpack_scales(g, scales, stage, row0, slab);
        __syncwarp();
        narrow_place at = {
            scales + 2 * (lane / 4),
            x + ((lane >> 4) * 8 + lane % 8) * X_PITCH + (lane >> 3 & 1) * 16,
            (const float *)(x + X_BYTES) + 4 * (lane % 4),
            narrow_row<S, 0>(g, stage, row0, lane / 4, slab),
            narrow_row<S, 0>(g, stage, row0, lane / 4 + 8, slab),
            stage + lane % 16 * narrow_shape<S>::pitch(0) + lane / 16 * 16,
        };
#pragma unroll 1
        for (int half = 0; half < 2 && units > 0; half++) {
            if (units >= SLAB_UNITS) {
#pragma unroll
                for (int part = 0; part < SLAB_UNITS; part += 2)
                    pair(at, table, part, true, acc);
            } else {
#pragma unroll 1
                for (int part = 0; part < units; part += 2)
                    pair(at, table, part, part + 1 < units, acc);
            }
            units -= SLAB_UNITS;
            at.scales += A_WORDS + B_WORDS;
            at.x += 32 * SLAB_UNITS;
            at.d += 20 * SLAB_UNITS;
            at.low += S::slab_bytes(0);
            at.high += S::slab_bytes(0);
            at.matrix += S::slab_bytes(0);
        }
    }
};

/* Steps of the block so far, by which the barriers of the activations have been used, and the
   parities that the barriers of the warp's ring will have next. */
struct narrow_done {
    uint32_t steps, parities;
};

/* The segment of slabs [slab0, slab1) of 16 rows of the warp. done: what the block and the
   warp have behind them. */
template <class F>
static __device__ inline void
narrow_segment(const F &form, const narrow_args &args, unsigned char *smem, int64_t row0,
               int slab0, int slab1, struct narrow_done *done, float acc[2][4])
{
    typedef typename F::source S;
    typedef narrow_shape<S> N;
    typedef narrow_memory<F> M;
    const gemm_int8_args &g = args.g;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t *const landed = (uint64_t *)smem;
    unsigned char *const xs = smem + M::X_AT;
    unsigned char *const ring = smem + M::WARPS_AT + warp * M::WARP;
    uint64_t *const at_ring = (uint64_t *)(smem + M::RINGS_AT) + NARROW_STAGES * warp;
    float *const scales = (float *)(ring + M::RING);
    const narrow_bringers by;
    uint32_t step = done->steps;
    row0 += warp * NARROW_ROWS;
    narrow_copy_w<S>(args, ring, row0, slab0, slab1, at_ring);
    kg_grid_wait();
    kg_grid_release();
    for (int i = 0; i < 2 && slab0 + 2 * i < slab1; i++)
        F::copy_x(g, xs + (step + i) % NARROW_X_STAGES * F::X_STAGE,
                  (slab0 + 2 * i) * N::SLAB_UNITS, by);
    kg_cp_async_commit();
    int slot = 0;
    for (int slab = slab0; slab < slab1; slab += 2, step++) {
        kg_cp_async_wait<0>();
        __syncwarp();
        if (KG_SPLIT_BARRIER && args.mapped) {
            kg_split_wait(at_ring + slot, done->parities >> slot & 1);
            done->parities ^= 1u << slot;
        }
        /* this warp's part of the activations of the next step is there */
        if (lane == 0) {
            if (slab == slab0)
                kg_split_arrive(landed + step % NARROW_X_STAGES);
            if (slab + 2 < slab1)
                kg_split_arrive(landed + (step + 1) % NARROW_X_STAGES);
        }
        const unsigned char *stage = ring + slot * N::RAW;
        slot ^= 1;
        if (slab + 2 < slab1)
            narrow_copy_w<S>(args, ring + slot * N::RAW, row0, slab + 2, slab1,
                             at_ring + slot);
        kg_split_wait(landed + step % NARROW_X_STAGES, step / NARROW_X_STAGES & 1);
        /* so all are done with the step before the last, whose buffer this is */
        if (slab + 4 < slab1)
            F::copy_x(g, xs + (step + 2) % NARROW_X_STAGES * F::X_STAGE,
                      (slab + 4) * N::SLAB_UNITS, by);
        kg_cp_async_commit();
        form.step(g, scales, stage, xs + step % NARROW_X_STAGES * F::X_STAGE, row0, slab,
                  min((slab1 - slab) * N::SLAB_UNITS, g.units - slab * N::SLAB_UNITS),
                  acc);
        __syncwarp();
    }
    done->steps = step;
}

template <class F>
__global__ void __launch_bounds__(32 * NARROW_WARPS, 1)
    gemm_narrow_kernel(const KG_GRID_CONSTANT narrow_args args)
{
    const gemm_int8_args &g = args.g;
    typedef narrow_memory<F> M;
    KG_SHARED_DYNAMIC(smem);
    const int warp = threadIdx.x / 32, rows = (int)(blockDim.x / 32) * NARROW_ROWS;
    const int64_t total = g.row_tiles * g.slabs; /* one tile of tokens */
    const int64_t begin = gemm_begin(total, blockIdx.x, g.workers);
    const int64_t end = gemm_begin(total, (int64_t)blockIdx.x + 1, g.workers);
    struct narrow_done done = {0, 0};
    const F form;
    kg_split_init((uint64_t *)smem, NARROW_X_STAGES, blockDim.x / 32);
    kg_split_init((uint64_t *)(smem + M::RINGS_AT), NARROW_STAGES * blockDim.x / 32, 1);
    __syncthreads();

    for (int64_t at = begin; at < end;) {
        const int64_t tile = at / g.slabs;
        const int slab0 = (int)(at % g.slabs);
        const int slab1 = (int)min((int64_t)g.slabs, slab0 + end - at);
        const int64_t row0 = tile * rows;
        float acc[1][2][4] = {};
        narrow_segment(form, args, smem, row0, slab0, slab1, &done, acc[0]);
        F::finish(acc[0]);
        if (slab1 - slab0 == g.slabs)
            gemm_store<narrow_tile>(g.y + row0, g.out,
                                    (int)min((int64_t)rows, g.out - row0), (int)g.m,
                                    nullptr, warp, 0, acc);
        else
            gemm_store<narrow_tile>(
                g.partial + ((int64_t)blockIdx.x * 2 + (at != begin)) * GEMM_BM * 16,
                GEMM_BM, GEMM_BM, 16, nullptr, warp, 0, acc);
        at += slab1 - slab0;
    }
    kg_grid_wait(); /* of a block without work */
}

#endif
