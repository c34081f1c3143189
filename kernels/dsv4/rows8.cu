/*
 * The FP4 product for few rows: 16 columns (rows of w) by 8 rows of x a block, all of k.
 *
 *   16 warps; warp v owns the partial sums t = v, v + 16, ..., v + 112 of all 128 outputs,
 *   as accumulators of mma.m16n8k16 (w is A, x is B, k in the order of x_halves).
 *   Part i of warp v is t = v + 16 i. The halving tree over i (64, 32, 16) is a binary tree over
 *   0 4 2 6 1 5 3 7, the one over v (8, 4, 2, 1) goes through shared memory.
 *
 * Time is short here: a few microseconds, of which the first is spent waiting for memory. So
 * everything is requested at once, codes first, then w in two pieces of four parts each (0 4 2 6,
 * 1 5 3 7); the codes, which come from L2, are decoded and tested while w is under way; and
 * each piece is multiplied when it is there. All blocks want the same codes, as many bytes as
 * their weights: two blocks share one copy of them (device/multicast.h). What is rare is out of
 * line.
 *
 * Order, exactness and the fallbacks: fp4.h. A group that needs its order is looked at once more
 * with its weights, which nearly always shows that it does not (marked_group).
 */
#include "kernels/device/multicast.h"
#include "kernels/dsv4/rows8_operands.h"

namespace
{

constexpr int CLUSTER = 2; /* blocks that get their codes together */

/* Bit 4r: whether this group of row r needs its order. `codes` are the lane's four (or twice
   four) of row lane / 4. */
template <int STEPS>
__device__ inline uint32_t rows_in_order(const uint32_t codes[STEPS], uint32_t *bits)
{
    uint32_t sum = 0;
    *bits = 0;
    for (int h = 0; h < STEPS; h++)
        add_integers(codes[h], &sum, bits);
    for (int distance = 1; distance <= 2; distance *= 2) {
        sum += __shfl_xor_sync(KG_WARP_ALL, sum, distance);
        *bits |= __shfl_xor_sync(KG_WARP_ALL, *bits, distance);
    }
    return __ballot_sync(KG_WARP_ALL, needs_order(sum, *bits));
}

/* Where a lane finds its operands of a group: four nibbles of columns g and g + 8 (w8) and
   four codes of row g for every step. */
struct places {
    const unsigned char *w, *w8, *codes, *s;
    const uint32_t *factors;
};

template <int KIND>
__device__ __forceinline__ struct places
places_of(const struct layout<KIND> &l, const unsigned char *shared, int rows, int j)
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int row = min(g, rows - 1); /* beyond the end: the last one again */
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    struct places p;
    p.w = shared + g * l.w_stride + q * 2 * STEPS + j * (GROUP / 2);
    p.w8 = p.w + 8 * l.w_stride;
    p.codes = shared + l.codes_at + row * l.code_stride + q * 4 * STEPS + j * GROUP;
    p.s = shared + l.s_at + g * 8 + l.s_offset(j);
    p.factors = (const uint32_t *)(shared + l.factors_at) + row * l.factor_stride +
                j * GROUP / 128;
    return p;
}

template <int STEPS>
__device__ __forceinline__ void load_codes(const unsigned char *from, uint32_t x4[STEPS])
{
    if (STEPS == 1) {
        x4[0] = kg_load_u32(from);
    } else {
        const uint2 both = *(const uint2 *)from;
        x4[0] = both.x;
        x4[STEPS - 1] = both.y;
    }
}

/* The A fragments of a group. */
template <int STEPS>
__device__ __forceinline__ void load_w(const unsigned char *w, const unsigned char *w8,
                                       uint32_t mask, uint32_t a[STEPS][4])
{
    if (STEPS == 1) {
        w_halves((kg_load_u16(w) | (uint32_t)kg_load_u16(w8) << 16) & mask, a[0]);
        /* column g: nibbles 0 and 2, 1 and 3; column g + 8 */
        return;
    }
    uint32_t low[4], high[4];
    w_halves(kg_load_u32(w) & mask, low);
    w_halves(kg_load_u32(w8) & mask, high);
#pragma unroll
    for (int h = 0; h < STEPS; h++) {
        a[h][0] = low[h];
        a[h][1] = high[h];
        a[h][2] = low[2 + h];
        a[h][3] = high[2 + h];
    }
}

/* Group i of a batch, counted from the first: four parts of ROUNDS groups each, in the order of
   the tree. */
