/*
 * The tile product: a warp to eight rows of w, by matrix instructions, for one row of q or for
 * up to eight. Nothing but q is shared between warps.
 *
 * Each warp copies its rows through a ring of its own by cp.async and waits for itself only: no
 * barrier of the block after the first. A stage has 256 * GROUPS weights of each row; a
 * group of eight units is unpacked by the type's reader (readers.h), thread t of the four of a
 * row having eight codes of each unit. Units u and u + 4 of a group share a fragment: rows
 * 0..7 of the matrix instruction are the tile's in unit u, rows 8..15 the same in unit u + 4.
 *
 *   narrow   one row of q. Columns are units: column n has the activations of unit n of the group
 *            where the fragment's k is that of unit n, zeros elsewhere, so that four instructions
 *            leave the dots of all eight units in one fragment. Thread t of a row gets those
 *            of units 2t and 2t + 1.
 *   wide     columns are rows of q; an instruction for each of u and u + 4, of which the other
 *            half is not used. Thread t of a row gets columns 2t and 2t + 1 of every unit.
 *
 * Each lane of the law (kernels/matvec/unit.h) has an accumulator of its own, and takes its units
 * in order by
 *
 *   acc = fmaf(a[g], d * (f32)dot_g, acc) for each group g, then acc = fmaf(b, s, acc)
 *
 * (NVFP4: acc = fmaf(d, a[g] * (f32)dot_g, acc); Q3_K: as quad_fold does) with the butterfly at the
 * end of a row. dot_g is an integer: the bits are those of stage_b. Units behind the end of a row
 * have weights, d and s of 0, and add 0 to a lane's sum.
 *
 * An accumulator of the matrix instruction starts at the bits of 1.5 * 2^23 plus what an
 * offset of all codes (8 of Q4_0, ...) takes off the dot, so that the dot comes out as f32 without
 * conversion and without offset (|dot| < 2^22). q, d, s and those starts are brought to
 * shared memory once a block, in the order in which lanes read them.
 *
 * Launches overlap (device/overlap.h): weights are copied before the launch ahead is complete,
 * q is asked for (ask.h), but read and y written after it.
 */
#ifndef KGATE_KERNELS_MMVQ_TILE_H
#define KGATE_KERNELS_MMVQ_TILE_H

#include "kernels/device/overlap.h"
#include "kernels/mmvq/ask.h"
#include "kernels/mmvq/e4m3.h"
#include "kernels/mmvq/product.h"

enum {
    TILE = 8,   /* rows of w of a warp */
    GROUP8 = 8, /* units of a group */
    TILE_WARPS = 16,
};

/* ---- shapes ---- */

/* A stage of the ring: 256 * GROUPS weights of eight rows. EVEN: each row and plane starts at
   a multiple of 16 bytes. */
template <class R, int GROUPS, bool EVEN>
struct tile_stage {
    static __device__ __host__ constexpr int bytes(int i) /* of a row in plane i */
    {
        return R::plane_bytes(i) * GROUPS / 4;
    }
    static __device__ __host__ constexpr bool shifts(int i)
    {
        return EVEN ? bytes(i) % 16 != 0 : plane_shifts<R>(i) || bytes(i) % 16 != 0;
    }
    static __device__ __host__ constexpr int pieces(int i)
    {
        return (bytes(i) + (shifts(i) ? 30 : 0)) / 16;
    }
    static __device__ __host__ constexpr int lanes(int i)
    {
        return pieces(i) <= 4 ? 4 : pieces(i) <= 8 ? 8 : pieces(i) <= 16 ? 16 : 32;
    }
    static __device__ __host__ constexpr int at_once(int i) /* rows, by 32 lanes */
    {
        return 32 / lanes(i);
    }
    /* From row to row: room for the phase and for the word behind the end, and rows spread over the
       banks: words want odd multiples of 16, 8-byte loads odd multiples of 32. */
    static __device__ __host__ constexpr int stride(int i)
    {
        int n = (bytes(i) + (shifts(i) ? 15 : 0) + (R::PLANES == 1 ? 8 : 0) + 15) / 16;
        if ((int)R::MAP == (int)MAP_RUN && i == 0)
            return (n + (6 - n % 4) % 4) * 16;
        return (n | 1) * 16;
    }
    static __device__ __host__ constexpr int at(int i)
    {
        int sum = 0;
        for (int k = 0; k < i; k++)
            sum += TILE * stride(k);
        return sum;
    }
    static constexpr int total = at(R::PLANES);
};

