/*
 * gemm_bench: the tensor-core products of a provider, timed without the gate around them.
 *
 *   gemm_bench PROVIDER.so [TYPE|all] [IN OUT [T]]
 *
 * Without sizes: 4096 -> 12288 at 16, 64, 128 and 512 tokens, 8192 -> 28672 at 16. Weights
 * rotate over copies of more than twice the L2 together. A time is the median of 15 runs of
 * a graph with one launch per copy, divided by their number; the quantization of the activations is
 * not in it. `floor` is the larger of weights, activations and results once at 4.17 TB/s.
 * `dp4a` is max |y - stage_b| / max |stage_b| over the first four tokens.
 */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "kgate/kernels.h"

static const kg_provider *pv;
static CUstream_st *stream;
static int sm_count;

static void must(int rc, const char *what)
{
    if (rc == KG_OK)
        return;
    fprintf(stderr, "%s: %d %s\n", what, rc, pv->device->last_error());
    exit(1);
}

static void *device(size_t bytes)
{
    void *p = nullptr;
    must(pv->device->alloc(&p, bytes + 256), "alloc");
    must(pv->device->fill(p, 0, bytes + 256), "fill");
    return p;
}

struct type_row {
    int type;
    const char *name;
    int block, bytes, half_at, min_at;
};

static const type_row types[] = {
    {KG_TYPE_Q8_0,   "q8_0",   32,  34,  0,   -1},
    {KG_TYPE_Q4_0,   "q4_0",   32,  18,  0,   -1},
    {KG_TYPE_Q4_K,   "q4_k",   256, 144, 0,   2 },
    {KG_TYPE_Q5_K,   "q5_k",   256, 176, 0,   2 },
    {KG_TYPE_Q6_K,   "q6_k",   256, 210, 208, -1},
    {KG_TYPE_IQ4_XS, "iq4_xs", 256, 136, 0,   -1},
    {KG_TYPE_NVFP4,  "nvfp4",  64,  36,  -1,  -1},
};

static uint64_t state = 88172645463325252ull;

