/*
 * The f16 product of NVFP4 blocks with up to 16 tokens, without a mirror: what f16.cu computes
 * from the mirror, read from a quarter of the bytes.
 *
 *   w [out][in] NVFP4 blocks    h [m][in] halves    y[t][o] = sum_k w[o][k] * h[t][k]
 *
 * A weight is an E2M1 code times a UE4M3 scale: at most six significant bits. The code's bits
 * are put where a half has them, which makes 2^-14 of its value; times 2^7 of the scale as a
 * half that is w * 2^-7, exact from the smallest (2^-17) to the largest. So the
 * products are exact up to that power of two, which the sum is multiplied by at the end. Weights
 * from 2^-7 on are normal halves then: the tensor cores align a product by its operands'
 * exponents, and a subnormal's is that of the smallest normal half, so that it costs
 * the sum bits that it has not. They are
 * added in f32 by mma.sync m16n8k16: units of 32 weights ascending, in each first elements
 * 0..7 of both groups of 16, then elements 8..15. Results agree with f16.cu within a bound.
 *
 * Copies, rings and barriers are those of narrow.h.
 */
#include "kernels/device/f16x2.h"
#include "kernels/gemm/launch.h"

struct narrow_f16 {
    typedef from_blocks<fmt_nvfp4, 256> source;
    typedef narrow_shape<source> N;
    enum {
        UNITS = N::UNITS,
        SLAB_UNITS = N::SLAB_UNITS,
        X_PITCH = 64 * UNITS + 64, /* two rows cover all banks */
        X_STAGE = 16 * X_PITCH,
        SCALES = (SLAB_UNITS * 2 * 16 + 16) * 4, /* of a slab; 16 words for the banks */
    };

    /* Four halves a copy; a thread of the tensor core wants elements 4w .. 4w + 3 and
       8 + 4w .. of group g side by side, at t = 2g + w. */
    static __device__ inline void copy_x(const gemm_int8_args &g, unsigned char *x,
                                         int unit0, const narrow_bringers &by)
    {
        const int lane = threadIdx.x % 32, p = lane % 8;
        const int units = min((int)UNITS, g.units - unit0);
        const int place = lane / 8 * 64 + (p / 4 * 2 + p % 2) * 16 + p / 2 % 2 * 8;
#pragma unroll 1
        for (int t = by.first; t < 16; t += by.count) {
            const int left = t < (int)g.m ? units : 0;
            const uint32_t at = (uint32_t)t * (uint32_t)g.units + (uint32_t)unit0;
            const uint8_t *const from =
                (const uint8_t *)g.q + (uint64_t)at * 64 + 8 * lane;
            unsigned char *const to = x + t * X_PITCH + place;
#pragma unroll
            for (int j = 0; j < UNITS / 4; j++)
                kg_cp_async_8(to + 256 * j, from + 256 * j,
                              lane / 8 + 4 * j < left ? 8 : 0);
        }
    }

