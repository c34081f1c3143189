/*
 * The FP4 product for few rows: 16 columns (rows of w) by 8 rows of x a block, all of k.
 *
 *   16 warps; warp v owns the partial sums t = v, v + 16, ..., v + 112 of all 128 outputs,
 *   as accumulators of mma.m16n8k16 (w is A, x is B, k in the order of kg_x_pairs).
 *   part[i] of warp v is t = v + 16 i; the halving tree over i (64, 32, 16) stays in
 *   registers, the one over v (8, 4, 2, 1) goes through shared memory.
 *
 * All of the tile's w and codes are on their way to shared memory before anything is computed:
 * at this size the latency of one round trip is as long as the transfer. The first 128
 * groups are a stage of their own, so that work on them overlaps the rest. A kernel of a few
 * microseconds also pays for every instruction that it fetches: rows are dealt to warps so
 * that nothing is divided, and what is rare is out of line.
 *
 * The groups of a warp in a stage are computed together, without a branch between them. Those
 * that need their order are looked for before, and their sums are put in place after.
 *
 * Order, exactness and the fallbacks: fp4.h. A group that needs its order is summed from
 * the same shared memory by the lanes that own its outputs.
 */
#include "kernels/dsv4/launch.h"

namespace
{

constexpr int COLS = 16, ROWS = 8, WARPS = 16, THREADS = 32 * WARPS;
constexpr int PARTS = KG_DSV4_PARTS / WARPS; /* of a warp */

/* Rows in shared memory are 16 bytes longer than their data: the 8 rows that a warp reads
   together then lie in different banks. */
template <int KIND>
struct layout {
    int w_stride, code_stride, s_stride, factor_stride; /* bytes, bytes, floats, words */
    int codes_at, s_at, factors_at, sums_at, bytes;

