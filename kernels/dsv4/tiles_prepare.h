/*
 * How the tiles form (tiles.cu) lays its operands out anew, and the kernel that does it.
 *
 * Positions: group t + 128 r is at position bitrev(t) * ROUNDS + r; where there are no more than 64
 * groups (32, 16, 8), the partial sums beyond are 0 and left out. ROUNDS is ceil(groups / 128) or
 * as many more as divide a stage or are a multiple of it; positions without a group hold zeros,
 * which add +0. A position is one or two steps of 16 k; 8 steps are a stage. Scratch:
 *
 *   x      [m/64][step][row / 8][half][row % 8][16 B]   halves, code * scale * 2^(7 - e) (fp4.h), as
 *                                                   the B operand of device/warpgroup.h
 *   w      [n/128][stage][tile][step][lane][4 B]     a tile is 16 columns; nibbles: 4 of column g,
 *                                                   4 of g + 8, as spread_nibbles has them
 *   s      [n/128][stage][tile][position][g][2]      f32 weight scales of columns g, g + 8
 *   marks  [m/64][position]                          bit r: row r may need its order (fp4.h)
 *   rows   [m/64][64]                                row_factor; 0: the row is out of range
 *   fits   [n/16][piece]                             1: the weight scales are in range
 */
#ifndef KGATE_KERNELS_DSV4_TILES_PREPARE_H
#define KGATE_KERNELS_DSV4_TILES_PREPARE_H

#include "kernels/device/overlap.h"
#include "kernels/dsv4/launch.h"

namespace
{

constexpr int COL_WARPS = 8, COLS = 16 * COL_WARPS, ROWS = 64;
constexpr int MAKERS = 8; /* warps of a block that prepares */
constexpr int STEPS_IN_STAGE = 8;
constexpr int X_GROUPS = 4; /* of a row tile, which a block prepares */

/* Eight nibbles for a decoding in few steps: in each byte the even one as w_bytes has it, the
   odd one's magnitude in bits 4 .. 6 and its sign in bit 0; and back. */
__device__ __forceinline__ uint32_t spread_nibbles(uint32_t n)
{
    return (n & 0x07070707u) << 1 | (n & 0x08080808u) << 4 | (n & 0x70707070u) |
           (n >> 7 & 0x01010101u);
}
__device__ __forceinline__ uint32_t nibbles_of(uint32_t spread)
{
    return (spread >> 1 & 0x07070707u) | (spread >> 4 & 0x08080808u) |
           (spread & 0x70707070u) | (spread << 7 & 0x80808080u);
}
/* As w_halves. */
__device__ __forceinline__ void spread_halves(uint32_t spread, uint32_t w[4])
{
    const uint32_t odd = (spread >> 3 & 0x0e0e0e0eu) | (spread << 7 & 0x80808080u);
    halves_of_bytes(spread & 0x8e8e8e8eu, &w[0], &w[1]);
    halves_of_bytes(odd, &w[2], &w[3]);
}

template <int KIND>
struct plan {
    static constexpr int W_ITEMS = 2 / recipe<KIND>::STEPS; /* groups of a thread */
    static constexpr int PIECE_GROUPS =
        4 * MAKERS * W_ITEMS; /* by a block, of a column */
    static constexpr int IN_STAGE = STEPS_IN_STAGE / recipe<KIND>::STEPS; /* positions */
    int parts, part_bits; /* partial sums that are not 0; 2^part_bits */
    int64_t groups, rounds, positions, steps; /* of a row */
    int64_t pieces;                           /* of a column */
    int64_t row_tiles, col_tiles;             /* 64 rows; 16 columns, a multiple of 8 */
    size_t x_at, w_at, s_at, marks_at, rows_at, fits_at, bytes;

    /* By the host: it divides. */
    plan(int64_t m, int64_t n, int64_t k)
    {
        groups = k / recipe<KIND>::GROUP;
        part_bits = 7;
        while (part_bits > 3 && groups <= KG_DSV4_PARTS >> (8 - part_bits))
            part_bits--;
        parts = 1 << part_bits;
        rounds = (groups + parts - 1) / parts;
        if (rounds > IN_STAGE)
            rounds = (rounds + IN_STAGE - 1) / IN_STAGE * IN_STAGE;
        while (rounds < IN_STAGE && IN_STAGE % rounds != 0)
            rounds++;
        positions = parts * rounds;
        steps = positions * recipe<KIND>::STEPS;
        pieces = (positions + PIECE_GROUPS - 1) / PIECE_GROUPS;
        row_tiles = (m + ROWS - 1) / ROWS;
        col_tiles = (n + COLS - 1) / COLS * COL_WARPS;
        x_at = 0;
        w_at = x_at + (size_t)(row_tiles * steps) * 2048;
        s_at = w_at + (size_t)(col_tiles * steps) * 128;
        marks_at = s_at + (size_t)(col_tiles * positions) * 64;
        rows_at = marks_at + (size_t)(row_tiles * positions) * 8;
        fits_at = rows_at + (size_t)row_tiles * (ROWS * 4);
        bytes = fits_at + (size_t)(col_tiles * pieces) * 4;
    }

