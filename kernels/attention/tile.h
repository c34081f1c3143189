/*
 * One tile of 16 keys in shared memory, which one warp works on: copying it in, its scores,
 * the weights. values.h has its share of the output.
 *
 * The lanes' picture, with g = lane / 4 and t = lane % 4 as in mma.h: with HG = 8 heads a
 * lane has the keys g, g + 8 and the heads 2t, 2t + 1; with HG = 4 it has the key
 * g + 8 (t / 2) and the heads 2 (t % 2), + 1. Those two heads are its pair.
 */
#ifndef KGATE_KERNELS_ATTENTION_TILE_H
#define KGATE_KERNELS_ATTENTION_TILE_H

#include "kernels/attention/rows.h"
#include "kgate/types.h"

#define TILE 16 /* keys */

/* Shapes of a tile in shared memory. MAIN: K Q8_0, V Q5_1; otherwise types as stored at
   run time, the widest of them taken. */
template <int HD, int HG, bool MAIN>
struct tile_shape {
    enum {
        BLOCKS = HD / 32,
        K_BYTES = BLOCKS * 34,
        V_BYTES = MAIN ? BLOCKS * 24 : HD,
        /* 8 rows of a fragment read 8 bytes a lane: rows 32 or 96 bytes apart (modulo the
           banks' 128) keep them off each other's banks. */
        K_STRIDE = K_BYTES <= 72    ? 96
                   : K_BYTES <= 160 ? 160
                   : K_BYTES <= 224 ? 224
                   : K_BYTES <= 288 ? 288
                                    : 544,
        /* ldmatrix reads 16 bytes of 8 rows: aligned to that, and where possible no more
           than two of the rows on the same banks. */
        V_STRIDE = !MAIN            ? V_BYTES
                   : V_BYTES == 72  ? 80
                   : V_BYTES == 192 ? 224
                   : V_BYTES == 384 ? 416
                                    : V_BYTES,
        /* Bytes that one copy takes: what a head's row is aligned to, but see row_copy. */
        K_PHASED = MAIN && K_BYTES % 8 == 0 && K_BYTES % 32 != 0,
        K_CHUNK = K_BYTES % 8 == 0   ? 16
                  : K_BYTES % 4 == 0 ? 4
                                     : 2,
        V_CHUNK = V_BYTES % 16 == 0 ? 16 : 8,
        BYTES = TILE * (K_STRIDE + V_STRIDE),

        KEYS = HG == 4 ? 1 : 2, /* of a lane, for the scores */
        PAIRS = HG == 4 ? (BLOCKS + 1) / 2 : BLOCKS,
        /* accumulators of its scores */
    };
    static_assert(BYTES % 16 == 0 && (TILE * K_STRIDE) % 16 == 0, "stages stay aligned");
};

/* ---- copying ---- */

/* One chunk of N bytes to shared memory, `bytes` of them (0, N / 2 or N) read, the rest
   zeros. */
template <int N, bool ASYNC>
static __device__ __forceinline__ void copy_chunk(uint8_t *to, const uint8_t *from,
                                                  int bytes)
{
    if (ASYNC && N == 16)
        kg_cp_async_16(to, from, bytes);
    else if (ASYNC && N == 8)
        kg_cp_async_8(to, from, bytes);
    else if (ASYNC && N == 4)
        kg_cp_async_4(to, from, bytes);
    else if (N == 16 && bytes == 8)
        *(uint2 *)to = kg_load_uint2(from);
    else if (N == 16)
        *(uint4 *)to = bytes ? kg_load_uint4(from) : uint4{0, 0, 0, 0};
    else if (N == 8)
        *(uint2 *)to = bytes ? kg_load_uint2(from) : uint2{0, 0};
    else if (N == 4)
        *(uint32_t *)to = bytes ? kg_load_u32(from) : 0u;
    else
        *(uint16_t *)to = bytes ? kg_load_u16(from) : (uint16_t)0;
}

/* Where row r starts in its place in shared memory: as far from a multiple of 32 as the row
   in the cache, since the 32 bytes that come from memory at once are then written at once.
   With strides that would make this differ between a lane's rows, of 16. */
template <bool PHASED>
static __device__ __forceinline__ int phase_of(const uint8_t *rows, uint32_t stride,
                                               int r)
{
    return PHASED ? (int)((uintptr_t)(rows + stride_of(r, stride)) &
                          (stride % 32 == 0 ? 24 : 8))
                  : 0;
}

