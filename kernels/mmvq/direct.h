/*
 * The direct product: each row of q alone (blockIdx.y), a warp to a few rows of w.
 * Nothing but q is shared between warps.
 *
 * Each warp copies its rows through a ring of its own, so that memory sees whole lines
 * whatever the block's size, and waits for itself only: no barrier of the block after the
 * first. With BULK (rows are multiples of 16 bytes; compute capability 9.0) one lane copies a
 * stage of a row at once: such a copy fills whole lines of shared memory, whereas cp.async, 16
 * bytes a lane, takes a cycle for each 32 bytes that arrive, which is about half of all cycles
 * that shared memory has. Lane l then unpacks the law's units l, l + 32, ... from shared memory
 * and folds them as unit_fold does (kernels/matvec/unit.h): the bits are those of stage_b.
 *
 * q, d and s are brought to shared memory once a block, codes in the order in which a type's
 * unpacking leaves the weights, together with the sums of codes by which an offset of all
 * codes of a type (8 of Q4_0, 32 of Q6_K, ...) is taken off the integer dot.
 */
#ifndef KGATE_KERNELS_MMVQ_DIRECT_H
#define KGATE_KERNELS_MMVQ_DIRECT_H

#include "kernels/device/bits.h"
#include "kernels/matvec/formats.h"
#if !defined(KG_EMU)
#include "kernels/device/sm90.h"
#endif

/* Whether the code that is being compiled may copy in bulk. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DIRECT_BULK 1
#else
#define DIRECT_BULK 0
#endif

enum { ORDER_PLAIN, ORDER_NIBBLES, ORDER_PAIRS };
enum { DIRECT_WARPS = 16 /* of a block, at most */ };

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

/* One struct a type: dots of unit `part` of the block at at + off in shared memory with the ordered x,
   and its scales. `sum` is that of all 32 codes, or of both halves as two int16. */
#define DIRECT(format, order, sums)                                                      \
    using F = format;                                                                    \
    enum { ORDER = order, SUMS = sums }
#define DOTS                                                                             \
    static __device__ __forceinline__ void dots(                                         \
        const uint8_t *smem, int at, int off, int part, const uint32_t x[8], int sum,    \
        const struct direct_tables &t, int dot[2], float a[2], float *b)
#define UNUSED                                                                           \
    const uint8_t *const p = smem + at + off;                                            \
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
        words_any<4>(smem, at, off + 2, 0, v);
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
        words_any<8>(smem, at, off + 2, 0, c);
        dot[0] = dot4(c + 4, x + 4, dot4(c, x, 0));
        a[0] = load_half(p);
    }
};

