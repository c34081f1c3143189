/*
 * The bf16 class: weights dequantized to bf16, and the product on them.
 *
 * dequant_bf16: w16[o][k] = bf16(e2m1 * s), both roundings to nearest even; s as the
 * product in kgate/ops/dsv4.h has it. gemm_bf16: the vendor's library on CUDA, plain f32
 * sums in ascending k on the emulated device; the cells that use it are not ordered.
 */
#include "kernels/dsv4/launch.h"
#include "kgate/types.h"
#if defined(__CUDACC__)
#include "kernels/cuda/cublaslt.h"
#endif

/* Two weights a thread. */
template <int KIND>
static __global__ void dequant_bf16_kernel(const uint8_t *w, const uint8_t *ws,
                                           float scale2, uint32_t *w16, int64_t pairs)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs)
        return;
    const float s = recipe<KIND>::scale(ws[i / (recipe<KIND>::GROUP / 2)], scale2);
    w16[i] =
        kg_pack_f32_to_bf162(kg_e2m1_to_f32(w[i]) * s, kg_e2m1_to_f32(w[i] >> 4) * s);
}

#if !defined(__CUDACC__)
static __global__ void gemm_bf16_kernel(const uint16_t *x, const uint16_t *w, float *y,
                                        int64_t n, int64_t k)
{
    const int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = blockIdx.y;
    if (o >= n)
        return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i++)
        sum += __uint_as_float((uint32_t)x[row * k + i] << 16) *
               __uint_as_float((uint32_t)w[o * k + i] << 16);
    y[row * n + o] = sum;
}
#endif

int kg_dsv4_dequant_bf16(int kind, const uint8_t *w, const uint8_t *ws, float scale2,
                         uint16_t *w16, int64_t n, int64_t k, struct CUstream_st *stream)
{
    if (!sizes_fit(0, n, k) || (kind != KG_DSV4_NVFP4 && kind != KG_DSV4_MXFP4))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    const int64_t pairs = n * (k / 2);
    const unsigned grid = blocks_for(pairs, 256);
    if (!aligned16(w) || !aligned16(ws) || !aligned16(w16) || !grid)
        return KG_E_INVALID;
    if (kind == KG_DSV4_NVFP4)
        return KG_LAUNCH(stream, grid, 256, 0, dequant_bf16_kernel<KG_DSV4_NVFP4>, w, ws,
                         scale2, (uint32_t *)w16, pairs);
    return KG_LAUNCH(stream, grid, 256, 0, dequant_bf16_kernel<KG_DSV4_MXFP4>, w, ws,
                     scale2, (uint32_t *)w16, pairs);
}

int kg_dsv4_gemm_bf16(const uint16_t *x16, const uint16_t *w16, float *y, int64_t m,
                      int64_t n, int64_t k, struct CUstream_st *stream)
{
    if (!sizes_fit(m, n, k) || m > 65535)
        return KG_E_INVALID;
    if (m == 0 || n == 0)
        return KG_OK;
    if (!aligned16(x16) || !aligned16(w16) || !aligned16(y))
        return KG_E_INVALID;
#if defined(__CUDACC__)
    return kg_cublaslt_matmul(KG_TYPE_BF16, KG_TYPE_F32, x16, w16, y, m, n, k, NULL, 0,
                              stream);
#else
    return KG_LAUNCH(stream, dim3(blocks_for(n, 64), (unsigned)m), 64, 0,
                     gemm_bf16_kernel, x16, w16, y, n, k);
#endif
}
