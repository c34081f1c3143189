/*
 * The queries of a block of decode attention: f32, or int8 with a scale of every 32 elements.
 * They go through shared memory or, four heads in int8, each warp quantizes what its lanes
 * need, 1 / 16 of the numbers each, so that its first score waits for no other warp.
 */
#ifndef KGATE_KERNELS_ATTENTION_QUERIES_H
#define KGATE_KERNELS_ATTENTION_QUERIES_H

#include "kernels/attention/tile.h"

template <int HD, int HG, bool INT8>
struct decode_queries;

template <int HD, int HG>
struct alignas(16) decode_queries<HD, HG, true> {
    int8_t code[HG][HD];
    float d[HG][HD / 32];
};
template <int HD, int HG>
struct alignas(16) decode_queries<HD, HG, false> {
    float q[HG * HD];
};

/* The scale of 32 elements whose largest magnitude is `top`; id: what they are multiplied by. */
static __device__ __forceinline__ float query_scale(float top, float &id)
{
    const float d = top / 127.0f;
    id = d > 0.0f ? 1.0f / d : 0.0f;
    return d;
}

/* 32 elements of a head, which a warp's lanes have as x, to shared memory. */
template <int HD, int HG>
static __device__ __forceinline__ void
store_queries(struct decode_queries<HD, HG, true> &to, int i, float x)
{
    const int lane = threadIdx.x % 32, h = i / (HD / 32), b = i % (HD / 32);
    float id;
    const float d = query_scale(warp_max(fabsf(x)), id);
    to.code[h][32 * b + lane] = (int8_t)__float2int_rn(x * id);
    if (lane == 0)
        to.d[h][b] = d;
}
template <int HD, int HG>
static __device__ __forceinline__ void
store_queries(struct decode_queries<HD, HG, false> &to, int i, float x)
{
    to.q[32 * i + threadIdx.x % 32] = x;
}

/* A lane's part of the queries. */
template <int HD, int HG>
static __device__ __forceinline__ void
take_queries(const struct decode_queries<HD, HG, true> &from, float scale,
             struct query_codes<HD, HG> &to)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int b = 0; b < HD / 32; b++) {
        const uint2 c = kg_load_uint2(&from.code[g % HG][32 * b + 8 * t]);
        const bool mine = HG == 8 || g / 4 == b % 2;
        to.code[b][0] = mine ? c.x : 0u;
        to.code[b][1] = mine ? c.y : 0u;
    }
    for (int j = 0; j < to.PAIRS; j++)
        for (int i = 0; i < 2; i++)
            to.scale[j][i] =
                (HG == 8 ? from.d[(2 * t + i) % HG][j]
                         : from.d[2 * (t % 2) + i][min(2 * j + t / 2, HD / 32 - 1)]) *
                scale;
}
template <int HD, int HG>
static __device__ __forceinline__ void
take_queries(const struct decode_queries<HD, HG, false> &, float,
             struct query_codes<HD, HG> &)
{
}

/* The same without shared memory, for HG = 4: a lane has elements 8t .. + 7 of the blocks
   of head g % 4 that its fragments take. The codes are those of the way above. */
template <int HD>
struct own_queries {
    enum { PAIRS = query_codes<HD, 4>::PAIRS, BLOCKS = HD / 32 };
    float x[PAIRS][8];

    /* q: of the block's first head; `heads` of them are there. */
    __device__ __forceinline__ void load(const float *q, int heads)
    {
        const int lane = threadIdx.x % 32, h = lane / 4 % 4, t = lane % 4;
#pragma unroll
        for (int j = 0; j < PAIRS; j++)
            for (int i = 0; i < 8; i += 4) {
                const int b = 2 * j + lane / 16;
                float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (h < heads && b < BLOCKS)
                    v = kg_load_float4(q + h * HD + 32 * b + 8 * t + i);
                x[j][i] = v.x, x[j][i + 1] = v.y, x[j][i + 2] = v.z, x[j][i + 3] = v.w;
            }
    }
    __device__ __forceinline__ void quantize(float scale,
                                             struct query_codes<HD, 4> &to) const
    {
        const int lane = threadIdx.x % 32, t = lane % 4;
        const bool odd = lane >= 16;
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            float top = 0.0f;
            for (int e = 0; e < 8; e++)
                top = fmaxf(top, fabsf(x[j][e]));
            float id;
            const float d = query_scale(warp_max<4>(top), id);
            uint32_t c[8];
            for (int e = 0; e < 8; e++) /* no NaN, whose bits devices differ in */
                c[e] = __float_as_uint(fmaxf(x[j][e] * id, -127.0f) + KG_ROUND_F32);
            for (int i = 0; i < 2; i++) {
                const uint32_t word =
                    __byte_perm(__byte_perm(c[4 * i], c[4 * i + 1], 0x0040),
                                __byte_perm(c[4 * i + 2], c[4 * i + 3], 0x0040), 0x5410);
                to.code[2 * j][i] = odd ? 0u : word;
                if (2 * j + 1 < BLOCKS)
                    to.code[2 * j + 1][i] = odd ? word : 0u;
                /* From a lane with head 2 (t % 2) + i and block 2j + t / 2. */
                const int lane_of = 8 * (t % 2) + 4 * i + 16 * (t / 2);
                to.scale[j][i] = __shfl_sync(KG_WARP_ALL, d, lane_of) * scale;
            }
        }
    }
};

#endif
