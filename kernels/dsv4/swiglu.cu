/*
 * h[r][i] = silu(min(g, limit)) * max(-limit, min(u, limit)) * row_weight[r]
 *
 *   gate, up, h [m][n]      row_weight [m] or NULL
 *
 * The gate has no lower limit. Both limits come before silu. Order: kg_siluf, times up,
 * times the row's weight, each rounded. NaN stays NaN: hence comparisons and not fminf.
 */
#include "kernels/dsv4/launch.h"

#ifdef KG_PLANTED_SWIGLU /* a test's wrong version of the function below */
#include KG_PLANTED_SWIGLU
#else
static __device__ inline float swiglu_value(float gate, float up, float limit)
{
    const float g = gate > limit ? limit : gate;
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return kg_siluf(g) * u;
}
#endif

static __global__ void swiglu_kernel(const float *gate, const float *up,
                                     const float *row_weight, float limit, float *h,
                                     int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = blockIdx.y;
    if (i >= n)
        return;
    float value = swiglu_value(gate[row * n + i], up[row * n + i], limit);
    if (row_weight)
        value = value * row_weight[row];
    h[row * n + i] = value;
}

int kg_dsv4_swiglu(const float *gate, const float *up, const float *row_weight,
                   float limit, float *h, int64_t m, int64_t n,
                   struct CUstream_st *stream)
{
    if (m < 0 || n < 0 || !sizes_fit(m, n, 128) || m > 65535 || !(limit > 0.0f))
        return KG_E_INVALID;
    if (m == 0 || n == 0)
        return KG_OK;
    if (!aligned16(gate) || !aligned16(up) || !aligned16(h) ||
        (row_weight && (uintptr_t)row_weight % 4 != 0))
        return KG_E_INVALID;
    return KG_LAUNCH(stream, dim3(blocks_for(n, 256), (unsigned)m), 256, 0, swiglu_kernel,
                     gate, up, row_weight, limit, h, n);
}
