/*
 * The int8 GEMM for up to 16 tokens: the same arithmetic and the same bits as int8.h, in a
 * form whose work per byte of weights is small, because reading them is what takes the time.
 *
 * A warp has 16 rows and all 16 tokens, so its weights are nobody else's: they go from the
 * raw bytes in shared memory to the fragments of mma.sync in registers. With t = lane % 4, the
 * thread's words of a row's unit are (fragment, element order in the tensor core)
 *
 *   word t of the unit's codes,  word t + 4     k = 4t .., k = 16 + 4t ..
 *
 * except NVFP4: there a thread takes the eight codes in word t of the 16 packed bytes, that
 * is of group t / 2, and the activations are stored in that order. The product of one group is
 * the k32 product with the other group's threads at zero. Sums of integers have no order.
 *
 * Scales are unpacked once for the warp, two lanes a row, into shared memory. One barrier a slab;
 * RING slabs of weights and activations are under way.
 */
#ifndef KGATE_KERNELS_GEMM_NARROW_H
#define KGATE_KERNELS_GEMM_NARROW_H

#include "kernels/gemm/int8.h"

/* Words t and t + 4 of unit `part` of a slab, from its bytes at p. */
template <class S>
struct narrow_codes;

template <>
struct narrow_codes<from_blocks<fmt_q8_0, 128>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        load_words<1>(p + 34 * part + 2 + 4 * t, &c[0]);
        load_words<1>(p + 34 * part + 18 + 4 * t, &c[1]);
    }
};

static __device__ inline void split_q4_0(uint32_t v, uint32_t c[2])
{
    c[0] = bytes_minus(v & 0x0f0f0f0fu, 8);
    c[1] = bytes_minus(v >> 4 & 0x0f0f0f0fu, 8);
}

template <>
struct narrow_codes<from_blocks<fmt_q4_0, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        uint32_t v;
        load_words<1>(p + 18 * part + 2 + 4 * t, &v);
        split_q4_0(v, c);
    }
};

template <>
struct narrow_codes<from_planes<fmt_q4_0>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        split_q4_0(kg_load_u32(p + 16 * part + 4 * t), c);
    }
};

template <>
struct narrow_codes<from_blocks<fmt_q4_k, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        const uint8_t *qs = p + 16 + 32 * (part >> 1) + 4 * t;
        for (int i = 0; i < 2; i++)
            c[i] = kg_load_u32(qs + 16 * i) >> 4 * (part & 1) & 0x0f0f0f0fu;
    }
};

template <>
struct narrow_codes<from_blocks<fmt_q5_k, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        const uint8_t *qs = p + 48 + 32 * (part >> 1) + 4 * t;
        for (int i = 0; i < 2; i++)
            c[i] = (kg_load_u32(qs + 16 * i) >> 4 * (part & 1) & 0x0f0f0f0fu) |
                   (kg_load_u32(p + 16 + 16 * i + 4 * t) >> part & 0x01010101u) << 4;
    }
};

template <>
struct narrow_codes<from_blocks<fmt_q6_k, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
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
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        lookup16(kg_load_u32(p + 8 + 16 * part + 4 * t), IQ4_TABLE, &c[0], &c[1]);
    }
};

template <>
struct narrow_codes<from_blocks<fmt_nvfp4, 256>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        lookup16(kg_load_u32(p + 36 * (part >> 1) + 4 + 16 * (part & 1) + 4 * t),
                 E2M1_TABLE, &c[0], &c[1]);
    }
};

template <>
struct narrow_codes<from_planes<fmt_nvfp4>> {
    static __device__ inline void load(const uint8_t *p, int part, int t, uint32_t c[2])
    {
        lookup16(kg_load_u32(p + 16 * part + 4 * t), E2M1_TABLE, &c[0], &c[1]);
    }
};

/* Scales and minima of the units first .. first + 3 or so of a slab: opened once, then asked
   unit by unit, a[group] and b. */
template <class S>
struct narrow_scales {
    typedef typename S::format T;
    const uint8_t *p0, *p1;
    int first;
    __device__ inline narrow_scales(const uint8_t *p0_, const uint8_t *p1_, int first_)
        : p0(p0_), p1(p1_), first(first_)
    {
    }
    __device__ inline void get(int n, float a[2], float *b) const
    {
        struct unit32 u;
        S::unpack(p0, p1, first + n, &u); /* the codes are not used: no loads */
        a[0] = u.a[0];
        a[1] = u.a[T::GROUP == 16 ? 1 : 0];
        *b = T::MINIMUM ? u.b[0] : 0.0f;
    }
};

/* The eight pairs of six bits of a super-block, four at a time: units 0 .. 3 have them in
   the low bits of words 0 (scale) and 1 (minimum); units 4 .. 7 have the low four bits
   in word 2 and the high two on top of words 0 and 1. */
