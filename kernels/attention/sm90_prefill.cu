/*
 * Prefill attention with wgmma, heads of 64, 128 and 256, K and V 16-bit in a workspace.
 *
 *   q, out [tokens][n_heads][HD] f32      k, v [keys][n_kv_heads][HD] f16 or bf16
 *
 * A block has 128 queries of one head: one warpgroup brings tiles of KEYS keys into shared
 * memory by TMA (two stages), two warpgroups have 64 queries each. KEYS is 128; with heads
 * of 256 it is 80, what shared memory and registers hold. Per tile in ascending
 * order, from M = -inf, L = 0, O = 0, with c = scale * log2 e:
 *
 *   S = q K^T (wgmma, f32);  M' = max(M, max S);  r = 2^(c M - c M')
 *   w = 2^(fma(c, S, -c M')), 0 where the query does not see
 *   L = L * r + sum of w;  O = O * r, then += (16-bit w) V (wgmma)
 *
 * and out = O / L. 2^x is the hardware's approximation. The sum takes the weights before
 * they are rounded. The product w V of a tile runs while the next tile's weights are made;
 * the two warpgroups take turns at issuing products, so that one's exponentials run while the
 * other's products do.
 */
#include "kernels/attention/launch.h"
#include "kernels/attention/source.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/device/sm90.h"

#define QUERIES 128 /* of a block */
#define STAGES 2
#define CONSUMER_WARPS 8

/* Heads of HD elements, tiles of KEYS keys. In shared memory a row is cut into columns of 64
   elements (128 bytes, swizzled): [column][row]. */
template <int HD_, int KEYS_>
struct wgmma_shape {
    enum {
        HD = HD_,
        KEYS = KEYS_,
        COLUMNS = HD / 64,
        Q_COLUMN = 64 * 128, /* bytes; the queries of a warpgroup */
        Q_BYTES = COLUMNS * Q_COLUMN,
        COLUMN = KEYS * 128,
        TILE_BYTES = COLUMNS * COLUMN,
        MEMORY = 2 * Q_BYTES + 2 * STAGES * TILE_BYTES + 1024,
    };
};

struct barriers {
    uint64_t full[2][STAGES], empty[2][STAGES]; /* of K, of V */
};

template <bool F16>
static __device__ __forceinline__ uint32_t pack(float lo, float hi)
{
    return F16 ? kg_pack_half2_fast(lo, hi) : kg_pack_bf162_fast(lo, hi);
}

template <typename S, bool F16>
static __device__ __forceinline__ void product_qk(float (&s)[S::KEYS / 2], uint64_t q,
                                                  uint64_t k)
{
#pragma unroll
    for (int i = 0; i < S::HD / 16; i++) {
        const uint64_t a = kg_wgmma_advance(q, i / 4 * S::Q_COLUMN + i % 4 * 32);
        const uint64_t b = kg_wgmma_advance(k, i / 4 * S::COLUMN + i % 4 * 32);
        if (F16)
            kg_wgmma_f16_ss<0, 0>(s, a, b, i != 0);
        else
            kg_wgmma_bf16_ss<0, 0>(s, a, b, i != 0);
    }
}

template <bool F16, int O, int W>
static __device__ __forceinline__ void product_pv(float (&o)[O],
                                                  const uint32_t (&w)[W][4], uint64_t v)
{
#pragma unroll
    for (int i = 0; i < W; i++) {
        if (F16)
            kg_wgmma_f16_rs<1>(o, w[i], kg_wgmma_advance(v, 2048 * i));
        else
            kg_wgmma_bf16_rs<1>(o, w[i], kg_wgmma_advance(v, 2048 * i));
    }
}

/* The warpgroup's 64 queries, rounded, into shared memory. Past the last query that one
   again: no address depends on a branch, so that all loads are under way together. */
template <typename S, bool F16>
static __device__ __forceinline__ void load_queries(uint8_t *to, const struct prefill &p,
                                                    int64_t first, int head)
{
    enum { CHUNKS = S::HD / 8 };
#pragma unroll 8
    for (int i = 0; i < 64 * CHUNKS / 128; i++) {
        const int c = 128 * i + threadIdx.x % 128, row = c / CHUNKS, chunk = c % CHUNKS;
        const int64_t token = min(first + row, p.tokens - 1);
        const float *q = p.q + (token * p.n_heads + head) * S::HD + 8 * chunk;
        const float4 lo = kg_load_float4(q), hi = kg_load_float4(q + 4);
        *(uint4 *)(to + chunk / 8 * S::Q_COLUMN + kg_swizzle_128(row, chunk % 8)) =
            make_uint4(pack<F16>(lo.x, lo.y), pack<F16>(lo.z, lo.w),
                       pack<F16>(hi.x, hi.y), pack<F16>(hi.z, hi.w));
    }
}