    /* The scales of a slab as pairs of one half: a lane has two blocks of a row. */
    static __device__ inline void unpack_scales(const uint8_t *row, uint32_t *scales)
    {
        const int part = threadIdx.x / 16 % 2;
        scales += gemm_scale_slot(threadIdx.x % 16) + part * (SLAB_UNITS * 16 + 16);
        const narrow_nvfp4_scales from(row + 72 * part, 36, 2);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            /* a code's bits seven places up are a half, 2^8 too small for the scale */
            const uint32_t code =
                __byte_perm(from.w[i / 4], 0, 0x4040u + i % 4 * 0x0101u);
            scales[i * 16] = kg_hmul2(code << 7, 0x78007800u);
        }
    }

    /* Elements 4w + 0, 1 and 2, 3, then 8 + 4w + 0, 1 and 2, 3 of a group from word w of it. */
    static __device__ inline void values(uint32_t v, uint32_t scale, uint32_t h[4])
    {
        const uint32_t even = (v << 4 & 0x80808080u) | (v << 1 & 0x0e0e0e0eu),
                       odd = (v & 0x80808080u) | (v >> 3 & 0x0e0e0e0eu);
        h[0] = kg_hmul2(__byte_perm(even, 0, 0x1404), scale);
        h[1] = kg_hmul2(__byte_perm(even, 0, 0x3424), scale);
        h[2] = kg_hmul2(__byte_perm(odd, 0, 0x1404), scale);
        h[3] = kg_hmul2(__byte_perm(odd, 0, 0x3424), scale);
    }

    static __device__ inline void unit(const uint8_t *low, const uint8_t *high,
                                       const unsigned char *x, const uint32_t *scales,
                                       int u, float acc[2][4])
    {
        const int at = 36 * (u >> 1) + 4 + 16 * (u & 1);
        const uint2 scale = *(const uint2 *)(scales + u * 32 + u / 4 * 16);
        uint32_t a[2][4];
        values(kg_load_u32(low + at), scale.x, a[0]);
        values(kg_load_u32(high + at), scale.y, a[1]);
#pragma unroll
        for (int ni = 0; ni < 2; ni++) {
            const uint4 b = kg_load_uint4(x + ni * 8 * X_PITCH + u * 64);
            const uint32_t first[4] = {a[0][0], a[1][0], a[0][1], a[1][1]};
            const uint32_t second[4] = {a[0][2], a[1][2], a[0][3], a[1][3]};
            const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
            kg_mma_f16_16816(acc[ni], first, b0);
            kg_mma_f16_16816(acc[ni], second, b1);
        }
    }

    __device__ inline void step(const gemm_int8_args &g, float *scales_,
                                const unsigned char *stage, const unsigned char *x,
                                int64_t row0, int slab, int units, float acc[2][4]) const
    {
        uint32_t *const scales = (uint32_t *)scales_;
        const int lane = threadIdx.x % 32, gid = lane / 4, tig = lane % 4;
        const uint8_t *row = narrow_row<source, 0>(g, stage, row0, lane % 16, slab);
        const uint8_t *low = narrow_row<source, 0>(g, stage, row0, gid, slab) + 4 * tig;
        const uint8_t *high =
            narrow_row<source, 0>(g, stage, row0, gid + 8, slab) + 4 * tig;
        x += gid * X_PITCH + 16 * tig;
#pragma unroll 1
        for (int half = 0; half < 2 && units > 0; half++) {
            if (half)
                __syncwarp();
            unpack_scales(row, scales);
            __syncwarp();
            const uint32_t *own = scales + tig / 2 * 16 + 2 * gid;
            if (units >= SLAB_UNITS) {
#pragma unroll
                for (int u = 0; u < SLAB_UNITS; u++)
                    unit(low, high, x, own, u, acc);
            } else {
#pragma unroll 1
                for (int u = 0; u < units; u++)
                    unit(low, high, x, own, u, acc);
            }
            units -= SLAB_UNITS;
            row += 144;
            low += 144;
            high += 144;
            x += 64 * SLAB_UNITS;
        }
    }

    static __device__ inline void finish(float acc[2][4])
    {
        for (int ni = 0; ni < 2; ni++)
            for (int i = 0; i < 4; i++)
                acc[ni][i] *= 0x1p7f;
    }
};

int gemm_f16_blocks(int type, const void *w, const void *h, float *y, int64_t in,
                    int64_t out, int64_t m, struct CUstream_st *stream)
{
    if (type != KG_TYPE_NVFP4)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, m, 64));
    if (in == 0)
        return KG_E_INVALID;
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, 1, 16) || !pointer_fits(h, 1, 16) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    if (m > 16 || in > (int64_t)1 << 30)
        return KG_E_UNSUPPORTED;
    gemm_int8_args g = {};
    g.w[0] = (const uint8_t *)w;
    g.row_bytes[0] = in / 64 * 36;
    g.q = (const int8_t *)h;
    g.y = y;
    g.in = in;
    g.out = out;
    g.m = m;
    g.units = (int)(in / 32);
    g.slabs = (int)((in + 255) / 256);
    return gemm_launch_narrow<narrow_f16>(g, stream);
}
