/*
 * Grouped products of Q4_K weights with wgmma; compute capability 9.0a.
 *
 * A tile is 128 outputs, the m of wgmma, by up to 256 rows of x, its n. The weights never
 * lie in shared memory as f16: a warp unpacks the 16 rows that it multiplies into operand A,
 * in registers (q4_k_fragment.h), while the products of the step before run. So two
 * warpgroups do nothing but unpack and multiply, and one brings what they need, as far ahead
 * as memory allows:
 *
 *   x        rows of 64 halves, gathered, by cp.async with the 128-byte swizzle, in STAGES
 *   codes    the tile's blocks of 256 k by TMA, as they are, a block ahead of x
 *   tiles    which tile comes next, and the factors of its rows
 *
 * cp.async writes as ordinary stores do; each warp of the others passes a proxy fence after
 * it has seen a stage full. That costs nothing there: it has no copies under way, for which
 * the fence would wait.
 *
 * Its f16 weights are those of dequantize_f16, its products those of sm90_grouped.cu in the
 * same order, and so are its results, to the bit.
 */
#include "kernels/cuda/tensor_map.h"
#include "kernels/grouped/launch.h"

#if !defined(KG_EMU)

#include "kernels/grouped/q4_k_fragment.h"
#include "kernels/grouped/wide.h"

enum {
    BLOCK = fmt_q4_k::BLOCK,
    DEPTH = 64,
    PRODUCERS = 128,
    CONSUMERS = 256,
    CONSUMER_WARPS = CONSUMERS / 32,
    TOP = 256, /* rows of the largest tile */
    STAGES = 5,
    CODE_STAGES = 3,
    TILE_STAGES = 2 /* the tile at hand, and the next */
};
static_assert(BLOCK == Q4_K_STEPS * DEPTH, "a block is four steps");

struct work {
    struct wide_tile tile; /* height 0: there are no more */
    float scale[TOP];
};

struct memory {
    uint8_t x[STAGES][TOP * DEPTH * 2];
    uint8_t codes[CODE_STAGES][TILE_OUTS * Q4_K_BYTES];
    struct q4_k_scales scales[CONSUMER_WARPS];
    struct work work[TILE_STAGES];
    struct wide_walk walk; /* of warp 0, which deals the tiles */
    uint64_t x_full[STAGES], x_empty[STAGES];
    uint64_t codes_full[CODE_STAGES], codes_empty[CODE_STAGES];
    uint64_t work_full[TILE_STAGES], work_empty[TILE_STAGES];
};

/* A place in a ring of N stages, and how often it went round. */
template <int N>
struct ring {
    int at = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void next(void)
    {
        if (++at == N) {
            at = 0;
            phase ^= 1;
        }
    }
};

struct places {
    ring<STAGES> x;
    ring<CODE_STAGES> codes;
    ring<TILE_STAGES> work;
};

using tiles = wide_tiles<true>;

/* from + 16 * chunk, made where it is used: so many pointers do not fit in registers. */
static __device__ __forceinline__ const void *chunk_at(const void *from, uint32_t chunk)
{
    const void *p;
    asm("mad.wide.u32 %0, %1, 16, %2;" : "=l"(p) : "r"(chunk), "l"(from));
    return p;
}

/* The next two are for warp 0. */

static __device__ __forceinline__ void bring_codes(const struct wide_tile &t, int block,
                                                   const CUtensorMap *map,
                                                   struct memory &s,
                                                   ring<CODE_STAGES> &at)
{
    if (threadIdx.x == 0) {
        kg_mbarrier_wait(&s.codes_empty[at.at], at.phase ^ 1);
        kg_mbarrier_expect(&s.codes_full[at.at], TILE_OUTS * Q4_K_BYTES);
        kg_tma_load_3d(s.codes[at.at], map, block * (Q4_K_BYTES / 2), t.out, t.expert,
                       &s.codes_full[at.at]);
    }
    __syncwarp(); /* or the warp may go on in two parts, at half the rate */
    at.next();
}

/* Finds the block's tile number `turn`, and begins to bring it. */
static __device__ __forceinline__ void deal(const struct grouped_view &g, int turn,
                                            const CUtensorMap *map, struct memory &s,
                                            struct places &at)
{
    struct wide_walk walk = s.walk;
    struct wide_tile t;
    tiles::find(g, blockIdx.x + (int64_t)turn * gridDim.x, &walk, &t);
    kg_mbarrier_wait(&s.work_empty[at.work.at], at.work.phase ^ 1);
    __syncwarp(); /* all lanes have read s.walk */
    if (threadIdx.x == 0) {
        s.walk = walk;
        s.work[at.work.at].tile = t;
    }
    if (t.height > 0)
        bring_codes(t, 0, map, s, at.codes);
    __syncwarp();
}