/* State of the two rows that a lane has a part of. */
struct rows2 {
    float max[2], sum[2], rescale[2];
};

/* Row r sees the tile's keys first[r] .. end[r] - 1. */
template <int N>
static __device__ __forceinline__ void mask(float (&s)[N], const int first[2],
                                            const int end[2])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2, r = i / 2 % 2;
        s[i] = key < first[r] || key >= end[r] ? -INFINITY : s[i];
    }
}

/* Scores to weights, in place. */
template <int N>
static __device__ __forceinline__ void softmax(float (&s)[N], struct rows2 &rows, float c)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = rows.max[r], odd = rows.max[r]; /* two chains, half as long */
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            top = fmaxf(top, s[4 * j + 2 * r]);
            odd = fmaxf(odd, s[4 * j + 2 * r + 1]);
        }
        top = fmaxf(top, odd);
        top = fmaxf(top, __shfl_xor_sync(KG_WARP_ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(KG_WARP_ALL, top, 2));
        const float base = top == -INFINITY ? 0.0f : top * c;
        rows.rescale[r] = kg_exp2_approx(fmaf(rows.max[r], c, -base));
        rows.max[r] = top;
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < N / 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * j + 2 * r + e];
                x = kg_exp2_approx(fmaf(x, c, -base));
                sum[e] += x;
            }
        rows.sum[r] = fmaf(rows.sum[r], rows.rescale[r], sum[0] + sum[1]);
    }
}

template <bool F16, int W, int N>
static __device__ __forceinline__ void pack_weights(uint32_t (&w)[W][4],
                                                    const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < W; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            w[i][e] = pack<F16>(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]);
}

/*
 * o / l of row r of two. The quotient is corrected once by its remainder, as division does
 * it, which rounds it to nearest unless o is below 2^-100; one reciprocal serves the row and
 * no branch stands between the elements. What is not finite, or a row without keys, is divided.
 */
