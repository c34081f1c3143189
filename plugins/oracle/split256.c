/*
 * The block types with 256 elements a block.
 */
#include "plugins/oracle/split.h"

/* Bits [2 * plane, 2 * plane + 2) of the byte that holds element i's low bits, in the
   order of Q2_K and Q3_K: 128 elements share 32 bytes, 32 elements to a bit plane. */
static int two_bits(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

void kg_oracle_split_q2_k(const uint8_t *src, struct kg_oracle_split *out)
{
    double d = kg_oracle_half(src + 80);
    double dmin = kg_oracle_half(src + 82);

    for (int g = 0; g < 16; g++) {
        out->scale[g] = d * (src[g] & 15);
        out->min[g] = dmin * (src[g] >> 4);
    }
    for (int i = 0; i < 256; i++)
        out->code[i] = (int8_t)two_bits(src + 16, i);
}

void kg_oracle_split_q3_k(const uint8_t *src, struct kg_oracle_split *out)
{
    const uint8_t *hmask = src, *qs = src + 32, *packed = src + 96;
    double d = kg_oracle_half(src + 108);

    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
        int high = packed[8 + g % 4] >> g / 4 * 2 & 3;
        out->scale[g] = d * ((low | high << 4) - 32);
        out->min[g] = 0;
    }
    for (int i = 0; i < 256; i++) {
        int high = hmask[i % 32] >> i / 32 & 1;
        out->code[i] = (int8_t)(two_bits(qs, i) - (high ? 0 : 4));
    }
}

/* Twelve bytes hold eight 6-bit scales and eight 6-bit minima (Q4_K, Q5_K). */
static void six_bit_pairs(const uint8_t *packed, double d, double dmin,
                          struct kg_oracle_split *out)
{
    for (int g = 0; g < 8; g++) {
        int sc, m;
        if (g < 4) {
            sc = packed[g] & 63;
            m = packed[g + 4] & 63;
        } else {
            sc = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
            m = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
        }
        out->scale[2 * g] = out->scale[2 * g + 1] = d * sc;
        out->min[2 * g] = out->min[2 * g + 1] = dmin * m;
    }
}

/* 64 elements share 32 bytes: the first 32 are the low nibbles. */
static int nibble64(const uint8_t *qs, int i)
{
    uint8_t byte = qs[i / 64 * 32 + i % 32];

    return i % 64 < 32 ? byte & 15 : byte >> 4;
}

void kg_oracle_split_q4_k(const uint8_t *src, struct kg_oracle_split *out)
{
    six_bit_pairs(src + 4, kg_oracle_half(src), kg_oracle_half(src + 2), out);
    for (int i = 0; i < 256; i++)
        out->code[i] = (int8_t)nibble64(src + 16, i);
}

void kg_oracle_split_q5_k(const uint8_t *src, struct kg_oracle_split *out)
{
    const uint8_t *qh = src + 16;

    six_bit_pairs(src + 4, kg_oracle_half(src), kg_oracle_half(src + 2), out);
    for (int i = 0; i < 256; i++)
        out->code[i] = (int8_t)(nibble64(src + 48, i) | (qh[i % 32] >> i / 32 & 1) << 4);
}

void kg_oracle_split_q6_k(const uint8_t *src, struct kg_oracle_split *out)
{
    const uint8_t *ql = src, *qh = src + 128;
    double d = kg_oracle_half(src + 208);

    for (int g = 0; g < 16; g++) {
        out->scale[g] = d * (int8_t)src[192 + g];
        out->min[g] = 0;
    }
    for (int i = 0; i < 256; i++) {
        int half = i / 128, in_half = i % 128;
        int quarter = in_half / 32, l = in_half % 32;
        uint8_t byte = ql[half * 64 + in_half % 64];
        int low = quarter < 2 ? byte & 15 : byte >> 4;
        int high = qh[half * 32 + l] >> 2 * quarter & 3;
        out->code[i] = (int8_t)((low | high << 4) - 32);
    }
}

void kg_oracle_split_iq3_s(const uint8_t *src, struct kg_oracle_split *out)
{
    const uint8_t *qs = src + 2, *qh = src + 66, *signs = src + 74, *scales = src + 106;
    double d = kg_oracle_half(src);

    for (int g = 0; g < 16; g++) {
        out->scale[g] = d * (1 + 2 * (scales[g / 4] >> g / 2 % 2 * 4 & 15));
        out->min[g] = 0;
    }
    for (int quad = 0; quad < 64; quad++) {
        unsigned index = qs[quad] | (qh[quad / 8] >> quad % 8 & 1u) << 8;
        unsigned digits = kg_oracle_iq3s_codes[index];
        for (int j = 0; j < 4; j++) {
            int i = 4 * quad + j;
            int magnitude = 2 * (int)(digits >> 3 * j & 7) + 1;
            out->code[i] = (int8_t)(signs[i / 8] >> i % 8 & 1 ? -magnitude : magnitude);
        }
    }
}

void kg_oracle_split_iq4_xs(const uint8_t *src, struct kg_oracle_split *out)
{
    unsigned high = src[2] | (unsigned)src[3] << 8;
    const uint8_t *low = src + 4, *qs = src + 8;
    double d = kg_oracle_half(src);

    for (int g = 0; g < 8; g++) {
        int sc = (low[g / 2] >> g % 2 * 4 & 15) | (int)(high >> 2 * g & 3) << 4;
        out->scale[2 * g] = out->scale[2 * g + 1] = d * (sc - 32);
        out->min[2 * g] = out->min[2 * g + 1] = 0;
    }
    for (int i = 0; i < 256; i++) {
        uint8_t byte = qs[i / 32 * 16 + i % 16];
        out->code[i] = kg_oracle_iq4_levels[i % 32 < 16 ? byte & 15 : byte >> 4];
    }
}
