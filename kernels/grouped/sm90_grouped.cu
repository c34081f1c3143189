/*
 * Grouped products with wgmma, of f16 weights and of Q4_K blocks; compute capability 9.0a.
 *
 * kgate/ops/grouped.h states the product. Here the outputs are the m of wgmma and the rows
 * of x its n, because n may be as small as a group: a tile is 128 outputs by 256, 128 or
 * 64 rows. Two warpgroups take 64 outputs each and share the rows. Both operands are
 * K-major in shared memory, in rows of 64 halves with the 128-byte swizzle, and come by
 * cp.async (rows of x are gathered, which a tensor map cannot).
 *
 * Step s computes on one buffer while the buffers of the next steps fill. It issues its
 * four wgmma, then waits for those of step s - 1 only, so that the tensor cores always
 * have work; the buffer it refills is that of step s - 2, with which both warpgroups are done
 * when they have met at the barrier of step s.
 *
 * Shared memory per step of 128 x 256: 48 KiB written and 80 KiB read by wgmma, 1024 of the
 * 1300 or so cycles that the products take.
 *
 * Q4_K blocks are unpacked between the issue of a step's products and the wait for the last
 * one's: 32 weights a thread, from bytes that were loaded a step earlier. All 256 rows of a
 * tile share that work. Its f16 weights are those of dequantize_f16, and so the results
 * those of the f16 form on them, to the bit.
 *
 * Accumulation: 16 products a wgmma in ascending k, in f32; the order inside is the
 * hardware's and need not be that of mma.sync.
 */
#include "kernels/grouped/launch.h"
#include "kernels/grouped/q4_k.h"

#if !defined(KG_EMU)

#include "kernels/device/sm90.h"

static constexpr int THREADS = 256, CHUNKS = 8, LOAD_STEP = THREADS / CHUNKS, DEPTH = 64;

template <int HEIGHT>
struct wide_shape {
    enum {
        W_BYTES = TILE_OUTS * DEPTH * 2,
        STAGE_BYTES = W_BYTES + HEIGHT * DEPTH * 2,
        STAGES = HEIGHT == 256   ? 4
                 : HEIGHT == 128 ? 6
                                 : 8,
        AHEAD = STAGES - 2
    };
};
static constexpr size_t SHARED_BYTES = 4 * wide_shape<256>::STAGE_BYTES + 1024;
static_assert((int)wide_shape<128>::STAGES * wide_shape<128>::STAGE_BYTES <=
                      (int)SHARED_BYTES - 1024 &&
                  (int)wide_shape<64>::STAGES * wide_shape<64>::STAGE_BYTES <=
                      (int)SHARED_BYTES - 1024,
              "all heights share one allocation");

struct wide_tile {
    int64_t pair;
    int rows, out, height;
    const uint8_t *w;
};

/* Where a walk has come to: tile `first` is the first of those of `height` in `group`. */
struct wide_walk {
    int64_t first;
    int group, height;
};

/* Tiles of a height in a group of `rows`, and the row that the first begins with. The last
   rows, fewer than 256, are cut into 64, 128, 128 + 64, or 256. */
static __device__ inline int wide_tiles(int rows, int height, int *begin)
{
    const int full = rows / 256, rest = rows % 256;
    const bool both = rest > 128 && rest <= 192;
    *begin = height == 256 ? 0 : full * 256 + (height == 64 && both ? 128 : 0);
    return height == 256   ? full + (rest > 192)
           : height == 128 ? rest > 64 && rest <= 192
                           : (rest > 0 && rest <= 64) || both;
}

/* Tile number `index`, which must not be less than the last one asked of this walk. All tiles
   of 256 rows come first, then those of 128, then those of 64: blocks take tiles in turn,
   and would get unequal work if heights were mixed in a pattern. In a group the tile of
   rows runs faster than that of outputs: blocks that run at one time share weights. */
static __device__ inline bool find_wide_tile(const struct grouped_view &g, int64_t index,
                                             struct wide_walk *walk, struct wide_tile *t)
{
    const int out_tiles = (g.out + TILE_OUTS - 1) / TILE_OUTS;
    for (; walk->height >= 64; walk->height /= 2, walk->group = 0)
        for (; walk->group < g.groups; walk->group++) {
            const int begin = g.offsets[walk->group];
            const int rows = g.offsets[walk->group + 1] - begin;
            int row;
            const int row_tiles = wide_tiles(rows, walk->height, &row);
            const int64_t n = (int64_t)row_tiles * out_tiles;
            if (index < walk->first + n) {
                const int i = (int)(index - walk->first);
                row += i % row_tiles * 256;
                const int expert = g.experts ? g.experts[walk->group] : walk->group;
                t->pair = begin + row;
                t->rows = min(rows - row, walk->height);
                t->out = i / row_tiles * TILE_OUTS;
                t->height = walk->height;
                t->w = g.w + expert * g.expert_stride;
                return true;
            }
            walk->first += n;
        }
    return false;
}

