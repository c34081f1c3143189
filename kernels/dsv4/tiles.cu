/*
 * The FP4 product for many rows: 128 columns (rows of w) by 64 rows of x a block, all of k.
 *
 *   prepare   lays both operands out anew in scratch, in the order in which they are used
 *   tiles     two warpgroups and a warp that copies; a warp computes 16 columns of all 64 rows, so
 *             that every weight is decoded once in a block, in the registers of the warp that
 *             multiplies it
 *
 * Order of use: partial sums t in bit-reversed order 0, 64, 32, 96, 16, ..., the groups t,
 * t + 128, ... of each one after the other. Then the halving tree is a binary tree over
 * neighbours: a sum of two leaves follows them at once, and no more than one unfinished sum
 * of each size waits. Sums of up to 8 leaves wait in registers, larger ones in shared memory
 * (each thread has its own place; one store and one load for 8 leaves).
 *
 * Positions, and where everything lies in scratch: tiles_prepare.h. How it comes here: tiles_ring.h.
 *
 * Products run beside the scaling and adding of the group before (device/warpgroup.h).
 *
 * The marked groups of a stage are looked at first: nearly always they need no order after all
 * (stage_unsettled). A stage that has such sums goes a slower way (mend_group).
 *
 * A first part is stored, not added to 0, and y gets + 0.0f at the end: as every part starts
 * from +0 in the defined order, no sum there is -0, and +0 for -0 is all that differs.
 *
 * Order, exactness and the fallbacks: fp4.h.
 */
#include "kernels/device/overlap.h"
#include "kernels/dsv4/tiles_marks.h"
#include "kernels/dsv4/tiles_ring.h"

namespace
{

/* Threads that multiply; a warp copies, the first of a warpgroup that lets its registers go. */
constexpr int MULTIPLIERS = 32 * COL_WARPS, THREADS = MULTIPLIERS + 128;
constexpr int FEW = 24, MANY = 240; /* 65536 / THREADS at first */
constexpr int LEAVES = 8;           /* leaves of a sum in registers */
constexpr int LEVELS = 4;           /* sizes of sums above: 128 = LEAVES * 2^LEVELS */

/* The product of a group that is under way: its sums, its weights, their scales. */
template <int KIND>
struct product {
    float d[VALUES];
    uint32_t w[recipe<KIND>::STEPS][4];
    float2 s;
};

/* Starts the product of position j of the stage, whose nibbles are `spread`. */
template <int KIND>
__device__ __forceinline__ void start(const struct walk<KIND> &k, int j,
                                      const uint32_t spread[recipe<KIND>::STEPS],
                                      struct product<KIND> &p)
{
    constexpr int STEPS = recipe<KIND>::STEPS;
#pragma unroll
    for (int h = 0; h < STEPS; h++)
        spread_halves(spread[h], p.w[h]);
    p.s = *(const float2 *)(k.s_in + j * 64);
    kg_warpgroup_begin();
#pragma unroll
    for (int h = 0; h < STEPS; h++)
        kg_warpgroup_product(p.d, p.w[h], k.b, (j * STEPS + h) * 2048, h > 0);
    kg_warpgroup_commit();
}

/* Adds the terms of a group to a leaf, or stores them if it is the FIRST. */
template <int KIND, bool FIRST>
__device__ __forceinline__ void add_terms(const float d[VALUES], float2 s, float *leaf)
{
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        const float scale = i % 4 < 2 ? s.x : s.y;
        leaf[i] = FIRST ? d[i] * scale : add_term<KIND>(leaf[i], d[i], scale);
    }
}

/* Adds what waits of the leaves before to `sum`, as a binary counter carries; n is the number of the
   leaf (of the sum) that `sum` is. Where n is no constant, `held` is in memory. */
template <int HELD>
__device__ __forceinline__ void join(float (*held)[VALUES], int n, float *sum)
{
#pragma unroll
    for (int level = 0; level < HELD; level++) {
        if ((n >> level & 1) == 0) {
#pragma unroll
            for (int i = 0; i < VALUES; i++)
                held[level][i] = sum[i];
            return;
        }
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            sum[i] = held[level][i] + sum[i];
    }
}

constexpr int log2_of(int n)
{
    return n <= 1 ? 0 : 1 + log2_of(n / 2);
}

