/*
 * dequantize: dst[i] = value of element i            src [n] of any type, dst [n] f32
 * stage A:    y[r][o] = sum_k w[o][k] * x[r][k]      w [out][in], x [m][in], y [m][out]
 *
 * Values are those of unit_value (unit.h) to the bit, which are ggml's CPU values. Stage A
 * multiplies them in f32; order of additions for a row of a block type:
 *
 *   lane l:  acc = 0; for u = l, l+32, ..: for k = 0..31: acc = fma(w[32u+k], x[32u+k], acc)
 *   y = butterfly over the lanes (warp_sum)
 *
 * and for F32, F16 and BF16, whose rows may have any length:
 *
 *   lane l:  acc = 0; for k = l, l+32, ..: acc = fma(w[k], x[k], acc);   the same butterfly
 *
 * One warp a row of w. Up to TILE rows of x go through at once, each with an accumulator
 * of its own, so a row of a batch has the bits that it has alone.
 */
#include "kernels/matvec/formats.h"
#include "kernels/matvec/launch.h"

template <class T>
__global__ void dequantize_block_kernel(const uint8_t *src, float *dst, int64_t units)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    struct unit32 u;
    if (i >= units)
        return;
    unpack_unit<T>(src, i, &u);
    float4 *to = (float4 *)(dst + i * KG_UNIT);
    for (int k = 0; k < KG_UNIT; k += 4) {
        float4 v;
        v.x = unit_value<T>(u, k);
        v.y = unit_value<T>(u, k + 1);
        v.z = unit_value<T>(u, k + 2);
        v.w = unit_value<T>(u, k + 3);
        to[k / 4] = v;
    }
}

template <class T>
__global__ void dequantize_plain_kernel(const uint8_t *src, float *dst, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        dst[i] = T::load(src, i);
}

/* Writes the TILE sums of output o for rows r0 .. r0+TILE-1, of which m exist. */
template <int TILE>
static __device__ inline void store_sums(const float acc[TILE], float *y, int64_t r0,
                                         int64_t m, int64_t out, int64_t o, int lane)
{
    for (int t = 0; t < TILE; t++) {
        float sum = warp_sum(acc[t]);
        if (lane == 0 && r0 + t < m)
            y[(r0 + t) * out + o] = sum;
    }
}

template <class T, int TILE>
__global__ void stage_a_block_kernel(const uint8_t *w, const float *x, float *y,
                                     int64_t in, int64_t out, int64_t m)
{
    const int lane = threadIdx.x % 32;
    const int64_t o = (int64_t)blockIdx.x * KG_WARPS + threadIdx.x / 32;
    const int64_t units = in / KG_UNIT;
    if (o >= out)
        return;
    const uint8_t *row = w + o * (in / T::BLOCK) * T::BYTES;
    for (int64_t r0 = 0; r0 < m; r0 += TILE) {
        float acc[TILE] = {};
        for (int64_t i = lane; i < units; i += 32) {
            struct unit32 u;
            unpack_unit<T>(row, i, &u);
            for (int t = 0; t < TILE; t++) {
                const int64_t r = r0 + t < m ? r0 + t : m - 1;
                const float4 *from = (const float4 *)(x + r * in + i * KG_UNIT);
                for (int k = 0; k < KG_UNIT; k += 4) {
                    const float4 v = from[k / 4];
                    acc[t] = fmaf(unit_value<T>(u, k), v.x, acc[t]);
                    acc[t] = fmaf(unit_value<T>(u, k + 1), v.y, acc[t]);
                    acc[t] = fmaf(unit_value<T>(u, k + 2), v.z, acc[t]);
                    acc[t] = fmaf(unit_value<T>(u, k + 3), v.w, acc[t]);
                }
            }
        }
        store_sums<TILE>(acc, y, r0, m, out, o, lane);
    }
}

template <class T, int TILE>
__global__ void stage_a_plain_kernel(const uint8_t *w, const float *x, float *y,
                                     int64_t in, int64_t out, int64_t m)
{
    const int lane = threadIdx.x % 32;
    const int64_t o = (int64_t)blockIdx.x * KG_WARPS + threadIdx.x / 32;
    if (o >= out)
        return;
    const uint8_t *row = w + o * in * T::BYTES;
    for (int64_t r0 = 0; r0 < m; r0 += TILE) {
        float acc[TILE] = {};
        for (int64_t k = lane; k < in; k += 32) {
            const float v = T::load(row, k);
            for (int t = 0; t < TILE; t++) {
                const int64_t r = r0 + t < m ? r0 + t : m - 1;
                acc[t] = fmaf(v, x[r * in + k], acc[t]);
            }
        }
        store_sums<TILE>(acc, y, r0, m, out, o, lane);
    }
}

