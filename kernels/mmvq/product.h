/*
 * The fast product: weights staged through shared memory, dot products by matrix instructions.
 *
 * A block of eight warps takes TILE_ROWS rows of w at a time and walks along k in stages of
 * 1024 weights, which are copied a few stages ahead by cp.async. In a stage each of the 32 lanes of the law (kernels/matvec/unit.h)
 * has one unit; warp w does those of lanes 4w .. 4w+3 for all rows. So the lane's units come
 * in the order l, l+32, ..., each is folded into the lane's own accumulator by
 *
 *   acc = fmaf(a[g], d * (f32)dot_g, acc) for each group g, then acc = fmaf(b, s, acc)
 *
 * (NVFP4: acc = fmaf(d, a[g] * (f32)dot_g, acc)) and the butterfly is done at the end of a tile:
 * over distances 16, 8, 4 across warps, 2 and 1 across the units of a warp. Of Q3_K a warp has a
 * quad, which quad_fold adds; two lanes of the law take those of its stages in turn, and are added
 * first. dot_g is an integer, so it does not matter that mma.sync computes it, nor in which order:
 * the bits are those of stage_b.
 *
 * The matrix instruction has 16 rows of w and 8 columns. With WIDE the columns are rows of
 * q. A single row of q would leave seven columns idle and each thread with results that only
 * one of four needs; instead the columns are units (and groups): column 2u + g has the
 * activations of group g of unit u of the warp and zeros for everything else, all four units
 * are accumulated into one fragment, and thread t of a row finds the dots of unit t in
 * its two columns.
 *
 * An integer dot comes out as f32 without conversion: the accumulator starts at the bits of
 * 1.5 * 2^23, so that its bits are those of 1.5 * 2^23 + dot (|dot| < 2^22).
 */
#ifndef KGATE_KERNELS_MMVQ_PRODUCT_H
#define KGATE_KERNELS_MMVQ_PRODUCT_H

#include "kernels/mmvq/readers.h"
#include "kgate/ops/mmvq.h"

enum {
    PRODUCT_WARPS = 8,
    PRODUCT_THREADS = 32 * PRODUCT_WARPS,
    TILE_ROWS = 32,
    STAGE_K = 1024, /* weights of a row in a stage: a unit for each lane */
    X_STRIDE = STAGE_K + 32,
    D_STRIDE = STAGE_K / KG_UNIT + 4, /* floats */
    SHARED_LIMIT = 112640,            /* of a block, so that two fit a multiprocessor */
};

struct product_tensor {
    const uint8_t *w;
    float *y;
    const float *scales;
    int64_t out;
    float scale;
    uint32_t tile_end; /* tiles of this tensor and those before it */
};

struct product_args {
    struct product_tensor tensor[KG_MMVQ_TENSORS];
    const int8_t *q;
    const float *d, *s;
    int64_t in, m;
    int k;                         /* in, again: below 2^30 */
    uint32_t tiles;                /* of all tensors */
    uint32_t jobs;                 /* tiles * groups of rows of q * parts */
    int width;                     /* rows of q in a group */
    int parts;                     /* of k: 1, or 2 with `part_y` as the result */
    float *part_y;                 /* [parts][m][out] */
    bool row_scales, block_scales; /* E4M3 */
};

/* ---- what a stage looks like ---- */

/* Bytes from one row to the next in plane i: room for a start that is not a multiple of 16
   and for the word behind the end, and rows spread over the banks: word_any and word want odd
   multiples of 16, 8-byte loads odd multiples of 32. */
template <class R>
static constexpr __host__ __device__ int row_stride(int i)
{
    int chunks = (R::plane_bytes(i) + 15 + 8 + 15) / 16;
    if ((int)R::MAP == (int)MAP_RUN && i == 0)
        return (chunks + (6 - chunks % 4) % 4) * 16;
    return (chunks | 1) * 16;
}

/* A loop, not a recursion, which would be called where i is known after unrolling only. */
template <class R>
static constexpr __host__ __device__ int plane_at(int i)
{
    int at = 0;
    for (int k = 0; k < i; k++)
        at += TILE_ROWS * row_stride<R>(k);
    return at;
}

/* Whether a block of 128 x 128 weights may have a scale: a stage has PRODUCT_WARPS of them. */
template <class R>
static constexpr bool block_scaled = (int)R::F::TYPE == KG_TYPE_F8_E4M3;