template <int ROUNDS>
__device__ __forceinline__ constexpr int group_at(int i)
{
    return i / ROUNDS % 2 * 64 + i / ROUNDS / 2 * 32 + i % ROUNDS * KG_DSV4_PARTS;
}

/* Bit i: group i of a batch needs its order in some row. `left`: groups of the row from the
   batch's first on. Out of line: one batch in ten comes here. */
template <int KIND, int ROUNDS>
__device__ __noinline__ uint32_t groups_in_order(const unsigned char *codes, int left)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    uint32_t marked = 0;
#pragma unroll 1
    for (int i = 0; i < 4 * ROUNDS; i++) {
        const int j = group_at<ROUNDS>(i);
        if (j >= left)
            continue;
        uint32_t x4[STEPS], look = 0, bits;
        load_codes<STEPS>(codes + j * GROUP, x4);
        for (int h = 0; h < STEPS; h++)
            look |= needs_look<GROUP>(x4[h]);
        if (__any_sync(KG_WARP_ALL, look != 0) && rows_in_order<STEPS>(x4, &bits) != 0)
            marked |= 1u << i;
    }
    return marked;
}

/* sub * scale of a group in order. */
template <int GROUP>
__device__ __noinline__ float rare_group(const unsigned char *codes,
                                         const unsigned char *w, uint32_t factor)
{
    return ordered_group<GROUP>(codes, w) * (half_at(factor) * 0x1p-14f);
}

/* The sums of a group some of whose rows may need their order; d are those of the tensor
   cores. The test of fp4.h takes all weights for the largest; with the sums of
   |code * e2m1| themselves it nearly always says no. */
struct sums {
    float d[4];
};
template <int KIND>
__device__ __noinline__ struct sums marked_group(int k, const unsigned char *shared,
                                                 int rows, int j, float d0, float d1,
                                                 float d2, float d3)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const struct layout<KIND> l(k);
    const struct places p = places_of<KIND>(l, shared, rows, j);
    struct sums sums = {
        {d0, d1, d2, d3}
    };
    uint32_t x4[STEPS], a[STEPS][4], x[2], bits;
    float most[4] = {};
    load_codes<STEPS>(p.codes, x4);
    load_w<STEPS>(p.w, p.w8, 0x77777777u, a);
    for (int h = 0; h < STEPS; h++) {
        x_halves(x4[h] & 0x7f7f7f7fu, x);
        kg_mma_f16_16816(most, a[h], x);
    }
    /* 2^24 times 2^(z - 10), times the 2^-14 of w, less a part for what the tensor cores may
       drop */
    rows_in_order<STEPS>(x4, &bits);
    bits = __reduce_or_sync(KG_WARP_ALL, bits);
    const float limit = (float)(bits & (0u - bits)) * 0x1.ffp-1f;
    const unsigned char *codes = shared + l.codes_at;
    const uint32_t *factors = (const uint32_t *)(shared + l.factors_at);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int row = min(2 * q + e % 2, rows - 1), col = g + e / 2 * 8;
        if (!(most[e] < limit))
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

/*
 * A batch: groups j + group_at(i): the four parts of a piece, ROUNDS of each. FULL: all of
 * them are there. Else `left` of the row are, from j on; the others are computed from
 * operands of the first, with a scale of 0.
 */
template <int KIND, int ROUNDS>
struct batch {
    static constexpr int N = 4 * ROUNDS, STEPS = recipe<KIND>::STEPS;
    uint32_t x[N][STEPS][2];
    uint32_t marked; /* bit i: some row of group i may need its order */
};

/* Decodes and tests the codes of a batch that begins `at` groups after p. */
template <int KIND, int ROUNDS, bool FULL>
__device__ __forceinline__ void take_codes(const struct places &p, int at, int left,
                                           struct batch<KIND, ROUNDS> &b)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    uint32_t smallest = 0x7bff7bffu;
