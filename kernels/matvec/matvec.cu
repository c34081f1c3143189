/*
 * The table of the family, and the quantizer of its activations.
 *
 * quantize_q8_1: q8_1.h has the arithmetic. Rows are a multiple of 32 long, so blocks never
 * span rows and the kernel sees one array of blocks: four threads a block, eight values
 * each.
 */
#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"
#include "kernels/matvec/q8_1.h"

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
    uint32_t words[2];
    float scale;
    int sum;
    q8_1_encode<8>(v, words, &scale, &sum);
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