template <class R, int COLS>
struct stage_layout {
    static constexpr int x = plane_at<R>(R::PLANES);
    static constexpr int d = x + COLS * X_STRIDE;
    static constexpr int s = d + COLS * D_STRIDE * 4;
    static constexpr int scales = s + (R::F::MINIMUM ? COLS * D_STRIDE * 4 : 0);
    static constexpr int bytes =
        (scales + (block_scaled<R> ? 4 * PRODUCT_WARPS : 0) + 127) / 128 * 128;
    /* Lanes of the law in a warp at a stage, and accumulators of a thread. */
    static constexpr int lanes = R::F::QUADS ? 1 : 4;
    static constexpr int values =
        TILE_ROWS / 16 * (COLS == 1 ? 2 : 4 * lanes * (COLS / 8));
    static constexpr int reduce = values * 4 * 32 * PRODUCT_WARPS / 2;
    static constexpr int fit = (SHARED_LIMIT - reduce) / bytes;
    static constexpr int stages = fit > 4 ? 4 : fit < 2 ? 2 : fit;
    static constexpr int total = stages * bytes + reduce;
};

/* ---- copies ---- */

/* Whether rows of plane i may start at other than multiples of 16 bytes. */
template <class R>
static constexpr __host__ __device__ bool plane_shifts(int i)
{
    for (int k = 0; k <= i; k++)
        if (R::plane_bytes(k) * (int)R::F::BLOCK / STAGE_K % 16 != 0)
            return true;
    return false;
}

/* Whether each row and plane is a multiple of 16 bytes. */
template <class R>
static bool in_whole_pieces(const struct product_args &p)
{
    for (int i = 0; i < R::PLANES; i++)
        if (p.in / KG_UNIT * R::plane_bytes(i) / 32 % 16 != 0)
            return false;
    return true;
}

/* A tile of one tensor with a group of rows of q, and the stages of it that are done. */
template <class R>
struct job {
    int tensor, part;
    int rows;              /* of w: TILE_ROWS, less in the last tile */
    int64_t row0;          /* the first of them */
    int64_t q0;            /* first row of q */
    int chunk, chunks;     /* first stage, and how many */
    int64_t at[R::PLANES]; /* where row0 starts in each plane, in bytes from w */
};

static __device__ __host__ __forceinline__ int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Bytes of a row of plane i. */
template <class R>
static __device__ __forceinline__ int64_t row_bytes(const struct product_args &p, int i)
{
    return (int64_t)((unsigned)p.k / KG_UNIT) * R::plane_bytes(i) / 32;
}

template <class R>
static __device__ __forceinline__ void find_job(const struct product_args &p,
                                                uint32_t index, struct job<R> *j)
{
    uint32_t tile = index % p.tiles;
    uint32_t rest = index / p.tiles;
    const int all = (int)((unsigned)(p.k + STAGE_K - 1) / STAGE_K);
    const int first = p.parts == 1 ? all : (all + 1) / 2;
    j->part = (int)(rest % (uint32_t)p.parts);
    j->q0 = (int64_t)(rest / (uint32_t)p.parts) * p.width;
    j->chunk = j->part == 0 ? 0 : first;
    j->chunks = j->part == 0 ? first : all - first;
    j->tensor = 0;
    while (tile >= p.tensor[j->tensor].tile_end)
        j->tensor++;
    if (j->tensor > 0)
        tile -= p.tensor[j->tensor - 1].tile_end;
    const int64_t out = p.tensor[j->tensor].out;
    j->row0 = (int64_t)tile * TILE_ROWS;
    j->rows = (int)min64(out - j->row0, TILE_ROWS);
    int64_t plane = 0;
    for (int i = 0; i < R::PLANES; i++) {
        j->at[i] = plane + j->row0 * row_bytes<R>(p, i);
        plane += out * row_bytes<R>(p, i);
    }
}

/* How a plane is copied: a row by `lanes` threads, 16 bytes each, from the multiple of 16 at or
   before its start (reads keep that phase), `at_once` rows at a time. */
template <class R>
struct plane_copy {
    static constexpr __host__ __device__ int pieces(int i)
    {
        return (R::plane_bytes(i) + (plane_shifts<R>(i) ? 30 : 0)) / 16;
    }
    static constexpr __host__ __device__ int lanes(int i)
    {
        return pieces(i) <= 8 ? 8 : pieces(i) <= 16 ? 16 : 32;
    }
    static constexpr __host__ __device__ int at_once(int i)
    {
        return PRODUCT_THREADS / lanes(i);
    }
};

