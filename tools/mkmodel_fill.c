/*
 * Contents for a stand-in tensor: pseudo-random, but such as a kernel meets in real files.
 *
 * - Weights have a root mean square near 0.02 and heavy tails: every block has a scale of
 *   its own, log-normal, times a power of two that depends on the row, so that a kernel
 *   that takes the wrong block's or row's scale is seen.
 * - Quantized codes are uniform, so every code occurs (of E4M3, the small ones are); scales
 *   are finite; Q8_0 has no -128, which no quantizer writes.
 * - Only integer and exactly rounded operations are used: the bytes are the same on every
 *   machine.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tools/mkmodel.h"

struct source {
    uint64_t state;
};

static uint64_t bits(struct source *s)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(struct source *s)
{
    return (double)(bits(s) >> 11) * 0x1p-53;
}

/* Nearly normal: the number of ones in 64 bits has variance 16. */
static double normal(struct source *s)
{
    return (__builtin_popcountll(bits(s)) - 32 + uniform(s) - 0.5) / 4;
}

/* 2^x, linear between the powers of two. */
static double power(double x)
{
    double whole = floor(x);
    return ldexp(1 + (x - whole), (int)whole);
}

static void put_bytes(struct source *s, uint8_t *out, size_t size)
{
    for (; size >= 8; size -= 8, out += 8) {
        uint64_t z = bits(s);
        memcpy(out, &z, 8);
    }
    uint64_t z = bits(s);
    memcpy(out, &z, size);
}

/* Round to nearest even, never to zero; values stay far below the largest half. */
static void put_half(uint8_t *out, double value)
{
    uint16_t half = value < 0 ? 0x8000 : 0;
    double size = fabs(value);
    int exponent;
    if (size < 0x1p-24)
        size = 0x1p-24;
    frexp(size, &exponent);
    /* A normal half has exponent (of frexp) -13 and up and 11 bits; below, 2^-24 steps. */
    int step = exponent < -13 ? -24 : exponent - 11;
    uint32_t units = (uint32_t)nearbyint(ldexp(size, -step));
    half |= (uint16_t)(step == -24 ? units : units + ((uint32_t)(step + 24) << 10));
    memcpy(out, &half, 2);
}

/* E4M3, positive: the nearest of the 126 finite values above zero. */
static uint8_t e4m3(double value)
{
    int exponent;
    if (value >= 448)
        return 0x7e;
    frexp(value, &exponent);
    int step = exponent < -5 ? -9 : exponent - 4;
    uint32_t units = (uint32_t)nearbyint(ldexp(value, -step));
    uint32_t code = step == -9 ? units : units + ((uint32_t)(step + 9) << 3);
    return code < 1 ? 1 : code > 0x7e ? 0x7e : (uint8_t)code;
}

static void put_float(uint8_t *out, enum kg_type type, double value)
{
    float f = (float)value;
    uint32_t word;
    memcpy(&word, &f, 4);
    switch (type) {
    case KG_TYPE_F64:
        memcpy(out, &value, 8);
        break;
    case KG_TYPE_F32:
        memcpy(out, &f, 4);
        break;
    case KG_TYPE_BF16: {
        uint16_t high = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
        memcpy(out, &high, 2);
        break;
    }
    default:
        put_half(out, value);
    }
}

/* Where a block keeps its f16 scales, and what the root mean square of its values is when
   the codes are uniform and the scale is 1. `shift`, if not 0, is the ratio of the block's
   minimum to its scale that centres the values. Measured roughly; only the order of
   magnitude matters. */
static const struct layout {
    enum kg_type type;
    int d, m;
    double rms, shift;
} layouts[] = {
    {KG_TYPE_Q4_0,    0,   -1, 4.6,  0    },
    {KG_TYPE_Q4_1,    0,   2,  4.6,  -7.5 },
    {KG_TYPE_Q5_0,    0,   -1, 9.2,  0    },
    {KG_TYPE_Q5_1,    0,   2,  9.2,  -15.5},
    {KG_TYPE_Q8_0,    0,   -1, 74,   0    },
    {KG_TYPE_Q2_K,    80,  82, 14,   1.5  },
    {KG_TYPE_Q3_K,    108, -1, 43,   0    },
    {KG_TYPE_Q4_K,    0,   2,  270,  7.5  },
    {KG_TYPE_Q5_K,    0,   2,  550,  15.5 },
    {KG_TYPE_Q6_K,    208, -1, 1370, 0    },
    {KG_TYPE_IQ2_XXS, 0,   -1, 50,   0    },
    {KG_TYPE_IQ2_XS,  0,   -1, 50,   0    },
    {KG_TYPE_IQ2_S,   0,   -1, 50,   0    },
    {KG_TYPE_IQ3_XXS, 0,   -1, 150,  0    },
    {KG_TYPE_IQ3_S,   0,   -1, 157,  0    },
    {KG_TYPE_IQ1_S,   0,   -1, 7,    0    },
    {KG_TYPE_IQ4_NL,  0,   -1, 70,   0    },
    {KG_TYPE_IQ4_XS,  0,   -1, 1300, 0    },
    {KG_TYPE_TQ1_0,   52,  -1, 0.8,  0    },
    {KG_TYPE_TQ2_0,   64,  -1, 1.2,  0    },
};

