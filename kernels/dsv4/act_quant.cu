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
 * One warp for 128 values, four a lane: a 16-byte load and a 4-byte store.
 */
#include "kernels/dsv4/launch.h"

static constexpr int WARPS = 4;

/* The smallest power of two >= v > 0. */
static __device__ inline float power_of_two_above(float v)
{
    const uint32_t bits = __float_as_uint(v);
    const uint32_t power = bits & 0x7f800000u;
    return __uint_as_float(power + ((bits & 0x7fffffu) != 0 ? 0x800000u : 0u));
}

static __global__ void act_quant_kernel(const float *x, uint8_t *codes, float *scales,
                                        int64_t blocks)
{
    const int lane = threadIdx.x % 32;
    const int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (block >= blocks)
        return;
    const float4 v = kg_load_float4(x + block * 128 + lane * 4);
    float amax = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    for (int distance = 16; distance > 0; distance /= 2)
        amax = fmaxf(amax, __shfl_xor_sync(KG_WARP_ALL, amax, distance));
    amax = fmaxf(amax, 1e-4f);
    const float scale = power_of_two_above(amax * (1.0f / 448.0f));
    const float inverse = 1.0f / scale; /* exact, and so are the products */
    const uint32_t word = (uint32_t)kg_f32_to_e4m3(v.x * inverse) |
                          (uint32_t)kg_f32_to_e4m3(v.y * inverse) << 8 |
                          (uint32_t)kg_f32_to_e4m3(v.z * inverse) << 16 |
                          (uint32_t)kg_f32_to_e4m3(v.w * inverse) << 24;
    *(uint32_t *)(codes + block * 128 + lane * 4) = word;
    if (lane == 0)
        scales[block] = scale;
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
    const unsigned grid = blocks_for(blocks, WARPS);
    if (!aligned16(x) || !aligned16(codes) || !aligned16(scales) || !grid)
        return KG_E_INVALID;
    return KG_LAUNCH(stream, grid, 32 * WARPS, 0, act_quant_kernel, x, codes, scales,
                     blocks);
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
