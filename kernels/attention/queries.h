/*
 * The queries of a block of decode attention, in shared memory: f32, or int8 with a scale of
 * every 32 elements.
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

/* 32 elements of a head, which a warp's lanes have as x, to shared memory. */
template <int HD, int HG>
static __device__ __forceinline__ void
store_queries(struct decode_queries<HD, HG, true> &to, int i, float x)
{
    const int lane = threadIdx.x % 32, h = i / (HD / 32), b = i % (HD / 32);
    const float d = warp_max(fabsf(x)) / 127.0f;
    const float id = d > 0.0f ? 1.0f / d : 0.0f;
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

#endif
