/*
 * The product of quantized blocks with up to 16 tokens of halves, through f16 tensor cores and
 * without a mirror: reading the weights is what takes the time.
 *
 *   w [out][in] blocks    h [m][in] halves    y[t][o] = sum_k w[o][k] * h[t][k]
 *
 * A form F makes pairs of halves of 16 rows x 32 weights (a unit) in registers;
 * what it makes of a weight, and in which order mma.sync m16n8k16 adds the 32 of a unit, is in
 * its header. It is the same for every row and token:
 *
 *   y = (even + odd) * F's power of two
 *
 * even is the f32 chain over the slabs (256 weights) 0, 2, ... of the row, units ascending,
 * odd that over slabs 1, 3, ..., +0 if there are none.
 *
 * Two warps have 16 rows and all tokens: twice the warps to hide latencies, and 28 of them,
 * which 28672 rows make, are seven for each of a multiprocessor's four schedulers. Their
 * weights come through a ring of theirs, two slabs a step, one for each: by one box of a tensor
 * map where there is TMA and rows start at multiples of 16 bytes, else by cp.async. Pieces of
 * 288 bytes of a row are what memory wants: 144, of twice as many warps, take 41 to 54 us
 * instead of 33 for 132 MB. Activations are the block's, by one box of swizzled tiles of 16
 * tokens x 64 elements: without the swizzle TMA takes three times as long. A barrier says that
 * a stage of them has landed, another that all warps are done with it.
 *
 * Launches overlap (overlap.h): weights are read before the launch ahead is complete.
 */
#ifndef KGATE_KERNELS_GEMM_BLOCKS_F16_H
#define KGATE_KERNELS_GEMM_BLOCKS_F16_H

#include "kernels/device/bits.h"
#include "kernels/device/overlap.h"
#include "kernels/device/split_barrier.h"
#include "kernels/gemm/launch.h"

struct blocks_f16_args {
    const uint8_t *w, *h;
    float *y;
    int64_t row_bytes, out;
    int in, m, steps;
    uint32_t magic; /* 0x64646464; a literal would be fetched at each use */
    /* boxes of w and h, if there is TMA */
    alignas(64) unsigned char map[128], x_map[128];
};

enum {
    BLOCKS_SLAB = 256,       /* weights */
    BLOCKS_SLAB_BYTES = 144, /* of both types */
    BLOCKS_UNITS = BLOCKS_SLAB / 32,
    BLOCKS_STEP = 2,                                /* slabs */
    BLOCKS_TILES = 14,                              /* of 16 rows, at most */
    BLOCKS_STAGES = 2,                              /* of a ring */
    BLOCKS_PITCH = BLOCKS_STEP * BLOCKS_SLAB_BYTES, /* of a row in a stage */
    BLOCKS_W_STAGE = 16 * BLOCKS_PITCH,
    BLOCKS_X_STAGES = 4,
    BLOCKS_X_TILE = 16 * 128, /* of row t chunk c is at c ^ t % 8 */
    BLOCKS_X_SLAB = BLOCKS_SLAB / 64 * BLOCKS_X_TILE,
    BLOCKS_X_STAGE = BLOCKS_STEP * BLOCKS_X_SLAB,
    BLOCKS_RINGS_AT = 2 * 8 * BLOCKS_X_STAGES, /* barriers; those of activations first */
    BLOCKS_X_AT = 1024,
    BLOCKS_TILES_AT = BLOCKS_X_AT + BLOCKS_X_STAGES * BLOCKS_X_STAGE,
    BLOCKS_RING = BLOCKS_STAGES * BLOCKS_W_STAGE,
};
static_assert(BLOCKS_RINGS_AT + 2 * BLOCKS_TILES * BLOCKS_STAGES * 8 <= BLOCKS_X_AT,
              "room for the barriers");

/* Bytes of two warps: their ring, and F's scales of each. */
template <class F>
static constexpr __host__ __device__ int blocks_own(void)
{
    static_assert(BLOCKS_RING % 128 == 0 && F::SCALES % 128 == 0, "where boxes land");
    static_assert(BLOCKS_TILES_AT + BLOCKS_TILES * (BLOCKS_RING + 2 * F::SCALES) + 1024 <=
                      NARROW_LIMIT,
                  "fits");
    return BLOCKS_RING + 2 * F::SCALES;
}

/* Starts the copy of step `step` of 16 rows, by one warp: it arrives at the barrier if the weights are
   MAPPED, else it belongs to the current group of cp.async. Rows past the end become zeros;
   bytes past the end of a row are not read, nor written unless mapped. */
