/*
 * Decode attention over the quantized cache: out = softmax(scale * q K^T) V for one query
 * row, keys in splits.
 *
 *   grid   x split, y key head and group of up to HG of its query heads, z row
 *   block  HD threads; tile.h says who does what
 *
 * Order of the arithmetic, the same for every form (base and deep, single row, rows,
 * sequences, length on the device), per row and head:
 *
 *   split   keys as partition.h cuts them; tiles of 32 keys in order, from M = -inf, L = 0
 *   score   s = (part_0 + part_1 + ...) * scale, part_b of 32 elements as in tile.h
 *   tile    M' = max(M, max s);  r = exp(M - M');  p = exp(s - M'), 0 past the end
 *           L = L * r + (butterfly sum of the 32 p)
 *           thread: acc = acc * r, rest = rest * r; then its four keys in order
 *   end     out = sum over the 8 slots in order of (acc + rest); out, M, L of the split
 *   row     combine_head of rows.h over the splits
 *
 * A head's result does not depend on the heads beside it: HG and the grid are scheduling.
 *
 * Base: one tile in shared memory, plain copies, a second launch combines. Deep: STAGES
 * tiles under way by cp.async; the last block of a row's heads to finish combines in the
 * same launch, which it learns from a counter that it leaves at 0.
 */
#ifndef KGATE_KERNELS_ATTENTION_DECODE_H
#define KGATE_KERNELS_ATTENTION_DECODE_H

#include "kernels/attention/launch.h"
#include "kernels/attention/tile.h"

#define STAGES 4

template <int HD, int HG, bool INT8>
struct decode_queries;

/* q as int8: d and codes per 32 elements, the codes laid out as scores_int8 wants. */
template <int HD, int HG>
struct alignas(16) decode_queries<HD, HG, true> {
    uint32_t words[HD / 32][Q8_WORDS][HG];
    float d[HD / 32][HG];
};
template <int HD, int HG>
struct alignas(16) decode_queries<HD, HG, false> {
    float q[HG * HD];
};

template <int HD, int HG>
struct decode_shared {
    float part[HD / 32][HG][TILE];
    alignas(16) float p[TILE][HG];
    float rescale[HG];
    float state[HG][2]; /* M, L at the end */
    int last;
};

template <int HD, int HG>
static __device__ inline void load_queries(struct decode_queries<HD, HG, true> &to,
                                           const float *q, int heads)
{
    const int lane = threadIdx.x % 32, b = threadIdx.x / 32;
    for (int h = 0; h < HG; h++) {
        const float x = h < heads ? q[h * HD + threadIdx.x] : 0.0f;
        const float d = warp_max(fabsf(x)) / 127.0f;
        const float id = d > 0.0f ? 1.0f / d : 0.0f;
        const int at = Q8_SHIFT(b) + 2 + lane;
        if (lane < Q8_WORDS)
            to.words[b][lane][h] = 0;
        __syncwarp();
        ((uint8_t *)&to.words[b][at / 4][h])[at % 4] = (uint8_t)__float2int_rn(x * id);
        if (lane == 0)
            to.d[b][h] = d;
    }
}

template <int HD, int HG>
static __device__ inline void load_queries(struct decode_queries<HD, HG, false> &to,
                                           const float *q, int heads)
{
    for (int h = 0; h < HG; h++)
        to.q[h * HD + threadIdx.x] = h < heads ? q[h * HD + threadIdx.x] : 0.0f;
}

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP>
struct decode_block {
    typedef tile_shape<HD, MAIN> shape;
    enum {
        WARPS = HD / 32,
        UNITS = HD / 8,
        TILES = DEEP ? STAGES : 1,
        HEADS_PER_WARP = (HG + WARPS - 1) / WARPS,
        MEMORY = TILES * shape::BYTES,
        /* Heads whose eight partial outputs fit into the tiles' memory at once. */
        ROUND = MEMORY / (SLOTS * HD * 4) < HG ? MEMORY / (SLOTS * HD * 4) : HG,
        /* All shared memory is dynamic: a launch asks for what exceeds 48 KiB by the
           dynamic bytes alone, so none may hide in static arrays. */
        QUERIES_AT = MEMORY,
        SHARED_AT = QUERIES_AT + sizeof(decode_queries<HD, HG, INT8>),
        SHARED_BYTES = SHARED_AT + sizeof(decode_shared<HD, HG>),
    };
    static_assert(QUERIES_AT % 16 == 0 && SHARED_AT % 16 == 0, "alignment of the parts");
    static_assert(ROUND >= 1, "one head must fit");

