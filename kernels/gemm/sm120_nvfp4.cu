/*
 * W4A4 by the block-scale mma of compute capability 12.0 (sm_120a):
 * mma.sync m16n8k64, kind mxf4nvf4, E2M1 by E2M1 with a UE4M3 scale per 16, f32 sums.
 *
 *   w [out] rows of NVFP4 blocks    codes [m][in/2], scales [m][in/16], token_scale [m]
 *   y[t][o] = token_scale[t] * sum over k of w[o][k] * x[t][k], in the hardware's order
 *
 * A is w (16 rows), B the tokens (8). With g = lane / 4 and t = lane % 4, eight E2M1 codes a
 * register, the lowest k in the lowest nibble:
 *
 *   a[0] row g, k = 8t ..      a[1] row g + 8     a[2], a[3] the same, k = 32 + 8t ..
 *   b[0] column g, k = 8t ..   b[1] k = 32 + 8t ..
 *
 * Scales, four bytes for the four 16s of k: of row g in lane t = 0 and of row g + 8 in
 * t = 1 (thread-id 0 of A), of column g in t = 0 (thread-id 0 of B). A scale 0x7F of w reads
 * 0, as elsewhere; bit 7 is dropped.
 *
 * The plain form: a warp has 16 rows and 64 tokens and reads global memory directly. It
 * has been compiled, not run: there was no such device.
 */
#include "kernels/gemm/launch.h"

enum { SM120_TILES = 8, SM120_WARPS = 4 }; /* of 8 tokens, in a warp; warps in a block */

#if defined(__CUDA_ARCH_FEAT_SM120_ALL)
static __device__ inline void mma_nvfp4_16864(float d[4], const uint32_t a[4],
                                              const uint32_t b[2], uint32_t scale_a,
                                              uint32_t scale_b)
{
    asm volatile(
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col."
        "f32.e2m1.e2m1.f32.ue4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %13};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale_a),
          "r"(scale_b), "h"((uint16_t)0), "h"((uint16_t)0));
}
#endif

/* One nibble of each of eight bytes, the low or the high one, packed in order. */
static __device__ inline uint32_t pack_nibbles(uint32_t v0, uint32_t v1, int shift)
{
    uint32_t x0 = v0 >> shift & 0x0f0f0f0fu, x1 = v1 >> shift & 0x0f0f0f0fu;
    x0 = (x0 | x0 >> 4) & 0x00ff00ffu;
    x1 = (x1 | x1 >> 4) & 0x00ff00ffu;
    return ((x0 | x0 >> 8) & 0xffffu) | (x1 | x1 >> 8) << 16;
}

/* Codes 8t .. 8t + 7 (half 0) or 32 + 8t .. (half 1) of a block of 64. */
static __device__ inline uint32_t block_codes(const uint8_t *block, int t, int half)
{
    const uint8_t *group = block + 4 + 8 * (2 * half + t / 2);
    return pack_nibbles(kg_load_u32(group), kg_load_u32(group + 4), t % 2 * 4);
}

static __device__ inline uint32_t block_scales(const uint8_t *block)
{
    uint32_t v = kg_load_u32(block) & 0x7f7f7f7fu;
    for (int i = 0; i < 4; i++)
        if ((v >> 8 * i & 0x7fu) == 0x7fu)
            v &= ~(0xffu << 8 * i);
    return v;
}

static __global__ void __launch_bounds__(32 * SM120_WARPS)
    sm120_nvfp4_kernel(const uint8_t *w, const uint8_t *codes, const uint8_t *scales,
                       const float *token_scale, float *y, int64_t in, int64_t out,
                       int64_t m)
{
#if defined(__CUDA_ARCH_FEAT_SM120_ALL)
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t row0 = ((int64_t)blockIdx.x * SM120_WARPS + threadIdx.x / 32) * 16;
    const int64_t t0 = (int64_t)blockIdx.y * SM120_TILES * 8;
    if (row0 >= out)
        return;
    /* rows and tokens past the end repeat the last one and are not stored */
    const int64_t row_bytes = in / 64 * 36;
    const uint8_t *low = w + min(row0 + g, out - 1) * row_bytes;
    const uint8_t *high = w + min(row0 + g + 8, out - 1) * row_bytes;
    float acc[SM120_TILES][4] = {};
    for (int64_t b = 0; b < in / 64; b++) {
        const uint32_t a[4] = {
            block_codes(low + b * 36, t, 0), block_codes(high + b * 36, t, 0),
            block_codes(low + b * 36, t, 1), block_codes(high + b * 36, t, 1)};
        const uint32_t scale_a = block_scales((t % 2 ? high : low) + b * 36);
        for (int n = 0; n < SM120_TILES; n++) {
            const int64_t token = min(t0 + n * 8 + g, m - 1);
            const uint8_t *x = codes + token * (in / 2) + b * 32 + 4 * t;
            const uint32_t x_codes[2] = {kg_load_u32(x), kg_load_u32(x + 16)};
            mma_nvfp4_16864(acc[n], a, x_codes, scale_a,
                            kg_load_u32(scales + token * (in / 16) + b * 4));
        }
    }
    for (int n = 0; n < SM120_TILES; n++)
        for (int e = 0; e < 4; e++) {
            const int64_t token = t0 + n * 8 + 2 * t + e % 2, row = row0 + g + e / 2 * 8;
            if (token < m && row < out)
                y[token * out + row] = acc[n][e] * token_scale[token];
        }
#endif
}

int sm120_nvfp4(const void *w, const uint8_t *codes, const uint8_t *scales,
                const float *token_scale, float *y, int64_t in, int64_t out, int64_t m,
                struct CUstream_st *stream)
{
    int device = 0, major = 0;
    KG_TRY(kg_cuda_check(cudaGetDevice(&device), "cudaGetDevice"));
    KG_TRY(kg_cuda_check(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute"));
    if (major != 12)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, m, 64));
    if (in == 0)
        return KG_E_INVALID;
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, 1, 4) || !pointer_fits(codes, 1, 16) ||
        !pointer_fits(scales, 1, 4) || !pointer_fits(token_scale, 1, 4) ||
        !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    const dim3 grid((unsigned)((out + 16 * SM120_WARPS - 1) / (16 * SM120_WARPS)),
                    (unsigned)((m + SM120_TILES * 8 - 1) / (SM120_TILES * 8)));
    if (grid.y > 65535)
        return KG_E_UNSUPPORTED;
    return KG_LAUNCH(stream, grid, 32 * SM120_WARPS, 0, sm120_nvfp4_kernel,
                     (const uint8_t *)w, codes, scales, token_scale, y, in, out, m);
}
