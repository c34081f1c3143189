/*
 * The FP4 product for many rows: 128 columns (rows of w) by 64 rows of x a block, all of k.
 *
 *   prepare   lays both operands out anew in scratch, in the order in which they are used
 *   tiles     8 warps; a warp computes 16 columns of all 64 rows, so that every weight is
 *             decoded once in a block, in the registers of the warp that multiplies it; MXFP4:
 *             16 warps, of 32 rows
 *
 * Order of use: partial sums t in bit-reversed order 0, 64, 32, 96, 16, ..., the groups t,
 * t + 128, ... of each one after the other. Then the halving tree is a binary tree over
 * neighbours: a sum of two leaves follows them at once, and no more than one unfinished sum
 * of each size waits. Sums of up to 8 leaves wait in registers, larger ones in shared memory
 * (each thread has its own place; one store and one load for 8 leaves).
 *
 * Positions, and where everything lies in scratch: tiles_prepare.h.
 *
 * A stage of the pipeline without a mark has no branch, so that the products of a group and the
 * additions of the one before overlap.
 *
 * A first part is stored, not added to 0, and y gets + 0.0f at the end: as every part starts
 * from +0 in the defined order, no sum there is -0, and +0 for -0 is all that differs.
 *
 * Order, exactness and the fallbacks: fp4.h.
 */
#include "kernels/dsv4/tiles_prepare.h"