#pragma unroll
    for (int i = 0; i < b.N; i++) {
        const int j = at + (FULL || group_at<ROUNDS>(i) < left ? group_at<ROUNDS>(i) : 0);
        uint32_t x4[STEPS], x[2];
        load_codes<STEPS>(p.codes + j * GROUP, x4);
        const uint32_t factor = p.factors[j * GROUP / 128];
#pragma unroll
        for (int h = 0; h < STEPS; h++) {
            x_halves(x4[h], x);
            smallest = kg_min_abs_half2(x[0], kg_min_abs_half2(x[1], smallest));
            b.x[i][h][0] = kg_hmul2(x[0], factor);
            b.x[i][h][1] = kg_hmul2(x[1], factor);
        }
    }
    /* below 2^-4 (2^-3) as in needs_look; 0, which it does not want, is rare; a NaN is neither */
    const float fine = GROUP == 16 ? 0x1p-4f : 0x1p-3f;
    const bool look = !(half_at(smallest) >= fine && half_at(smallest >> 16) >= fine);
    b.marked = 0;
    if (__any_sync(KG_WARP_ALL, look))
        b.marked = groups_in_order<KIND, ROUNDS>(p.codes + at * GROUP, left);
}

/* The terms of a batch, added to the sums of its parts (FULL: their sums). j1: its first group. */
template <int KIND, int ROUNDS, bool FULL>
__device__ __forceinline__ void
add_groups(int k, const unsigned char *shared, const struct places &p, int rows, int at,
           int left, int j1, const struct batch<KIND, ROUNDS> &b, float sum[4][4])
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    float d[b.N][4];
#pragma unroll
    for (int i = 0; i < b.N; i++) {
        const int j = at + (FULL || group_at<ROUNDS>(i) < left ? group_at<ROUNDS>(i) : 0);
        uint32_t w[STEPS][4];
        load_w<STEPS>(p.w + j * (GROUP / 2), p.w8 + j * (GROUP / 2), ~0u, w);
        kg_mma_f16_from(d[i], w[0], b.x[i][0], 0.0f);
        if (STEPS == 2)
            kg_mma_f16_16816(d[i], w[STEPS - 1], b.x[i][STEPS - 1]);
    }
    if (b.marked != 0) {
#pragma unroll
        for (int i = 0; i < b.N; i++)
            if ((b.marked >> i & 1u) != 0) {
                const struct sums sums =
                    marked_group<KIND>(k, shared, rows, j1 + group_at<ROUNDS>(i), d[i][0],
                                       d[i][1], d[i][2], d[i][3]);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    d[i][e] = sums.d[e];
            }
    }
#pragma unroll
    for (int i = 0; i < b.N; i++) {
        const bool there = FULL || group_at<ROUNDS>(i) < left;
        const int j = at + (there ? group_at<ROUNDS>(i) : 0);
        float2 s = *(const float2 *)(p.s + layout<KIND>::s_offset(j));
        if (!there)
            s = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float scale = e < 2 ? s.x : s.y, old = sum[i / ROUNDS][e];
            sum[i / ROUNDS][e] = FULL && i % ROUNDS == 0
                                     ? d[i][e] * scale
                                     : add_term<KIND>(old, d[i][e], scale);
        }
    }
}

/* ROUNDS: of groups t, t + 128, ... in a batch. FULL: k is ROUNDS rounds, no more, no less. AHEAD:
   all codes are decoded before w is there. FULL and not AHEAD: for two blocks a multiprocessor. */
