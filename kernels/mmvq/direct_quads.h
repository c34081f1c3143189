/*
 * The direct product (direct.h) of Q3_K: lane (r, t) = (lane / 8, lane % 8) takes four units at
 * once of one row, a quad (kernels/matvec/unit.h), so a warp works on four rows (SETS times four).
 * Quads of the law's lanes t and t + 8 come in turn.
 *
 * Those four units are half of a block. They share 32 bytes of two-bit codes, and their high
 * bits the same 32 bytes of hmask, which are read and aligned once for all four. No code is put
 * together: unit j's dot is, with the codes where they are,
 *
 *   dot = dot(qs & 3 << 2j) / 4^j + dot(high & 1 << j) * 4 / 2^j - 4 * sum of x
 *
 * Both sums are integers that are divisible by what they are divided by, and each accumulator
 * starts at the bits of 1.5 * 2^23, so that it is an f32 without conversion: two fused
 * multiplications and additions with powers of two are exact and give the integer dot. What
 * those starts and the sum of x take off is one number for each half of a unit of q, kept in
 * shared memory with q. The halves' dots, times their scales, are joined before the block's
 * factor (unit.h); that is an integer below 2^24, exact as an f32.
 */
#ifndef KGATE_KERNELS_MMVQ_DIRECT_QUADS_H
#define KGATE_KERNELS_MMVQ_DIRECT_QUADS_H

#include "kernels/mmvq/direct.h"
#include "kernels/mmvq/direct_types.h"

#define QUAD_ZERO 0x4b400000 /* 1.5 * 2^23 as f32 */
#define QUAD_ZERO_F 12582912.0f

struct quad_q3_k {
    using F = fmt_q3_k;
    enum { PLANES = 1, SPREAD = 1 };
    static __device__ __host__ constexpr int field(int)
    {
        return F::BYTES;
    }
};

/* 2^-n, 0 <= n < 127 */
static __device__ __forceinline__ float power_of_half(int n)
{
    return __uint_as_float((uint32_t)(127 - n) << 23);
}

template <int UNITS_, int SETS>
struct direct_quads {
    using R = quad_q3_k;
    using F = R::F;
    enum { UNITS = UNITS_, ROWS = 4 * SETS };
    using L = direct_stage<R, UNITS>;
    static_assert(UNITS % 2 == 0, "turns of two lanes of the law");

    const uint8_t *x;
    const float *sd, *less[2];
    int units, r, t;
    float acc[SETS][2];

    /* Of the shared q: codes of whole 32 units, d, what is taken off the dots of the first and
       of the second halves. */
    static __host__ __device__ constexpr int x_bytes(int in)
    {
        return ((in + 1023) / 1024 * 1024 + in / 32 * 12 + 127) / 128 * 128;
    }

    static __device__ __forceinline__ void load(uint8_t *smem, const int8_t *q,
                                                const float *d, const float *, int units)
    {
        float *const to_d = (float *)(smem + (units + 31) / 32 * 1024);
        for (int u = (int)threadIdx.x; u < units; u += (int)blockDim.x) {
            const int j = u % 4;
            const float scale = power_of_half(2 * j) + 4.0f * power_of_half(j);
            /* Eight lanes read halves of unit j of eight quads at once. */
            uint8_t *const to = smem + u / 32 * 1024 + 256 * j + u % 32 / 4 * 16;
            for (int h = 0; h < 2; h++) {
                uint32_t v[4];
                load16((const uint8_t *)q + 32 * u + 16 * h, v);
                *(uint4 *)(to + 128 * h) = make_uint4(v[0], v[1], v[2], v[3]);
                int sum = 0;
                for (int i = 0; i < 4; i++)
                    sum = __dp4a((int)v[i], 0x01010101, sum);
                to_d[(1 + h) * units + u] = -QUAD_ZERO_F * scale - (float)(4 * sum);
            }
            to_d[u] = d[u];
        }
    }

    __device__ __forceinline__ direct_quads(uint8_t *smem, int n)
        : units(n), r((int)threadIdx.x % 32 / 8), t((int)threadIdx.x % 8)
    {
        x = smem + 16 * t;
        sd = (const float *)(smem + (units + 31) / 32 * 1024) + 4 * t;
        less[0] = sd + units;
        less[1] = sd + 2 * units;
    }

    __device__ __forceinline__ void begin(void)
    {
        for (int s = 0; s < SETS; s++)
            acc[s][0] = acc[s][1] = 0.0f;
    }

