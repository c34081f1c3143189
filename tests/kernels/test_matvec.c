/*
 * The matrix-vector family of a provider, seen from outside through its table.
 *
 * dequantize against ggml's own values, to the bit; then the products against dequantize:
 * a row of x that is 1 at k and 0 elsewhere must give exactly weight k of every row, in
 * stage A and (code 1, scale 1) in stage B, which leaves no element, scale or row to be
 * mistaken for another. Tolerances and long sums are the gates' own business.
 *
 * Usage: test_matvec PROVIDER.so DTYPES.gguf
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kgate/artifact.h"
#include "kgate/kernels.h"
#include "runner/artifact.h"
#include "runner/error.h"

static const struct kg_device_ops *dev;
static const struct kg_matvec_ops *ops;
static struct kg_artifact *golden;

/* Device memory that holds `bytes` of `host` (or 0xA5) and 4 KiB of NaN after it. */
static void *to_device(const void *host, size_t bytes)
{
    void *p;
    assert_int_equal(dev->alloc(&p, bytes + 4096), 0);
    assert_int_equal(dev->fill(p, 0xff, bytes + 4096), 0);
    if (host && bytes > 0)
        assert_int_equal(dev->upload(p, host, bytes), 0);
    else if (bytes > 0)
        assert_int_equal(dev->fill(p, 0xa5, bytes), 0);
    return p;
}

/* Copies `bytes` back, checks that what lies after them is untouched, and frees. */
static void from_device(void *host, void *p, size_t bytes)
{
    unsigned char after[4096];
    assert_int_equal(dev->sync(NULL), 0);
    assert_int_equal(dev->download(host, p, bytes), 0);
    assert_int_equal(dev->download(after, (char *)p + bytes, sizeof after), 0);
    for (size_t i = 0; i < sizeof after; i++)
        assert_int_equal(after[i], 0xff);
    assert_int_equal(dev->release(p), 0);
}

static void *xmalloc(size_t bytes)
{
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

/* The first n values of `t`, by the provider. */
static float *dequantized(int type, const void *data, size_t bytes, int64_t n)
{
    float *values = xmalloc((size_t)n * sizeof *values);
    void *src = to_device(data, bytes);
    float *dst = to_device(NULL, (size_t)n * sizeof *values);
    assert_int_equal(ops->dequantize(type, src, dst, n, NULL), 0);
    from_device(values, dst, (size_t)n * sizeof *values);
    assert_int_equal(dev->release(src), 0);
    return values;
}

static void dequantize_is_ggmls(void **state)
{
    size_t compared = 0;
    (void)state;
    for (size_t i = 0; i < kg_artifact_count(golden); i++) {
        const struct kg_tensor *t = kg_artifact_at(golden, i);
        const char *dot = strrchr(t->name, '.');
        char name[96];
        if (dot && strcmp(dot, ".weight") == 0)
            snprintf(name, sizeof name, "%.*s.expected_f32", (int)(dot - t->name),
                     t->name);
        else if (dot && strcmp(dot, ".rawbytes") == 0)
            snprintf(name, sizeof name, "%s.expected_f32", t->name);
        else
            continue;
        const struct kg_tensor *want = kg_artifact_find(golden, name);
        assert_non_null(want);
        const int64_t n = (int64_t)(want->bytes / sizeof(float));
        float *got = dequantized(t->type, t->data, t->bytes, n);
        for (int64_t k = 0; k < n; k++)
            if (memcmp(&got[k], (const char *)want->data + 4 * k, 4) != 0)
                fail_msg("%s: element %lld is %a", t->name, (long long)k, (double)got[k]);
        free(got);
        compared++;
    }
    assert_int_equal(compared, 18 + 15);
}

/* Scale codes that the golden file happens not to hold. */
static void nvfp4_scale_codes(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        unsigned char block[36] = {(unsigned char)code, 0, 0, 0, 2}; /* weight 0 is 1.0 */
        const int e = code >> 3 & 15, m = code & 7;
        const double scale = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        float *got = dequantized(KG_TYPE_NVFP4, block, sizeof block, 64);
        assert_true(got[0] == (code == 0x7f ? 0.0 : scale));
        assert_true(got[1] == 0.0f);
        free(got);
    }
}

struct product {
    int type;
    int64_t in, out;
    bool stage_b;
};

