/*
 * W4A4 around the product: the quantizer of activations, the residual path, the layout of
 * CUTLASS. nvfp4.h has the quantizer's rules.
 *
 *   channels   amax[c] = max over t of |x[t][c]| (NaN counts as 0); channel c has as many
 *              louder ones as there are c' with amax[c'] > amax[c], or equal and c' < c;
 *              channels[i] = the one with i louder ones, i < k
 *   residual   y[t][o] = fma(w[o][c_i], x[t][c_i], y[t][o]), i = 0 .. k-1 in that order
 *   pack       blocks of 64 to E2M1 codes [out][in/2], even k in the low nibble, and UE4M3
 *              scales by atoms of 128 rows x 4 scales, 512 bytes each; row r and scale j of
 *              an atom at (r % 32) * 16 + r / 32 * 4 + j; atoms of one row of tiles side by
 *              side along k. Rows past `out` have scale 0. unpack is the inverse.
 */
#include "kernels/gemm/nvfp4.h"

static __global__ void channel_amax_kernel(const float *x, float *amax, int64_t m,
                                           int64_t in)
{
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= in)
        return;
    float largest = 0.0f;
    for (int64_t t = 0; t < m; t++)
        largest = fmaxf(largest, fabsf(x[t * in + c]));
    amax[c] = largest;
}

static __global__ void channel_rank_kernel(const float *amax, int32_t *channels, int k,
                                           int64_t in)
{
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= in)
        return;
    const float own = amax[c];
    int louder = 0;
    for (int64_t i = 0; i < in && louder < k; i++)
        louder += amax[i] > own || (amax[i] == own && i < c);
    if (louder < k)
        channels[louder] = (int32_t)c;
}

int nvfp4_channels(const float *x, int64_t m, int64_t in, int k, float *amax,
                   int32_t *channels, struct CUstream_st *stream)
{
    const int64_t n = size_product(m, in);
    if (n < 0 || k < 0 || k > in || in > 0x7fffffff || !pointer_fits(x, n, 4) ||
        !pointer_fits(amax, in, 4) || !pointer_fits(channels, k, 4))
        return KG_E_INVALID;
    if (k == 0)
        return KG_OK;
    const unsigned blocks = grid_blocks(in, 128);
    KG_TRY(KG_LAUNCH(stream, blocks, 128, 0, channel_amax_kernel, x, amax, m, in));
    return KG_LAUNCH(stream, blocks, 128, 0, channel_rank_kernel, amax, channels, k, in);
}

static __device__ inline bool is_skipped(const int32_t *skip, int k, int64_t channel)
{
    for (int i = 0; i < k; i++)
        if (skip[i] == channel)
            return true;
    return false;
}

/* One block of 128 threads a token; the maximum has no order. */
static __global__ void nvfp4_quantize_kernel(const float *x, const int32_t *skip, int k,
                                             int levels, uint8_t *codes, uint8_t *scales,
                                             float *token_scale, int64_t in)
{
    KG_SHARED(float, largest, [128]);
    const int64_t t = blockIdx.x;
    const float *row = x + t * in;
    float divisor = 1.0f;
    if (levels == 2) {
        float a = 0.0f;
        for (int64_t c = threadIdx.x; c < in; c += 128)
            if (!is_skipped(skip, k, c))
                a = fmaxf(a, fabsf(row[c]));
        largest[threadIdx.x] = a;
        __syncthreads();
        for (int half = 64; half > 0; half /= 2) {
            if ((int)threadIdx.x < half)
                largest[threadIdx.x] =
                    fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
            __syncthreads();
        }
        divisor = largest[0] / 2688.0f;
        if (!(divisor > 0.0f && divisor < INFINITY))
            divisor = 1.0f;
    }
    if (threadIdx.x == 0)
        token_scale[t] = divisor;
    for (int64_t group = threadIdx.x; group < in / 16; group += 128) {
        float v[16], a = 0.0f;
        for (int i = 0; i < 16; i++) {
            const int64_t c = group * 16 + i;
            v[i] = is_skipped(skip, k, c) ? 0.0f : row[c] / divisor;
            a = fmaxf(a, fabsf(v[i]));
        }
        const uint8_t scale = kg_f32_to_e4m3(a / 6.0f);
        const float value = kg_ue4m3_to_f32(scale);
        const float inverse = value > 0.0f ? 1.0f / value : 0.0f;
        scales[t * (in / 16) + group] = scale;
        for (int i = 0; i < 8; i++)
            codes[(t * in + group * 16) / 2 + i] =
                (uint8_t)(kg_f32_to_e2m1(v[2 * i] * inverse) |
                          kg_f32_to_e2m1(v[2 * i + 1] * inverse) << 4);
    }
}

int nvfp4_quantize(const float *x, int64_t m, int64_t in, const int32_t *skip, int k,
                   int levels, uint8_t *codes, uint8_t *scales, float *token_scale,
                   struct CUstream_st *stream)
{
    const int64_t n = size_product(m, in);
    if (n < 0 || in % 32 != 0 || k < 0 || k > in || (levels != 1 && levels != 2) ||
        m > 0x7fffffff || !pointer_fits(x, n, 4) || !pointer_fits(skip, k, 4) ||
        !pointer_fits(codes, n, 16) || !pointer_fits(scales, n, 1) ||
        !pointer_fits(token_scale, m, 4))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, (unsigned)m, 128, 0, nvfp4_quantize_kernel, x, skip, k,
                     levels, codes, scales, token_scale, in);
}

