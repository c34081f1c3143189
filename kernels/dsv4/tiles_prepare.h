/*
 * How the tiles form (tiles.cu) lays its operands out anew, and the kernel that does it.
 *
 * Positions: group t + 128 r is at position bitrev(t) * ROUNDS + r. ROUNDS is ceil(groups / 128) or
 * as many more as divide a stage or are a multiple of it; positions without a group hold zeros,
 * which add +0. A position is one or two steps of 16 k; 8 steps are a stage. Scratch:
 *
 *   x      [m/64][step][row / 8][half][row % 8][16 B]   halves, code * scale * 2^(7 - e) (fp4.h), as
 *                                                   the B operand of device/warpgroup.h
 *   w      [n/128][stage][tile][step][lane][4 B]     a tile is 16 columns; nibbles: 4 of column g,
 *                                                   4 of g + 8
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
constexpr int PIECE_BYTES = 512; /* of each of the columns that a block prepares */

template <int KIND>
struct plan {
    static constexpr int PIECE_GROUPS = PIECE_BYTES * 2 / recipe<KIND>::GROUP;
    static constexpr int IN_STAGE = STEPS_IN_STAGE / recipe<KIND>::STEPS; /* positions */
    int64_t groups, rounds, positions, steps;                             /* of a row */
    int64_t pieces;               /* of a column */
    int64_t row_tiles, col_tiles; /* 64 rows; 16 columns, a multiple of 8 */
    size_t x_at, w_at, s_at, marks_at, rows_at, fits_at, bytes;

