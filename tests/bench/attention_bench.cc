/*
 * attention_bench: times the attention kernels of a provider, outside of the gate.
 *
 *   attention_bench cuda.so [FILTER]
 *
 * Each line is one arm of one shape: median and least microseconds of a launch, and what
 * that means in GB/s of cache (decode) or TFLOP/s (prefill), with its share of 4.17 TB/s or
 * of 790 TFLOP/s. A launch is timed inside a graph of many that take turns on several
 * copies of their input, together larger than the L2 cache, so that every one reads from
 * memory. The last column is the largest difference from the reference arm, over its
 * largest output. FILTER: only lines that contain it.
 */
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kgate/kernels.h"

static const struct kg_provider *provider;
static const struct kg_device_ops *device;
static struct CUstream_st *stream;
static std::string filter;

static void must(int rc, const char *what)
{
    if (rc == KG_OK)
        return;
    fprintf(stderr, "%s: %d (%s)\n", what, rc, device ? device->last_error() : "");
    exit(1);
}

static void *allocate(size_t bytes)
{
    void *p = nullptr;
    must(device->alloc(&p, bytes), "alloc");
    return p;
}

/* Numbers in [-1, 1) times scale, on the device. */
static float *random_floats(size_t n, float scale, uint32_t seed)
{
    std::vector<float> host(n);
    for (float &x : host) {
        seed = seed * 1664525u + 1013904223u;
        x = scale * ((float)(seed >> 8) * 0x1p-23f - 1.0f);
    }
    float *p = (float *)allocate(n * 4);
    must(device->upload(p, host.data(), n * 4), "upload");
    return p;
}

static std::vector<float> fetch(const float *p, size_t n)
{
    std::vector<float> host(n);
    must(device->download(host.data(), p, n * 4), "download");
    return host;
}

static double difference(const std::vector<float> &a, const std::vector<float> &b)
{
    double err = 0, top = 0;
    for (size_t i = 0; i < a.size(); i++) {
        if (!(std::fabs(a[i] - b[i]) <= err))
            err = std::fabs(a[i] - b[i]);
        top = std::max(top, (double)std::fabs(b[i]));
    }
    return err / top;
}

struct timing {
    double median_us, least_us;
};

/* launch(i) with i = 0, 1, .. `turns` - 1 round and round, `launches` in a graph. */
static struct timing measure(int launches, int turns,
                             const std::function<int(int)> &launch)
{
    struct CUgraphExec_st *graph;
    struct CUevent_st *from, *to;
    std::vector<double> us;
    for (int i = 0; i < 2; i++)
        must(launch(i % turns), "launch");
    must(device->sync(stream), "sync");
    must(device->graph_begin(stream), "graph_begin");
    for (int i = 0; i < launches; i++)
        must(launch(i % turns), "launch");
    must(device->graph_end(stream, &graph), "graph_end");
    must(device->event_create(&from), "event");
    must(device->event_create(&to), "event");
    for (int i = 0; i < 9; i++) {
        double t = 0;
        must(device->event_record(from, stream), "event");
        must(device->graph_launch(graph, stream), "graph_launch");
        must(device->event_record(to, stream), "event");
        must(device->sync(stream), "sync");
        must(device->event_elapsed_us(from, to, &t), "event");
        if (i > 1)
            us.push_back(t / launches);
    }
    device->event_destroy(from);
    device->event_destroy(to);
    device->graph_destroy(graph);
    std::sort(us.begin(), us.end());
    return {us[us.size() / 2], us[0]};
}

static bool wanted(const char *line)
{
    return filter.empty() || strstr(line, filter.c_str());
}

/* ---- decode ---- */

static void bench_decode(int head_dim, int n_heads, int n_kv_heads, int keys)
{
    static const struct {
        const char *id;
        int arm;
    } arms[] = {
        {"vector",      KG_DECODE_VECTOR                 },
        {"int8",        KG_DECODE_INT8                   },
        {"vector-deep", KG_DECODE_VECTOR | KG_DECODE_DEEP},
        {"int8-deep",   KG_DECODE_INT8 | KG_DECODE_DEEP  },
    };
    const int64_t dim = (int64_t)n_kv_heads * head_dim;
    struct kg_decode a = {};
    a.layout = {KG_TYPE_Q8_0, KG_TYPE_Q5_1, dim, dim, dim / 32 * 34, dim / 32 * 24};
    a.head_dim = head_dim;
    a.n_heads = n_heads;
    a.n_kv_heads = n_kv_heads;
    a.scale = 1.0f / std::sqrt((float)head_dim);
    const size_t k_bytes = (size_t)(keys * a.layout.k_stride);
    const size_t v_bytes = (size_t)(keys * a.layout.v_stride);
    const double bytes = (double)(k_bytes + v_bytes);
    const int copies = (int)std::min(32.0, std::ceil(240e6 / bytes) + 1);
    const size_t n_out = (size_t)n_heads * head_dim;
    char line[128];

    snprintf(line, sizeof line, "decode %d %d/%d %d", head_dim, n_heads, n_kv_heads,
             keys);
    if (!wanted(line))
        return;
    float *k = random_floats((size_t)(keys * dim), 2.5f, 1),
          *v = random_floats((size_t)(keys * dim), 0.7f, 2);
    float *q = random_floats(n_out, 3.0f, 3), *out = (float *)allocate(n_out * 4);
    std::vector<uint8_t *> kc, vc;
    for (int i = 0; i < copies; i++) {
        kc.push_back((uint8_t *)allocate(k_bytes));
        vc.push_back((uint8_t *)allocate(v_bytes));
        must(provider->kv->append_rows(&a.layout, k, v, kc[i], vc[i], 0, keys, stream),
             "append");
    }
    const int64_t work = provider->attention->decode_workspace(&a, 1, keys);
    void *workspace = allocate((size_t)work);
    must(device->fill(workspace, 0, (size_t)work), "fill");
    a.q = q;
    a.out = out;
    a.workspace = workspace;
    std::vector<float> reference;
    for (const auto &arm : arms) {
        const auto launch = [&](int i) {
            a.k_cache = kc[i];
            a.v_cache = vc[i];
            return provider->attention->decode(arm.arm, &a, keys, stream);
        };
        must(launch(0), arm.id);
        must(device->sync(stream), arm.id);
        const std::vector<float> got = fetch(out, n_out);
        if (reference.empty())
            reference = got;
        const struct timing t =
            measure(copies * std::max(1, 64 / copies), copies, launch);
        printf("%-28s %-12s %9.2f %9.2f us %8.0f GB/s %5.1f%% %10.2e\n", line, arm.id,
               t.median_us, t.least_us, bytes / t.median_us * 1e-3,
               bytes / t.median_us * 1e-3 / 41.7, difference(got, reference));
    }
    for (int i = 0; i < copies; i++) {
        device->release(kc[i]);
        device->release(vc[i]);
    }
    for (void *p : {(void *)k, (void *)v, (void *)q, (void *)out, workspace})
        device->release(p);
}