    const struct decode &p;
    const uint8_t *k, *v; /* of the split's first key, this key head */
    int n;                /* keys of the split */
    uint8_t *memory;

    __device__ inline uint8_t *k_tile(int t) const
    {
        return memory + t % TILES * shape::BYTES;
    }
    __device__ inline uint8_t *v_tile(int t) const
    {
        return k_tile(t) + TILE * shape::K_STRIDE;
    }

    __device__ inline void copy(int t) const
    {
        const int left = n - t * TILE;
        const uint8_t *k_from = k + (int64_t)t * TILE * p.k_stride;
        const uint8_t *v_from = v + (int64_t)t * TILE * p.v_stride;
        if (left <= 0)
            return;
        if (MAIN) {
            copy_rows<HD, shape::K_BYTES, shape::K_CHUNK, shape::K_STRIDE, DEEP>(
                k_tile(t), k_from, p.k_stride, left);
            copy_rows<HD, shape::V_BYTES, shape::V_CHUNK, shape::V_STRIDE, DEEP>(
                v_tile(t), v_from, p.v_stride, left);
        } else {
            copy_rows_any(k_tile(t), shape::K_STRIDE, k_from, p.k_stride,
                          HD / 32 * block_bytes(p.k_type), left);
            copy_rows_any(v_tile(t), shape::V_STRIDE, v_from, p.v_stride,
                          HD / 32 * block_bytes(p.v_type), left);
        }
    }
};

