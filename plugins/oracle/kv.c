/*
 * The KV cache's formats: quantization by the rules of kgate/ops/kv.h, and exact values.
 */
#include "plugins/oracle/kv.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

static int block_bytes(int type)
{
    switch (type) {
    case KG_TYPE_Q8_0:
        return 34;
    case KG_TYPE_Q5_1:
        return 24;
    case KG_TYPE_Q4_0:
        return 18;
    default:
        return 32;
    }
}

size_t kg_oracle_kv_bytes(int type, int64_t n)
{
    return (size_t)(n / BLOCK) * (size_t)block_bytes(type);
}

/* |x| rounded to a float with `mantissa` stored bits, smallest exponent e_min, as the code
   without sign; to nearest even. */
static unsigned encode(double magnitude, int mantissa, int e_min)
{
    int e = magnitude > 0 ? ilogb(magnitude) : e_min;

    if (e < e_min)
        e = e_min;
    unsigned n = (unsigned)nearbyint(ldexp(magnitude, mantissa - e));
    /* n = 2^mantissa .. 2^(mantissa + 1), or less when subnormal: the hidden one is carried
       into the exponent field by the addition. */
    return ((unsigned)(e - e_min) << mantissa) + n;
}

static double decode(unsigned code, int mantissa, int e_min)
{
    unsigned fraction = code & ((1u << mantissa) - 1), field = code >> mantissa;

    if (field == 0)
        return ldexp(fraction, e_min - mantissa);
    return ldexp(fraction + (1u << mantissa), e_min - mantissa + (int)field - 1);
}

static void put_half(uint8_t *p, float x)
{
    unsigned code = encode(fabsf(x), 10, -14) | (signbit(x) ? 0x8000u : 0);

    p[0] = (uint8_t)code;
    p[1] = (uint8_t)(code >> 8);
}

static double get_half(const uint8_t *p)
{
    unsigned code = p[0] | (unsigned)p[1] << 8;
    double magnitude = decode(code & 0x7fff, 10, -14);

    return code & 0x8000 ? -magnitude : magnitude;
}

static void quantize_block(int type, const float *x, uint8_t *p)
{
    float low = x[0], high = x[0], extreme = x[0];
    float d, id;
    int code[BLOCK];

    for (int j = 1; j < BLOCK; j++) {
        low = fminf(low, x[j]);
        high = fmaxf(high, x[j]);
        if (fabsf(x[j]) > fabsf(extreme))
            extreme = x[j];
    }
    if (type == KG_TYPE_Q8_0) {
        d = fabsf(extreme) / 127.0f;
        id = d > 0 ? 1.0f / d : 0;
        put_half(p, d);
        for (int j = 0; j < BLOCK; j++)
            p[2 + j] = (uint8_t)(int8_t)nearbyintf(x[j] * id);
        return;
    }
    if (type == KG_TYPE_F8_E4M3) {
        for (int j = 0; j < BLOCK; j++) {
            unsigned c = fabsf(x[j]) >= 448 ? 0x7e : encode(fabsf(x[j]), 3, -6);
            p[j] = (uint8_t)(c | (signbit(x[j]) ? 0x80 : 0));
        }
        return;
    }
    if (type == KG_TYPE_Q5_1) {
        d = (high - low) / 31.0f;
        id = d > 0 ? 1.0f / d : 0;
        put_half(p, d);
        put_half(p + 2, low);
        memset(p + 4, 0, 20);
        for (int j = 0; j < BLOCK; j++) {
            code[j] = (int)((x[j] - low) * id + 0.5f);
            code[j] = code[j] > 31 ? 31 : code[j];
            p[4 + j / 8] |= (uint8_t)((code[j] >> 4) << j % 8);
        }
        p += 8;
    } else {
        d = extreme / -8.0f;
        id = d != 0 ? 1.0f / d : 0;
        put_half(p, d);
        memset(p + 2, 0, 16);
        for (int j = 0; j < BLOCK; j++) {
            code[j] = (int)(x[j] * id + 8.5f);
            code[j] = code[j] > 15 ? 15 : code[j];
        }
        p += 2;
    }
    for (int j = 0; j < BLOCK; j++)
        p[j % 16] |= (uint8_t)((code[j] & 15) << (j < 16 ? 0 : 4));
}

void kg_oracle_kv_quantize(int type, const float *x, void *dst, int64_t n)
{
    for (int64_t b = 0; b < n / BLOCK; b++)
        quantize_block(type, x + b * BLOCK, (uint8_t *)dst + b * block_bytes(type));
}

static void block_values(int type, const uint8_t *p, double *dst)
{
    for (int j = 0; j < BLOCK; j++) {
        int nibble;
        switch (type) {
        case KG_TYPE_Q8_0:
            dst[j] = get_half(p) * (int8_t)p[2 + j];
            break;
        case KG_TYPE_Q5_1:
            nibble = p[8 + j % 16] >> (j < 16 ? 0 : 4) & 15;
            dst[j] = get_half(p) * (nibble + 16 * (p[4 + j / 8] >> j % 8 & 1)) +
                     get_half(p + 2);
            break;
        case KG_TYPE_Q4_0:
            nibble = p[2 + j % 16] >> (j < 16 ? 0 : 4) & 15;
            dst[j] = get_half(p) * (nibble - 8);
            break;
        default:
            dst[j] = decode(p[j] & 0x7f, 3, -6) * (p[j] & 0x80 ? -1 : 1);
            if ((p[j] & 0x7f) == 0x7f)
                dst[j] = NAN;
        }
    }
}

void kg_oracle_kv_values(int type, const void *row, int64_t first, int64_t n, double *dst)
{
    const uint8_t *p = (const uint8_t *)row + kg_oracle_kv_bytes(type, first);

    for (int64_t b = 0; b < n / BLOCK; b++)
        block_values(type, p + b * block_bytes(type), dst + b * BLOCK);
}
