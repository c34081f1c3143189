/*
 * The unit: 32 consecutive weights of a row, as every quantized type unpacks to.
 *
 * Unit u of a row covers elements 32u .. 32u+31, the same 32 that share one q8_1 scale.
 * A unit is int8 codes c, one or two scales a and, in some types, minima b:
 *
 *   weight k of the unit = a[g] * c[k]            (types without a minimum)
 *                        = a[g] * c[k] + b[g]     (types with one; mul, then add)
 *
 * with g = k / GROUP, GROUP 16 or 32. These two lines are the dequantization of all block
 * types to the bit: a is rounded once from the stored scales (d * sc), b is -(dmin * m).
 *
 * What every form of the matrix-vector product shares, whatever the layout it reads:
 *
 *   lane l of the row's warp takes units l, l+32, l+64, ... in that order, each folded
 *   into its one accumulator (from 0); the 32 accumulators are then added by a butterfly
 *   over lane distances 16, 8, 4, 2, 1. A lane without units contributes +0.
 *
 * So a row's result depends on its weights and activations alone: not on how many rows a
 * warp handles, nor on how many activation rows go through at once.
 */
#ifndef KGATE_KERNELS_MATVEC_UNIT_H
#define KGATE_KERNELS_MATVEC_UNIT_H

#include <stdint.h>

#include "kernels/device/device.h"

#define KG_UNIT 32 /* weights in a unit */

struct unit32 {
    uint32_t c[8]; /* codes 4i .. 4i+3 in word i, element 4i in the low byte */
    float a[2];    /* scale of each half; of the whole in a[0] where GROUP is 32 */
    float b[2];    /* minimum likewise; not set where the type has none */
    /* Set where the type's scales are joint, and there only: a[g] is d * sc[g], rounded once. */
    float d;
    int sc[2];
};

/* Weight k of the unit. T is a format of formats.h. */
template <class T>
static __device__ inline float unit_value(const struct unit32 &u, int k)
{
    const int g = T::GROUP == 16 ? k / 16 : 0;
    float w = u.a[g] * (float)(int8_t)(u.c[k / 4] >> 8 * (k % 4));
    return T::MINIMUM ? w + u.b[g] : w;
}

/* acc plus the term of a group with scale a. */
template <class T>
static __device__ __forceinline__ float add_dot(float acc, float a, float dot, float d)
{
    return T::SCALED ? fmaf(d, a * dot, acc) : fmaf(a, d * dot, acc);
}

/* acc plus the product of the unit and 32 q8_1 codes x with scale d and sum s:
 *
 *   for each group g, in order:   acc = fma(a[g], d * dot_g, acc)
 *   then, if there is a minimum:  acc = fma(b[0], s, acc)
 *
 * or, where the scales of both groups are integers sc[g] times one f32 (T::JOINT, Q3_K), as
 * integers up to that one:
 *
 *   acc = fma(u.d, d * (sc[0] * dot_0 + sc[1] * dot_1), acc)
 *
 * or, where the scale times the dot is exact (T::SCALED, NVFP4: 4 bits times 15):
 *
 *   for each group g, in order:   acc = fma(d, a[g] * dot_g, acc)
 *
 * dot_g is the exact integer dot product of the group's codes (|dot_g| < 2^24, so its
 * conversion is exact, as is that of the joint dot, below 2^20). d * dot_g comes first
 * because it stays in range whatever the weight's scale: an E8M0 scale next to either end of
 * the f32 range would overflow or underflow with the other factor alone. UE4M3 ends at 2^-10
 * and 240, so a[g] * dot_g cannot, and a kernel that has dot_g + Z, the bits of an
 * integer accumulator, gets it by one fma with -Z * a[g]. A minimum with GROUP
 * 16 would need the sum of each half, which q8_1 does not hold: no such type has a stage B. */
template <class T>
static __device__ inline float unit_fold(float acc, const struct unit32 &u,
                                         const uint32_t x[8], float d, float s)
{
    static_assert(!(T::MINIMUM && T::GROUP == 16), "q8_1 has no sum of half a block");
    int dot = 0;
    for (int i = 0; i < 4; i++)
        dot = __dp4a((int)u.c[i], (int)x[i], dot);
    if (T::JOINT) {
        int second = 0;
        for (int i = 4; i < 8; i++)
            second = __dp4a((int)u.c[i], (int)x[i], second);
        return fmaf(u.d, d * (float)(u.sc[0] * dot + u.sc[1] * second), acc);
    }
    if (T::GROUP == 16) {
        acc = add_dot<T>(acc, u.a[0], (float)dot, d);
        dot = 0;
    }
    for (int i = 4; i < 8; i++)
        dot = __dp4a((int)u.c[i], (int)x[i], dot);
    acc = add_dot<T>(acc, u.a[T::GROUP == 16 ? 1 : 0], (float)dot, d);
    if (T::MINIMUM)
        acc = fmaf(u.b[0], s, acc);
    return acc;
}

/* The sum over the warp, in every lane. All 32 lanes must be here. */
static __device__ inline float warp_sum(float v)
{
    for (int distance = 16; distance > 0; distance /= 2)
        v += __shfl_xor_sync(KG_WARP_ALL, v, distance);
    return v;
}

#endif