struct narrow_k_scales {
    uint32_t sc, m;
    float d, dmin;
    __device__ inline narrow_k_scales(const uint8_t *p, const uint8_t *, int first)
    {
        const uint32_t w0 = kg_load_u32(p + 4), w1 = kg_load_u32(p + 8),
                       w2 = kg_load_u32(p + 12);
        const bool low = first == 0;
        d = load_half(p);
        dmin = load_half(p + 2);
        sc = low ? w0 & 0x3f3f3f3fu : (w2 & 0x0f0f0f0fu) | (w0 >> 2 & 0x30303030u);
        m = low ? w1 & 0x3f3f3f3fu : (w2 >> 4 & 0x0f0f0f0fu) | (w1 >> 2 & 0x30303030u);
    }
    __device__ inline void get(int n, float a[2], float *b) const
    {
        a[0] = a[1] = d * (float)(sc >> 8 * n & 255u);
        *b = -(dmin * (float)(m >> 8 * n & 255u));
    }
};

template <>
struct narrow_scales<from_blocks<fmt_q4_k, 256>> : narrow_k_scales {
    using narrow_k_scales::narrow_k_scales;
};

template <>
struct narrow_scales<from_blocks<fmt_q5_k, 256>> : narrow_k_scales {
    using narrow_k_scales::narrow_k_scales;
};

template <class S>
struct narrow_shape {
    typedef typename S::format T;
    typedef gemm_shape<S, 16, 1> H; /* of pitches, and of the fragments of a tile */
    enum {
        UNITS = S::SLAB / 32,
        GROUPS = 32 / T::GROUP,
        PERMUTED = (int)T::TYPE == (int)KG_TYPE_NVFP4,
        X_PITCH = S::SLAB + 16,
        X_BYTES = 16 * X_PITCH,
        D_BYTES = UNITS * 16 * 4,
        STAGE = H::RAW + X_BYTES + D_BYTES * (T::MINIMUM ? 2 : 1),
        A_BYTES = UNITS * GROUPS * 16 * 8,
        SCALES = A_BYTES + (T::MINIMUM ? UNITS * 16 * 4 : 0), /* of one warp */
        /* two blocks on a multiprocessor */
        RING = 4 * STAGE + 8 * SCALES <= 112 * 1024   ? 4
               : 3 * STAGE + 8 * SCALES <= 112 * 1024 ? 3
                                                      : 2,
        BYTES = RING * STAGE + 8 * SCALES,
    };
};

/* Where token t's scale lies among 16, so that the four of a thread are side by side. */
static __device__ inline int narrow_slot(int t)
{
    return (t & 6) << 1 | (t & 8) >> 2 | (t & 1);
}

template <class S>
static __device__ inline void narrow_copy(const gemm_int8_args &g, unsigned char *stage,
                                          int64_t row0, int64_t t0, int slab)
{
    typedef narrow_shape<S> N;
    typedef typename S::format T;
    gemm_copy_stream<S, typename N::H, 0>(g, stage, row0, slab);
    if (S::STREAMS == 2)
        gemm_copy_stream<S, typename N::H, S::STREAMS - 1>(g, stage + N::H::RAW0, row0,
                                                           slab);
    unsigned char *x = stage + N::H::RAW;
    const int t = threadIdx.x / 16;
    const bool token = t0 + t < g.m;
    const int8_t *from = g.q + (token ? (t0 + t) * g.in : 0) + (int64_t)slab * S::SLAB;
    if (N::PERMUTED) { /* words 0 1 4 5 2 3 6 7 of a unit */
#pragma unroll
        for (int j = 0; j < S::SLAB / 64; j++) {
            const int word = threadIdx.x % 16 + 16 * j, w = word % 8;
            const int to = word - w + ((w & 1) | (w & 2) << 1 | (w & 4) >> 1);
            const bool there = token && slab * N::UNITS + word / 8 < g.units;
            kg_cp_async_4(x + t * N::X_PITCH + to * 4, from + word * 4, there ? 4 : 0);
        }
    } else {
        const int chunk = threadIdx.x % 16;
        if (chunk < S::SLAB / 16) {
            const bool there = token && slab * N::UNITS + chunk / 2 < g.units;
            kg_cp_async_16(x + t * N::X_PITCH + chunk * 16, from + chunk * 16,
                           there ? 16 : 0);
        }
    }
    const int u = threadIdx.x % 16;
    if (u < N::UNITS) {
        const bool there = token && slab * N::UNITS + u < g.units;
        const int64_t at = there ? (t0 + t) * g.units + slab * N::UNITS + u : 0;
        unsigned char *to = x + N::X_BYTES + (u * 16 + narrow_slot(t)) * 4;
        kg_cp_async_4(to, g.d + at, there ? 4 : 0);
        if (T::MINIMUM)
            kg_cp_async_4(to + N::D_BYTES, g.s + at, there ? 4 : 0);
    }
}

