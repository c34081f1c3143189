/*
 * The arithmetic of the wide product (wide.h) for Q3_K: 2048 weights of a slot's rows, by a warp of its
 * team.
 *
 * A warp has a block of each row, whose two quads (kernels/matvec/unit.h) share the bytes of the third
 * bits and of the scales. Blocks have 110 bytes, so those of odd warps start in the middle of a
 * word: ODD, for which the code is compiled twice.
 *
 * Three bits, the third inverted, at the top of a byte are 32 (q - 4), so no offset is left; scales are a
 * 32nd of what they are, which the exponent of the f32 that they are put into does. Scales of two
 * units of a row, one of each quad, are read by a lane each and exchanged through shared memory, as each
 * lane needs all eight of its rows g and g + 8.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_QUADS_H
#define KGATE_KERNELS_MMVQ_WIDE_QUADS_H

#include "kernels/mmvq/wide_shared.h"

/* The joint dot: from c0, c1, which are 32 times the groups' dots, and a 32nd of the scales. `less` is
   what DOT_ZERO takes off. Exact: all are integers, below 2^24 also before the second is added. */
static __device__ __forceinline__ float wide_join(int c0, int c1, float sc0, float sc1,
                                                  float less)
{
    return fmaf(sc1, __int_as_float(c1), fmaf(sc0, __int_as_float(c0), less));
}

/* Word at byte `off` of a block, a multiple of 4. p: the multiple of 4 at or before the block. */
template <bool ODD>
static __device__ __forceinline__ uint32_t block_word(const uint8_t *p, int off)
{
    const uint32_t *w = (const uint32_t *)(p + off);
    return ODD ? __funnelshift_r(w[0], w[1], 16) : w[0];
}

/* Codes of unit u of a quad, whose third bits are at 4 + u of each byte. */
static __device__ __forceinline__ uint32_t quad_codes(uint32_t two, uint32_t third, int u)
{
    if (u == 2)
        return (((two & 0x30303030u) | 0x40404040u) ^ (third & 0x40404040u)) << 1;
    const uint32_t low = u < 2 ? two << (5 - 2 * u) : two >> 1;
    return (low & 0x60606060u) | (~(third << (3 - u)) & 0x80808080u);
}

/* A 32nd of the scale in byte i of v. */
static __device__ __forceinline__ float quad_scale(uint32_t v, int i)
{
    return __uint_as_float(__byte_perm(v, 0x48800000u, 0x7640u + (unsigned)i)) -
           262145.0f;
}

/* What does not change for a lane: places in bytes from a slot, from the warp's scales and from what is
   shared of q. */
struct quad_lane {
    int words, low, high, block; /* of the warp's first block in row g */
    int put, get;
    int codes, d;
    int shift; /* of the two bits of its scales */

    /* Shuffled, or they would be computed at each use. */
    __device__ __forceinline__ void start(int w, int stride)
    {
        const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
        const int at = g * stride + (int)fmt_q3_k::BYTES * w;
        block = own(at);
        words = own(at - 2 * (w % 2) + 4 * t);
        low = own(at + 96 + 2 * t);
        high = own(at + 104 + 2 * (t % 2));
        put = own(32 * g + 8 * t);
        get = own(32 * g);
        codes = own(16 * lane);
        d = own(16 * t);
        shift = own(2 * (t / 2));
    }
    static __device__ __forceinline__ int own(int v)
    {
        return __shfl_sync(KG_WARP_ALL, v, threadIdx.x % 32);
    }
};

/* Scales of unit t of both quads of a block, and what DOT_ZERO takes off: kind k to to[128 * k] and the
   place behind it. */
static __device__ __forceinline__ void quad_scales(const uint8_t *row,
                                                   const struct quad_lane &own, float *to)
{
    const uint32_t low = kg_load_u16(row + own.low);
    const uint32_t high = kg_load_u16(row + own.high) >> own.shift;
    const uint32_t v[2] = {(low & 0x0f0fu) | (high << 4 & 0x3030u),
                           (low >> 4 & 0x0f0fu) | (high & 0x3030u)};
    float2 sc[3];
    sc[0] = make_float2(quad_scale(v[0], 0), quad_scale(v[1], 0));
    sc[1] = make_float2(quad_scale(v[0], 1), quad_scale(v[1], 1));
    sc[2] =
        make_float2(-DOT_ZERO_F * (sc[0].x + sc[1].x), -DOT_ZERO_F * (sc[0].y + sc[1].y));
    for (int k = 0; k < 3; k++)
        *(float2 *)(to + 128 * k) = sc[k];
}

/* Block j of the warp in a slot. acc[4 * quad + i], i as in the fragment. */
template <class W, int S, bool ODD>
static __device__ __forceinline__ void
wide_quads(const uint8_t *slot, int j, const struct wide_shared<W> &x, int pair,
           const struct quad_lane &own, const struct tile_quad &zero, uint8_t *scales,
           float acc[8])
{
    using L = wide_slot<W, S>;
    using X = wide_x<W>;
    uint32_t two[2][2][2], third[2][2][2]; /* [row][quad][half of a unit] */
    float m[2];
    __syncwarp(); /* the last scales have been read */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint8_t *const row = slot + 2 * j / L::thousands * L::box +
                                   2 * j % L::thousands * W::plane_bytes(0) +
                                   8 * h * L::stride(0);
        quad_scales(row, own, (float *)(scales + own.put + 256 * h));
        m[h] = load_half(row + own.block + 108);
        for (int i = 0; i < 2; i++) {
            third[h][1][i] = block_word<ODD>(row + own.words, 16 * i);
            third[h][0][i] = third[h][1][i] << 4;
            for (int k = 0; k < 2; k++)
                two[h][k][i] = block_word<ODD>(row + own.words, 32 + 32 * k + 16 * i);
        }
    }
    __syncwarp();
    float f[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float factor[2][3][4]; /* [row][kind]: units 2n and 2n + 1, of both quads each */
        for (int h = 0; h < 2; h++)
            for (int k = 0; k < 3; k++) {
                const float4 v =
                    kg_load_float4(scales + own.get + 512 * k + 256 * h + 16 * n);
                factor[h][k][0] = v.x;
                factor[h][k][1] = v.y;
                factor[h][k][2] = v.z;
                factor[h][k][3] = v.w;
            }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int from = pair + 2 * k + n;
            uint32_t b[2][4];
            const uint4 codes = kg_load_uint4(x.codes + X::CODE_BYTES * from + own.codes);
            b[0][0] = codes.x;
            b[0][1] = codes.y;
            b[1][0] = codes.z;
            b[1][1] = codes.w;
            float d[2][2];
            wide_scales_of_q((uint8_t *)(x.d + 16 * from) + own.d, d);
#pragma unroll
            for (int v = 0; v < 2; v++) {
                const int u = 2 * n + v;
                int dot[2][4];
                for (int i = 0; i < 2; i++) {
                    const uint32_t a[2] = {quad_codes(two[0][k][i], third[0][k][i], u),
                                           quad_codes(two[1][k][i], third[1][k][i], u)};
                    kg_mma_s8_16816_add(dot[i], a, b[v] + i, zero.v);
                }
                for (int i = 0; i < 4; i++) {
                    const float(*const sc)[4] = factor[i / 2];
                    const int at = 2 * v + k;
                    f[k][i] = quad_step(
                        f[k][i], u, d[v][i % 2],
                        wide_join(dot[0][i], dot[1][i], sc[0][at], sc[1][at], sc[2][at]));
                }
            }
        }
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++)
            acc[4 * k + i] = fmaf(m[i / 2], f[k][i], acc[4 * k + i]);
}

#endif