/* What a thread copies next. */
template <class R>
struct copier {
    const uint8_t *from[R::PLANES]; /* its first row's start in this stage */
    const int8_t *q;                /* of its first row of q, with its 16 codes */
    const float *d, *s;
    const float *scales; /* of blocks, that of the stage's `tid` */
    int k;               /* first weight of the stage */
    int rows;            /* of w */
    int columns;         /* rows of q */
    bool inside;         /* the tensor has rows behind these */
};

template <class R>
static __device__ __forceinline__ void
start_copier(const struct product_args &p, const struct job<R> &j, struct copier<R> *c)
{
    const int tid = (int)threadIdx.x;
    c->k = j.chunk * STAGE_K;
    c->rows = j.rows;
    c->inside = j.row0 + TILE_ROWS < p.tensor[j.tensor].out;
    c->columns = (int)min64(p.width, p.m - j.q0);
#pragma unroll
    for (int i = 0; i < R::PLANES; i++)
        c->from[i] = p.tensor[j.tensor].w + j.at[i] +
                     (int64_t)j.chunk * R::plane_bytes(i) +
                     tid / plane_copy<R>::lanes(i) * row_bytes<R>(p, i);
    const int r = tid / (STAGE_K / 16);
    c->q = p.q + (j.q0 + r) * p.in + c->k + tid % (STAGE_K / 16) * 16;
    const int64_t unit = (j.q0 + tid / 32) * (p.in / KG_UNIT) + c->k / KG_UNIT + tid % 32;
    c->d = p.d + unit;
    c->s = p.s + unit;
    if (block_scaled<R> && p.block_scales)
        c->scales = p.tensor[j.tensor].scales + j.row0 / 128 * ((p.k + 127) / 128) +
                    c->k / 128 + tid;
}

/* Plane i of a stage. FULL: all rows exist, all weights too, and the tensor goes on behind
   them, so that whole pieces may be read; otherwise nothing behind the end of a row is. */
template <class R, bool FULL>
static __device__ __forceinline__ void copy_plane(const struct product_args &p,
                                                  const struct copier<R> &s, int i,
                                                  int left, uint8_t *stage)
{
    const int tid = (int)threadIdx.x;
    const int lanes = plane_copy<R>::lanes(i), at_once = plane_copy<R>::at_once(i);
    const int pieces = plane_copy<R>::pieces(i);
    const bool shifts = plane_shifts<R>(i);
    const int c = tid % lanes, bytes = left / KG_UNIT * R::plane_bytes(i) / 32;
    const int64_t step = at_once * row_bytes<R>(p, i);
    uint8_t *to = stage + plane_at<R>(i) + tid / lanes * row_stride<R>(i) + 16 * c;
    const uint8_t *row = s.from[i];
#pragma unroll
    for (int r0 = 0; r0 < TILE_ROWS; r0 += at_once) {
        const int phase = shifts ? (int)((uintptr_t)row & 15) : 0;
        const uint8_t *from = row - phase + 16 * c;
#pragma unroll
        for (int k = 0; k < pieces; k += lanes) {
            const bool piece = k + lanes <= pieces || c + k < pieces;
            const int n = bytes + phase - 16 * (c + k);
            if (FULL && piece)
                kg_cp_async_16(to + r0 * row_stride<R>(i) + 16 * k, from + 16 * k);
            else if (!FULL && piece && r0 + tid / lanes < s.rows &&
                     (R::ZERO_TAIL || n > 0))
                kg_cp_async_16(to + r0 * row_stride<R>(i) + 16 * k, from + 16 * k,
                               max(min(n, 16), 0));
        }
        row += step;
    }
}