/* A step of x: 64 of k of the tile's rows. */
template <int PASSES>
static __device__ __forceinline__ void
bring_rows(const uint8_t *from, const uint32_t (&x)[PASSES], int height, uint32_t place,
           struct memory &s, ring<STAGES> &at)
{
    kg_mbarrier_wait(&s.x_empty[at.at], at.phase ^ 1);
    const uint32_t to = kg_opaque(kg_shared_address(s.x[at.at]) + place);
#pragma unroll
    for (int h = 0; h < PASSES; h += 4)
        if (h * (TOP / PASSES) < height)
#pragma unroll
            for (int i = h; i < h + 4; i++)
                kg_cp_async_16_at(to + i * (TOP / PASSES) * 128, chunk_at(from, x[i]));
    kg_cp_async_arrive(&s.x_full[at.at]);
    at.next();
}

static __device__ __forceinline__ void produce(const struct grouped_view &g,
                                               const CUtensorMap *map, struct memory &s)
{
    enum { CHUNKS = 8, PASS = PRODUCERS / CHUNKS, PASSES = TOP / PASS };
    const uint32_t place = kg_swizzle_128(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
    const int blocks = g.in / BLOCK;
    struct places at;
    uint32_t x[PASSES]; /* where the thread's chunks of 16 bytes of a row begin */
    const uint8_t *from;
    int height = 0, turn = 0;
    if (threadIdx.x == 0)
        s.walk = tiles::start();
    __syncwarp();
    /* Block b - 1 of the tile's x, after block b of its codes or the first of the next
       tile's. Begins behind the last block of no tile. */
    for (int b = blocks;; b++) {
        if (threadIdx.x < 32) {
            if (b < blocks)
                bring_codes(s.work[at.work.at ^ 1].tile, b, map, s, at.codes);
            else
                deal(g, turn, map, s, at);
        }
        if (height > 0)
#pragma unroll 1
            for (int q = 0; q < Q4_K_STEPS; q++, from += DEPTH * 2)
                bring_rows(from, x, height, place, s, at.x);
        if (b < blocks)
            continue;
        kg_named_barrier_sync(1, PRODUCERS); /* warp 0 has dealt */
        struct work &work = s.work[at.work.at];
        const int64_t pair = work.tile.pair;
        const int rows = work.tile.rows;
        height = work.tile.height;
        if (height > 0) {
            /* Opaque, or what follows from it stays in registers from tile to tile. */
            const int thread = (int)kg_opaque(threadIdx.x);
#pragma unroll 1
            for (int r = thread; r < rows; r += PRODUCERS)
                work.scale[r] = g.scale ? g.scale[pair + r] : 1.0f;
#pragma unroll
            for (int i = 0; i < PASSES; i++) {
                /* Past the last row any one will do: nobody stores what comes of it. */
                const int64_t p = pair + min(thread / CHUNKS + i * PASS, rows - 1);
                x[i] =
                    (uint32_t)((g.rows ? g.rows[p] : p) * (g.in / 8) + thread % CHUNKS);
            }
        }
        kg_mbarrier_arrive(&s.work_full[at.work.at]);
        if (height == 0)
            break;
        at.work.next();
        from = (const uint8_t *)g.x;
        turn++;
        b = 0;
    }
    kg_cp_async_commit();
    kg_cp_async_wait<0>(); /* a thread must not end before its copies */
}

template <int N>
static __device__ __forceinline__ void consume(const struct grouped_view &g,
                                               struct memory &s, struct places &at)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - PRODUCERS / 32;
    const int blocks = g.in / BLOCK;
    struct q4_k_scales *scales = &s.scales[warp];
    const uint8_t *codes;
    float acc[N / 2];
    uint32_t a[2][4][4];
    int last = -1; /* stage of the step before */

#pragma unroll
    for (int i = 0; i < N / 2; i++)
        acc[i] = 0.0f;

    const auto open = [&]() {
        kg_mbarrier_wait(&s.codes_full[at.codes.at], at.codes.phase);
        codes = s.codes[at.codes.at] + warp * 16 * Q4_K_BYTES;
        __syncwarp();
        q4_k_decode(codes, scales);
        __syncwarp();
    };
    open();
    q4_k_unpack(a[0], codes, scales, 0);
    for (int b = 0; b < blocks; b++) {
#pragma unroll
        for (int q = 0; q < Q4_K_STEPS; q++) {
            kg_mbarrier_wait(&s.x_full[at.x.at], at.x.phase);
            kg_fence_proxy_async();
            const uint64_t x = kg_wgmma_descriptor(s.x[at.x.at], 0, 1024, KG_SWIZZLE_128);
            kg_wgmma_fence();
#pragma unroll
            for (int k = 0; k < DEPTH / 16; k++)
                kg_wgmma_f16_rs<0>(acc, a[q & 1][k], kg_wgmma_advance(x, 32 * k));
            kg_wgmma_commit();
            kg_wgmma_wait<1>();
            kg_wgmma_touch_a(a[(q + 1) & 1]);
            if (last >= 0 && lane == 0)
                kg_mbarrier_arrive(&s.x_empty[last]);
            last = at.x.at;
            at.x.next();
            if (q + 1 < Q4_K_STEPS) {
                q4_k_unpack(a[(q + 1) & 1], codes, scales, q + 1);
                continue;
            }
            __syncwarp();
            if (lane == 0)
                kg_mbarrier_arrive(&s.codes_empty[at.codes.at]);
            at.codes.next();
            if (b + 1 < blocks) {
                open();
                q4_k_unpack(a[0], codes, scales, 0);
            }
        }
    }
    kg_wgmma_wait<0>();
    kg_wgmma_touch(acc);
    if (lane == 0)
        kg_mbarrier_arrive(&s.x_empty[last]);
    const struct work &w = s.work[at.work.at];
    wide_store(g, w.tile, w.tile.out + warp / 4 * 64, w.scale, acc);
}