template <int KIND, int ROUNDS, bool FULL, bool AHEAD>
__global__ void __launch_bounds__(THREADS, FULL && !AHEAD ? 2 : 1)
    rows8_kernel(struct gemm_args a)
{
    KG_SHARED_DYNAMIC(shared);
    KG_SHARED(uint64_t, arrival, [1]);
    const int k = k_of<KIND, ROUNDS, FULL>(a);
    const struct layout<KIND> l(k);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned col0 = blockIdx.x * COLS, row0 = blockIdx.y * ROWS;
    const int groups = k / recipe<KIND>::GROUP;

    const int rows = (int)min((long long)ROWS, (long long)(a.m - row0));
    struct held_scales<KIND, ROUNDS, FULL> held;
    const bool together = kg_multicast_ranks() > 1;
    if (together)
        kg_multicast_begin(arrival, rows * k);
    request_scales<KIND, ROUNDS, FULL>(a, k, col0, row0, held);
    request_operands<KIND>(a, l, k, col0, row0, together, shared);
    if (together)
        kg_multicast_meet();
    if (together && threadIdx.x == 0)
#pragma unroll 1
        for (int row = kg_multicast_rank(); row < rows; row += kg_multicast_ranks())
            kg_multicast_copy(shared + l.codes_at + row * l.code_stride,
                              a.codes + (int64_t)(row0 + row) * k, k, arrival);
    bool fits = store_factors<KIND, ROUNDS, FULL>(l, k, held, shared);
    kg_cp_async_wait<PIECES>();
    if (together)
        kg_multicast_wait(arrival);
    __syncthreads();

    const int left = groups - warp;
    const struct places p = places_of<KIND>(l, shared, rows, min(warp, groups - 1));
    float tree[PIECES][4];
    struct batch<KIND, ROUNDS> b[AHEAD ? PIECES : 1];
    if (AHEAD)
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            take_codes<KIND, ROUNDS, FULL>(p, 16 * piece, left, b[piece]);
    fits &= store_weight_scales<KIND, ROUNDS, FULL>(a, l, k, held, shared);
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        const int first = 16 * piece;
        float sum[4][4] = {};
        kg_cp_async_wait<PIECES - 1>();
        kg_cp_async_commit(); /* nothing: so that the next wait is for the next piece */
        if (piece > 0) {
            __syncthreads();
        } else if (__syncthreads_or(!fits)) {
            kg_cp_async_wait<0>();
            in_order<KIND>(a, col0, row0);
            return;
        }
        struct batch<KIND, ROUNDS> &mine = b[AHEAD ? piece : 0];
#pragma unroll 1
        for (int at = first; FULL ? at == first : at < left;
             at += ROUNDS * KG_DSV4_PARTS) {
            if (!AHEAD)
                take_codes<KIND, ROUNDS, FULL>(p, at, left - at, mine);
            add_groups<KIND, ROUNDS, FULL>(k, shared, p, rows, at, left - at, warp + at,
                                           mine, sum);
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            tree[piece][e] = (sum[0][e] + sum[1][e]) + (sum[2][e] + sum[3][e]);
    }

    float *sums = (float *)(shared + l.sums_at);
    for (int e = 0; e < 4; e++)
        sums[warp * SUM_STRIDE + (2 * (lane % 4) + e % 2) * COLS + lane / 4 + e / 2 * 8] =
            tree[0][e] + tree[1][e];
    __syncthreads();
    /* four threads an output: warps v, v + 8, v + 4, v + 12 of v = 0 .. 3 */
    const int output = threadIdx.x / 4, v = threadIdx.x % 4;
    sums += v * SUM_STRIDE + output;
    float y =
        (sums[0] + sums[8 * SUM_STRIDE]) + (sums[4 * SUM_STRIDE] + sums[12 * SUM_STRIDE]);
    y = y + __shfl_xor_sync(KG_WARP_ALL, y, 2);
    y = y + __shfl_xor_sync(KG_WARP_ALL, y, 1);
    const int64_t row = row0 + output / COLS, col = (int64_t)col0 + output % COLS;
    if (v == 0 && row < a.m && col < a.n) {
        const float *row_factors =
            (const float *)(shared + l.factors_at) + ROWS * l.factor_stride;
        a.y[row * a.n + col] = y * row_factors[output / COLS] + 0.0f;
    }
}

} // namespace

template <int KIND>
int kg_dsv4_rows8(const struct gemm_args &args, struct CUstream_st *stream)
{
    const struct layout<KIND> l(args.k);
    const dim3 grid(blocks_for(args.n, COLS), blocks_for(args.m, ROWS));
    const int64_t round = KG_DSV4_PARTS * recipe<KIND>::GROUP;
    if (grid.y > 65535)
        return KG_E_INVALID;
    const bool one_wave = (int64_t)grid.x * grid.y <= 132;
    void (*kernel)(struct gemm_args) = rows8_kernel<KIND, 1, false, false>;
    if (args.k == round)
        kernel = one_wave ? rows8_kernel<KIND, 1, true, true>
                          : rows8_kernel<KIND, 1, true, false>;
    else if (KIND == KG_DSV4_NVFP4 && args.k == 2 * round)
        kernel = one_wave ? rows8_kernel<KG_DSV4_NVFP4, 2, true, true>
                          : rows8_kernel<KG_DSV4_NVFP4, 2, true, false>;
    /* a cluster costs as much time as half of the rows */
    const bool together = args.k <= 2 * round && args.k % round == 0 &&
                          args.m > ROWS / 2 && grid.x % CLUSTER == 0;
    return KG_LAUNCH_WITH(stream, together ? CLUSTER : 1, false, grid, THREADS,
                          (size_t)l.bytes, kernel, args);
}

template int kg_dsv4_rows8<KG_DSV4_NVFP4>(const struct gemm_args &, struct CUstream_st *);
template int kg_dsv4_rows8<KG_DSV4_MXFP4>(const struct gemm_args &, struct CUstream_st *);