/* Rows and columns that do not exist keep what the stage held: no other reads it. */
template <class R, int COLS>
static __device__ __forceinline__ void copy_stage(const struct product_args &p,
                                                  struct copier<R> *s, uint8_t *stage)
{
    using L = stage_layout<R, COLS>;
    const int left = min(p.k - s->k, (int)STAGE_K), tid = (int)threadIdx.x;
    if (s->inside && left == STAGE_K) {
#pragma unroll
        for (int i = 0; i < R::PLANES; i++)
            copy_plane<R, true>(p, *s, i, STAGE_K, stage);
    } else {
        for (int i = 0; i < R::PLANES; i++)
            copy_plane<R, false>(p, *s, i, left, stage);
    }
#pragma unroll
    for (int i = 0; i < R::PLANES; i++)
        s->from[i] += R::plane_bytes(i);
    constexpr int at_once = PRODUCT_THREADS / (STAGE_K / 16);
    const int r = tid / (STAGE_K / 16), x = tid % (STAGE_K / 16) * 16;
    const int8_t *q = s->q;
    uint8_t *to = stage + L::x + r * X_STRIDE + x;
#pragma unroll
    for (int r0 = 0; r0 < COLS; r0 += at_once) {
        if (r0 + r < min(s->columns, COLS) && x < left)
            kg_cp_async_16(to + r0 * X_STRIDE, q, 16);
        q += at_once * p.in;
    }
    to = stage + L::d + 4 * (tid / 32 * D_STRIDE + tid % 32);
#pragma unroll
    for (int r0 = 0; r0 < COLS; r0 += PRODUCT_WARPS)
        if (r0 + tid / 32 < s->columns && tid % 32 * KG_UNIT < left) {
            const int64_t skip = r0 * (p.in / KG_UNIT);
            kg_cp_async_4(to + 4 * r0 * D_STRIDE, s->d + skip);
            if (R::F::MINIMUM)
                kg_cp_async_4(to + L::s - L::d + 4 * r0 * D_STRIDE, s->s + skip);
        }
    if (block_scaled<R> && p.block_scales) {
        if (tid < PRODUCT_WARPS && 128 * tid < left)
            kg_cp_async_4(stage + L::scales + 4 * tid, s->scales);
        s->scales += PRODUCT_WARPS;
    }
    s->q += STAGE_K;
    s->d += STAGE_K / KG_UNIT;
    s->s += STAGE_K / KG_UNIT;
    s->k += STAGE_K;
}

/* ---- arithmetic ---- */

#define DOT_ZERO 0x4b400000 /* 1.5 * 2^23 as f32 */
#define DOT_ZERO_F 12582912.0f

/* Codes of activations to match thread t's codes of weights, from the two halves of a unit. */
template <int MAP>
static __device__ __forceinline__ void load_x(const uint8_t *low, const uint8_t *high,
                                              int t, uint32_t b[2])
{
    if (MAP == MAP_RUN) {
        uint2 v = kg_load_uint2((t < 2 ? low : high) + 8 * (t % 2));
        b[0] = v.x;
        b[1] = v.y;
        return;
    }
    if (MAP == MAP_PAIRS) {
        for (int g = 0; g < 2; g++) {
            const uint8_t *from = (g ? high : low) + 2 * t;
            b[g] = __byte_perm(kg_load_u16(from), kg_load_u16(from + 8), 0x5140);
        }
        return;
    }
    const uint32_t v = kg_load_u32(low + 4 * t), w = kg_load_u32(high + 4 * t);
    b[0] = MAP == MAP_HALVES ? v : __byte_perm(v, w, 0x5140);
    b[1] = MAP == MAP_HALVES ? w : __byte_perm(v, w, 0x7362);
}

template <int MAP>
static __device__ __forceinline__ void load_x(const uint8_t *x, int t, uint32_t b[2])
{
    load_x<MAP>(x, x + 16, t, b);
}

/* b for the dots of group g of a unit whose groups are 16 long. */
static __device__ __forceinline__ void mask_group(int g, const uint32_t b[2],
                                                  uint32_t masked[2])
{
    masked[0] = g == 0 ? b[0] : 0u;
    masked[1] = g == 1 ? b[1] : 0u;
}

template <class R>
static __device__ __forceinline__ void start_dots(int dots[4], const uint32_t b[2])
{
    for (int i = 0; i < 4; i++)
        dots[i] = DOT_ZERO;
    if (R::OFFSET != 0) {
        const uint32_t word = ((uint32_t)R::OFFSET & 255u) * 0x01010101u;
        const uint32_t a[4] = {word, word, word, word};
        kg_mma_s8_16832(dots, a, b);
    }
}

static __device__ __forceinline__ void add_dots(int dots[4], const uint32_t c0[2],
                                                const uint32_t c1[2], const uint32_t b[2])
{
    const uint32_t a[4] = {c0[0], c1[0], c0[1], c1[1]};
    kg_mma_s8_16832(dots, a, b);
}