    /* Where a tile of 16 columns begins in w and s, in positions of a tile; how far a position is
       from there. */
    __device__ int64_t place_of(int64_t tile) const
    {
        return tile / COL_WARPS * COL_WARPS * positions + tile % COL_WARPS * IN_STAGE;
    }
    static __device__ unsigned place_in(unsigned position)
    {
        return position / IN_STAGE * (COL_WARPS * IN_STAGE) + position % IN_STAGE;
    }
    /* The position of a group, of those that are not there too. */
    __device__ int position_of(int group) const
    {
        const unsigned t = (unsigned)group & (unsigned)(parts - 1);
        return (int)(__brev(t) >> (32 - part_bits)) * (int)rounds + (group >> part_bits);
    }
};

/* The bits of the largest scale of each row of a tile; 0 for a row that halves cannot carry. */
__device__ inline void find_largest(const struct gemm_args &a, int64_t tile,
                                    uint32_t largest[ROWS])
{
    static_assert(32 * MAKERS == 4 * ROWS, "four threads a row");
    const int64_t row =
        min((long long)(tile * ROWS + threadIdx.x / 4), (long long)(a.m - 1));
    const int blocks = (int)(a.k / 128);
    const uint32_t *bits = (const uint32_t *)a.scales + row * blocks;
    uint32_t low = ~0u, high = 0, mantissas = 0;
#pragma unroll 8
    for (int i = threadIdx.x % 4; i < blocks; i += 4) {
        low = min(low, bits[i]);
        high = max(high, bits[i]);
        mantissas |= bits[i] & 0x7fffffu;
    }
    for (int distance = 1; distance <= 2; distance *= 2) {
        low = min(low, __shfl_xor_sync(KG_WARP_ALL, low, distance));
        high = max(high, __shfl_xor_sync(KG_WARP_ALL, high, distance));
        mantissas |= __shfl_xor_sync(KG_WARP_ALL, mantissas, distance);
    }
    if (threadIdx.x % 4 == 0)
        largest[threadIdx.x / 4] = halves_carry(low, high) && mantissas == 0 ? high : 0;
    __syncthreads();
}

/* Four groups of one row tile by one block: a warp has eight rows, a thread one group of one row.
   `largest` is for find_largest. */
template <int KIND>
__device__ inline void prepare_x(const struct gemm_args &a, const struct plan<KIND> &p,
                                 unsigned char *scratch, int64_t tile, int first,
                                 uint32_t largest[ROWS])
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    static_assert(X_GROUPS * ROWS == 32 * MAKERS, "a thread each");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t row = tile * ROWS + warp * 8 + lane % 8;
    const int group = first + lane / 8, position = p.position_of(group);
    const uint8_t *codes = a.codes + row * a.k;
    const bool there = row < a.m && group < (int)p.groups;
    uint32_t scale = 0; /* 0 where nothing is */
    uint4 words[STEPS];
    if (there)
        scale = __float_as_uint(a.scales[row * (a.k / 128) + group * GROUP / 128]);
#pragma unroll
    for (int h = 0; h < STEPS; h++)
        words[h] = there ? kg_load_uint4(codes + group * GROUP + h * 16)
                         : make_uint4(0, 0, 0, 0);
    find_largest(a, tile, largest);
    const uint32_t factor =
        scale != 0 ? half_factor(scale, largest[warp * 8 + lane % 8]) : 0;
    unsigned char *to = scratch + p.x_at +
                        (tile * p.steps + position * STEPS) * (int64_t)2048 + warp * 256 +
                        lane % 8 * 16;
    uint32_t look = 0;
#pragma unroll
    for (int h = 0; h < STEPS; h++) {
        const uint32_t word[4] = {words[h].x, words[h].y, words[h].z, words[h].w};
        uint32_t x[4][2];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            x_halves(word[q], x[q]);
            look |= needs_look<GROUP>(word[q]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(uint4 *)(to + h * 2048 + i * 128) =
                make_uint4(kg_hmul2(x[0][i], factor), kg_hmul2(x[1][i], factor),
                           kg_hmul2(x[2][i], factor), kg_hmul2(x[3][i], factor));
    }
    uint32_t found = 0;
    if (__any_sync(KG_WARP_ALL, look != 0)) {
        uint32_t sum = 0, bits = 0;
#pragma unroll
        for (int h = 0; h < STEPS; h++) {
            add_integers(words[h].x, &sum, &bits);
            add_integers(words[h].y, &sum, &bits);
            add_integers(words[h].z, &sum, &bits);
            add_integers(words[h].w, &sum, &bits);
        }
        found = __ballot_sync(KG_WARP_ALL, needs_order(sum, bits));
    }
    if (lane % 8 == 0) /* a byte of the mask: the rows of this warp */
        scratch[p.marks_at + (tile * p.positions + position) * 8 + warp] =
            (unsigned char)(found >> lane);
}

/* One piece of a column tile by one block: a thread has two columns and W_ITEMS groups of each.
   Columns beyond the end are the last one again; groups that are not there have scales of 0. */
template <int KIND>
__device__ inline void prepare_w(const struct gemm_args &a, const struct plan<KIND> &p,
                                 unsigned char *scratch, int64_t tile, int piece)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    constexpr int ITEMS = plan<KIND>::W_ITEMS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane % 8;
    const int first = piece * p.PIECE_GROUPS + warp * 4 + lane / 8;
    const int groups = (int)p.groups;
    uint2 nibbles[2][ITEMS][STEPS];
    uint32_t codes[ITEMS];
#pragma unroll
    for (int n = 0; n < ITEMS; n++)
        codes[n] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t col = min((long long)(tile * 16 + g + i * 8), (long long)(a.n - 1));
        const uint8_t *w = a.w + col * (a.k / 2), *ws = a.ws + col * groups;
#pragma unroll
        for (int n = 0; n < ITEMS; n++) {
            const int j = first + n * (4 * MAKERS);
            if (j >= groups)
                continue;
            codes[n] |= (uint32_t)ws[j] << 8 * i;
#pragma unroll
            for (int h = 0; h < STEPS; h++)
                nibbles[i][n][h] = *(const uint2 *)(w + j * (GROUP / 2) + h * 8);
        }
    }

    kg_grid_wait(); /* w and its scales may be read before, scratch not written */
    kg_grid_release();

    const int64_t at = p.place_of(tile);
    bool fits = true;
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
        const int j = first + n * (4 * MAKERS);
        if (j >= (int)p.positions)
            continue;
        const int64_t place = at + p.place_in(p.position_of(j));
        float2 s = make_float2(0.0f, 0.0f);
        if (j < groups && KIND == KG_DSV4_NVFP4) {
            const uint32_t halves = kg_e4m3x2_to_half2(codes[n]);
            s = make_float2(half_at(halves) * a.scale2, half_at(halves >> 16) * a.scale2);
        } else if (j < groups) {
            fits &= e8m0_fit(codes[n] * 0x00010001u);
            s = make_float2(__uint_as_float((codes[n] & 0xffu) << 23),
                            __uint_as_float((codes[n] >> 8) << 23));
        }
        *(float2 *)(scratch + p.s_at + (place * 16 + g * 2) * 4) = s;
        if (j >= groups)
            continue;
