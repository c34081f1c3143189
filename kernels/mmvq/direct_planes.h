/*
 * The direct product's readers of KG_LAYOUT_SPLIT (split.h, direct_types.h).
 */
#ifndef KGATE_KERNELS_MMVQ_DIRECT_PLANES_H
#define KGATE_KERNELS_MMVQ_DIRECT_PLANES_H

#include "kernels/mmvq/direct_types.h"
#include "kernels/mmvq/split.h"

/* The planes are those of `planes`. */
#define DIRECT_PLANES(planes, order, sums)                                               \
    using F = planes::F;                                                                 \
    enum { PLANES = planes::PLANES, ORDER = order, SUMS = sums, SPREAD = 0 };            \
    static __device__ __host__ constexpr int field(int i)                                \
    {                                                                                    \
        return planes::field_bytes(i);                                                   \
    }
#define FIELD(i) (smem + at[i] + off[i])

/* The sums of masked nibbles: those of the high ones come out 16 times too large. */
struct direct_split_q4_0 {
    DIRECT_PLANES(planes_q4_0, ORDER_PLAIN, 1);
    NO_TABLE
    DOTS
    {
        UNUSED;
        uint32_t v[4];
        load16(p, v);
        int low = -8 * sum, high = 0;
        for (int i = 0; i < 4; i++) {
            low = kg_dp4a_us(v[i] & 0x0f0f0f0fu, x[i], low);
            high = kg_dp4a_us(v[i] & 0xf0f0f0f0u, x[i + 4], high);
        }
        dot[0] = low + (high >> 4);
        a[0] = load_half(FIELD(1));
    }
};

struct direct_split_nvfp4 {
    DIRECT_PLANES(planes_nvfp4, ORDER_PAIRS, 2);
    DIRECT_TABLES(E2M1_DIRECT)
    DOTS
    {
        UNUSED;
        uint32_t v[4];
        load16(p + 16 * part, v);
        nvfp4_dots(v, kg_load_u16(FIELD(1) + 2 * part), x, sum, t, dot, a);
    }
};

struct direct_split_q4_k {
    DIRECT_PLANES(planes_q4_k, ORDER_PLAIN, 0);
    NO_TABLE
    DOTS
    {
        UNUSED;
        q4_k_dots(FIELD(1), p, part, x, dot, a, b);
    }
};

/* A mask in place of a shift: the sums come out 16 times (high nibbles) and 4^quarter times too
   large. */
struct direct_split_q6_k {
    DIRECT_PLANES(planes_q6_k, ORDER_PLAIN, 2);
    NO_TABLE
    DOTS
    {
        UNUSED;
        const int half = part >> 2, quarter = part & 3;
        const uint8_t *ql = p + 64 * half + 32 * (quarter & 1);
        const uint8_t *qh = FIELD(1) + 32 * half;
        const int low_bit = 4 * (quarter >> 1), high_bit = 2 * quarter;
        const uint32_t low_mask = 0x0f0f0f0fu << low_bit,
                       high_mask = 0x03030303u << high_bit;
        uint32_t c[8], h[8];
        load16(ql, c);
        load16(ql + 16, c + 4);
        load16(qh, h);
        load16(qh + 16, h + 4);
        for (int g = 0; g < 2; g++) {
            int low = 0, high = 0;
            for (int i = 4 * g; i < 4 * g + 4; i++) {
                low = kg_dp4a_us(c[i] & low_mask, x[i], low);
                high = kg_dp4a_us(h[i] & high_mask, x[i], high);
            }
            const int s = g ? sum >> 16 : (int)(int16_t)sum;
            dot[g] = (low >> low_bit) + 16 * (high >> high_bit) - 32 * s;
        }
        q6_k_scales(load_half(FIELD(3)), FIELD(2) + 2 * part, a);
    }
};

#endif
