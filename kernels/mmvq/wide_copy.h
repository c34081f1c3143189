/*
 * How the weights of the wide product (wide.h) come to shared memory: tiles, and the copies of their
 * stages.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_COPY_H
#define KGATE_KERNELS_MMVQ_WIDE_COPY_H

#include "kernels/mmvq/wide_shared.h"

/* A tensor map of each tensor and plane, where there are bulk copies: rows of the tensor, boxes of a
   slot's rows. */
struct wide_args {
    alignas(64) unsigned char map[KG_MMVQ_TENSORS][WIDE_PLANES][128];
    struct product_args p;
    int slots;
};

struct wide_tile {
    int tensor;
    int64_t row0;
    int rows;
};

/* Without rows behind the last tile. Tensors that are not there end where the last one does. No index
   that the compiler does not know: it would be a load, which is waited for. */
static __device__ __forceinline__ struct wide_tile find_wide(const struct product_args &p,
                                                             uint32_t tile)
{
    int tensor = 0;
    uint32_t before = 0;
    int64_t out = p.tensor[0].out;
    if (tile >= p.tiles)
        return {0, 0, 0};
#pragma unroll
    for (int i = 1; i < KG_MMVQ_TENSORS; i++)
        if (tile >= p.tensor[i - 1].tile_end) {
            tensor = i;
            before = p.tensor[i - 1].tile_end;
            out = p.tensor[i].out;
        }
    const int64_t row0 = (int64_t)(tile - before) * WIDE_ROWS;
    return {tensor, row0, (int)min64(out - row0, WIDE_ROWS)};
}

#if KG_SPLIT_BARRIER
/* A box of each plane, by one lane. What lies outside of the tensor comes as zeros. */
template <class R, int S>
static __device__ __forceinline__ void wide_copy(const struct wide_args &args,
                                                 const struct wide_tile &tile, int stage,
                                                 int box, uint8_t *slot, uint64_t *landed)
{
    using L = wide_slot<R, S>;
    if (tile.rows == 0) {
        kg_split_arrive(landed);
        return;
    }
    kg_split_expect(landed, L::box);
#pragma unroll
    for (int i = 0; i < R::PLANES; i++)
        kg_split_load_box(slot + box * L::box + L::at(i), args.map[tile.tensor][i],
                          (L::boxes * stage + box) * (L::bytes(i) / 8), (int)tile.row0,
                          landed);
}

/* All copies of the block, by one lane. */
template <class W, int S>
static __device__ __forceinline__ void
wide_copies(const struct wide_args &args, uint32_t turns, int stages, uint8_t *ring,
            struct wide_barriers &barriers)
{
    using L = wide_slot<W, S>;
    int slot = 0;
    uint32_t parity = 1;
    for (uint32_t turn = blockIdx.x; turn < turns; turn += gridDim.x)
        for (int n = 0; n < WIDE_TEAMS * stages; n++) {
            const int team = n % WIDE_TEAMS;
            const struct wide_tile tile =
                find_wide(args.p, WIDE_TEAMS * turn + (uint32_t)team);
#pragma unroll
            for (int box = 0; box < L::boxes; box++) {
                kg_split_wait(barriers.released[slot] + box, parity);
                wide_copy<W, S>(args, tile, n / WIDE_TEAMS, box, ring + slot * L::total,
                                barriers.landed[team] + slot);
            }
            slot = slot + 1 == args.slots ? 0 : slot + 1;
            parity ^= slot == 0;
        }
}
#else
/* By a warp. */
template <class R, int S>
static __device__ __forceinline__ void wide_copy(const struct wide_args &args,
                                                 const struct wide_tile &tile, int stage,
                                                 uint8_t *slot)
{
    using L = wide_slot<R, S>;
    const struct product_args &p = args.p;
    const uint8_t *plane = p.tensor[tile.tensor].w;
    for (int i = 0; i < R::PLANES; i++) {
        const int64_t row = row_bytes<R>(p, i);
        for (int box = 0; box < L::boxes; box++) {
            const int64_t first = (int64_t)(L::boxes * stage + box) * L::bytes(i);
            const int bytes = (int)min64(row - first, L::bytes(i));
            uint8_t *const to = slot + box * L::box + L::at(i);
            for (int r = 0; r < tile.rows; r++)
                for (int c = 16 * (int)(threadIdx.x % 32); c < bytes; c += 512)
                    kg_cp_async_16(to + r * L::stride(i) + c,
                                   plane + (tile.row0 + r) * row + first + c);
        }
        plane += p.tensor[tile.tensor].out * row;
    }
    kg_cp_async_commit();
    kg_cp_async_wait<0>();
}
#endif

#endif