/*
 * Copies rows of BYTES bytes, `stride` apart, chunk by chunk: up to 16 of them side by side
 * from chunk AT on, then the rest. PHASED: rows are aligned to 8, chunks have 16 bytes and
 * start 8 bytes early where that aligns them, and row r lies at phase_of(r). Those 8 bytes
 * are the cache's own, and behind a row nothing is read. Copies of 8 bytes would go through
 * the L1 cache, which has no room left beside the tiles.
 */
template <int AT, int BYTES, int CHUNK, int TO_STRIDE, bool ASYNC, bool PHASED>
struct row_copy {
    enum {
        LEFT = (BYTES + CHUNK - 1) / CHUNK - AT,
        WIDE = LEFT < 16 ? LEFT : 16,
        /* At once; even, so that a lane's rows share their phase. */
        ROWS = WIDE == 1   ? 16
               : WIDE <= 4 ? 8
               : WIDE <= 8 ? 4
                           : 2,
        ENDS = PHASED && WIDE == LEFT, /* the row's last chunk is among them */
    };
    const uint8_t *from;
    int to, end; /* end: bytes of a row's last chunk */
    row_copy<AT + WIDE, BYTES, CHUNK, TO_STRIDE, ASYNC, PHASED> next;

    __device__ __forceinline__ void start(const uint8_t *rows, uint32_t stride)
    {
        const int lane = threadIdx.x % 32, row = lane / WIDE, at = AT + lane % WIDE;
        const uint8_t *own = rows + stride_of(row, stride);
        const int phase = phase_of<PHASED>(rows, stride, row);
        from = own - phase % 16 + at * CHUNK;
        to = row * TO_STRIDE + at * CHUNK + phase / 16 * 16;
        end = ENDS && lane % WIDE == WIDE - 1 ? (BYTES + phase % 16 - 1) % 16 + 1 : CHUNK;
        next.start(rows, stride);
    }
    /* All 16 rows, and others follow them, so that a last chunk may be read whole. */
    __device__ __forceinline__ void copy(uint8_t *tile, uint32_t stride) const
    {
        if (WIDE * ROWS == 32 || threadIdx.x % 32 / WIDE < ROWS)
#pragma unroll
            for (int r = 0; r < TILE; r += ROWS)
                copy_chunk<CHUNK, ASYNC>(tile + to + r * TO_STRIDE,
                                         from + stride_of(r, stride), CHUNK);
        next.copy(tile, stride);
    }
    /* The first n of 16 rows; zeros for the others. Few tiles are such an end: little code
       matters more than few instructions. */
    __device__ __forceinline__ void copy_end(uint8_t *tile, uint32_t stride, int n) const
    {
        const int row = threadIdx.x % 32 / WIDE;
        if (WIDE * ROWS == 32 || row < ROWS)
#pragma unroll 1
            for (int r = 0; r < TILE; r += ROWS)
                copy_chunk<CHUNK, ASYNC>(tile + to + r * TO_STRIDE,
                                         from + stride_of(r, stride),
                                         row + r < n ? end : 0);
        next.copy_end(tile, stride, n);
    }
    __device__ __forceinline__ void advance(int64_t bytes)
    {
        from += bytes;
        next.advance(bytes);
    }
};
template <int BYTES, int CHUNK, int TO_STRIDE, bool ASYNC, bool PHASED>
struct row_copy<(BYTES + CHUNK - 1) / CHUNK, BYTES, CHUNK, TO_STRIDE, ASYNC, PHASED> {
    __device__ __forceinline__ void start(const uint8_t *, uint32_t)
    {
    }
    __device__ __forceinline__ void copy(uint8_t *, uint32_t) const
    {
    }
    __device__ __forceinline__ void copy_end(uint8_t *, uint32_t, int) const
    {
    }
    __device__ __forceinline__ void advance(int64_t)
    {
    }
};

/* Rows of any even number of bytes. */
static __device__ inline void copy_rows_any(uint8_t *to, int to_stride,
                                            const uint8_t *from, uint32_t stride,
                                            int bytes, int n)
{
    for (int c = threadIdx.x % 32; c < TILE * (bytes / 2); c += 32) {
        const int row = c / (bytes / 2), at = c % (bytes / 2) * 2;
        copy_chunk<2, false>(to + row * to_stride + at,
                             from + stride_of(row, stride) + at, row < n ? 2 : 0);
    }
}

