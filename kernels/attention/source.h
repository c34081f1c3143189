/*
 * Where prefill finds K and V: f32, the quantized cache, or a 16-bit workspace.
 */
#ifndef KGATE_KERNELS_ATTENTION_SOURCE_H
#define KGATE_KERNELS_ATTENTION_SOURCE_H

#include "kernels/device/device.h"
#include "kgate/ops/attention.h"
#include "kgate/types.h"

/* One of K and V. */
struct side {
    const uint8_t *data;
    int64_t stride;     /* bytes from one key to the next */
    int32_t head_bytes; /* bytes from one key head to the next */
    int32_t type;       /* F32, a cache type, or F16 for either 16-bit format */
};

struct prefill {
    const float *q;
    struct side k, v;
    float *out, *lse;
    int64_t tokens, keys;
    int n_heads, n_kv_heads, window, causal;
    float scale;
};

/* The keys that query i sees: first .. end - 1. */
struct key_range {
    int64_t first, end;
};
static __device__ inline struct key_range keys_seen(const struct prefill &p, int64_t i)
{
    const int64_t position = p.keys - p.tokens + i;
    struct key_range range = {0, p.keys};
    if (p.causal) {
        range.end = position + 1;
        if (p.window > 0 && range.end > p.window)
            range.first = range.end - p.window;
    }
    return range;
}

static __device__ inline float scale_at(const uint8_t *p)
{
    return kg_half_to_f32(kg_half_from_bits(kg_load_u16(p)));
}

/* Elements at .. at + 7 of a head's row, at a multiple of 8; f32 or a cache type. The
   values are d * code and d * code + m, multiply then add. */
static __device__ inline void load8(const uint8_t *row, int type, int at, float x[8])
{
    const int b = at / 32, j = at % 32;
    if (type == KG_TYPE_F32) {
        const float4 lo = kg_load_float4(row + 4 * at),
                     hi = kg_load_float4(row + 4 * at + 16);
        x[0] = lo.x, x[1] = lo.y, x[2] = lo.z, x[3] = lo.w;
        x[4] = hi.x, x[5] = hi.y, x[6] = hi.z, x[7] = hi.w;
    } else if (type == KG_TYPE_Q8_0) {
        const uint8_t *block = row + 34 * b;
        const float d = scale_at(block);
        for (int e = 0; e < 8; e++)
            x[e] = d * (float)(int8_t)block[2 + j + e];
    } else if (type == KG_TYPE_F8_E4M3) {
        for (int e = 0; e < 8; e++)
            x[e] = kg_e4m3_to_f32(row[at + e]);
    } else {
        const bool five = type == KG_TYPE_Q5_1;
        const uint8_t *block = row + (five ? 24 : 18) * b;
        const uint32_t high = five ? kg_load_u32(block + 4) : 0u;
        const uint8_t *codes = block + (five ? 8 : 2) + j % 16;
        const float d = scale_at(block), m = five ? scale_at(block + 2) : 0.0f;
        for (int e = 0; e < 8; e++) {
            const int nibble = codes[e] >> (j < 16 ? 0 : 4) & 15;
            const int code =
                five ? nibble | (int)(high >> (j + e) & 1u) << 4 : nibble - 8;
            x[e] = d * (float)code + m;
        }
    }
}

/* Eight elements as 16-bit numbers, rounded to nearest even. */
template <bool F16>
static __device__ inline uint4 round8(const float x[8])
{
    uint32_t r[4];
    for (int i = 0; i < 4; i++)
        r[i] = F16 ? kg_pack_f32_to_half2(x[2 * i], x[2 * i + 1])
                   : kg_pack_f32_to_bf162(x[2 * i], x[2 * i + 1]);
    return make_uint4(r[0], r[1], r[2], r[3]);
}

/* Eight 16-bit elements of key `key`, rounded here or before. */
template <bool F16>
static __device__ inline uint4 stage8(const struct side &s, int64_t key, int kv_head,
                                      int at)
{
    const uint8_t *row = s.data + key * s.stride + (int64_t)kv_head * s.head_bytes;
    if (s.type == KG_TYPE_F16)
        return kg_load_uint4(row + 2 * at);
    float x[8];
    load8(row, s.type, at, x);
    return round8<F16>(x);
}

#endif
