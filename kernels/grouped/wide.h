/*
 * Tiles of the wgmma forms of a grouped product, and how they are numbered.
 *
 * Outputs are the m of wgmma and rows of x its n, because n may be as small as a group: a
 * tile is 128 outputs by 256, 192 (if the form has it), 128 or 64 rows. Blocks take tiles in
 * turn, and would get unequal work if heights were mixed in a pattern, so the highest tiles
 * of all groups come first, then the next lower. In a group the tile of rows runs faster
 * than that of outputs: blocks that run at one time share weights.
 */
#ifndef KGATE_KERNELS_GROUPED_WIDE_H
#define KGATE_KERNELS_GROUPED_WIDE_H

#include "kernels/device/bits.h"
#include "kernels/device/sm90.h"
#include "kernels/grouped/view.h"

struct wide_tile {
    int64_t pair; /* first one */
    int rows, out, height, expert;
};

/* Where a walk has come to: tile `first` is the first of those of `height` in `group`, or
   behind it. */
struct wide_walk {
    int64_t first;
    int group, height;
};

template <bool WITH_192>
struct wide_tiles {
    static __device__ inline wide_walk start(void)
    {
        return {0, 0, 256};
    }

    static __device__ inline int below(int height)
    {
        return WITH_192 ? height - 64 : height / 2;
    }

    /* Tiles of a height in a group of `rows`, and the row that the first begins with. The
       last rows, fewer than 256, are one tile, or two where it would have 192. */
    static __device__ inline int count(int rows, int height, int *begin)
    {
        const int full = rows / 256, rest = rows % 256;
        const bool two = !WITH_192 && rest > 128 && rest <= 192;
        *begin = height == 256 ? 0 : full * 256 + (height == 64 && two ? 128 : 0);
        if (height == 256)
            return full + (rest > 192);
        if (height == 64)
            return (rest > 0 && rest <= 64) || two;
        if (two)
            return height == 128;
        return rest > height - 64 && rest <= height;
    }

    /* Tile number `index`, which must not be less than the last one asked of this walk;
       height 0 and false behind the last. Called by whole warps: a lane looks at every 32nd
       group. */
    static __device__ inline bool find(const struct grouped_view &g, int64_t index,
                                       struct wide_walk *walk, struct wide_tile *t)
    {
        const int lane = threadIdx.x % 32;
        const int out_tiles = (g.out + TILE_OUTS - 1) / TILE_OUTS;
        for (; walk->height >= 64; walk->height = below(walk->height), walk->group = 0)
            for (; walk->group < g.groups; walk->group += 32) {
                int group = walk->group + lane;
                int begin = 0, rows = 0, row;
                if (group < g.groups) {
                    begin = g.offsets[group];
                    rows = g.offsets[group + 1] - begin;
                }
                int row_tiles = count(rows, walk->height, &row);
                const long long n = (long long)row_tiles * out_tiles;
                long long end = walk->first + n; /* behind the group's last tile */
#pragma unroll
                for (int d = 1; d < 32; d *= 2) {
                    const long long before = __shfl_up_sync(KG_WARP_ALL, end, d);
                    end += lane >= d ? before - walk->first : 0;
                }
                const uint32_t found = __ballot_sync(KG_WARP_ALL, index < end);
                if (found) {
                    const int from = __ffs((int)found) - 1;
                    const int i = (int)(index - __shfl_sync(KG_WARP_ALL, end - n, from));
                    group = walk->group + from;
                    begin = __shfl_sync(KG_WARP_ALL, begin, from);
                    rows = __shfl_sync(KG_WARP_ALL, rows, from);
                    row_tiles = __shfl_sync(KG_WARP_ALL, row_tiles, from);
                    row = __shfl_sync(KG_WARP_ALL, row, from) + i % row_tiles * 256;
                    t->expert = g.experts ? g.experts[group] : group;
                    t->pair = begin + row;
                    t->rows = min(rows - row, walk->height);
                    t->out = i / row_tiles * TILE_OUTS;
                    t->height = walk->height;
                    return true;
                }
                walk->first = __shfl_sync(KG_WARP_ALL, end, 31);
            }
        t->height = 0;
        return false;
    }
};

/* Results of 64 outputs from `out`, from a warpgroup. scale: of the tile's rows, or NULL. */
template <int REGISTERS>
static __device__ __forceinline__ void
wide_store(const struct grouped_view &g, const struct wide_tile &t, int out,
           const float *scale, const float (&acc)[REGISTERS])
{
    const int lane = threadIdx.x % 32;
    const int o = out + threadIdx.x % 128 / 32 * 16 + lane / 4;
    const int64_t pitch =
        kg_opaque((uint32_t)g.out); /* or 64 offsets stay in registers */
    int r = lane % 4 * 2;
    float *y = g.y + (t.pair + r) * pitch + o;
#pragma unroll
    for (int j = 0; j < REGISTERS / 4; j++, r += 8, y += 8 * pitch)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (r + e >= t.rows)
                continue;
            const float f = scale ? scale[r + e] : 1.0f;
            if (o < g.out)
                y[e * pitch] = acc[4 * j + e] * f;
            if (o + 8 < g.out)
                y[e * pitch + 8] = acc[4 * j + 2 + e] * f;
        }
}

#endif
