/*
 * The FP4 product for few rows: 16 columns (rows of w) by 8 rows of x a block, all of k.
 *
 *   8 warps; warp v owns the partial sums t = v, v + 8, ..., v + 120 of all 128 outputs,
 *   as accumulators of mma.m16n8k16 (w is A, x is B). Part i of warp v is t = v + 8 i. The halving
 *   tree over i (64, 32, 16, 8) is a binary tree over 0 8 4 12, 2 10 6 14, 1 9 5 13, 3 11 7 15, the
 *   one over v (4, 2, 1) goes through shared memory.
 *
 * Time is short here: a few microseconds. So the launch overlaps the one before it
 * (device/overlap.h): weights and their scales, which are read before that one is complete, are
 * fetched and decoded beside its end, two blocks a multiprocessor. For a k that is known the
 * weights wait in registers as the high bytes of halves. What is left then are the codes. All
 * blocks want the same ones, as many bytes as their weights: blocks of a cluster share one copy
 * (device/multicast.h). What is rare is out of line.
 *
 * Order, exactness and the fallbacks: fp4.h. A group that needs its order is looked at once more
 * with its weights, which nearly always shows that it does not (marked_group).
 */
#include "kernels/device/bits.h"
#include "kernels/dsv4/rows8_group.h"

namespace
{

constexpr int CLUSTER = 2;          /* blocks that get their codes together */
constexpr int PARTS = 4;            /* of a batch */
constexpr int BATCHES = 16 / PARTS; /* of a warp */

/* How far the first group of a warp's part is from that of its part 0, in the order of the tree. */
__device__ __forceinline__ constexpr int part_at(int i)
{
    return i % 2 * 64 + i / 2 % 2 * 32 + i / 4 % 2 * 16 + i / 8 * 8;
}

/* Group i of a batch, counted from the first: PARTS parts of ROUNDS groups each; and the first
   group of a batch. */
template <int ROUNDS>
__device__ __forceinline__ constexpr int group_at(int i)
{
    return part_at(i / ROUNDS) + i % ROUNDS * KG_DSV4_PARTS;
}

__device__ __forceinline__ constexpr int first_of(int batch)
{
    return part_at(batch * PARTS);
}

/*
 * What a warp does with the groups of a batch, those that begin `at` groups after p: N of them,
 * ROUNDS of each of PARTS parts. K: if it is not 0, k is that, and all or none of the warps have a
 * group. Else `left` are there from p + at on, of ROUNDS = 1; the others are computed from
 * operands of the first, with a scale of 0.
 */
template <int KIND, int K>
struct batch {
    static constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    static constexpr int ROUNDS =
        K == 0 ? 1 : (K / GROUP + KG_DSV4_PARTS - 1) / KG_DSV4_PARTS;
    static constexpr int N = PARTS * ROUNDS;
    static_assert(K / GROUP % 32 == 0, "groups of all warps or none");