/* Leaves of ROUNDS groups in a stage; more groups than a stage has (a multiple of that) are several
   stages of one leaf. */
template <int KIND, int ROUNDS>
struct leaves {
    static constexpr int IN_STAGE = stage<KIND>::POSITIONS / ROUNDS;
    static constexpr int STAGES_OF_CHUNK = LEAVES / IN_STAGE;
    static constexpr int UNROLL = STAGES_OF_CHUNK <= 4 ? STAGES_OF_CHUNK : 1;
    static constexpr int HELD = log2_of(IN_STAGE),
                         HELD_IN_CHUNK = log2_of(STAGES_OF_CHUNK);
};

/* Adds a group to the leaves of a stage. CONTINUES: the first of them is in `sum` already. */
template <int KIND, int ROUNDS, bool CONTINUES>
__device__ __forceinline__ void add_group(const struct product<KIND> &p, int j,
                                          float *sum)
{
    if (!CONTINUES && j % ROUNDS == 0)
        add_terms<KIND, true>(p.d, p.s, sum);
    else
        add_terms<KIND, false>(p.d, p.s, sum);
}

/* The marks of position j of the open stage; lane i has those of position i. */
__device__ __forceinline__ uint64_t marks_at(uint64_t of_lane, int j)
{
    return __shfl_sync(KG_WARP_ALL, (uint32_t)of_lane, j) |
           (uint64_t)__shfl_sync(KG_WARP_ALL, (uint32_t)(of_lane >> 32), j) << 32;
}

/* Whether the open stage, which has marks, has sums that may need their order. Nearly always it
   has none, and goes the way of the others. */
template <int KIND>
__device__ inline bool stage_unsettled(const struct walk<KIND> &k, uint64_t of_lane)
{
    constexpr int STEPS = recipe<KIND>::STEPS;
    bool found = false;
#pragma unroll 1
    for (int j = 0; j < stage<KIND>::POSITIONS; j++) {
        const uint64_t marks = marks_at(of_lane, j);
        if (marks == 0)
            continue;
        uint32_t spread[STEPS];
        load_w<STEPS>(k.w_in + j * STEPS * 128, spread);
        found |= any_unsettled<STEPS>(spread, k.x_in + j * STEPS * 2048, marks);
    }
    return kg_warpgroup_any(found);
}

/* The sum of the leaves of such a stage, one group after the other, the marked ones looked at. */
template <int KIND, int ROUNDS, bool CONTINUES>
__device__ __forceinline__ void marked_stage_sum(const struct walk<KIND> &k,
                                                 uint64_t of_lane,
                                                 struct product<KIND> &p, float *sum)
{
    typedef leaves<KIND, ROUNDS> L;
    constexpr int STEPS = recipe<KIND>::STEPS, POSITIONS = stage<KIND>::POSITIONS;
    float held[L::HELD + 1][VALUES];
#pragma unroll /* `held` in registers */
    for (int j = 0; j < POSITIONS; j++) {
        const uint64_t marks = marks_at(of_lane, j);
        uint32_t spread[STEPS];
        load_w<STEPS>(k.w_in + j * STEPS * 128, spread);
        start(k, j, spread, p);
        kg_warpgroup_wait<0>(p.d);
        if (marks != 0)
            mend_group<STEPS>(spread, k.x_in + j * STEPS * 2048, marks, p.d);
        add_group<KIND, ROUNDS, CONTINUES>(p, j, sum);
        if (j % ROUNDS == ROUNDS - 1)
            join<L::HELD>(held, j / ROUNDS, sum);
    }
}

/* The sum of the leaves of the next stage. CONTINUES: it goes on with the leaf in `sum`. No product
   is under way where ways part or meet: the compiler would have each one wait for the last. */
