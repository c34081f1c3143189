/*
 * One tile of 32 keys in shared memory: copying it in, its scores, its share of the output.
 *
 * A block has head_dim threads: warp b works on elements 32b .. 32b + 31 of every key (one
 * block of the cache's format), a lane on one key. For the values, thread t has the eight
 * elements of unit t % (HD / 8) and the keys t / (HD / 8) + 8j, j = 0..3; unit u is word
 * u % 4 of the codes of block u / 4, that is elements 4(u % 4) .. + 3 of the block and the
 * four that lie 16 further.
 */
#ifndef KGATE_KERNELS_ATTENTION_TILE_H
#define KGATE_KERNELS_ATTENTION_TILE_H

#include "kernels/attention/rows.h"
#include "kgate/types.h"

#define TILE 32 /* keys */
#define SLOTS 8 /* groups of threads that share the keys of a tile for the values */

/* Shapes of a tile in shared memory. MAIN: K Q8_0, V Q5_1; otherwise types as stored at
   run time, the widest of them taken. */
template <int HD, bool MAIN>
struct tile_shape {
    enum {
        BLOCKS = HD / 32,
        K_BYTES = BLOCKS * 34,
        V_BYTES = MAIN ? BLOCKS * 24 : HD,
        /* Lanes read 8 bytes of a row each: an odd number of them between rows avoids
           bank conflicts. */
        K_STRIDE = ((K_BYTES + 7) / 8 | 1) * 8,
        V_STRIDE = V_BYTES,
        /* Bytes that one copy can take: what a head's row is aligned to. */
        K_CHUNK = K_BYTES % 8 == 0   ? 8
                  : K_BYTES % 4 == 0 ? 4
                                     : 2,
        V_CHUNK = V_BYTES % 16 == 0 ? 16 : 8,
        BYTES = TILE * (K_STRIDE + V_STRIDE),
    };
    static_assert(BYTES % 16 == 0 && (TILE * K_STRIDE) % 16 == 0, "stages stay aligned");
};

/* ---- copying ---- */

/* One chunk of N bytes to shared memory, zeros if it is not `valid`. */
template <int N, bool ASYNC>
static __device__ inline void copy_chunk(uint8_t *to, const uint8_t *from, bool valid)
{
    if (ASYNC && N == 16)
        kg_cp_async_16(to, from, valid ? 16 : 0);
    else if (ASYNC && N == 8)
        kg_cp_async_8(to, from, valid ? 8 : 0);
    else if (ASYNC && N == 4)
        kg_cp_async_4(to, from, valid ? 4 : 0);
    else if (N == 16)
        *(uint4 *)to = valid ? kg_load_uint4(from) : uint4{0, 0, 0, 0};
    else if (N == 8)
        *(uint2 *)to = valid ? kg_load_uint2(from) : uint2{0, 0};
    else if (N == 4)
        *(uint32_t *)to = valid ? kg_load_u32(from) : 0u;
    else
        *(uint16_t *)to = valid ? kg_load_u16(from) : (uint16_t)0;
}

/* Rows of BYTES bytes, `stride` apart, the first n of 32 valid. Where a row is not valid
   the address of the first is taken: nothing is read from it. */
template <int THREADS, int BYTES, int CHUNK, int TO_STRIDE, bool ASYNC>
static __device__ inline void copy_rows(uint8_t *to, const uint8_t *from, int64_t stride,
                                        int n)
{
    const int per_row = BYTES / CHUNK;
#pragma unroll
    for (int c = threadIdx.x; c < TILE * per_row; c += THREADS) {
        const int row = c / per_row, at = c % per_row * CHUNK;
        const bool valid = row < n;
        copy_chunk<CHUNK, ASYNC>(to + row * TO_STRIDE + at,
                                 from + (valid ? row : 0) * stride + at, valid);
    }
}