static uint32_t rnd(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Random codes, scales near 2^-6. */
static std::vector<uint8_t> make_weights(const type_row &t, size_t blocks)
{
    std::vector<uint8_t> w(blocks * (size_t)t.bytes);
    for (size_t i = 0; i + 4 <= w.size(); i += 4) {
        const uint32_t r = rnd();
        memcpy(&w[i], &r, 4);
    }
    for (size_t b = 0; b < blocks; b++) {
        uint8_t *block = &w[b * (size_t)t.bytes];
        for (int at : {t.half_at, t.min_at})
            if (at >= 0)
                block[at + 1] = (uint8_t)(0x24 | (block[at + 1] & 3));
        if (t.type == KG_TYPE_NVFP4)
            for (int i = 0; i < 4; i++)
                block[i] = (uint8_t)(0x20 + block[i] % 32);
    }
    return w;
}

/* Microseconds of one launch; `launch` takes the number of the copy. */
static double time_us(int copies, const std::function<int(int)> &launch)
{
    const kg_device_ops *d = pv->device;
    CUgraphExec_st *graph;
    CUevent_st *from, *to;
    must(launch(0), "launch");
    must(d->sync(stream), "sync");
    must(d->graph_begin(stream), "graph_begin");
    for (int i = 0; i < copies; i++)
        must(launch(i), "launch");
    must(d->graph_end(stream, &graph), "graph_end");
    must(d->event_create(&from), "event");
    must(d->event_create(&to), "event");
    std::vector<double> samples;
    for (int i = 0; i < 17; i++) {
        double us;
        must(d->event_record(from, stream), "record");
        must(d->graph_launch(graph, stream), "graph_launch");
        must(d->event_record(to, stream), "record");
        must(d->sync(stream), "sync");
        must(d->event_elapsed_us(from, to, &us), "elapsed");
        if (i >= 2)
            samples.push_back(us / copies);
    }
    std::sort(samples.begin(), samples.end());
    d->graph_destroy(graph);
    d->event_destroy(from);
    d->event_destroy(to);
    return samples[samples.size() / 2];
}

static void run(const type_row &t, int64_t in, int64_t out, int64_t m)
{
    const kg_gemm_ops *g = pv->gemm;
    const size_t blocks = (size_t)(in / t.block * out), bytes = blocks * (size_t)t.bytes;
    const int copies = (int)std::max<size_t>(2, (160u << 20) / bytes + 1);
    const std::vector<uint8_t> w = make_weights(t, blocks);
    std::vector<void *> dw;
    for (int i = 0; i < copies; i++) {
        dw.push_back(device(bytes));
        must(pv->device->upload(dw.back(), w.data(), bytes), "upload");
    }
    std::vector<float> x((size_t)(in * m));
    for (float &v : x)
        v = (float)(int32_t)(rnd() << 8) * 0x1p-31f;
    float *dx = (float *)device(x.size() * 4);
    int8_t *q = (int8_t *)device(x.size());
    float *d = (float *)device(x.size() / 8), *s = (float *)device(x.size() / 8);
    float *y = (float *)device((size_t)(out * m) * 4);
    float *ref = (float *)device((size_t)(out * 4) * 4);
    must(pv->device->upload(dx, x.data(), x.size() * 4), "upload");
    must(pv->matvec->quantize_q8_1(dx, q, d, s, m, in, stream), "quantize");
    const int64_t few = std::min<int64_t>(m, 4);
    must(pv->matvec->stage_b(t.type, dw[0], q, d, s, ref, in, out, few, stream),
         "stage_b");
    must(pv->device->sync(stream), "sync");
    std::vector<float> want((size_t)(out * few)), got(want.size());
    must(pv->device->download(want.data(), ref, want.size() * 4), "download");

    const double ops = 2.0 * (double)in * (double)out * (double)m;
    const double moved =
        (double)bytes + (double)m * (1.125 * (double)in + 4.0 * (double)out);
    const auto report = [&](const char *arm, const std::function<int(int)> &launch) {
        must(pv->device->fill(y, 0xff, (size_t)(out * m) * 4), "fill");
        const int rc = launch(0);
        if (rc == KG_E_UNSUPPORTED) {
            printf("%-7s %-12s unsupported\n", t.name, arm);
            return;
        }
        must(rc, arm);
        must(pv->device->sync(stream), arm);
        must(pv->device->download(got.data(), y, got.size() * 4), "download");
        double diff = 0, largest = 0;
        for (size_t i = 0; i < got.size(); i++) {
            const double e = std::fabs((double)got[i] - want[i]);
            diff = e <= diff ? diff : e;
            largest = std::max(largest, (double)std::fabs(want[i]));
        }
        const double us = pv->device->graph_begin ? time_us(copies, launch) : NAN;
        const double floor_us = moved / 4.17e6;
        printf(
            "%-7s %-12s %5lld -> %5lld  T %4lld  %8.1f us  %7.1f TOP/s  floor %6.1f us "
            "(x%.2f)  dp4a %.1e\n",
            t.name, arm, (long long)in, (long long)out, (long long)m, us, ops / us / 1e6,
            floor_us, us / floor_us, diff / largest);
        fflush(stdout);
    };

    report("tile", [&](int i) {
        return g->int8(t.type, KG_GEMM_BLOCKS, dw[(size_t)i], q, d, s, y, in, out, m,
                       KG_GEMM_TILE, 0, nullptr, 0, stream);
    });
    for (int per_sm : {1, 2, 3}) {
        const int workers = per_sm * sm_count;
        size_t need;
        must(g->int8_workspace(m, KG_GEMM_STREAM_K, workers, &need), "workspace");
        void *partial = device(need);
        const std::string arm = "stream-k/" + std::to_string(workers);
        report(arm.c_str(), [&](int i) {
            return g->int8(t.type, KG_GEMM_BLOCKS, dw[(size_t)i], q, d, s, y, in, out, m,
                           KG_GEMM_STREAM_K, workers, partial, need, stream);
        });
        pv->device->release(partial);
    }
    void *h = device(x.size() * 2);
    /* W4A8: halves of the codes */
    must(t.type == KG_TYPE_NVFP4 ? g->q8_to_f16(q, d, h, m, in, stream)
                                 : g->to_f16(dx, h, (int64_t)x.size(), stream),
         "to_f16");
    std::vector<void *> mirrors;
    for (int i = 0; i < 2; i++) {
        mirrors.push_back(device((size_t)(in * out) * 2));
        if (g->mirror_f16(t.type, dw[0], mirrors.back(), in * out, stream) != KG_OK) {
            pv->device->release(mirrors.back());
            mirrors.pop_back();
        }
    }
    if (mirrors.size() == 2)
        report("f16", [&](int i) {
            return g->f16(mirrors[(size_t)i % 2], h, y, in, out, m, stream);
        });
    if (m <= 16)
        report("f16-blocks", [&](int i) {
            return g->f16_blocks(t.type, dw[(size_t)i], h, y, in, out, m, stream);
        });
    if (g->mirror_q8_0 && g->int8_wgmma && t.type == KG_TYPE_Q8_0) {
        std::vector<void *> planes;
        for (int i = 0; i < copies; i++)
            planes.push_back(device((size_t)(in * out) + (size_t)(in / 32 * out) * 4));
        int rc = KG_OK;
        for (void *p : planes)
            rc = rc ?: g->mirror_q8_0(dw[0], p, in, out, stream);
        if (rc == KG_OK)
            report("wgmma", [&](int i) {
                return g->int8_wgmma(planes[(size_t)i], q, d, y, in, out, m, stream);
            });
        for (void *p : planes)
            pv->device->release(p);
    }
    if (t.type == KG_TYPE_NVFP4) {
        void *codes = device(x.size() / 2), *scales = device(x.size() / 16);
        float *token = (float *)device((size_t)m * 4);
        must(g->nvfp4_quantize(dx, m, in, nullptr, 0, 2, (uint8_t *)codes,
                               (uint8_t *)scales, token, stream),
             "nvfp4_quantize");
        report("w4a4", [&](int i) {
            return g->w4a4(KG_GEMM_BLOCKS, dw[(size_t)i], nullptr, (uint8_t *)codes,
                           (uint8_t *)scales, token, y, in, out, m, KG_GEMM_TILE, 0,
                           nullptr, 0, stream);
        });
        for (void *p : {codes, scales, (void *)token})
            pv->device->release(p);
    }
    for (void *p : dw)
        pv->device->release(p);
    for (void *p : mirrors)
        pv->device->release(p);
    for (void *p :
         {(void *)dx, (void *)q, (void *)d, (void *)s, (void *)y, (void *)ref, h})
        pv->device->release(p);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: gemm_bench PROVIDER.so [TYPE|all] [IN OUT [T]]\n");
        return 2;
    }
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    pv = so ? (const kg_provider *)dlsym(so, KG_PROVIDER_SYMBOL) : nullptr;
    if (!pv || !pv->gemm || !pv->matvec) {
        fprintf(stderr, "%s: %s\n", argv[1], so ? "no such tables" : dlerror());
        return 2;
    }
    int n = 0;
    if (pv->device->count(&n) != KG_OK || n == 0) {
        fprintf(stderr, "no device\n");
        return 77;
    }
    kg_open_options options = {};
    options.size = sizeof options;
    must(pv->device->open(&options), "open");
    kg_device_info info = {};
    info.size = sizeof info;
    must(pv->device->info(&info), "info");
    sm_count = info.sm_count;
    printf("%s, %d multiprocessors\n", info.name, sm_count);
    must(pv->device->stream_create(&stream), "stream");
    const std::string only = argc > 2 ? argv[2] : "all";
    for (const type_row &t : types) {
        if (only != "all" && only != t.name)
            continue;
        if (argc > 4) {
            run(t, atoll(argv[3]), atoll(argv[4]), argc > 5 ? atoll(argv[5]) : 512);
            continue;
        }
        for (int m : {16, 64, 128, 512})
            run(t, 4096, 12288, m);
        run(t, 8192, 28672, 16);
    }
    return 0;
}
