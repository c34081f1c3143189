/*
 * What a warp of decode attention has of its keys, and sums over its lanes at the end.
 */
#ifndef KGATE_KERNELS_ATTENTION_SUMS_H
#define KGATE_KERNELS_ATTENTION_SUMS_H

#include "kernels/attention/values.h"

#define LAZY 3.0f /* how far a score may exceed M */

/*
 * Sums over the lanes that have the same heads in the scores' picture, of N values at once:
 * a butterfly over the lane distances 16, 8, 4 and, for HG = 4, 2. While N is even a lane
 * goes on with half of them only. Afterwards it has N' sums in x[0 ..], those of the values
 * at + 0 ..; returns N'.
 */
template <int HG, int N, int DISTANCE = 16>
static __device__ __forceinline__ int sum_of_keys(float *x, int &at)
{
    if constexpr (DISTANCE < (HG == 4 ? 2 : 4)) {
        return N;
    } else if constexpr (N % 2 == 0 && DISTANCE >= 4) {
        const bool upper = (threadIdx.x & DISTANCE) != 0;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float keep = upper ? x[N / 2 + i] : x[i];
            const float give = upper ? x[i] : x[N / 2 + i];
            x[i] = keep + __shfl_xor_sync(KG_WARP_ALL, give, DISTANCE);
        }
        at += upper ? N / 2 : 0;
        return sum_of_keys<HG, N / 2, DISTANCE / 2>(x, at);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += __shfl_xor_sync(KG_WARP_ALL, x[i], DISTANCE);
        return sum_of_keys<HG, N, DISTANCE / 2>(x, at);
    }
}
template <int HG>
static __device__ __forceinline__ float max_of_keys(float x)
{
    x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, 16));
    x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, 8));
    x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, 4));
    return HG == 4 ? fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, 2)) : x;
}

/* What a warp has of its keys: M, L and rest of a lane's pair of heads, and the values. */
template <int HD, int HG, bool MAIN>
struct warp_sums {
    typedef tile_shape<HD, HG, MAIN> shape;
    float max[2], sum[2], rest[shape::BLOCKS][2];
    typename values_of<HD, HG, MAIN>::type values;

    /* fresh: nothing has been added yet. */
    __device__ __forceinline__ void rescale(const float (&score)[shape::KEYS][2],
                                            bool fresh)
    {
        float r[2];
        for (int i = 0; i < 2; i++) {
            float x = score[0][i];
            for (int k = 1; k < shape::KEYS; k++)
                x = fmaxf(x, score[k][i]);
            x = max_of_keys<HG>(x);
            const float old = max[i];
            max[i] = x > old + LAZY ? x : old;
            if (fresh)
                continue;
            r[i] = weight_exp(old - max[i]);
            sum[i] *= r[i];
            for (int b = 0; b < shape::BLOCKS; b++)
                rest[b][i] *= r[i];
        }
        if (!fresh)
            values.rescale(r);
    }
};

#endif