struct direct_q3_k {
    DIRECT(fmt_q3_k, ORDER_PLAIN, 2);
    NO_TABLE
    DOTS
    {
        UNUSED;
        uint32_t c[8], h[8];
        words_any<8>(smem, at + 32 * (part >> 2), off + 32, 2 * (part & 3), c);
        words_any<8>(smem, at, off, part - 2, h);
        for (int i = 0; i < 8; i++)
            c[i] = (c[i] & 0x03030303u) | (h[i] & 0x04040404u);
        dot[0] = dot4(c, x, -4 * (int)(int16_t)sum);
        dot[1] = dot4(c + 4, x + 4, -4 * (sum >> 16));
        /* Scales 2 part, 2 part + 1: nibbles of bytes 2 part % 8, .., two bits on top. */
        const uint32_t low = kg_load_u16(p + 96 + 2 * (part & 3));
        const uint32_t high = kg_load_u16(p + 104 + 2 * (part & 1));
        const uint32_t sc =
            (low >> 4 * (part >> 2) & 0x0f0fu) | (high >> 2 * (part >> 1) & 0x0303u) << 4;
        const float d = load_half(p + 108);
        a[0] = d * (float)((int)(sc & 255u) - 32);
        a[1] = d * (float)((int)(sc >> 8) - 32);
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

struct direct_q4_k {
    DIRECT(fmt_q4_k, ORDER_PLAIN, 0);
    NO_TABLE
    DOTS
    {
        UNUSED;
        uint32_t c[8];
        const uint8_t *qs = p + 16 + 32 * (part >> 1);
        load16(qs, c);
        load16(qs + 16, c + 4);
        for (int i = 0; i < 8; i++)
            c[i] = c[i] >> 4 * (part & 1) & 0x0f0f0f0fu;
        dot[0] = dot4(c + 4, x + 4, dot4(c, x, 0));
        direct_scales(p, part, a, b);
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

struct direct_q6_k {
    DIRECT(fmt_q6_k, ORDER_PLAIN, 2);
    NO_TABLE
    DOTS
    {
        UNUSED;
        const int half = part >> 2, quarter = part & 3;
        uint32_t c[8], h[8];
        words_any<8>(smem, at + 64 * half + 32 * (quarter & 1), off, 4 * (quarter >> 1),
                     c);
        words_any<8>(smem, at + 32 * half, off + 128, 2 * quarter - 4, h);
        for (int i = 0; i < 8; i++)
            c[i] = (c[i] & 0x0f0f0f0fu) | (h[i] & 0x30303030u);
        dot[0] = dot4(c, x, -32 * (int)(int16_t)sum);
        dot[1] = dot4(c + 4, x + 4, -32 * (sum >> 16));
        const float d = load_half(p + 208);
        const int pair = kg_load_u16(p + 192 + 2 * part);
        a[0] = d * (float)(int)(int8_t)pair;
        a[1] = d * (float)(int)(int8_t)(pair >> 8);
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

struct direct_nvfp4 {
    DIRECT(fmt_nvfp4, ORDER_PAIRS, 2);
    DIRECT_TABLES(E2M1_DIRECT)
    DOTS
    {
        UNUSED;
        const uint8_t *qs = p + 4 + 16 * part;
        int s0 = table_dot(kg_load_u32(qs), x, t, (int)(int16_t)sum);
        s0 = table_dot(kg_load_u32(qs + 4), x + 2, t, s0);
        int s1 = table_dot(kg_load_u32(qs + 8), x + 4, t, sum >> 16);
        s1 = table_dot(kg_load_u32(qs + 12), x + 6, t, s1);
        dot[0] = -s0;
        dot[1] = -s1;
        const uint32_t pair = kg_load_u16(p + 2 * part);
        for (int g = 0; g < 2; g++) {
            const uint32_t code = pair >> 8 * g & 255u;
            const float v = __uint_as_float((code & 127u) << 20) * 0x1p119f;
            a[g] = code == 127u ? 0.0f : v;
        }
    }
};

struct direct_mxfp4 {
    DIRECT(fmt_mxfp4, ORDER_NIBBLES, 1);
    DIRECT_TABLES(E2M1_DIRECT)
    DOTS
    {
        UNUSED;
        uint32_t v[4];
        words_any<4>(smem, at, off + 1, 0, v);
        int n = sum;
        for (int i = 0; i < 4; i++)
            n = table_dot(v[i], x + 2 * i, t, n);
        dot[0] = -n;
        a[0] = e8m0_half(p[0]);
    }
};

/* ---- shapes ---- */

/* A stage of the ring: UNITS units a lane of ROWS rows. */
template <class R, int UNITS>
struct direct_stage {
    static constexpr int bytes = 1024 * UNITS / R::F::BLOCK * R::F::BYTES; /* of a row */
    static constexpr bool shifts = R::F::BYTES % 16 != 0;
    static constexpr int pieces = (bytes + (shifts ? 30 : 0)) / 16;
    static constexpr int row = 16 * pieces + 16;
};

/* Bytes of the shared x: codes, scales, sums of codes, s. */
template <class R>
static __host__ __device__ constexpr int direct_x_bytes(int in)
{
    return in + in / 8 * (1 + ((int)R::SUMS != 0) + ((int)R::F::MINIMUM != 0));
}

/* Piece h of unit u's codes is kept at a place that spreads eight lanes over all banks. */
static __device__ __forceinline__ int x_place(int u, int h)
{
    return 32 * u + 16 * (h ^ (u >> 2 & 1));
}

template <class R>
static __device__ __forceinline__ void load_activations(uint8_t *smem, const int8_t *q,
                                                        const float *d, const float *s,
                                                        int units)
{
    float *sd = (float *)(smem + 32 * units);
    int *sums = (int *)(sd + units);
    float *ss = (float *)(sums + ((int)R::SUMS != 0 ? units : 0));
    for (int u = (int)threadIdx.x; u < units; u += (int)blockDim.x) {
        uint32_t x[8], o[8];
        load16((const uint8_t *)q + 32 * u, x);
        load16((const uint8_t *)q + 32 * u + 16, x + 4);
        int sum[2] = {};
        for (int i = 0; i < 8; i++)
            sum[i / 4] = __dp4a((int)x[i], 0x01010101, sum[i / 4]);
        for (int i = 0; i < 8; i++)
            o[i] = x[i];
        if ((int)R::ORDER != (int)ORDER_PLAIN)
            for (int i = 0; i < 4; i++) {
                const int low =
                    (int)R::ORDER == (int)ORDER_NIBBLES ? i : (i / 2) * 4 + i % 2;
                const uint32_t v = x[low],
                               w = x[low + ((int)R::ORDER == (int)ORDER_NIBBLES ? 4 : 2)];
                o[2 * i] = __byte_perm(v, w, 0x5140);
                o[2 * i + 1] = __byte_perm(v, w, 0x7362);
            }
        for (int h = 0; h < 2; h++)
            *(uint4 *)(smem + x_place(u, h)) =
                make_uint4(o[4 * h], o[4 * h + 1], o[4 * h + 2], o[4 * h + 3]);
        sd[u] = d[u];
        if ((int)R::SUMS != 0)
            sums[u] = R::SUMS == 1
                          ? sum[0] + sum[1]
                          : (int)((uint32_t)sum[1] << 16 | ((uint32_t)sum[0] & 0xffffu));
        if (R::F::MINIMUM)
            ss[u] = s[u];
    }
}

struct direct_args {
    const uint8_t *w;
    const int8_t *q;
    const float *d, *s;
    float *y;
    int64_t out;
    int in;
    float scale;
};

template <bool B>
struct direct_bool {
    static constexpr bool value = B;
};

template <class R, int UNITS, int STAGES, int ROWS, bool BULK>
__global__ void __launch_bounds__(32 * DIRECT_WARPS)
    direct_kernel(const struct direct_args p)
{
    using F = typename R::F;
    using L = direct_stage<R, UNITS>;
    constexpr bool SHIFTS = L::shifts && !(BULK && DIRECT_BULK);
    constexpr int PARTS = F::BLOCK / KG_UNIT, SLOT = ROWS * L::row;
    KG_SHARED_DYNAMIC(smem);
    const int lane = threadIdx.x % 32, units = p.in / KG_UNIT, out = (int)p.out;
    const int chunks = (units + 32 * UNITS - 1) / (32 * UNITS);
    const int row_bytes = p.in / F::BLOCK * F::BYTES;
    const int stride = (int)(gridDim.x * (blockDim.x / 32)) * ROWS;
    const int first = (int)(threadIdx.x / 32 * gridDim.x + blockIdx.x) * ROWS;
    const int ring = (direct_x_bytes<R>(p.in) + 127) / 128 * 128 + 16 +
                     (int)(threadIdx.x / 32) * STAGES * SLOT;
    uint8_t *const copy_to = kg_opaque(smem + ring + 16 * lane);

#if DIRECT_BULK
    KG_SHARED(uint64_t, landed, [DIRECT_WARPS][STAGES]);
    uint64_t *const full = landed[threadIdx.x / 32];
    if (BULK) {
        if (lane == 0)
            for (int i = 0; i < STAGES; i++)
                kg_mbarrier_init(full + i, 1);
        kg_mbarrier_init_fence();
        __syncwarp();
    }
    int copy_stage = 0;
#endif
    int copy_row = first, copy_left = row_bytes, copy_slot = 0;
    const uint8_t *copy_from = p.w + (int64_t)first * row_bytes;
    auto copy_next = [&]() {
#if DIRECT_BULK
        if (BULK) {
            if (lane == 0 && copy_row < out) {
                const int bytes = min(copy_left, L::bytes),
                          rows = min(ROWS, out - copy_row);
                kg_mbarrier_expect(full + copy_stage, (uint32_t)(bytes * rows));
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    if (r < rows)
                        kg_bulk_load(smem + ring + copy_slot + r * L::row,
                                     copy_from + r * row_bytes, (uint32_t)bytes,
                                     full + copy_stage);
                copy_slot = copy_slot + SLOT == STAGES * SLOT ? 0 : copy_slot + SLOT;
                copy_stage = copy_stage + 1 == STAGES ? 0 : copy_stage + 1;
                copy_from += L::bytes;
                copy_left -= L::bytes;
                if (copy_left <= 0) {
                    copy_left = row_bytes;
                    copy_row += stride;
                    copy_from = p.w + (int64_t)copy_row * row_bytes;
                }
            }
            return;
        }
#endif
        if (copy_row < out) {
            const bool whole = copy_row + ROWS < out && copy_left >= L::bytes;
            uint8_t *to = copy_to + copy_slot;
            if (whole) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const uint8_t *from = copy_from + r * row_bytes;
                    if (SHIFTS)
                        from = (const uint8_t *)((uintptr_t)from & ~(uintptr_t)15);
                    from += 16 * lane;
#pragma unroll
                    for (int k = 0; k < L::pieces; k += 32)
                        if (k + 32 <= L::pieces || lane + k < L::pieces)
                            kg_cp_async_16(to + r * L::row + 16 * k, from + 16 * k);
                }
            } else {
                /* The tensor may end here. */
                for (int r = 0; r < ROWS && copy_row + r < out; r++) {
                    const uint8_t *from = copy_from + r * row_bytes;
                    const int phase = SHIFTS ? (int)((uintptr_t)from & 15) : 0;
                    const int bytes = phase + min(copy_left, L::bytes);
                    from += 16 * lane - phase;
                    for (int k = 0; k < L::pieces; k += 32) {
                        const int n = bytes - 16 * (lane + k);
                        if (n > 0)
                            kg_cp_async_16(to + r * L::row + 16 * k, from + 16 * k,
                                           min(n, 16));
                    }
                }
            }
            copy_slot = copy_slot + SLOT == STAGES * SLOT ? 0 : copy_slot + SLOT;
            copy_from += L::bytes;
            copy_left -= L::bytes;
            if (copy_left <= 0) {
                copy_left = row_bytes;
                copy_row += stride;
                copy_from = p.w + (int64_t)copy_row * row_bytes;
            }
        }
        kg_cp_async_commit();
    };
    for (int i = 0; i < STAGES - 1; i++)
        copy_next();
    const int64_t m = blockIdx.y; /* row of q */
    load_activations<R>(smem, p.q + m * p.in, p.d + m * units, p.s + m * units, units);
    /* Through memory, so that the entries stay in registers: constants, and what is stored to a
       variable of its own is one, are moved at each use. */
    struct direct_tables *const shared_tables =
        (struct direct_tables *)(smem + (direct_x_bytes<R>(p.in) + 127) / 128 * 128);
    if (threadIdx.x == 0)
        *shared_tables = R::tables();
    __syncthreads();
    const uint8_t *const x0 = smem + x_place(lane, 0), *const x1 =
                                                           smem + x_place(lane, 1);
    const float *sd = (const float *)(smem + 32 * units) + lane;
    const int *sums = (const int *)sd + units;
    const float *ss = (const float *)sums + ((int)R::SUMS != 0 ? units : 0);
    const struct direct_tables tables = *shared_tables;
    const int part = lane % PARTS, lane_at = ring + lane / PARTS * F::BYTES;
#if DIRECT_BULK
    int landed_at = 0;
    uint32_t parity = 0;
#endif
    int slot = 0;
    for (int row = first; row < out; row += stride) {
        float acc[ROWS] = {};
        const unsigned start =
            (unsigned)(uintptr_t)p.w + (unsigned)row * (unsigned)row_bytes;
        auto stage = [&](auto whole, int c) {
            int at[ROWS];
            for (int r = 0; r < ROWS; r++)
                at[r] =
                    lane_at + slot +
                    (SHIFTS
                         ? (int)((start + (unsigned)(r * row_bytes + c * L::bytes)) & 15u)
                         : 0);
#pragma unroll
            for (int k = 0; k < UNITS; k++) {
                const int group = c * UNITS + k;
                if (decltype(whole)::value || 32 * group + lane < units) {
                    uint32_t x[8];
                    load16(x0 + 1024 * group, x);
                    load16(x1 + 1024 * group, x + 4);
                    const float d = sd[32 * group];
                    const int sum = (int)R::SUMS != 0 ? sums[32 * group] : 0;
                    const float s = (int)F::MINIMUM != 0 ? ss[32 * group] : 0.0f;
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        int dot[2];
                        float a[2], b = 0.0f;
                        R::dots(smem, at[r], r * L::row + k * (L::bytes / UNITS), part, x,
                                sum, tables, dot, a, &b);
                        acc[r] = fmaf(a[0], d * (float)dot[0], acc[r]);
                        if (F::GROUP == 16)
                            acc[r] = fmaf(a[1], d * (float)dot[1], acc[r]);
                        if (F::MINIMUM)
                            acc[r] = fmaf(b, s, acc[r]);
                    }
                }
            }
        };
        for (int c = 0; c < chunks; c++) {
            /* This lane's copies of the stage have landed, then everyone's; and nobody reads
               the one that is copied to next. */
#if DIRECT_BULK
            if (BULK) {
                kg_mbarrier_wait(full + landed_at, parity);
                landed_at = landed_at + 1 == STAGES ? 0 : landed_at + 1;
                parity ^= landed_at == 0;
            }
#endif
            if (!BULK || !DIRECT_BULK)
                kg_cp_async_wait<STAGES - 2>();
            __syncwarp();
            copy_next();
            if ((c + 1) * UNITS * 32 <= units)
                stage(direct_bool<true>(), c);
            else
                stage(direct_bool<false>(), c);
            slot = slot + SLOT == STAGES * SLOT ? 0 : slot + SLOT;
        }
        for (int r = 0; r < ROWS; r++) {
            const float v = warp_sum(acc[r]);
            if (lane == 0 && row + r < out)
                p.y[m * p.out + row + r] = v * p.scale;
        }
    }
}

/* Bytes of shared memory of a block. */
template <class R, int UNITS, int STAGES, int ROWS>
static constexpr int direct_shared(int in, int warps)
{
    return (direct_x_bytes<R>(in) + 127) / 128 * 128 + 16 +
           warps * STAGES * ROWS * direct_stage<R, UNITS>::row + 16;
}

#endif