/* The dot as f32, exact. */
template <class R>
static __device__ __forceinline__ float dot_value(int dot)
{
    return R::NEGATED ? DOT_ZERO_F - __int_as_float(dot)
                      : __int_as_float(dot) - DOT_ZERO_F;
}

/* unit_fold (kernels/matvec/unit.h) from the dots as f32. */
template <class F>
static __device__ __forceinline__ float fold_dots(float acc, const float a[2], float m,
                                                  const float dot[2], float d, float s)
{
    static_assert(!F::QUADS, "quad_fold");
    for (int k = 0; k < (F::GROUP == 16 ? 2 : 1); k++)
        acc = add_dot<F>(acc, a[k], dot[k], d);
    return F::MINIMUM ? fmaf(m, s, acc) : acc;
}

/* Quads of 1024 weights go to eight lanes of the law, those of the next to the others. */
template <int N>
static __device__ __forceinline__ void swap_sums(float acc[N], float other[N])
{
    for (int i = 0; i < N; i++) {
        const float v = acc[i];
        acc[i] = other[i];
        other[i] = v;
    }
}

/* unit_dot from the groups' dots as f32: integers, so exact. */
static __device__ __forceinline__ float join_dots(const float sc[2], const float dot[2])
{
    return fmaf(sc[1], dot[1], sc[0] * dot[0]);
}

/* Where rows g + 8k, k < TILE_ROWS / 8, of a stage begin in each plane: at[i] + off[i]. Where
   eight rows are a multiple of 16 bytes, `at` is that of row g, and `off` constant. Rows that
   do not exist may be read at a wrong phase. */
template <class R>
static __device__ __forceinline__ void row_view(const struct product_args &p,
                                                const struct job<R> &j, int chunk, int g,
                                                int k, int *at, int *off)
{
#pragma unroll
    for (int i = 0; i < R::PLANES; i++) {
        const bool odd = R::plane_bytes(i) * (int)R::F::BLOCK / STAGE_K % 2 != 0;
        at[i] = plane_at<R>(i) + g * row_stride<R>(i);
        off[i] = 8 * k * row_stride<R>(i);
        if (plane_shifts<R>(i))
            at[i] += ((int)j.at[i] + chunk * R::plane_bytes(i) +
                      (g + (odd ? 8 * k : 0)) * (int)row_bytes<R>(p, i)) &
                     15;
    }
}

/* One stage for one row of q: acc[2 * group + half] of unit 4w + t, or of the four, rows g and
   g + 8. */
template <class R>
static __device__ __forceinline__ void
narrow_stage(const struct product_args &p, const struct job<R> &j, int chunk,
             const uint8_t *stage, const struct code_tables &tables, float *acc)
{
    using L = stage_layout<R, 1>;
    using F = typename R::F;
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    uint32_t mine[2], b[4][2];
    load_x<R::MAP>(stage + L::x + 32 * (4 * w + (g >> 1)), t, mine);
    if (F::GROUP == 16) {
        mask_group(g & 1, mine, mine);
    } else if (g & 1) {
        mine[0] = 0;
        mine[1] = 0;
    }
#pragma unroll
    for (int u = 0; u < 4; u++)
        for (int i = 0; i < 2; i++)
            b[u][i] = (g >> 1) == u ? mine[i] : 0u;
    const int unit = 4 * w + t;
    const float d = *(const float *)(stage + L::d + 4 * unit);
    const float s = F::MINIMUM ? *(const float *)(stage + L::s + 4 * unit) : 0.0f;
    const bool exists = chunk * STAGE_K + unit * KG_UNIT < p.k;
#pragma unroll
    for (int group = 0; group < TILE_ROWS / 16; group++) {
        int at[2][R::PLANES], off[2][R::PLANES], dot[4];
        uint32_t c[2][4][2], e[2][4][2];
        for (int h = 0; h < 2; h++) {
            row_view<R>(p, j, chunk, g, 2 * group + h, at[h], off[h]);
            R::codes(stage, at[h], off[h], w, t, tables, c[h], e[h]);
        }
        start_dots<R>(dot, mine);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            add_dots(dot, c[0][u], c[1][u], b[u]);
            if (R::EXTRA)
                add_dots(dot, e[0][u], e[1][u], b[u]);
        }
        for (int h = 0; h < 2; h++) {
            float a[2], m;
            R::scales(stage, at[h], off[h], w, t, a, &m);
            const float dots[2] = {dot_value<R>(dot[2 * h]),
                                   dot_value<R>(dot[2 * h + 1])};
            float *const sum = acc + 2 * group + h;
            if constexpr (F::QUADS)
                *sum = warp_quad_fold(*sum, m, d, join_dots(a, dots), exists);
            else if (exists)
                *sum = fold_dots<F>(*sum, a, m, dots, d, s);
        }
    }
}