/* Units part and part + 1 of a slab, the second only if `both`. */
template <class S>
static __device__ inline void
narrow_pair(const unsigned char *stage, const unsigned char *scales, const uint8_t *low,
            const uint8_t *high, int part, bool both, float acc[2][4])
{
    typedef narrow_shape<S> N;
    typedef typename S::format T;
    const int lane = threadIdx.x % 32, gid = lane / 4, tig = lane % 4;
    uint32_t a[2][4]; /* row g, row g + 8; then the same of the second half of k */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t c[2];
        narrow_codes<S>::load(low, part + i, tig, c);
        a[i][0] = c[0];
        a[i][2] = c[1];
        narrow_codes<S>::load(high, part + i, tig, c);
        a[i][1] = c[0];
        a[i][3] = c[1];
    }
    const unsigned char *x = stage + N::H::RAW +
                             ((lane >> 4) * 8 + lane % 8) * N::X_PITCH +
                             (lane >> 3 & 1) * 16 + part * 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (i == 1 && !both)
            break;
        const int u = part + i;
        uint32_t b[4];
        kg_ldmatrix_x4(b, x + i * 32);
        const float4 d = kg_load_float4((const float *)(stage + N::H::RAW + N::X_BYTES) +
                                        u * 16 + tig * 4);
#pragma unroll
        for (int group = 0; group < N::GROUPS; group++) {
            const float4 v = kg_load_float4((const float2 *)scales +
                                            (u * N::GROUPS + group) * 16 + 2 * gid);
#pragma unroll
            for (int ni = 0; ni < 2; ni++) {
                int dot[4];
                if (T::GROUP == 32) {
                    kg_mma_s8_16832_from(dot, a[i], b + 2 * ni, GEMM_MAGIC_BITS);
                } else if (N::PERMUTED) {
                    const bool own = tig / 2 == group;
                    const uint32_t masked[4] = {own ? a[i][0] : 0u, own ? a[i][1] : 0u,
                                                own ? a[i][2] : 0u, own ? a[i][3] : 0u};
                    kg_mma_s8_16832_from(dot, masked, b + 2 * ni, GEMM_MAGIC_BITS);
                } else {
                    kg_mma_s8_16816_from(dot, a[i] + 2 * group, b + 2 * ni + group,
                                         GEMM_MAGIC_BITS);
                }
                const float d0 = ni ? d.z : d.x, d1 = ni ? d.w : d.y;
                acc[ni][0] = gemm_fold(acc[ni][0], dot[0], v.x, v.y, d0);
                acc[ni][1] = gemm_fold(acc[ni][1], dot[1], v.x, v.y, d1);
                acc[ni][2] = gemm_fold(acc[ni][2], dot[2], v.z, v.w, d0);
                acc[ni][3] = gemm_fold(acc[ni][3], dot[3], v.z, v.w, d1);
            }
        }
        if (T::MINIMUM) {
            const float4 s = kg_load_float4(
                (const float *)(stage + N::H::RAW + N::X_BYTES + N::D_BYTES) + u * 16 +
                tig * 4);
            const float2 m = *(const float2 *)((const float *)(scales + N::A_BYTES) +
                                               u * 16 + 2 * gid);
            acc[0][0] = fmaf(m.x, s.x, acc[0][0]);
            acc[0][1] = fmaf(m.x, s.y, acc[0][1]);
            acc[0][2] = fmaf(m.y, s.x, acc[0][2]);
            acc[0][3] = fmaf(m.y, s.y, acc[0][3]);
            acc[1][0] = fmaf(m.x, s.z, acc[1][0]);
            acc[1][1] = fmaf(m.x, s.w, acc[1][1]);
            acc[1][2] = fmaf(m.y, s.z, acc[1][2]);
            acc[1][3] = fmaf(m.y, s.w, acc[1][3]);
        }
    }
}

/* The scales of the warp's 16 rows: lane l has half of the units of row l / 2. */
template <class S>
static __device__ inline void narrow_unpack_scales(unsigned char *scales,
                                                   const uint8_t *p0, const uint8_t *p1)
{
    typedef narrow_shape<S> N;
    typedef typename S::format T;
    enum { EACH = N::UNITS / 2 };
    const int lane = threadIdx.x % 32, first = lane % 2 * EACH;
    const int slot = gemm_scale_slot(lane / 2);
    const narrow_scales<S> from(p0, p1, first);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        float a[2], b;
        from.get(n, a, &b);
#pragma unroll
        for (int group = 0; group < N::GROUPS; group++) {
            float2 pair;
            pair.x = a[group];
            pair.y = -(a[group] * GEMM_MAGIC);
            ((float2 *)scales)[((first + n) * N::GROUPS + group) * 16 + slot] = pair;
        }
        if (T::MINIMUM)
            ((float *)(scales + N::A_BYTES))[(first + n) * 16 + slot] = b;
    }
}