/* More than 32 units a row, so that lanes take a second turn; odd everything else. */
static const struct product products[] = {
    {KG_TYPE_F32,    1057, 7, false},
    {KG_TYPE_F16,    1057, 7, false},
    {KG_TYPE_BF16,   1057, 7, false},
    {KG_TYPE_Q4_0,   1056, 7, true },
    {KG_TYPE_Q4_1,   1056, 7, false},
    {KG_TYPE_Q5_0,   1056, 7, false},
    {KG_TYPE_Q5_1,   1056, 7, false},
    {KG_TYPE_Q8_0,   1056, 7, true },
    {KG_TYPE_Q2_K,   1280, 7, false},
    {KG_TYPE_Q3_K,   1280, 7, true },
    {KG_TYPE_Q4_K,   1280, 7, true },
    {KG_TYPE_Q5_K,   1280, 7, true },
    {KG_TYPE_Q6_K,   1280, 7, true },
    {KG_TYPE_IQ4_NL, 1056, 7, true },
    {KG_TYPE_IQ3_S,  1280, 7, false},
    {KG_TYPE_IQ4_XS, 1280, 7, true },
    {KG_TYPE_MXFP4,  1056, 7, true },
    {KG_TYPE_NVFP4,  1088, 7, true },
};

/* The golden weights of `type`: finite values, 12288 of them. */
static const void *weights(int type)
{
    for (size_t i = 0; i < kg_artifact_count(golden); i++) {
        const struct kg_tensor *t = kg_artifact_at(golden, i);
        const char *dot = strrchr(t->name, '.');
        if ((int)t->type == type && dot && strcmp(dot, ".weight") == 0)
            return t->data;
    }
    fail_msg("no golden weights of %s", kg_type_name(type));
    return NULL;
}

static void expect_weights(const struct product *p, const float *y, const float *w,
                           const char *stage, float factor)
{
    for (int64_t k = 0; k < p->in; k++)
        for (int64_t o = 0; o < p->out; o++)
            if (!(y[k * p->out + o] == factor * w[o * p->in + k]))
                fail_msg("%s stage %s: row %lld, k %lld is %a, not %a",
                         kg_type_name(p->type), stage, (long long)o, (long long)k,
                         (double)y[k * p->out + o], (double)(factor * w[o * p->in + k]));
}

static void unit_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct product *p = &products[i];
        const int64_t in = p->in, out = p->out, m = in, units = in / 32;
        const size_t w_bytes = kg_row_bytes(p->type, in) * (size_t)out;
        const size_t y_bytes = (size_t)(m * out) * sizeof(float);
        float *w_values = dequantized(p->type, weights(p->type), w_bytes, in * out);
        void *w = to_device(weights(p->type), w_bytes);
        float *x = calloc((size_t)(m * in), sizeof *x), *y = xmalloc(y_bytes);
        assert_non_null(x);
        for (int64_t k = 0; k < in; k++)
            x[k * in + k] = 1.0f;
        void *dx = to_device(x, (size_t)(m * in) * sizeof *x),
             *dy = to_device(NULL, y_bytes);
        assert_int_equal(ops->stage_a(p->type, w, dx, dy, in, out, m, NULL), 0);
        from_device(y, dy, y_bytes);
        expect_weights(p, y, w_values, "A", 1.0f);
        assert_int_equal(dev->release(dx), 0);
        free(x);

        if (p->stage_b) {
            int8_t *q = calloc((size_t)(m * in), 1);
            float *d = calloc((size_t)(m * units), sizeof *d);
            assert_true(q && d);
            /* scale and sum live in the one block that has a code: elsewhere they are 0 */
            for (int64_t k = 0; k < in; k++) {
                q[k * in + k] = 1;
                d[k * units + k / 32] = 0.25f;
            }
            void *dq = to_device(q, (size_t)(m * in));
            void *dd = to_device(d, (size_t)(m * units) * sizeof *d);
            void *ds = to_device(d, (size_t)(m * units) * sizeof *d);
            dy = to_device(NULL, y_bytes);
            assert_int_equal(ops->stage_b(p->type, w, dq, dd, ds, dy, in, out, m, NULL),
                             0);
            from_device(y, dy, y_bytes);
            expect_weights(p, y, w_values, "B", 0.25f);
            assert_int_equal(dev->release(dq) | dev->release(dd) | dev->release(ds), 0);
            free(q);
            free(d);
        } else {
            assert_int_equal(ops->stage_b(p->type, w, w, w, w, w, in, out, 1, NULL),
                             KG_E_UNSUPPORTED);
        }
        assert_int_equal(dev->release(w), 0);
        free(w_values);
        free(y);
    }
}

