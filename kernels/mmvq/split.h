/*
 * KG_LAYOUT_SPLIT (kgate/ops/mmvq.h): where each unit's bytes are, and the one-warp-a-row
 * forms that read them straight from memory.
 */
#ifndef KGATE_KERNELS_MMVQ_SPLIT_H
#define KGATE_KERNELS_MMVQ_SPLIT_H

#include "kernels/matvec/formats.h"

/* A plane per field of the block, in this order: `field_at` and `field_bytes` describe the
   block of the file. unpack: unit `unit` of a tensor of `blocks` blocks at w. */
struct planes_q4_0 {
    using F = fmt_q4_0;
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int field_at(int i)
    {
        return i == 0 ? 2 : 0;
    }
    static __device__ __host__ constexpr int field_bytes(int i)
    {
        return i == 0 ? 16 : 2;
    }
    static __device__ inline void unpack(const uint8_t *w, int64_t blocks, int64_t unit,
                                         struct unit32 *u)
    {
        uint32_t v[4];
        load16(w + 16 * unit, v);
        split_nibbles(v, u->c);
        for (int i = 0; i < 8; i++)
            u->c[i] = bytes_minus(u->c[i], 8);
        u->a[0] = load_half(w + 16 * blocks + 2 * unit);
    }
};

struct planes_nvfp4 {
    using F = fmt_nvfp4;
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int field_at(int i)
    {
        return i == 0 ? 4 : 0;
    }
    static __device__ __host__ constexpr int field_bytes(int i)
    {
        return i == 0 ? 32 : 4;
    }
    static __device__ inline void unpack(const uint8_t *w, int64_t blocks, int64_t unit,
                                         struct unit32 *u)
    {
        const uint8_t *d = w + 32 * blocks + 2 * unit;
        uint32_t v[4];
        load16(w + 16 * unit, v);
        for (int g = 0; g < 2; g++) {
            uint32_t *c = u->c + 4 * g;
            lookup16(v[2 * g], E2M1_TABLE, &c[0], &c[2]);
            lookup16(v[2 * g + 1], E2M1_TABLE, &c[1], &c[3]);
            u->a[g] = ue4m3_half(d[g]);
        }
    }
};

struct planes_q4_k {
    using F = fmt_q4_k;
    enum { PLANES = 2 };
    static __device__ __host__ constexpr int field_at(int i)
    {
        return i == 0 ? 16 : 0;
    }
    static __device__ __host__ constexpr int field_bytes(int i)
    {
        return i == 0 ? 128 : 16;
    }
    static __device__ inline void unpack(const uint8_t *w, int64_t blocks, int64_t unit,
                                         struct unit32 *u)
    {
        const int64_t block = unit / 8;
        const int part = (int)(unit % 8);
        const uint8_t *qs = w + 128 * block + 32 * (part >> 1);
        const uint8_t *head = w + 128 * blocks + 16 * block;
        int sc, m;
        load16(qs, u->c);
        load16(qs + 16, u->c + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = u->c[i] >> 4 * (part & 1) & 0x0f0f0f0fu;
        k_scale_min(head + 4, part, &sc, &m);
        u->a[0] = load_half(head) * (float)sc;
        u->b[0] = -(load_half(head + 2) * (float)m);
    }
};

struct planes_q6_k {
    using F = fmt_q6_k;
    enum { PLANES = 4 };
    static __device__ __host__ constexpr int field_at(int i)
    {
        return i == 0 ? 0 : i == 1 ? 128 : i == 2 ? 192 : 208;
    }
    static __device__ __host__ constexpr int field_bytes(int i)
    {
        return i == 0 ? 128 : i == 1 ? 64 : i == 2 ? 16 : 2;
    }
    static __device__ inline void unpack(const uint8_t *w, int64_t blocks, int64_t unit,
                                         struct unit32 *u)
    {
        const int64_t block = unit / 8;
        const int part = (int)(unit % 8), half = part >> 2, quarter = part & 3;
        const uint8_t *ql = w + 128 * block + 64 * half + 32 * (quarter & 1);
        const uint8_t *qh = w + 128 * blocks + 64 * block + 32 * half;
        const uint8_t *sc = w + 192 * blocks + 16 * block + 2 * part;
        const float d = load_half(w + 208 * blocks + 2 * block);
        uint32_t high[8];
        load16(ql, u->c);
        load16(ql + 16, u->c + 4);
        load16(qh, high);
        load16(qh + 16, high + 4);
        for (int i = 0; i < 8; i++)
            u->c[i] = bytes_minus((u->c[i] >> 4 * (quarter >> 1) & 0x0f0f0f0fu) |
                                      (high[i] >> 2 * quarter & 0x03030303u) << 4,
                                  32);
        for (int g = 0; g < 2; g++)
            u->a[g] = d * (float)(int8_t)sc[g];
    }
};

#endif