/* One stage for up to 8 * NT rows of q: acc[((group * 4 + u) * NT + n) * 4 + i] of unit
   4w + u, i as in the fragment; acc[(group * NT + n) * 4 + i] of a quad. */
template <class R, int NT>
static __device__ __forceinline__ void
wide_stage(const struct product_args &p, const struct job<R> &j, int chunk,
           const uint8_t *stage, const struct code_tables &tables, float *acc)
{
    using L = stage_layout<R, 8 * NT>;
    using F = typename R::F;
    constexpr int GROUPS = F::GROUP == 16 ? 2 : 1;
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int left = p.k / KG_UNIT - chunk * 32 - 4 * w;
    uint32_t b[NT][4][2];
#pragma unroll
    for (int n = 0; n < NT; n++)
        for (int u = 0; u < 4; u++)
            load_x<R::MAP>(stage + L::x + (8 * n + g) * X_STRIDE + 32 * (4 * w + u), t,
                           b[n][u]);
#pragma unroll
    for (int group = 0; group < TILE_ROWS / 16; group++) {
        int at[2][R::PLANES], off[2][R::PLANES];
        uint32_t c[2][4][2], e[2][4][2];
        float a[2][2], m[2];
        for (int h = 0; h < 2; h++) {
            row_view<R>(p, j, chunk, g, 2 * group + h, at[h], off[h]);
            R::codes(stage, at[h], off[h], w, t, tables, c[h], e[h]);
            R::scales(stage, at[h], off[h], w, t, a[h], &m[h]);
        }
        float quad[NT][4] = {};
#pragma unroll
        for (int u = 0; u < 4; u++) {
            float as[2][2], ms[2];
            for (int h = 0; h < 2; h++) {
                for (int k = 0; k < GROUPS; k++)
                    as[h][k] = __shfl_sync(KG_WARP_ALL, a[h][k], 4 * g + u);
                if (F::MINIMUM)
                    ms[h] = __shfl_sync(KG_WARP_ALL, m[h], 4 * g + u);
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float *dp = (const float *)(stage + L::d) +
                                  (8 * n + 2 * t) * D_STRIDE + 4 * w + u;
                const float *sp = (const float *)(stage + L::s) +
                                  (8 * n + 2 * t) * D_STRIDE + 4 * w + u;
                const float d[2] = {dp[0], dp[D_STRIDE]};
                float *v = acc + ((group * L::lanes + u % L::lanes) * NT + n) * 4;
                float dots[4][2];
                for (int k = 0; k < GROUPS; k++) {
                    uint32_t x[2] = {b[n][u][0], b[n][u][1]};
                    int dot[4];
                    if (GROUPS == 2)
                        mask_group(k, b[n][u], x);
                    start_dots<R>(dot, x);
                    add_dots(dot, c[0][u], c[1][u], x);
                    if (R::EXTRA)
                        add_dots(dot, e[0][u], e[1][u], x);
                    for (int i = 0; i < 4; i++)
                        dots[i][k] = dot_value<R>(dot[i]);
                }
                if constexpr (F::QUADS) {
                    for (int i = 0; i < 4; i++)
                        quad[n][i] = quad_step(quad[n][i], u, d[i % 2],
                                               join_dots(as[i / 2], dots[i]));
                    if (u == 3 && left > 0)
                        for (int i = 0; i < 4; i++)
                            v[i] = fmaf(m[i / 2], quad[n][i], v[i]);
                } else if (u < left) {
                    for (int i = 0; i < 4; i++)
                        v[i] = fold_dots<F>(v[i], as[i / 2], ms[i / 2], dots[i], d[i % 2],
                                            F::MINIMUM ? sp[(i % 2) * D_STRIDE] : 0.0f);
                }
            }
        }
    }
}