namespace
{

constexpr int CHUNK = 8;  /* steps in a stage of the pipeline */
constexpr int LEAVES = 8; /* leaves of a sum in registers */
constexpr int LEVELS = 4; /* sizes of sums above: 128 = LEAVES * 2^LEVELS */

/* Two warps share 16 columns where marked groups, which cost the more the more rows a warp
   has, are not rare. */
template <int KIND>
struct shape {
    static constexpr int HALVES = KIND == KG_DSV4_MXFP4 ? 2 : 1;
    static constexpr int THREADS = 32 * COL_WARPS * HALVES;
    static constexpr int VALUES = 32 / HALVES; /* outputs of a thread */
};

/* A stage in shared memory: CHUNK steps of everything. */
template <int KIND>
struct stage {
    static constexpr int POSITIONS = CHUNK / recipe<KIND>::STEPS;
    static constexpr int S_CHUNKS = POSITIONS * 4; /* pieces of 16 bytes of a warp's s */
    static constexpr int W_AT = CHUNK * 2048;
    static constexpr int S_AT = W_AT + COL_WARPS * CHUNK * 128;
    static constexpr int MARKS_AT = S_AT + COL_WARPS * POSITIONS * 64;
    static constexpr int BYTES = MARKS_AT + CHUNK * 8;
};

/* What a thread knows while it walks along k. */
template <int KIND>
struct walk {
    unsigned char *shared; /* two stages */
    int left;              /* stages that are not on their way yet */
    int rounds;            /* groups in a leaf */
    int at;        /* steps of the stage that are done; 0 asks for the next stage */
    uint32_t turn; /* offset of the stage that comes next: 0 or the size of one */
    /* where the thread reads the stage: its part of x, w, s, and the marks */
    const unsigned char *x_in, *w_in, *s_in, *marks_in;
    /* where its part of the next copy comes from */
    const unsigned char *x, *w, *w_far, *s, *marks;
};

template <int KIND>
__device__ inline struct walk<KIND> walk_from(const struct plan<KIND> &p,
                                              const unsigned char *scratch,
                                              unsigned char *shared) {
    typedef stage<KIND> S;
    const int i = threadIdx.x;
    const int64_t col_tile = (int64_t)blockIdx.x * COL_WARPS, row_tile = blockIdx.y;
    struct walk<KIND> k;
    k.shared = shared;
    k.left = (int)(p.steps / CHUNK);
    k.at = 0;
    k.turn = 0;
    k.rounds = (int)p.rounds;
    k.x = scratch + p.x_at + row_tile * p.steps * 2048 + i * 16;
    k.w = scratch + p.w_at + (col_tile + i / 64) * p.steps * 128 + i % 64 * 16;
    k.w_far = k.w + 4 * p.steps * 128;
    k.s = scratch + p.s_at + (col_tile + i / S::S_CHUNKS) * p.positions * 64 +
          i % S::S_CHUNKS * 16;
    k.marks = scratch + p.marks_at + (row_tile * p.positions + i) * 8;
    return k;
}

/* Starts the copy of the next stage to `to`. */
template <int KIND>
__device__ __forceinline__ void fetch_stage(struct walk<KIND> &k, unsigned char *to)
{
    typedef stage<KIND> S;
    const int i = threadIdx.x;
    constexpr int THREADS = shape<KIND>::THREADS, BOTH = 4 / shape<KIND>::HALVES;
    static_assert(CHUNK * 2048 == BOTH * THREADS * 16 &&
                      CHUNK * COL_WARPS * 128 == BOTH / 2 * THREADS * 16,
                  "a thread copies pieces of x and half as many of w");
#pragma unroll
    for (int piece = 0; piece < BOTH; piece++)
        kg_cp_async_16(to + (piece * THREADS + i) * 16, k.x + piece * THREADS * 16);
    kg_cp_async_16(to + S::W_AT + i * 16, k.w);
    if (BOTH == 4)
        kg_cp_async_16(to + S::W_AT + (THREADS + i) * 16, k.w_far);
    if (i < COL_WARPS * S::S_CHUNKS)
        kg_cp_async_16(to + S::S_AT + i * 16, k.s);
    if (i < S::POSITIONS)
        kg_cp_async_8(to + S::MARKS_AT + i * 8, k.marks);
    k.left--;
    k.x += CHUNK * 2048;
    k.w += CHUNK * 128;
    k.w_far += CHUNK * 128;
    k.s += S::POSITIONS * 64;
    k.marks += S::POSITIONS * 8;
}

/* Waits for the next stage, points the thread at it, and starts the one after it. */
template <int KIND>
__device__ __forceinline__ void next_stage(struct walk<KIND> &k)
{
    typedef stage<KIND> S;
    const int warp = threadIdx.x / 32 % COL_WARPS, lane = threadIdx.x % 32;
    const int half = threadIdx.x / (32 * COL_WARPS);
    const unsigned char *now = k.shared + k.turn;
    kg_cp_async_wait<0>();
    __syncthreads(); /* also: everybody is done with the stage before */
    k.x_in = now + half * 1024 + lane * 16;
    k.w_in = now + S::W_AT + warp * CHUNK * 128 + lane * 4;
    k.s_in = now + S::S_AT + warp * S::POSITIONS * 64 + lane / 4 * 8;
    k.marks_in = now + S::MARKS_AT + half * 4;
    k.turn = (uint32_t)S::BYTES - k.turn;
    if (k.left > 0)
        fetch_stage(k, k.shared + k.turn);
    kg_cp_async_commit();
}

/* The nibbles of the group's steps as A fragments. */
template <int STEPS>
__device__ __forceinline__ void load_w(const uint32_t *w, uint32_t a[STEPS][4])
{
#pragma unroll
    for (int h = 0; h < STEPS; h++)
        w_halves(w[h * 32], a[h]);
}

/* Eight sums of the group: rows 16 pair + .. of the tile by the warp's columns. x is the
   lane's. */
template <int STEPS>
__device__ __forceinline__ void multiply(const uint32_t a[STEPS][4],
                                         const unsigned char *x, int pair, float d[8])
{
#pragma unroll
    for (int h = 0; h < STEPS; h++) {
        const uint4 b = kg_load_uint4(x + h * 2048 + pair * 512);
        const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
        if (h == 0) {
            kg_mma_f16_from(d, a[h], b0, 0.0f);
            kg_mma_f16_from(d + 4, a[h], b1, 0.0f);
        } else {
            kg_mma_f16_16816(d, a[h], b0);
            kg_mma_f16_16816(d + 4, a[h], b1);
        }
    }
}

/* The sum of row r of a tile and a column in k order, scaled as that of the tensor cores:
   nibbles[h * 4 + q] >> shift are its weights. Scaling by a power of two commutes with every
   rounding here. */
template <int STEPS>
__device__ inline float ordered_sum(const unsigned char *x, int r,
                                    const uint32_t *nibbles, int shift)
{
    float sub = 0.0f;
#pragma unroll 1
    for (int i = 0; i < STEPS * 16; i++) {
        const int h = i / 16, q = i / 4 % 4,
                  e = i % 4; /* e 0, 2: first pair; 1, 3: second */
        const uint32_t pair =
            *(const uint32_t *)(x + h * 2048 + r / 16 * 512 + (r % 8 * 4 + q) * 16 +
                                r / 8 % 2 * 8 + e % 2 * 4);
        const uint32_t code = nibbles[i / 4] >> (shift + 4 * e);
        sub = sub + half_at(e < 2 ? pair : pair >> 16) * kg_e2m1_to_f32((uint8_t)code);
    }
    return sub * 0x1p-14f;
}

/* The value of the last bit of a half that is set; infinity for 0. */
__device__ inline float last_bit(uint32_t half)
{
    const uint32_t bits = __float_as_uint(half_at(half & 0x7fffu));
    const float rest = __uint_as_float(bits & (bits - 1));
    return bits == 0                 ? __uint_as_float(0x7f800000u)
           : (bits & 0x7fffffu) == 0 ? __uint_as_float(bits)
                                     : __uint_as_float(bits) - rest;
}

/* Below what sums of |x * w| the eight rows of a fragment need no order, of the lane's two rows:
   2^24 times the last bit of a product, less a part for what the tensor cores may drop. */
template <int STEPS>
__device__ inline void order_limits(const uint32_t b[STEPS][2], float limits[2])
{
    float last = __uint_as_float(0x7f800000u);
    for (int h = 0; h < STEPS; h++)
        for (int i = 0; i < 2; i++)
            last = fminf(last, fminf(last_bit(b[h][i]), last_bit(b[h][i] >> 16)));
    for (int distance = 1; distance <= 2; distance *= 2)
        last = fminf(last, __shfl_xor_sync(KG_WARP_ALL, last, distance));
    for (int i = 0; i < 2; i++)
        limits[i] =
            __shfl_sync(KG_WARP_ALL, last, (threadIdx.x % 4 * 2 + i) * 4) * 511.0f;
}

/* The sums of a group some of whose rows may need their order. The test of fp4.h takes all
   weights for the largest; with the sums of |x * w| themselves it nearly always says no. Out of
   line: few come here. */
template <int KIND>
__device__ __noinline__ void marked_group(const uint32_t *w, const unsigned char *x,
                                          uint64_t marks, float *sums)
{
    constexpr int STEPS = recipe<KIND>::STEPS, VALUES = shape<KIND>::VALUES;
    const int lane = threadIdx.x % 32;
    uint32_t a[STEPS][4], nibbles[STEPS * 4];
    load_w<STEPS>(w, a);
    for (int i = 0; i < STEPS * 4; i++)
        nibbles[i] = __shfl_sync(KG_WARP_ALL, w[i / 4 * 32], (lane & ~3) | i % 4);
#pragma unroll 1
    for (int pair = 0; pair < VALUES / 8; pair++)
        multiply<STEPS>(a, x + lane * 16, pair, sums + pair * 8);
    for (int h = 0; h < STEPS; h++)
        for (int i = 0; i < 4; i++)
            a[h][i] &= 0x7fff7fffu;
#pragma unroll 1
    for (int part = 0; part < VALUES / 4; part++) {
        if ((marks >> part * 8 & 0xffu) == 0)
            continue;
        uint32_t b[STEPS][2];
        float most[4] = {}, limits[2];
        for (int h = 0; h < STEPS; h++) {
            const uint2 both = *(const uint2 *)(x + h * 2048 + part / 2 * 512 +
                                                lane * 16 + part % 2 * 8);
            b[h][0] = both.x & 0x7fff7fffu;
            b[h][1] = both.y & 0x7fff7fffu;
            kg_mma_f16_16816(most, a[h], b[h]);
        }
        order_limits<STEPS>(b, limits);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(most[i] < limits[i % 2]))
                sums[part * 4 + i] = ordered_sum<STEPS>(
                    x, part * 8 + lane % 4 * 2 + i % 2, nibbles, i / 2 * 16);
    }
}

