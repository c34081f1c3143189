/*
 * Q4_K blocks to operand A of wgmma, in registers.
 *
 * A warp has 16 rows of a tile of weights whose blocks lie in shared memory, 144 bytes a row.
 * With g = lane / 4 and t = lane % 4 a lane needs, for every 16 of k, weights 2t, 2t + 1,
 * 2t + 8 and 2t + 9 of rows g and g + 8. A step of 64 k takes 32 bytes of codes a row, whose
 * low nibbles are its first 32 weights and whose high ones the rest: pairs of bytes 2t
 * of each 8 are all that a lane reads, and rows 36 words apart lie in different banks.
 *
 * A code alone in the low nibble of a half is that half's value times 2^24 (a subnormal), in
 * the next nibble times 2^20. So its conversion to f32, one instruction of full rate, is
 * exact, and the scale takes the power of two. A weight is fmaf(scale, code, minimum) rounded
 * to f16: scale and code have 17 and 4 bits, their product is exact, and so the weight is
 * that of dequantize_f16.
 */
#ifndef KGATE_KERNELS_GROUPED_Q4_K_FRAGMENT_H
#define KGATE_KERNELS_GROUPED_Q4_K_FRAGMENT_H

#include "kernels/device/f16x2.h"
#include "kernels/device/sm90.h"
#include "kernels/matvec/formats.h"

enum { Q4_K_BYTES = fmt_q4_k::BYTES, Q4_K_HEAD = 16, Q4_K_STEPS = 4 };

/* Of a row and a step: scale * 2^24 and negated minimum of the first unit, scale * 2^20 and
   negated minimum of the second. */
struct q4_k_scales {
    float4 of[Q4_K_STEPS][16];
};

static __device__ __forceinline__ float2 q4_k_halves_f32(uint32_t h)
{
    float2 f;
    asm("{\n.reg .b16 lo, hi;\nmov.b32 {lo, hi}, %2;\ncvt.f32.f16 %0, lo;\n"
        "cvt.f32.f16 %1, hi;\n}"
        : "=f"(f.x), "=f"(f.y)
        : "r"(h));
    return f;
}

/* The warp decodes the scales of its 16 rows, half a row a lane. */
static __device__ __forceinline__ void q4_k_decode(const uint8_t *rows,
                                                   struct q4_k_scales *scales)
{
    const int lane = threadIdx.x % 32, row = lane / 2, high = lane % 2;
    const uint4 head = kg_load_uint4(rows + row * Q4_K_BYTES);
    const uint32_t sc = high ? (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u)
                             : head.y & 0x3f3f3f3fu;
    const uint32_t m = high ? (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u)
                            : head.z & 0x3f3f3f3fu;
    const float2 d = q4_k_halves_f32(head.x);
    float a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = d.x * (float)(sc >> 8 * i & 255u);
        b[i] = -(d.y * (float)(m >> 8 * i & 255u));
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        scales->of[2 * high + i][row] = make_float4(a[2 * i] * 0x1p24f, b[2 * i],
                                                    a[2 * i + 1] * 0x1p20f, b[2 * i + 1]);
}

static __device__ __forceinline__ uint32_t q4_k_pair(uint32_t codes, float a, float b)
{
    const float2 c = q4_k_halves_f32(codes);
    return kg_round_half2(fmaf(a, c.x, b), fmaf(a, c.y, b));
}

/* Registers of the four k16 of step `step`; `rows` and `scales` are the warp's. */
static __device__ __forceinline__ void q4_k_unpack(uint32_t (&a)[4][4],
                                                   const uint8_t *rows,
                                                   const struct q4_k_scales *scales,
                                                   int step)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint8_t *codes =
            rows + (g + 8 * r) * Q4_K_BYTES + Q4_K_HEAD + step * 32 + 2 * t;
        const float4 s = scales->of[step][g + 8 * r];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const uint32_t two = *(const uint16_t *)(codes + 8 * c);
            const uint32_t v = __byte_perm(two, 0, 0x4140);
            a[c / 2][c % 2 * 2 + r] = q4_k_pair(v & 0x000f000fu, s.x, s.y);
            a[2 + c / 2][c % 2 * 2 + r] = q4_k_pair(v & 0x00f000f0u, s.z, s.w);
        }
    }
}

#endif