/* The shared q. Groups of units, rounded up to whole stages; bytes of each array of a group. */
template <class R, bool WIDE>
struct tile_x {
    enum {
        HALVES = (int)R::F::TYPE == KG_TYPE_F8_E4M3,
        INIT = (int)R::OFFSET != 0,
        KINDS = (int)R::F::GROUP == 16 ? 2 : 1,
        COLS = WIDE ? 8 : 1,
        CODE_BYTES = 32 * GROUP8 * COLS * (HALVES ? 2 : 1),
        FLOATS = 4 * GROUP8 * COLS,
        BYTES = CODE_BYTES +
                FLOATS * (1 + (INIT ? (int)KINDS : 0) + ((int)R::F::MINIMUM != 0)),
        LANES = R::F::QUADS ? 2 : 8, /* of the law in a group */
    };
};

/* ---- q ---- */

/* Codes of unit u of row n of q for thread t; zeros where there is none. */
template <class R>
static __device__ __forceinline__ void tile_codes(const struct product_args &p,
                                                  int64_t row, bool there, int u, int t,
                                                  uint32_t b[2])
{
    b[0] = 0;
    b[1] = 0;
    if (there)
        load_x<R::MAP>((const uint8_t *)p.q + row * p.in + KG_UNIT * u, t, b);
}

/* Start of the accumulator of the dots with codes b of all four threads, for each group. */
template <class R>
static __device__ __forceinline__ void tile_init(const uint32_t b[2], int start[2])
{
    constexpr bool both = (int)R::F::GROUP != 16;
    int s0 = __dp4a((int)b[0], 0x01010101, 0);
    int s1 = __dp4a((int)b[1], 0x01010101, both ? s0 : 0);
    for (int distance = 1; distance < 4; distance *= 2) {
        if (!both)
            s0 += __shfl_xor_sync(KG_WARP_ALL, s0, distance);
        s1 += __shfl_xor_sync(KG_WARP_ALL, s1, distance);
    }
    start[0] = DOT_ZERO + (int)R::OFFSET * (both ? s1 : s0);
    start[1] = DOT_ZERO + (int)R::OFFSET * s1;
}

/* Lane (n, t) has the codes of unit n of each group. */
template <class R>
static __device__ __forceinline__ void load_narrow(const struct product_args &p,
                                                   int64_t row, int groups, uint8_t *x)
{
    using X = tile_x<R, false>;
    float *d = (float *)(x + groups * X::CODE_BYTES), *s = d + GROUP8 * groups;
    int *init = (int *)(s + (R::F::MINIMUM ? GROUP8 * groups : 0));
    const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4, units = p.k / KG_UNIT;
#pragma unroll 4
    for (int group = (int)threadIdx.x / 32; group < groups;
         group += (int)blockDim.x / 32) {
        const int u = GROUP8 * group + n;
        uint32_t b[2];
        int start[2];
        tile_codes<R>(p, row, u < units, u, t, b);
        if (X::HALVES) {
            *(uint4 *)(x + group * X::CODE_BYTES + 16 * lane) =
                make_uint4(codes_to_half2(b[0], 0), codes_to_half2(b[0], 16),
                           codes_to_half2(b[1], 0), codes_to_half2(b[1], 16));
        } else {
            *(uint2 *)(x + group * X::CODE_BYTES + 8 * lane) = make_uint2(b[0], b[1]);
        }
        if (X::INIT) {
            tile_init<R>(b, start);
            if (X::KINDS == 2 && t < 2)
                init[16 * group + 2 * n + t] = t == 0 ? start[0] : start[1];
            if (X::KINDS == 1 && t == 0)
                init[u] = start[0];
        }
    }
    for (int u = (int)threadIdx.x; u < GROUP8 * groups; u += (int)blockDim.x) {
        d[u] = u < units ? p.d[row * units + u] : 0.0f;
        if (R::F::MINIMUM)
            s[u] = u < units ? p.s[row * units + u] : 0.0f;
    }
}