/* Weights of a tile: prefetch(k) may begin to load what fill(stage, k) writes. A thread has
   the same chunk of every LOAD_STEP-th row; LOAD_STEP is a multiple of 8, so all of them
   have one swizzle. */
struct wide_half {
    const uint16_t *w;
    int64_t step;
    int valid;

    __device__ __forceinline__ wide_half(const struct grouped_view &g,
                                         const struct wide_tile &t)
    {
        const int first = threadIdx.x / CHUNKS;
        const int left = g.out - t.out - first;
        valid = left <= 0 ? 0 : (left + LOAD_STEP - 1) / LOAD_STEP;
        w = (const uint16_t *)t.w + (valid ? (int64_t)(t.out + first) * g.in : 0) +
            threadIdx.x % CHUNKS * 8;
        step = (int64_t)LOAD_STEP * g.in;
    }
    __device__ __forceinline__ void prefetch(int)
    {
    }
    __device__ __forceinline__ void fill(unsigned char *stage, int k) const
    {
        unsigned char *to =
            stage + kg_swizzle_128(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
#pragma unroll
        for (int i = 0; i < TILE_OUTS / LOAD_STEP; i++)
            kg_cp_async_16(to + i * LOAD_STEP * 128, w + (i < valid ? i * step : 0) + k,
                           i < valid ? 16 : 0);
    }
};

/* Two threads a row, as q4_k.h explains; each has one row. */
struct wide_q4_k {
    const uint8_t *w;
    uint4 head, codes;
    int row, side, in;

    /* Eight weights of the low nibbles of two words, as q4_k_weights::halves makes them:
       2^23 + c, less 2^23, is c, and a pair is rounded by one instruction. */
    static __device__ __forceinline__ uint4 halves(uint32_t c0, uint32_t c1, float a,
                                                   float b)
    {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t word = i < 4 ? c0 : c1;
            const uint32_t bits = __byte_perm(word, 0x4b000000u, 0x7440 + i % 4);
            v[i] = fmaf(a, __uint_as_float(bits) - 8388608.0f, b);
        }
        return make_uint4(kg_pack_half2_fast(v[0], v[1]), kg_pack_half2_fast(v[2], v[3]),
                          kg_pack_half2_fast(v[4], v[5]), kg_pack_half2_fast(v[6], v[7]));
    }

    __device__ __forceinline__ wide_q4_k(const struct grouped_view &g,
                                         const struct wide_tile &t)
    {
        const int u = threadIdx.x / 2;
        row = (u & 1) | (u & 2) << 1 | (u & 4) >> 1 | (u & ~7);
        side = threadIdx.x % 2;
        in = g.in;
        w = t.w + (int64_t)min(t.out + row, g.out - 1) * (g.in / q4_k_weights::BLOCK) *
                      q4_k_weights::BYTES;
    }
    __device__ __forceinline__ void prefetch(int k)
    {
        const uint8_t *block =
            w + (int64_t)(k / q4_k_weights::BLOCK) * q4_k_weights::BYTES;
        const int part = k % q4_k_weights::BLOCK / KG_UNIT;
        if (part == 0) {
            head = kg_load_uint4(block);
            /* Two blocks on: a step is shorter than the latency of memory. */
            if (k + 2 * q4_k_weights::BLOCK < in)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(
                    block + 2 * q4_k_weights::BYTES + side * 128));
        }
        codes = kg_load_uint4(block + 16 + part / 2 * 32 + side * 16);
    }
    __device__ __forceinline__ void fill(unsigned char *stage, int k) const
    {
        const int part = k % q4_k_weights::BLOCK / KG_UNIT;
#pragma unroll
        for (int unit = 0; unit < 2; unit++) {
            float a, b;
            q4_k_weights::scales(head, part + unit, &a, &b);
            const uint32_t mask = 0x0f0f0f0fu, chunk = 4 * unit + 2 * side;
            const int shift = 4 * unit;
            *(uint4 *)(stage + kg_swizzle_128(row, chunk)) =
                halves(codes.x >> shift & mask, codes.y >> shift & mask, a, b);
            *(uint4 *)(stage + kg_swizzle_128(row, chunk + 1)) =
                halves(codes.z >> shift & mask, codes.w >> shift & mask, a, b);
        }
    }
};