/* The bytes of row r of the block (stream ST) in a stage. */
template <class S, int ST>
static __device__ inline const uint8_t *narrow_row(const gemm_int8_args &g,
                                                   const unsigned char *stage,
                                                   int64_t row0, int r, int slab)
{
    typedef typename narrow_shape<S>::H H;
    const uint32_t at = (uint32_t)(row0 + r) * (uint32_t)g.row_bytes[ST] +
                        (uint32_t)slab * (uint32_t)S::slab_bytes(ST);
    return stage + (ST ? H::RAW0 : 0) + r * H::pitch(ST) +
           (S::align(ST) < 16 ? at % 16 : 0);
}

template <class S>
static __device__ inline void narrow_segment(const gemm_int8_args &g, unsigned char *smem,
                                             int64_t row0, int64_t t0, int slab0,
                                             int slab1, float acc[2][4])
{
    typedef narrow_shape<S> N;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned char *scales = smem + N::RING * N::STAGE + warp * N::SCALES;
    for (int i = 0; i < N::RING - 1; i++) {
        if (slab0 + i < slab1)
            narrow_copy<S>(g, smem + i * N::STAGE, row0, t0, slab0 + i);
        kg_cp_async_commit();
    }
    int slot = 0, free_slot = N::RING - 1;
    for (int slab = slab0; slab < slab1; slab++) {
        kg_cp_async_wait<N::RING - 2>();
        __syncthreads();
        if (slab + N::RING - 1 < slab1)
            narrow_copy<S>(g, smem + free_slot * N::STAGE, row0, t0, slab + N::RING - 1);
        kg_cp_async_commit();
        const unsigned char *stage = smem + slot * N::STAGE;
        free_slot = slot;
        slot = slot + 1 == N::RING ? 0 : slot + 1;

        const int r = warp * 16;
        narrow_unpack_scales<S>(
            scales, narrow_row<S, 0>(g, stage, row0, r + lane / 2, slab),
            narrow_row<S, S::STREAMS - 1>(g, stage, row0, r + lane / 2, slab));
        __syncwarp();
        const uint8_t *low = narrow_row<S, 0>(g, stage, row0, r + lane / 4, slab);
        const uint8_t *high = narrow_row<S, 0>(g, stage, row0, r + lane / 4 + 8, slab);
        const int units = g.units - slab * N::UNITS;
        if (units >= N::UNITS) {
#pragma unroll
            for (int part = 0; part < N::UNITS; part += 2)
                narrow_pair<S>(stage, scales, low, high, part, true, acc);
        } else {
#pragma unroll 1
            for (int part = 0; part < units; part += 2)
                narrow_pair<S>(stage, scales, low, high, part, part + 1 < units, acc);
        }
        __syncwarp();
    }
    kg_cp_async_wait<0>();
    __syncthreads();
}

template <class S>
__global__ void __launch_bounds__(GEMM_THREADS, 2)
    gemm_narrow_kernel(const gemm_int8_args g)
{
    typedef typename narrow_shape<S>::H H;
    KG_SHARED_DYNAMIC(smem);
    const int warp = threadIdx.x / 32;
    const int64_t total = g.row_tiles * g.token_tiles * g.slabs;
    const int64_t begin = gemm_begin(total, blockIdx.x, g.workers);
    const int64_t end = gemm_begin(total, (int64_t)blockIdx.x + 1, g.workers);

    for (int64_t at = begin; at < end;) {
        const int64_t tile = at / g.slabs;
        const int slab0 = (int)(at % g.slabs);
        const int slab1 = (int)min((int64_t)g.slabs, slab0 + end - at);
        const int64_t row0 = tile / g.token_tiles * GEMM_BM;
        const int64_t t0 = tile % g.token_tiles * 16;
        float acc[1][2][4] = {};
        narrow_segment<S>(g, smem, row0, t0, slab0, slab1, acc[0]);
        if (slab1 - slab0 == g.slabs)
            gemm_store<H>(g.y + t0 * g.out + row0, g.out,
                          (int)min((int64_t)GEMM_BM, g.out - row0),
                          (int)min((int64_t)16, g.m - t0), nullptr, warp, 0, acc);
        else
            gemm_store<H>(g.partial +
                              ((int64_t)blockIdx.x * 2 + (at != begin)) * GEMM_BM * 16,
                          GEMM_BM, GEMM_BM, 16, nullptr, warp, 0, acc);
        at += slab1 - slab0;
    }
}

#endif