/* Of pair u of a group, units u and u + 4: lane (n, t) has the codes of both for row n of q; lane
   t of a row wants d, s and starts of columns 2t and 2t + 1 of u, then of u + 4. */
template <class R>
static __device__ __forceinline__ void load_wide(const struct product_args &p, int64_t q0,
                                                 int columns, int groups, uint8_t *x)
{
    using X = tile_x<R, true>;
    constexpr int N = GROUP8 * 8;
    float *d = (float *)(x + groups * X::CODE_BYTES), *s = d + N * groups;
    int *init = (int *)(s + (R::F::MINIMUM ? N * groups : 0));
    const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4, units = p.k / KG_UNIT;
    const int64_t row = q0 + n;
#pragma unroll 4
    for (int pair = (int)threadIdx.x / 32; pair < 4 * groups;
         pair += (int)blockDim.x / 32) {
        const int u = GROUP8 * (pair / 4) + pair % 4;
        uint32_t a[2], b[2];
        int start_a[2], start_b[2];
        tile_codes<R>(p, row, n < columns && u < units, u, t, a);
        tile_codes<R>(p, row, n < columns && u + 4 < units, u + 4, t, b);
        *(uint4 *)(x + 512 * pair + 16 * lane) = make_uint4(a[0], a[1], b[0], b[1]);
        const int to = 16 * pair + 4 * (n / 2) + n % 2 + 2 * (t % 2);
        const int mine = u + 4 * (t % 2);
        const bool there = n < columns && mine < units;
        if (t < 2)
            d[to] = there ? p.d[row * units + mine] : 0.0f;
        if (R::F::MINIMUM && t >= 2)
            s[to] = there ? p.s[row * units + mine] : 0.0f;
        if (X::INIT) {
            tile_init<R>(a, start_a);
            tile_init<R>(b, start_b);
            if (t < 2)
                init[X::KINDS * 16 * pair + to - 16 * pair] = t ? start_b[0] : start_a[0];
            else if (X::KINDS == 2)
                init[32 * pair + 16 + to - 16 * pair] = t % 2 ? start_b[1] : start_a[1];
        }
    }
}

/* ---- copies ---- */

/* What a lane copies next. */
template <class R>
struct tile_copier {
    const uint8_t *from[R::PLANES]; /* its first row of the tile, at the stage */
    uint32_t tile;
    int stage, slot; /* slot in bytes */
    int rows; /* of the tile, behind the lane's own; TILE: whole, and the tensor goes on */
};

struct tile_place {
    const struct product_tensor *tensor;
    int64_t row0;
};

static __device__ __forceinline__ struct tile_place
find_tile(const struct product_args &p, uint32_t tile)
{
    int i = 0;
    while (tile >= p.tensor[i].tile_end)
        i++;
    const uint32_t before = i == 0 ? 0 : p.tensor[i - 1].tile_end;
    return {p.tensor + i, (int64_t)(tile - before) * TILE};
}

template <class R, class L>
static __device__ __forceinline__ void tile_start_copy(const struct product_args &p,
                                                       struct tile_copier<R> *c)
{
    const struct tile_place at = find_tile(p, c->tile);
    const int64_t out = at.tensor->out;
    const uint8_t *plane = at.tensor->w;
    const int lane = threadIdx.x % 32;
    c->stage = 0;
    c->rows = at.row0 + TILE < out ? (int)TILE : (int)(out - at.row0) - TILE;
#pragma unroll
    for (int i = 0; i < R::PLANES; i++) {
        c->from[i] = plane + (at.row0 + lane / L::lanes(i)) * row_bytes<R>(p, i);
        plane += out * row_bytes<R>(p, i);
    }
}