template <bool MAPPED>
static __device__ inline void blocks_copy_w(const blocks_f16_args &g,
                                            unsigned char *stage, int64_t row0, int step,
                                            uint64_t *barrier)
{
    enum { BYTES = BLOCKS_STEP * BLOCKS_SLAB_BYTES };
    const int lane = threadIdx.x % 32;
#if KG_SPLIT_BARRIER
    if (MAPPED) {
        if (lane == 0) {
            kg_split_expect(barrier, BLOCKS_W_STAGE);
            kg_split_load_box(stage, g.map, step * (BYTES / 2), (int)row0, barrier);
        }
        return;
    }
#endif
    (void)barrier;
    const int64_t at = (int64_t)step * BYTES;
    const int words = (int)min((int64_t)BYTES, g.row_bytes - at) / 4;
#pragma unroll 1
    for (int r = 0; r < 16; r++) {
        const bool there = row0 + r < g.out;
        const uint8_t *from = there ? g.w + (row0 + r) * g.row_bytes + at : g.w;
#pragma unroll 1
        for (int i = lane; i < words; i += 32)
            kg_cp_async_4(stage + r * BLOCKS_PITCH + 4 * i, from + 4 * i, there ? 4 : 0);
    }
}

/* Starts the copy of step `step` of the activations to a stage: it arrives at the barrier, or
   belongs to the current group of cp.async. Tokens and elements that are not there become
   zeros. */
static __device__ inline void
blocks_copy_x(const blocks_f16_args &g, unsigned char *stage, int step, uint64_t *barrier)
{
#if KG_SPLIT_BARRIER
    if (threadIdx.x == 0) {
        kg_split_expect(barrier, BLOCKS_X_STAGE);
        kg_tma_load_3d(stage, (const CUtensorMap *)g.x_map, 0, 0,
                       step * (BLOCKS_STEP * BLOCKS_SLAB / 64), barrier);
    }
#else
    (void)barrier;
    for (int i = threadIdx.x; i < BLOCKS_X_STAGE / 16; i += blockDim.x) {
        const int tile = i / (BLOCKS_X_TILE / 16), t = i / 8 % 16, chunk = i % 8;
        const int k = step * BLOCKS_STEP * BLOCKS_SLAB + tile * 64 + chunk * 8;
        const bool there = t < g.m && k < g.in;
        kg_cp_async_16(stage + tile * BLOCKS_X_TILE + t * 128 + (chunk ^ t % 8) * 16,
                       there ? g.h + 2 * ((int64_t)t * g.in + k) : g.h, there ? 16 : 0);
    }
#endif
}

/* y of 16 rows; acc is laid out as d of device/mma.h, column c of two times eight being token
   F::token(c) of them. */
template <class F>
static __device__ inline void blocks_store(const blocks_f16_args &g, int64_t row0,
                                           const float acc[2][4])
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int t = i / 4 * 8 + F::token(2 * (lane % 4) + i % 2);
        const int64_t row = row0 + lane / 4 + i / 2 % 2 * 8;
        if (t < g.m && row < g.out)
            g.y[t * g.out + row] = acc[i / 4][i % 4];
    }
}

