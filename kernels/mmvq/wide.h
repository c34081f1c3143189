/*
 * The wide product: two to eight rows of q, one block on each multiprocessor.
 *
 * All of q stays in shared memory; weights come through a ring of slots there. A slot holds
 * 1024 * S weights of 16 rows of w, a tile. Two teams of eight warps have a tile each; slots go to
 * them in turn. A warp more copies: one lane, a box of a tensor map for each plane, as soon as
 * the slot's readers have released it. Such copies fill whole lines of shared memory, where
 * cp.async takes a cycle for each 32 bytes, and no barrier of the block is in the loop.
 *
 * Of each 1024 weights, the warps of a team have four units each: warp w those of the law's lanes
 * (kernels/matvec/unit.h) 4w .. 4w + 3. A fragment of the matrix instruction is a unit of 16
 * rows with eight columns, rows of q. Every lane of the law has an accumulator of its own, takes
 * its units in order by
 *
 *   acc = fmaf(a[g], d * (f32)dot_g, acc) for each group g, then acc = fmaf(b, s, acc)
 *
 * and the butterfly is done at the end of a tile: over distances 16, 8 and 4 across warps, 2 and 1
 * across the units of a warp. dot_g is an integer: the bits are those of unit_fold in stage_b. A
 * unit behind the end of a row adds -0.
 *
 * An accumulator of the matrix instruction starts at the bits of 1.5 * 2^23 plus what an
 * offset of all codes (8 of Q4_0, ...) takes off the dot, so that the dot comes out as f32 without
 * conversion and without offset (|dot| < 2^22).
 *
 * Weights are copied before the launch ahead of this one is complete (device/overlap.h).
 *
 * Where there are no such copies (the emulated device, compute capability below 9.0) the same
 * warp copies by cp.async, a slot for each team, between barriers of the block.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_H
#define KGATE_KERNELS_MMVQ_WIDE_H

#include "kernels/device/overlap.h"
#include "kernels/device/split_barrier.h"
#include "kernels/mmvq/wide_shared.h"

/* ---- copies ---- */

/* A tensor map of each tensor and plane, where there are bulk copies: rows of the tensor, boxes of a
   slot's rows. An even number of slots, so that each serves one team: copies land in any order,
   and a team that waited for a slot of the other could take an earlier copy for its own. */
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

/* Without rows behind the last tile. */
static __device__ __forceinline__ struct wide_tile find_wide(const struct product_args &p,
                                                             uint32_t tile)
{
    int i = 0;
    if (tile >= p.tiles)
        return {0, 0, 0};
    while (tile >= p.tensor[i].tile_end)
        i++;
    const uint32_t before = i == 0 ? 0 : p.tensor[i - 1].tile_end;
    const int64_t row0 = (int64_t)(tile - before) * WIDE_ROWS;
    return {i, row0, (int)min64(p.tensor[i].out - row0, WIDE_ROWS)};
}

#if KG_SPLIT_BARRIER
/* By one lane. What lies outside of the tensor comes as zeros. */
template <class R, int S>
static __device__ __forceinline__ void wide_copy(const struct wide_args &args,
                                                 const struct wide_tile &tile, int stage,
                                                 uint8_t *slot, uint64_t *landed)
{
    using L = wide_slot<R, S>;
    if (tile.rows == 0) {
        kg_split_arrive(landed);
        return;
    }
    kg_split_expect(landed, L::total);
#pragma unroll
    for (int i = 0; i < R::PLANES; i++)
        kg_split_load_box(slot + L::at(i), args.map[tile.tensor][i],
                          stage * (L::bytes(i) / 8), (int)tile.row0, landed);
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
    const int units = min(p.k / KG_UNIT - 32 * S * stage, 32 * S);
    for (int i = 0; i < R::PLANES; i++) {
        const int64_t row = row_bytes<R>(p, i);
        const int bytes = units * R::plane_bytes(i) / 32;
        for (int r = 0; r < tile.rows; r++)
            for (int c = 16 * (int)(threadIdx.x % 32); c < bytes; c += 512)
                kg_cp_async_16(slot + L::at(i) + r * L::stride(i) + c,
                               plane + (tile.row0 + r) * row + stage * L::bytes(i) + c);
        plane += p.tensor[tile.tensor].out * row;
    }
    kg_cp_async_commit();
    kg_cp_async_wait<0>();
}
#endif

/* ---- arithmetic ---- */

/* 1024 weights; `left` of the row's units begin at the warp's first. acc[4u + i]: unit u, i as in
   the fragment. */
