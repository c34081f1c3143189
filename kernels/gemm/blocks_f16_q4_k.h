/*
 * Q4_K in products of blocks with halves (blocks_f16.h).
 *
 * Sixteen times a weight, in halves, with scale d * sc and minimum dmin * m of its unit and
 * code n, each f16() one rounding to nearest even:
 *
 *   even units   w16 = f16(n * S - M),      S = f16(16 d * sc)
 *   odd units    w16 = f16(16 n * S - M),   S = f16(d * sc)          M = f16(16 dmin * m)
 *
 * so that neither small scales nor small weights become subnormal early. It is infinite from
 * weights of 4094 on. The sum is divided by sixteen at the end.
 *
 * The code of an odd unit is in the high bits of a byte: 1024 plus a byte is a half whose low
 * bits are the byte; without its low four it is 16 n. Of a unit's 32 elements 0..15 are added
 * first, then 16..31.
 */
#ifndef KGATE_KERNELS_GEMM_BLOCKS_F16_Q4_K_H
#define KGATE_KERNELS_GEMM_BLOCKS_F16_Q4_K_H

#include "kernels/device/f16x2.h"
#include "kernels/gemm/blocks_f16.h"

struct blocks_f16_q4_k {
    enum {
        BLOCK = 256,
        SCALES_PITCH = 48, /* bytes of a row: 8 pairs S, -M, and 16 for the banks */
        SCALES = 16 * SCALES_PITCH,
    };

    /* Where the thread reads and writes shared memory: by lane % 16 a row's scales and
       codes of a slab, by lane / 4 the unpacked scales, and a token in a stage. Swizzled addresses
       are xored by 16 times the chunk. */
    uint32_t head, scales_to, scales, codes, x;

    __device__ inline blocks_f16_q4_k(uint32_t own, uint32_t to)
    {
        const int lane = threadIdx.x % 32, r = lane % 16, part = lane / 16;
        const int t = token(lane / 4), tig = lane % 4;
        head = kg_opaque(own + r * BLOCKS_PITCH);
        codes = kg_opaque(head + 16 + 16 * part);
        scales_to = kg_opaque(own + to + r * SCALES_PITCH + 16 * part);
        scales = kg_opaque(own + to + lane / 4 * SCALES_PITCH);
        x = kg_opaque(t * 128 + (t ^ tig / 2) * 16 + tig % 2 * 8);
    }

    /* Even tokens first: four of them and eight bytes of a thread each are all banks. */
    static __device__ inline int token(int column)
    {
        return column % 4 * 2 + column / 4;
    }

    static __device__ inline float power()
    {
        return 0x1p-4f;
    }

    /* S and -M of a slab: a lane has four units of a row. The six bits of units 0 .. 3 are
       the low ones of words 1 (scale) and 2 (minimum); units 4 .. 7 have the low four bits
       in word 3 and the high two on top of words 1 and 2. */
    __device__ inline void unpack_scales(unsigned char *smem, uint32_t slab,
                                         uint32_t high) const
    {
        const bool part = threadIdx.x / 16 % 2;
        const uint4 v = kg_load_uint4(smem + (head + slab));
        const uint32_t sc =
            part ? (v.w & 0x0f0f0f0fu) | (v.y >> 2 & 0x30303030u) : v.y & 0x3f3f3f3fu;
        const uint32_t m = part ? (v.w >> 4 & 0x0f0f0f0fu) | (v.z >> 2 & 0x30303030u)
                                : v.z & 0x3f3f3f3fu;
        const uint32_t even = kg_hmul2(v.x, 0xcc004c00u), /* 16 d, -16 dmin */
            odd = kg_hmul2(v.x, 0xcc003c00u);             /* d, -16 dmin */
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t both =
                (__byte_perm(sc, m, 0x0400u + i * 0x0101u) & 0x00ff00ffu) |
                (high & 0xff00ff00u);
            pairs[i] = kg_hmul2(kg_hadd2(both, 0xe400e400u), i % 2 ? odd : even);
        }
        *(uint4 *)(smem + scales_to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }

    /* From four bytes of codes: elements 0, 1 and 2, 3 of an even unit and of the odd one. */
    static __device__ inline void values(uint32_t v, uint2 scale, uint32_t high,
                                         uint32_t even[2], uint32_t odd[2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t both = __byte_perm(v, high, i ? 0x4342u : 0x4140u);
            const uint32_t low = both & 0xff0fff0fu;
            even[i] = kg_hfma2_low_high(kg_hadd2(low, 0xe400e400u), scale.x);
            odd[i] = kg_hfma2_low_high(kg_hsub2(both, low), scale.y);
        }
    }

    /* One unit: a by four bytes of codes (chunk and row), pair; x: of the unit, one of two of
       a tile. */
    static __device__ inline void unit(const uint32_t a[4][2], const unsigned char *smem,
                                       uint32_t x, float acc[2][4])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t rows[4] = {a[2 * i][0], a[2 * i + 1][0], a[2 * i][1],
                                      a[2 * i + 1][1]};
#pragma unroll
            for (int ni = 0; ni < 2; ni++) {
                const uint2 v = kg_load_uint2(smem + (x ^ 32 * i) + ni * 8 * 128);
                const uint32_t b[2] = {v.x, v.y};
                kg_mma_f16_16816(acc[ni], rows, b);
            }
        }
    }

    /* One slab, from its place in the first stage's and of the activations; rows of this type
       have no part of one. */
    __device__ inline void slab(unsigned char *smem, uint32_t slab, uint32_t x_slab,
                                uint32_t high, int units, float acc[2][4]) const
    {
        const uint32_t from = codes + slab, by = x + x_slab;
        if (units <= 0)
            return;
        __syncwarp();
        unpack_scales(smem, slab, high);
        __syncwarp();
#pragma unroll
        for (int p = 0; p < BLOCKS_UNITS / 2; p++) {
            uint32_t v[4], even[4][2], odd[4][2];
            const uint2 scale[2] = {
                kg_load_uint2(smem + scales + 8 * p),
                kg_load_uint2(smem + scales + 8 * p + 8 * SCALES_PITCH)};
            kg_ldmatrix_x4(v, smem + from + 32 * p);
#pragma unroll
            for (int i = 0; i < 4; i++)
                values(v[i], scale[i % 2], high, even[i], odd[i]);
            unit(even, smem + p * BLOCKS_X_TILE, by, acc);
            unit(odd, smem + p * BLOCKS_X_TILE, by ^ 64, acc);
        }
    }
};

#endif