template <class T>
static int dequantize_block(const uint8_t *src, float *dst, int64_t n,
                            struct CUstream_st *stream)
{
    const int64_t units = n / KG_UNIT;
    return KG_LAUNCH(stream, grid_blocks(units, 128), 128, 0,
                     (dequantize_block_kernel<T>), src, dst, units);
}

template <class T>
static int dequantize_plain(const uint8_t *src, float *dst, int64_t n,
                            struct CUstream_st *stream)
{
    return KG_LAUNCH(stream, grid_blocks(n, 256), 256, 0, (dequantize_plain_kernel<T>),
                     src, dst, n);
}

template <class T>
static int stage_a_block(const uint8_t *w, const float *x, float *y, int64_t in,
                         int64_t out, int64_t m, struct CUstream_st *stream)
{
    const unsigned blocks = grid_blocks(out, KG_WARPS);
    if (m == 1)
        return KG_LAUNCH(stream, blocks, 32 * KG_WARPS, 0, (stage_a_block_kernel<T, 1>),
                         w, x, y, in, out, m);
    return KG_LAUNCH(stream, blocks, 32 * KG_WARPS, 0, (stage_a_block_kernel<T, 4>), w, x,
                     y, in, out, m);
}

template <class T>
static int stage_a_plain(const uint8_t *w, const float *x, float *y, int64_t in,
                         int64_t out, int64_t m, struct CUstream_st *stream)
{
    const unsigned blocks = grid_blocks(out, KG_WARPS);
    if (m == 1)
        return KG_LAUNCH(stream, blocks, 32 * KG_WARPS, 0, (stage_a_plain_kernel<T, 1>),
                         w, x, y, in, out, m);
    return KG_LAUNCH(stream, blocks, 32 * KG_WARPS, 0, (stage_a_plain_kernel<T, 4>), w, x,
                     y, in, out, m);
}

struct stage_a_row {
    int type, block, align;
    int (*dequantize)(const uint8_t *, float *, int64_t, struct CUstream_st *);
    int (*stage_a)(const uint8_t *, const float *, float *, int64_t, int64_t, int64_t,
                   struct CUstream_st *);
};

#define BLOCK_ROW(f)                                                                     \
    {                                                                                    \
        f::TYPE, f::BLOCK, f::ALIGN, dequantize_block<f>, stage_a_block<f>               \
    }
#define PLAIN_ROW(f)                                                                     \
    {                                                                                    \
        f::TYPE, 1, f::ALIGN, dequantize_plain<f>, stage_a_plain<f>                      \
    }

static const struct stage_a_row rows[] = {
    BLOCK_ROW(fmt_q4_0),   BLOCK_ROW(fmt_q4_1),  BLOCK_ROW(fmt_q5_0),
    BLOCK_ROW(fmt_q5_1),   BLOCK_ROW(fmt_q8_0),  BLOCK_ROW(fmt_q2_k),
    BLOCK_ROW(fmt_q3_k),   BLOCK_ROW(fmt_q4_k),  BLOCK_ROW(fmt_q5_k),
    BLOCK_ROW(fmt_q6_k),   BLOCK_ROW(fmt_iq3_s), BLOCK_ROW(fmt_iq4_nl),
    BLOCK_ROW(fmt_iq4_xs), BLOCK_ROW(fmt_mxfp4), BLOCK_ROW(fmt_nvfp4),
    PLAIN_ROW(fmt_f32),    PLAIN_ROW(fmt_f16),   PLAIN_ROW(fmt_bf16),
};

static const struct stage_a_row *find_row(int type)
{
    for (const struct stage_a_row &r : rows)
        if (r.type == type)
            return &r;
    return nullptr;
}

int kg_dequantize(int type, const void *src, float *dst, int64_t n,
                  struct CUstream_st *stream)
{
    const struct stage_a_row *row = find_row(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    if (size_product(n, 1) < 0 || n % row->block != 0 ||
        !pointer_fits(src, n, row->align) || !pointer_fits(dst, n, 16) ||
        (n > 0 && !grid_blocks(n, 128)))
        return KG_E_INVALID;
    return n == 0 ? KG_OK : row->dequantize((const uint8_t *)src, dst, n, stream);
}

int kg_stage_a(int type, const void *w, const float *x, float *y, int64_t in, int64_t out,
               int64_t m, struct CUstream_st *stream)
{
    const struct stage_a_row *row = find_row(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, m, row->block));
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, in, row->align) ||
        !pointer_fits(x, in, row->block == 1 ? 4 : 16) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    return row->stage_a((const uint8_t *)w, x, y, in, out, m, stream);
}