template <class R, int S>
static __device__ __forceinline__ void
wide_fold(const uint8_t *slot, int j, const struct wide_shared<R> &x, int pair, int w,
          int left, const struct tile_quad &zero, const struct code_tables &tables,
          float acc[16])
{
    using L = wide_slot<R, S>;
    using X = wide_x<R>;
    using F = typename R::F;
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    uint32_t c[2][4][2], e[2][4][2];
    float a[2][2], m[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int at[R::PLANES], off[R::PLANES];
#pragma unroll
        for (int i = 0; i < R::PLANES; i++) {
            at[i] = L::at(i) + g * L::stride(i) + j * R::plane_bytes(i);
            off[i] = 8 * h * L::stride(i);
        }
        R::codes(slot, at, off, w, t, tables, c[h], e[h]);
        R::scales(slot, at, off, w, t, a[h], &m[h]);
        for (int k = 0; k < X::KINDS; k++)
            a[h][k] = t < left ? a[h][k] : -0.0f;
        if (F::MINIMUM)
            m[h] = t < left ? m[h] : -0.0f;
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const struct tile_quad b =
            load_quad(x.codes + X::CODE_BYTES * (pair + n) + 16 * lane);
        const float4 d4 = kg_load_float4(x.d + 16 * (pair + n) + 4 * t);
        const float d[2][2] = {
            {d4.x, d4.y},
            {d4.z, d4.w}
        };
        float s[2][2];
        if (F::MINIMUM) {
            const float4 s4 = kg_load_float4(x.s + 16 * (pair + n) + 4 * t);
            s[0][0] = s4.x;
            s[0][1] = s4.y;
            s[1][0] = s4.z;
            s[1][1] = s4.w;
        }
        struct tile_quad start[X::KINDS];
        if (X::INIT)
            for (int k = 0; k < X::KINDS; k++)
                start[k] = load_quad(x.init + 16 * (X::KINDS * (pair + n) + k) + 4 * t);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const int u = 2 * n + v;
            const uint32_t bs[2] = {(uint32_t)b.v[2 * v], (uint32_t)b.v[2 * v + 1]};
            float *const sum = acc + 4 * u;
#pragma unroll
            for (int k = 0; k < X::KINDS; k++) {
                int from[4], dot[4];
                for (int i = 0; i < 4; i++)
                    from[i] = X::INIT ? start[k].v[2 * v + i % 2] : zero.v[i];
                if (X::KINDS == 2) {
                    const uint32_t ca[2] = {c[0][u][k], c[1][u][k]};
                    const uint32_t ea[2] = {e[0][u][k], e[1][u][k]};
                    kg_mma_s8_16816_add(dot, ca, bs + k, from);
                    if (R::EXTRA)
                        kg_mma_s8_16816_add(dot, ea, bs + k, dot);
                } else {
                    const uint32_t ca[4] = {c[0][u][0], c[1][u][0], c[0][u][1],
                                            c[1][u][1]};
                    const uint32_t ea[4] = {e[0][u][0], e[1][u][0], e[0][u][1],
                                            e[1][u][1]};
                    kg_mma_s8_16832_add(dot, ca, bs, from);
                    if (R::EXTRA)
                        kg_mma_s8_16832_add(dot, ea, bs, dot);
                }
                for (int h = 0; h < 2; h++) {
                    const float scale = __shfl_sync(KG_WARP_ALL, a[h][k], 4 * g + u);
                    for (int i = 0; i < 2; i++)
                        sum[2 * h + i] = fmaf(
                            scale, d[v][i] * tile_dot<R>(dot[2 * h + i]), sum[2 * h + i]);
                }
            }
            if (F::MINIMUM)
                for (int h = 0; h < 2; h++) {
                    const float minimum = __shfl_sync(KG_WARP_ALL, m[h], 4 * g + u);
                    for (int i = 0; i < 2; i++)
                        sum[2 * h + i] = fmaf(minimum, s[v][i], sum[2 * h + i]);
                }
        }
    }
}

/* ---- results ---- */

/* Of a team; of the block where there are no such barriers. */
static __device__ __forceinline__ void team_sync(int team)
{
#if KG_SPLIT_BARRIER
    kg_named_barrier_sync(1 + team, 32 * TEAM_WARPS);
#else
    (void)team;
    __syncthreads();
#endif
}

/* Where unit u of value i of a warp is among its sums: odd units sixteen banks away from even. */
static __device__ __forceinline__ int sum_at(int i, int u)
{
    return SUM_KIND * i + 32 * (u / 2) + 80 * (u % 2);
}

/* The butterfly. `active` are the threads of the team. */
static __device__ __forceinline__ void
wide_finish(const struct product_args &p, const struct wide_tile &tile, int64_t q0, int w,
            int team, bool active, float *sums, const float acc[16])
{
    const int lane = threadIdx.x % 32;
    float *const mine = sums + w % 4 * (4 * SUM_KIND) + lane;
    team_sync(team);
    if (active && w >= 4)
        for (int i = 0; i < 4; i++)
            for (int u = 0; u < 4; u++)
                mine[sum_at(i, u)] = acc[4 * u + i];
    team_sync(team);
    if (active && w < 4)
        for (int i = 0; i < 4; i++)
            for (int u = 0; u < 4; u++)
                mine[sum_at(i, u)] += acc[4 * u + i];
    team_sync(team);
    if (!active)
        return;
    /* Value i of two lanes' units of a parity. */
    const int i = w / 2, from = 16 * (w % 2) + lane % 16, odd = lane / 16;
    float v[4][2];
    for (int k = 0; k < 4; k++)
        for (int u = 0; u < 2; u++)
            v[k][u] = sums[k * (4 * SUM_KIND) + sum_at(i, 2 * u + odd) + from];
    float sum[2];
    for (int u = 0; u < 2; u++)
        sum[u] = (v[0][u] + v[2][u]) + (v[1][u] + v[3][u]);
    float total = sum[0] + sum[1];
    total += __shfl_xor_sync(KG_WARP_ALL, total, 16);
    const int row = 8 * (i / 2) + from / 4, column = 2 * (from % 4) + i % 2;
    const struct product_tensor &to = p.tensor[tile.tensor];
    if (odd == 0 && row < tile.rows && column < p.width && q0 + column < p.m)
        to.y[(q0 + column) * to.out + tile.row0 + row] = total * to.scale;
}

