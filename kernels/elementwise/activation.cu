/*
 * Activations of pairs of arrays, plain and quantized (kgate/ops/elementwise.h).
 *
 *   add          y = a + b
 *   silu_mul     y = silu(g * g_scale) * (u * u_scale)   silu_mul: both scales 1, which
 *                                                         changes no bit
 *   gelu_mul     y = gelu(g) * u
 *
 * Each product is rounded once; silu and gelu are those of device/math.h. The quantized
 * forms apply the same function to the same elements and encode the result in registers
 * (matvec/q8_1.h): eight values a thread, four threads a block of 32. There are no sums of
 * floats here.
 *
 * Every thread works on eight consecutive elements: two 16-byte loads from each array are
 * under way before the first is used.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/matvec/q8_1.h"

enum activation { ADD, SILU_MUL, GELU_MUL, FIRST /* y = a, for the bare quantizer */ };

struct scales {
    float a, b;
};

template <int ACT>
static __device__ __forceinline__ float activate(float a, float b, struct scales s)
{
    if (ACT == ADD)
        return a + b;
    if (ACT == SILU_MUL)
        return kg_siluf(a * s.a) * (b * s.b);
    if (ACT == GELU_MUL)
        return kg_gelu_tanhf(a) * b;
    return a;
}

/* y[0..7] from a[0..7] and b[0..7]. */
template <int ACT>
static __device__ __forceinline__ void activate8(const float *a, const float *b,
                                                 struct scales s, float y[8])
{
    const float4 a0 = *(const float4 *)a, a1 = *(const float4 *)(a + 4);
    float4 b0 = a0, b1 = a1;
    if (ACT != FIRST) {
        b0 = *(const float4 *)b;
        b1 = *(const float4 *)(b + 4);
    }
    y[0] = activate<ACT>(a0.x, b0.x, s);
    y[1] = activate<ACT>(a0.y, b0.y, s);
    y[2] = activate<ACT>(a0.z, b0.z, s);
    y[3] = activate<ACT>(a0.w, b0.w, s);
    y[4] = activate<ACT>(a1.x, b1.x, s);
    y[5] = activate<ACT>(a1.y, b1.y, s);
    y[6] = activate<ACT>(a1.z, b1.z, s);
    y[7] = activate<ACT>(a1.w, b1.w, s);
}

template <int ACT>
static __global__ void binary_kernel(const float *a, const float *b, float *y,
                                     struct scales s, int64_t n)
{
    const int64_t i = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 8 <= n) {
        float v[8];
        activate8<ACT>(a + i, b + i, s, v);
        *(float4 *)(y + i) = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(y + i + 4) = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        for (int64_t k = i; k < n; k++)
            y[k] = activate<ACT>(a[k], b[k], s);
    }
}

template <int ACT>
static int binary(const float *a, const float *b, float *y, struct scales s, int64_t n,
                  struct CUstream_st *stream)
{
    if (size_product(n, 1) < 0 || !grid_blocks(n + 1, 8 * KG_THREADS) ||
        !pointer_fits(a, n, 16) || !pointer_fits(b, n, 16) || !pointer_fits(y, n, 16))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(n, 8 * KG_THREADS), KG_THREADS, 0,
                     binary_kernel<ACT>, a, b, y, s, n);
}

static __global__ void silu_mul_q8_1_kernel(const float *a, const float *b, int8_t *q,
                                            float *d, float *sums, struct scales s,
                                            int64_t n)
{
    const int64_t i = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    float v[8] = {};
    if (i < n)
        activate8<SILU_MUL>(a + i, b + i, s, v);
    uint32_t words[2];
    float scale;
    int sum;
    q8_1_encode<8>(v, words, &scale, &sum);
    if (i >= n)
        return;
    uint2 packed;
    packed.x = words[0];
    packed.y = words[1];
    *(uint2 *)(q + i) = packed;
    if (i % 32 == 0) {
        d[i / 32] = scale;
        sums[i / 32] = scale * (float)sum;
    }
}

/* Thread i takes eight values of the padded rows, laid end to end: a row's neighbours in
   memory are neighbours in the warp. padded is a multiple of 512, cols of 32. */
