/*
 * The table of types: one row each. A new row brings the type's cells with it.
 */
#include <math.h>
#include <string.h>

#include "plugins/oracle/split.h"

const struct kg_oracle_type kg_oracle_types[] = {
  /* type, id, split, group, quads, has_min, stage_b, half_at, min_at */
    {KG_TYPE_F32,    "f32",    NULL,                   0,  false, false, false, -1,  -1},
    {KG_TYPE_F16,    "f16",    NULL,                   0,  false, false, false, -1,  -1},
    {KG_TYPE_BF16,   "bf16",   NULL,                   0,  false, false, false, -1,  -1},
    {KG_TYPE_Q4_0,   "q4_0",   kg_oracle_split_q4_0,   32, false, false, true,  0,   -1},
    {KG_TYPE_Q4_1,   "q4_1",   kg_oracle_split_q4_1,   32, false, true,  false, 0,   2 },
    {KG_TYPE_Q5_0,   "q5_0",   kg_oracle_split_q5_0,   32, false, false, false, 0,   -1},
    {KG_TYPE_Q5_1,   "q5_1",   kg_oracle_split_q5_1,   32, false, true,  false, 0,   2 },
    {KG_TYPE_Q8_0,   "q8_0",   kg_oracle_split_q8_0,   32, false, false, true,  0,   -1},
    {KG_TYPE_Q2_K,   "q2_k",   kg_oracle_split_q2_k,   16, false, true,  false, 80,  82},
    {KG_TYPE_Q3_K,   "q3_k",   kg_oracle_split_q3_k,   16, true,  false, true,  108, -1},
    {KG_TYPE_Q4_K,   "q4_k",   kg_oracle_split_q4_k,   32, false, true,  true,  0,   2 },
    {KG_TYPE_Q5_K,   "q5_k",   kg_oracle_split_q5_k,   32, false, true,  true,  0,   2 },
    {KG_TYPE_Q6_K,   "q6_k",   kg_oracle_split_q6_k,   16, false, false, true,  208, -1},
    {KG_TYPE_IQ4_NL, "iq4_nl", kg_oracle_split_iq4_nl, 32, false, false, true,  0,   -1},
    {KG_TYPE_IQ3_S,  "iq3_s",  kg_oracle_split_iq3_s,  32, false, false, false, 0,   -1},
    {KG_TYPE_IQ4_XS, "iq4_xs", kg_oracle_split_iq4_xs, 32, false, false, true,  0,   -1},
    {KG_TYPE_MXFP4,  "mxfp4",  kg_oracle_split_mxfp4,  32, false, false, true,  -1,  -1},
    {KG_TYPE_NVFP4,  "nvfp4",  kg_oracle_split_nvfp4,  16, false, false, true,  -1,  -1},
};

const size_t kg_oracle_n_types = sizeof kg_oracle_types / sizeof kg_oracle_types[0];

const struct kg_oracle_type *kg_oracle_type(int type)
{
    for (size_t i = 0; i < kg_oracle_n_types; i++)
        if ((int)kg_oracle_types[i].type == type)
            return &kg_oracle_types[i];
    return NULL;
}

static void dequantize_floats(int type, const uint8_t *src, float *dst, int64_t n)
{
    if (type == KG_TYPE_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    } else if (type == KG_TYPE_F16) {
        for (int64_t i = 0; i < n; i++)
            dst[i] = (float)kg_oracle_half(src + 2 * i);
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)src[2 * i] << 16 | (uint32_t)src[2 * i + 1] << 24;
            memcpy(&dst[i], &bits, sizeof bits);
        }
    }
}

void kg_oracle_dequantize(const struct kg_oracle_type *type, const void *src, float *dst,
                          int64_t n)
{
    const struct kg_type_info *info = kg_type_info(type->type);

    if (!type->split) {
        dequantize_floats(type->type, src, dst, n);
        return;
    }
    for (int64_t b = 0; b < n / info->block; b++) {
        struct kg_oracle_split part;
        type->split((const uint8_t *)src + b * info->bytes, &part);
        for (int g = 0; g < info->block / 16; g++)
            for (int j = 0; j < 16; j++)
                dst[b * info->block + 16 * g + j] =
                    (float)(part.scale[g] * part.code[16 * g + j] - part.min[g]);
    }
}

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

static void put_half_power(uint8_t *p, int exponent)
{
    p[0] = 0;
    p[1] = (uint8_t)((exponent + 15) << 2);
}

/* The scales of one block become 2^exponent, or something near for the formats whose
   sub-blocks have scales of their own. Minima get half of it. */
static void set_block_scale(const struct kg_oracle_type *type, uint8_t *block,
                            int exponent)
{
    if (type->half_at >= 0)
        put_half_power(block + type->half_at, exponent);
    if (type->min_at >= 0)
        put_half_power(block + type->min_at, exponent - 1);
    if (type->type == KG_TYPE_MXFP4)
        block[0] = (uint8_t)(127 + exponent);
    if (type->type == KG_TYPE_NVFP4)
        for (int s = 0; s < 4; s++) /* each sub-block twice the one before */
            block[s] = (uint8_t)((exponent + s + 7) << 3);
}

static void put_float(int type, uint8_t *p, double value)
{
    float f = (float)value;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (type == KG_TYPE_F32)
        memcpy(p, &bits, sizeof bits);
    else if (type == KG_TYPE_BF16)
        memcpy(p, (uint8_t[]){(uint8_t)(bits >> 16), (uint8_t)(bits >> 24)}, 2);
    else { /* the caller's values are normal halves: drop the low bits */
        uint32_t half = (bits >> 16 & 0x8000u) | ((bits >> 13 & 0x3ffffu) - (112u << 10));
        memcpy(p, (uint8_t[]){(uint8_t)half, (uint8_t)(half >> 8)}, 2);
    }
}

void kg_oracle_make_weights(const struct kg_oracle_type *type, void *dst_, int64_t rows,
                            int64_t cols, uint64_t seed)
{
    const struct kg_type_info *info = kg_type_info(type->type);
    int64_t row_blocks = cols / info->block;
    uint8_t *dst = dst_;

    for (int64_t r = 0; r < rows; r++) {
        for (int64_t b = 0; b < row_blocks; b++) {
            uint8_t *block = dst + (r * row_blocks + b) * info->bytes;
            uint64_t hash = scramble(seed ^ scramble((uint64_t)(r * row_blocks + b)));
            /* plain floats: the "block" of a scale is 32 elements */
            int64_t scale_block = type->split ? b : b / 32;
            int exponent = (int)((r * 3 + scale_block * 2) % 7) - 6;
            if (!type->split) {
                double fraction = 1 + (double)(hash >> 12) * 0x1p-52;
                put_float(type->type, block,
                          ldexp(hash & 1 ? fraction : -fraction, exponent));
                continue;
            }
            for (int i = 0; i < info->bytes; i++) {
                if (i % 8 == 0)
                    hash = scramble(hash + 0x9e3779b97f4a7c15u);
                block[i] = (uint8_t)(hash >> i % 8 * 8);
            }
            set_block_scale(type, block, exponent);
        }
    }
}
