/*
 * The CPU references against ggml's values, against naive long double loops, and the
 * bounds against sums in the kernels' order.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "plugins/oracle/split.h"
#include "runner/artifact.h"

/* ---- dequantization ---- */

static void check_golden(const struct kg_artifact *golden, const char *source,
                         const char *expected, const struct kg_oracle_type *type)
{
    const struct kg_tensor *src = kg_artifact_find(golden, source);
    const struct kg_tensor *want = kg_artifact_find(golden, expected);

    if (!src || !want)
        fail_msg("%s or %s is not in the golden file", source, expected);
    assert_int_equal(src->type, type->type);
    size_t n = (size_t)(src->ne[0] * src->ne[1]);
    assert_int_equal(want->bytes, 4 * n);
    float *got = malloc(4 * n);
    assert_non_null(got);
    kg_oracle_dequantize(type, src->data, got, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, (const char *)want->data + 4 * i, 4);
        if (memcmp(&w, &got[i], 4) != 0 && !(w != w && got[i] != got[i]))
            fail_msg("%s[%zu] is %a, ggml says %a", source, i, got[i], w);
    }
    free(got);
}

static void test_golden(void **state)
{
    struct kg_artifact *golden;
    struct kg_error error = {0};

    (void)state;
    if (kg_artifact_open(KG_TEST_DATA "/dtypes.gguf", "gguf", false, &golden, &error))
        fail_msg("the golden file does not open");
    for (size_t i = 0; i < kg_oracle_n_types; i++) {
        const struct kg_oracle_type *type = &kg_oracle_types[i];
        char id[16], source[32], expected[64];
        snprintf(id, sizeof id, "%s", type->id);
        if (strlen(id) > 2 && strcmp(id + strlen(id) - 2, "_k") == 0)
            id[strlen(id) - 1] = 'K';
        snprintf(source, sizeof source, "%s.weight", id);
        snprintf(expected, sizeof expected, "%s.expected_f32", id);
        check_golden(golden, source, expected, type);
        if (!type->split)
            continue;
        snprintf(source, sizeof source, "%s.rawbytes", id);
        snprintf(expected, sizeof expected, "%s.rawbytes.expected_f32", id);
        check_golden(golden, source, expected, type);
    }
    kg_artifact_close(golden);
}

/* The one reading that random finite bytes need not show. */
static void test_extreme_scales(void **state)
{
    uint8_t mxfp4[17] = {255, 0x71}, nvfp4[36] = {0x7f, 0xff, 0x01, 0x80};
    float got[64];

    (void)state;
    for (int i = 4; i < 36; i++)
        nvfp4[i] = 0x11;
    kg_oracle_dequantize(kg_oracle_type(KG_TYPE_MXFP4), mxfp4, got, 32);
    assert_true(got[0] == 0x1p127f && got[16] == INFINITY && got[1] == 0);
    mxfp4[0] = 0;
    kg_oracle_dequantize(kg_oracle_type(KG_TYPE_MXFP4), mxfp4, got, 32);
    assert_true(got[0] == 0x1p-128f && got[16] == 12 * 0x1p-128f);
    kg_oracle_dequantize(kg_oracle_type(KG_TYPE_NVFP4), nvfp4, got, 64);
    assert_true(got[0] == 0 && got[16] == 240 && got[32] == 0x1p-10f && got[48] == 0);
}

/* ---- products ---- */

static double pseudo(uint64_t i)
{
    uint32_t x = (uint32_t)(i * 2246822519u) ^ 0x5bd1e995u;

    x = (x ^ x >> 15) * 0x85ebca6bu;
    x ^= x >> 13;
    return (double)x * 0x1p-31 - 1;
}

static void *filled(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    assert_non_null(p);
    memset(p, 0xff, bytes);
    return p;
}