/* Of the warp's rows. */
template <int KIND>
__device__ __forceinline__ uint64_t load_marks(const unsigned char *marks)
{
    return shape<KIND>::HALVES == 1 ? *(const uint64_t *)marks : *(const uint32_t *)marks;
}

/* Adds the next group of the stage to `sum`, or stores it there if it is the FIRST. MARKED:
   some group of the stage has marks. */
template <int KIND, bool FIRST, bool MARKED>
__device__ __forceinline__ void next_group(struct walk<KIND> &k, float *sum)
{
    constexpr int STEPS = recipe<KIND>::STEPS, VALUES = shape<KIND>::VALUES;
    const unsigned char *x = k.x_in + k.at * 2048;
    const uint32_t *w = (const uint32_t *)(k.w_in + k.at * 128);
    const float2 s = *(const float2 *)(k.s_in + k.at / STEPS * 64);
    const uint64_t marks = MARKED ? load_marks<KIND>(k.marks_in + k.at / STEPS * 8) : 0;
    k.at = (k.at + STEPS) % CHUNK;
    float d[VALUES];
    if (marks == 0) {
        uint32_t a[STEPS][4];
        load_w<STEPS>(w, a);
#pragma unroll
        for (int pair = 0; pair < VALUES / 8; pair++)
            multiply<STEPS>(a, x, pair, d + pair * 8);
    } else {
        /* an array of its own: one whose address is passed lives in memory on both ways */
        float sums[VALUES];
        marked_group<KIND>(w, x - threadIdx.x % 32 * 16, marks, sums);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            d[i] = sums[i];
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        const float scale = i % 4 < 2 ? s.x : s.y;
        sum[i] = FIRST ? d[i] * scale : add_term<KIND>(sum[i], d[i], scale);
    }
}