static __global__ void __launch_bounds__(PRODUCERS + CONSUMERS, 1)
    sm90_q4_k_kernel(const struct grouped_view g, const __grid_constant__ CUtensorMap map)
{
    KG_SHARED_DYNAMIC(dynamic);
    struct memory &s =
        *(struct memory *)(dynamic + (1024 - (kg_shared_address(dynamic) & 1023)) % 1024);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            kg_mbarrier_init(&s.x_full[i], PRODUCERS);
            kg_mbarrier_init(&s.x_empty[i], CONSUMER_WARPS);
        }
        for (int i = 0; i < CODE_STAGES; i++) {
            kg_mbarrier_init(&s.codes_full[i], 1);
            kg_mbarrier_init(&s.codes_empty[i], CONSUMER_WARPS);
        }
        for (int i = 0; i < TILE_STAGES; i++) {
            kg_mbarrier_init(&s.work_full[i], PRODUCERS);
            kg_mbarrier_init(&s.work_empty[i], CONSUMER_WARPS);
        }
        kg_mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < PRODUCERS) {
        kg_registers_shrink<56>();
        produce(g, &map, s);
        return;
    }
    kg_registers_grow<224>();
    for (struct places at;; at.work.next()) {
        kg_mbarrier_wait(&s.work_full[at.work.at], at.work.phase);
        /* 64 rows take the time of 128: it is that of unpacking the weights. */
        const int height = s.work[at.work.at].tile.height;
        if (height == 0)
            break;
        if (height == 256)
            consume<256>(g, s, at);
        else if (height == 192)
            consume<192>(g, s, at);
        else
            consume<128>(g, s, at);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            kg_mbarrier_arrive(&s.work_empty[at.work.at]);
    }
}

int kg_sm90_grouped_gemm_f16(const struct kg_grouped *g, const void *w, const void *x,
                             float *y, struct CUstream_st *stream);

int kg_sm90_grouped_gemm_quant(const struct kg_grouped *g, int type, const void *w,
                               const void *x, float *y, struct CUstream_st *stream)
{
    CUtensorMap map;
    int device = 0, major = 0;
    if (type != KG_TYPE_Q4_K || cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) !=
            cudaSuccess ||
        major != 9)
        return KG_E_UNSUPPORTED;
    KG_TRY(kg_grouped_check(g, BLOCK, Q4_K_BYTES, w, x, y));
    if (g->pairs == 0 || g->out == 0)
        return KG_OK;
    if (g->in == 0) /* no map describes no weights */
        return kg_sm90_grouped_gemm_f16(g, w, x, y, stream);
    if (g->n_rows > UINT32_MAX / (g->in / 8)) /* 64 GiB of x */
        return KG_E_UNSUPPORTED;
    KG_TRY(kg_tensor_map_row_sets(
        &map, w, (uint64_t)g->n_experts, (uint64_t)g->expert_stride, (uint64_t)g->out,
        (uint64_t)(g->in / BLOCK * Q4_K_BYTES), TILE_OUTS, Q4_K_BYTES));
    return KG_LAUNCH(stream, walk_blocks(1), PRODUCERS + CONSUMERS,
                     sizeof(struct memory) + 1024, sm90_q4_k_kernel,
                     kg_grouped_view(g, w, x, y), map);
}

#endif