static void check_linear(const struct kg_oracle_type *type, int64_t in, int64_t out,
                         int64_t m)
{
    uint8_t *w = filled((size_t)out * kg_row_bytes(type->type, in));
    float *f = filled((size_t)(in * out) * sizeof *f);
    float *x = filled((size_t)(in * m) * sizeof *x);
    double *y = filled((size_t)(out * m) * sizeof *y);
    double *terms = filled((size_t)(out * m) * sizeof *terms);

    kg_oracle_make_weights(type, w, out, in, 99);
    kg_oracle_dequantize(type, w, f, in * out);
    for (int64_t i = 0; i < in * m; i++)
        x[i] = (float)pseudo((uint64_t)i);
    assert_int_equal(kg_oracle_linear_f32(type, w, x, y, terms, in, out, m), KG_OK);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t o = 0; o < out; o++) {
            long double sum = 0, abs = 0;
            for (int64_t k = 0; k < in; k++) {
                long double term = (long double)f[o * in + k] * x[r * in + k];
                sum += term;
                abs += fabsl(term);
            }
            assert_true(isfinite((double)abs) && abs > 0);
            double limit = (double)in * 0x1p-52 * (double)abs;
            if (!(fabs(y[r * out + o] - (double)sum) <= limit) ||
                !(fabs(terms[r * out + o] - (double)abs) <= limit))
                fail_msg("%s %ldx%ld m %ld: y[%ld][%ld] is %a, not %a", type->id,
                         (long)in, (long)out, (long)m, (long)r, (long)o, y[r * out + o],
                         (double)sum);
        }
    }
    free(w);
    free(f);
    free(x);
    free(y);
    free(terms);
}

static void test_linear(void **state)
{
    static const int64_t shapes[][3] = {
        {1, 1,   1 },
        {3, 5,   2 },
        {4, 4,   4 },
        {5, 67,  5 },
        {9, 64,  12},
        {2, 130, 13},
        {1, 3,   25}
    };

    (void)state;
    for (size_t t = 0; t < kg_oracle_n_types; t++) {
        const struct kg_oracle_type *type = &kg_oracle_types[t];
        int64_t block = kg_type_info(type->type)->block;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            check_linear(type, shapes[i][0] * (block > 1 ? block : 31), shapes[i][1],
                         shapes[i][2]);
    }
}

static void test_q8_1(void **state)
{
    enum { N = 96 };
    float x[N], d[3], s[3];
    int8_t q[N];

    (void)state;
    for (int i = 0; i < 32; i++) {
        x[i] = (float)i - 15.5f;     /* halves: ties, with d = 1 */
        x[32 + i] = -0.0f;           /* nothing */
        x[64 + i] = 3000 - (float)i; /* |sum| above the largest half */
    }
    x[31] = 127;
    kg_oracle_q8_1(x, q, d, s, 1, N);
    assert_true(d[0] == 1 && d[1] == 0 && s[1] == 0 && d[2] == 3000.0f / 127);
    for (int i = 0; i < 31; i++) /* to the even one of i - 16 and i - 15 */
        assert_int_equal(q[i], i % 2 ? i - 15 : i - 16);
    assert_int_equal(q[31], 127);
    assert_int_equal(q[40], 0);
    assert_int_equal(q[64], 127);
    assert_true(s[2] > 65504);
}

/* One row as the kernels add: in lanes (0; the weight's scale first with NVFP4), in one chain (1),
   cut after half the units (2). */
static float integer_order(const struct kg_oracle_type *type, const uint8_t *w,
                           const int8_t *q, const float *d, int64_t in, int order)
{
    const struct kg_type_info *info = kg_type_info(type->type);
    float lane[32] = {0}, part = 0;

    for (int64_t k = 0; k < in; k += type->group) {
        struct kg_oracle_split split;
        int e = (int)(k % info->block), dot = 0, sum = 0;
        float *acc = &lane[order > 0 ? 0 : k / 32 % 32];
        type->split(w + k / info->block * info->bytes, &split);
        for (int i = 0; i < type->group; i++) {
            dot += split.code[e + i] * q[k + i];
            sum += q[k + i];
        }
        if (order == 2 && k == in / 64 * 32) {
            part = *acc;
            *acc = 0;
        }
        float a = (float)split.scale[e / 16], m = (float)split.min[e / 16];
        *acc = order > 0 || type->type == KG_TYPE_NVFP4
                   ? fmaf(d[k / 32], a * (float)dot, *acc)
                   : fmaf(a, d[k / 32] * (float)dot, *acc);
        if (type->has_min)
            *acc = fmaf(-m, d[k / 32] * (float)sum, *acc);
    }
    for (int distance = 16; distance > 0; distance /= 2)
        for (int l = 0; l < distance; l++)
            lane[l] += lane[l + distance];
    return part + lane[0];
}

