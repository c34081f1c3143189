/*
 * act_quant, and what else is done to activations element by element.
 *
 * act_quant, per 128 values of a row: amax = max(max |x|, 1e-4); v = amax * fl(1/448) in f32;
 * scale = the smallest power of two >= v, from v's exponent field (one more if any bit of
 * the mantissa is set: a logarithm would be wrong one ulp above a power of two);
 * code = E4M3(x / scale), to nearest even. The scale is a power of two from 2^-22 on, so
 * the quotient is exact, and E4M3's own saturation is the clamp to +-448. The maximum is
 * exact, hence free of order.
 *
 * A lane holds four of a block's 128 values: a 16-byte load and a 4-byte store. Launches overlap
 * (device/overlap.h), by no more than their starts.
 */
#include "kernels/device/overlap.h"
#include "kernels/dsv4/launch.h"

static constexpr int WARPS = 4;
static constexpr int BLOCKS = 2; /* of 128 values for a warp, all on their way at once */

/* The smallest power of two >= v > 0. */
static __device__ inline float power_of_two_above(float v)
{
    const uint32_t bits = __float_as_uint(v);
    const uint32_t power = bits & 0x7f800000u;
    return __uint_as_float(power + ((bits & 0x7fffffu) != 0 ? 0x800000u : 0u));
}

/* kg_f32_to_e4m3 without branches, for magnitudes up to 480 and NaN. */
static __device__ inline uint32_t e4m3_code(float x)
{
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    /* below 2^-6: 2^14 has steps of 2^-9 */
    const uint32_t fine =
        __float_as_uint(__uint_as_float(magnitude) + 16384.0f) - 0x46800000u;
    const uint32_t coarse = min((rounded >> 20) - (120u << 3), 0x7eu);
    const uint32_t code =
        (magnitude < 0x3c800000u ? fine : coarse) | (bits >> 24 & 0x80u);
    return magnitude > 0x7f800000u ? 0x7fu : code;
}

static __global__ void act_quant_kernel(const float *x, uint8_t *codes, float *scales,
                                        int64_t blocks)
{
    const int lane = threadIdx.x % 32;
    const int64_t first = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * BLOCKS;
    float4 v[BLOCKS];
    float amax[BLOCKS];
    kg_grid_wait();
    kg_grid_release();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) /* the last one again beyond the end */
        v[b] = kg_load_float4(
            x + min((long long)(first + b), (long long)(blocks - 1)) * 128 + lane * 4);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        amax[b] = fmaxf(fmaxf(fabsf(v[b].x), fabsf(v[b].y)),
                        fmaxf(fabsf(v[b].z), fabsf(v[b].w)));
        /* no NaN is left, and magnitudes are in the order of their bits */
        amax[b] = __uint_as_float(
            __reduce_max_sync(KG_WARP_ALL, __float_as_uint(fmaxf(amax[b], 1e-4f))));
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        if (first + b >= blocks)
            return;
        const float scale = power_of_two_above(amax[b] * (1.0f / 448.0f));
        const float inverse = 1.0f / scale; /* exact, and so are the products */
        const uint32_t word =
            e4m3_code(v[b].x * inverse) | e4m3_code(v[b].y * inverse) << 8 |
            e4m3_code(v[b].z * inverse) << 16 | e4m3_code(v[b].w * inverse) << 24;
        *(uint32_t *)(codes + (first + b) * 128 + lane * 4) = word;
        if (lane == 0)
            scales[first + b] = scale;
    }
}

static __global__ void to_bf16_kernel(const float *x, uint16_t *x16, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        x16[i] = kg_f32_to_bf16(x[i]).bits;
}

int kg_dsv4_act_quant(const float *x, uint8_t *codes, float *scales, int64_t m, int64_t k,
                      struct CUstream_st *stream)
{
    if (!sizes_fit(m, 0, k))
        return KG_E_INVALID;
    if (m == 0)
        return KG_OK;
    const int64_t blocks = m * (k / 128);
    const unsigned grid = blocks_for(blocks, WARPS * BLOCKS);
    if (!aligned16(x) || !aligned16(codes) || !aligned16(scales) || !grid)
        return KG_E_INVALID;
    return KG_LAUNCH_OVERLAPPED(stream, grid, 32 * WARPS, 0, act_quant_kernel, x, codes,
                                scales, blocks);
}

int kg_dsv4_to_bf16(const float *x, uint16_t *x16, int64_t count,
                    struct CUstream_st *stream)
{
    if (count == 0)
        return KG_OK;
    const unsigned grid = count < 0 ? 0u : blocks_for(count, 256);
    if (!aligned16(x) || !aligned16(x16) || !grid)
        return KG_E_INVALID;
    return KG_LAUNCH(stream, grid, 256, 0, to_bf16_kernel, x, x16, count);
}
