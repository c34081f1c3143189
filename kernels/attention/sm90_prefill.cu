/*
 * Prefill attention with wgmma, K and V 16-bit in a workspace.
 *
 *   q, out [tokens][n_heads][HEAD] f32     k, v [keys][n_kv_heads][HEAD] f16 or bf16
 *
 * A block has 128 queries of one head: one warpgroup brings tiles of KEYS keys into shared
 * memory by TMA (two stages), two warpgroups have 64 queries each. KEYS is 128, or what shared
 * memory and registers hold. Per tile in ascending order, from M = -inf, L = 0, O = 0, with
 * c = scale * log2 e:
 *
 *   S = q K^T (wgmma, f32);  M' = max(M, max S);  r = 2^(c M - c M')
 *   w = 2^(fma(c, S, -c M')), 0 where the query does not see
 *   L = L * r + sum of w;  O = O * r, then += (16-bit w) V (wgmma)
 *
 * and out = O / L. 2^x is the hardware's approximation. The sum takes the weights before
 * they are rounded. The product w V of a tile runs while the next tile's weights are made;
 * the two warpgroups take turns at issuing products, so that one's exponentials run while the
 * other's products do.
 *
 * Heads of 512 take a cluster of two blocks, each with half of the elements of q, K, V and
 * out: S = half_0 + half_1, and each sends the other its half of S. All else both do.
 */
#include "kernels/attention/launch.h"
#include "kernels/attention/sm90_rows.h"
#include "kernels/attention/source.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/device/sm90_cluster.h"

#define QUERIES 128 /* of a block */
#define STAGES 2
#define CONSUMER_WARPS 8

/* Heads of HEAD elements, HD of a block; tiles of KEYS keys. In shared memory a row is cut
   into columns of 64 elements (128 bytes, swizzled): [column][row]. */
template <int HEAD_, int PARTS_, int KEYS_>
struct wgmma_shape {
    enum {
        HEAD = HEAD_,
        PARTS = PARTS_,
        HD = HEAD / PARTS,
        KEYS = KEYS_,
        COLUMNS = (HD + 63) / 64,
        Q_COLUMN = 64 * 128, /* bytes; the queries of a warpgroup */
        Q_BYTES = COLUMNS * Q_COLUMN,
        COLUMN = KEYS * 128,
        TILE_BYTES = COLUMNS * COLUMN,
        S_BYTES = PARTS > 1 ? 64 * KEYS * 4 : 0, /* a warpgroup's scores */
        MEMORY = 2 * Q_BYTES + 2 * STAGES * TILE_BYTES + 2 * S_BYTES + 1024,
    };
};

struct barriers {
    uint64_t full[2][STAGES], empty[2][STAGES]; /* of K, of V */
    /* For each warpgroup: the other block's scores are here; it has read this block's. */
    uint64_t joined[2], read[2];
};

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
                                                    int64_t first, int head, int part)
{
    enum { CHUNKS = S::HD / 8 };
#pragma unroll 16
    for (int i = 0; i < 64 * CHUNKS / 128; i++) {
        const int c = 128 * i + threadIdx.x % 128, row = c / CHUNKS, chunk = c % CHUNKS;
        const int64_t token = min(first + row, p.tokens - 1);
        const float *q =
            p.q + (token * p.n_heads + head) * S::HEAD + part * S::HD + 8 * chunk;
        const float4 lo = kg_load_float4(q), hi = kg_load_float4(q + 4);
        *(uint4 *)(to + chunk / 8 * S::Q_COLUMN + kg_swizzle_128(row, chunk % 8)) =
            make_uint4(pack<F16>(lo.x, lo.y), pack<F16>(lo.z, lo.w),
                       pack<F16>(hi.x, hi.y), pack<F16>(hi.z, hi.w));
    }
}