/* Rows of any even number of bytes. */
static __device__ inline void copy_rows_any(uint8_t *to, int to_stride,
                                            const uint8_t *from, int64_t stride,
                                            int bytes, int n)
{
    for (int c = threadIdx.x; c < TILE * (bytes / 2); c += blockDim.x) {
        const int row = c / (bytes / 2), at = c % (bytes / 2) * 2;
        copy_chunk<2, false>(to + row * to_stride + at,
                             from + (row < n ? row : 0) * stride + at, row < n);
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

static __device__ inline float half_of(uint32_t bits)
{
    return kg_half_to_f32(kg_half_from_bits((uint16_t)bits));
}

/* Where block b of a Q8_0 row starts inside the aligned 8 bytes that hold its start. */
#define Q8_SHIFT(b) ((34 * (b)) & 7)
#define Q8_WORDS 10 /* words from there on that cover the block */

/* Block b of the key against int8 codes of HG heads. The codes were stored with the same
   shift as the key's, zeros around them, so that whole words multiply; q[i][h] is word i of
   head h, read from shared memory (all lanes the same) because 10 * HG registers would cost
   resident blocks. part[h] = (float)dot * d_key * d_q[h], two roundings. */
template <int HG>
static __device__ inline void scores_int8(const uint8_t *key, int b,
                                          const uint32_t (*q)[HG], const float *qd,
                                          float (&part)[HG])
{
    const uint8_t *p = key + (34 * b & ~7);
    uint32_t w[Q8_WORDS];
    int dot[HG] = {};
    for (int i = 0; i < Q8_WORDS / 2; i++) {
        const uint2 v = kg_load_uint2(p + 8 * i);
        w[2 * i] = v.x;
        w[2 * i + 1] = v.y;
    }
    const uint32_t first = (Q8_SHIFT(b) & 4) != 0 ? w[1] : w[0];
    const float d = half_of((Q8_SHIFT(b) & 2) != 0 ? first >> 16 : first);
#pragma unroll
    for (int i = 0; i < Q8_WORDS; i++)
#pragma unroll
        for (int h = 0; h < HG; h += 4) {
            const uint4 x = kg_load_uint4(&q[i][h]);
            dot[h] = __dp4a((int)w[i], (int)x.x, dot[h]);
            dot[h + 1] = __dp4a((int)w[i], (int)x.y, dot[h + 1]);
            dot[h + 2] = __dp4a((int)w[i], (int)x.z, dot[h + 2]);
            dot[h + 3] = __dp4a((int)w[i], (int)x.w, dot[h + 3]);
        }
#pragma unroll
    for (int h = 0; h < HG; h++)
        part[h] = (float)dot[h] * d * qd[h];
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

/* Block b of the key against f32 queries: four chains of fma over the elements 4i + e,
   joined as (e0 + e1) + (e2 + e3), then times the scale. */
template <int HD, int HG>
static __device__ inline void scores_f32(const uint8_t *key, int type, int b,
                                         const float *q, float (&part)[HG])
{
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
        part[h] = ((sum[h].x + sum[h].y) + (sum[h].z + sum[h].w)) * d;
}

/* ---- values ---- */

/* Bit j of x (0..15) to bit 6 of byte j. */
static __device__ inline uint32_t fifth_bits(uint32_t x)
{
    return x * 0x08102040u & 0x40404040u;
}

/* 32 + code, exact: the code sits in the upper bits of the mantissa of 32. `codes` holds
   four of them shifted left by 2. */
static __device__ inline float code_plus_32(uint32_t codes, int e)
{
#if defined(KG_EMU)
    return __uint_as_float(0x42000000u | (codes >> 8 * e & 0xffu) << 16);
#else
    return __uint_as_float(__byte_perm(codes, 0x42000000u, 0x7044u | (unsigned)e << 8));
#endif
}

/* A key's share for Q5_1: value = d * (32 + code) + (m - 32d), so per head
 *   acc[e] = fma(p * d, 32 + code, acc[e]),   rest = fma(p, m - 32d, rest)
 * and the output is acc + rest. (32 + code) costs one instruction, an integer conversion
 * would cost more. acc[h][0..3] are elements 4i + e of the block, [4..7] those 16 further. */
template <int HG>
static __device__ inline void add_q5_1(const uint8_t *block, int i, const float (&p)[HG],
                                       float (&acc)[HG][8], float (&rest)[HG])
{
    const uint32_t dm = kg_load_u32(block), high = kg_load_u32(block + 4);
    const uint32_t qs = kg_load_u32(block + 8 + 4 * i);
    const float d = half_of(dm), m = half_of(dm >> 16) - 32.0f * d;
    const uint32_t lo = (qs << 2 & 0x3c3c3c3cu) | fifth_bits(high >> 4 * i & 15u);
    const uint32_t hi = (qs >> 2 & 0x3c3c3c3cu) | fifth_bits(high >> (16 + 4 * i) & 15u);
    float c[8];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        c[e] = code_plus_32(lo, e);
        c[4 + e] = code_plus_32(hi, e);
    }
#pragma unroll
    for (int h = 0; h < HG; h++) {
        const float pd = p[h] * d;
        rest[h] = fmaf(p[h], m, rest[h]);
#pragma unroll
        for (int e = 0; e < 8; e++)
            acc[h][e] = fmaf(pd, c[e], acc[h][e]);
    }
}

/* The same for any type, value = d * code + m with code as it is. */
template <int HG>
static __device__ inline void add_any(const uint8_t *row, int type, int b, int i,
                                      const float (&p)[HG], float (&acc)[HG][8],
                                      float (&rest)[HG])
{
    const uint8_t *block = row + b * block_bytes(type);
    float d = 1.0f, m = 0.0f, c[8];
    if (type == KG_TYPE_F8_E4M3) {
        for (int e = 0; e < 8; e++)
            c[e] = kg_e4m3_to_f32(block[16 * (e / 4) + 4 * i + e % 4]);
    } else {
        const bool five = type == KG_TYPE_Q5_1;
        const uint32_t high = five ? kg_load_u32_a2(block + 4) : 0u;
        const uint32_t qs = kg_load_u32_a2(block + (five ? 8 : 2) + 4 * i);
        d = half_of(kg_load_u16(block));
        m = five ? half_of(kg_load_u16(block + 2)) : 0.0f;
        for (int e = 0; e < 8; e++) {
            const int element = 16 * (e / 4) + 4 * i + e % 4;
            const int nibble = (int)(qs >> (8 * (e % 4) + 4 * (e / 4)) & 15u);
            c[e] = (float)(five ? nibble | (int)(high >> element & 1u) << 4 : nibble - 8);
        }
    }
#pragma unroll
    for (int h = 0; h < HG; h++) {
        const float pd = p[h] * d;
        rest[h] = fmaf(p[h], m, rest[h]);
#pragma unroll
        for (int e = 0; e < 8; e++)
            acc[h][e] = fmaf(pd, c[e], acc[h][e]);
    }
}

#endif
