/*
 * E4M3 weights: the fast product, and the plain one with the same bits.
 *
 * The plain kernel computes a unit's dot as an integer: an E4M3 code is a multiple of 2^-9 of
 * at most 229376 of them, so the sum of 32 products with int8 fits 32 bits, and the conversion
 * to f32 is the one rounding that kgate/ops/mmvq.h states.
 */
#include "kernels/mmvq/e4m3.h"
#include "kernels/mmvq/launch.h"

static __device__ inline float e4m3_dot(const uint8_t *w, const int8_t *q)
{
    int dot = 0;
    bool nan = false;
    for (int k = 0; k < KG_UNIT; k++) {
        const float v = kg_e4m3_to_f32(w[k]);
        nan = nan || v != v;
        dot += v == v ? (int)(v * 512.0f) * q[k] : 0;
    }
    return nan ? NAN : (float)dot * 0x1p-9f;
}

static __global__ void plain_e4m3_kernel(const struct product_tensor t, const int8_t *q,
                                         const float *d, int64_t in, int scale_kind)
{
    const int lane = threadIdx.x % 32;
    const int64_t o = (int64_t)blockIdx.x * KG_WARPS + threadIdx.x / 32;
    const int64_t r = blockIdx.y, units = in / KG_UNIT;
    if (o >= t.out)
        return;
    float acc = 0.0f;
    for (int64_t i = lane; i < units; i += 32) {
        const float a = scale_kind == KG_SCALE_BLOCK
                            ? t.scales[o / 128 * ((in + 127) / 128) + i / 4]
                            : 1.0f;
        const float dot = e4m3_dot(t.w + o * in + i * KG_UNIT, q + r * in + i * KG_UNIT);
        acc = fmaf(a, d[r * units + i] * dot, acc);
    }
    const float sum = warp_sum(acc);
    if (lane == 0)
        t.y[r * t.out + o] =
            (scale_kind == KG_SCALE_ROW ? sum * t.scales[o] : sum) * t.scale;
}

static int run_plain_e4m3(const struct product_tensor &t, const int8_t *q, const float *d,
                          const float *, int64_t in, int64_t m, int scale_kind,
                          struct CUstream_st *stream)
{
    for (int64_t r = 0; r < m; r += 65535) {
        struct product_tensor part = t;
        part.y = t.y + r * t.out;
        const unsigned rows = (unsigned)min64(m - r, 65535);
        KG_TRY(KG_LAUNCH(stream, dim3(grid_blocks(t.out, KG_WARPS), rows), 32 * KG_WARPS,
                         0, plain_e4m3_kernel, part, q + r * in, d + r * (in / KG_UNIT),
                         in, scale_kind));
    }
    return KG_OK;
}

const struct product_row product_row_e4m3 = {
    KG_TYPE_F8_E4M3, KG_LAYOUT_FILE, 32, 1, false, run_product<read_e4m3>, run_plain_e4m3,
};
