/*
 * The gated delta net of a provider, through its table: what the launchers refuse, what no
 * token does, and that the state may be updated in place. Values are the gate's business.
 *
 * Usage: test_gdn PROVIDER.so
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kgate/kernels.h"

enum { D = 128, HEADS = 2, TOKENS = 5, STATE = HEADS * D * D, ROWS = HEADS * TOKENS * D };

static const struct kg_provider *provider;
static float *q, *g, *state_in, *state_out, *out;
static unsigned char *workspace;
static size_t workspace_bytes;

static float *device_floats(size_t n, float step)
{
    static float host[STATE];
    void *p;

    for (size_t i = 0; i < n; i++)
        host[i] = (float)(i % 37) * step;
    if (provider->device->alloc(&p, n * 4) != KG_OK ||
        provider->device->upload(p, host, n * 4) != KG_OK)
        return NULL;
    return p;
}

static int setup(void **state)
{
    void *p;

    (void)state;
    q = device_floats(ROWS, 0.004f);
    g = device_floats(HEADS * TOKENS, -0.01f);
    state_in = device_floats(STATE, 0.01f);
    state_out = device_floats(STATE, 0);
    out = device_floats(ROWS, 0);
    workspace_bytes = provider->gdn->gdn_workspace_bytes(HEADS, TOKENS, 32);
    if (provider->device->alloc(&p, workspace_bytes + 16) != KG_OK)
        return -1;
    workspace = p;
    return q && g && state_in && state_out && out ? 0 : -1;
}

static struct kg_gdn_args arguments(void)
{
    return (struct kg_gdn_args){q,         q,   q,     g,      g,   state_in,
                                state_out, out, HEADS, TOKENS, 0.1f};
}

static int chunked(const struct kg_gdn_args *a, int64_t chunk)
{
    return provider->gdn->gdn_chunked(a, chunk, workspace, workspace_bytes, NULL);
}

static void refuses(void **state)
{
    const struct kg_gdn_ops *ops = provider->gdn;
    const struct kg_gdn_args good = arguments();
    struct kg_gdn_args a;

    (void)state;
#define BAD(member, value)                                                               \
    a = good;                                                                            \
    a.member = (value);                                                                  \
    assert_int_equal(ops->gdn_scan(&a, NULL), KG_E_INVALID);                             \
    assert_int_equal(chunked(&a, 32), KG_E_INVALID)
    BAD(q, NULL);
    BAD(k, q + 1);
    BAD(v, NULL);
    BAD(g, NULL);
    BAD(beta, NULL);
    BAD(state_in, NULL);
    BAD(state_out, state_out + 2);
    BAD(out, NULL);
    BAD(n_heads, -1);
    BAD(n_heads, 65536);
    BAD(n_tokens, -1);
    BAD(n_tokens, INT64_MAX);
#undef BAD
    assert_int_equal(ops->gdn_scan(NULL, NULL), KG_E_INVALID);
    assert_int_equal(chunked(&good, 16), KG_E_INVALID);
    assert_int_equal(chunked(&good, 0), KG_E_INVALID);
    assert_int_equal(ops->gdn_chunked(&good, 32, NULL, workspace_bytes, NULL),
                     KG_E_INVALID);
    assert_int_equal(ops->gdn_chunked(&good, 32, workspace + 4, workspace_bytes, NULL),
                     KG_E_INVALID);
    assert_int_equal(ops->gdn_chunked(&good, 32, workspace, workspace_bytes - 1, NULL),
                     KG_E_INVALID);
    assert_int_equal(ops->gdn_chunked_mma(&good, 128, workspace, (size_t)1 << 40, NULL),
                     KG_E_INVALID);
    assert_int_equal(ops->gdn_workspace_bytes(-1, 5, 32), 0);
    assert_int_equal(ops->gdn_workspace_bytes(1, 5, 33), 0);
    assert_int_equal(ops->gdn_workspace_bytes(60000, INT64_MAX, 32), 0);
}

static void fetch(const void *from, void *to, size_t bytes)
{
    assert_int_equal(provider->device->sync(NULL), KG_OK);
    assert_int_equal(provider->device->download(to, from, bytes), KG_OK);
}

static void copies_the_state_for_no_token(void **state)
{
    static float before[STATE], after[STATE];
    struct kg_gdn_args a = arguments();

    (void)state;
    a.n_tokens = 0;
    a.q = a.k = a.v = a.g = a.beta = NULL;
    a.out = NULL;
    fetch(state_in, before, sizeof before);
    for (int form = 0; form < 3; form++) {
        assert_int_equal(provider->device->fill(state_out, 0xff, sizeof after), KG_OK);
        if (form == 0)
            assert_int_equal(provider->gdn->gdn_scan(&a, NULL), KG_OK);
        else if (form == 1)
            assert_int_equal(provider->gdn->gdn_chunked(&a, 64, NULL, 0, NULL), KG_OK);
        else
            assert_int_equal(provider->gdn->gdn_chunked_mma(&a, 32, NULL, 0, NULL),
                             KG_OK);
        fetch(state_out, after, sizeof after);
        assert_memory_equal(before, after, sizeof after);
    }
    a.n_heads = 0;
    a.state_in = a.state_out = NULL;
    assert_int_equal(provider->gdn->gdn_scan(&a, NULL), KG_OK);
}

static void updates_in_place(void **state)
{
    static float apart[STATE], in_place[STATE];
    struct kg_gdn_args a = arguments();

    (void)state;
    for (int form = 0; form < 2; form++) {
        a.state_in = state_in;
        assert_int_equal(form ? chunked(&a, 32) : provider->gdn->gdn_scan(&a, NULL),
                         KG_OK);
        fetch(state_out, apart, sizeof apart);
        fetch(state_in, in_place, sizeof in_place);
        assert_memory_not_equal(apart, in_place, sizeof apart);
        assert_int_equal(provider->device->upload(state_out, in_place, sizeof in_place),
                         KG_OK);
        a.state_in = state_out;
        assert_int_equal(form ? chunked(&a, 32) : provider->gdn->gdn_scan(&a, NULL),
                         KG_OK);
        fetch(state_out, in_place, sizeof in_place);
        assert_memory_equal(apart, in_place, sizeof apart);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(copies_the_state_for_no_token),
        cmocka_unit_test(updates_in_place),
    };
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

    if (library == NULL) {
        fprintf(stderr, "usage: test_gdn PROVIDER.so\n");
        return 1;
    }
    provider = dlsym(library, KG_PROVIDER_SYMBOL);
    const struct kg_open_options options = {.size = sizeof options, .host_threads = 2};
    if (provider == NULL || provider->device->open(&options) != KG_OK)
        return 1;
    return cmocka_run_group_tests(tests, setup, NULL);
}