template <int KIND, int ROUNDS, bool CONTINUES = false>
__device__ __forceinline__ void stage_sum(struct walk<KIND> &k, float *sum)
{
    typedef leaves<KIND, ROUNDS> L;
    constexpr int STEPS = recipe<KIND>::STEPS, POSITIONS = stage<KIND>::POSITIONS;
    float held[L::HELD + 1][VALUES];
    struct product<KIND> p[2];
    open_stage(k);
    if (k.marked) {
        const int lane = threadIdx.x % 32;
        const uint64_t of_lane =
            lane < POSITIONS ? k.marks[k.number * POSITIONS + lane] : 0;
        if (stage_unsettled(k, of_lane)) {
            marked_stage_sum<KIND, ROUNDS, CONTINUES>(k, of_lane, p[0], sum);
            close_stage(k);
            return;
        }
    }
    uint32_t spread[STEPS_IN_STAGE]; /* at once: the time that it takes passes once */
    load_w<STEPS_IN_STAGE>(k.w_in, spread);
    start(k, 0, spread, p[0]);
#pragma unroll
    for (int j = 0; j < POSITIONS; j++) {
        if (j + 1 < POSITIONS) {
            start(k, j + 1, spread + (j + 1) * STEPS, p[(j + 1) % 2]);
            kg_warpgroup_wait<1>(p[j % 2].d);
        } else {
            kg_warpgroup_wait<0>(p[j % 2].d);
            close_stage(k);
        }
        add_group<KIND, ROUNDS, CONTINUES>(p[j % 2], j, sum);
        if (j % ROUNDS == ROUNDS - 1)
            join<L::HELD>(held, j / ROUNDS, sum);
    }
}

/* The sum of the next LEAVES leaves. `more`: stages of a leaf beyond the first. */
template <int KIND, int ROUNDS>
__device__ __forceinline__ void chunk_sum(struct walk<KIND> &k, int more, float *sum)
{
    typedef leaves<KIND, ROUNDS> L;
    float held[L::HELD_IN_CHUNK + 1][VALUES];
#pragma unroll L::UNROLL
    for (int i = 0; i < L::STAGES_OF_CHUNK; i++) {
        stage_sum<KIND, ROUNDS>(k, sum);
        if (L::IN_STAGE == 1)
#pragma unroll 1
            for (int r = 0; r < more; r++)
                stage_sum<KIND, ROUNDS, true>(k, sum);
        join<L::HELD_IN_CHUNK>(held, i, sum);
    }
}

/* Whether the scales of the block's tiles are in range: one that is not takes the others of
   the block with it. Keeps the rows' factors. */
template <int KIND>
__device__ inline bool block_fits(const struct gemm_args &a, const struct plan<KIND> &p,
                                  const unsigned char *scratch, float factors[ROWS])
{
    bool fits = true;
    if (threadIdx.x < ROWS) {
        const float factor =
            ((const float *)(scratch + p.rows_at))[blockIdx.y * ROWS + threadIdx.x];
        factors[threadIdx.x] = factor;
        fits = factor != 0.0f;
    }
    if (KIND == KG_DSV4_NVFP4) {
        fits &= scale2_fits(a.scale2);
    } else {
        const uint32_t *of_tiles = (const uint32_t *)(scratch + p.fits_at) +
                                   (int64_t)blockIdx.x * COL_WARPS * p.pieces;
        for (int i = threadIdx.x; i < COL_WARPS * (int)p.pieces; i += THREADS)
            fits &= of_tiles[i] != 0;
    }
    return __syncthreads_and(fits) != 0;
}