/* blockIdx.y: which p.width rows of q. */
template <class R, int S>
__global__ void __launch_bounds__(WIDE_THREADS, 1)
    wide_kernel(const KG_GRID_CONSTANT struct wide_args args)
{
    const struct product_args &p = args.p;
    using L = wide_slot<R, S>;
    KG_SHARED_DYNAMIC(smem);
    const int warp = (int)threadIdx.x / 32, team = warp / TEAM_WARPS,
              w = warp % TEAM_WARPS;
    const int units = p.k / KG_UNIT, stages = (units + 32 * S - 1) / (32 * S);
    const uint32_t turns = (p.tiles + WIDE_TEAMS - 1) / WIDE_TEAMS;
    const int64_t q0 = (int64_t)blockIdx.y * p.width;
    const struct wide_shared<R> x(smem, 16 * S * stages);
    float *const sums =
        (float *)(smem + 16 * S * stages * wide_x<R>::BYTES + team * SUM_BYTES);
    uint8_t *const ring = smem + wide_front<R, S>(p.k);
#if KG_SPLIT_BARRIER
    KG_SHARED(uint64_t, landed, [WIDE_SLOTS]);
    KG_SHARED(uint64_t, released, [WIDE_SLOTS]);
    kg_split_init(landed, args.slots, 1);
    kg_split_init(released, args.slots, TEAM_WARPS);
    __syncthreads();
    if (warp == COPY_WARP) {
        int slot = 0;
        uint32_t parity = 1;
        if (threadIdx.x % 32 == 0)
            for (uint32_t turn = blockIdx.x; turn < turns; turn += gridDim.x)
                for (int n = 0; n < WIDE_TEAMS * stages; n++) {
                    kg_split_wait(released + slot, parity);
                    wide_copy<R, S>(
                        args, find_wide(p, WIDE_TEAMS * turn + (uint32_t)n % WIDE_TEAMS),
                        n / WIDE_TEAMS, ring + slot * L::total, landed + slot);
                    slot = slot + 1 == args.slots ? 0 : slot + 1;
                    parity ^= slot == 0;
                }
        kg_grid_wait();
        return;
    }
    int slot = team;
    uint32_t parity = 0;
#else
    const int slot = team;
#endif
    kg_grid_wait();
    kg_grid_release();
    if (warp != COPY_WARP)
        wide_load_q<R>(p, q0, (int)min64(p.width, p.m - q0), 16 * S * stages, x);
    const struct code_tables tables = R::tables();
    struct tile_quad zero;
    for (int i = 0; i < 4; i++)
        zero.v[i] = (int)kg_opaque((uint32_t)DOT_ZERO);
#if KG_SPLIT_BARRIER
    kg_named_barrier_sync(1 + WIDE_TEAMS, 32 * COPY_WARP);
#endif
    for (uint32_t turn = blockIdx.x; turn < turns; turn += gridDim.x) {
        float acc[16] = {};
        for (int stage = 0; stage < stages; stage++) {
#if KG_SPLIT_BARRIER
            kg_split_wait(landed + slot, parity);
#else
            if (warp == COPY_WARP)
                for (int i = 0; i < WIDE_TEAMS; i++)
                    wide_copy<R, S>(args, find_wide(p, WIDE_TEAMS * turn + (uint32_t)i),
                                    stage, ring + i * L::total);
            __syncthreads();
#endif
            if (warp != COPY_WARP)
#pragma unroll
                for (int j = 0; j < S; j++) {
                    const int group = S * stage + j, left = units - 32 * group - 4 * w;
                    if (left <= 0)
                        break;
                    wide_fold<R, S>(ring + slot * L::total, j, x, 16 * group + 2 * w, w,
                                    left, zero, tables, acc);
                }
#if KG_SPLIT_BARRIER
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                kg_split_arrive(released + slot);
            slot += WIDE_TEAMS;
            if (slot >= args.slots) {
                slot -= args.slots;
                parity ^= 1;
            }
#else
            __syncthreads();
#endif
        }
        wide_finish(p, find_wide(p, WIDE_TEAMS * turn + (uint32_t)team), q0, w, team,
                    warp != COPY_WARP, sums, acc);
    }
}

#endif