    __host__ __device__ explicit layout(int64_t k)
    {
        w_stride = (int)k / 2 + 16;
        code_stride = (int)k + 16;
        s_stride = (int)k / recipe<KIND>::GROUP + 4;
        factor_stride = (int)k / 128 + 1;
        codes_at = COLS * w_stride;
        s_at = codes_at + ROWS * code_stride;
        factors_at = s_at + COLS * s_stride * 4;
        bytes = factors_at + ROWS * factor_stride * 4;
        sums_at = 0; /* over w, when that is done with */
        const int sums_bytes = WARPS * COLS * ROWS * 4;
        bytes = bytes > sums_bytes ? bytes : sums_bytes;
    }
};

/* Copies bytes [from, to) of a row, multiples of 16, by `lanes` threads. */
__device__ inline void copy_row(unsigned char *to_shared, const uint8_t *source, int from,
                                int to, int lane, int lanes, bool real)
{
#pragma unroll 1
    for (int at = from + lane * 16; at < to; at += lanes * 16)
        kg_cp_async_16(to_shared + at, real ? source + at : source, real ? 16 : 0);
}

/* recipe::scale, without branches for E4M3: magnitudes read 2^-120 times their value in an
   f32's place, subnormals too. */
template <int KIND>
__device__ inline float scale_of(uint32_t code, float scale2)
{
    if (KIND == KG_DSV4_MXFP4)
        return kg_e8m0_to_f32((uint8_t)code);
    const float value =
        __uint_as_float((code & 0x7fu) << 20 | (code & 0x80u) << 24) * 0x1p120f;
    return ((code & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : value) * scale2;
}

/* Scales that a thread holds until it may wait for them: at most 9216 / 16 / 4 words of a row
   for 32 lanes, and 9216 / 128 blocks for 64. */
constexpr int WORDS_MOST = 5, BLOCKS_MOST = 2;
struct held_scales {
    uint32_t words[WORDS_MOST];
    float scales[BLOCKS_MOST];
};

template <int KIND>
__device__ inline void request_scales(const struct gemm_args &a, int64_t col0,
                                      int64_t row0, struct held_scales &held)
{
    const int groups = (int)(a.k / recipe<KIND>::GROUP), blocks = (int)(a.k / 128);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t col = min((long long)(col0 + warp), (long long)(a.n - 1));
    const int64_t row = min((long long)(row0 + warp / 2), (long long)(a.m - 1));
#pragma unroll
    for (int i = 0; i < WORDS_MOST; i++)
        if ((lane + 32 * i) * 4 < groups)
            held.words[i] = kg_load_u32(a.ws + col * groups + (lane + 32 * i) * 4);
#pragma unroll
    for (int i = 0; i < BLOCKS_MOST; i++)
        if ((int)threadIdx.x % 64 + 64 * i < blocks)
            held.scales[i] = a.scales[row * blocks + threadIdx.x % 64 + 64 * i];
}

/* Stores the weight scales as f32 and the activation scales as factors, and the ranges of the
   warp in range[warp]. */
template <int KIND>
__device__ inline void store_scales(const struct gemm_args &a,
                                    const struct layout<KIND> &l,
                                    const struct held_scales &held, float *s,
                                    uint32_t *factors, uint32_t (*range)[4])
{
    const int groups = (int)(a.k / recipe<KIND>::GROUP), blocks = (int)(a.k / 128);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct ranges r = {~0u, 0, ~0u, 0};
#pragma unroll
    for (int i = 0; i < WORDS_MOST; i++)
        if ((lane + 32 * i) * 4 < groups) {
            float value[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                value[e] = scale_of<KIND>(held.words[i] >> 8 * e, a.scale2);
                const uint32_t bits = __float_as_uint(value[e]) & 0x7fffffffu;
                r.s_min = min(r.s_min, bits - 1); /* 0 becomes ~0 */
                r.s_max = max(r.s_max, bits);
            }
            *(float4 *)(s + warp * l.s_stride + (lane + 32 * i) * 4) =
                make_float4(value[0], value[1], value[2], value[3]);
        }
#pragma unroll
    for (int i = 0; i < BLOCKS_MOST; i++) {
        const int at = threadIdx.x % 64 + 64 * i;
        if (at < blocks) {
            factors[warp / 2 * l.factor_stride + at] = x_factor(held.scales[i]);
            r.scale_min = min(r.scale_min, scale_bits(held.scales[i]));
            r.scale_max = max(r.scale_max, scale_bits(held.scales[i]));
        }
    }
    r.s_min = __reduce_min_sync(KG_WARP_ALL, r.s_min);
    r.s_max = __reduce_max_sync(KG_WARP_ALL, r.s_max);
    r.scale_min = __reduce_min_sync(KG_WARP_ALL, r.scale_min);
    r.scale_max = __reduce_max_sync(KG_WARP_ALL, r.scale_max);
    if (lane == 0) {
        range[warp][0] = r.s_min;
        range[warp][1] = r.s_max;
        range[warp][2] = r.scale_min;
        range[warp][3] = r.scale_max;
    }
}

/* The ranges of all warps: the same for every thread. */
__device__ inline struct ranges block_ranges(const uint32_t (*range)[4])
{
    const uint4 mine = kg_load_uint4(range[threadIdx.x % WARPS]);
    struct ranges r;
    r.s_min =
        __reduce_min_sync(KG_WARP_ALL, mine.x) + 1;   /* no scale but 0: 0, and then */
    r.s_max = __reduce_max_sync(KG_WARP_ALL, mine.y); /* 0 is s_max too */
    r.s_min = r.s_max == 0 ? 1 : r.s_min;
    r.scale_min = __reduce_min_sync(KG_WARP_ALL, mine.z);
    r.scale_max = __reduce_max_sync(KG_WARP_ALL, mine.w);
    return r;
}

/* Bit 4r: whether this group of row r needs its order. `codes` are the lane's four (or twice
   four) of row lane / 4. */
template <int STEPS>
__device__ inline uint32_t rows_in_order(const uint32_t codes[STEPS])
{
    uint32_t sum = 0, bits = 0;
    for (int h = 0; h < STEPS; h++)
        add_integers(codes[h], &sum, &bits);
    for (int distance = 1; distance <= 2; distance *= 2) {
        sum += __shfl_xor_sync(KG_WARP_ALL, sum, distance);
        bits |= __shfl_xor_sync(KG_WARP_ALL, bits, distance);
    }
    return __ballot_sync(KG_WARP_ALL, needs_order(sum, bits));
}

/* sub * scale of such a group. Out of line, as nearly no group comes here. */
template <int GROUP>
__device__ __noinline__ float rare_group(const uint8_t *codes, const uint8_t *w,
                                         uint32_t factor)
{
    return ordered_group<GROUP>(codes, w) *
           (__uint_as_float(factor & 0xffff0000u) * 0x1p-120f);
}

/* The sums of a group some of whose rows need their order; d are those of the tensor cores. */
struct sums {
    float d[4];
};
template <int KIND>
__device__ __noinline__ struct sums marked_group(int64_t k, const unsigned char *shared,
                                                 int j, float d0, float d1, float d2,
                                                 float d3)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const struct layout<KIND> l(k);
    const unsigned char *codes = shared + l.codes_at;
    const uint32_t *factors = (const uint32_t *)(shared + l.factors_at);
    struct sums sums = {
        {d0, d1, d2, d3}
    };
    uint32_t x4[STEPS];
#pragma unroll
    for (int h = 0; h < STEPS; h++)
        x4[h] = kg_load_u32(codes + g * l.code_stride + j * GROUP + h * 16 + q * 4);
    const uint32_t in_order = rows_in_order<STEPS>(x4);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int row = 2 * q + e % 2, col = g + e / 2 * 8;
        if ((in_order >> 4 * row & 1u) != 0)
            sums.d[e] =
                rare_group<GROUP>(codes + row * l.code_stride + j * GROUP,
                                  shared + col * l.w_stride + j * (GROUP / 2),
                                  factors[row * l.factor_stride + j * GROUP / 128]);
    }
    return sums;
}

