/*
 * Grouped products of f16 weights with wgmma; compute capability 9.0a.
 *
 * kgate/ops/grouped.h states the product, wide.h the tiles: 128 outputs by 256, 128 or 64
 * rows. Two warpgroups take 64 outputs each and share the rows. Both operands are
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
 * Accumulation: 16 products a wgmma in ascending k, in f32; the order inside is the
 * hardware's and need not be that of mma.sync.
 */
#include "kernels/grouped/launch.h"

#if !defined(KG_EMU)

#include "kernels/grouped/wide.h"

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

/* Weights of a tile. A thread has the same chunk of every LOAD_STEP-th row; LOAD_STEP is a
   multiple of 8, so all of them have one swizzle. */
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
        w = (const uint16_t *)(g.w + t.expert * g.expert_stride) +
            (valid ? (int64_t)(t.out + first) * g.in : 0) + threadIdx.x % CHUNKS * 8;
        step = (int64_t)LOAD_STEP * g.in;
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

template <int HEIGHT>
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
    wide_half weights(g, t);
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
    };

    float acc[HEIGHT / 2];
#pragma unroll
    for (int i = 0; i < HEIGHT / 2; i++)
        acc[i] = 0.0f;
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

    wide_store(g, t, t.out + group * 64, g.scale ? g.scale + t.pair : nullptr, acc);
    __syncthreads(); /* the buffers are the next tile's */
}

static __global__ void __launch_bounds__(THREADS, 1)
    sm90_grouped_kernel(const struct grouped_view g)
{
    KG_SHARED_DYNAMIC(dynamic);
    unsigned char *shared = dynamic + (1024 - (kg_shared_address(dynamic) & 1023)) % 1024;
    using tiles = wide_tiles<false>;
    struct wide_walk walk = tiles::start();
    struct wide_tile t;
    for (int64_t i = blockIdx.x; tiles::find(g, i, &walk, &t); i += gridDim.x) {
        if (t.height == 256)
            run_wide_tile<256>(g, t, shared);
        else if (t.height == 128)
            run_wide_tile<128>(g, t, shared);
        else
            run_wide_tile<64>(g, t, shared);
    }
}

int kg_sm90_grouped_gemm_f16(const struct kg_grouped *g, const void *w, const void *x,
                             float *y, struct CUstream_st *stream)
{
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) !=
            cudaSuccess ||
        major != 9)
        return KG_E_UNSUPPORTED;
    KG_TRY(kg_grouped_check(g, 64, 128, w, x, y));
    if (g->pairs == 0 || g->out == 0)
        return KG_OK;
    return KG_LAUNCH(stream, walk_blocks(1), THREADS, SHARED_BYTES, sm90_grouped_kernel,
                     kg_grouped_view(g, w, x, y));
}

#endif