/* The softmax of a tile, warp w for the heads w, w + WARPS, ...; lane l has key l. */
template <int HD, int HG>
static __device__ inline void softmax_tile(struct decode_shared<HD, HG> &shared, int left,
                                           float scale, float *max, float *sum)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < (HG + HD / 32 - 1) / (HD / 32); i++) {
        const int h = warp + i * (HD / 32);
        if (h >= HG)
            break;
        float s = shared.part[0][h][lane];
        for (int b = 1; b < HD / 32; b++)
            s += shared.part[b][h][lane];
        s = lane < left ? s * scale : -INFINITY;
        const float old = max[i];
        max[i] = fmaxf(old, warp_max(s));
        const float p = lane < left ? kg_expf(s - max[i]) : 0.0f;
        const float rescale = kg_expf(old - max[i]);
        sum[i] = sum[i] * rescale + warp_sum(p);
        shared.p[lane][h] = p;
        if (lane == 0)
            shared.rescale[h] = rescale;
    }
}

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP>
static __global__ void __launch_bounds__(HD, HG == 4 ? 512 / HD : 1)
    decode_kernel(struct decode p)
{
    typedef decode_block<HD, HG, INT8, MAIN, DEEP> block_type;
    typedef decode_queries<HD, HG, INT8> queries_type;
    typedef decode_shared<HD, HG> shared_type;
    KG_SHARED_DYNAMIC(memory);
    queries_type &queries = *(queries_type *)(memory + block_type::QUERIES_AT);
    shared_type &shared = *(shared_type *)(memory + block_type::SHARED_AT);
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int row = blockIdx.z, split = blockIdx.x;
    const int group = p.n_heads / p.n_kv_heads, chunks = (group + HG - 1) / HG;
    const int kv_head = blockIdx.y / chunks, h0 = blockIdx.y % chunks * HG;
    const int heads = min(HG, group - h0), head0 = kv_head * group + h0;
    const struct row_keys keys = keys_of(p, row);
    const int size = split_keys(keys.n, p.n_kv_heads);
    const int n_splits = split_count(keys.n, p.n_kv_heads);
    if (split >= n_splits) {
        if (DEEP && n_splits == 0 && split == 0)
            for (int h = warp; h < heads; h += block_type::WARPS)
                combine_head<HD>(p, row, head0 + h, 0);
        return;
    }
    const int first = split * size;
    const block_type block = {
        p, keys.k + first * p.k_stride + kv_head * (HD / 32 * block_bytes(p.k_type)),
        keys.v + first * p.v_stride + kv_head * (HD / 32 * block_bytes(p.v_type)),
        min(size, keys.n - first), memory};
    const int n_tiles = (block.n + TILE - 1) / TILE;

    if (DEEP)
        for (int t = 0; t < STAGES - 1; t++) {
            block.copy(t);
            kg_cp_async_commit();
        }
    load_queries<HD, HG>(queries, p.q + ((int64_t)row * p.n_heads + head0) * HD, heads);
    __syncthreads();
    float max[block_type::HEADS_PER_WARP], sum[block_type::HEADS_PER_WARP];
    float acc[HG][8] = {}, rest[HG] = {};
    for (int i = 0; i < block_type::HEADS_PER_WARP; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    const int unit = tid % block_type::UNITS, slot = tid / block_type::UNITS;
    for (int t = 0; t < n_tiles; t++) {
        if (DEEP) {
            kg_cp_async_wait<STAGES - 2>();
            __syncthreads(); /* tile t is here; all are done with tile t - 1 */
            block.copy(t + STAGES - 1);
            kg_cp_async_commit();
        } else {
            __syncthreads();
            block.copy(t);
            __syncthreads();
        }
        const uint8_t *k_tile = block.k_tile(t), *v_tile = block.v_tile(t);
        float part[HG];
        if constexpr (INT8)
            scores_int8<HG>(k_tile + lane * block_type::shape::K_STRIDE, warp,
                            queries.words[warp], queries.d[warp], part);
        else
            scores_f32<HD, HG>(k_tile + lane * block_type::shape::K_STRIDE,
                               MAIN ? KG_TYPE_Q8_0 : p.k_type, warp, queries.q, part);
#pragma unroll
        for (int h = 0; h < HG; h++)
            shared.part[warp][h][lane] = part[h];
        __syncthreads();
        softmax_tile<HD, HG>(shared, block.n - t * TILE, p.scale, max, sum);
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HG; h++) {
            const float r = shared.rescale[h];
            if (r != 1.0f) {
                rest[h] *= r;
#pragma unroll
                for (int e = 0; e < 8; e++)
                    acc[h][e] *= r;
            }
        }
#pragma unroll
        for (int j = 0; j < TILE / SLOTS; j++) {
            const int key = slot + SLOTS * j;
            const uint8_t *v_row = v_tile + key * block_type::shape::V_STRIDE;
            float weight[HG];
#pragma unroll
            for (int h = 0; h < HG; h += 4)
                *(float4 *)(weight + h) = kg_load_float4(&shared.p[key][h]);
            if (MAIN)
                add_q5_1<HG>(v_row + unit / 4 * 24, unit % 4, weight, acc, rest);
            else
                add_any<HG>(v_row, p.v_type, unit / 4, unit % 4, weight, acc, rest);
        }
    }
    if (DEEP)
        kg_cp_async_wait<0>();

    /* The eight slots' shares, ROUND heads at a time. */
    for (int i = 0; i < block_type::HEADS_PER_WARP; i++)
        if (lane == 0 && warp + i * block_type::WARPS < HG) {
            shared.state[warp + i * block_type::WARPS][0] = max[i];
            shared.state[warp + i * block_type::WARPS][1] = sum[i];
        }
    float *shares = (float *)memory;
    const int element = unit / 4 * 32 + unit % 4 * 4;
#pragma unroll
    for (int r0 = 0; r0 < HG; r0 += block_type::ROUND) {
        __syncthreads();
#pragma unroll
        for (int h = r0; h < HG && h < r0 + block_type::ROUND; h++) {
            float *to = shares + ((h - r0) * SLOTS + slot) * HD + element;
            *(float4 *)to = make_float4(acc[h][0] + rest[h], acc[h][1] + rest[h],
                                        acc[h][2] + rest[h], acc[h][3] + rest[h]);
            *(float4 *)(to + 16) = make_float4(acc[h][4] + rest[h], acc[h][5] + rest[h],
                                               acc[h][6] + rest[h], acc[h][7] + rest[h]);
        }
        __syncthreads();
        for (int h = r0; h < heads && h < r0 + block_type::ROUND; h++) {
            const int64_t index = (int64_t)row * p.n_heads + head0 + h;
            float value = shares[(h - r0) * SLOTS * HD + tid];
            for (int s = 1; s < SLOTS; s++)
                value += shares[((h - r0) * SLOTS + s) * HD + tid];
            if (n_splits == 1)
                p.out[index * HD + tid] = finish(value, shared.state[h][1]);
            else
                p.partial[(index * p.splits_max + split) * HD + tid] = value;
        }
    }
    if (tid < heads) {
        const int64_t index = (int64_t)row * p.n_heads + head0 + tid;
        const float m = shared.state[tid][0], l = shared.state[tid][1];
        if (n_splits > 1)
            p.state[index * p.splits_max + split] = make_float2(m, l);
        else if (p.lse)
            p.lse[index] = log_sum_exp(m, l);
    }
    if (!DEEP || n_splits == 1)
        return;
    unsigned *counter = p.counter + (int64_t)row * gridDim.y + blockIdx.y;
    __threadfence();
    __syncthreads();
    if (tid == 0)
        shared.last = atomicAdd(counter, 1u) == (unsigned)n_splits - 1u;
    __syncthreads();
    if (!shared.last)
        return;
    __threadfence();
    if (tid == 0)
        *counter = 0;
    for (int h = warp; h < heads; h += block_type::WARPS)
        combine_head<HD>(p, row, head0 + h, n_splits);
}

