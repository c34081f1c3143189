/*
 * Decode attention over the quantized cache: out = softmax(scale * q K^T) V for one query
 * row, keys in splits.
 *
 *   grid   x key head and group of up to HG of its query heads, y split, z row
 *   block  WARPS warps; warp w has the tiles w, w + WARPS, ... of the split to itself, from
 *          copying them in to its own output, and waits for nobody (tile.h)
 *
 * Order of the arithmetic, the same for every form (base and deep, single row, rows,
 * sequences, length on the device), per row and head:
 *
 *   warp    its tiles of 16 keys in order, from M = -inf, L = 0
 *   score   s as in tile.h, scaled
 *   tile    if max s > M + 3: M' = max s, r = exp(M - M'), and L, acc and rest are
 *           multiplied by r; otherwise M' = M. p = exp(s - M'), 0 past the end
 *           L_lane = L_lane + p, rest_lane = fma(p, m, rest_lane) of the lane's keys;
 *           p * d * code into the sums of values.h
 *   end     L, rest: butterfly sums over the lanes; o as in values.h
 *   split   M = max M_w; w_w = exp(M_w - M); the sum of w_w L_w as a butterfly over the warps;
 *           w_w o_w and w_w rest_w by fma from 0 in ascending w, and the two sums added; a
 *           warp without a tile has M = -inf, L = 0 and zeros
 *   row     combine_splits of rows.h over the splits
 *
 * where value = d * code + m of V. A head's result does not depend on the heads beside it:
 * the grid is scheduling.
 *
 * M need not be the largest score: p stays below exp(3), and sums in f32 lose nothing by
 * it. That saves the sums their rescaling, and a vote instead of a maximum does.
 *
 * Base: one tile of a warp in shared memory, plain copies, a second launch combines the
 * splits. Deep: stages of tiles under way by cp.async, the first of them before
 * kg_grid_wait() where all their keys are settled (decode_settled); of the warps that have
 * stored a part of a head the last one combines it in the same launch, which it learns from
 * the head's counter, and leaves that at 0. A split's heads are neighbours in the grid, and
 * where splits are long two of them are a cluster, only so as to start together: what heads
 * read of a token lies side by side, and memory is faster if they read it at about the same
 * time. An odd number of them goes without.
 */
#ifndef KGATE_KERNELS_ATTENTION_DECODE_H
#define KGATE_KERNELS_ATTENTION_DECODE_H

#include "kernels/attention/launch.h"
#include "kernels/attention/queries.h"
#include "kernels/attention/sums.h"
#include "kernels/device/overlap.h"

/* Of a SHORT block, whose split has no more tiles than that: a warp has one of them, as it
   would have among 16 warps, so the bits are the same. It leaves a multiprocessor room for
   the next launch's block. */
#define SHORT_WARPS 8

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP, bool SHORT>
struct decode_block {
    typedef tile_shape<HD, HG, MAIN> shape;
    typedef decode_queries<HD, HG, INT8> queries;
    typedef typename values_of<HD, HG, MAIN>::type values;
    typedef row_copy<0, shape::K_BYTES, shape::K_CHUNK, shape::K_STRIDE, DEEP,
                     shape::K_PHASED>
        k_copy;
    typedef row_copy<0, shape::V_BYTES, shape::V_CHUNK, shape::V_STRIDE, DEEP, false>
        v_copy;
    enum {
        WARPS = SHORT       ? SHORT_WARPS
                : HD <= 128 ? 16
                : HD <= 256 ? 8
                            : 4,
        THREADS = 32 * WARPS,
        STAGES = DEEP ? 2 : 1,
        OWN_QUERIES = INT8 && HG == 4, /* queries.h */
        /* A warp's own memory: the ring, later its output; and the weights. */
        OUT_BYTES = values::OUT_BYTES,
        RING_BYTES = STAGES * shape::BYTES > OUT_BYTES ? STAGES *shape::BYTES : OUT_BYTES,
        WARP_BYTES = RING_BYTES + values::WEIGHT_BYTES,
        QUERIES_AT = WARPS * WARP_BYTES,
        STATE_AT = QUERIES_AT + (OWN_QUERIES ? 0 : sizeof(queries)),
        REST_AT = STATE_AT + WARPS * HG * 8,
        /* All shared memory is dynamic: a launch asks for what exceeds 48 KiB by the
           dynamic bytes alone, so none may hide in static arrays. */
        SHARED_BYTES = REST_AT + WARPS * HG * shape::BLOCKS * 4,
    };
    static_assert(WARP_BYTES % 16 == 0, "alignment of the parts");
    static_assert(SHARED_BYTES <= 227 * 1024, "fits a multiprocessor");
    static_assert(!DEEP || STAGES == 2, "what the loop over the tiles fills");
};

