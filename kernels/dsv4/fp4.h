/*
 * What the forms of the FP4 product share: decoding, the ordered sum, and the test that
 * tells when a sum needs no order.
 *
 * Order (kgate/ops/dsv4.h): products of a group in k order; times s * scale; 128 partial
 * sums of groups t, t + 128, ...; a halving tree.
 *
 * When order does not matter. A code * e2m1 is a multiple of 2^-10: E4M3 is an integer A
 * times 2^-9, E2M1 an integer below 13 times 2^-1. If 2^z divides all A of a group, every
 * partial sum of its products, in whatever order and grouping, is a multiple of 2^(z-10)
 * of magnitude at most 12 * sum|A| * 2^-10. If that is below 2^24 multiples, each of them is
 * an f32: no addition rounds, and any order gives the bits of the prescribed one. The test
 * is on the activations alone, once for all weights:
 *
 *   12 * sum |A|  <  2^(24 + z)
 *
 * It holds for nearly all groups of 16, and for all but one in 500 of 32
 * (docs/performance/dsv4.md); those get their sums from tensor cores, whose alignment keeps at
 * least 23 bits below the largest product: a product is below 2^12 and its steps are 2^-10,
 * so no bit is lost there either. For the others the tensor cores are asked once more, for
 * sum|A * w| of 16 products of each output, on top of the magnitude of the sum before those: where
 * that is below 2^24 steps, nothing rounds there. What remains is summed in order, by
 * ordered_group.
 *
 * Moving the scale. The activation scale is a power of two, and so is the largest of a row,
 * 2^e. code * scale * 2^(7 - e) is a half, exactly, as long as scale >= 2^(e - 22), and so is
 * e2m1 * 2^-14. From those the tensor cores give sub * scale * 2^(-7 - e), exactly, and
 * multiplied by s that rounds like sub * (s * scale), times 2^(-7 - e), as long as nothing
 * overflows and no bits are lost below 2^-126; y is multiplied by 2^(7 + e) at last. The ranges
 * that see to that: scales of halves_carry; |scale2| of scale2_fits; E8M0 codes 64 .. 191. With
 * them the last bit of a term is at least 2^-145 before the factor, so that every sum rounds
 * as it does after it. A tile out of range is computed in order. MXFP4's s is a power
 * of two, so its product is exact too, and may be fused with the addition that follows.
 */
#ifndef KGATE_KERNELS_DSV4_FP4_H
#define KGATE_KERNELS_DSV4_FP4_H

#include "kernels/device/f16x2.h"
#include "kernels/device/fp8.h"
#include "kgate/ops/dsv4.h"

#define KG_DSV4_PARTS 128 /* partial sums of an output */

struct gemm_args {
    const uint8_t *codes;
    const float *scales;
    const uint8_t *w, *ws;
    float scale2;
    float *y;
    int64_t m, n, k;
};

template <int KIND>
struct recipe {
    static constexpr int GROUP = KIND == KG_DSV4_NVFP4 ? 16 : 32;
    static constexpr int STEPS = GROUP / 16; /* tensor-core products in a group */

    static __device__ inline float scale(uint8_t code, float scale2)
    {
        return KIND == KG_DSV4_NVFP4 ? kg_e4m3_to_f32(code) * scale2
                                     : kg_e8m0_to_f32(code);
    }
};

/* Four activation codes as two pairs of halves: codes 0 and 2 in x[0], 1 and 3 in x[1]. */
static __device__ __forceinline__ void x_halves(uint32_t codes, uint32_t x[2])
{
    const uint32_t pairs = __byte_perm(codes, 0, 0x3120);
    x[0] = kg_e4m3x2_to_half2(pairs);
    x[1] = kg_e4m3x2_to_half2(pairs >> 16);
}

/* Eight nibbles as the high bytes of halves that read 2^-14 times their values: an E2M1 code is a
   half without its lowest eight bits, subnormals included. Nibbles 0, 2, 4, 6 and 1, 3, 5, 7. */
static __device__ __forceinline__ void w_bytes(uint32_t nibbles, uint32_t *even,
                                               uint32_t *odd)
{
    *even = (nibbles << 1 & 0x0e0e0e0eu) | (nibbles << 4 & 0x80808080u);
    *odd = (nibbles >> 3 & 0x0e0e0e0eu) | (nibbles & 0x80808080u);
}

/* Four such bytes as two pairs of halves. */
static __device__ __forceinline__ void halves_of_bytes(uint32_t bytes, uint32_t *first,
                                                       uint32_t *second)
{
    *first = __byte_perm(bytes, 0, 0x1404);
    *second = __byte_perm(bytes, 0, 0x3424);
}

/* Eight nibbles as pairs of halves: 0 and 2, 4 and 6, 1 and 3, 5 and 7. */
static __device__ __forceinline__ void w_halves(uint32_t nibbles, uint32_t w[4])
{
    uint32_t even, odd;
    w_bytes(nibbles, &even, &odd);
    halves_of_bytes(even, &w[0], &w[1]);
    halves_of_bytes(odd, &w[2], &w[3]);
}

static __device__ __forceinline__ float half_at(uint32_t bits)
{
    return kg_half_to_f32(kg_half_from_bits((uint16_t)bits));
}

/* The factor for x_halves of a scale, twice, and what the results of a row have to be multiplied
   by; `largest` is the bits of the row's largest scale. */
static __device__ inline uint32_t half_factor(uint32_t bits, uint32_t largest)
{
    return (22u - ((largest - bits) >> 23)) * 0x04000400u;
}