template <int ACT>
static __global__ void d4_kernel(const float *a, const float *b, uint8_t *d4,
                                 int64_t rows, int cols, int padded)
{
    const int64_t i = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    const int64_t row = i / padded;
    const int k = (int)(i % padded);
    const struct scales one = {1.0f, 1.0f};
    float v[8] = {};
    if (row < rows && k < cols)
        activate8<ACT>(a + row * cols + k, b + row * cols + k, one, v);
    uint32_t words[2];
    float scale;
    int sum;
    q8_1_encode<8>(v, words, &scale, &sum);
    if (row >= rows)
        return;
    uint8_t *block = d4 + ((int64_t)(k / 128) * rows + row) * 144;
    uint2 packed;
    packed.x = words[0];
    packed.y = words[1];
    *(uint2 *)(block + 16 + k % 128) = packed;
    if (k % 32 == 0)
        *(float *)(block + k % 128 / 8) = scale; /* the scale of a block of 32: 4 bytes */
}

template <int ACT>
static int d4(const float *a, const float *b, void *out, int64_t rows, int64_t cols,
              struct CUstream_st *stream)
{
    if (cols < 0 || cols > (1 << 30) || cols % 32 != 0)
        return KG_E_INVALID;
    const int64_t padded = (cols + 511) / 512 * 512, n = size_product(rows, padded);
    if (n < 0 || !grid_blocks(n + 1, 8 * KG_THREADS) || !pointer_fits(a, n, 16) ||
        !pointer_fits(b, n, 16) || !pointer_fits(out, n, 16))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(n, 8 * KG_THREADS), KG_THREADS, 0,
                     d4_kernel<ACT>, a, b, (uint8_t *)out, rows, (int)cols, (int)padded);
}

int kg_add(const float *a, const float *b, float *y, int64_t n,
           struct CUstream_st *stream)
{
    return binary<ADD>(a, b, y, {1.0f, 1.0f}, n, stream);
}

int kg_silu_mul(const float *gate, const float *up, float *y, int64_t n,
                struct CUstream_st *stream)
{
    return binary<SILU_MUL>(gate, up, y, {1.0f, 1.0f}, n, stream);
}

int kg_silu_mul_scaled(const float *gate, const float *up, float gate_scale,
                       float up_scale, float *y, int64_t n, struct CUstream_st *stream)
{
    return binary<SILU_MUL>(gate, up, y, {gate_scale, up_scale}, n, stream);
}

int kg_gelu_mul(const float *gate, const float *up, float *y, int64_t n,
                struct CUstream_st *stream)
{
    return binary<GELU_MUL>(gate, up, y, {1.0f, 1.0f}, n, stream);
}

int kg_silu_mul_scaled_q8_1(const float *gate, const float *up, float gate_scale,
                            float up_scale, int8_t *q, float *d, float *s, int64_t n,
                            struct CUstream_st *stream)
{
    if (size_product(n, 1) < 0 || n % 32 != 0 || !grid_blocks(n + 1, 8 * KG_THREADS) ||
        !pointer_fits(gate, n, 16) || !pointer_fits(up, n, 16) ||
        !pointer_fits(q, n, 16) || !pointer_fits(d, n, 4) || !pointer_fits(s, n, 4))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    const struct scales scales = {gate_scale, up_scale};
    return KG_LAUNCH(stream, grid_blocks(n, 8 * KG_THREADS), KG_THREADS, 0,
                     silu_mul_q8_1_kernel, gate, up, q, d, s, scales, n);
}

int kg_quantize_d4(const float *x, void *out, int64_t rows, int64_t cols,
                   struct CUstream_st *stream)
{
    return d4<FIRST>(x, x, out, rows, cols, stream);
}

int kg_act_quantize_d4(enum kg_activation activation, const float *gate, const float *up,
                       void *out, int64_t rows, int64_t cols, struct CUstream_st *stream)
{
    if (activation == KG_SILU)
        return d4<SILU_MUL>(gate, up, out, rows, cols, stream);
    if (activation == KG_GELU)
        return d4<GELU_MUL>(gate, up, out, rows, cols, stream);
    return KG_E_INVALID;
}
