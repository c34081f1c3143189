/*
 * The wide product: two to eight rows of q, one block on each multiprocessor.
 *
 * All of q stays in shared memory; weights come through a ring of slots there. A slot holds
 * 1024 * S weights of 16 rows of w, a tile. Two teams of eight warps have a tile each; slots go to
 * them in turn. A warp more copies: one lane, a box of a tensor map for each plane, as soon as
 * the slot's readers have released that part of it. Such copies fill whole lines of shared memory, where
 * cp.async takes a cycle for each 32 bytes, and no barrier of the block is in the loop. Of the
 * other warps that have their registers with that one, two add the sums of a team's tile and
 * store them while the team is at its next; the last tile's are left to the team.
 *
 * Of each 1024 weights, the warps of a team have four units each: warp w those of the law's lanes
 * (kernels/matvec/unit.h) 4w .. 4w + 3 (of Q3_K each 2048 weights, eight units, lanes 2w and 2w + 1:
 * wide_quads.h). A fragment of the matrix instruction is a unit of 16
 * rows with eight columns, rows of q. Every lane of the law has an accumulator of its own, takes
 * its units in order by
 *
 *   acc = fmaf(a[g], d * (f32)dot_g, acc) for each group g, then acc = fmaf(b, s, acc)
 *
 * (NVFP4: acc = fmaf(d, a[g] * (f32)dot_g, acc); Q3_K: as quad_fold does) and the butterfly is done
 * at the end of a tile: over the larger three distances across warps, then across the lanes of the
 * law in a warp. dot_g is an integer: the bits are those of stage_b. A unit behind the end of a row
 * adds -0 or nothing.
 *
 * E4M3, with scales of its own, has two sums of halves for a dot (wide_e4m3.h). With the others, an
 * accumulator of the matrix instruction starts at the bits of 1.5 * 2^23, so that the dot comes out
 * as f32 without conversion (|dot| < 2^22). An exact f32 addition takes off that start and what an
 * offset of all codes (8 of Q4_0, ...) has put into the dot; of NVFP4 and Q3_K, which have no
 * offset here, the multiplication by the scale does it as an fma.
 *
 * Weights are copied before the launch ahead of this one is complete (device/overlap.h), and q is
 * asked for (ask.h).
 *
 * Where there are no such copies (the emulated device, compute capability below 9.0) the same
 * warp copies by cp.async, a slot for each team, between barriers of the block.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_H
#define KGATE_KERNELS_MMVQ_WIDE_H

#include <type_traits>

#include "kernels/device/overlap.h"
#include "kernels/mmvq/ask.h"
#include "kernels/mmvq/wide_copy.h"
#include "kernels/mmvq/wide_e4m3.h"
#include "kernels/mmvq/wide_fold.h"
#include "kernels/mmvq/wide_quads.h"
#include "kernels/mmvq/wide_results.h"

/* Registers of a warp that computes, or of the four that one lane copies for: what is left of those
   that all had at first goes to the others. */
template <bool COMPUTES>
static __device__ __forceinline__ void wide_registers(void)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if (COMPUTES)
        kg_registers_grow<112>();
    else
        kg_registers_shrink<32>();
#endif
}

/* Of the warps that compute; of the block where there is no such barrier. */
static __device__ __forceinline__ void sync_computing(void)
{
#if KG_SPLIT_BARRIER
    kg_named_barrier_sync(1, 32 * COPY_WARP);
#else
    __syncthreads();
#endif
}