/* The sums of a tile: `values` accumulators a thread, laid out as the stages leave them. */
template <class R, int COLS, int VALUES>
static __device__ __forceinline__ void finish_tile(const struct product_args &p,
                                                   const struct job<R> &j,
                                                   const float *acc, float *reduce)
{
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32;
    constexpr int half = PRODUCT_WARPS / 2, lanes = stage_layout<R, COLS>::lanes;
    if (w >= half)
        for (int v = 0; v < VALUES; v++)
            reduce[((w - half) * VALUES + v) * 32 + lane] = acc[v];
    __syncthreads();
    if (w < half)
        for (int v = 0; v < VALUES; v++)
            reduce[(w * VALUES + v) * 32 + lane] += acc[v];
    __syncthreads();
    const struct product_tensor &w0 = p.tensor[j.tensor];
    for (int n = threadIdx.x; n < TILE_ROWS * COLS; n += PRODUCT_THREADS) {
        const int r = n % TILE_ROWS, col = n / TILE_ROWS;
        const int group = r / 16, h = r / 8 % 2, g = r % 8;
        float v[4 * lanes];
        for (int l = 0; l < 4 * lanes; l++) {
            const int u = l % lanes;
            const int value =
                COLS == 1
                    ? 2 * group + h
                    : ((group * lanes + u) * (COLS / 8) + col / 8) * 4 + 2 * h + col % 2;
            const int from = 4 * g + (COLS == 1 ? u : col % 8 / 2);
            v[l] = reduce[((l / lanes) * VALUES + value) * 32 + from];
        }
        for (int distance = 2 * lanes; distance > 0; distance /= 2)
            for (int l = 0; l < distance; l++)
                v[l] += v[l + distance];
        const int64_t o = j.row0 + r, row = j.q0 + col;
        if (o >= w0.out || col >= p.width || row >= p.m)
            continue;
        if (p.part_y) {
            p.part_y[(j.part * p.m + row) * w0.out + o] = v[0];
        } else {
            const float sum = p.row_scales ? v[0] * w0.scales[o] : v[0];
            w0.y[row * w0.out + o] = sum * w0.scale;
        }
    }
}

template <class R, int COLS>
__global__ void __launch_bounds__(PRODUCT_THREADS, COLS == 16 ? 1 : 2)
    product_kernel(const struct product_args p)
{
    using L = stage_layout<R, COLS>;
    KG_SHARED_DYNAMIC(smem);
    float *reduce = (float *)(smem + L::stages * L::bytes);
    /* Two walks over the same stages of the same jobs: what is computed now, and what is
       copied, stages - 1 ahead. */
    uint8_t *const ring = kg_opaque(smem);
    uint32_t ahead_index = blockIdx.x;
    int ahead_left, ahead_slot = 0;
    struct copier<R> ahead;
    auto start_ahead = [&]() {
        struct job<R> j;
        find_job(p, ahead_index, &j);
        start_copier(p, j, &ahead);
        ahead_left = j.chunks;
    };
    start_ahead();
    auto copy_next = [&]() {
        if (ahead_index < p.jobs) {
            copy_stage<R, COLS>(p, &ahead, ring + ahead_slot * L::bytes);
            ahead_slot = ahead_slot + 1 == L::stages ? 0 : ahead_slot + 1;
            if (--ahead_left == 0) {
                ahead_index += gridDim.x;
                if (ahead_index < p.jobs)
                    start_ahead();
            }
        }
        kg_cp_async_commit();
    };
    for (int i = 0; i < L::stages - 1; i++)
        copy_next();
    const struct code_tables tables = R::tables();
    int slot = 0;
    for (uint32_t index = blockIdx.x; index < p.jobs; index += gridDim.x) {
        struct job<R> j;
        find_job(p, index, &j);
        float acc[L::values] = {}, other[L::values] = {};
        for (int c = 0; c < j.chunks; c++) {
            /* The stage has landed, and nobody reads the one that is copied to next. */
            kg_cp_async_wait<L::stages - 2>();
            __syncthreads();
            copy_next();
            const uint8_t *stage = smem + slot * L::bytes;
            if constexpr (COLS == 1)
                narrow_stage<R>(p, j, j.chunk + c, stage, tables, acc);
            else
                wide_stage<R, COLS / 8>(p, j, j.chunk + c, stage, tables, acc);
            slot = slot + 1 == L::stages ? 0 : slot + 1;
            if (R::F::QUADS)
                swap_sums<L::values>(acc, other);
        }
        for (int v = 0; R::F::QUADS && v < L::values; v++)
            acc[v] += other[v];
        finish_tile<R, COLS, L::values>(p, j, acc, reduce);
    }
}

#endif
