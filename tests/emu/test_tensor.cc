/*
 * ldmatrix, mma and cp.async against plain loops.
 */
#include <math.h>
#include <string.h>

#include "common.h"

/* One warp: D (16 x 8) += A (16 x k) B (8 x k, so transposed), k = 64 bytes a row. A and B
   come through ldmatrix from rows of 80 bytes. */
template <typename D, typename Mma>
static __device__ void multiply(const uint8_t *a, const uint8_t *b, D *d, Mma mma)
{
    KG_SHARED(uint8_t, tile, [24 * 80]);
    int lane = (int)threadIdx.x;
    for (int i = lane; i < 24 * 4; i += 32) {
        const uint8_t *from = i < 64 ? a + i * 16 : b + (i - 64) * 16;
        kg_cp_async_16(tile + i / 4 * 80 + i % 4 * 16, from);
    }
    kg_cp_async_commit();
    kg_cp_async_wait<0>();
    __syncwarp();
    D acc[4];
    int g = lane / 4, t = lane % 4;
    for (int e = 0; e < 4; e++)
        acc[e] = d[(g + e / 2 * 8) * 8 + 2 * t + e % 2];
    for (int k = 0; k < 64; k += 32) {
        uint32_t ra[4], rb[2];
        kg_ldmatrix_x4(ra, tile + (lane % 16) * 80 + k + lane / 16 * 16);
        kg_ldmatrix_x2(rb, tile + (16 + lane % 8) * 80 + k + lane / 8 % 2 * 16);
        mma(acc, ra, rb);
    }
    for (int e = 0; e < 4; e++)
        d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = acc[e];
}

static __global__ void s8_kernel(const uint8_t *a, const uint8_t *b, int *d)
{
    multiply(a, b, d, [](int *acc, const uint32_t *ra, const uint32_t *rb) {
        kg_mma_s8_16832(acc, ra, rb);
    });
}

static __global__ void float_kernel(int kind, const uint8_t *a, const uint8_t *b,
                                    float *d)
{
    multiply(a, b, d, [=](float *acc, const uint32_t *ra, const uint32_t *rb) {
        if (kind == 0)
            kg_mma_f16_16816(acc, ra, rb);
        else if (kind == 1)
            kg_mma_bf16_16816(acc, ra, rb);
        else
            kg_mma_e4m3_16832(acc, ra, rb);
    });
}

static void test_s8(void **)
{
    uint32_t state = 5;
    for (int round = 0; round < 20; round++) {
        alignas(16) uint8_t a[16 * 64], b[8 * 64];
        int d[128], want[128];
        for (uint8_t &v : a)
            v = round == 0 ? 0x80 : (uint8_t)test_random(&state);
        for (uint8_t &v : b)
            v = round == 0 ? 0x80 : (uint8_t)test_random(&state);
        for (int i = 0; i < 128; i++) {
            d[i] = round == 1 ? 0x7fffffff : (int)test_random(&state);
            uint32_t sum = (uint32_t)d[i];
            for (int k = 0; k < 64; k++)
                sum += (uint32_t)((int8_t)a[i / 8 * 64 + k] * (int8_t)b[i % 8 * 64 + k]);
            want[i] = (int)sum;
        }
        kg_emu_configure((uint64_t)round, 1);
        assert_int_equal(KG_LAUNCH(NULL, 1, 32, 0, s8_kernel, a, b, d), 0);
        assert_memory_equal(d, want, sizeof d);
    }
}

/* The documented order, to the bit, and the exact sum within its bound. */
static void test_float(void **)
{
    uint32_t state = 9;
    for (int kind = 0; kind < 3; kind++) {
        alignas(16) uint8_t a[16 * 64], b[8 * 64];
        int n = kind == 2 ? 64 : 32;
        float fa[16][64], fb[8][64], d[128], want[128];
        for (int i = 0; i < 24 * n; i++) {
            float v = (float)((int)(test_random(&state) % 4001u) - 2000) / 777.0f;
            uint8_t *bytes = i < 16 * n ? a : b;
            int j = i < 16 * n ? i : i - 16 * n;
            float *back = i < 16 * n ? &fa[j / n][j % n] : &fb[j / n][j % n];
            if (kind == 0) {
                struct kg_half h = kg_f32_to_half(v);
                memcpy(bytes + 2 * j, &h, 2);
                *back = kg_half_to_f32(h);
            } else if (kind == 1) {
                struct kg_bf16 h = kg_f32_to_bf16(v);
                memcpy(bytes + 2 * j, &h, 2);
                *back = kg_bf16_to_f32(h);
            } else {
                bytes[j] = kg_f32_to_e4m3(v);
                *back = kg_e4m3_to_f32(bytes[j]);
            }
        }
        for (int i = 0; i < 128; i++) {
            d[i] = want[i] = (float)i / 3.0f;
            double exact = d[i], size = fabs(exact);
            for (int k = 0; k < n; k++) {
                want[i] += fa[i / 8][k] * fb[i % 8][k];
                exact += (double)fa[i / 8][k] * fb[i % 8][k];
                size += fabs((double)fa[i / 8][k] * fb[i % 8][k]);
            }
            assert_true(fabs(want[i] - exact) <= n * 0x1p-24 * size * 1.01);
        }
        kg_emu_configure(0, 1);
        assert_int_equal(KG_LAUNCH(NULL, 1, 32, 0, float_kernel, kind, a, b, d), 0);
        assert_memory_equal(d, want, sizeof d);
    }
}