template <class R, class L, int GROUPS, bool EVEN, bool WHOLE>
static __device__ __forceinline__ void tile_copy_plane(const struct product_args &p,
                                                       const struct tile_copier<R> &s,
                                                       int i, uint8_t *to)
{
    const int lane = threadIdx.x % 32, lanes = L::lanes(i), pieces = L::pieces(i);
    const int c = lane % lanes, r = lane / lanes;
    const int left = min(p.k / KG_UNIT - s.stage * GROUPS * GROUP8, GROUPS * GROUP8);
    const int bytes = left * R::plane_bytes(i) / 32;
    const uint8_t *row = s.from[i] + 16 * c;
    const int64_t step = L::at_once(i) * row_bytes<R>(p, i);
    to += L::at(i) + r * L::stride(i) + 16 * c;
    if (EVEN && L::shifts(i))
        row -= (uintptr_t)row & 15;
    const auto copy_row = [&](int r0, bool piece, int k) {
        const uint8_t *from = row;
        if (!EVEN && L::shifts(i))
            from = (const uint8_t *)((uintptr_t)row & ~(uintptr_t)15);
        uint8_t *const place = to + r0 * L::stride(i) + 16 * k;
        if (WHOLE) {
            if (piece)
                kg_cp_async_16(place, from + 16 * k);
        } else {
            const int phase =
                !L::shifts(i) ? 0 : (int)((uintptr_t)(EVEN ? s.from[i] : row) & 15);
            const int n = bytes + phase - 16 * (c + k);
            if (piece && r0 + r < s.rows + TILE)
                kg_cp_async_16(place, n > 0 ? from + 16 * k : from, max(min(n, 16), 0));
        }
    };
    if (WHOLE) {
#pragma unroll
        for (int r0 = 0; r0 < TILE; r0 += L::at_once(i), row += step)
#pragma unroll
            for (int k = 0; k < pieces; k += lanes)
                copy_row(r0, k + lanes <= pieces || c + k < pieces, k);
    } else {
#pragma unroll 1
        for (int r0 = 0; r0 < TILE; r0 += L::at_once(i), row += step)
#pragma unroll 1
            for (int k = 0; k < pieces; k += lanes)
                copy_row(r0, c + k < pieces, k);
    }
}

/* The next stage, if there is one, and the commit. Of a tensor's last tile, and of a row's last
   stage that is not whole, no byte behind a row is read, and zeros are put there. */
template <class R, class L, int GROUPS, int STAGES, bool EVEN>
static __device__ __forceinline__ void tile_copy(const struct product_args &p,
                                                 struct tile_copier<R> *c, uint8_t *ring,
                                                 int stages, uint32_t stride)
{
    if (c->tile < p.tiles) {
        uint8_t *const to = ring + c->slot;
        const int k0 = c->stage * GROUPS * 256;
        if (c->rows == TILE && k0 + GROUPS * 256 <= p.k) {
#pragma unroll
            for (int i = 0; i < R::PLANES; i++)
                tile_copy_plane<R, L, GROUPS, EVEN, true>(p, *c, i, to);
        } else {
#pragma unroll
            for (int i = 0; i < R::PLANES; i++)
                tile_copy_plane<R, L, GROUPS, EVEN, false>(p, *c, i, to);
        }
#pragma unroll
        for (int i = 0; i < R::PLANES; i++)
            c->from[i] += L::bytes(i);
        c->slot = c->slot == (STAGES - 1) * L::total ? 0 : c->slot + L::total;
        if (++c->stage == stages) {
            c->tile += stride;
            if (c->tile < p.tiles)
                tile_start_copy<R, L>(p, c);
        }
    }
    kg_cp_async_commit();
}

/* ---- arithmetic ---- */

struct tile_quad {
    int v[4];
};

static __device__ __forceinline__ struct tile_quad load_quad(const void *at)
{
    const uint4 v = kg_load_uint4(at);
    return {
        {(int)v.x, (int)v.y, (int)v.z, (int)v.w}
    };
}

/* What a lane knows of its group in a stage: plane i of its row is at at[i] + off[i], off known
   when compiled. */
template <class R, class L>
struct tile_row {
    int at[R::PLANES], off[R::PLANES];