/* Clusters of two blocks cost more than they gain if splits have no more keys than that. */
#define CLUSTER_KEYS_MIN 256

/* Tiles that a warp copies before kg_grid_wait(): its only one, or by turns of four warps, one
   of each scheduler's, 2, 0, 1, 0. If all had theirs at once they would compute at the same
   time, and then wait for memory at the same time: with 1 each the gain is half as large,
   with 2 it is a loss. (Measured with 16 warps; where there are four, of heads of 512, each
   copies 2.) */
template <bool SHORT>
static __device__ __forceinline__ int tiles_ahead(int warp)
{
    if (SHORT)
        return 1;
    const int turn = warp / 4 % 4;
    return turn % 2 == 0 ? 2 - turn / 2 : 0;
}

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP, bool SHORT>
static __global__ void
    __launch_bounds__((decode_block<HD, HG, INT8, MAIN, DEEP, SHORT>::THREADS),
                      SHORT ? 2 : 1) decode_kernel(struct decode p)
{
    typedef decode_block<HD, HG, INT8, MAIN, DEEP, SHORT> block;
    typedef typename block::shape shape;
    typedef lane_elements<HD> elements;
    constexpr int WARPS = block::WARPS;
    constexpr int STAGES = block::STAGES;
    constexpr int STEP = WARPS * TILE; /* from tile to tile of a warp */
    KG_SHARED_DYNAMIC(memory);
    typename block::queries &queries =
        *(typename block::queries *)(memory + block::QUERIES_AT);
    float2(*state)[HG] = (float2(*)[HG])(memory + block::STATE_AT);
    float(*rests)[HG][shape::BLOCKS] =
        (float(*)[HG][shape::BLOCKS])(memory + block::REST_AT);
    const int tid = threadIdx.x, lane = tid % 32;
    const int warp = __shfl_sync(KG_WARP_ALL, tid / 32, 0); /* known to be the warp's */
    const int g = lane / 4, t = lane % 4;
    const int row = blockIdx.z, split = blockIdx.y;
    const int chunks = (p.group + HG - 1) / HG;
    const int kv_head =
        chunks == 1 ? (int)blockIdx.x : (int)((unsigned)blockIdx.x / (unsigned)chunks);
    const int h0 = ((int)blockIdx.x - kv_head * chunks) * HG;
    const int heads = min(HG, p.group - h0), head0 = kv_head * p.group + h0;
    const int64_t index0 = (int64_t)row * p.n_heads + head0;

    if (DEEP && (p.lengths || p.table))
        kg_grid_wait();
    const struct row_keys keys = keys_of(p, row);
    const int size = p.split_size ? p.split_size : split_keys(keys.n, p.splits_wanted);
    const int n_splits = p.split_size ? p.n_splits : split_count(keys.n, size);
    if (split >= n_splits) {
        if (DEEP)
            kg_grid_wait(); /* whoever waits for this launch waits for the ones before it */
        if (DEEP && n_splits == 0 && split == 0)
            for (int i = warp; i < heads * elements::UNITS; i += WARPS)
                combine_splits<HD>(p, index0 + i / elements::UNITS, i % elements::UNITS,
                                   0);
        return;
    }
    const int first = split * size, n = min(size, keys.n - first);
    const int k_bytes = MAIN ? (int)shape::K_BYTES : HD / 32 * block_bytes(p.k_type);
    const int v_bytes = MAIN ? (int)shape::V_BYTES : HD / 32 * block_bytes(p.v_type);
    const uint8_t *k_from = keys.k + stride_of(first, p.k_stride) + kv_head * k_bytes;
    const uint8_t *v_from = keys.v + stride_of(first, p.v_stride) + kv_head * v_bytes;
    const int phase = phase_of<shape::K_PHASED>(k_from, p.k_stride, INT8 ? g : lane);
    typename block::k_copy k_copy;
    typename block::v_copy v_copy;
    k_copy.start(k_from + stride_of(warp * TILE, p.k_stride), p.k_stride);
    v_copy.start(v_from + stride_of(warp * TILE, p.v_stride), p.v_stride);
    uint8_t *const own = memory + warp * block::WARP_BYTES;
    uint8_t *const weights = own + block::RING_BYTES;
    const int whole =
        TILE - (keys.n - first - n); /* left is more: a key follows the tile */
    /* The warp's next tile, with `left` keys of the split from its first on, to own + at. */
    const auto copy_next = [&](int left, int at) {
        uint8_t *k_tile = own + at, *v_tile = k_tile + TILE * shape::K_STRIDE;
        if (left > 0) {
            if constexpr (MAIN) {
                if (left > whole) {
                    k_copy.copy(k_tile, p.k_stride);
                    v_copy.copy(v_tile, p.v_stride);
                } else {
                    k_copy.copy_end(k_tile, p.k_stride, left);
                    v_copy.copy_end(v_tile, p.v_stride, left);
                }
            } else {
                copy_rows_any(k_tile, shape::K_STRIDE,
                              k_from + stride_of(n - left, p.k_stride), p.k_stride,
                              k_bytes, left);
                copy_rows_any(v_tile, shape::V_STRIDE,
                              v_from + stride_of(n - left, p.v_stride), p.v_stride,
                              v_bytes, left);
            }
        }
        if (DEEP)
            kg_cp_async_commit();
        k_copy.advance(stride_of(STEP, p.k_stride));
        v_copy.advance(stride_of(STEP, p.v_stride));
    };
    if (DEEP && warp == WARPS - 1) { /* which copies nothing yet */
        /* A step's cache is larger than L2 and drives these out, whatever their age. */
#pragma unroll
        for (int i = 0; i < HG * HD / 32; i += 32)
            if (i + lane < heads * (HD / 32))
                kg_prefetch_l2(p.q + index0 * HD + 32 * (i + lane));
        if (lane == 0)
            kg_prefetch_l2(p.counter + index0);
    }
    int left = n - warp * TILE; /* keys from the warp's tile on */
    int filled = 0;
    if (DEEP) {
        const int settled = keys.settled - first - warp * TILE;
        while (filled < tiles_ahead<SHORT>(warp) && settled - filled * STEP > TILE &&
               left - filled * STEP > 0) {
            copy_next(settled - filled * STEP, filled * shape::BYTES);
            filled++;
        }
        kg_grid_wait();
        kg_grid_release();
    }
    const auto copy_first = [&]() {
        if (DEEP && filled == 0)
            copy_next(left, 0);
    };
    /* The queries first: behind the tiles they would wait for all of them. */
    struct query_codes<HD, HG> q;
    if constexpr (block::OWN_QUERIES) {
        struct own_queries<HD> x;
        x.load(p.q + index0 * HD, heads);
        copy_first();
        x.quantize(p.scale, q);
    } else {
        constexpr int PARTS = HG * HD / 32, OWN = (PARTS + WARPS - 1) / WARPS;
        float own_q[OWN];
        for (int i = 0; i < OWN; i++) {
            const int part = warp + i * WARPS;
            own_q[i] =
                part < heads * (HD / 32) ? p.q[index0 * HD + 32 * part + lane] : 0.0f;
        }
        for (int i = 0; i < OWN; i++)
            if (PARTS % WARPS == 0 || warp + i * WARPS < PARTS)
                store_queries<HD, HG>(queries, warp + i * WARPS, own_q[i]);
        __syncthreads();
        copy_first();
        take_queries<HD, HG>(queries, p.scale, q);
    }
    struct warp_sums<HD, HG, MAIN> own_sums = {
    };
    own_sums.max[0] = own_sums.max[1] = -INFINITY;
    const int pair = HG == 4 ? t % 2 : t; /* of heads */
    int at = 0;
    bool fresh = true; /* no tile has been added */
    for (; left > 0; left -= STEP) {
        if (DEEP) {
            /* This lane's copies have landed, then everyone's; and nobody reads the tile
               that is copied to next. */
            kg_cp_async_wait<0>();
            __syncwarp();
        } else {
            __syncwarp();
            copy_next(left, 0);
            __syncwarp();
        }
        const uint8_t *k_tile = own + at, *v_tile = k_tile + TILE * shape::K_STRIDE;
        const int key0 = HG == 4 ? g + 8 * (t / 2) : g;
        /* Early: the weights' stores would hold them up. */
        uint32_t scales[shape::KEYS][shape::BLOCKS];
        for (int k = 0; k < shape::KEYS; k++)
            for (int b = 0; b < shape::BLOCKS; b++)
                scales[k][b] = value_scales<MAIN>(
                    v_tile + (key0 + 8 * k) * shape::V_STRIDE, p.v_type, b);
        float score[shape::KEYS][2];
        if constexpr (INT8)
            scores_int8<HD, HG, MAIN>(k_tile, phase, q, score);
        else
            scores_f32<HD, HG, MAIN>(k_tile, phase, MAIN ? KG_TYPE_Q8_0 : p.k_type,
                                     queries.q, p.scale, (float *)weights, score);
        /* Not before the scores: with less under way memory is faster. */
        if (DEEP && (!fresh || filled < STAGES))
            copy_next(left - STEP, shape::BYTES - at);
        if (left < TILE)
            for (int k = 0; k < shape::KEYS; k++)
                for (int i = 0; i < 2; i++)
                    if (key0 + 8 * k >= left)
                        score[k][i] = -INFINITY;
        bool above = false;
        for (int k = 0; k < shape::KEYS; k++)
            for (int i = 0; i < 2; i++)
                above = above || score[k][i] > own_sums.max[i] + LAZY;
        if (__any_sync(KG_WARP_ALL, above))
            own_sums.rescale(score, fresh);
        float w[shape::KEYS][2];
        for (int k = 0; k < shape::KEYS; k++)
            for (int i = 0; i < 2; i++) {
                w[k][i] = weight_exp(score[k][i] - own_sums.max[i]);
                own_sums.sum[i] += w[k][i];
#pragma unroll
                for (int b = 0; b < shape::BLOCKS; b++)
                    own_sums.rest[b][i] =
                        fmaf(w[k][i], half_of(scales[k][b] >> 16), own_sums.rest[b][i]);
            }
        own_sums.values.weigh(weights, key0, pair, w, scales);
        __syncwarp();
        own_sums.values.add(v_tile, p.v_type, weights);
        at = DEEP ? shape::BYTES - at : 0;
        fresh = false;
    }
    if (DEEP)
        kg_cp_async_wait<0>();
    __syncwarp();
    /* The warp's own output, over its ring. */
    int at_sum = 0, at_rest = 0;
    sum_of_keys<HG, 2>(own_sums.sum, at_sum);
    state[warp][2 * pair + at_sum] =
        make_float2(at_sum ? own_sums.max[1] : own_sums.max[0], own_sums.sum[0]);
    float *own_rest = &own_sums.rest[0][0];
    const int n_rest = sum_of_keys<HG, 2 * shape::BLOCKS>(own_rest, at_rest);
    for (int i = 0; i < n_rest; i++)
        rests[warp][2 * pair + (at_rest + i) % 2][(at_rest + i) / 2] = own_rest[i];
    own_sums.values.store(own);
    __syncthreads();

    /* The warps' outputs into the split's. */
    constexpr int E = elements::E;
    const int part = lane % WARPS;
    for (int i = warp; i < HG * elements::UNITS; i += WARPS) {
        const int h = i / elements::UNITS, first_block = i % elements::UNITS * E;
        const int dim = 32 * first_block + E * lane;
        const float2 of_part = state[part][h];
        const float max = reduce_max(of_part.x), weight = weight_exp(of_part.x - max);
        const int block_of_lane = first_block + E * lane / 32;
        float value[E] = {}, rest = 0.0f;
        const auto add_part = [&](int w) {
            const float x = __shfl_sync(KG_WARP_ALL, weight, w);
            float o[E];
            block::values::stored(memory + w * block::WARP_BYTES, h, dim, o);
            rest = fmaf(x, rests[w][h][block_of_lane], rest);
            for (int j = 0; j < E; j++)
                value[j] = fmaf(x, o[j], value[j]);
        };
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            add_part(w);
        for (int j = 0; j < E; j++)
            value[j] += rest;
        const float sum = warp_sum<WARPS>(weight * of_part.y);
        if (h >= heads)
            continue;
        const int64_t index = index0 + h;
        if (n_splits == 1) {
            store_row<HD>(p, index, dim, value, sum, max);
            continue;
        }
        elements::store(p.partial + (index * p.splits_max + split) * HD + dim, value);
        if (dim == 0)
            p.state[index * p.splits_max + split] = make_float2(max, sum);
        if (!DEEP)
            continue;
        /* The last warp that has a part of this head combines it. */
        unsigned before = 0;
        __syncwarp();
        if (lane == 0)
            before = kg_atomic_add_acq_rel(p.counter + index, 1u);
        before = __shfl_sync(KG_WARP_ALL, before, 0);
        if (before != (unsigned)(n_splits * elements::UNITS) - 1u)
            continue;
        if (lane == 0)
            p.counter[index] = 0;
        for (int unit = 0; unit < elements::UNITS; unit++)
            combine_splits<HD>(p, index, unit, n_splits);
    }
}

