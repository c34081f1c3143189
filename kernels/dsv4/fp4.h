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
 * It holds for nearly all groups (docs/performance/dsv4.md); those get their sums from
 * tensor cores, whose alignment keeps at least 23 bits below the largest product: a product
 * is below 2^12 and its steps are 2^-10, so no bit is lost there either. Other groups are
 * summed in order by ordered_group.
 *
 * Moving the scale. x = code * scale is a bf16 (4 significant bits), so the tensor cores give
 * sub * scale, exactly, and (sub * scale) * s rounds like sub * (s * scale) as long as
 * s * scale is exact: no overflow, no bits lost below 2^-126. struct ranges sees to that;
 * where it cannot, the whole tile is computed in order. MXFP4's s is a power of two, so
 * (sub * scale) * s is exact too, and may be fused with the addition that follows.
 */
#ifndef KGATE_KERNELS_DSV4_FP4_H
#define KGATE_KERNELS_DSV4_FP4_H

#include "kernels/device/bf16x2.h"
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

/* The products of one group in k order. A product is exact, so that whether it is fused with
   its addition makes no difference. */
template <int GROUP>
static __device__ inline float ordered_group(const uint8_t *codes, const uint8_t *w)
{
    float sub = 0.0f;
    for (int i = 0; i < GROUP / 2; i++) {
        const uint8_t pair = w[i];
        sub = sub + kg_e4m3_to_f32(codes[2 * i]) * kg_e2m1_to_f32(pair);
        sub = sub + kg_e4m3_to_f32(codes[2 * i + 1]) * kg_e2m1_to_f32(pair >> 4);
    }
    return sub;
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

/* sum + x * s, x being sub * scale: two roundings, the first of which MXFP4 does not need. */
template <int KIND>
static __device__ __forceinline__ float add_term(float sum, float x, float s)
{
    return KIND == KG_DSV4_MXFP4 ? fmaf(x, s, sum) : sum + x * s;
}

/* Whether the scales of a tile let the scale of the activations move into them: bits of the
   smallest and largest magnitudes, zero weight scales left out. */
struct ranges {
    uint32_t s_min, s_max;
    uint32_t scale_min, scale_max;
};

static __device__ inline bool scale_moves(const struct ranges &r)
{
    /* 2^-60 .. 2^7: kg_x_pair multiplies by scale * 2^120, a bf16. */
    if (r.scale_min < 0x21800000u || r.scale_max > 0x43000000u)
        return false;
    if (r.s_min > r.s_max) /* all of them 0 */
        return true;
    return __uint_as_float(r.s_min) * __uint_as_float(r.scale_min) >= 0x1p-110f &&
           __uint_as_float(r.s_max) * __uint_as_float(r.scale_max) <= 0x1p100f;
}

/* Bits of an activation scale for struct ranges; one that is no power of two fits nowhere. */
static __device__ inline uint32_t scale_bits(float scale)
{
    const uint32_t bits = __float_as_uint(scale);
    return (bits & 0x7fffffu) != 0 ? 0x7fffffffu : bits;
}

/* Four activation codes as two pairs of bf16 times `factor` (scale * 2^120, twice): codes 0 and
   2 in x[0], 1 and 3 in x[1]. An E4M3 magnitude shifted to bf16's place reads 2^-120 times its
   value, subnormals too. The NaN codes do not come out as NaN: see needs_look and kg_x_nans. */
static __device__ inline void kg_x_pairs(uint32_t codes, uint32_t factor, uint32_t x[2])
{
    x[0] = kg_bmul2((codes & 0x007f007fu) << 4 | (codes & 0x00800080u) << 8, factor);
    x[1] = kg_bmul2((codes >> 4 & 0x07f007f0u) | (codes & 0x80008000u), factor);
}

static __device__ inline uint32_t x_factor(float scale)
{
    const uint32_t high = __float_as_uint(scale * 0x1p120f) >> 16;
    return high | high << 16;
}

/* What kg_x_pairs leaves out: makes those of four codes NaN that are. */
static __device__ inline void kg_x_nans(uint32_t codes, uint32_t x[2])
{
    const uint32_t nan = (codes & 0x7f7f7f7fu) + 0x01010101u;
    x[0] |= (nan >> 7 & 0x00010001u) * 0x7fffu;
    x[1] |= (nan >> 15 & 0x00010001u) * 0x7fffu;
}

/* The two bytes of bf16 magnitudes of e2m1 codes 0..3; those of 4..7 are immediates below.
   They come from shared memory, as the compiler would not keep constants in registers. */
struct w_tables {
    uint32_t low, high, sign;
};

/* Needs a barrier before they are read. */
static __device__ inline void store_w_tables(uint32_t shared[3])
{
    if (threadIdx.x == 0) {
        shared[0] = 0xc0800000u;
        shared[1] = 0x3f3f3f00u;
        shared[2] = 0x80808080u;
    }
}

/* Four nibbles (bits 0..15) as pairs of bf16 in the order of kg_x_pairs. */
static __device__ inline void w_pairs(const struct w_tables &t, uint32_t nibbles,
                                      uint32_t w[2])
{
    const uint32_t select = nibbles & 0x7777u;
    const uint32_t low = kg_prmt(t.low, 0xc0804000u, select);
    uint32_t high = kg_prmt(t.high, 0x40404040u, select);
    /* 0xFF for a negative code and 0x80 for another: bit 0 is the sign */
    high |= kg_prmt(t.sign, 0x80808080u, nibbles) << 7 & 0x80808080u;
    w[0] = kg_prmt(low, high, 0x6240u);
    w[1] = kg_prmt(low, high, 0x7351u);
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