    /* Scales 8 half .. 8 half + 7 of the block at at + off, without their factor: low nibbles
       first, then two bits. */
    static __device__ __forceinline__ void scales(const uint8_t *smem, int at, int off,
                                                  int half, float sc[8])
    {
        uint32_t v[3];
        words_any<3>(smem, at, off + 96, 4 * half, v);
        const uint32_t all[2] = {(v[0] & 0x0f0f0f0fu) | (v[2] << 4 & 0x30303030u),
                                 (v[1] & 0x0f0f0f0fu) | (v[2] << 2 & 0x30303030u)};
        for (int i = 0; i < 8; i++) {
            const uint32_t bits = __byte_perm(all[i / 4], 0x4b000000u, 0x7440u + i % 4);
            sc[i] = __uint_as_float(bits) - 8388640.0f; /* 2^23 + 32 */
        }
    }

    template <bool WHOLE, class PHASE>
    __device__ __forceinline__ void stage(const uint8_t *smem, int slot,
                                          const PHASE &phase, int c)
    {
        const int half = t % 2;
        int at[SETS];
        for (int s = 0; s < SETS; s++)
            at[s] =
                slot + (4 * s + r) * L::row + (int)F::BYTES * (t / 2) + phase(4 * s + r);
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int group = c * UNITS + k;
            if (WHOLE || 32 * group + 4 * t < units) {
                uint32_t q[SETS][8], high[SETS][8];
                float sc[SETS][8], factor[SETS];
#pragma unroll
                for (int s = 0; s < SETS; s++) {
                    const int off = k * (L::bytes(0) / UNITS);
                    words_any<8>(smem, at[s] + 32 * half, off + 32, 0, q[s]);
                    words_any<8>(smem, at[s], off, 4 * half, high[s]);
                    scales(smem, at[s], off, half, sc[s]);
                    factor[s] = load_half(smem + at[s] + off + 108);
                }
                const float4 d4 = kg_load_float4(sd + 32 * group);
                const float4 l0 = kg_load_float4(less[0] + 32 * group);
                const float4 l1 = kg_load_float4(less[1] + 32 * group);
                const float d[4] = {d4.x, d4.y, d4.z, d4.w};
                const float off[2][4] = {
                    {l0.x, l0.y, l0.z, l0.w},
                    {l1.x, l1.y, l1.z, l1.w}
                };
                float quad[SETS] = {};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float joint[SETS] = {};
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        uint32_t v[4];
                        load16(x + 1024 * group + 256 * j + 128 * h, v);
#pragma unroll
                        for (int s = 0; s < SETS; s++) {
                            const float dot =
                                half_dot(q[s] + 4 * h, high[s] + 4 * h, v, j, off[h][j]);
                            joint[s] = h == 0 ? sc[s][2 * j] * dot
                                              : fmaf(sc[s][2 * j + 1], dot, joint[s]);
                        }
                    }
                    for (int s = 0; s < SETS; s++)
                        quad[s] = quad_step(quad[s], j, d[j], joint[s]);
                }
                for (int s = 0; s < SETS; s++)
                    acc[s][k % 2] = fmaf(factor[s], quad[s], acc[s][k % 2]);
            }
        }
    }

    /* The dot of half of unit j, exact. */
    static __device__ __forceinline__ float half_dot(const uint32_t *q,
                                                     const uint32_t *high,
                                                     const uint32_t *v, int j, float less)
    {
        int low_sum = QUAD_ZERO, high_sum = QUAD_ZERO;
        for (int i = 0; i < 4; i++) {
            low_sum = kg_dp4a_us(q[i] & 0x03030303u << 2 * j, v[i], low_sum);
            high_sum = kg_dp4a_us(high[i] & 0x01010101u << j, v[i], high_sum);
        }
        return fmaf(__int_as_float(low_sum), power_of_half(2 * j),
                    fmaf(__int_as_float(high_sum), 4.0f * power_of_half(j), less));
    }

    __device__ __forceinline__ void end(const struct direct_args &p, int64_t m,
                                        int row) const
    {
        for (int s = 0; s < SETS; s++) {
            float sum = acc[s][0] + acc[s][1];
            for (int distance = 4; distance > 0; distance /= 2)
                sum += __shfl_xor_sync(KG_WARP_ALL, sum, distance);
            const int o = row + 4 * s + r;
            if (t == 0 && o < (int)p.out)
                p.y[m * p.out + o] = sum * p.scale;
        }
    }
};

#endif