static __device__ inline int block_bytes(int type)
{
    return type == KG_TYPE_Q8_0   ? 34
           : type == KG_TYPE_Q5_1 ? 24
           : type == KG_TYPE_Q4_0 ? 18
                                  : 32;
}

/* ---- scores ---- */

static __device__ __forceinline__ float half_of(uint32_t bits)
{
    return kg_half_to_f32(kg_half_from_bits((uint16_t)bits));
}

/* 1.5 * 2^23: integers in its low bits are floats, and the integer starts from its bits. */
#define SUM_START 0x4b400000

/* Eight bytes at p, which is aligned to 2 bytes; at: p's distance from an address that is
   aligned to 8, known when compiled. */
static __device__ __forceinline__ void load_codes(const uint8_t *p, int at, uint32_t &lo,
                                                  uint32_t &hi)
{
    if (at % 8 == 0) {
        const uint2 v = kg_load_uint2(p);
        lo = v.x;
        hi = v.y;
    } else if (at % 8 == 4) {
        lo = kg_load_u32(p);
        hi = kg_load_u32(p + 4);
    } else if (at % 8 == 2) {
        const uint2 v = kg_load_uint2(p - 2);
        const uint32_t w = kg_load_u32(p + 6);
        lo = __byte_perm(v.x, v.y, 0x5432);
        hi = __byte_perm(v.y, w, 0x5432);
    } else {
        const uint32_t w = kg_load_u32(p - 2);
        const uint2 v = kg_load_uint2(p + 2);
        lo = __byte_perm(w, v.x, 0x5432);
        hi = __byte_perm(v.x, v.y, 0x5432);
    }
}

/* The queries of a warp's lane as int8 fragments: the column g of block b is head g for
   HG = 8. For HG = 4 it is head g % 4, and 0 unless g / 4 is b % 2: so one accumulator takes
   two blocks, an even one in its columns 0..3 and an odd one in 4..7. scale: the queries'
   times that of the scores. */
template <int HD, int HG>
struct query_codes {
    enum { BLOCKS = HD / 32, PAIRS = HG == 4 ? (BLOCKS + 1) / 2 : BLOCKS };
    uint32_t code[BLOCKS][2];
    float scale[PAIRS][2];
};

/* Scores of a tile in the lane's picture; phase: of rows g and g + 8. A block's dot is an integer; then
 *   x = fma(dot * d_key, d_q * scale, x)   over the blocks in order
 * and for HG = 4 the even blocks' x plus the odd blocks'. */
template <int HD, int HG, bool MAIN>
static __device__ __forceinline__ void
scores_int8(const uint8_t *k_tile, int phase, const struct query_codes<HD, HG> &q,
            float (&score)[tile_shape<HD, HG, MAIN>::KEYS][2])
{
    typedef tile_shape<HD, HG, MAIN> shape;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint8_t *row = k_tile + g * shape::K_STRIDE + phase;
    float x[2][2] = {};
    for (int j = 0; j < shape::PAIRS; j++) {
        int dot[4];
#pragma unroll
        for (int o = 0; o < (HG == 4 ? 2 : 1); o++) {
            const int b = HG == 4 ? 2 * j + o : j;
            if (b >= shape::BLOCKS)
                break;
            uint32_t a[4];
            const int at = 34 * b + 2;
            load_codes(row + 8 * t + at, at, a[0], a[2]);
            load_codes(row + 8 * shape::K_STRIDE + 8 * t + at, at, a[1], a[3]);
            if (o == 0)
                kg_mma_s8_16832_from(dot, a, q.code[b], SUM_START);
            else
                kg_mma_s8_16832(dot, a, q.code[b]);
        }
        const int mine = HG == 4 ? min(2 * j + t / 2, shape::BLOCKS - 1) : j;
        for (int r = 0; r < 2; r++) {
            const float d =
                half_of(kg_load_u16(row + 8 * r * shape::K_STRIDE + 34 * mine));
            for (int i = 0; i < 2; i++) {
                const float sum = __uint_as_float((uint32_t)dot[2 * r + i]) -
                                  __uint_as_float(SUM_START);
                x[r][i] = fmaf(sum * d, q.scale[j][i], x[r][i]);
            }
        }
    }
    if (HG == 4) {
        const bool odd = t >= 2;
        for (int i = 0; i < 2; i++) {
            const float keep = odd ? x[1][i] : x[0][i], give = odd ? x[0][i] : x[1][i];
            score[0][i] = keep + __shfl_xor_sync(KG_WARP_ALL, give, 2);
        }
    } else {
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                score[r % shape::KEYS][i] = x[r][i];
    }
}