/* A row gives the same bits alone and in a batch, in every place of the batch. */
static void batch_invariance(void **state)
{
    enum { M = 9 };
    (void)state;
    srand(1);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct product *p = &products[i];
        const int64_t in = p->in, out = p->out, units = in / 32;
        float *x = xmalloc((size_t)(M * in) * sizeof *x);
        float *batch = xmalloc((size_t)(M * out) * sizeof *batch);
        float *alone = xmalloc((size_t)out * sizeof *alone);
        for (int64_t k = 0; k < M * in; k++)
            x[k] = (float)(rand() % 20001 - 10000) / 4096.0f;
        void *w = to_device(weights(p->type), kg_row_bytes(p->type, in) * (size_t)out);
        for (int stage = 0; stage <= p->stage_b; stage++) {
            for (int row = -1; row < M; row++) { /* -1: all of them */
                const int64_t m = row < 0 ? M : 1;
                const float *from = x + (row < 0 ? 0 : row * in);
                float *to = row < 0 ? batch : alone;
                void *dx = to_device(from, (size_t)(m * in) * sizeof *x);
                void *dy = to_device(NULL, (size_t)(m * out) * sizeof *to);
                if (stage == 0) {
                    assert_int_equal(ops->stage_a(p->type, w, dx, dy, in, out, m, NULL),
                                     0);
                } else {
                    void *q = to_device(NULL, (size_t)(m * in));
                    void *d = to_device(NULL, (size_t)(m * units) * sizeof(float));
                    void *s = to_device(NULL, (size_t)(m * units) * sizeof(float));
                    assert_int_equal(ops->quantize_q8_1(dx, q, d, s, m, in, NULL), 0);
                    assert_int_equal(
                        ops->stage_b(p->type, w, q, d, s, dy, in, out, m, NULL), 0);
                    assert_int_equal(dev->sync(NULL), 0);
                    assert_int_equal(dev->release(q) | dev->release(d) | dev->release(s),
                                     0);
                }
                from_device(to, dy, (size_t)(m * out) * sizeof *to);
                assert_int_equal(dev->release(dx), 0);
                for (int64_t o = 0; o < m * out; o++)
                    assert_true(isfinite(to[o]) && to[o] != 0.0f);
                if (row >= 0)
                    assert_memory_equal(alone, batch + row * out,
                                        (size_t)out * sizeof *alone);
            }
        }
        assert_int_equal(dev->release(w), 0);
        free(x);
        free(batch);
        free(alone);
    }
}

static void quantize(const float *x, int64_t rows, int64_t cols, int8_t *q, float *d,
                     float *s)
{
    const size_t n = (size_t)(rows * cols);
    void *dx = to_device(x, n * sizeof *x), *dq = to_device(NULL, n);
    void *dd = to_device(NULL, n / 32 * sizeof *d),
         *ds = to_device(NULL, n / 32 * sizeof *s);
    assert_int_equal(ops->quantize_q8_1(dx, dq, dd, ds, rows, cols, NULL), 0);
    from_device(q, dq, n);
    from_device(d, dd, n / 32 * sizeof *d);
    from_device(s, ds, n / 32 * sizeof *s);
    assert_int_equal(dev->release(dx), 0);
}

static void quantize_rules(void **state)
{
    enum { TIES, ZERO, LARGE, SUBNORMAL, NOT_A_NUMBER, BLOCKS };
    float x[BLOCKS * 32] = {0}, d[BLOCKS], s[BLOCKS];
    int8_t q[BLOCKS * 32];
    int sum = 0;
    (void)state;
    for (int i = 0; i < 32; i++) {
        x[TIES * 32 + i] = (float)(i - 16) + 0.5f; /* d is 1: every one is a tie */
        x[LARGE * 32 + i] = i % 2 ? 60000.0f : 59000.0f;
        x[SUBNORMAL * 32 + i] = (i % 2 ? -0x1p-149f : 0x1p-149f) * (float)(100 + i);
        x[NOT_A_NUMBER * 32 + i] = i == 20 ? NAN : 3.0f;
    }
    x[TIES * 32 + 31] = -127.0f;
    quantize(x, 1, BLOCKS * 32, q, d, s);

    assert_true(d[TIES] == 1.0f);
    for (int i = 0; i < 31; i++) {
        int even = i - 16 + ((i - 16) & 1); /* of i-16 and i-15, the even one */
        assert_int_equal(q[TIES * 32 + i], even);
        sum += even;
    }
    assert_int_equal(q[TIES * 32 + 31], -127);
    assert_true(s[TIES] == (float)(sum - 127));

    assert_true(d[ZERO] == 0.0f && s[ZERO] == 0.0f);
    for (int i = 0; i < 32; i++)
        assert_int_equal(q[ZERO * 32 + i], 0);

    assert_true(d[LARGE] == 60000.0f / 127.0f);
    assert_true(s[LARGE] == d[LARGE] * (16 * 127 + 16 * 125));
    assert_true(s[LARGE] > 65504.0f);

    assert_true(d[SUBNORMAL] == 0x1p-149f);
    for (int i = 0; i < 32; i++)
        assert_int_equal(q[SUBNORMAL * 32 + i], i % 2 ? -127 : 127);

    assert_true(isnan(d[NOT_A_NUMBER]) && isnan(s[NOT_A_NUMBER]));
}

