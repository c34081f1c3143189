/*
 * Grouped products and the router of a provider: what they refuse, and what stays apart.
 *
 * Usage: test_moe PROVIDER.so
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kgate/kernels.h"

static const struct kg_provider *provider;
static const struct kg_grouped_form visit = {1, 33, 1, 1}, scan;
static float *f; /* 64 KiB of device memory, zeros */

enum { IN = 64, OUT = 3, PAIRS = 5 };
static const uint16_t one = 0x3c00, half_nan = 0x7e00;

/* Two groups of 2 and 3 rows, experts 1 and 0; arrays on the device from f[8192]. */
static struct kg_grouped product(void)
{
    static const int32_t offsets[] = {0, 2, 5}, experts[] = {1, 0};
    const struct kg_device_ops *d = provider->device;
    int32_t *at = (int32_t *)(f + 8192);

    assert_int_equal(d->upload(at, offsets, sizeof offsets), 0);
    assert_int_equal(d->upload(at + 8, experts, sizeof experts), 0);
    return (struct kg_grouped){.groups = 2,
                               .pairs = PAIRS,
                               .n_experts = 2,
                               .n_rows = PAIRS,
                               .in = IN,
                               .out = OUT,
                               .expert_stride = IN * OUT * 2,
                               .offsets = at,
                               .experts = at + 8};
}

static int run(const struct kg_grouped *g)
{
    return provider->grouped->gemm_f16(g, &visit, f, f, f, NULL);
}

#define REFUSED(code, field, value)                                                      \
    do {                                                                                 \
        struct kg_grouped g = product();                                                 \
        g.field = (value);                                                               \
        assert_int_equal(run(&g), code);                                                 \
    } while (0)

static void grouped_arguments(void **state)
{
    const struct kg_grouped_ops *o = provider->grouped;
    struct kg_grouped good = product();
    struct kg_grouped_form bad = {1, -1, 0, 0};

    (void)state;
    REFUSED(KG_E_INVALID, groups, -1);
    REFUSED(KG_E_INVALID, groups, INT64_MAX);
    REFUSED(KG_E_INVALID, pairs, -1);
    REFUSED(KG_E_INVALID, pairs, INT64_MAX);
    REFUSED(KG_E_INVALID, pairs, PAIRS + 1); /* more than rows of x */
    REFUSED(KG_E_INVALID, groups, 0);        /* pairs of no group */
    REFUSED(KG_E_INVALID, out, -1);
    REFUSED(KG_E_INVALID, out, INT64_MAX);
    REFUSED(KG_E_INVALID, in, INT64_MAX - 63);
    REFUSED(KG_E_UNSUPPORTED, in, 48);
    REFUSED(KG_E_INVALID, expert_stride, IN * OUT * 2 - 16);
    REFUSED(KG_E_INVALID, expert_stride, IN * OUT * 2 + 8);
    REFUSED(KG_E_INVALID, expert_stride, INT64_MAX - 15);
    REFUSED(KG_E_INVALID, offsets, NULL);
    REFUSED(KG_E_INVALID, offsets, (const int32_t *)((const char *)f + 2));
    REFUSED(KG_E_INVALID, scale, (const float *)((const char *)f + 2));
    struct kg_grouped direct = product();
    direct.experts = NULL;
    direct.n_experts = 1; /* two groups */
    assert_int_equal(run(&direct), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(NULL, &visit, f, f, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, NULL, f, f, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &bad, f, f, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &visit, NULL, f, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &visit, f, NULL, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &visit, f, f, NULL, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &visit, f + 1, f, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &visit, f, f + 1, f, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_f16(&good, &visit, f, f, f + 1, NULL), KG_E_INVALID);
    assert_int_equal(o->gemm_quant(&good, &visit, KG_TYPE_Q8_0, f, f, f, NULL),
                     KG_E_UNSUPPORTED);
    assert_int_equal(o->gemm_quant(&good, &visit, KG_TYPE_Q4_K, f, f, f, NULL),
                     KG_E_UNSUPPORTED); /* 64 is no block */
    good.in = 256;
    good.expert_stride = 144 * OUT;
    assert_int_equal(o->gemm_quant(&good, &scan, KG_TYPE_Q4_K, f, f, f, NULL),
                     KG_E_UNSUPPORTED);
    assert_int_equal(o->dequantize_f16(&good, KG_TYPE_Q4_K, f, NULL, NULL), KG_E_INVALID);
    assert_int_equal(o->dequantize_f16(NULL, KG_TYPE_Q4_K, f, f, NULL), KG_E_INVALID);
    good.pairs = 0;
    assert_int_equal(o->gemm_f16(&good, &visit, f, f, NULL, NULL),
                     KG_E_INVALID); /* stride */
    good.expert_stride = 256 * OUT * 2;
    assert_int_equal(o->gemm_f16(&good, &visit, f, f, NULL, NULL), KG_OK);
}

/* Row 1 of x is NaN, as is expert 0's weights' row 2: pair 1 and output 2 of the second
   group are NaN, every other result is the count of ones. */
static void nan_stays(void **state)
{
    const struct kg_device_ops *d = provider->device;
    static uint16_t w[2 * OUT * IN], x[PAIRS * IN];
    const struct kg_grouped_form forms[] = {
        visit, scan, {1, 1,         1, 0},
          {1, INT32_MAX, 0, 0}
    };
    struct kg_grouped g = product();

    (void)state;
    for (int i = 0; i < 2 * OUT * IN; i++)
        w[i] = i / IN == 2 ? half_nan : one;
    for (int i = 0; i < PAIRS * IN; i++)
        x[i] = i / IN == 1 ? half_nan : one;
    uint16_t *dw = (uint16_t *)(f + 9000), *dx = (uint16_t *)(f + 10000);
    float *dy = f + 12000;
    assert_int_equal(d->upload(dw, w, sizeof w), 0);
    assert_int_equal(d->upload(dx, x, sizeof x), 0);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        float y[PAIRS * OUT + 1];
        assert_int_equal(d->fill(dy, 0x55, sizeof y), 0);
        assert_int_equal(provider->grouped->gemm_f16(&g, &forms[i], dw, dx, dy, NULL), 0);
        assert_int_equal(d->sync(NULL), 0);
        assert_int_equal(d->download(y, dy, sizeof y), 0);
        for (int p = 0; p < PAIRS; p++)
            for (int o = 0; o < OUT; o++) {
                if (p == 1 || (p >= 2 && o == 2))
                    assert_true(isnan(y[p * OUT + o]));
                else
                    assert_true(y[p * OUT + o] == IN);
            }
        uint32_t behind;
        memcpy(&behind, &y[PAIRS * OUT], 4);
        assert_int_equal(behind, 0x55555555u);
    }
}