/* ---- prefill ---- */

static void bench_prefill(int head_dim, int n_heads, int n_kv_heads, int tokens)
{
    static const struct {
        const char *id;
        int arm;
        bool half;
    } arms[] = {
        {"f16",        KG_PREFILL_F16,        true },
        {"bf16",       KG_PREFILL_BF16,       false},
        {"single-f16", KG_PREFILL_SINGLE_F16, true },
        {"wgmma-f16",  KG_PREFILL_WGMMA_F16,  true },
        {"wgmma-bf16", KG_PREFILL_WGMMA_BF16, false},
    };
    const int64_t dim = (int64_t)n_kv_heads * head_dim;
    const size_t n_kv = (size_t)(tokens * dim), n_q = (size_t)tokens * n_heads * head_dim;
    const double ops = 2.0 * tokens * (tokens + 1.0) * n_heads * head_dim;
    struct kg_prefill a = {};
    char line[128];

    snprintf(line, sizeof line, "prefill %d %d/%d %d", head_dim, n_heads, n_kv_heads,
             tokens);
    if (!wanted(line))
        return;
    a.head_dim = head_dim;
    a.n_heads = n_heads;
    a.n_kv_heads = n_kv_heads;
    a.causal = 1;
    a.scale = 1.0f / std::sqrt((float)head_dim);
    a.tokens = a.keys = tokens;
    float *k = random_floats(n_kv, 2.5f, 1), *v = random_floats(n_kv, 0.7f, 2);
    float *q = random_floats(n_q, 3.0f, 3), *out = (float *)allocate(n_q * 4);
    void *k16 = allocate(n_kv * 2), *v16 = allocate(n_kv * 2);
    std::vector<float> reference;
    a.q = q;
    a.out = out;
    for (const auto &arm : arms) {
        const auto stage = [&](int) {
            a.source = KG_PREFILL_F32;
            a.k = k;
            a.v = v;
            return provider->attention->stage(&a, arm.half, k16, v16, stream);
        };
        const auto launch = [&](int) {
            a.source = KG_PREFILL_WORKSPACE;
            a.k = k16;
            a.v = v16;
            return provider->attention->prefill(arm.arm, &a, stream);
        };
        must(stage(0), "stage");
        const int rc = launch(0);
        if (rc == KG_E_UNSUPPORTED)
            continue;
        must(rc, arm.id);
        must(device->sync(stream), arm.id);
        const std::vector<float> got = fetch(out, n_q);
        if (reference.empty())
            reference = got;
        const struct timing t = measure(4, 1, launch);
        printf("%-28s %-12s %9.2f %9.2f us %8.1f TFLOP/s %4.1f%% %8.2e\n", line, arm.id,
               t.median_us, t.least_us, ops / t.median_us * 1e-6,
               ops / t.median_us * 1e-6 / 7.9, difference(got, reference));
    }
    for (void *p : {(void *)k, (void *)v, (void *)q, (void *)out, k16, v16})
        device->release(p);
}

int main(int argc, char **argv)
{
    struct kg_open_options options = {};
    if (argc < 2) {
        fprintf(stderr, "usage: %s PROVIDER.so [FILTER]\n", argv[0]);
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    provider = library ? (const struct kg_provider *)dlsym(library, KG_PROVIDER_SYMBOL)
                       : nullptr;
    if (!provider || !provider->attention || !provider->kv) {
        fprintf(stderr, "%s: %s\n", argv[1],
                library ? "no attention kernels" : dlerror());
        return 1;
    }
    if (argc > 2)
        filter = argv[2];
    device = provider->device;
    options.size = sizeof options;
    must(device->open(&options), "open");
    if (!device->event_create) {
        fprintf(stderr, "this device has no clock\n");
        return 77;
    }
    must(device->stream_create(&stream), "stream");
    bench_decode(128, 32, 8, 4096);
    bench_decode(128, 32, 8, 32768);
    bench_decode(128, 64, 8, 32768);
    bench_decode(256, 16, 4, 4096);
    bench_decode(256, 16, 2, 6144);
    bench_decode(128, 8, 8, 32768);
    bench_prefill(128, 32, 8, 4096);
    bench_prefill(64, 32, 8, 4096);
    bench_prefill(256, 16, 4, 2048);
    bench_prefill(256, 16, 4, 4096);
    bench_prefill(512, 8, 1, 2048);
    device->close();
    return 0;
}
