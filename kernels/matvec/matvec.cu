/*
 * The table of the family, and the quantizer of its activations.
 *
 * quantize_q8_1, per 32 consecutive values of a row:
 *
 *   amax = max |x|     d = amax / 127     id = d > 0 ? 1 / d : 0
 *   q = round-half-even(x * id)           s = d * (f32)(sum of the 32 q)
 *
 * Rows are a multiple of 32 long, so blocks never span rows and the kernel sees one array
 * of blocks. Four threads a block, eight values each; max and sum are exact, hence free of
 * order. Where the rule is silent: codes saturate at +-127 (d loses bits when subnormal,
 * and 1 / d may be infinite there), NaN codes are 0, and a NaN input makes amax, d and s
 * NaN, so that it reaches the result.
 */
#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"

static __device__ inline float larger(float a, float b)
{
    return b > a || b != b ? b : a;
}

static __global__ void quantize_q8_1_kernel(const float *x, int8_t *q, float *d, float *s,
                                            int64_t blocks)
{
    const int64_t block = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 4;
    const int part = threadIdx.x % 4;
    float v[8] = {};
    if (block < blocks) {
        const float4 *from = (const float4 *)(x + block * 32 + part * 8);
        const float4 a = from[0], b = from[1];
        v[0] = a.x;
        v[1] = a.y;
        v[2] = a.z;
        v[3] = a.w;
        v[4] = b.x;
        v[5] = b.y;
        v[6] = b.z;
        v[7] = b.w;
    }
    float amax = 0.0f;
    for (int i = 0; i < 8; i++)
        amax = larger(amax, fabsf(v[i]));
    for (int distance = 2; distance > 0; distance /= 2)
        amax = larger(amax, __shfl_xor_sync(KG_WARP_ALL, amax, distance));
    const float scale = amax / 127.0f;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;

    int sum = 0;
    uint32_t words[2] = {0, 0};
    for (int i = 0; i < 8; i++) {
        const float product = v[i] * inverse;
        const float code =
            product == product ? fminf(fmaxf(rintf(product), -127.0f), 127.0f) : 0.0f;
        sum += (int)code;
        words[i / 4] |= ((uint32_t)(int)code & 255u) << 8 * (i % 4);
    }
    for (int distance = 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(KG_WARP_ALL, sum, distance);
    if (block >= blocks)
        return;
    uint2 packed;
    packed.x = words[0];
    packed.y = words[1];
    *(uint2 *)(q + block * 32 + part * 8) = packed;
    if (part == 0) {
        d[block] = scale;
        s[block] = scale * (float)sum;
    }
}

int kg_quantize_q8_1(const float *x, int8_t *q, float *d, float *s, int64_t rows,
                     int64_t cols, struct CUstream_st *stream)
{
    const int64_t n = size_product(rows, cols), blocks = n / 32;
    if (n < 0 || cols % 32 != 0 || !pointer_fits(x, n, 16) || !pointer_fits(q, n, 8) ||
        !pointer_fits(d, n, 4) || !pointer_fits(s, n, 4) ||
        (n > 0 && !grid_blocks(blocks, 32)))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(blocks, 32), 128, 0, quantize_q8_1_kernel, x, q,
                     d, s, blocks);
}

extern const struct kg_matvec_ops kg_matvec_table;
const struct kg_matvec_ops kg_matvec_table = {
    sizeof(struct kg_matvec_ops), kg_dequantize, kg_quantize_q8_1, kg_stage_a, kg_stage_b,
};
