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
 * Where four consecutive units, a quad, have one factor d that their groups' scales are integers sc[g]
 * times (T::QUADS, Q3_K), integers stay integers up to the activations' scales, and the law has
 * sixteen lanes: lane l takes quads l, l+16, l+32, ... in that order, each folded by quad_fold; the
 * accumulators are added by a butterfly over lane distances 8, 4, 2, 1.
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
    /* Set where T::QUADS, and there only: a[g] is d * sc[g], which is exact. */
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
 * or, where the scale times the dot is exact (T::SCALED, NVFP4: 4 bits times 15):
 *
 *   for each group g, in order:   acc = fma(d, a[g] * dot_g, acc)
 *
 * dot_g is the exact integer dot product of the group's codes (|dot_g| < 2^24, so its
 * conversion is exact). d * dot_g comes first because it stays in range whatever the weight's
 * scale: an E8M0 scale next to either end of the f32 range would overflow or underflow with the
 * other factor alone. UE4M3 ends at 2^-10 and 240, so a[g] * dot_g cannot, and a kernel that has
 * dot_g + Z, the bits of an integer accumulator, gets it by one fma with -Z * a[g]. A minimum with GROUP
 * 16 would need the sum of each half, which q8_1 does not hold: no such type has a stage B. */
template <class T>
static __device__ inline float unit_fold(float acc, const struct unit32 &u,
                                         const uint32_t x[8], float d, float s)
{
    static_assert(!(T::MINIMUM && T::GROUP == 16), "q8_1 has no sum of half a block");
    static_assert(!T::QUADS, "quad_fold");
    int dot = 0;
    for (int i = 0; i < 4; i++)
        dot = __dp4a((int)u.c[i], (int)x[i], dot);
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

/* sc[0] * dot_0 + sc[1] * dot_1 of a unit of a quad: an integer below 2^20, so exact as an f32. */
static __device__ inline float unit_dot(const struct unit32 &u, const uint32_t x[8])
{
    int dot[2] = {};
    for (int i = 0; i < 8; i++)
        dot[i / 4] = __dp4a((int)u.c[i], (int)x[i], dot[i / 4]);
    return (float)(u.sc[0] * dot[0] + u.sc[1] * dot[1]);
}

/* One step of f = d[0] * dot[0] + d[1] * dot[1] + ..., unit j of a quad. */
static __device__ inline float quad_step(float f, int j, float d, float dot)
{
    return j == 0 ? d * dot : fmaf(d, dot, f);
}

/* acc plus the product of a quad with factor d_w and activations with scales d:
 *
 *   f = d[0] * dot[0];  f = fma(d[j], dot[j], f) for j = 1, 2, 3;  acc = fma(d_w, f, acc)
 *
 * dot[j] is unit_dot of unit j. */
static __device__ inline float quad_fold(float acc, float d_w, const float d[4],
                                         const float dot[4])
{
    float f = 0.0f;
    for (int j = 0; j < 4; j++)
        f = quad_step(f, j, d[j], dot[j]);
    return fmaf(d_w, f, acc);
}

/* The sum over the warp, in every lane; of one lane of each LANES. All 32 lanes must be here. */
template <int LANES = 1>
static __device__ inline float warp_sum(float v)
{
    for (int distance = 16; distance >= LANES; distance /= 2)
        v += __shfl_xor_sync(KG_WARP_ALL, v, distance);
    return v;
}

/* quad_fold by a lane for each unit: its own d and dot. The result is the same in the quad's four
   lanes; acc where the unit is not `there`. All 32 lanes must be here. */
static __device__ inline float warp_quad_fold(float acc, float d_w, float d, float dot,
                                              bool there)
{
    const int first = (int)threadIdx.x % 32 / 4 * 4;
    float ds[4], dots[4];
    for (int j = 0; j < 4; j++) {
        ds[j] = __shfl_sync(KG_WARP_ALL, d, first + j);
        dots[j] = __shfl_sync(KG_WARP_ALL, dot, first + j);
    }
    return there ? quad_fold(acc, d_w, ds, dots) : acc;
}

/* What lane l of a warp has of a row's product, that adds units l, l + 32, ... All 32 lanes must be
   here at each step. */
template <class T, bool QUADS = T::QUADS>
struct row_sum {
    float acc;
    __device__ inline void add(const struct unit32 &u, const uint32_t x[8], float d,
                               float s, bool there)
    {
        if (there)
            acc = unit_fold<T>(acc, u, x, d, s);
    }
    __device__ inline float total(void) const
    {
        return warp_sum(acc);
    }
};

/* Of a type with quads: the same in the four lanes that have a quad's units. Every other quad of
   theirs is another lane's of the law. */
template <class T>
struct row_sum<T, true> {
    float acc, other;
    __device__ inline void add(const struct unit32 &u, const uint32_t x[8], float d,
                               float, bool there)
    {
        const float sum = warp_quad_fold(acc, u.d, d, unit_dot(u, x), there);
        acc = other;
        other = sum;
    }
    __device__ inline float total(void) const
    {
        return warp_sum<4>(acc + other);
    }
};

#endif