static void arguments(void **state)
{
    float *f = to_device(NULL, 65536), y[3] = {1, 1, 1};
    int8_t *q = (int8_t *)f;
    (void)state;
    const int t = KG_TYPE_Q4_K;
    assert_int_equal(ops->dequantize(12345, f, f, 256, NULL), KG_E_UNSUPPORTED);
    assert_int_equal(ops->dequantize(KG_TYPE_Q8_1, f, f, 256, NULL), KG_E_UNSUPPORTED);
    assert_int_equal(ops->dequantize(t, f, f, 255, NULL), KG_E_INVALID);
    assert_int_equal(ops->dequantize(t, f, f, -256, NULL), KG_E_INVALID);
    assert_int_equal(ops->dequantize(t, NULL, f, 256, NULL), KG_E_INVALID);
    assert_int_equal(ops->dequantize(t, f, NULL, 256, NULL), KG_E_INVALID);
    assert_int_equal(ops->dequantize(t, NULL, NULL, 0, NULL), KG_OK);

    assert_int_equal(ops->quantize_q8_1(f, q, f, f, 1, 33, NULL), KG_E_INVALID);
    assert_int_equal(ops->quantize_q8_1(f, q, f, f, -1, 32, NULL), KG_E_INVALID);
    assert_int_equal(ops->quantize_q8_1(f, NULL, f, f, 1, 32, NULL), KG_E_INVALID);
    assert_int_equal(ops->quantize_q8_1(NULL, NULL, NULL, NULL, 0, 32, NULL), KG_OK);

    assert_int_equal(ops->stage_a(t, f, f, f, 128, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_a(t, f, f, f, 256, -1, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_a(t, f, f, f, 256, INT64_MAX / 2, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_a(t, f, NULL, f, 256, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_a(t, NULL, NULL, NULL, 256, 0, 1, NULL), KG_OK);
    assert_int_equal(ops->stage_a(t, NULL, NULL, NULL, 256, 1, 0, NULL), KG_OK);

    assert_int_equal(ops->stage_b(t, f, q, f, f, f, 32, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_b(t, f, q + 1, f, f, f, 256, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_b(t, f, q, f, NULL, f, 256, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(ops->stage_b(t, NULL, NULL, NULL, NULL, NULL, 256, 1, 0, NULL),
                     KG_OK);

    void *dy = to_device(y, sizeof y);
    assert_int_equal(ops->stage_b(t, NULL, NULL, NULL, NULL, dy, 0, 3, 1, NULL), KG_OK);
    from_device(y, dy, sizeof y);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    assert_int_equal(dev->release(f), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dequantize_is_ggmls), cmocka_unit_test(nvfp4_scale_codes),
        cmocka_unit_test(unit_vectors),        cmocka_unit_test(batch_invariance),
        cmocka_unit_test(quantize_rules),      cmocka_unit_test(arguments),
    };
    struct kg_open_options options = {.size = sizeof options, .host_threads = 2};
    struct kg_error error = {0};
    int n_devices = 0;
    if (argc != 3)
        return 2;
    void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const struct kg_provider *provider =
        handle ? (const struct kg_provider *)dlsym(handle, KG_PROVIDER_SYMBOL) : NULL;
    if (!provider || !provider->matvec) {
        fprintf(stderr, "%s: %s\n", argv[1], handle ? "no such kernels" : dlerror());
        return 1;
    }
    dev = provider->device;
    ops = provider->matvec;
    if (dev->count(&n_devices) != 0 || n_devices == 0)
        return 77; /* no device: skipped */
    if (kg_artifact_open(argv[2], "gguf", false, &golden, &error) != 0) {
        fprintf(stderr, "%s: cannot be read\n", argv[2]);
        return 1;
    }
    if (dev->open(&options) != 0) {
        fprintf(stderr, "%s: %s\n", argv[1], dev->last_error());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev->close();
    kg_artifact_close(golden);
    return failed != 0;
}
