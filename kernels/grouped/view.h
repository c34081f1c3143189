/*
 * What the kernels of a grouped product see of it, and how tiles are numbered.
 *
 * Tiles are numbered group by group; inside a group the tile of rows runs faster than the
 * tile of outputs, so that blocks that run at one time share weights.
 */
#ifndef KGATE_KERNELS_GROUPED_VIEW_H
#define KGATE_KERNELS_GROUPED_VIEW_H

#include "kernels/device/device.h"
#include "kgate/ops/grouped.h"

enum { TILE_OUTS = 128, TILE_ROWS = 128, SMALL_ROWS = 32, TILE_THREADS = 128 };

struct grouped_view {
    const int32_t *offsets, *experts, *rows;
    const float *scale;
    const uint8_t *w;
    const uint16_t *x;
    float *y;
    int64_t expert_stride;
    int groups, in, out;
    int cross,
        trim; /* as struct kg_grouped_form; cross is INT32_MAX for small tiles only */
};

struct tile {
    int64_t pair;     /* first one */
    int rows;         /* valid ones from there, 1 .. 128 */
    int out;          /* first output */
    bool big;         /* 128 rows, else 32 */
    const uint8_t *w; /* the expert's weights */
};

/* Where a walk through the tiles has come to: tile `first` is the first of `group`. */
struct walk {
    int64_t first;
    int group;
};

/* Tile number `index`, which must not be less than the last one asked of this walk. False
   behind the last tile. */
static __device__ inline bool find_tile(const struct grouped_view &g, int64_t index,
                                        struct walk *walk, struct tile *t)
{
    const int out_tiles = (g.out + TILE_OUTS - 1) / TILE_OUTS;
    for (; walk->group < g.groups; walk->group++) {
        const int begin = g.offsets[walk->group];
        const int rows = g.offsets[walk->group + 1] - begin;
        const int height = rows >= g.cross ? TILE_ROWS : SMALL_ROWS;
        const int row_tiles = (rows + height - 1) / height;
        const int64_t n = (int64_t)row_tiles * out_tiles;
        if (index < walk->first + n) {
            const int i = (int)(index - walk->first);
            const int row = i % row_tiles * height;
            const int left = rows - row;
            const int expert = g.experts ? g.experts[walk->group] : walk->group;
            t->pair = begin + row;
            t->rows = left < height ? left : height;
            t->out = i / row_tiles * TILE_OUTS;
            t->big = height == TILE_ROWS && !(g.trim && left <= SMALL_ROWS);
            t->w = g.w + expert * g.expert_stride;
            return true;
        }
        walk->first += n;
    }
    return false;
}

#endif