template <class F, bool W_MAPPED>
static __global__ void __launch_bounds__(64 * BLOCKS_TILES, 1)
    blocks_f16_kernel(const KG_GRID_CONSTANT blocks_f16_args g)
{
    constexpr bool MAPPED = KG_SPLIT_BARRIER && W_MAPPED;
    KG_SHARED_DYNAMIC(smem);
#if KG_SPLIT_BARRIER
    smem += (0u - kg_shared_address(smem)) & 1023; /* for the swizzle */
#endif
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int tiles = blockDim.x / 64, odd = warp >= tiles,
              tile = warp - (odd ? tiles : 0);
    const int64_t row0 = ((int64_t)blockIdx.x * tiles + tile) * 16;
    uint64_t *const landed = (uint64_t *)smem, *const done = landed + BLOCKS_X_STAGES;
    uint64_t *const rings = (uint64_t *)(smem + BLOCKS_RINGS_AT);
    uint64_t *const at_ring = rings + BLOCKS_STAGES * tile;
    uint64_t *const freed = at_ring + BLOCKS_STAGES * tiles; /* by both warps */
    unsigned char *const xs = smem + BLOCKS_X_AT;
    unsigned char *const ring = smem + BLOCKS_TILES_AT + tile * blocks_own<F>();
    const F form(BLOCKS_TILES_AT + tile * blocks_own<F>(), BLOCKS_RING + odd * F::SCALES);
    float acc[2][4] = {};

    kg_split_init(landed, BLOCKS_X_STAGES, 1);
    kg_split_init(done, BLOCKS_X_STAGES, blockDim.x / 32);
    kg_split_init(rings, BLOCKS_STAGES * tiles, 1);
    kg_split_init(rings + BLOCKS_STAGES * tiles, BLOCKS_STAGES * tiles, 2);
    __syncthreads();
    for (int i = 0; i < BLOCKS_STAGES && i < g.steps && !odd; i++)
        blocks_copy_w<MAPPED>(g, ring + i * BLOCKS_W_STAGE, row0, i, at_ring + i);
    kg_grid_wait();
    kg_grid_release();
    for (int i = 0; i < 2; i++) {
        if (i < g.steps)
            blocks_copy_x(g, xs + i * BLOCKS_X_STAGE, i, landed + i);
        if (!MAPPED)
            kg_cp_async_commit();
    }
    for (int step = 0; step < g.steps; step++) {
        const int slot = step % BLOCKS_X_STAGES, stage = step % BLOCKS_STAGES;
        if (!MAPPED) {
            kg_cp_async_wait<1>();
            __syncthreads(); /* of two warps one has copied */
        }
        kg_split_wait(landed + slot, step / BLOCKS_X_STAGES & 1);
        if (MAPPED)
            kg_split_wait(at_ring + stage, step / BLOCKS_STAGES & 1);
        form.slab(smem, stage * BLOCKS_W_STAGE + odd * BLOCKS_SLAB_BYTES,
                  BLOCKS_X_AT + slot * BLOCKS_X_STAGE + odd * BLOCKS_X_SLAB, g.magic,
                  g.in / 32 - (step * BLOCKS_STEP + odd) * (int)BLOCKS_UNITS, acc);
        __syncwarp();
        if (lane == 0) {
            kg_split_arrive(done + slot);
            kg_split_arrive(freed + stage);
        }
        if (step + BLOCKS_STAGES < g.steps) {
#if KG_SPLIT_BARRIER
            if (!odd)
                kg_split_wait(freed + stage, step / BLOCKS_STAGES & 1);
#else
            __syncthreads();
#endif
            if (!odd)
                blocks_copy_w<MAPPED>(g, ring + stage * BLOCKS_W_STAGE, row0,
                                      step + BLOCKS_STAGES, at_ring + stage);
        }
        if (step + 2 < g.steps) { /* to the stage of the step before the last */
#if KG_SPLIT_BARRIER
            if (threadIdx.x == 0 && step >= 2)
                kg_split_wait(done + (slot ^ 2), (step - 2) / BLOCKS_X_STAGES & 1);
#endif
            blocks_copy_x(g, xs + (slot ^ 2) * BLOCKS_X_STAGE, step + 2,
                          landed + (slot ^ 2));
        }
        if (!MAPPED)
            kg_cp_async_commit();
    }
    /* behind the barrier nobody reads the ring, nor is a copy under way */
    float *const parts = (float *)ring + lane;
    __syncthreads();
    if (odd)
        for (int i = 0; i < 8; i++)
            parts[32 * i] = acc[i / 4][i % 4];
    __syncthreads();
    if (odd)
        return;
    for (int i = 0; i < 8; i++)
        acc[i / 4][i % 4] = (acc[i / 4][i % 4] + parts[32 * i]) * F::power();
    blocks_store<F>(g, row0, acc);
}

template <class F>
static int blocks_f16_launch(const void *w, const void *h, float *y, int64_t in,
                             int64_t out, int64_t m, struct CUstream_st *stream)
{
    KG_TRY(check_product(in, out, m, F::BLOCK));
    if (in == 0)
        return KG_E_INVALID;
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, 1, 16) || !pointer_fits(h, 1, 16) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    if (m > 16 || in > (int64_t)1 << 30)
        return KG_E_UNSUPPORTED;
    const int tiles = narrow_warps(out, BLOCKS_TILES);
    const int64_t blocks = (out + 16 * tiles - 1) / (16 * tiles);
    if (blocks > 0x7fffffff)
        return KG_E_UNSUPPORTED;
    blocks_f16_args g = {};
    g.w = (const uint8_t *)w;
    g.h = (const uint8_t *)h;
    g.y = y;
    g.row_bytes = in / F::BLOCK * (F::BLOCK * BLOCKS_SLAB_BYTES / BLOCKS_SLAB);
    g.out = out;
    g.in = (int)in;
    g.m = (int)m;
    g.steps = (int)((in + BLOCKS_STEP * BLOCKS_SLAB - 1) / (BLOCKS_STEP * BLOCKS_SLAB));
    g.magic = 0x64646464u;
    bool mapped = false;
#if !defined(KG_EMU)
    const uint64_t size[3] = {64, (uint64_t)m, (uint64_t)in / 64},
                   stride[2] = {2 * (uint64_t)in, 128};
    const uint32_t box[3] = {64, 16, BLOCKS_STEP * BLOCKS_SLAB / 64};
    KG_TRY(kg_tensor_map_16bit((CUtensorMap *)(void *)g.x_map, h, 3, size, stride, box));
    mapped = g.row_bytes % 16 == 0;
    if (mapped)
        KG_TRY(kg_tensor_map_rows((CUtensorMap *)(void *)g.map, w, (uint64_t)out,
                                  (uint64_t)g.row_bytes, 16, BLOCKS_PITCH));
#endif
    const size_t bytes = BLOCKS_TILES_AT + tiles * (size_t)blocks_own<F>() + 1024;
    if (mapped)
        return KG_LAUNCH_OVERLAPPED(stream, (unsigned)blocks, 64 * tiles, bytes,
                                    (blocks_f16_kernel<F, true>), g);
    return KG_LAUNCH_OVERLAPPED(stream, (unsigned)blocks, 64 * tiles, bytes,
                                (blocks_f16_kernel<F, false>), g);
}

#endif
