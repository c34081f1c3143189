/*
 * h[r][i] = silu(min(g, limit)) * max(-limit, min(u, limit)) * row_weight[r]
 *
 *   gate, up, h [m][n]      row_weight [m] or NULL
 *
 * The gate has no lower limit. Both limits come before silu. Order: kg_siluf, times up,
 * times the row's weight, each rounded. NaN stays NaN: hence comparisons and not fminf.
 * Launches overlap (device/overlap.h), by no more than their starts.
 */
#include "kernels/device/overlap.h"
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
    kg_grid_wait();
    kg_grid_release();
    if (i >= n)
        return;
    float value = swiglu_value(gate[row * n + i], up[row * n + i], limit);
    if (row_weight)
        value = value * row_weight[row];
    h[row * n + i] = value;
}

/* Four values a thread; n is a multiple of 4. */
static __global__ void swiglu4_kernel(const float *gate, const float *up,
                                      const float *row_weight, float limit, float *h,
                                      int64_t n)
{
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    const int64_t row = blockIdx.y;
    kg_grid_wait();
    kg_grid_release();
    if (i >= n)
        return;
    const float4 g = kg_load_float4(gate + row * n + i);
    const float4 u = kg_load_float4(up + row * n + i);
    float4 value;
    value.x = swiglu_value(g.x, u.x, limit);
    value.y = swiglu_value(g.y, u.y, limit);
    value.z = swiglu_value(g.z, u.z, limit);
    value.w = swiglu_value(g.w, u.w, limit);
    if (row_weight) {
        const float weight = row_weight[row];
        value.x = value.x * weight;
        value.y = value.y * weight;
        value.z = value.z * weight;
        value.w = value.w * weight;
    }
    *(float4 *)(h + row * n + i) = value;
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
    if (n % 4 == 0)
        return KG_LAUNCH_OVERLAPPED(stream, dim3(blocks_for(n, 1024), (unsigned)m), 256,
                                    0, swiglu4_kernel, gate, up, row_weight, limit, h, n);
    return KG_LAUNCH_OVERLAPPED(stream, dim3(blocks_for(n, 256), (unsigned)m), 256, 0,
                                swiglu_kernel, gate, up, row_weight, limit, h, n);
}