/* One row of a type with quads: sixteen lanes. */
static float quad_order(const struct kg_oracle_type *type, const uint8_t *w,
                        const int8_t *q, const float *d, int64_t in)
{
    const struct kg_type_info *info = kg_type_info(type->type);
    float lane[16] = {0};

    for (int64_t k = 0; k < in; k += 128) {
        struct kg_oracle_split split;
        float f = 0, *acc = &lane[k / 128 % 16];
        const uint8_t *block = w + k / info->block * info->bytes;
        const float factor = (float)kg_oracle_half(block + type->half_at);
        type->split(block, &split);
        for (int j = 0; j < 4; j++) {
            int joint = 0;
            for (int i = 32 * j; i < 32 * j + 32; i++) {
                int e = (int)(k % info->block) + i;
                int scale = (int)(split.scale[e / 16] / (double)factor);
                joint += scale * split.code[e] * q[k + i];
            }
            f = fmaf(d[k / 32 + j], (float)joint, f);
        }
        *acc = fmaf(factor, f, *acc);
    }
    for (int distance = 8; distance > 0; distance /= 2)
        for (int l = 0; l < distance; l++)
            lane[l] += lane[l + distance];
    return lane[0];
}

static void test_linear_q8_1(void **state)
{
    enum { OUT = 5, M = 3 };
    static const struct kg_oracle_order lanes = {.chain = false}, chain = {.chain = true};

    (void)state;
    for (size_t t = 0; t < kg_oracle_n_types; t++) {
        const struct kg_oracle_type *type = &kg_oracle_types[t];
        if (!type->split)
            continue;
        const struct kg_type_info *info = kg_type_info(type->type);
        int64_t in = 11 * info->block, blocks = in / 32;
        uint8_t *w = filled((size_t)OUT * kg_row_bytes(type->type, in));
        int8_t *q = filled((size_t)(M * in));
        float *d = filled((size_t)(M * blocks) * sizeof *d);
        double y[OUT * M], bound[3][OUT * M], terms[OUT * M], range[OUT * M];
        struct kg_oracle_sums by_lanes = {y, bound[0], NULL, NULL};
        struct kg_oracle_sums in_chain = {y, bound[1], terms, range};
        kg_oracle_make_weights(type, w, OUT, in, 5);
        for (int64_t i = 0; i < M * in; i++)
            q[i] = (int8_t)(pseudo((uint64_t)i) * 127);
        /* Of all 24 bits, so that products are rounded. */
        for (int64_t i = 0; i < M * blocks; i++)
            d[i] = ldexpf((float)(4 + i % 2) / 3, (int)(i % 5) - 3);
        assert_int_equal(
            kg_oracle_linear_q8_1(type, w, q, d, &lanes, &by_lanes, in, OUT, M), 0);
        const int orders = type->quads ? 1 : 3;
        assert_int_equal(
            kg_oracle_linear_q8_1(type, w, q, d, &chain, &in_chain, in, OUT, M),
            type->quads ? KG_E_UNSUPPORTED : 0);
        for (int i = 0; i < OUT * M && !type->quads; i++)
            bound[2][i] = kg_oracle_cut_bound(type, in, terms[i], range[i], 2);
        for (int i = 0; i < OUT * M; i++) {
            long double sum = 0, abs = 0;
            int r = i / OUT, o = i % OUT;
            for (int64_t k = 0; k < in; k++) {
                struct kg_oracle_split part;
                int e = (int)(k % info->block);
                type->split(w + (o * in + k) / info->block * info->bytes, &part);
                long double weight = (long double)part.scale[e / 16] * part.code[e] -
                                     (long double)part.min[e / 16];
                sum += weight * q[r * in + k] * d[(r * in + k) / 32];
                abs += fabsl(weight * q[r * in + k] * d[(r * in + k) / 32]);
            }
            if (!(fabsl(y[i] - sum) <= 0x1p-40L * abs))
                fail_msg("%s: y[%d] is %g, not %Lg", type->id, i, y[i], sum);
            for (int n = 0; n < orders; n++) {
                const uint8_t *row = w + o * blocks / (info->block / 32) * info->bytes;
                float got =
                    type->quads
                        ? quad_order(type, row, q + r * in, d + r * blocks, in)
                        : integer_order(type, row, q + r * in, d + r * blocks, in, n);
                if (!(fabs(got - y[i]) <= bound[n][i] &&
                      bound[n][i] <= 0x1p-18 * (double)abs))
                    fail_msg("%s: order %d gives %g for %g, bound %g", type->id, n, got,
                             y[i], bound[n][i]);
            }
        }
        free(w);
        free(q);
        free(d);
    }
}

