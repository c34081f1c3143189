/*
 * emu/vector.h: CUDA's vector types and dim3 for the emulated device, with CUDA's alignment.
 */
#ifndef KG_EMU_VECTOR_H
#define KG_EMU_VECTOR_H

#include <stdint.h>

#define KG_EMU_VECTOR(T, name, align2, align4)                                           \
    struct alignas(align2) name##2                                                       \
    {                                                                                    \
        T x, y;                                                                          \
    };                                                                                   \
    struct name##3                                                                       \
    {                                                                                    \
        T x, y, z;                                                                       \
    };                                                                                   \
    struct alignas(align4) name##4                                                       \
    {                                                                                    \
        T x, y, z, w;                                                                    \
    };                                                                                   \
    static inline name##2 make_##name##2(T x, T y)                                       \
    {                                                                                    \
        return name##2 {x, y};                                                           \
    }                                                                                    \
    static inline name##3 make_##name##3(T x, T y, T z)                                  \
    {                                                                                    \
        return name##3 {x, y, z};                                                        \
    }                                                                                    \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                             \
    {                                                                                    \
        return name##4 {x, y, z, w};                                                     \
    }

KG_EMU_VECTOR(signed char, char, 2, 4)
KG_EMU_VECTOR(unsigned char, uchar, 2, 4)
KG_EMU_VECTOR(short, short, 4, 8)
KG_EMU_VECTOR(unsigned short, ushort, 4, 8)
KG_EMU_VECTOR(int, int, 8, 16)
KG_EMU_VECTOR(unsigned, uint, 8, 16)
KG_EMU_VECTOR(float, float, 8, 16)
#undef KG_EMU_VECTOR

struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) longlong2 {
    long long x, y;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

#endif