/* The whole tile in order. */
template <int KIND>
__device__ __noinline__ void in_order(struct gemm_args a, int64_t col0, int64_t row0)
{
    for (int i = threadIdx.x / 32; i < COLS * ROWS; i += WARPS) {
        const int64_t row = row0 + i / COLS, col = col0 + i % COLS;
        if (row >= a.m || col >= a.n)
            continue;
        const float y = ordered_output<KIND>(a, row, col);
        if (threadIdx.x % 32 == 0)
            a.y[row * a.n + col] = y;
    }
}

/* Adds the groups j1, j1 + 16, ..., of which all 8 are there if FULL. Others are computed from
   the last group, and not added. */
template <int KIND, bool FULL>
__device__ __forceinline__ void add_groups(int64_t k, const unsigned char *shared,
                                           const struct w_tables &tables, int j1,
                                           float part[PARTS][4])
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    const struct layout<KIND> l(k);
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int last = (int)(k / GROUP) - 1 - j1, skip = FULL ? 0 : min(last, 0);
    const unsigned first = (unsigned)(j1 + skip);
    const unsigned char *w_from = shared + g * l.w_stride + q * 2 + first * (GROUP / 2);
    const unsigned char *codes_from =
        shared + l.codes_at + g * l.code_stride + q * 4 + first * GROUP;
    const float *s_from = (const float *)(shared + l.s_at) + g * l.s_stride + first;
    const uint32_t *factors_from =
        (const uint32_t *)(shared + l.factors_at) + g * l.factor_stride;
    uint32_t look = 0;
    float d[PARTS][4];
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        const bool real = FULL || WARPS * i <= last;
        const int at = real ? WARPS * i : 0; /* from `first` */
        const uint32_t factor = factors_from[(first * GROUP) / 128 + at * GROUP / 128];
#pragma unroll
        for (int h = 0; h < STEPS; h++) {
            const unsigned char *w = w_from + at * (GROUP / 2) + h * 8;
            uint32_t top[2], bottom[2], x[2];
            const uint32_t x4 = kg_load_u32(codes_from + at * GROUP + h * 16);
            look |= real && needs_look<GROUP>(x4) != 0 ? 1u << i : 0u;
            kg_x_pairs(x4, factor, x);
            w_pairs(tables, kg_load_u16(w), top);
            w_pairs(tables, kg_load_u16(w + 8 * l.w_stride), bottom);
            const uint32_t tile[4] = {top[0], bottom[0], top[1], bottom[1]};
            if (h == 0)
                kg_mma_bf16_from(d[i], tile, x, 0.0f);
            else
                kg_mma_bf16_16816(d[i], tile, x);
        }
    }
    uint32_t order = 0; /* the looks that end in a need for order */
    look = __reduce_or_sync(KG_WARP_ALL, look);
#pragma unroll 1
    for (; look != 0; look &= look - 1) {
        const int i = __ffs((int)look) - 1;
        uint32_t x4[STEPS];
#pragma unroll
        for (int h = 0; h < STEPS; h++)
            x4[h] = kg_load_u32(codes_from + WARPS * i * GROUP + h * 16);
        order |= rows_in_order<STEPS>(x4) != 0 ? 1u << i : 0u;
    }
    if (order != 0) {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            if ((order >> i & 1u) != 0) {
                const struct sums sums = marked_group<KIND>(
                    k, shared, j1 + WARPS * i, d[i][0], d[i][1], d[i][2], d[i][3]);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    d[i][e] = sums.d[e];
            }
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        if (FULL || WARPS * i <= last) {
            const float s0 = s_from[WARPS * i];
            const float s8 = s_from[8 * l.s_stride + WARPS * i];
            part[i][0] = add_term<KIND>(part[i][0], d[i][0], s0);
            part[i][1] = add_term<KIND>(part[i][1], d[i][1], s0);
            part[i][2] = add_term<KIND>(part[i][2], d[i][2], s8);
            part[i][3] = add_term<KIND>(part[i][3], d[i][3], s8);
        }
}