/* blockIdx.y: which p.width rows of q. */
template <class R, int S>
__global__ void __launch_bounds__(WIDE_THREADS, 1)
    wide_kernel(const KG_GRID_CONSTANT struct wide_args args)
{
    const struct product_args &p = args.p;
    using W = wide_reader<R>;
    using L = wide_slot<W, S>;
    using X = wide_x<W>;
    KG_SHARED_DYNAMIC(shared);
    struct wide_barriers &barriers = *(struct wide_barriers *)shared;
    uint8_t *const smem = shared + WIDE_BARRIERS;
    /* The same in all lanes, as the compiler then knows, and keeps what follows from it in uniform
       registers; but then tables too, which are moved from there at each use. */
    const int number = (int)threadIdx.x / 32;
    const int warp = W::EXTRA ? number : __shfl_sync(KG_WARP_ALL, number, 0);
    const bool copies = warp >= COPY_WARP,
               stores = warp >= STORE_WARP && warp < STORE_WARP + WIDE_TEAMS;
    const int team = stores ? warp - STORE_WARP : copies ? 0 : warp / TEAM_WARPS;
    /* Of Q3_K odd warps have more to do: those of one team are on the schedulers of the other's
       even ones. */
    const int w = (warp ^ (W::F::QUADS ? team : 0)) % TEAM_WARPS;
    const int units = p.k / KG_UNIT, stages = (units + 32 * S - 1) / (32 * S);
    const uint32_t turns = (p.tiles + WIDE_TEAMS - 1) / WIDE_TEAMS;
    const int64_t q0 = (int64_t)blockIdx.y * p.width;
    const struct wide_shared<W> x(smem, 16 * S * stages);
    uint8_t *const behind = smem + 16 * S * stages * X::BYTES;
    uint8_t *const ring = shared + wide_front<W, S>(p.k);
    float *const sums = (float *)(behind + team * X::SUM_BYTES);
    float *const scales =
        (float *)(behind + WIDE_TEAMS * X::SUM_BYTES + warp % COPY_WARP * X::SCALE_BYTES);
    kg_split_init(barriers.landed[0], WIDE_TEAMS * WIDE_SLOTS, L::boxes);
    kg_split_init(barriers.released[0], WIDE_SLOTS * WIDE_BOXES, TEAM_WARPS);
    kg_split_init(barriers.put, WIDE_TEAMS, TEAM_WARPS);
    kg_split_init(barriers.stored, WIDE_TEAMS, 1);
    __syncthreads();
#if KG_SPLIT_BARRIER
    if (copies) {
        wide_registers<false>();
        if (threadIdx.x >= 32 * STORE_WARP)
            ask_for_q(p.q, p.d, W::F::MINIMUM ? p.s : nullptr, p.in, q0,
                      min64(p.width, p.m - q0), (int)threadIdx.x - 32 * STORE_WARP,
                      WIDE_THREADS - 32 * STORE_WARP);
        if (threadIdx.x == 32 * COPY_WARP)
            wide_copies<W, S>(args, turns, stages, ring, barriers);
        kg_grid_wait();
        if (stores)
            wide_stores<W>(p, turns, q0, team, sums, barriers);
        return;
    }
    wide_registers<true>();
#endif
    kg_grid_wait();
    kg_grid_release();
    /* q as it comes, a group of copies for each stage; put in order at the first tile. */
    for (int stage = 0; stage < stages && !copies; stage++) {
        const struct wide_source from(p, q0);
        if (32 * S * (stage + 1) <= units)
            for (int j = 0; j < S; j++)
                wide_copy_q<W, true>(from, units, 16 * (S * stage + j) + warp, x);
        else
            for (int j = 0; j < S; j++)
                wide_copy_q<W, false>(from, units, 16 * (S * stage + j) + warp, x);
        kg_cp_async_commit();
    }
    const struct code_tables tables = W::tables();
    struct tile_quad zero;
    for (int i = 0; i < 4; i++)
        zero.v[i] =
            W::F::QUADS ? quad_lane::own(DOT_ZERO) : (int)kg_opaque((uint32_t)DOT_ZERO);
    struct quad_lane own = {};
    if (W::F::QUADS)
        own.start(w, L::stride(0));
    int slot = team;
    uint32_t parity = 0, tiles = 0;
    const auto block_scale = [&](uint32_t turn) {
        const struct wide_tile tile = find_wide(p, WIDE_TEAMS * turn + (uint32_t)team);
        return wide_block_scale(p, wide_scales(p, tile.tensor), tile.row0, tile.rows, w);
    };
    float next_block = X::E4M3 ? block_scale(blockIdx.x) : 1.0f;
    for (uint32_t turn = blockIdx.x; turn < turns; turn += gridDim.x, tiles++) {
        float acc[4 * X::LANES] = {};
        const float block = next_block;
        if (X::E4M3) /* on its way during this tile */
            next_block = block_scale(turn + gridDim.x);
        for (int stage = 0; stage < stages; stage++) {
            if (tiles == 0) {
                if (!copies) {
                    wait_groups(stages - 1 - stage);
                    __syncwarp();
                    wide_take_q<W, S>(16 * S * stage + warp, x);
                }
                sync_computing();
            }
#if !KG_SPLIT_BARRIER
            __syncthreads();
            if (warp == COPY_WARP)
                for (int i = 0; i < WIDE_TEAMS; i++)
                    wide_copy<W, S>(args, find_wide(p, WIDE_TEAMS * turn + (uint32_t)i),
                                    stage, ring + i * L::total);
            slot = team;
#endif
            kg_split_wait(barriers.landed[team] + slot, parity);
            const uint8_t *const at = ring + slot * L::total;
            const int first = 16 * S * stage + 2 * w, left = units - 2 * first;
            const auto fold = [&](auto whole, int j) {
                constexpr bool WHOLE = decltype(whole)::value;
                const int pair = first + 16 * j, rest = WHOLE ? 4 : left - 32 * j;
                if constexpr (X::E4M3)
                    wide_fold_e4m3<W, S, WHOLE>(
                        at, j, x, pair, w, rest,
                        __shfl_sync(KG_WARP_ALL, block, S * stage + j), acc);
                else
                    wide_fold<W, S, WHOLE>(at, j, x, pair, w, rest, zero, tables, scales,
                                           acc);
            };
            if (copies) {
            } else if constexpr (W::F::QUADS) {
                const auto blocks = [&](auto odd) {
#pragma unroll
                    for (int j = 0; j < S / 2; j++) {
                        if (left - 4 * w - 64 * j > 0)
                            wide_quads<W, S, decltype(odd)::value>(
                                at, j, x, first + 2 * w + 32 * j, own, zero,
                                (uint8_t *)scales, acc);
                        if (2 * (j + 1) % L::thousands == 0)
                            warp_arrive(barriers.released[slot] + 2 * j / L::thousands);
                    }
                };
                if (w % 2 == 0)
                    blocks(std::false_type{});
                else
                    blocks(std::true_type{});
            } else if (32 * S * (stage + 1) <= units) {
#pragma unroll
                for (int j = 0; j < S; j++) {
                    fold(std::true_type{}, j);
                    if ((j + 1) % L::thousands == 0)
                        warp_arrive(barriers.released[slot] + j / L::thousands);
                }
            } else {
                for (int j = 0; j < S && left - 32 * j > 0; j++)
                    fold(std::false_type{}, j);
                for (int box = 0; box < L::boxes; box++)
                    warp_arrive(barriers.released[slot] + box);
            }
            slot += WIDE_TEAMS;
            slot -= slot >= args.slots ? args.slots : 0;
            parity ^= slot == team;
        }
        kg_split_wait(barriers.stored + team, (tiles + 1) % 2);
        if (!copies) {
            wide_put<W>(sums, w, acc);
            warp_arrive(barriers.put + team);
        }
#if !KG_SPLIT_BARRIER
        kg_split_wait(barriers.put + team, tiles % 2);
        if (stores)
            wide_store<W>(p, find_wide(p, WIDE_TEAMS * turn + (uint32_t)team), q0, 0, 1,
                          sums);
#endif
    }
#if KG_SPLIT_BARRIER
    if (tiles > 0) {
        kg_split_wait(barriers.put + team, (tiles - 1) % 2);
        const uint32_t last = blockIdx.x + (tiles - 1) * gridDim.x;
        if (w < 4)
            wide_store<W>(p, find_wide(p, WIDE_TEAMS * last + (uint32_t)team), q0, w, 4,
                          sums);
    }
#endif
}

#endif