static __device__ inline float row_factor(uint32_t largest)
{
    return __uint_as_float(largest + (7u << 23));
}

/* Whether halves can carry a row whose scales lie between these bits: 2^-40 .. 2^20, and at
   most 2^21 apart, beyond which half_factor is no normal half. */
static __device__ inline bool halves_carry(uint32_t smallest, uint32_t largest)
{
    return smallest >= (127u - 40) << 23 && largest <= (127u + 20) << 23 &&
           largest - smallest <= 21u << 23;
}

/* The products of one group in k order. A product is exact in a half, so that whether it is
   fused with its addition makes no difference. codes: aligned to 16 bytes, w to 8. */
template <int GROUP>
static __device__ inline float ordered_group(const uint8_t *codes, const uint8_t *w)
{
    float sub = 0.0f;
#pragma unroll
    for (int at = 0; at < GROUP; at += 16) {
        const uint4 c = kg_load_uint4(codes + at);
        const uint2 n = *(const uint2 *)(w + at / 2);
        const uint32_t words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t v[4], x[2], p[2];
            w_halves((i < 2 ? n.x : n.y) >> i % 2 * 16, v);
            x_halves(words[i], x); /* 0 and 2, 1 and 3 */
            p[0] = kg_hmul2(x[0], v[0]);
            p[1] = kg_hmul2(x[1], v[2]);
            sub = sub + half_at(p[0]) + half_at(p[1]);
            sub = sub + half_at(p[0] >> 16) + half_at(p[1] >> 16);
        }
    }
    return sub * 0x1p14f;
}

/* One output by one warp: lane l holds the partial sums l, l + 32, l + 64, l + 96. */
template <int KIND>
static __device__ inline float ordered_output(const struct gemm_args &a, int64_t row,
                                              int64_t col)
{
    constexpr int GROUP = recipe<KIND>::GROUP;
    const int64_t groups = a.k / GROUP;
    const uint8_t *codes = a.codes + row * a.k;
    const float *scales = a.scales + row * (a.k / 128);
    const uint8_t *w = a.w + col * (a.k / 2);
    const uint8_t *ws = a.ws + col * groups;
    float part[4] = {};
    for (int i = 0; i < 4; i++)
        for (int64_t j = threadIdx.x % 32 + 32 * i; j < groups; j += KG_DSV4_PARTS) {
            const float sub =
                ordered_group<GROUP>(codes + j * GROUP, w + j * (GROUP / 2));
            const float s =
                recipe<KIND>::scale(ws[j], a.scale2) * scales[j * GROUP / 128];
            part[i] = part[i] + sub * s;
        }
    float sum = (part[0] + part[2]) + (part[1] + part[3]);
    for (int h = 16; h > 0; h /= 2)
        sum = sum + __shfl_xor_sync(KG_WARP_ALL, sum, h);
    return sum;
}

static __device__ inline bool scale2_fits(float scale2)
{
    return fabsf(scale2) >= 0x1p-40f && fabsf(scale2) <= 0x1p40f;
}

/* Whether all of four E8M0 codes are 64 .. 191: bits 7 and 6 differ. */
static __device__ inline bool e8m0_fit(uint32_t codes)
{
    return ((codes ^ codes << 1) & 0x80808080u) == 0x80808080u;
}

/* sum + x * s, x being sub * scale: two roundings, the first of which MXFP4 does not need. */
template <int KIND>
static __device__ __forceinline__ float add_term(float sum, float x, float s)
{
    return KIND == KG_DSV4_MXFP4 ? fmaf(x, s, sum) : sum + x * s;
}

/* Whether any of four codes is one for which the sum of a group may need its order, or a NaN:
   nonzero if so. All others are multiples of 2^-7 (GROUP 16) or 2^-6 (32), with which even the
   largest group passes the test above: 12 * 16 * 448 * 2^9 < 2^26, 12 * 32 * ... < 2^27. */
template <int GROUP>
static __device__ inline uint32_t needs_look(uint32_t codes)
{
    /* magnitude codes below these have finer steps: 2^-4 and 2^-3 */
    constexpr uint32_t coarse = GROUP == 16 ? 0x18 : 0x20;
    const uint32_t magnitude = codes & 0x7f7f7f7fu;
    const uint32_t is_coarse = magnitude + 0x01010101u * (0x80 - coarse);
    const uint32_t is_nonzero = magnitude + 0x7f7f7f7fu;
    const uint32_t is_nan = magnitude + 0x01010101u;
    return ((is_nonzero & ~is_coarse) | is_nan) & 0x80808080u;
}

/* The sum and the union of the integers |A| of four codes; a NaN makes the sum too large. */
static __device__ inline void add_integers(uint32_t codes, uint32_t *sum, uint32_t *bits)
{
    for (int i = 0; i < 4; i++) {
        const uint32_t magnitude = codes >> 8 * i & 0x7fu;
        const uint32_t a =
            magnitude < 8u ? magnitude : (8u + (magnitude & 7u)) << (magnitude / 8 - 1);
        *sum += magnitude == 0x7fu ? 1u << 28 : a;
        *bits |= a;
    }
}

/* The test, for a group whose integers sum up to `sum`; `bits` is their union. */
static __device__ inline bool needs_order(uint32_t sum, uint32_t bits)
{
    if (sum == 0)
        return false;
    const int z = __ffs((int)bits) - 1;
    return sum >= 1u << 28 || (12u * sum) >> z >= 1u << 24;
}

#endif