/* ---- bounds ---- */

/* Stage A as the kernels add: 32 lanes, units in turn, fma, butterfly. */
static float warp_order(const float *w, const float *x, int64_t in)
{
    float lane[32] = {0};

    for (int64_t u = 0; u < in / 32; u++)
        for (int k = 0; k < 32; k++)
            lane[u % 32] = fmaf(w[32 * u + k], x[32 * u + k], lane[u % 32]);
    for (int distance = 16; distance > 0; distance /= 2)
        for (int l = 0; l < distance; l++)
            lane[l] += lane[l + distance];
    return lane[0];
}

static void test_bound_holds_and_bites(void **state)
{
    enum { IN = 4096, OUT = 32 };
    const struct kg_oracle_type *type = kg_oracle_type(KG_TYPE_Q4_K);
    uint8_t *w = filled(OUT * kg_row_bytes(KG_TYPE_Q4_K, IN));
    float *f = filled(IN * OUT * sizeof *f), *x = filled(IN * sizeof *x);
    double y[OUT], bound[OUT];
    int skewed_caught = 0;

    (void)state;
    kg_oracle_make_weights(type, w, OUT, IN, 3);
    kg_oracle_dequantize(type, w, f, IN * OUT);
    for (int i = 0; i < IN; i++)
        x[i] = (float)pseudo((uint64_t)i);
    assert_int_equal(kg_oracle_linear_f32(type, w, x, y, NULL, IN, OUT, 1), KG_OK);
    assert_int_equal(kg_oracle_stage_a_bound(type, w, x, bound, IN, OUT, 1), KG_OK);
    for (int o = 0; o < OUT; o++) {
        float got = warp_order(f + o * IN, x, IN);
        assert_true(fabs(got - y[o]) <= bound[o]);
        /* one scale of the row's 128 off by 0.1 % */
        for (int k = 0; k < 32; k++)
            f[o * IN + 64 + k] *= 1.001f;
        skewed_caught += !(fabs(warp_order(f + o * IN, x, IN) - y[o]) <= bound[o]);
    }
    assert_true(skewed_caught > 0);
    free(w);
    free(f);
    free(x);
}

static void test_bound_values(void **state)
{
    double terms = 2, bound;

    (void)state;
    kg_oracle_bound(&bound, &terms, 1, 16, 0);
    assert_true(bound >= 2 * 0x1p-20 && bound <= 2 * 0x1.001p-20);
    terms = 0;
    kg_oracle_bound(&bound, &terms, 1, 16, 4);
    assert_true(bound == 0x1p-146);
}

/* ---- speed: printed, not judged ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_bench(void **state)
{
    enum { IN = 4096, OUT = 1536, M = 64 };
    const struct kg_oracle_type *type = kg_oracle_type(KG_TYPE_Q4_K);
    uint8_t *w = filled(OUT * kg_row_bytes(KG_TYPE_Q4_K, IN));
    float *x = filled(IN * M * sizeof *x);
    double *y = filled(OUT * M * sizeof *y), *terms = filled(OUT * M * sizeof *terms);

    (void)state;
    kg_oracle_make_weights(type, w, OUT, IN, 3);
    for (int i = 0; i < IN * M; i++)
        x[i] = (float)pseudo((uint64_t)i);
    double start = now();
    assert_int_equal(kg_oracle_linear_f32(type, w, x, y, terms, IN, OUT, M), KG_OK);
    double seconds = now() - start;
    printf("bench: linear %d x %d x %d with terms: %.3f s, %.2f G multiply-adds/s\n", M,
           OUT, IN, seconds, 2e-9 * IN * OUT * M / seconds);
    free(w);
    free(x);
    free(y);
    free(terms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),       cmocka_unit_test(test_extreme_scales),
        cmocka_unit_test(test_linear),       cmocka_unit_test(test_q8_1),
        cmocka_unit_test(test_linear_q8_1),  cmocka_unit_test(test_bound_holds_and_bites),
        cmocka_unit_test(test_bound_values), cmocka_unit_test(test_bench),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