    __host__ __device__ plan(int64_t m, int64_t n, int64_t k)
    {
        groups = k / recipe<KIND>::GROUP;
        rounds = (groups + KG_DSV4_PARTS - 1) / KG_DSV4_PARTS;
        if (rounds > IN_STAGE)
            rounds = (rounds + IN_STAGE - 1) / IN_STAGE * IN_STAGE;
        while (rounds < IN_STAGE && IN_STAGE % rounds != 0)
            rounds++;
        positions = KG_DSV4_PARTS * rounds;
        steps = positions * recipe<KIND>::STEPS;
        pieces = (groups + PIECE_GROUPS - 1) / PIECE_GROUPS;
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

    /* The group at a position; not below `groups` if there is none. */
    __device__ int64_t group_at(int64_t position) const
    {
        const uint32_t at = (uint32_t)position, in_leaf = (uint32_t)rounds;
        const uint32_t t = __brev(at / in_leaf) >> 25;
        return t + KG_DSV4_PARTS * (int64_t)(at % in_leaf);
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
        return (int)(__brev((unsigned)group % KG_DSV4_PARTS) >> 25) * (int)rounds +
               group / KG_DSV4_PARTS;
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

/* One position of one row tile, by one warp. `largest` is for find_largest. */
template <int KIND>
__device__ inline void prepare_x(const struct gemm_args &a, const struct plan<KIND> &p,
                                 unsigned char *scratch, int64_t tile, int64_t position,
                                 uint32_t largest[ROWS])
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int64_t j = p.group_at(position);
    uint32_t *to =
        (uint32_t *)(scratch + p.x_at) + (tile * p.steps + position * STEPS) * 512 + lane;
    uint64_t marks = 0;
    uint32_t codes[8][STEPS], scale[8]; /* 0 where nothing is */
#pragma unroll
    for (int part = 0; part < 8; part++) {
        const int64_t row = tile * ROWS + part * 8 + g;
        const bool there = row < a.m && j < p.groups;
        scale[part] = 0;
        if (there)
            scale[part] = __float_as_uint(a.scales[row * (a.k / 128) + j * GROUP / 128]);
#pragma unroll
        for (int h = 0; h < STEPS; h++) {
            codes[part][h] = 0;
            if (there)
                codes[part][h] =
                    kg_load_u32(a.codes + row * a.k + j * GROUP + h * 16 + q * 4);
        }
    }
    find_largest(a, tile, largest);
#pragma unroll
    for (int part = 0; part < 8; part++) {
        const uint32_t factor =
            scale[part] != 0 ? half_factor(scale[part], largest[part * 8 + g]) : 0;
        uint32_t look = 0;
#pragma unroll
        for (int h = 0; h < STEPS; h++) {
            uint32_t x[2];
            x_halves(codes[part][h], x);
            look |= needs_look<GROUP>(codes[part][h]);
            to[h * 512 + part * 64] = kg_hmul2(x[0], factor);
            to[h * 512 + part * 64 + 32] = kg_hmul2(x[1], factor);
        }
        if (!__any_sync(KG_WARP_ALL, look != 0))
            continue;
        uint32_t sum = 0, bits = 0;
#pragma unroll
        for (int h = 0; h < STEPS; h++)
            add_integers(codes[part][h], &sum, &bits);
        for (int distance = 1; distance <= 2; distance *= 2) {
            sum += __shfl_xor_sync(KG_WARP_ALL, sum, distance);
            bits |= __shfl_xor_sync(KG_WARP_ALL, bits, distance);
        }
        const uint32_t found = __ballot_sync(KG_WARP_ALL, needs_order(sum, bits));
        for (int r = 0; r < 8; r++)
            marks |= (uint64_t)(found >> 4 * r & 1u) << (part * 8 + r);
    }
    if (lane == 0)
        ((uint64_t *)(scratch + p.marks_at))[tile * p.positions + position] = marks;
}

/* One piece of a column tile by one block: rows of w come in through shared memory. Columns
   beyond the end are the last one again. */
template <int KIND>
__device__ inline void prepare_w(const struct gemm_args &a, const struct plan<KIND> &p,
                                 unsigned char *scratch, int64_t tile, int piece,
                                 unsigned char (*rows)[PIECE_BYTES + 16])
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int first = piece * p.PIECE_GROUPS, groups = (int)p.groups;
    const int here = min(groups - first, p.PIECE_GROUPS);
    static_assert(32 * MAKERS == 16 * 16, "16 threads a column");
    const int64_t col =
        min((long long)(tile * 16 + threadIdx.x / 16), (long long)(a.n - 1));
    const uint8_t *from = a.w + col * (a.k / 2) + first * (GROUP / 2);
#pragma unroll
    for (int i = 0; i < PIECE_BYTES / 256; i++) {
        const int at = i * 256 + threadIdx.x % 16 * 16;
        if (at < here * (GROUP / 2))
            *(uint4 *)(rows[threadIdx.x / 16] + at) = kg_load_uint4(from + at);
    }

    const int i = threadIdx.x % 16, of_16 = threadIdx.x / 16;
    const int64_t c =
        min((long long)(tile * 16 + i / 2 + i % 2 * 8), (long long)(a.n - 1));
    constexpr int SCALES = plan<KIND>::PIECE_GROUPS / 16;
    uint32_t codes[SCALES];
#pragma unroll
    for (int n = 0; n < SCALES; n++)
        codes[n] = of_16 + 16 * n < here ? a.ws[c * groups + first + of_16 + 16 * n] : 0;

    kg_grid_wait(); /* w and its scales may be read before, scratch not written */
    kg_grid_release();

    float *s = (float *)(scratch + p.s_at) + p.place_of(tile) * 16 + i;
    bool fits = true;
#pragma unroll
    for (int n = 0; n < SCALES; n++)
        if (of_16 + 16 * n < here) {
            fits &= KIND == KG_DSV4_NVFP4 || e8m0_fit(codes[n] * 0x01010101u);
            s[p.place_in(p.position_of(first + of_16 + 16 * n)) * 16] =
                KIND == KG_DSV4_NVFP4 ? half_at(kg_e4m3x2_to_half2(codes[n])) * a.scale2
                                      : __uint_as_float(codes[n] << 23);
        }
    /* groups that are not there, by the last piece */
    if (piece == p.pieces - 1)
        for (int j = groups + of_16; j < (int)p.positions; j += 16)
            s[p.place_in(p.position_of(j)) * 16] = 0.0f;
    fits = __syncthreads_and(fits);
    if (threadIdx.x == 0)
        ((uint32_t *)(scratch + p.fits_at))[tile * p.pieces + piece] = fits;

    uint32_t *w = (uint32_t *)(scratch + p.w_at) + p.place_of(tile) * (STEPS * 32) + lane;
#pragma unroll 4
    for (int step = (int)threadIdx.x / 32; step < here * STEPS; step += MAKERS) {
        const int at = step * 8 + q * 2;
        w[(p.place_in(p.position_of(first + step / STEPS)) * STEPS + step % STEPS) * 32] =
            kg_load_u16(rows[g] + at) | (uint32_t)kg_load_u16(rows[g + 8] + at) << 16;
    }
}

/* Blocks 0 .. col_tiles * pieces - 1 prepare w, the others x. */
template <int KIND>
__global__ void __launch_bounds__(32 * MAKERS)
    prepare_kernel(struct gemm_args a, unsigned char *scratch)
{
    KG_SHARED(uint4, rows, [16][(PIECE_BYTES + 16) / 16]);
    const struct plan<KIND> p(a.m, a.n, a.k);
    const unsigned pieces = (unsigned)p.pieces;
    const unsigned w_blocks = (unsigned)p.col_tiles * pieces;
    if (blockIdx.x < w_blocks) {
        prepare_w<KIND>(a, p, scratch, blockIdx.x / pieces, blockIdx.x % pieces,
                        (unsigned char(*)[PIECE_BYTES + 16]) rows);
        return;
    }
    kg_grid_wait();
    kg_grid_release();
    uint32_t *largest = (uint32_t *)rows;
    const unsigned i = (blockIdx.x - w_blocks) * MAKERS,
                   positions = (unsigned)p.positions;
    const int64_t tile = i / positions;
    prepare_x<KIND>(a, p, scratch, tile, i % positions + threadIdx.x / 32, largest);
    if (i % positions == 0 && threadIdx.x < ROWS) {
        const uint32_t bits = largest[threadIdx.x];
        ((float *)(scratch + p.rows_at))[tile * ROWS + threadIdx.x] =
            bits == 0 ? 0.0f : row_factor(bits);
    }
}

} // namespace

#endif