template <int N>
static __device__ __forceinline__ void store_row(float *to, const float (&o)[N], int r,
                                                 float l)
{
    float y = kg_reciprocal_approx(l), finite = l > 0.0f ? 0.0f : NAN;
    y = fmaf(y, fmaf(-l, y, 1.0f), y);
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        finite = fmaf(o[4 * i + 2 * r], 0.0f, fmaf(o[4 * i + 2 * r + 1], 0.0f, finite));
    if (finite == 0.0f) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float q[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = o[4 * i + 2 * r + e], first = x * y;
                q[e] = fmaf(y, fmaf(-l, first, x), first);
            }
            *(float2 *)(to + 8 * i) = make_float2(q[0], q[1]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *(float2 *)(to + 8 * i) =
            make_float2(finish(o[4 * i + 2 * r], l), finish(o[4 * i + 2 * r + 1], l));
}

template <typename S>
static __device__ void produce(const CUtensorMap *k_map, const CUtensorMap *v_map,
                               uint8_t *tiles, struct barriers &b, int first_tile, int n,
                               int kv_head)
{
    for (int j = 0; j < n; j++) {
        const int stage = j % STAGES, key = (first_tile + j) * S::KEYS;
        for (int side = 0; side < 2; side++) {
            const CUtensorMap *map = side == 0 ? k_map : v_map;
            uint8_t *to = tiles + (2 * stage + side) * S::TILE_BYTES;
            kg_mbarrier_wait(&b.empty[side][stage], (j / STAGES & 1) ^ 1);
            kg_mbarrier_expect(&b.full[side][stage], S::TILE_BYTES);
            for (int i = 0; i < S::COLUMNS; i++)
                kg_tma_load_3d(to + i * S::COLUMN, map, 64 * i, kv_head, key,
                               &b.full[side][stage]);
        }
    }
}

template <typename S, bool F16>
static __device__ __forceinline__ void
consume(const struct prefill &p, uint8_t *q_tile, uint8_t *tiles, struct barriers &b,
        int first_tile, int n, int64_t query0, int head)
{
    enum { HD = S::HD, KEYS = S::KEYS };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int group = threadIdx.x / 128 - 1;
    const int64_t query = query0 + 64 * group + 16 * warp + lane / 4;
    const struct key_range range[2] = {keys_seen(p, query), keys_seen(p, query + 8)};
    /* Keys that all rows of the warpgroup see. */
    const int64_t all_first = keys_seen(p, query0 + 64 * group + 63).first;
    const int64_t all_end = min(keys_seen(p, query0 + 64 * group).end, p.keys);
    const float c = p.scale * 1.44269504f;
    struct rows2 rows = {
        {-INFINITY, -INFINITY},
        {0.0f,      0.0f     },
        {0.0f,      0.0f     }
    };
    float s[KEYS / 2], o[HD / 2];
    uint32_t w[KEYS / 16][4];
    uint8_t *own_q = q_tile + group * S::Q_BYTES;
#pragma unroll
    for (int i = 0; i < HD / 2; i++)
        o[i] = 0.0f;
    load_queries<S, F16>(own_q, p, query0 + 64 * group, head);
    kg_fence_proxy_async();
    kg_named_barrier_sync(3 + group, 128);
    const uint64_t q = kg_wgmma_descriptor(own_q, 0, 1024, KG_SWIZZLE_128);
    const auto weights = [&](int j) {
        const int64_t key0 = (int64_t)(first_tile + j) * KEYS;
        if (key0 < all_first || key0 + KEYS > all_end) {
            int first[2], end[2];
            for (int r = 0; r < 2; r++) {
                first[r] = (int)(range[r].first - key0);
                end[r] = (int)(min(range[r].end, p.keys) - key0);
            }
            mask(s, first, end);
        }
        softmax(s, rows, c);
    };
    const auto descriptor = [&](int j, int side) {
        return kg_wgmma_descriptor(tiles + (2 * (j % STAGES) + side) * S::TILE_BYTES,
                                   side == 0 ? 0 : S::COLUMN, 1024, KG_SWIZZLE_128);
    };

    if (n > 0) {
        if (group == 1)
            kg_named_barrier_arrive(1, 256); /* the first turn is group 0's */
        kg_mbarrier_wait(&b.full[0][0], 0);
        kg_named_barrier_sync(1 + group, 256);
        kg_wgmma_fence();
        product_qk<S, F16>(s, q, descriptor(0, 0));
        kg_wgmma_commit();
        kg_named_barrier_arrive(2 - group, 256);
        kg_wgmma_wait<0>();
        kg_wgmma_touch(s);
        if (lane == 0)
            kg_mbarrier_arrive(&b.empty[0][0]);
        weights(0);
        pack_weights<F16>(w, s);
        for (int j = 1; j < n; j++) {
            kg_mbarrier_wait(&b.full[0][j % STAGES], j / STAGES & 1);
            kg_mbarrier_wait(&b.full[1][(j - 1) % STAGES], (j - 1) / STAGES & 1);
            kg_named_barrier_sync(1 + group, 256);
            kg_wgmma_fence();
            product_qk<S, F16>(s, q, descriptor(j, 0));
            kg_wgmma_commit();
            product_pv<F16>(o, w, descriptor(j - 1, 1));
            kg_wgmma_commit();
            kg_named_barrier_arrive(2 - group, 256);
            kg_wgmma_wait<1>();
            kg_wgmma_touch(s);
            if (lane == 0)
                kg_mbarrier_arrive(&b.empty[0][j % STAGES]);
            weights(j);
            kg_wgmma_wait<0>();
            kg_wgmma_touch(o);
            if (lane == 0)
                kg_mbarrier_arrive(&b.empty[1][(j - 1) % STAGES]);
#pragma unroll
            for (int i = 0; i < HD / 2; i++)
                o[i] *= rows.rescale[i / 2 % 2];
            pack_weights<F16>(w, s);
        }
        kg_mbarrier_wait(&b.full[1][(n - 1) % STAGES], (n - 1) / STAGES & 1);
        kg_named_barrier_sync(1 + group, 256);
        kg_wgmma_fence();
        product_pv<F16>(o, w, descriptor(n - 1, 1));
        kg_wgmma_commit();
        kg_named_barrier_arrive(2 - group, 256);
        kg_wgmma_wait<0>();
        kg_wgmma_touch(o);
        if (group == 0) /* group 1 has given one turn more */
            kg_named_barrier_sync(1, 256);
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = rows.sum[r];
        l += __shfl_xor_sync(KG_WARP_ALL, l, 1);
        l += __shfl_xor_sync(KG_WARP_ALL, l, 2);
        const int64_t row = query + 8 * r;
        if (row >= p.tokens)
            continue;
        store_row(p.out + (row * p.n_heads + head) * HD + 2 * (lane % 4), o, r, l);
        if (p.lse && lane % 4 == 0)
            p.lse[row * p.n_heads + head] = log_sum_exp(rows.max[r] * p.scale, l);
    }
}

template <typename S, bool F16>
static __global__ void __launch_bounds__(384, 1)
    sm90_prefill_kernel(struct prefill p, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map)
{
    KG_SHARED_DYNAMIC(raw);
    __shared__ struct barriers b;
    uint8_t *memory = raw + (1024 - kg_shared_address(raw) % 1024) % 1024;
    uint8_t *tiles = memory + 2 * S::Q_BYTES;
    const int head = blockIdx.x, kv_head = head / (p.n_heads / p.n_kv_heads);
    /* The last queries see the most keys: they go first. */
    const int64_t query0 = (int64_t)(gridDim.y - 1 - blockIdx.y) * QUERIES;
    const int64_t last = min(query0 + QUERIES, p.tokens) - 1;
    const int64_t end = min(keys_seen(p, last).end, p.keys);
    const int first_tile = (int)(max(keys_seen(p, query0).first, (int64_t)0) / S::KEYS);
    const int n = end > 0 ? (int)((end + S::KEYS - 1) / S::KEYS) - first_tile : 0;

    if (threadIdx.x == 0) {
        for (int side = 0; side < 2; side++)
            for (int i = 0; i < STAGES; i++) {
                kg_mbarrier_init(&b.full[side][i], 1);
                kg_mbarrier_init(&b.empty[side][i], CONSUMER_WARPS);
            }
        kg_mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        kg_registers_shrink<24>();
        if (threadIdx.x == 0)
            produce<S>(&k_map, &v_map, tiles, b, first_tile, n, kv_head);
    } else {
        kg_registers_grow<240>();
        consume<S, F16>(p, memory, tiles, b, first_tile, n, query0, head);
    }
}

static int make_map(CUtensorMap *map, const struct prefill &p, const void *data,
                    int head_dim, int keys)
{
    const uint64_t row = (uint64_t)head_dim * 2;
    const uint64_t size[3] = {(uint64_t)head_dim, (uint64_t)p.n_kv_heads,
                              (uint64_t)p.keys};
    const uint64_t stride[2] = {row, (uint64_t)p.n_kv_heads * row};
    const uint32_t box[3] = {64, 1, (uint32_t)keys};
    return kg_tensor_map_16bit(map, data, 3, size, stride, box);
}

template <typename S>
static int launch(bool f16, const struct prefill &p, struct CUstream_st *stream)
{
    CUtensorMap k_map, v_map;
    const int64_t tiles = (p.tokens + QUERIES - 1) / QUERIES;
    if (tiles > 65535)
        return KG_E_UNSUPPORTED;
    KG_TRY(make_map(&k_map, p, p.k.data, S::HD, S::KEYS));
    KG_TRY(make_map(&v_map, p, p.v.data, S::HD, S::KEYS));
    const dim3 grid((unsigned)p.n_heads, (unsigned)tiles);
    return f16 ? KG_LAUNCH(stream, grid, 384, S::MEMORY, (sm90_prefill_kernel<S, true>),
                           p, k_map, v_map)
               : KG_LAUNCH(stream, grid, 384, S::MEMORY, (sm90_prefill_kernel<S, false>),
                           p, k_map, v_map);
}

int launch_prefill_wgmma(int head_dim, bool f16, const struct prefill &p,
                         struct CUstream_st *stream)
{
    if (p.keys == 0)
        return KG_E_UNSUPPORTED;
    switch (head_dim) {
    case 64:
        return launch<wgmma_shape<64, 128>>(f16, p, stream);
    case 128:
        return launch<wgmma_shape<128, 128>>(f16, p, stream);
    case 256:
        return launch<wgmma_shape<256, 80>>(f16, p, stream);
    default:
        return KG_E_UNSUPPORTED;
    }
}