/* The sum of the next N leaves of ROUNDS groups, all in one stage. */
template <int KIND, int ROUNDS, int N, bool MARKED>
struct leaves {
    static __device__ __forceinline__ void next(struct walk<KIND> &k, float *sum)
    {
        constexpr int VALUES = shape<KIND>::VALUES;
        float right[VALUES];
        leaves<KIND, ROUNDS, N / 2, MARKED>::next(k, sum);
        leaves<KIND, ROUNDS, N / 2, MARKED>::next(k, right);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            sum[i] = sum[i] + right[i];
    }
};

template <int KIND, int ROUNDS, bool MARKED>
struct leaves<KIND, ROUNDS, 1, MARKED> {
    static __device__ __forceinline__ void next(struct walk<KIND> &k, float *sum)
    {
        next_group<KIND, true, MARKED>(k, sum);
#pragma unroll
        for (int r = 1; r < ROUNDS; r++)
            next_group<KIND, false, MARKED>(k, sum);
    }
};

/* Leaves in a stage; 0: of stages and leaves neither divides the other. */
template <int KIND, int ROUNDS>
constexpr int STAGE_LEAVES = ROUNDS > 0 ? CHUNK / recipe<KIND>::STEPS / ROUNDS : 0;

/* The sum of the next N leaves of ROUNDS groups (0: of k.rounds). */
template <int KIND, int ROUNDS, int N, bool IN_STAGE = N == STAGE_LEAVES<KIND, ROUNDS>>
struct tree {
    static __device__ __forceinline__ void next(struct walk<KIND> &k, float *sum)
    {
        constexpr int VALUES = shape<KIND>::VALUES;
        float right[VALUES];
        tree<KIND, ROUNDS, N / 2>::next(k, sum);
        tree<KIND, ROUNDS, N / 2>::next(k, right);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            sum[i] = sum[i] + right[i];
    }
};

template <int KIND, int ROUNDS, int N>
struct tree<KIND, ROUNDS, N, true> {
    static __device__ __forceinline__ void next(struct walk<KIND> &k, float *sum)
    {
        constexpr int POSITIONS = stage<KIND>::POSITIONS;
        next_stage(k);
        k.at = 0; /* it is: then the compiler knows it everywhere below */
        const uint64_t marks = load_marks<KIND>(k.marks_in + threadIdx.x % POSITIONS * 8);
        if (!__any_sync(KG_WARP_ALL, marks != 0))
            leaves<KIND, ROUNDS, N, false>::next(k, sum);
        else
            leaves<KIND, ROUNDS, N, true>::next(k, sum);
    }
};

template <int KIND>
struct tree<KIND, 0, 1, false> {
    static __device__ __forceinline__ void next(struct walk<KIND> &k, float *sum)
    {
        if (k.at == 0)
            next_stage(k);
        next_group<KIND, true, true>(k, sum);
#pragma unroll 1
        for (int r = 1; r < k.rounds; r++) {
            if (k.at == 0)
                next_stage(k);
            next_group<KIND, false, true>(k, sum);
        }
    }
};

/* Whether the scales of the block's tiles are in range: one that is not takes the others of
   the block with it. */
template <int KIND>
__device__ inline bool block_fits(const struct gemm_args &a, const struct plan<KIND> &p,
                                  const unsigned char *scratch)
{
    bool fits = true;
    if (threadIdx.x < ROWS)
        fits = ((const float *)(scratch + p.rows_at))[blockIdx.y * ROWS + threadIdx.x] !=
               0.0f;
    if (KIND == KG_DSV4_NVFP4) {
        fits &= scale2_fits(a.scale2);
    } else {
        const uint32_t *of_tiles = (const uint32_t *)(scratch + p.fits_at) +
                                   (int64_t)blockIdx.x * COL_WARPS * p.pieces;
        for (int i = threadIdx.x; i < COL_WARPS * (int)p.pieces;
             i += shape<KIND>::THREADS)
            fits &= of_tiles[i] != 0;
    }
    return __syncthreads_and(fits) != 0;
}