    __device__ __forceinline__ tile_row(const struct product_args &p, const int *phase,
                                        int slot, int g, int j)
    {
        (void)p;
#pragma unroll
        for (int i = 0; i < R::PLANES; i++) {
            at[i] = slot + L::at(i) + g * L::stride(i) + phase[i];
            off[i] = j * (R::plane_bytes(i) / 4);
        }
    }
};

/* All codes of a group: c[w][u] of unit 4w + u. */
template <class R, class L>
static __device__ __forceinline__ void
group_codes(const uint8_t *smem, const struct tile_row<R, L> &row, int t,
            const struct code_tables &tables, uint32_t c[2][4][2], uint32_t e[2][4][2])
{
#pragma unroll
    for (int w = 0; w < 2; w++)
        R::codes(smem, row.at, row.off, w, t, tables, c[w], e[w]);
}

template <class R, class L>
static __device__ __forceinline__ void
narrow_group(const struct product_args &, const uint8_t *smem,
             const struct tile_row<R, L> &row, const uint8_t *x, int groups, int group,
             const uint32_t mask[4], const struct code_tables &tables, float scale,
             float acc[2])
{
    using X = tile_x<R, false>;
    using F = typename R::F;
    (void)scale;
    const int lane = threadIdx.x % 32, t = lane % 4;
    const float *d = (const float *)(x + groups * X::CODE_BYTES),
                *s = d + GROUP8 * groups;
    const int *init = (const int *)(s + (F::MINIMUM ? GROUP8 * groups : 0));
    const uint2 mine = kg_load_uint2(x + group * X::CODE_BYTES + 8 * lane);
    int dot[2][4];
    if (X::INIT && X::KINDS == 2) {
        const struct tile_quad v = load_quad(init + 16 * group + 4 * t);
        for (int i = 0; i < 4; i++) {
            dot[0][i] = v.v[2 * (i % 2)];
            dot[1][i] = v.v[2 * (i % 2) + 1];
        }
    } else if (X::INIT) {
        const uint2 v = kg_load_uint2(init + 8 * group + 2 * t);
        for (int i = 0; i < 4; i++)
            dot[0][i] = (int)(i % 2 ? v.y : v.x);
    } else {
        for (int i = 0; i < 4; i++)
            dot[0][i] = dot[1][i] = DOT_ZERO;
    }
    uint32_t c[2][4][2], e[2][4][2];
    group_codes(smem, row, t, tables, c, e);
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const uint32_t b[2] = {mine.x & mask[u], mine.y & mask[u]};
        if (X::KINDS == 2) {
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const uint32_t ca[2] = {c[0][u][k], c[1][u][k]};
                kg_mma_s8_16816_add(dot[k], ca, b + k, dot[k]);
                if (R::EXTRA) {
                    const uint32_t ea[2] = {e[0][u][k], e[1][u][k]};
                    kg_mma_s8_16816_add(dot[k], ea, b + k, dot[k]);
                }
            }
        } else {
            const uint32_t ca[4] = {c[0][u][0], c[1][u][0], c[0][u][1], c[1][u][1]};
            kg_mma_s8_16832_add(dot[0], ca, b, dot[0]);
            if (R::EXTRA) {
                const uint32_t ea[4] = {e[0][u][0], e[1][u][0], e[0][u][1], e[1][u][1]};
                kg_mma_s8_16832_add(dot[0], ea, b, dot[0]);
            }
        }
    }
    const float2 d2 = *(const float2 *)(d + GROUP8 * group + 2 * t);
    float2 s2 = {};
    if (F::MINIMUM)
        s2 = *(const float2 *)(s + GROUP8 * group + 2 * t);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float a[2], m;
        R::scales(smem, row.at, row.off, t >> 1, 2 * (t & 1) + n, a, &m);
        float dots[2];
        for (int k = 0; k < X::KINDS; k++)
            dots[k] = dot_value<R>(t < 2 ? dot[k][n] : dot[k][2 + n]);
        acc[n] = fold_dots<F>(acc[n], a, m, dots, n ? d2.y : d2.x, n ? s2.y : s2.x);
    }
}