template <int KIND>
__global__ void __launch_bounds__(THREADS) rows8_kernel(struct gemm_args a)
{
    constexpr int GROUP = recipe<KIND>::GROUP;
    KG_SHARED_DYNAMIC(shared);
    KG_SHARED(uint32_t, range, [WARPS][4]);
    KG_SHARED(uint32_t, table_words, [3]);
    const struct layout<KIND> l(a.k);
    unsigned char *codes = shared + l.codes_at;
    float *s = (float *)(shared + l.s_at);
    uint32_t *factors = (uint32_t *)(shared + l.factors_at);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int g = lane / 4, q = lane % 4;
    const int64_t col0 = (int64_t)blockIdx.x * COLS, row0 = (int64_t)blockIdx.y * ROWS;
    const int k = (int)a.k, groups = k / GROUP;
    const int stage = min(k, KG_DSV4_PARTS * GROUP);

    struct held_scales held;
    request_scales<KIND>(a, col0, row0, held);
    const bool real_col = col0 + warp < a.n, real_row = row0 + warp / 2 < a.m;
    const uint8_t *w_row = a.w + (real_col ? col0 + warp : 0) * (k / 2);
    const uint8_t *codes_row = a.codes + (real_row ? row0 + warp / 2 : 0) * (int64_t)k;
    unsigned char *w_here = shared + warp * l.w_stride;
    unsigned char *codes_here = codes + warp / 2 * l.code_stride;
    copy_row(w_here, w_row, 0, stage / 2, lane, 32, real_col);
    copy_row(codes_here, codes_row, 0, stage, threadIdx.x % 64, 64, real_row);
    kg_cp_async_commit();
    copy_row(w_here, w_row, stage / 2, k / 2, lane, 32, real_col);
    copy_row(codes_here, codes_row, stage, k, threadIdx.x % 64, 64, real_row);
    kg_cp_async_commit();
    store_w_tables(table_words);
    store_scales<KIND>(a, l, held, s, factors, range);
    kg_cp_async_wait<1>();
    __syncthreads();

    if (!scale_moves(block_ranges(range))) {
        kg_cp_async_wait<0>();
        in_order<KIND>(a, col0, row0);
        return;
    }

    const struct w_tables tables = {table_words[0], table_words[1], table_words[2]};
    float part[PARTS][4] = {};
    for (int j0 = 0; j0 < groups; j0 += KG_DSV4_PARTS) {
        if (j0 == KG_DSV4_PARTS) {
            kg_cp_async_wait<0>();
            __syncthreads();
        }
        const int j1 = j0 + warp;
        if (j0 + KG_DSV4_PARTS <= groups)
            add_groups<KIND, true>(a.k, shared, tables, j1, part);
        else
            add_groups<KIND, false>(a.k, shared, tables, j1, part);
    }

#pragma unroll
    for (int h = PARTS / 2; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            for (int e = 0; e < 4; e++)
                part[i][e] = part[i][e] + part[i + h][e];
    __syncthreads(); /* w is done with */
    float *sums = (float *)(shared + l.sums_at);
    for (int e = 0; e < 4; e++)
        sums[(warp * ROWS + 2 * q + e % 2) * COLS + g + e / 2 * 8] = part[0][e];
    __syncthreads();
    if (threadIdx.x < ROWS * COLS) {
        float tree[WARPS];
#pragma unroll
        for (int v = 0; v < WARPS; v++)
            tree[v] = sums[v * ROWS * COLS + threadIdx.x];
#pragma unroll
        for (int h = WARPS / 2; h > 0; h /= 2)
            for (int v = 0; v < h; v++)
                tree[v] = tree[v] + tree[v + h];
        const int64_t row = row0 + threadIdx.x / COLS, col = col0 + threadIdx.x % COLS;
        if (row < a.m && col < a.n)
            a.y[row * a.n + col] = tree[0];
    }
}

} // namespace

template <int KIND>
int kg_dsv4_rows8(const struct gemm_args &args, struct CUstream_st *stream)
{
    const struct layout<KIND> l(args.k);
    const unsigned across = blocks_for(args.n, COLS), down = blocks_for(args.m, ROWS);
    if (down > 65535)
        return KG_E_INVALID;
    return KG_LAUNCH(stream, dim3(across, down), THREADS, (size_t)l.bytes,
                     rows8_kernel<KIND>, args);
}

template int kg_dsv4_rows8<KG_DSV4_NVFP4>(const struct gemm_args &, struct CUstream_st *);
template int kg_dsv4_rows8<KG_DSV4_MXFP4>(const struct gemm_args &, struct CUstream_st *);