    static __device__ __forceinline__ bool there(int at, int i, int left)
    {
        return K == 0 ? group_at<ROUNDS>(i) < left : at + group_at<ROUNDS>(i) < K / GROUP;
    }
    static __device__ __forceinline__ int place(int at, int i, int left)
    {
        return at + (there(at, i, left) ? group_at<ROUNDS>(i) : 0);
    }
};

/* Weights in registers, if K is known. */
template <int KIND, int K>
struct held_weights {
    typedef batch<KIND, K> B;
    uint32_t bytes[BATCHES][B::N][B::STEPS][2];
};

template <int KIND, int K>
__device__ __forceinline__ void hold_weights(const struct places &p,
                                             struct held_weights<KIND, K> &held)
{
    typedef batch<KIND, K> B;
#pragma unroll
    for (int b = 0; b < BATCHES; b++)
#pragma unroll
        for (int i = 0; i < B::N; i++) {
            const int j = B::place(first_of(b), i, 0);
            load_w<B::STEPS>(p.w + j * (B::GROUP / 2), p.w8 + j * (B::GROUP / 2),
                             held.bytes[b][i]);
            for (int h = 0; h < B::STEPS; h++)
                for (int column = 0; column < 2; column++) /* now, not at the use */
                    held.bytes[b][i][h][column] = kg_opaque(held.bytes[b][i][h][column]);
        }
}

/* Whether one of two magnitudes is below those that needs_look (fp4.h) asks for: 0, which it
   does not mind, is rare; a NaN is not above. */
template <int GROUP>
__device__ __forceinline__ bool is_small(uint32_t pair)
{
    const float fine = GROUP == 16 ? 0x1p-4f : 0x1p-3f;
    return !(half_at(pair) >= fine && half_at(pair >> 16) >= fine);
}

/* Bit i: group i may need its order in some row, by the test of fp4.h but for codes that are
   multiples of more than their exponents say. The tensor cores add up the codes of a row, the
   lanes look at four (or twice four) of them each: `smallest` are their smallest. */
template <int KIND, int K>
__device__ __forceinline__ uint32_t
marked_groups(const unsigned char *codes, int at, int left,
              const uint32_t smallest[batch<KIND, K>::N])
{
    typedef batch<KIND, K> B;
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
    uint32_t marked = 0;
    static_assert(B::N % 2 == 0, "two groups a product");
#pragma unroll
    for (int i = 0; i < B::N; i += 2) {
        /* 0 and 2: of the lane's row in group i and in the next one */
        float sums[4] = {};
        uint32_t x4[2][B::STEPS], a[4];
        for (int next = 0; next < 2; next++)
            load_codes<B::STEPS>(codes + B::place(at, i + next, left) * B::GROUP,
                                 x4[next]);
        for (int h = 0; h < B::STEPS; h++) {
            for (int next = 0; next < 2; next++) {
                a[next] = kg_e4m3x2_to_half2(x4[next][h]) & 0x7fff7fffu;
                a[2 + next] = kg_e4m3x2_to_half2(x4[next][h] >> 16) & 0x7fff7fffu;
            }
            kg_mma_f16_16816(sums, a, ones);
        }
        for (int next = 0; next < 2; next++) {
            /* 12 sum < 2^24 step, step being an eighth of the power of two, from 2^-9 on */
            const uint32_t pair = smallest[i + next];
            const float power = half_at(min(pair & 0xffffu, pair >> 16) & 0x7c00u);
            if (B::there(at, i + next, left) &&
                !(sums[2 * next] < fmaxf(2730.5f, power * 174762.0f)))
                marked |= 1u << (i + next);
        }
    }
    return __reduce_or_sync(KG_WARP_ALL, marked);
}

/* The sums of the groups by tensor cores. Bit i of the result: some row of group i may need its
   order. */
template <int KIND, int K>
__device__ __forceinline__ uint32_t multiply_groups(
    const struct places &p, int at, int left, const struct held_weights<KIND, K> &held,
    int b, float d[batch<KIND, K>::N][4])
{
    typedef batch<KIND, K> B;
    uint32_t smallest[B::N], least = 0x7bff7bffu;
#pragma unroll
    for (int i = 0; i < B::N; i++) {
        smallest[i] = 0x7bff7bffu;
        if (K != 0 && !B::there(at, i, left))
            continue;
        const int j = B::place(at, i, left);
        uint32_t x4[B::STEPS], loaded[B::STEPS][2], w[4], x[2];
        load_codes<B::STEPS>(p.codes + j * B::GROUP, x4);
        if (K == 0)
            load_w<B::STEPS>(p.w + j * (B::GROUP / 2), p.w8 + j * (B::GROUP / 2), loaded);
        const uint32_t factor = p.factors[j * B::GROUP / 128];
#pragma unroll
        for (int h = 0; h < B::STEPS; h++) {
            x_fragment(x4[h], x);
            smallest[i] = kg_min_abs_half2(x[0], kg_min_abs_half2(x[1], smallest[i]));
            x[0] = kg_hmul2(x[0], factor);
            x[1] = kg_hmul2(x[1], factor);
            w_fragment(K == 0 ? loaded[h] : held.bytes[b][i][h], w);
            if (h == 0)
                kg_mma_f16_from(d[i], w, x, 0.0f);
            else
                kg_mma_f16_16816(d[i], w, x);
        }
    }
    for (int i = 0; i < B::N; i++)
        least = kg_min_abs_half2(smallest[i], least);
    return __any_sync(KG_WARP_ALL, is_small<B::GROUP>(least))
               ? marked_groups<KIND, K>(p.codes, at, left, smallest)
               : 0u;
}

/* The terms of the groups, added to the sums of their parts (K known: their sums). first: the
   number of the batch's first group. */
template <int KIND, int K>
__device__ __forceinline__ void
add_groups(int k, const unsigned char *shared, const struct places &p, int rows, int at,
           int left, int first, uint32_t marked, float d[batch<KIND, K>::N][4],
           float sum[PARTS][4])
{
    typedef batch<KIND, K> B;
    if (marked != 0) {
#pragma unroll
        for (int i = 0; i < B::N; i++)
            if ((marked >> i & 1u) != 0) {
                const struct sums sums =
                    marked_group<KIND>(k, shared, rows, first + group_at<B::ROUNDS>(i),
                                       d[i][0], d[i][1], d[i][2], d[i][3]);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    d[i][e] = sums.d[e];
            }
    }
#pragma unroll
    for (int i = 0; i < B::N; i++) {
        const bool there = B::there(at, i, left);
        if (K != 0 && !there)
            continue;
        float2 s = *(const float2 *)(p.s + layout<KIND>::s_offset(B::place(at, i, left)));
        if (!there)
            s = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float scale = e < 2 ? s.x : s.y, old = sum[i / B::ROUNDS][e];
            sum[i / B::ROUNDS][e] = K != 0 && i % B::ROUNDS == 0
                                        ? d[i][e] * scale
                                        : add_term<KIND>(old, d[i][e], scale);
        }
    }
}

