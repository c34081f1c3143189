/*
 * The loader of Q4_K weights: as block_weights<fmt_q4_k>, arranged for the memory system.
 *
 * One thread a row, as block_weights has it, makes every load touch 32 cache lines a warp,
 * and a stage has fourteen of them. Here two neighbouring threads share a row: each takes
 * 16 bytes of codes a stage, which hold 16 weights of a unit in their low nibbles and 16 of
 * the next in the high ones (a stage of 64), and keeps the block's 16 bytes of scales in
 * registers for as long as the block lasts. That is two loads of 16 lines a stage, and two
 * more in every fourth.
 *
 * A thread has rows r and r + 64. The order of r over the threads is such that the eight
 * threads of one store phase cover all banks: their rows differ in bits 0 and 2, which the
 * swizzle of stage.h turns into chunks, and their chunks in bit 1.
 */
#ifndef KGATE_KERNELS_GROUPED_Q4_K_H
#define KGATE_KERNELS_GROUPED_Q4_K_H

#include "kernels/grouped/stage.h"

struct q4_k_weights {
    enum { ROWS = 2, BLOCK = fmt_q4_k::BLOCK, BYTES = fmt_q4_k::BYTES };

    /* Scale and negated minimum of group j of a block whose first 16 bytes are `head`. */
    static __device__ inline void scales(const uint4 &head, int j, float *a, float *b)
    {
        const int shift = 8 * (j & 3);
        const uint32_t low = head.y >> shift, middle = head.z >> shift,
                       high = head.w >> shift;
        const uint32_t sc = j < 4 ? low & 63 : (high & 15) | (low >> 6 & 3) << 4;
        const uint32_t m =
            j < 4 ? middle & 63 : (high >> 4 & 15) | (middle >> 6 & 3) << 4;
        *a = kg_half_to_f32(kg_half_from_bits((uint16_t)head.x)) * (float)sc;
        *b = -(kg_half_to_f32(kg_half_from_bits((uint16_t)(head.x >> 16))) * (float)m);
    }

    /* Eight weights of codes 0 .. 15; exact up to the last rounding, see unit_halves. */
    static __device__ inline uint4 halves(uint32_t c0, uint32_t c1, float a, float b)
    {
        float v[8];
        codes_f32(c0, v);
        codes_f32(c1, v + 4);
        for (int i = 0; i < 8; i++)
            v[i] = fmaf(a, v[i], b);
        return make_uint4(
            kg_pack_f32_to_half2(v[0], v[1]), kg_pack_f32_to_half2(v[2], v[3]),
            kg_pack_f32_to_half2(v[4], v[5]), kg_pack_f32_to_half2(v[6], v[7]));
    }

    template <int DEPTH>
    struct loader {
        const uint8_t *w[ROWS];
        uint4 head[ROWS], codes[ROWS];
        int row, side; /* the first row; which 16 of the 32 bytes */
        int part;      /* unit of the block that codes[] begins with */

        /* Past the last output any row will do: nobody stores what comes of it. */
        __device__ inline loader(const struct grouped_view &g, const struct tile &t)
        {
            const int u = threadIdx.x / 2;
            row = (u & 1) | (u & 2) << 1 | (u & 4) >> 1 | (u & ~7);
            side = threadIdx.x % 2;
            part = 0;
            for (int i = 0; i < ROWS; i++) {
                const int o = min(t.out + row + 64 * i, g.out - 1);
                w[i] = t.w + (int64_t)o * (g.in / BLOCK) * BYTES;
            }
        }
        __device__ inline void start(unsigned char *, int k)
        {
            const int64_t at = (int64_t)(k / BLOCK) * BYTES;
            part = k % BLOCK / KG_UNIT;
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const uint8_t *block = w[i] + at;
                if (part == 0)
                    head[i] = kg_load_uint4(block);
                codes[i] = kg_load_uint4(block + 16 + part / 2 * 32 + side * 16);
            }
        }
        __device__ inline void finish(unsigned char *stage) const
        {
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int unit = 0; unit < DEPTH / KG_UNIT; unit++) {
                    /* A stage of 64 begins with an even unit: no shift at run time. */
                    const int shift = 4 * (DEPTH == 64 ? unit : part & 1);
                    float a, b;
                    scales(head[i], part + unit, &a, &b);
                    const uint4 c = make_uint4(codes[i].x >> shift & 0x0f0f0f0fu,
                                               codes[i].y >> shift & 0x0f0f0f0fu,
                                               codes[i].z >> shift & 0x0f0f0f0fu,
                                               codes[i].w >> shift & 0x0f0f0f0fu);
                    const unsigned chunk = 4 * (unsigned)unit + 2 * (unsigned)side;
                    const unsigned r = (unsigned)row + 64 * (unsigned)i;
                    *(uint4 *)(stage + chunk_offset<DEPTH>(r, chunk)) =
                        halves(c.x, c.y, a, b);
                    *(uint4 *)(stage + chunk_offset<DEPTH>(r, chunk + 1)) =
                        halves(c.z, c.w, a, b);
                }
        }
    };
};

#endif