static __global__ void transpose_kernel(const uint16_t *in, uint32_t *out)
{
    KG_SHARED(uint4, tile, [32]);
    int lane = (int)threadIdx.x;
    tile[lane] = ((const uint4 *)in)[lane];
    __syncwarp();
    uint32_t r[4];
    kg_ldmatrix_x4_trans(r, &tile[lane]);
    for (int i = 0; i < 4; i++)
        out[i * 32 + lane] = r[i];
    kg_ldmatrix_x2_trans(r, &tile[lane % 16]);
    out[128 + lane] = r[1];
    kg_ldmatrix_x1_trans(r, &tile[lane % 8]);
    out[160 + lane] = r[0];
    kg_ldmatrix_x1(r, &tile[lane % 8]);
    out[192 + lane] = r[0];
}

static void test_ldmatrix(void **)
{
    alignas(16) uint16_t in[256];
    uint32_t out[224];
    for (int i = 0; i < 256; i++)
        in[i] = (uint16_t)(i * 257);
    assert_int_equal(KG_LAUNCH(NULL, 1, 32, 0, transpose_kernel, in, out), 0);
    for (int i = 0; i < 224; i++) {
        int m = i < 128 ? i / 32 : i < 160 ? 1 : 0, g = i % 32 / 4, t = i % 4;
        uint32_t lo = in[m * 64 + 2 * t * 8 + g], hi = in[m * 64 + (2 * t + 1) * 8 + g];
        if (i >= 192) {
            lo = in[g * 8 + 2 * t];
            hi = in[g * 8 + 2 * t + 1];
        }
        assert_int_equal(out[i], lo | hi << 16);
    }
}

static __global__ void misaligned_kernel(void)
{
    KG_SHARED(uint8_t, tile, [1024]);
    uint32_t r[4];
    kg_ldmatrix_x4(r, tile + threadIdx.x * 16 + 2);
}

/* `keep` groups may be under way when the data is read. */
template <int keep>
__global__ void pipeline_kernel(const uint32_t *in, uint32_t *out)
{
    KG_SHARED(uint32_t, tile, [3 * 4]);
    for (int group = 0; group < 3; group++) {
        if (group == 2)
            kg_cp_async_16(tile + 8, in + 8, 8);
        else
            for (int i = 0; i < 4; i++)
                kg_cp_async_4(tile + group * 4 + i, in + group * 4 + i);
        kg_cp_async_commit();
    }
    kg_cp_async_wait<keep>();
    for (int i = 0; i < 12; i++)
        out[i] = tile[i];
}

static void check_pipeline(const uint32_t *out, int done)
{
    for (int i = 0; i < 12; i++) {
        uint32_t want = i >= 10 ? 0u : (uint32_t)i + 100u;
        assert_int_equal(out[i], i / 4 < done ? want : 0xffffffffu);
    }
}

static void test_cp_async(void **)
{
    alignas(16) uint32_t in[12];
    uint32_t out[12];
    for (uint32_t i = 0; i < 12; i++)
        in[i] = i + 100;
    assert_int_equal(KG_LAUNCH(NULL, 1, 1, 0, pipeline_kernel<0>, in, out), 0);
    check_pipeline(out, 3);
    assert_int_equal(KG_LAUNCH(NULL, 1, 1, 0, pipeline_kernel<1>, in, out), 0);
    check_pipeline(out, 2);
    assert_int_equal(KG_LAUNCH(NULL, 1, 1, 0, pipeline_kernel<3>, in, out), 0);
    check_pipeline(out, 0);
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 32, 0, misaligned_kernel), "multiple of 16");
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 1, 0, pipeline_kernel<0>, in + 1, out), "misaligned");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s8),
        cmocka_unit_test(test_float),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_cp_async),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
