/*
 * A provider's shared object as the host loads it: table, device, memory, streams. The CUDA
 * provider must load, and count, on a machine without a GPU too.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kgate/kernels.h"

static const struct kg_provider *provider;

static void test_table(void **state)
{
    (void)state;
    assert_int_equal(provider->abi, KG_PROVIDER_ABI);
    assert_int_equal(provider->size, sizeof *provider);
    assert_non_null(strstr(provider->build_id, "kgate "));
    assert_int_equal(provider->device->size, sizeof *provider->device);
    assert_non_null(provider->matvec);
}

static void test_device(void **state)
{
    (void)state;
    const struct kg_device_ops *device = provider->device;
    int n = -1;
    assert_int_equal(device->count(&n), KG_OK);
    struct kg_open_options options = {.size = sizeof options, .ordinal = n};
    assert_int_equal(device->open(&options), KG_E_INVALID);
    assert_true(strlen(device->last_error()) > 0);
    if (n == 0)
        skip();
    options.ordinal = 0;
    options.host_threads = 3;
    assert_int_equal(device->open(&options), KG_OK);
    struct kg_device_info info = {.size = sizeof info};
    assert_int_equal(device->info(&info), KG_OK);
    assert_true(strlen(info.name) > 0 && info.sm_count > 0);
    assert_true(info.mem_total >= info.mem_free && info.mem_free > 0);
    assert_true(info.smem_per_block >= 48 * 1024);
    if (strcmp(provider->name, "emu") == 0) {
        assert_int_equal(info.sm_count, 3);
        assert_int_equal(info.cc_major, 0);
        assert_null(device->event_create);
        assert_null(device->graph_begin);
    }

    uint8_t in[1000], out[1000];
    for (int i = 0; i < 1000; i++)
        in[i] = (uint8_t)(i * 7);
    void *a = NULL, *b = NULL;
    assert_int_equal(device->alloc(&a, sizeof in), KG_OK);
    assert_int_equal(device->alloc(&b, sizeof in), KG_OK);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal(device->upload(a, in, sizeof in), KG_OK);
    assert_int_equal(device->fill(b, 0xa5, sizeof in), KG_OK);
    assert_int_equal(device->copy((uint8_t *)b + 16, (uint8_t *)a + 16, 900), KG_OK);
    assert_int_equal(device->download(out, b, sizeof out), KG_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(out[i], i >= 16 && i < 916 ? in[i] : 0xa5);
    assert_int_equal(device->release(a), KG_OK);
    assert_int_equal(device->release(b), KG_OK);
    assert_int_equal(device->release(NULL), KG_OK);
    assert_int_equal(device->alloc(&a, SIZE_MAX / 2), KG_E_MEMORY);
    assert_null(a);

    struct CUstream_st *stream = NULL;
    assert_int_equal(device->stream_create(&stream), KG_OK);
    assert_non_null(stream);
    assert_int_equal(device->sync(stream), KG_OK);
    assert_int_equal(device->sync(NULL), KG_OK);
    assert_int_equal(device->stream_destroy(stream), KG_OK);
    device->close();
    assert_int_equal(device->open(&options), KG_OK);
    device->close();
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        print_error("%s\n", dlerror());
        return 1;
    }
    provider = dlsym(handle, KG_PROVIDER_SYMBOL);
    if (provider == NULL)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dlclose(handle);
    return failed;
}