/* K: of the product if it is known, else 0. */
template <int KIND, int K>
__global__ void __launch_bounds__(THREADS, K != 0 ? 2 : 1)
    rows8_kernel(struct gemm_args a)
{
    KG_SHARED_DYNAMIC(shared);
    KG_SHARED(uint64_t, arrival, [1]);
    KG_SHARED(uint64_t, there, [1]);
    typedef batch<KIND, K> B;
    const int k = K != 0 ? K : (int)a.k, groups = k / B::GROUP;
    const struct layout<KIND> l(k);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned col0 = blockIdx.x * COLS, row0 = blockIdx.y * ROWS;
    const int rows = (int)min((long long)ROWS, (long long)(a.m - row0));
    const struct places p = places_of<KIND>(l, shared, rows, min(warp, groups - 1));
    struct held_scales<KIND, K> scales;
    struct held_weights<KIND, K> weights;

    kg_split_init(there, 1, THREADS);
    kg_multicast_begin(arrival, rows * k);
    __syncthreads();
    request_weights<KIND>(a, l, k, col0, shared, there);
    request_weight_scales<KIND, K>(a, k, col0, scales);
    bool fits = store_weight_scales<KIND, K>(a, l, k, scales, shared);
    /* the first warp asks for the codes, whether w is there or not */
    if (warp == 0)
        request_codes(a, l, k, row0, rows, shared, arrival);
    kg_split_wait(there, 0);
    if (K != 0)
        hold_weights(p, weights);
    if (warp != 0) {
        kg_multicast_meet();
        kg_grid_wait();
    }
    request_factors<KIND, K>(a, k, row0, scales);
    fits &= store_factors<KIND, K>(l, k, scales, shared);
    kg_multicast_wait(arrival);
    if (__syncthreads_or(!fits)) {
        in_order<KIND>(a, col0, row0);
        return;
    }

    const int left = groups - warp;
    float tree[BATCHES][4];
#pragma unroll
    for (int b = 0; b < BATCHES; b++) {
        const int first = first_of(b);
        float sum[PARTS][4] = {};
#pragma unroll 1
        for (int at = first; K != 0 ? at == first : at < left; at += KG_DSV4_PARTS) {
            float d[B::N][4];
            const uint32_t marked =
                multiply_groups<KIND, K>(p, at, left - at, weights, b, d);
            add_groups<KIND, K>(k, shared, p, rows, at, left - at, warp + at, marked, d,
                                sum);
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            tree[b][e] = (sum[0][e] + sum[1][e]) + (sum[2][e] + sum[3][e]);
    }

#pragma unroll
    for (int n = BATCHES / 2; n > 0; n /= 2)
#pragma unroll
        for (int b = 0; b < n; b++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                tree[b][e] = tree[2 * b][e] + tree[2 * b + 1][e];
    float *sums = (float *)(shared + l.sums_at);
#pragma unroll
    for (int e = 0; e < 4; e++)
        sums[warp * SUM_STRIDE + (lane % 4 * 2 + e % 2) * SUM_ROW + lane / 4 +
             e / 2 * 8] = tree[0][e];
    __syncthreads();
    /* two threads an output: warps v, v + 4, v + 2, v + 6 of v = 0, 1 */
    const int output = threadIdx.x / 2, v = threadIdx.x % 2;
    sums += v * SUM_STRIDE + output / COLS * SUM_ROW + output % COLS;
    float y =
        (sums[0] + sums[4 * SUM_STRIDE]) + (sums[2 * SUM_STRIDE] + sums[6 * SUM_STRIDE]);
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
    if (grid.y > 65535)
        return KG_E_INVALID;
    void (*kernel)(struct gemm_args) = args.k == 2048   ? rows8_kernel<KIND, 2048>
                                       : args.k == 3072 ? rows8_kernel<KIND, 3072>
                                       : args.k == 4096 ? rows8_kernel<KIND, 4096>
                                                        : rows8_kernel<KIND, 0>;
    /* a cluster costs as much time as half of the rows */
    const bool together = args.k <= 4096 && args.m > ROWS / 2 && grid.x % CLUSTER == 0;
    return KG_LAUNCH_WITH(stream, together ? CLUSTER : 1, true, grid, THREADS,
                          (size_t)l.bytes, kernel, args);
}

template int kg_dsv4_rows8<KG_DSV4_NVFP4>(const struct gemm_args &, struct CUstream_st *);
template int kg_dsv4_rows8<KG_DSV4_MXFP4>(const struct gemm_args &, struct CUstream_st *);