static const struct layout *layout_of(enum kg_type type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

bool mk_can_fill(enum kg_type type)
{
    const struct kg_type_info *info = kg_type_info((int)type);
    return info && (info->block == 1 || type == KG_TYPE_MXFP4 || type == KG_TYPE_NVFP4 ||
                    layout_of(type));
}

/* The spread of the blocks' scales raises the whole to about 2.5 times this. */
static const double weight_rms = 0.008;

/* The root mean square that a block of row `row` is to have. */
static double block_rms(struct source *s, uint64_t row)
{
    return weight_rms * power(0.75 * normal(s) + (double)(row % 5) - 2);
}

static void fill_block(struct source *s, uint8_t *out, const struct kg_type_info *type,
                       uint64_t row)
{
    const struct layout *layout = layout_of(type->type);
    double rms = block_rms(s, row);
    put_bytes(s, out, (size_t)type->bytes);
    if (type->type == KG_TYPE_MXFP4) {
        /* E2M1 codes have a root mean square near 2.9. */
        int exponent;
        frexp(rms / 2.9, &exponent);
        out[0] = (uint8_t)(127 + exponent - 1);
        return;
    }
    if (type->type == KG_TYPE_NVFP4) {
        /* A separate macro scale brings the values down, so the codes' scales use the
           whole range of UE4M3. */
        for (int i = 0; i < 4; i++)
            out[i] = e4m3(24 * power(1.2 * normal(s) + (double)(row % 5) - 2));
        return;
    }
    double d = rms / layout->rms;
    if (type->type == KG_TYPE_Q8_0)
        for (int i = 2; i < type->bytes; i++)
            out[i] = out[i] == 0x80 ? 0x81 : out[i];
    put_half(out + layout->d, d < 0x1p-22 ? 0x1p-22 : d);
    if (layout->m >= 0)
        put_half(out + layout->m, d * layout->shift);
}

static void fill_element(struct source *s, uint8_t *out, const struct mk_tensor *t,
                         uint64_t row)
{
    double spread = normal(s);
    switch (t->type->type) {
    case KG_TYPE_F64:
    case KG_TYPE_F32:
    case KG_TYPE_F16:
    case KG_TYPE_BF16:
        put_float(out, t->type->type,
                  t->fill == MK_NORM         ? 1 + 0.1 * spread
                  : t->fill == MK_SCALE      ? 7e-5 * power(spread)
                  : t->fill == MK_ACTIVATION ? power(0.75 * normal(s)) * spread
                                             : block_rms(s, row) * spread);
        break;
    case KG_TYPE_F8_E4M3: {
        double row_scale = power((double)(row % 5) - 2);
        if (t->fill == MK_SCALE) {
            out[0] = e4m3(24 * power(1.2 * spread) * row_scale);
            break;
        }
        double size = fabs(spread) * 24 * row_scale * power(normal(s));
        out[0] = size < 0.5 ? (uint8_t)(bits(s) % 0x31) : e4m3(size);
        out[0] |= (uint8_t)(bits(s) >> 56 & 0x80);
        break;
    }
    case KG_TYPE_F8_E5M2:
        out[0] = (uint8_t)(0x30 + bits(s) % 16);
        if (t->fill == MK_WEIGHT)
            out[0] |= (uint8_t)(bits(s) >> 56 & 0x80);
        break;
    case KG_TYPE_F8_E8M0:
        out[0] = (uint8_t)(120 + (int)floor(1.2 * spread) + (int)(row % 5) - 2);
        break;
    case KG_TYPE_BOOL:
        out[0] = (uint8_t)(bits(s) >> 63);
        break;
    default:
        put_bytes(s, out, (size_t)t->type->bytes);
    }
}

int mk_fill(FILE *file, const struct mk_tensor *t, int64_t seed)
{
    enum { BUFFER = 1 << 16 };
    uint8_t buffer[BUFFER + 512];
    struct source s = {XXH3_64bits_withSeed(t->name, strlen(t->name), (uint64_t)seed)};
    uint64_t per_row = (uint64_t)(t->ne[0] / t->type->block);
    uint64_t blocks = t->bytes / (uint64_t)t->type->bytes;
    bool raw = t->type->type == KG_TYPE_U8 || t->type->type == KG_TYPE_I8;
    size_t used = 0;
    for (uint64_t i = 0; i < blocks; i++) {
        if (raw && t->fill != MK_SCALE && blocks - i >= BUFFER && used == 0) {
            /* Packed codes: the fast way. */
            put_bytes(&s, buffer, BUFFER);
            used = BUFFER;
            i += BUFFER - 1;
        } else if (raw && t->fill == MK_SCALE) {
            /* E8M0 scales that a writer stored as bytes. */
            buffer[used++] = (uint8_t)(120 + (int)floor(1.2 * normal(&s)) +
                                       (int)(i / per_row % 5) - 2);
        } else {
            if (t->type->block > 1)
                fill_block(&s, buffer + used, t->type, i / per_row);
            else
                fill_element(&s, buffer + used, t, i / per_row);
            used += (size_t)t->type->bytes;
        }
        if (used >= BUFFER || i + 1 == blocks) {
            if (fwrite(buffer, 1, used, file) != used)
                return KG_E_IO;
            used = 0;
        }
    }
    return KG_OK;
}
