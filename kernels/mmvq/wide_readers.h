/*
 * What the wide product (wide.h) reads otherwise than readers.h: a W for each R, which is R where
 * nothing else is said. More than R it has
 *
 *   TWICE    both sets of codes of a group of 16 go through one instruction, c in the first
 *            half of its k and e in the second, with the same activations in both
 *
 * and where F::JOINT, codes are 32 times what they should be, and scales a 32nd.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_READERS_H
#define KGATE_KERNELS_MMVQ_WIDE_READERS_H

#include "kernels/mmvq/readers.h"

template <class R>
struct wide_reader : R {
    enum { TWICE = 0 };
};

/* E2M1 without an offset: code = c + e. c is what the other set leaves of a positive code, and 0
   where the nibble is 8 or more; e is a negative one, and where the nibble is less, -1, or 0
   for the nibble 0. */
template <class R>
struct wide_e2m1 : R {
    enum { TWICE = (int)R::F::GROUP == 16, OFFSET = 0 };
    TABLES(0x04030200u, 0x0d090705u, 0xfdfeff00u, 0xf4f8fafcu)
};
template <>
struct wide_reader<read_mxfp4> : wide_e2m1<read_mxfp4> {
};
template <>
struct wide_reader<read_nvfp4> : wide_e2m1<read_nvfp4> {
};
template <>
struct wide_reader<split_nvfp4> : wide_e2m1<split_nvfp4> {
};

/* As word_any, from `bit` bits behind the byte, before it if negative. */
static __device__ __forceinline__ uint32_t bits_any(const uint8_t *smem, int at, int off,
                                                    int bit)
{
    const int from = 8 * (at + (off & 3)) + bit;
    const uint32_t *w =
        (const uint32_t *)(smem + kg_settled((from >> 5) * 4) + (off & ~3));
    return __funnelshift_r(w[0], w[1], (unsigned)from);
}

/* Three bits, the third inverted, at the top of a byte are 32 (q - 4): no offset is left. Scales are a
   32nd of what they are, which the exponent of the f32 that they are put into does. */
template <>
struct wide_reader<read_q3_k> : read_q3_k {
    enum { TWICE = 0, OFFSET = 0 };
    SCALES
    {
        const uint8_t *p = smem + at[0] + 110 * (w >> 1) + off[0];
        const uint32_t v = six_bits(p, w & 1, t);
        a[0] = __uint_as_float(__byte_perm(v, 0x48800000u, 0x7640)) - 262145.0f;
        a[1] = __uint_as_float(__byte_perm(v, 0x48800000u, 0x7641)) - 262145.0f;
        *b = load_half(p + 108);
    }
    CODES
    {
        (void)tables;
        (void)e;
        const int half = w & 1, high = at[0] + 110 * (w >> 1) + 4 * t;
        const int low = high + 32 * half;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t q = word_any(smem, low, off[0] + 32 + 16 * i);
            /* bit 4 + u of a byte: unit u's */
            const uint32_t h = bits_any(smem, high, off[0] + 16 * i, half ? 0 : -4);
            for (int u = 0; u < 4; u++) {
                const uint32_t two = u < 3 ? q << (5 - 2 * u) : q >> 1;
                c[u][i] = (two & 0x60606060u) | (~(h << (3 - u)) & 0x80808080u);
            }
        }
    }
};

#endif