template <class W, int HEIGHT>
static __device__ __forceinline__ void run_wide_tile(const struct grouped_view &g,
                                                     const struct wide_tile &t,
                                                     unsigned char *shared)
{
    using S = wide_shape<HEIGHT>;
    enum { N_ROWS = HEIGHT / LOAD_STEP };
    const int steps = g.in / DEPTH;
    const int first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const uint32_t place = S::W_BYTES + kg_swizzle_128((uint32_t)first, (uint32_t)chunk);
    const uint16_t *x = g.x + chunk * 8;
    W weights(g, t);
    int row[N_ROWS]; /* of x; -1 past the end */
    for (int i = 0; i < N_ROWS; i++) {
        const int r = first + i * LOAD_STEP;
        row[i] = r >= t.rows ? -1 : g.rows ? g.rows[t.pair + r] : (int)t.pair + r;
    }

    auto load = [&](int s) {
        unsigned char *stage = shared + s % S::STAGES * S::STAGE_BYTES;
#pragma unroll
        for (int i = 0; i < N_ROWS; i++)
            kg_cp_async_16(stage + place + i * LOAD_STEP * 128,
                           x + (int64_t)(row[i] < 0 ? 0 : row[i]) * g.in + s * DEPTH,
                           row[i] < 0 ? 0 : 16);
        weights.fill(stage, s * DEPTH);
        if (s + 1 < steps)
            weights.prefetch((s + 1) * DEPTH);
    };

    float acc[HEIGHT / 2];
#pragma unroll
    for (int i = 0; i < HEIGHT / 2; i++)
        acc[i] = 0.0f;
    if (steps > 0)
        weights.prefetch(0);
    for (int s = 0; s < S::AHEAD; s++) {
        if (s < steps)
            load(s);
        kg_cp_async_commit();
    }
    const int group = threadIdx.x / 128;
    for (int s = 0; s < steps; s++) {
        const unsigned char *stage = shared + s % S::STAGES * S::STAGE_BYTES;
        kg_cp_async_wait<S::AHEAD - 1>();
        kg_fence_proxy_async();
        __syncthreads();
        const uint64_t a =
            kg_wgmma_descriptor(stage + group * 64 * 128, 0, 1024, KG_SWIZZLE_128);
        const uint64_t b =
            kg_wgmma_descriptor(stage + S::W_BYTES, 0, 1024, KG_SWIZZLE_128);
        kg_wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            kg_wgmma_f16_ss<0, 0>(acc, kg_wgmma_advance(a, 32 * k),
                                  kg_wgmma_advance(b, 32 * k));
        kg_wgmma_commit();
        if (s + S::AHEAD < steps)
            load(s + S::AHEAD);
        kg_cp_async_commit();
        kg_wgmma_wait<1>();
    }
    kg_wgmma_wait<0>();
    kg_wgmma_touch(acc);

    const int lane = threadIdx.x % 32;
    const int o = t.out + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    float *y = g.y + t.pair * g.out;
#pragma unroll
    for (int j = 0; j < HEIGHT / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int r = 8 * j + lane % 4 * 2 + e;
            if (r >= t.rows)
                continue;
            const float scale = g.scale ? g.scale[t.pair + r] : 1.0f;
            if (o < g.out)
                y[(int64_t)r * g.out + o] = acc[4 * j + e] * scale;
            if (o + 8 < g.out)
                y[(int64_t)r * g.out + o + 8] = acc[4 * j + 2 + e] * scale;
        }
    __syncthreads(); /* the buffers are the next tile's */
}

template <class W>
static __global__ void __launch_bounds__(THREADS, 1)
    sm90_grouped_kernel(const struct grouped_view g)
{
    KG_SHARED_DYNAMIC(dynamic);
    unsigned char *shared = dynamic + (1024 - (kg_shared_address(dynamic) & 1023)) % 1024;
    struct wide_walk walk = {0, 0, 256};
    struct wide_tile t;
    for (int64_t i = blockIdx.x; find_wide_tile(g, i, &walk, &t); i += gridDim.x) {
        if (t.height == 256)
            run_wide_tile<W, 256>(g, t, shared);
        else if (t.height == 128)
            run_wide_tile<W, 128>(g, t, shared);
        else
            run_wide_tile<W, 64>(g, t, shared);
    }
}

template <class W>
static int launch(const struct kg_grouped *g, int64_t block, int64_t block_bytes,
                  const void *w, const void *x, float *y, struct CUstream_st *stream)
{
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) !=
            cudaSuccess ||
        major != 9)
        return KG_E_UNSUPPORTED;
    KG_TRY(kg_grouped_check(g, block, block_bytes, w, x, y));
    if (g->pairs == 0 || g->out == 0)
        return KG_OK;
    return KG_LAUNCH(stream, walk_blocks(1), THREADS, SHARED_BYTES,
                     sm90_grouped_kernel<W>, kg_grouped_view(g, w, x, y));
}

int kg_sm90_grouped_gemm_f16(const struct kg_grouped *g, const void *w, const void *x,
                             float *y, struct CUstream_st *stream)
{
    return launch<wide_half>(g, 64, 128, w, x, y, stream);
}

int kg_sm90_grouped_gemm_quant(const struct kg_grouped *g, int type, const void *w,
                               const void *x, float *y, struct CUstream_st *stream)
{
    if (type != KG_TYPE_Q4_K)
        return KG_E_UNSUPPORTED;
    return launch<wide_q4_k>(g, fmt_q4_k::BLOCK, fmt_q4_k::BYTES, w, x, y, stream);
}

#endif