#pragma unroll
        for (int h = 0; h < STEPS; h++) {
            const uint2 l = nibbles[0][n][h], r = nibbles[1][n][h];
            *(uint4 *)(scratch + p.w_at + ((place * STEPS + h) * 32 + g * 4) * 4) =
                make_uint4(spread_nibbles(__byte_perm(l.x, r.x, 0x5410)),
                           spread_nibbles(__byte_perm(l.x, r.x, 0x7632)),
                           spread_nibbles(__byte_perm(l.y, r.y, 0x5410)),
                           spread_nibbles(__byte_perm(l.y, r.y, 0x7632)));
        }
    }
    if (KIND == KG_DSV4_MXFP4) {
        fits = __syncthreads_and(fits);
        if (threadIdx.x == 0)
            ((uint32_t *)(scratch + p.fits_at))[tile * p.pieces + piece] = fits;
    }
}

/* The first blocks prepare x, which takes longer from when the launch before is complete; the
   others w. All should be there at once: as many as there is room for threads. */
template <int KIND>
__global__ void __launch_bounds__(32 * MAKERS, 2048 / (32 * MAKERS))
    prepare_kernel(struct gemm_args a, struct plan<KIND> p, unsigned char *scratch)
{
    KG_SHARED(uint32_t, largest, [ROWS]);
    const unsigned pieces = (unsigned)p.pieces;
    const unsigned of_tile = (unsigned)p.positions / X_GROUPS,
                   x_blocks = (unsigned)p.row_tiles * of_tile, i = blockIdx.x;
    if (i >= x_blocks) {
        prepare_w<KIND>(a, p, scratch, (i - x_blocks) / pieces, (i - x_blocks) % pieces);
        return;
    }
    kg_grid_wait();
    kg_grid_release();
    const int64_t tile = i / of_tile;
    prepare_x<KIND>(a, p, scratch, tile, (int)(i % of_tile) * X_GROUPS, largest);
    if (i % of_tile == 0 && threadIdx.x < ROWS) {
        const uint32_t bits = largest[threadIdx.x];
        ((float *)(scratch + p.rows_at))[tile * ROWS + threadIdx.x] =
            bits == 0 ? 0.0f : row_factor(bits);
    }
}

} // namespace

#endif