/* E4M3: exact in two parts (e4m3.h). */
template <class L>
static __device__ __forceinline__ void
narrow_group(const struct product_args &, const uint8_t *smem,
             const struct tile_row<read_e4m3, L> &row, const uint8_t *x, int groups,
             int group, const uint32_t mask[4], const struct code_tables &, float scale,
             float acc[2])
{
    using X = tile_x<read_e4m3, false>;
    const int lane = threadIdx.x % 32, t = lane % 4;
    const float *d = (const float *)(x + groups * X::CODE_BYTES);
    const struct tile_quad mine = load_quad(x + group * X::CODE_BYTES + 16 * lane);
    float high[4] = {}, low[4] = {};
    const uint8_t *from = smem + row.at[0] + row.off[0] + 8 * t;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        uint32_t b[4];
        for (int i = 0; i < 4; i++)
            b[i] = (uint32_t)mine.v[i] & mask[u];
        add_e4m3(high, low, kg_load_uint2(from + 32 * u),
                 kg_load_uint2(from + 32 * u + 128), b);
    }
    const float2 d2 = *(const float2 *)(d + GROUP8 * group + 2 * t);
    acc[0] = fmaf(scale, d2.x * (t < 2 ? high[0] + low[0] : high[2] + low[2]), acc[0]);
    acc[1] = fmaf(scale, d2.y * (t < 2 ? high[1] + low[1] : high[3] + low[3]), acc[1]);
}

/* acc[8w + 2u + i]: unit 4w + u, column 2t + i; acc[2w + i] of a quad. */
template <class R, class L>
static __device__ __forceinline__ void
wide_group(const struct product_args &, const uint8_t *smem,
           const struct tile_row<R, L> &row, const uint8_t *x, int groups, int group,
           const struct tile_quad &zero, const struct code_tables &tables, float *acc)
{
    using X = tile_x<R, true>;
    using F = typename R::F;
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    const float *d = (const float *)(x + groups * X::CODE_BYTES) + 64 * group + 4 * t;
    const float *s = d + 64 * groups;
    const int *init =
        (const int *)(s + (F::MINIMUM ? 64 * groups : 0)) + 64 * (X::KINDS - 1) * group;
    float a[2][2], m[2], quad[4] = {};
    uint32_t c[2][4][2], e[2][4][2];
#pragma unroll
    for (int w = 0; w < 2; w++) {
        R::codes(smem, row.at, row.off, w, t, tables, c[w], e[w]);
        R::scales(smem, row.at, row.off, w, t, a[w], &m[w]);
    }
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const struct tile_quad b =
            load_quad(x + group * X::CODE_BYTES + 512 * u + 16 * lane);
        const float4 d4 = kg_load_float4(d + 16 * u);
        const float ds[4] = {d4.x, d4.y, d4.z, d4.w};
        float dots[4][2];
#pragma unroll
        for (int k = 0; k < X::KINDS; k++) {
            const struct tile_quad start =
                X::INIT ? load_quad(init + 16 * (X::KINDS * u + k)) : zero;
            int dot[2][4];
#pragma unroll
            for (int w = 0; w < 2; w++) {
                const uint32_t bs[2] = {(uint32_t)b.v[2 * w], (uint32_t)b.v[2 * w + 1]};
                if (X::KINDS == 2) {
                    const uint32_t ca[2] = {c[0][u][k], c[1][u][k]};
                    const uint32_t ea[2] = {e[0][u][k], e[1][u][k]};
                    kg_mma_s8_16816_add(dot[w], ca, bs + k, start.v);
                    if (R::EXTRA)
                        kg_mma_s8_16816_add(dot[w], ea, bs + k, dot[w]);
                } else {
                    const uint32_t ca[4] = {c[0][u][0], c[1][u][0], c[0][u][1],
                                            c[1][u][1]};
                    const uint32_t ea[4] = {e[0][u][0], e[1][u][0], e[0][u][1],
                                            e[1][u][1]};
                    kg_mma_s8_16832_add(dot[w], ca, bs, start.v);
                    if (R::EXTRA)
                        kg_mma_s8_16832_add(dot[w], ea, bs, dot[w]);
                }
            }
            for (int i = 0; i < 4; i++)
                dots[i][k] = dot_value<R>(dot[i / 2][i]);
        }
        float as[2][2], ms[2], ss[4] = {};
        for (int w = 0; w < 2; w++) {
            for (int k = 0; k < X::KINDS; k++)
                as[w][k] = __shfl_sync(KG_WARP_ALL, a[w][k], 4 * g + u);
            if (F::MINIMUM)
                ms[w] = __shfl_sync(KG_WARP_ALL, m[w], 4 * g + u);
        }
        if (F::MINIMUM) {
            const float4 s4 = kg_load_float4(s + 16 * u);
            ss[0] = s4.x;
            ss[1] = s4.y;
            ss[2] = s4.z;
            ss[3] = s4.w;
        }
        for (int i = 0; i < 4; i++) {
            float *const sum =
                acc + X::LANES * (i / 2) + 2 * (u % (X::LANES / 2)) + i % 2;
            if constexpr (F::QUADS) {
                quad[i] = quad_step(quad[i], u, ds[i], join_dots(as[i / 2], dots[i]));
                if (u == 3)
                    *sum = fmaf(m[i / 2], quad[i], *sum);
            } else {
                *sum = fold_dots<F>(*sum, as[i / 2], ms[i / 2], dots[i], ds[i], ss[i]);
            }
        }
    }
}