template <int KIND, int ROUNDS>
__global__ void __launch_bounds__(shape<KIND>::THREADS, 1)
    tiles_kernel(struct gemm_args a, const unsigned char *scratch)
{
    KG_SHARED_DYNAMIC(shared);
    constexpr int THREADS = shape<KIND>::THREADS, VALUES = shape<KIND>::VALUES;
    const struct plan<KIND> p(a.m, a.n, a.k);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t col0 = (int64_t)blockIdx.x * COLS + warp % COL_WARPS * 16;
    const int64_t row0 = (int64_t)blockIdx.y * ROWS + warp / COL_WARPS * (2 * VALUES);

    if (!block_fits<KIND>(a, p, scratch)) {
        for (int i = 0; i < 16 * 2 * VALUES; i++) {
            const int64_t row = row0 + i / 16, col = col0 + i % 16;
            if (row >= a.m || col >= a.n)
                continue;
            const float y = ordered_output<KIND>(a, row, col);
            if (lane == 0)
                a.y[row * a.n + col] = y;
        }
        return;
    }

    float *waiting = (float *)(shared + 2 * stage<KIND>::BYTES) + threadIdx.x;
    struct walk<KIND> k = walk_from<KIND>(p, scratch, shared);
    float sum[VALUES];
    fetch_stage(k, shared);
    kg_cp_async_commit();
#pragma unroll 1
    for (int chunk = 0; chunk < 1 << LEVELS; chunk++) {
        tree<KIND, ROUNDS, LEAVES>::next(k, sum);
        int level = 0;
#pragma unroll 1
        for (; chunk >> level & 1; level++)
#pragma unroll
            for (int i = 0; i < VALUES; i++)
                sum[i] = waiting[(level * VALUES + i) * THREADS] + sum[i];
        if (level < LEVELS)
#pragma unroll
            for (int i = 0; i < VALUES; i++)
                waiting[(level * VALUES + i) * THREADS] = sum[i];
    }
    kg_cp_async_wait<0>();
    const float *rows = (const float *)(scratch + p.rows_at) + row0;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        const int64_t row = row0 + i / 8 * 16 + i / 4 % 2 * 8 + lane % 4 * 2 + i % 2;
        const int64_t col = col0 + lane / 4 + i % 4 / 2 * 8;
        if (row < a.m && col < a.n)
            a.y[row * a.n + col] = sum[i] * rows[row - row0] + 0.0f;
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
    const int64_t blocks = p.col_tiles * p.pieces + p.row_tiles * p.positions / MAKERS;
    if (blocks > 0x7fffffff || p.row_tiles * p.positions > 0x7fffffff ||
        p.row_tiles > 65535 || p.steps > 0x3fffffff)
        return KG_E_INVALID;
    KG_TRY(KG_LAUNCH(stream, (unsigned)blocks, 32 * MAKERS, 0, prepare_kernel<KIND>, args,
                     (unsigned char *)scratch));
    const dim3 grid((unsigned)(p.col_tiles / COL_WARPS), (unsigned)p.row_tiles);
    constexpr int THREADS = shape<KIND>::THREADS, VALUES = shape<KIND>::VALUES;
    const size_t shared = 2 * stage<KIND>::BYTES + LEVELS * VALUES * THREADS * 4;
    const unsigned char *laid_out = (const unsigned char *)scratch;
    if (p.rounds == 1)
        return KG_LAUNCH(stream, grid, THREADS, shared, (tiles_kernel<KIND, 1>), args,
                         laid_out);
    if (p.rounds == 2)
        return KG_LAUNCH(stream, grid, THREADS, shared, (tiles_kernel<KIND, 2>), args,
                         laid_out);
    return KG_LAUNCH(stream, grid, THREADS, shared, (tiles_kernel<KIND, 0>), args,
                     laid_out);
}

template int kg_dsv4_tiles<KG_DSV4_NVFP4>(const struct gemm_args &, void *,
                                          struct CUstream_st *);
template int kg_dsv4_tiles<KG_DSV4_MXFP4>(const struct gemm_args &, void *,
                                          struct CUstream_st *);
template size_t kg_dsv4_tiles_scratch<KG_DSV4_NVFP4>(int64_t, int64_t, int64_t);
template size_t kg_dsv4_tiles_scratch<KG_DSV4_MXFP4>(int64_t, int64_t, int64_t);