template <typename S>
static __device__ void produce(const CUtensorMap *k_map, const CUtensorMap *v_map,
                               uint8_t *tiles, struct barriers &b, int first_tile, int n,
                               int kv_head, int part)
{
    for (int j = 0; j < n; j++) {
        const int stage = j % STAGES, key = (first_tile + j) * S::KEYS;
        for (int side = 0; side < 2; side++) {
            const CUtensorMap *map = side == 0 ? k_map : v_map;
            uint8_t *to = tiles + (2 * stage + side) * S::TILE_BYTES;
            kg_mbarrier_wait(&b.empty[side][stage], (j / STAGES & 1) ^ 1);
            kg_mbarrier_expect(&b.full[side][stage], S::TILE_BYTES);
            for (int i = 0; i < S::COLUMNS; i++)
                kg_tma_load_3d(to + i * S::COLUMN, map, part * S::HD + 64 * i, kv_head,
                               key, &b.full[side][stage]);
        }
    }
}

/* Elements 4I .. of s to the other block, and so on. */
template <int I, int N>
static __device__ __forceinline__ void send(uint32_t there, const float (&s)[N],
                                            uint32_t barrier)
{
    kg_cluster_store4<2048 * I>(there, s[4 * I], s[4 * I + 1], s[4 * I + 2], s[4 * I + 3],
                                barrier);
    if constexpr (4 * I + 4 < N)
        send<I + 1>(there, s, barrier);
}

