/*
 * NVFP4 in products of blocks with halves (blocks_f16.h).
 *
 * A weight is an E2M1 code times a UE4M3 scale: at most six significant bits. The code's bits
 * are put where a half has them, which makes 2^-14 of its value; times 2^7 of the scale as a
 * half that is w * 2^-7, exact from the smallest (2^-17) to the largest. So the
 * products are exact up to that power of two, which the sum is multiplied by at the end. Weights
 * from 2^-7 on are normal halves then: the tensor cores align a product by its operands'
 * exponents, and a subnormal's is that of the smallest normal half, so that it costs
 * the sum bits that it has not.
 *
 * A thread of the tensor core has one of the four groups of 16 of a block, so that it needs no
 * other scale. Of a block first elements 0..3 of each group are added, then 4..7, 8..11, 12..15.
 */
#ifndef KGATE_KERNELS_GEMM_BLOCKS_F16_NVFP4_H
#define KGATE_KERNELS_GEMM_BLOCKS_F16_NVFP4_H

#include "kernels/device/f16x2.h"
#include "kernels/gemm/blocks_f16.h"

struct blocks_f16_nvfp4 {
    enum {
        BLOCK = 64,
        SCALES = 0, /* none are kept */
    };
    /* Where the thread reads shared memory: its first row and the codes of its group in a slab,
       a token in a stage. Swizzled addresses are xored by 16 times the chunk. pick: byte of its
       group from the scales of its two rows. */
    uint32_t head, codes, x, pick;

    __device__ inline blocks_f16_nvfp4(uint32_t own, uint32_t)
    {
        const int gid = threadIdx.x % 32 / 4, tig = threadIdx.x % 4;
        head = kg_opaque(own + gid * BLOCKS_PITCH);
        codes = kg_opaque(head + 4 + 8 * tig);
        x = kg_opaque(gid * 128 + (gid ^ 2 * tig) * 16);
        pick = kg_opaque(0x0400u + tig * 0x0101u);
    }

    static __device__ inline int token(int column)
    {
        return column;
    }

    static __device__ inline float power()
    {
        return 0x1p7f;
    }

    /* The scales of the thread's group in two rows. A code's bits seven places up are a half,
       2^8 too small; 0x7F counts as 0 and bit 7 as nothing. */
    static __device__ inline uint32_t scales(uint32_t low, uint32_t high, uint32_t pick)
    {
        const uint32_t v = (__byte_perm(low, high, pick) & 0x007f007fu) << 7;
        return kg_hmul2(kg_hmul2(v, 0x78007800u), kg_unequal_half2(v, 0x3f803f80u));
    }

    /* Elements 0, 1 and 2, 3 of the four in the low bits of a word's bytes, then those in
       the high bits; row 0 or 1 of `scale`. */
    template <int ROW>
    static __device__ inline void values(uint32_t v, uint32_t scale, uint32_t h[4])
    {
        const uint32_t even = (v << 4 & 0x80808080u) | (v << 1 & 0x0e0e0e0eu),
                       odd = (v & 0x80808080u) | (v >> 3 & 0x0e0e0e0eu);
        h[0] = kg_hmul2_by<ROW>(__byte_perm(even, 0, 0x1404), scale);
        h[1] = kg_hmul2_by<ROW>(__byte_perm(even, 0, 0x3424), scale);
        h[2] = kg_hmul2_by<ROW>(__byte_perm(odd, 0, 0x1404), scale);
        h[3] = kg_hmul2_by<ROW>(__byte_perm(odd, 0, 0x3424), scale);
    }

    /* One block of 16 rows. */
    static __device__ inline void block(const unsigned char *head,
                                        const unsigned char *codes,
                                        const unsigned char *smem, uint32_t x,
                                        uint32_t pick, float acc[2][4])
    {
        const uint32_t scale =
            scales(kg_load_u32(head), kg_load_u32(head + 8 * BLOCKS_PITCH), pick);
        uint32_t a[2][2][4]; /* of both words and rows */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            values<0>(kg_load_u32(codes + 4 * i), scale, a[i][0]);
            values<1>(kg_load_u32(codes + 4 * i + 8 * BLOCKS_PITCH), scale, a[i][1]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) { /* elements 0 .. 7, then 8 .. 15 of a group */
            const uint32_t first[4] = {a[0][0][2 * i], a[0][1][2 * i], a[0][0][2 * i + 1],
                                       a[0][1][2 * i + 1]};
            const uint32_t second[4] = {a[1][0][2 * i], a[1][1][2 * i],
                                        a[1][0][2 * i + 1], a[1][1][2 * i + 1]};
#pragma unroll
            for (int ni = 0; ni < 2; ni++) {
                const uint4 v = kg_load_uint4(smem + (x ^ 16 * i) + ni * 8 * 128);
                const uint32_t b0[2] = {v.x, v.y}, b1[2] = {v.z, v.w};
                kg_mma_f16_16816(acc[ni], first, b0);
                kg_mma_f16_16816(acc[ni], second, b1);
            }
        }
    }

    /* One slab, from its place in the first stage's and of the activations, of which there
       are `units`, more or none. */
    __device__ inline void slab(const unsigned char *smem, uint32_t slab, uint32_t x_slab,
                                uint32_t, int units, float acc[2][4]) const
    {
        const unsigned char *const from = smem + (head + slab), *const at =
                                                                    smem + (codes + slab);
        const uint32_t by = x + x_slab;
        if (units >= BLOCKS_UNITS) {
#pragma unroll
            for (int b = 0; b < 4; b++)
                block(from + 36 * b, at + 36 * b, smem + b * BLOCKS_X_TILE, by, pick,
                      acc);
        } else {
#pragma unroll 1
            for (int b = 0; b < units / 2; b++)
                block(from + 36 * b, at + 36 * b, smem + b * BLOCKS_X_TILE, by, pick,
                      acc);
        }
    }
};

#endif