/* The second launch of the base form: a block a head of a row. */
template <int HD>
static __global__ void combine_kernel(struct decode p)
{
    const int64_t index = blockIdx.x;
    const int row = (int)(index / p.n_heads);
    const int n = keys_of(p, row).n;
    const int n_splits = split_count(n, split_keys(n, p.splits_wanted));
    if (n_splits != 1)
        combine_splits<HD>(p, index, (int)threadIdx.x / 32, n_splits);
}

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP, bool SHORT>
static int launch_block(const struct decode &p, int rows, struct CUstream_st *stream)
{
    typedef decode_block<HD, HG, INT8, MAIN, DEEP, SHORT> block;
    const dim3 grid((unsigned)(p.n_kv_heads * ((p.group + HG - 1) / HG)),
                    (unsigned)max(1, p.splits_max), (unsigned)rows);
    if constexpr (DEEP) {
        const bool pairs = grid.x % 2 == 0 && p.size_max > CLUSTER_KEYS_MIN;
        return KG_LAUNCH_WITH(stream, pairs ? 2 : 1, true, grid, (unsigned)block::THREADS,
                              (size_t)block::SHARED_BYTES,
                              (decode_kernel<HD, HG, INT8, MAIN, DEEP, SHORT>), p);
    } else {
        KG_TRY(KG_LAUNCH(stream, grid, (unsigned)block::THREADS,
                         (size_t)block::SHARED_BYTES,
                         (decode_kernel<HD, HG, INT8, MAIN, DEEP, SHORT>), p));
        return KG_LAUNCH(stream, (unsigned)(rows * p.n_heads),
                         32 * lane_elements<HD>::UNITS, 0, (combine_kernel<HD>), p);
    }
}

template <int HD, int HG, bool INT8, bool MAIN, bool DEEP>
static int launch_decode(const struct decode &p, int rows, struct CUstream_st *stream)
{
    if constexpr (DEEP && HD <= 128)
        if (p.size_max <= SHORT_WARPS * TILE)
            return launch_block<HD, HG, INT8, MAIN, DEEP, true>(p, rows, stream);
    return launch_block<HD, HG, INT8, MAIN, DEEP, false>(p, rows, stream);
}

/* Up to four query heads of a key head in a block, or up to eight. Eight of 512 elements
   would not fit into the registers. */
template <int HD, bool INT8, bool MAIN, bool DEEP>
static int launch_heads(const struct decode &p, int rows, struct CUstream_st *stream)
{
    if constexpr (HD < 512)
        if (p.group > 4)
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