/* Adds the other block's part of the scores of tile j; it gets this one's. */
template <typename S>
static __device__ __forceinline__ void join(float (&s)[S::KEYS / 2], uint8_t *buffer,
                                            struct barriers &b, int group, int part,
                                            int j)
{
    float4 *here = (float4 *)(buffer + group * S::S_BYTES) + threadIdx.x % 128;
    const uint32_t there = kg_cluster_address(here, 1 - part);
    const uint32_t joined = kg_cluster_address(&b.joined[group], 1 - part);
    if (threadIdx.x % 128 == 0)
        kg_mbarrier_expect(&b.joined[group], S::S_BYTES);
    kg_mbarrier_wait(&b.read[group], (j & 1) ^ 1);
    send<0>(there, s, joined);
    kg_mbarrier_wait(&b.joined[group], j & 1);
#pragma unroll
    for (int i = 0; i < S::KEYS / 8; i++) {
        const float4 x = here[128 * i];
        s[4 * i] += x.x;
        s[4 * i + 1] += x.y;
        s[4 * i + 2] += x.z;
        s[4 * i + 3] += x.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        kg_cluster_arrive(kg_cluster_address(&b.read[group], 1 - part));
}

template <typename S, bool F16>
static __device__ __forceinline__ void
consume(const struct prefill &p, uint8_t *q_tile, uint8_t *tiles, struct barriers &b,
        int first_tile, int n, int64_t query0, int head, int part)
{
    enum { HD = S::HD, KEYS = S::KEYS };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    /* A shuffle, so that the compiler knows it to be the same in all lanes. */
    const int group = __shfl_sync(KG_WARP_ALL, (int)threadIdx.x / 128, 0) - 1;
    const int query = (int)query0 + 64 * group + 16 * warp + lane / 4;
    /* Keys that all rows of the warpgroup see. */
    const int all_first = (int)keys_seen(p, query0 + 64 * group + 63).first;
    const int all_end = (int)min(keys_seen(p, query0 + 64 * group).end, p.keys);
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
    load_queries<S, F16>(own_q, p, query0 + 64 * group, head, part);
    kg_fence_proxy_async();
    kg_named_barrier_sync(3 + group, 128);
    const uint64_t q = kg_wgmma_descriptor(own_q, 0, 1024, KG_SWIZZLE_128);
    const auto weights = [&](int j) {
        if constexpr (S::PARTS > 1)
            join<S>(s, tiles + 2 * STAGES * S::TILE_BYTES, b, group, part, j);
        const int key0 = (first_tile + j) * KEYS;
        if (key0 < all_first || key0 > all_end - KEYS) {
            int first[2], end[2];
            for (int r = 0; r < 2; r++) {
                const struct key_range range = keys_seen(p, query + 8 * r);
                first[r] = (int)range.first - key0;
                end[r] = (int)min(range.end, p.keys) - key0;
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
        const int row = query + 8 * r;
        if (row >= p.tokens)
            continue;
        store_row(p.out + ((int64_t)row * p.n_heads + head) * S::HEAD + part * HD +
                      2 * (lane % 4),
                  o, r, l);
        if (p.lse && lane % 4 == 0 && part == 0)
            p.lse[(int64_t)row * p.n_heads + head] =
                log_sum_exp(rows.max[r] * p.scale, l);
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
    const int head = blockIdx.x / S::PARTS, part = blockIdx.x % S::PARTS;
    const int kv_head = head / (p.n_heads / p.n_kv_heads);
    /* The last queries see the most keys: they go first. */
    const int64_t query0 = (int64_t)(gridDim.y - 1 - blockIdx.y) * QUERIES;
    const int64_t last = min(query0 + QUERIES, p.tokens) - 1;
    const int64_t end = min(keys_seen(p, last).end, p.keys);
    const int first_tile = (int)(max(keys_seen(p, query0).first, (int64_t)0) / S::KEYS);
    const int n = end > 0 ? (int)((end + S::KEYS - 1) / S::KEYS) - first_tile : 0;

    if (threadIdx.x == 0) {
        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < STAGES; i++) {
                kg_mbarrier_init(&b.full[side][i], 1);
                kg_mbarrier_init(&b.empty[side][i], CONSUMER_WARPS);
            }
            kg_mbarrier_init(&b.joined[side], 1);
            kg_mbarrier_init(&b.read[side], CONSUMER_WARPS / 2);
        }
        kg_mbarrier_init_fence();
    }
    if (S::PARTS > 1)
        kg_cluster_sync();
    else
        __syncthreads();
    if (threadIdx.x < 128) {
        kg_registers_shrink<24>();
        if (threadIdx.x == 0)
            produce<S>(&k_map, &v_map, tiles, b, first_tile, n, kv_head, part);
    } else {
        kg_registers_grow<240>();
        consume<S, F16>(p, memory, tiles, b, first_tile, n, query0, head, part);
    }
    if (S::PARTS > 1) /* the other block may still send here */
        kg_cluster_sync();
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
    KG_TRY(make_map(&k_map, p, p.k.data, S::HEAD, S::KEYS));
    KG_TRY(make_map(&v_map, p, p.v.data, S::HEAD, S::KEYS));
    const dim3 grid((unsigned)(p.n_heads * S::PARTS), (unsigned)tiles);
    return f16 ? KG_LAUNCH_WITH(stream, S::PARTS, false, grid, 384, S::MEMORY,
                                (sm90_prefill_kernel<S, true>), p, k_map, v_map)
               : KG_LAUNCH_WITH(stream, S::PARTS, false, grid, 384, S::MEMORY,
                                (sm90_prefill_kernel<S, false>), p, k_map, v_map);
}

int launch_prefill_wgmma(int head_dim, bool f16, const struct prefill &p,
                         struct CUstream_st *stream)
{
    if (p.keys == 0)
        return KG_E_UNSUPPORTED;
    switch (head_dim) {
    case 64:
        return launch<wgmma_shape<64, 1, 128>>(f16, p, stream);
    case 96:
        return launch<wgmma_shape<96, 1, 128>>(f16, p, stream);
    case 128:
        return launch<wgmma_shape<128, 1, 128>>(f16, p, stream);
    case 192:
        return launch<wgmma_shape<192, 1, 96>>(f16, p, stream);
    case 256:
        return launch<wgmma_shape<256, 1, 80>>(f16, p, stream);
    case 512:
        return launch<wgmma_shape<512, 2, 64>>(f16, p, stream);
    default:
        return KG_E_UNSUPPORTED;
    }
}
