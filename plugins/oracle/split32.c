/*
 * The block types with 32 elements a block, and NVFP4 with 64.
 */
#include <math.h>
#include <string.h>

#include "plugins/oracle/split.h"

const int8_t kg_oracle_iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

/* E2M1 doubled, so that the codes are integers. Code 8 is -0 there; ggml reads +0. */
static const int8_t e2m1_doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                        0, -1, -2, -3, -4, -6, -8, -12};

double kg_oracle_half(const uint8_t *p)
{
    unsigned bits = p[0] | (unsigned)p[1] << 8;
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double value;

    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, -24);
    else
        value = ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -value : value;
}

/* A block of 32 has one scale; both 16-groups carry it so that either grouping works. */
static void set_scale(struct kg_oracle_split *out, double scale, double min)
{
    out->scale[0] = out->scale[1] = scale;
    out->min[0] = out->min[1] = min;
}

/* Sixteen bytes of nibbles: byte j holds element j (low) and j + 16 (high). */
static unsigned nibble(const uint8_t *qs, int i)
{
    return i < 16 ? qs[i] & 15u : qs[i - 16] >> 4;
}

static unsigned fifth_bit(const uint8_t *qh, int i)
{
    return (qh[i / 8] >> i % 8 & 1u) << 4;
}

void kg_oracle_split_q4_0(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, kg_oracle_half(src), 0);
    for (int i = 0; i < 32; i++)
        out->code[i] = (int8_t)((int)nibble(src + 2, i) - 8);
}

void kg_oracle_split_q4_1(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, kg_oracle_half(src), -kg_oracle_half(src + 2));
    for (int i = 0; i < 32; i++)
        out->code[i] = (int8_t)nibble(src + 4, i);
}

void kg_oracle_split_q5_0(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, kg_oracle_half(src), 0);
    for (int i = 0; i < 32; i++)
        out->code[i] = (int8_t)((int)(nibble(src + 6, i) | fifth_bit(src + 2, i)) - 16);
}

void kg_oracle_split_q5_1(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, kg_oracle_half(src), -kg_oracle_half(src + 2));
    for (int i = 0; i < 32; i++)
        out->code[i] = (int8_t)(nibble(src + 8, i) | fifth_bit(src + 4, i));
}

void kg_oracle_split_q8_0(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, kg_oracle_half(src), 0);
    memcpy(out->code, src + 2, 32);
}

void kg_oracle_split_iq4_nl(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, kg_oracle_half(src), 0);
    for (int i = 0; i < 32; i++)
        out->code[i] = kg_oracle_iq4_levels[nibble(src + 2, i)];
}

/* The exponent byte is taken at its word up to 255, as ggml's CPU code does: there 255 is
   2^128, not NaN. The scale is halved because the codes are doubled. */
void kg_oracle_split_mxfp4(const uint8_t *src, struct kg_oracle_split *out)
{
    set_scale(out, ldexp(1, src[0] - 128), 0);
    for (int i = 0; i < 32; i++)
        out->code[i] = e2m1_doubled[nibble(src + 1, i)];
}

/* UE4M3, halved because the codes are doubled. Bit 7 is ignored; 0x7F reads zero. */
static double nvfp4_scale(uint8_t bits)
{
    int exponent = bits >> 3 & 15;
    int fraction = bits & 7;

    if (bits == 0x7f)
        return 0;
    return exponent ? ldexp(fraction + 8, exponent - 11) : ldexp(fraction, -10);
}

void kg_oracle_split_nvfp4(const uint8_t *src, struct kg_oracle_split *out)
{
    for (int s = 0; s < 4; s++) {
        out->scale[s] = nvfp4_scale(src[s]);
        out->min[s] = 0;
        for (int j = 0; j < 8; j++) {
            uint8_t byte = src[4 + 8 * s + j];
            out->code[16 * s + j] = e2m1_doubled[byte & 15];
            out->code[16 * s + j + 8] = e2m1_doubled[byte >> 4];
        }
    }
}
