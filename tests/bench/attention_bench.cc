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
#include <cmath>

#include "bench.h"

/* Numbers in [-1, 1) times scale, on the device. */
static memory random_floats(size_t n, float scale, uint32_t seed)
{
    std::vector<float> host(n);
    for (float &x : host) {
        seed = seed * 1664525u + 1013904223u;
        x = scale * ((float)(seed >> 8) * 0x1p-23f - 1.0f);
    }
    return memory(host);
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

static const runs fewer = {7, 2, 2};

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
    const memory k = random_floats((size_t)(keys * dim), 2.5f, 1),
                 v = random_floats((size_t)(keys * dim), 0.7f, 2),
                 q = random_floats(n_out, 3.0f, 3), out(n_out * 4);
    std::vector<memory> kc, vc;
    for (int i = 0; i < copies; i++) {
        kc.emplace_back(k_bytes);
        vc.emplace_back(v_bytes);
        must(pv->kv->append_rows(&a.layout, k, v, kc[i], vc[i], 0, keys, stream),
             "append");
    }
    const int64_t work = pv->attention->decode_workspace(&a, 1, keys);
    const memory workspace((size_t)work, 0);
    a.q = q;
    a.out = out;
    a.workspace = workspace;
    std::vector<float> reference;
    for (const auto &arm : arms) {
        const auto launch = [&](int i) {
            a.k_cache = kc[i % copies];
            a.v_cache = vc[i % copies];
            return arm.arm & KG_DECODE_DEEP
                       ? pv->attention->decode_settled(arm.arm, &a, keys - 1, 1, keys - 1,
                                                       stream)
                       : pv->attention->decode(arm.arm, &a, keys, stream);
        };
        must(launch(0), arm.id);
        must(pv->device->sync(stream), arm.id);
        const std::vector<float> got = fetch<float>(out, n_out);
        if (reference.empty())
            reference = got;
        const timing t = time_us(copies * std::max(1, 64 / copies), launch, fewer);
        printf("%-28s %-12s %9.2f %9.2f us %8.0f GB/s %5.1f%% %10.2e\n", line, arm.id,
               t.median, t.least, bytes / t.median * 1e-3, bytes / t.median * 1e-3 / 41.7,
               difference(got, reference));
    }
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
    const memory k = random_floats(n_kv, 2.5f, 1), v = random_floats(n_kv, 0.7f, 2),
                 q = random_floats(n_q, 3.0f, 3), out(n_q * 4), k16(n_kv * 2),
                 v16(n_kv * 2);
    std::vector<float> reference;
    a.q = q;
    a.out = out;
    for (const auto &arm : arms) {
        const auto stage = [&](int) {
            a.source = KG_PREFILL_F32;
            a.k = k;
            a.v = v;
            return pv->attention->stage(&a, arm.half, k16, v16, stream);
        };
        const auto launch = [&](int) {
            a.source = KG_PREFILL_WORKSPACE;
            a.k = k16;
            a.v = v16;
            return pv->attention->prefill(arm.arm, &a, stream);
        };
        must(stage(0), "stage");
        const int rc = launch(0);
        if (rc == KG_E_UNSUPPORTED)
            continue;
        must(rc, arm.id);
        must(pv->device->sync(stream), arm.id);
        const std::vector<float> got = fetch<float>(out, n_q);
        if (reference.empty())
            reference = got;
        const timing t = time_us(4, launch, fewer);
        printf("%-28s %-12s %9.2f %9.2f us %8.1f TFLOP/s %4.1f%% %8.2e\n", line, arm.id,
               t.median, t.least, ops / t.median * 1e-6, ops / t.median * 1e-6 / 7.9,
               difference(got, reference));
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s PROVIDER.so [FILTER]\n", argv[0]);
        return 2;
    }
    if (!load(argv[1], "no attention kernels", [] { return pv->attention && pv->kv; }))
        return 1;
    if (argc > 2)
        filter = argv[2];
    open_device();
    if (!pv->device->event_create) {
        fprintf(stderr, "this device has no clock\n");
        return 77;
    }
    must(pv->device->stream_create(&stream), "stream");
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
    pv->device->close();
    return 0;
}