/* ---- results ---- */

static __device__ __forceinline__ void tile_store(const struct product_args &p,
                                                  const struct tile_place &at, int g,
                                                  int64_t q_row, float sum)
{
    const int64_t o = at.row0 + g;
    if (o >= at.tensor->out || q_row >= p.m)
        return;
    if (p.row_scales)
        sum *= at.tensor->scales[o];
    at.tensor->y[q_row * at.tensor->out + o] = sum * at.tensor->scale;
}

/* acc[2j + i]: lane 8j + 2t + i of the law. */
static __device__ __forceinline__ float narrow_sum(const float acc[8])
{
    float v[2];
    for (int i = 0; i < 2; i++) {
        v[i] = (acc[i] + acc[4 + i]) + (acc[2 + i] + acc[6 + i]);
        v[i] += __shfl_xor_sync(KG_WARP_ALL, v[i], 2);
        v[i] += __shfl_xor_sync(KG_WARP_ALL, v[i], 1);
    }
    return v[0] + v[1];
}

/* Lane l of the law is unit l % 8 = 4w + u of group l / 8, or quad l % 2. */
template <int LANES>
static __device__ __forceinline__ float wide_sum(const float *acc, int i)
{
    float v[LANES];
    for (int l = 0; l < LANES; l++)
        v[l] = acc[2 * l + i];
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        for (int l = 0; l < distance; l++)
            v[l] += v[l + distance];
    return v[0];
}