/* Word i of block b's codes as four numbers, and the block's scale. */
static __device__ inline float4 key_codes(const uint8_t *key, int type, int b, int i)
{
    if (type == KG_TYPE_Q8_0) {
        const uint32_t w = kg_load_u32_a2(key + 34 * b + 2 + 4 * i);
        return make_float4((float)(int8_t)w, (float)(int8_t)(w >> 8),
                           (float)(int8_t)(w >> 16), (float)(int8_t)(w >> 24));
    }
    const uint32_t w = kg_load_u32(key + 32 * b + 4 * i);
    return make_float4(kg_e4m3_to_f32((uint8_t)w), kg_e4m3_to_f32((uint8_t)(w >> 8)),
                       kg_e4m3_to_f32((uint8_t)(w >> 16)),
                       kg_e4m3_to_f32((uint8_t)(w >> 24)));
}
static __device__ inline float key_scale(const uint8_t *key, int type, int b)
{
    return type == KG_TYPE_Q8_0 ? half_of(kg_load_u16(key + 34 * b)) : 1.0f;
}

/* Scores against f32 queries, lane l having key l % 16 and the blocks b with b % 2 = l / 16:
   four chains of fma over a block's elements 4i + e, joined as (e0 + e1) + (e2 + e3), times
   the block's scale, added in order; then the even blocks' sum plus the odd blocks', times
   `scale`; phase: of the lane's key. They come into the lane's picture through `memory`, TILE * HG floats. */
template <int HD, int HG, bool MAIN>
static __device__ __forceinline__ void
scores_f32(const uint8_t *k_tile, int phase, int type, const float *q, float scale,
           float *memory, float (&score)[tile_shape<HD, HG, MAIN>::KEYS][2])
{
    typedef tile_shape<HD, HG, MAIN> shape;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint8_t *key = k_tile + lane % 16 * shape::K_STRIDE + phase;
    float part[HG] = {};
    for (int b = lane / 16; b < shape::BLOCKS; b += 2) {
        float4 sum[HG] = {};
        for (int i = 0; i < 8; i++) {
            const float4 c = key_codes(key, type, b, i);
#pragma unroll
            for (int h = 0; h < HG; h++) {
                const float4 x = kg_load_float4(q + h * HD + 32 * b + 4 * i);
                sum[h].x = fmaf(x.x, c.x, sum[h].x);
                sum[h].y = fmaf(x.y, c.y, sum[h].y);
                sum[h].z = fmaf(x.z, c.z, sum[h].z);
                sum[h].w = fmaf(x.w, c.w, sum[h].w);
            }
        }
        const float d = key_scale(key, type, b);
#pragma unroll
        for (int h = 0; h < HG; h++)
            part[h] += ((sum[h].x + sum[h].y) + (sum[h].z + sum[h].w)) * d;
    }
#pragma unroll
    for (int h = 0; h < HG; h++) {
        const float other = __shfl_xor_sync(KG_WARP_ALL, part[h], 16);
        if (lane < 16)
            memory[lane * HG + h] = (part[h] + other) * scale;
    }
    __syncwarp();
    for (int r = 0; r < shape::KEYS; r++)
        for (int i = 0; i < 2; i++)
            score[r][i] = HG == 4 ? memory[(g + 8 * (t / 2)) * HG + 2 * (t % 2) + i]
                                  : memory[(g + 8 * r) * HG + 2 * t + i];
    __syncwarp();
}

/* ---- weights ---- */

/* d and m of block b as two halves, value = d * code + m. */
template <bool MAIN>
static __device__ __forceinline__ uint32_t value_scales(const uint8_t *row, int type,
                                                        int b)
{
    if (MAIN)
        return kg_load_u32(row + 24 * b);
    if (type == KG_TYPE_F8_E4M3)
        return 0x3c00u; /* 1 and 0 */
    const uint8_t *block = row + b * block_bytes(type);
    return type == KG_TYPE_Q5_1 ? kg_load_u32_a2(block) : kg_load_u16(block);
}

#endif
