/*
 * emu/mma.cc: D += A B of one warp, m = 16, n = 8.
 *
 * Float kinds: acc = D; for k ascending: acc = fl(acc + fl(A[m][k] B[k][n])). A product of
 * two f16 or e4m3 numbers is exact in f32, one of bf16 numbers unless it leaves f32's range.
 * Bytes: a sum of 32 products is below 2^24, so f32 holds it exactly; it is then added to D
 * modulo 2^32.
 */
#include <string.h>

#include "../device/device.h"
#include "mma.h"

typedef float row8 __attribute__((vector_size(32)));

template <int K>
static void multiply(row8 acc[16], const float a[16][K], const row8 b[K])
{
    for (int m = 0; m < 16; m += 4) {
        row8 c0 = acc[m], c1 = acc[m + 1], c2 = acc[m + 2], c3 = acc[m + 3];
        for (int k = 0; k < K; k++) {
            c0 += a[m][k] * b[k];
            c1 += a[m + 1][k] * b[k];
            c2 += a[m + 2][k] * b[k];
            c3 += a[m + 3][k] * b[k];
        }
        acc[m] = c0;
        acc[m + 1] = c1;
        acc[m + 2] = c2;
        acc[m + 3] = c3;
    }
}

template <typename ConvertA, typename ConvertB>
static void run_bytes(bool integer, void *const d[32], const uint32_t *const ra[32],
                      const uint32_t *const rb[32], ConvertA convert_a,
                      ConvertB convert_b)
{
    float a[16][32];
    row8 b[32], acc[16];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 4; e++) {
            for (int r = 0; r < 4; r++)
                a[g + 8 * (r & 1)][4 * t + e + 16 * (r >> 1)] =
                    convert_a((uint8_t)(ra[lane][r] >> (8 * e)));
            for (int r = 0; r < 2; r++)
                b[4 * t + e + 16 * r][g] = convert_b((uint8_t)(rb[lane][r] >> (8 * e)));
        }
        for (int e = 0; e < 4; e++)
            acc[g + 8 * (e >> 1)][2 * t + (e & 1)] =
                integer ? 0.0f : static_cast<const float *>(d[lane])[e];
    }
    multiply<32>(acc, a, b);
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 4; e++) {
            float value = acc[g + 8 * (e >> 1)][2 * t + (e & 1)];
            if (integer) {
                int *out = static_cast<int *>(d[lane]) + e;
                *out = (int)((unsigned)*out + (unsigned)(int)value);
            } else {
                static_cast<float *>(d[lane])[e] = value;
            }
        }
    }
}

template <typename Convert>
static void run_halves(void *const d[32], const uint32_t *const ra[32],
                       const uint32_t *const rb[32], Convert convert)
{
    float a[16][16];
    row8 b[16], acc[16];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 2; e++) {
            for (int r = 0; r < 4; r++)
                a[g + 8 * (r & 1)][2 * t + e + 8 * (r >> 1)] =
                    convert((uint16_t)(ra[lane][r] >> (16 * e)));
            for (int r = 0; r < 2; r++)
                b[2 * t + e + 8 * r][g] = convert((uint16_t)(rb[lane][r] >> (16 * e)));
        }
        for (int e = 0; e < 4; e++)
            acc[g + 8 * (e >> 1)][2 * t + (e & 1)] =
                static_cast<const float *>(d[lane])[e];
    }
    multiply<16>(acc, a, b);
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 4; e++)
            static_cast<float *>(d[lane])[e] = acc[g + 8 * (e >> 1)][2 * t + (e & 1)];
    }
}

void kg_emu_mma_warp(enum kg_emu_mma kind, void *const d[32], const uint32_t *const a[32],
                     const uint32_t *const b[32])
{
    const auto from_signed = [](uint8_t x) { return (float)(int8_t)x; };
    const auto from_e4m3 = [](uint8_t x) { return kg_e4m3_to_f32(x); };
    switch (kind) {
    case KG_EMU_MMA_S8:
        run_bytes(true, d, a, b, from_signed, from_signed);
        break;
    case KG_EMU_MMA_U8S8:
        run_bytes(
            true, d, a, b, [](uint8_t x) { return (float)x; }, from_signed);
        break;
    case KG_EMU_MMA_E4M3:
        run_bytes(false, d, a, b, from_e4m3, from_e4m3);
        break;
    case KG_EMU_MMA_F16:
        run_halves(d, a, b,
                   [](uint16_t x) { return kg_half_to_f32(kg_half_from_bits(x)); });
        break;
    case KG_EMU_MMA_BF16:
        run_halves(d, a, b,
                   [](uint16_t x) { return kg_bf16_to_f32(kg_bf16_from_bits(x)); });
        break;
    }
}
