/*
 * The table of the family, and blk_dequant_q8_0 (kgate/ops/fp8.h has the arithmetic).
 *
 * Eight threads a block of 32 values, four codes each. The maximum is exact, hence free of
 * order; there is no sum.
 */
#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"
#include "kgate/ops/fp8.h"

static __device__ inline float e4m3_or_zero(uint32_t code)
{
    return (code & 0x7fu) == 0x7fu ? 0.0f : kg_e4m3_to_f32((uint8_t)code);
}

static __device__ inline float larger(float a, float b)
{
    return b > a || b != b ? b : a;
}

/* Half away from zero. v + 0.5 would round for the f32 below one half. */
static __device__ inline float round_away(float v)
{
    const float whole = truncf(v);
    const float step = v < 0.0f ? -1.0f : 1.0f;
    return fabsf(v - whole) >= 0.5f ? whole + step : whole;
}

static __global__ void blk_dequant_q8_0_kernel(const uint8_t *codes, const float *scales,
                                               uint8_t *q8, int64_t in, int64_t blocks)
{
    const int64_t block = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 8;
    const int part = threadIdx.x % 8;
    const bool exists = block < blocks;
    float v[4] = {}, amax = 0.0f;
    if (exists) {
        const int64_t per_row = in / 32, o = block / per_row, k = block % per_row * 32;
        const float scale = scales[o / 128 * ((in + 127) / 128) + k / 128];
        const uint32_t word = kg_load_u32(codes + block * 32 + part * 4);
        for (int i = 0; i < 4; i++)
            v[i] = e4m3_or_zero(word >> 8 * i & 255u) * scale;
    }
    for (int i = 0; i < 4; i++)
        amax = larger(amax, fabsf(v[i]));
    for (int distance = 4; distance > 0; distance /= 2)
        amax = larger(amax, __shfl_xor_sync(KG_WARP_ALL, amax, distance));
    if (!exists)
        return;
    const float d = amax / 127.0f;
    const float id = d > 0.0f ? 1.0f / d : 0.0f;
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        const float product = v[i] * id;
        const float code = product == product
                               ? fminf(fmaxf(round_away(product), -127.0f), 127.0f)
                               : 0.0f;
        word |= ((uint32_t)(int)code & 255u) << 8 * i;
    }
    uint16_t *to = (uint16_t *)(q8 + block * 34);
    to[1 + 2 * part] = (uint16_t)word;
    to[2 + 2 * part] = (uint16_t)(word >> 16);
    if (part == 0)
        to[0] = kg_f32_to_half(d).bits;
}

static int kg_blk_dequant_q8_0(const uint8_t *codes, const float *scales, void *q8,
                               int64_t in, int64_t out, struct CUstream_st *stream)
{
    const int64_t n = size_product(in, out), blocks = n / 32;
    if (n < 0 || in % 32 != 0 || !pointer_fits(codes, n, 4) ||
        !pointer_fits(scales, n, 4) || !pointer_fits(q8, n, 2) ||
        !grid_blocks(blocks + 1, 32))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(blocks, 32), 256, 0, blk_dequant_q8_0_kernel,
                     codes, scales, (uint8_t *)q8, in, blocks);
}

extern const struct kg_fp8_ops kg_fp8_table;
const struct kg_fp8_ops kg_fp8_table = {
    sizeof(struct kg_fp8_ops),
    kg_blk_dequant_q8_0,
};