static void router_arguments(void **state)
{
    const struct kg_router_ops *r = provider->router;
    int32_t *ids = (int32_t *)f;

    (void)state;
    assert_int_equal(r->topk(NULL, NULL, 0, NULL, NULL, 0, 8, 2, NULL), KG_OK);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, 4, 8, 0, NULL), KG_OK);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, 1, 8, 9, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, 1, 8, -1, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, -1, 8, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 7, ids, f, 1, 8, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(NULL, NULL, 0, ids, f, 1, 8, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 0, NULL, f, 1, 8, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 0, ids, NULL, 1, 8, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, INT64_MAX / 2, 8, 1, NULL),
                     KG_E_INVALID);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, 1, 513, 1, NULL), KG_E_UNSUPPORTED);
    assert_int_equal(r->topk(f, NULL, 0, ids, f, 1, 64, 33, NULL), KG_E_UNSUPPORTED);
    assert_int_equal(r->matvec(f, f, f, 6, 1, 1, NULL), KG_E_UNSUPPORTED);
    assert_int_equal(r->matvec(f + 1, f, f, 8, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->matvec_batch(f, f, NULL, 8, 1, 1, NULL), KG_E_INVALID);
    assert_int_equal(r->matvec_batch(f, f, f, 8, INT64_MAX, 2, NULL), KG_E_INVALID);
    assert_int_equal(r->matvec_batch(NULL, NULL, NULL, 8, 0, 2, NULL), KG_OK);
}

int main(int argc, char **argv)
{
    void *so = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    struct kg_open_options options = {.size = sizeof options, .host_threads = 1};

    provider = so ? dlsym(so, KG_PROVIDER_SYMBOL) : NULL;
    if (!provider || provider->device->open(&options) ||
        provider->device->alloc((void **)&f, 65536) ||
        provider->device->fill(f, 0, 65536)) {
        fprintf(stderr, "usage: test_moe PROVIDER.so\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_arguments),
        cmocka_unit_test(nan_stays),
        cmocka_unit_test(router_arguments),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    provider->device->release(f);
    provider->device->close();
    dlclose(so);
    return failed;
}