template <int KIND, int ROUNDS>
__global__ void __launch_bounds__(THREADS, 1)
    tiles_kernel(struct gemm_args a, struct plan<KIND> p, const unsigned char *scratch)
{
    KG_SHARED_DYNAMIC(shared);
    KG_SHARED(uint64_t, barriers, [2 * STAGES]);
    KG_SHARED(float, factors, [ROWS]);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct ring ring = ring_at(shared, barriers);
    const int64_t col0 = (int64_t)blockIdx.x * COLS + warp * 16;
    const int64_t row0 = (int64_t)blockIdx.y * ROWS;
    const struct source<KIND> from = source_of(p, scratch);

    __syncthreads();
    kg_grid_wait();
    kg_grid_release();
    if (warp == COL_WARPS)
        start_ring(ring, from);
    const bool fits = block_fits<KIND>(a, p, scratch, factors);
    if (warp >= COL_WARPS) {
        kg_warpgroup_registers<FEW, MANY>(false);
        if (warp == COL_WARPS && fits)
            fill_ring(ring, from);
        else if (warp == COL_WARPS)
            drop_ring(ring, from);
        return;
    }
    kg_warpgroup_registers<FEW, MANY>(true);
    if (!fits) {
        for (int i = 0; i < 16 * ROWS; i++) {
            const int64_t row = row0 + i / 16, col = col0 + i % 16;
            if (row >= a.m || col >= a.n)
                continue;
            const float y = ordered_output<KIND>(a, row, col);
            if (lane == 0)
                a.y[row * a.n + col] = y;
        }
        return;
    }

    struct walk<KIND> k = walk_from(ring, p, scratch);
    float4 *waiting = (float4 *)(shared + STAGES * stage<KIND>::BYTES) + threadIdx.x;
    const int chunks = p.parts / LEAVES;
    const int more = (int)p.rounds / stage<KIND>::POSITIONS - 1;
    float sum[VALUES];
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        chunk_sum<KIND, ROUNDS>(k, more, sum);
        float4 *at = waiting;
#pragma unroll 1
        for (int rest = chunk; rest & 1; rest /= 2, at += VALUES / 4 * MULTIPLIERS)
#pragma unroll
            for (int i = 0; i < VALUES / 4; i++) {
                const float4 left = at[i * MULTIPLIERS];
                sum[4 * i] = left.x + sum[4 * i];
                sum[4 * i + 1] = left.y + sum[4 * i + 1];
                sum[4 * i + 2] = left.z + sum[4 * i + 2];
                sum[4 * i + 3] = left.w + sum[4 * i + 3];
            }
        if (chunk + 1 < chunks)
#pragma unroll
            for (int i = 0; i < VALUES / 4; i++)
                at[i * MULTIPLIERS] = make_float4(sum[4 * i], sum[4 * i + 1],
                                                  sum[4 * i + 2], sum[4 * i + 3]);
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        const int64_t row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int64_t col = col0 + lane / 4 + i % 4 / 2 * 8;
        if (row < a.m && col < a.n)
            a.y[row * a.n + col] = sum[i] * factors[row - row0] + 0.0f;
    }
}

} // namespace

template <int KIND>
size_t kg_dsv4_tiles_scratch(int64_t m, int64_t n, int64_t k)
{
    return plan<KIND>(m, n, k).bytes;
}

template <int KIND>
int kg_dsv4_tiles(const struct gemm_args &args, void *scratch, struct CUstream_st *stream)
{
    static_assert(LEAVES << LEVELS == KG_DSV4_PARTS, "the tree has 128 leaves");
    const struct plan<KIND> p(args.m, args.n, args.k);
    const int64_t blocks =
        p.col_tiles * p.pieces + p.row_tiles * (p.positions / X_GROUPS);
    if (blocks > 0x7fffffff || p.row_tiles * p.positions > 0x7fffffff ||
        p.row_tiles > 65535 || p.steps > 0x3fffffff)
        return KG_E_INVALID;
    KG_TRY(KG_LAUNCH_OVERLAPPED(stream, (unsigned)blocks, 32 * MAKERS, 0,
                                prepare_kernel<KIND>, args, p, (unsigned char *)scratch));
    const dim3 grid((unsigned)(p.col_tiles / COL_WARPS), (unsigned)p.row_tiles);
    const size_t shared =
        STAGES * stage<KIND>::BYTES + LEVELS * VALUES * sizeof(float) * MULTIPLIERS;
    constexpr int ROUNDS_MOST = stage<KIND>::POSITIONS;
    void (*kernel)(struct gemm_args, struct plan<KIND>, const unsigned char *) =
        p.rounds == 1   ? tiles_kernel<KIND, 1>
        : p.rounds == 2 ? tiles_kernel<KIND, 2>
        : p.rounds == 4 ? tiles_kernel<KIND, 4>
                        : tiles_kernel<KIND, ROUNDS_MOST>;
    return KG_LAUNCH_OVERLAPPED(stream, grid, THREADS, shared, kernel, args, p,
                                (const unsigned char *)scratch);
}

template int kg_dsv4_tiles<KG_DSV4_NVFP4>(const struct gemm_args &, void *,
                                          struct CUstream_st *);
template int kg_dsv4_tiles<KG_DSV4_MXFP4>(const struct gemm_args &, void *,
                                          struct CUstream_st *);
template size_t kg_dsv4_tiles_scratch<KG_DSV4_NVFP4>(int64_t, int64_t, int64_t);
template size_t kg_dsv4_tiles_scratch<KG_DSV4_MXFP4>(int64_t, int64_t, int64_t);