/* blockIdx.y: which p.width rows of q. */
template <class R, bool WIDE, int GROUPS, int STAGES, bool EVEN>
__global__ void __launch_bounds__(32 * TILE_WARPS, 1)
    tile_kernel(const struct product_args p)
{
    using L = tile_stage<R, GROUPS, EVEN>;
    using X = tile_x<R, WIDE>;
    static_assert(GROUPS == 1 || GROUPS == 2 || GROUPS == 4,
                  "a part of the law's 32 lanes");
    KG_SHARED_DYNAMIC(smem);
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int stages = (p.k / KG_UNIT + GROUPS * GROUP8 - 1) / (GROUPS * GROUP8);
    const int groups = stages * GROUPS;
    const int ring = (groups * X::BYTES + 127) / 128 * 128 +
                     (int)(threadIdx.x / 32) * STAGES * L::total;
    const uint32_t stride = gridDim.x * (blockDim.x / 32);
    uint8_t *const copy_to = kg_opaque(smem + ring);
    struct tile_copier<R> ahead = {
    };
    ahead.tile = threadIdx.x / 32 * gridDim.x + blockIdx.x;
    ahead.slot = 0;
    uint32_t tile = ahead.tile;
    if (tile < p.tiles)
        tile_start_copy<R, L>(p, &ahead);
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        tile_copy<R, L, GROUPS, STAGES, EVEN>(p, &ahead, copy_to, stages, stride);
    const int64_t q0 = (int64_t)blockIdx.y * p.width;
    ask_for_q(p.q, p.d, R::F::MINIMUM ? p.s : nullptr, p.in, q0, min64(p.width, p.m - q0),
              (int)threadIdx.x, (int)blockDim.x);
    kg_grid_wait();
    kg_grid_release();
    if (WIDE)
        load_wide<R>(p, q0, (int)min64(p.width, p.m - q0), groups, smem);
    else
        load_narrow<R>(p, q0, groups, smem);
    const struct code_tables tables = R::tables();
    struct tile_quad zero;
    uint32_t mask[4];
    for (int i = 0; i < 4; i++) {
        zero.v[i] = (int)kg_opaque((uint32_t)DOT_ZERO);
        mask[i] = g % 4 == i ? 0xffffffffu : 0u;
    }
    __syncthreads();
    int slot = 0;
    for (; tile < p.tiles; tile += stride) {
        const struct tile_place at = find_tile(p, tile);
        constexpr int SUMS = WIDE ? 8 * X::LANES : 8;
        float acc[SUMS] = {}, other[SUMS] = {};
        int phase[R::PLANES];
        int64_t plane = 0;
#pragma unroll
        for (int i = 0; i < R::PLANES; i++) {
            phase[i] = (int)((uintptr_t)at.tensor->w + (uintptr_t)plane +
                             (uintptr_t)((at.row0 + g) * row_bytes<R>(p, i)));
            plane += at.tensor->out * row_bytes<R>(p, i);
        }
        const float *scales = nullptr;
        const int scale_columns = (p.k + 127) / 128;
        if (!WIDE && X::HALVES && p.block_scales)
            scales = at.tensor->scales + at.row0 / 128 * scale_columns;
        for (int stage = 0; stage < stages;) {
#pragma unroll
            for (int part = 0; part < 4 / GROUPS; part++) {
                if (stage < stages) {
                    float scale[GROUPS];
                    for (int j = 0; j < GROUPS; j++) {
                        const int column = 2 * (stage * GROUPS + j) + t / 2;
                        scale[j] = 1.0f;
                        if (!WIDE && X::HALVES && scales)
                            scale[j] = column < scale_columns ? scales[column] : 0.0f;
                    }
                    kg_cp_async_wait<STAGES - 2>();
                    __syncwarp();
                    tile_copy<R, L, GROUPS, STAGES, EVEN>(p, &ahead, copy_to, stages,
                                                          stride);
                    int shift[R::PLANES];
#pragma unroll
                    for (int i = 0; i < R::PLANES; i++)
                        shift[i] =
                            L::shifts(i) ? (phase[i] + stage * L::bytes(i)) & 15 : 0;
#pragma unroll
                    for (int j = 0; j < GROUPS; j++) {
                        const struct tile_row<R, L> row(p, shift, ring + slot, g, j);
                        const int group = stage * GROUPS + j;
                        if constexpr (WIDE)
                            wide_group(p, smem, row, smem, groups, group, zero, tables,
                                       acc + 2 * X::LANES * (part * GROUPS + j));
                        else
                            narrow_group(p, smem, row, smem, groups, group, mask, tables,
                                         scale[j], acc + 2 * (part * GROUPS + j));
                    }
                    slot = slot == (STAGES - 1) * L::total ? 0 : slot + L::total;
                    stage++;
                }
            }
            if (R::F::QUADS)
                swap_sums<SUMS>(acc, other);
        }
        for (int v = 0; R::F::QUADS && v < SUMS; v++)
            acc[v] += other[v];
        if constexpr (WIDE) {
            for (int i = 0; i < 2; i++) {
                const float sum = wide_sum<4 * X::LANES>(acc, i);
                if (2 * t + i < p.width)
                    tile_store(p, at, g, q0 + 2 * t + i, sum);
            }
        } else {
            const float sum = narrow_sum(acc);
            if (t == 0)
                tile_store(p, at, g, q0, sum);
        }
    }
}

#endif
