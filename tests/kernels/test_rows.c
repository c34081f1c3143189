/*
 * Norms, elementwise kernels and the convolution of a provider, through their tables: what
 * the launchers refuse, what they do with nothing, and how NaN gets through. Values are the
 * gates' business.
 *
 * Usage: test_rows PROVIDER.so
 */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kgate/kernels.h"

static const struct kg_provider *provider;

/* Device memory that every argument may point to: 64 KiB of zeros. */
enum { BYTES = 65536 };
static float *f;

static int setup(void **state)
{
    (void)state;
    void *p;
    if (provider->device->alloc(&p, BYTES) != KG_OK)
        return -1;
    f = p;
    return provider->device->fill(p, 0, BYTES);
}

static int teardown(void **state)
{
    (void)state;
    return provider->device->release(f);
}

static void norm_arguments(void **state)
{
    const struct kg_norm_ops *n = provider->norm;
    int8_t *q = (int8_t *)f;
    (void)state;
    assert_int_equal(n->rms_norm(f, f, f, 0, 64, 1e-6f, NULL), KG_OK);
    assert_int_equal(n->rms_norm(NULL, NULL, NULL, 4, 0, 1e-6f, NULL), KG_OK);
    assert_int_equal(n->rms_norm(NULL, f, f, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm(f, NULL, f, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm(f, f, NULL, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm(f, f, f, -1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm(f, f, f, 1, -64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm(f, f, f, INT64_MAX / 2, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm(f, f, f, 1, (INT64_C(1) << 30) + 4, 1e-6f, NULL),
                     KG_E_INVALID);
    assert_int_equal(n->rms_norm(f + 1, f, f, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->l2_norm(f, f + 1, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->add_rms_norm(f, NULL, f, f, f, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm_q8_1(f, f, q, f, f, 1, 48, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm_q8_1(f, f, q, f, NULL, 1, 64, 1e-6f, NULL),
                     KG_E_INVALID);
    assert_int_equal(n->gated_rmsnorm(f, f, NULL, f, 1, 64, 1e-6f, NULL), KG_E_INVALID);
    assert_int_equal(n->rms_norm_qkv(f, f, f, f, f, f, f, f, f, INT64_MAX / 8,
                                     INT64_MAX / 2, 1, 1e-6f, NULL),
                     KG_E_INVALID);
}

static void elementwise_arguments(void **state)
{
    const struct kg_elementwise_ops *e = provider->elementwise;
    const int32_t *pos = (const int32_t *)f;
    (void)state;
    assert_int_equal(e->add(NULL, NULL, NULL, 0, NULL), KG_OK);
    assert_int_equal(e->add(f, f, f, -1, NULL), KG_E_INVALID);
    assert_int_equal(e->add(f, f, f, INT64_MAX, NULL), KG_E_INVALID);
    assert_int_equal(e->silu_mul(f, f + 2, f, 8, NULL), KG_E_INVALID);
    assert_int_equal(e->silu_mul_scaled_q8_1(f, f, 1, 1, (int8_t *)f, f, f, 40, NULL),
                     KG_E_INVALID);
    assert_int_equal(e->quantize_d4(f, f, 1, 40, NULL), KG_E_INVALID);
    assert_int_equal(e->act_quantize_d4((enum kg_activation)7, f, f, f, 1, 32, NULL),
                     KG_E_INVALID);
    assert_int_equal(e->sigmoid_dot(f, f, NULL, 1, 32, NULL), KG_E_INVALID);
    assert_int_equal(e->rope_neox(f, pos, 1, 1, 64, 66, 1e6f, 1, NULL), KG_E_INVALID);
    assert_int_equal(e->rope_neox(f, pos, 1, 1, 64, 63, 1e6f, 1, NULL), KG_E_INVALID);
    assert_int_equal(e->rope_neox(f, pos, 1, 1, 64, 64, 0, 1, NULL), KG_E_INVALID);
    assert_int_equal(e->rope_neox(f, pos, 1, 1, 64, 64, NAN, 1, NULL), KG_E_INVALID);
    assert_int_equal(e->rope_neox(f, pos, 1, 1, 64, 64, 1e6f, INFINITY, NULL),
                     KG_E_INVALID);
    assert_int_equal(e->rope_neox(f, pos, INT64_MAX / 2, 4, 64, 64, 1e6f, 1, NULL),
                     KG_E_INVALID);
    assert_int_equal(e->mask_logits_col(f, NULL, 0, 8, 1, NULL), KG_E_INVALID);
    assert_int_equal(e->mask_logits_col(f, NULL, -1, 8, 0, NULL), KG_E_INVALID);
}

static void ssm_arguments(void **state)
{
    const struct kg_ssm_ops *s = provider->ssm;
    (void)state;
    assert_int_equal(s->ssm_conv1d(NULL, NULL, NULL, 0, 5, 4, true, NULL), KG_OK);
    assert_int_equal(s->ssm_conv1d(f, f, f, 1, 5, 1, true, NULL), KG_E_INVALID);
    assert_int_equal(s->ssm_conv1d(f, f, f, 1, 5, 9, true, NULL), KG_E_INVALID);
    assert_int_equal(s->ssm_conv1d(f, f, f, -1, 5, 4, true, NULL), KG_E_INVALID);
    assert_int_equal(s->ssm_conv1d(f, NULL, f, 1, 5, 4, true, NULL), KG_E_INVALID);
    assert_int_equal(s->conv_assemble_and_roll(f, NULL, f, 1, 4, NULL), KG_E_INVALID);
    assert_int_equal(s->ssm_conv1d_fused_decode(f, f, f, f, INT64_MAX, 4, NULL),
                     KG_E_INVALID);
}

/* One NaN in a row makes the row NaN, its scales too, and leaves its neighbours alone. */
static void nan_spreads(void **state)
{
    enum { COLS = 64, ROWS = 3, N = COLS * ROWS };
    float x[N], w[COLS], y[N], d[N / 32];
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i == COLS + 5 ? NAN : 1.0f;
    for (int i = 0; i < COLS; i++)
        w[i] = 1.0f;
    float *dx = f, *dw = f + 1024, *dy = f + 2048, *dd = f + 4096, *ds = f + 4352;
    int8_t *dq = (int8_t *)(f + 3072);
    const struct kg_device_ops *dev = provider->device;
    assert_int_equal(dev->upload(dx, x, sizeof x), KG_OK);
    assert_int_equal(dev->upload(dw, w, sizeof w), KG_OK);
    assert_int_equal(provider->norm->rms_norm(dx, dw, dy, ROWS, COLS, 1e-6f, NULL),
                     KG_OK);
    assert_int_equal(
        provider->norm->rms_norm_q8_1(dx, dw, dq, dd, ds, ROWS, COLS, 1e-6f, NULL),
        KG_OK);
    assert_int_equal(dev->sync(NULL), KG_OK);
    assert_int_equal(dev->download(y, dy, sizeof y), KG_OK);
    assert_int_equal(dev->download(d, dd, sizeof d), KG_OK);
    for (int i = 0; i < N; i++)
        assert_true(isnan(y[i]) == (i / COLS == 1));
    for (int i = 0; i < N / 32; i++)
        assert_true(isnan(d[i]) == (i / 2 == 1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_arguments),
        cmocka_unit_test(elementwise_arguments),
        cmocka_unit_test(ssm_arguments),
        cmocka_unit_test(nan_spreads),
    };
    struct kg_open_options options = {.size = sizeof options, .host_threads = 2};
    void *so = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    provider = so ? dlsym(so, KG_PROVIDER_SYMBOL) : NULL;
    if (!provider || provider->device->open(&options) != KG_OK)
        return 2;
    return cmocka_run_group_tests(tests, setup, teardown);
}