/* One thread a row of w, for TOKENS tokens; the weights of 16 channels at a time. */
enum { RESIDUAL_TOKENS = 8, RESIDUAL_CHANNELS = 16 };

static __global__ void nvfp4_residual_kernel(const uint8_t *w, const float *x,
                                             const int32_t *channels, int k, float *y,
                                             int64_t in, int64_t out, int64_t m)
{
    const int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t t0 = (int64_t)blockIdx.y * RESIDUAL_TOKENS;
    if (o >= out)
        return;
    const uint8_t *row = w + o * (in / 64) * 36;
    for (int j0 = 0; j0 < k; j0 += RESIDUAL_CHANNELS) {
        const int n = min(RESIDUAL_CHANNELS, k - j0);
        float weight[RESIDUAL_CHANNELS];
        for (int j = 0; j < n; j++)
            weight[j] = nvfp4_value(row, channels[j0 + j]);
        for (int64_t t = t0; t < min(t0 + RESIDUAL_TOKENS, m); t++) {
            float sum = y[t * out + o];
            for (int j = 0; j < n; j++)
                sum = fmaf(weight[j], x[t * in + channels[j0 + j]], sum);
            y[t * out + o] = sum;
        }
    }
}

int nvfp4_residual(const void *w, const float *x, const int32_t *channels, int k,
                   float *y, int64_t in, int64_t out, int64_t m,
                   struct CUstream_st *stream)
{
    KG_TRY(check_product(in, out, m, 64));
    const int64_t token_blocks = (m + RESIDUAL_TOKENS - 1) / RESIDUAL_TOKENS;
    if (k < 0 || k > in || !pointer_fits(channels, k, 4))
        return KG_E_INVALID;
    if (k == 0 || out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, 1, 4) || !pointer_fits(x, 1, 4) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    if (token_blocks > 65535)
        return KG_E_UNSUPPORTED;
    return KG_LAUNCH(stream, dim3(grid_blocks(out, 128), (unsigned)token_blocks), 128, 0,
                     nvfp4_residual_kernel, (const uint8_t *)w, x, channels, k, y, in,
                     out, m);
}

/* Where the scale of row r, group j of 16, lies. */
static __device__ inline int64_t atom_offset(int64_t r, int64_t j, int64_t in)
{
    return (r / 128 * (in / 64) + j / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + j % 4;
}

/* One thread a block of 64 weights of a row, rows rounded up to 128. */
static __global__ void cutlass_pack_kernel(const uint8_t *w, uint8_t *codes,
                                           uint8_t *scales, int64_t in, int64_t out,
                                           int64_t blocks)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= blocks)
        return;
    const int64_t row = i / (in / 64), b = i % (in / 64);
    const uint8_t *block = w + i * 36;
    for (int s = 0; s < 4; s++) {
        scales[atom_offset(row, b * 4 + s, in)] = row < out ? block[s] : 0;
        for (int j = 0; row < out && j < 8; j++) {
            const int k = 2 * j; /* of the 16: elements k and k + 1 */
            const int shift = k < 8 ? 0 : 4, at = 4 + 8 * s + k % 8;
            codes[i * 32 + s * 8 + j] =
                (uint8_t)((block[at] >> shift & 15) | (block[at + 1] >> shift & 15) << 4);
        }
    }
}

static __global__ void cutlass_unpack_kernel(const uint8_t *codes, const uint8_t *scales,
                                             uint8_t *w, int64_t in, int64_t blocks)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= blocks)
        return;
    const int64_t row = i / (in / 64), b = i % (in / 64);
    uint8_t *block = w + i * 36;
    for (int s = 0; s < 4; s++) {
        block[s] = scales[atom_offset(row, b * 4 + s, in)];
        for (int j = 0; j < 8; j++) {
            const uint8_t *from = codes + i * 32 + s * 8;
            const int low = from[j / 2] >> j % 2 * 4 & 15;
            const int high = from[4 + j / 2] >> j % 2 * 4 & 15;
            block[4 + 8 * s + j] = (uint8_t)(low | high << 4);
        }
    }
}

static int check_pack(const void *w, const void *codes, const void *scales, int64_t in,
                      int64_t out)
{
    KG_TRY(check_product(in, out, 1, 64));
    if (out > 0 && in > 0 &&
        (!pointer_fits(w, 1, 4) || !pointer_fits(codes, 1, 16) ||
         !pointer_fits(scales, 1, 16) ||
         !grid_blocks((out + 127) / 128 * 128 * (in / 64), 128)))
        return KG_E_INVALID;
    return KG_OK;
}

int cutlass_pack(const void *w, uint8_t *codes, uint8_t *scales, int64_t in, int64_t out,
                 struct CUstream_st *stream)
{
    const int64_t blocks = (out + 127) / 128 * 128 * (in / 64);
    KG_TRY(check_pack(w, codes, scales, in, out));
    if (out == 0 || in == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(blocks, 128), 128, 0, cutlass_pack_kernel,
                     (const uint8_t *)w, codes, scales, in, out, blocks);
}

int cutlass_unpack(const uint8_t *codes, const uint8_t *scales, void *w, int64_t in,
                   int64_t out, struct CUstream_st *stream)
{
    const int64_t blocks = out * (in / 64);
    KG_TRY(check_pack(w, codes, scales, in, out));
    if (out == 0 || in == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(blocks, 128), 128, 0, cutlass_unpack_kernel,
                     codes, scales, (uint8_t *)w, in, blocks);
}