/* The second launch of the base form: a warp a head. */
template <int HD>
static __global__ void combine_kernel(struct decode p, int n_rows)
{
    const int64_t index = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
    if (index >= (int64_t)n_rows * p.n_heads)
        return;
    const int row = (int)(index / p.n_heads), head = (int)(index % p.n_heads);
    const int n_splits = split_count(keys_of(p, row).n, p.n_kv_heads);
    if (n_splits != 1)
        combine_head<HD>(p, row, head, n_splits);
}

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP>
static int launch_decode(const struct decode &p, int rows, struct CUstream_st *stream)
{
    const int group = p.n_heads / p.n_kv_heads;
    const dim3 grid((unsigned)max(1, p.splits_max),
                    (unsigned)(p.n_kv_heads * ((group + HG - 1) / HG)), (unsigned)rows);
    KG_TRY(KG_LAUNCH(stream, grid, HD,
                     (decode_block<HD, HG, INT8, MAIN, DEEP>::SHARED_BYTES),
                     (decode_kernel<HD, HG, INT8, MAIN, DEEP>), p));
    if (DEEP)
        return KG_OK;
    const int64_t heads = (int64_t)rows * p.n_heads;
    return KG_LAUNCH(stream, (unsigned)((heads + 3) / 4), 128, 0, (combine_kernel<HD>), p,
                     rows);
}

/* Up to four query heads of a key head in a block, or up to eight. Eight of 512 elements
   would not fit into the registers. */
template <int HD, bool INT8, bool MAIN, bool DEEP>
static int launch_heads(const struct decode &p, int rows, struct CUstream_st *stream)
{
    if constexpr (HD < 512)
        if (p.n_heads / p.n_kv_heads > 4)
            return launch_decode<HD, 8, INT8, MAIN, DEEP>(p, rows, stream);
    return launch_decode<HD, 4, INT8, MAIN, DEEP>(p, rows, stream);
}

template <bool INT8, bool MAIN, bool DEEP>
static int launch_head_dim(int head_dim, const struct decode &p, int rows,
                           struct CUstream_st *stream)
{
    switch (head_dim) {
    case 64:
        return launch_heads<64, INT8, MAIN, DEEP>(p, rows, stream);
    case 96:
        return launch_heads<96, INT8, MAIN, DEEP>(p, rows, stream);
    case 128:
        return launch_heads<128, INT8, MAIN, DEEP>(p, rows, stream);
    case 192:
        return launch_heads<192, INT8, MAIN, DEEP>(p, rows, stream);
    case 256:
        return launch_heads<256, INT8, MAIN, DEEP>(p, rows, stream);
    case 512:
        return launch_heads<512, INT8, MAIN, DEEP>(p, rows, stream);
    default:
        return KG_E_UNSUPPORTED;
    }
}

#endif
