/*
 * mmvq_bench: the decoding products of a provider, without the gate around them.
 *
 *   mmvq_bench PROVIDER.so check [TYPE]          bits of every form against stage_b, odd shapes
 *   mmvq_bench PROVIDER.so speed [TYPE] [IN OUT] us, GB/s and % of the copy rate, by m
 *
 * speed: weights rotate over two tensors of more than the L2 each; the time is the median of
 * 15 runs of a graph of 8 launches, divided by 8; bytes are weights, activations (codes and
 * scales) and results once. Each shape's result is also compared with stage_b, bit by bit.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>

#include "kgate/kernels.h"

static const kg_provider *pv;
static uint64_t rng_state = 88172645463325252ull;

static uint32_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 16);
}

static void must(int rc, const char *what)
{
    if (rc == KG_OK)
        return;
    fprintf(stderr, "%s: %d %s\n", what, rc, pv->device->last_error());
    exit(1);
}

struct type_row {
    int type;
    const char *name;
    int block, bytes;
    int half_at[2]; /* f16 fields, -1 for none */
    bool split;
};

static const type_row types[] = {
    {KG_TYPE_Q4_0,    "Q4_0",   32,  18,  {0, -1},   true },
    {KG_TYPE_Q8_0,    "Q8_0",   32,  34,  {0, -1},   false},
    {KG_TYPE_Q3_K,    "Q3_K",   256, 110, {108, -1}, false},
    {KG_TYPE_Q4_K,    "Q4_K",   256, 144, {0, 2},    true },
    {KG_TYPE_Q5_K,    "Q5_K",   256, 176, {0, 2},    false},
    {KG_TYPE_Q6_K,    "Q6_K",   256, 210, {208, -1}, true },
    {KG_TYPE_IQ4_XS,  "IQ4_XS", 256, 136, {0, -1},   false},
    {KG_TYPE_NVFP4,   "NVFP4",  64,  36,  {-1, -1},  true },
    {KG_TYPE_MXFP4,   "MXFP4",  32,  17,  {-1, -1},  false},
    {KG_TYPE_F8_E4M3, "E4M3",   32,  32,  {-1, -1},  false},
};

static void fill_weights(const type_row &t, uint8_t *w, int64_t blocks)
{
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t *p = w + b * t.bytes;
        for (int i = 0; i < t.bytes; i++)
            p[i] = (uint8_t)rnd();
        for (int h : t.half_at)
            if (h >= 0) {
                uint16_t v = (uint16_t)((rnd() & 0x83ffu) | (8u + rnd() % 6u) << 10);
                memcpy(p + h, &v, 2);
            }
        if (t.type == KG_TYPE_MXFP4)
            p[0] = (uint8_t)(118 + rnd() % 12);
        if (t.type == KG_TYPE_F8_E4M3)
            for (int i = 0; i < t.bytes; i++)
                if ((p[i] & 0x7f) == 0x7f)
                    p[i] ^= 1;
    }
}

/* A tensor of any size: a few thousand random blocks, repeated with a prime period. */
static void fill_large(const type_row &t, std::vector<uint8_t> &w)
{
    const size_t period = (size_t)t.bytes * 10007;
    const size_t n = std::min(period, w.size());
    fill_weights(t, w.data(), (int64_t)(n / (size_t)t.bytes));
    for (size_t at = n; at < w.size(); at += n)
        memcpy(w.data() + at, w.data(), std::min(n, w.size() - at));
}

static void *device(size_t bytes, const void *from = nullptr)
{
    void *p;
    must(pv->device->alloc(&p, bytes + 64), "alloc");
    if (from)
        must(pv->device->upload(p, from, bytes), "upload");
    return p;
}

struct activations {
    int8_t *q;
    float *d, *s;
};

static activations make_activations(int64_t in, int64_t m)
{
    std::vector<float> x((size_t)(in * m));
    for (float &v : x)
        v = (float)((int)(rnd() % 20001u) - 10000) * 1e-4f;
    activations a;
    void *dx = device(x.size() * 4, x.data());
    a.q = (int8_t *)device((size_t)(in * m));
    a.d = (float *)device((size_t)(in / 32 * m) * 4);
    a.s = (float *)device((size_t)(in / 32 * m) * 4);
    must(pv->matvec->quantize_q8_1((float *)dx, a.q, a.d, a.s, m, in, nullptr),
         "quantize");
    must(pv->device->sync(nullptr), "sync");
    pv->device->release(dx);
    return a;
}

static void drop(activations &a)
{
    pv->device->release(a.q);
    pv->device->release(a.d);
    pv->device->release(a.s);
}

static std::vector<uint32_t> fetch(const float *y, size_t n)
{
    std::vector<uint32_t> v(n);
    must(pv->device->sync(nullptr), "sync");
    must(pv->device->download(v.data(), y, n * 4), "download");
    return v;
}

static int64_t different(const std::vector<uint32_t> &a, const std::vector<uint32_t> &b)
{
    int64_t n = 0;
    for (size_t i = 0; i < a.size(); i++)
        n += a[i] != b[i];
    return n;
}

static int failures;

static void report(const char *what, const type_row &t, int64_t in, int64_t out,
                   int64_t m, int width, int64_t bad)
{
    if (bad != 0) {
        failures++;
        printf("FAIL %-8s %-7s in %lld out %lld m %lld width %d: %lld differ\n", what,
               t.name, (long long)in, (long long)out, (long long)m, width,
               (long long)bad);
    }
}

/* The sums of stage_b; of the plain kernel for E4M3, which unaligned weights select. */
static std::vector<uint32_t> reference(const type_row &t, const std::vector<uint8_t> &w,
                                       const void *dw, const activations &a, int64_t in,
                                       int64_t out, int64_t m, int kind,
                                       const float *scales, float *y)
{
    must(pv->device->fill(y, 0xff, (size_t)(m * out) * 4), "fill");
    if (t.type != KG_TYPE_F8_E4M3) {
        must(pv->matvec->stage_b(t.type, dw, a.q, a.d, a.s, y, in, out, m, nullptr),
             "stage_b");
        return fetch(y, (size_t)(m * out));
    }
    uint8_t *odd = (uint8_t *)device(w.size() + 1);
    must(pv->device->upload(odd + 1, w.data(), w.size()), "upload");
    kg_mmvq_tensor x = {odd + 1, y, out, 1.0f, scales};
    must(pv->mmvq->product(t.type, KG_LAYOUT_FILE, kind, &x, 1, a.q, a.d, a.s, in, m, 8,
                           nullptr),
         "plain");
    std::vector<uint32_t> r = fetch(y, (size_t)(m * out));
    pv->device->release(odd);
    return r;
}

static void check_shape(const type_row &t, int64_t in, int64_t out)
{
    const int64_t m = 9, blocks = in / t.block;
    const bool fp8 = t.type == KG_TYPE_F8_E4M3;
    const int64_t outs[3] = {out, out / 2 + 3, 1};
    std::vector<uint8_t> w[3];
    void *dw[3], *sp[3];
    float *y[3], *parts = (float *)device((size_t)(2 * m * out) * 4);
    activations a = make_activations(in, m);
    std::vector<float> scales((size_t)(out + in + 64));
    for (float &v : scales)
        v = (float)(rnd() % 1000u + 1u) * 0.001f;
    float *ds = (float *)device(scales.size() * 4, scales.data());
    for (int i = 0; i < 3; i++) {
        w[i].resize((size_t)(outs[i] * blocks * t.bytes));
        fill_weights(t, w[i].data(), outs[i] * blocks);
        dw[i] = device(w[i].size(), w[i].data());
        sp[i] = t.split ? device(w[i].size()) : nullptr;
        if (t.split) {
            must(pv->mmvq->split(t.type, dw[i], sp[i], in, outs[i], nullptr), "split");
            uint8_t *back = (uint8_t *)device(w[i].size());
            must(pv->mmvq->unsplit(t.type, sp[i], back, in, outs[i], nullptr), "unsplit");
            std::vector<uint8_t> v(w[i].size());
            must(pv->device->sync(nullptr), "sync");
            must(pv->device->download(v.data(), back, v.size()), "download");
            report("unsplit", t, in, outs[i], 0, 0, v != w[i]);
            pv->device->release(back);
        }
        y[i] = (float *)device((size_t)(m * outs[i]) * 4);
    }
    for (int kind = 0; kind <= (fp8 ? 2 : 0); kind++) {
        std::vector<uint32_t> want[3];
        for (int i = 0; i < 3; i++)
            want[i] = reference(t, w[i], dw[i], a, in, outs[i], m, kind, ds, y[i]);
        for (int width : {1, 2, 3, 4, 5, 6, 7, 8, 16})
            for (int layout = 0; layout <= (t.split ? 1 : 0); layout++)
                for (int n = 1; n <= 3; n++) {
                    if ((width == 16 && t.type != KG_TYPE_Q6_K) || (n == 2 && width > 4))
                        continue;
                    kg_mmvq_tensor x[3];
                    for (int i = 0; i < n; i++) {
                        x[i] = {layout ? sp[i] : dw[i], y[i], outs[i],
                                i == 1 ? 0.25f : 1.0f, ds};
                        must(pv->device->fill(y[i], 0xff, (size_t)(m * outs[i]) * 4),
                             "fill");
                    }
                    const int64_t rows = width == 2 ? 3 : m;
                    must(pv->mmvq->product(t.type, layout, kind, x, n, a.q, a.d, a.s, in,
                                           rows, width, nullptr),
                         "product");
                    for (int i = 0; i < n; i++) {
                        std::vector<uint32_t> got = fetch(y[i], (size_t)(rows * outs[i]));
                        std::vector<uint32_t> exp(want[i].begin(),
                                                  want[i].begin() + rows * outs[i]);
                        if (i == 1)
                            for (uint32_t &v : exp) {
                                float f;
                                memcpy(&f, &v, 4);
                                f *= 0.25f;
                                memcpy(&v, &f, 4);
                            }
                        report(layout ? "split" : "product", t, in, outs[i], rows, width,
                               different(got, exp));
                    }
                }
        if (!t.split)
            continue;
        must(pv->mmvq->stage_b_split(t.type, sp[0], a.q, a.d, a.s, y[0], in, out, m,
                                     nullptr),
             "stage_b_split");
        report("plain", t, in, out, m, 0,
               different(fetch(y[0], (size_t)(m * out)), want[0]));
        std::vector<uint32_t> first;
        for (int width : {1, 5, 8}) {
            kg_mmvq_tensor x = {sp[0], y[0], out, 1.0f, nullptr};
            must(
                pv->mmvq->ksplit(t.type, &x, a.q, a.d, a.s, in, m, width, parts, nullptr),
                "ksplit");
            std::vector<uint32_t> got = fetch(y[0], (size_t)(m * out));
            if (first.empty())
                first = got;
            report("ksplit", t, in, out, m, width, different(got, first));
            double worst = 0, top = 0;
            for (size_t i = 0; i < got.size(); i++) {
                float g, e;
                memcpy(&g, &got[i], 4);
                memcpy(&e, &want[0][i], 4);
                worst = std::max(worst, (double)(g > e ? g - e : e - g));
                top = std::max(top, (double)(e > 0 ? e : -e));
            }
            report("ksplit-band", t, in, out, m, width, !(worst <= 1e-6 * top));
        }
    }
    for (int i = 0; i < 3; i++) {
        pv->device->release(dw[i]);
        pv->device->release(y[i]);
        if (sp[i])
            pv->device->release(sp[i]);
    }
    pv->device->release(parts);
    pv->device->release(ds);
    drop(a);
}

static double time_graph(kg_provider const *p, CUstream_st *stream, int launches,
                         int (*launch)(void *, int), void *context)
{
    CUgraphExec_st *graph;
    CUevent_st *from, *to;
    must(launch(context, 0), "launch");
    must(p->device->sync(stream), "sync");
    must(p->device->graph_begin(stream), "graph");
    for (int i = 0; i < launches; i++)
        must(launch(context, i), "launch");
    must(p->device->graph_end(stream, &graph), "graph");
    must(p->device->event_create(&from), "event");
    must(p->device->event_create(&to), "event");
    std::vector<double> us;
    for (int i = 0; i < 17; i++) {
        double t;
        must(p->device->event_record(from, stream), "record");
        must(p->device->graph_launch(graph, stream), "graph launch");
        must(p->device->event_record(to, stream), "record");
        must(p->device->sync(stream), "sync");
        must(p->device->event_elapsed_us(from, to, &t), "elapsed");
        if (i >= 2)
            us.push_back(t / launches);
    }
    std::sort(us.begin(), us.end());
    p->device->graph_destroy(graph);
    p->device->event_destroy(from);
    p->device->event_destroy(to);
    return us[us.size() / 2];
}

struct copy_context {
    void *from, *to;
    size_t bytes;
    CUstream_st *stream;
};

static int launch_copy(void *context, int)
{
    copy_context *c = (copy_context *)context;
    return pv->ceiling->copy(c->to, c->from, c->bytes, c->stream);
}

struct product_context {
    int type, layout, width, kind;
    kg_mmvq_tensor tensor[2];
    activations a;
    int64_t in, m;
    CUstream_st *stream;
    bool stage_b;
};

static int launch_one(void *context, int i)
{
    product_context *c = (product_context *)context;
    if (c->stage_b)
        return pv->matvec->stage_b(c->type, c->tensor[i % 2].w, c->a.q, c->a.d, c->a.s,
                                   c->tensor[0].y, c->in, c->tensor[0].out, c->m,
                                   c->stream);
    return pv->mmvq->product(c->type, c->layout, c->kind, &c->tensor[i % 2], 1, c->a.q,
                             c->a.d, c->a.s, c->in, c->m, c->width, c->stream);
}

static void speed(const type_row &t, int64_t in, int64_t out, double copy_rate,
                  CUstream_st *stream)
{
    const bool fp8 = t.type == KG_TYPE_F8_E4M3;
    std::vector<uint8_t> w((size_t)(in / t.block * t.bytes * out));
    fill_large(t, w);
    void *file[2] = {device(w.size(), w.data()), device(w.size(), w.data())};
    void *split[2] = {};
    if (t.split)
        for (int i = 0; i < 2; i++) {
            split[i] = device(w.size());
            must(pv->mmvq->split(t.type, file[i], split[i], in, out, nullptr), "split");
        }
    activations a = make_activations(in, 16);
    float *y = (float *)device((size_t)(16 * out) * 4);
    const std::vector<uint32_t> want =
        reference(t, w, file[0], a, in, out, 16, 0, nullptr, y);
    for (int layout = 0; layout <= (t.split ? 1 : 0); layout++) {
        double one = 0;
        for (int m : {1, 2, 4, 8, 16}) {
            if (m == 16 && t.type != KG_TYPE_Q6_K)
                continue;
            product_context c = {t.type, layout, m, 0, {}, a, in, m, stream, false};
            for (int i = 0; i < 2; i++)
                c.tensor[i] = {layout ? split[i] : file[i], y, out, 1.0f, nullptr};
            must(pv->device->fill(y, 0xff, (size_t)(16 * out) * 4), "fill");
            must(launch_one(&c, 0), "product");
            must(pv->device->sync(stream), "sync");
            std::vector<uint32_t> got = fetch(y, (size_t)(m * out));
            const int64_t bad = different(
                got, std::vector<uint32_t>(want.begin(), want.begin() + m * out));
            const double us = time_graph(pv, stream, 8, launch_one, &c);
            const double bytes =
                (double)w.size() + (double)m * (double)(in + in / 32 * 4 + out * 4);
            if (m == 1)
                one = us;
            printf("%-7s %-5s m %2d  %8.2f us  %7.1f GB/s  %5.1f %% of copy  x%.2f  %s\n",
                   t.name, layout ? "split" : "file", m, us, bytes / us * 1e-3,
                   bytes / us * 1e-3 / copy_rate * 100, us / one, bad ? "BITS" : "ok");
            fflush(stdout);
            failures += bad != 0;
        }
    }
    if (!fp8) {
        product_context c = {t.type, 0, 1, 0, {}, a, in, 1, stream, true};
        for (int i = 0; i < 2; i++)
            c.tensor[i] = {file[i], y, out, 1.0f, nullptr};
        const double us = time_graph(pv, stream, 4, launch_one, &c);
        printf("%-7s stage_b m 1 %8.2f us  %5.1f %% of copy\n", t.name, us,
               (double)w.size() / us * 1e-3 / copy_rate * 100);
    }
    for (int i = 0; i < 2; i++) {
        pv->device->release(file[i]);
        if (split[i])
            pv->device->release(split[i]);
    }
    pv->device->release(y);
    drop(a);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s PROVIDER.so check|speed [TYPE|all] [IN OUT]\n",
                argv[0]);
        return 2;
    }
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    pv = so ? (const kg_provider *)dlsym(so, KG_PROVIDER_SYMBOL) : nullptr;
    if (!pv || !pv->mmvq) {
        fprintf(stderr, "%s: %s\n", argv[1], so ? "no mmvq kernels" : dlerror());
        return 2;
    }
    kg_open_options options = {};
    options.size = sizeof options;
    must(pv->device->open(&options), "open");
    const char *only = argc > 3 && strcmp(argv[3], "all") != 0 ? argv[3] : nullptr;
    const bool timed = strcmp(argv[2], "speed") == 0;
    double copy_rate = 0;
    CUstream_st *stream = nullptr;
    if (timed) {
        must(pv->device->stream_create(&stream), "stream");
        copy_context c = {device(512 << 20), device(512 << 20), 512 << 20, stream};
        const double us = time_graph(pv, stream, 4, launch_copy, &c);
        copy_rate = 2.0 * (double)c.bytes / us * 1e-3;
        printf("copy %.1f GB/s\n", copy_rate);
        pv->device->release(c.from);
        pv->device->release(c.to);
    }
    for (const type_row &t : types) {
        if (only && strcmp(only, t.name) != 0)
            continue;
        if (timed) {
            speed(t, argc > 5 ? atoll(argv[4]) : 8192, argc > 5 ? atoll(argv[5]) : 28672,
                  copy_rate, stream);
            continue;
        }
        const int64_t b = t.block;
        for (int64_t in : {b, 3 * b, 1024 + b, (int64_t)2048, 4096 - b})
            for (int64_t out : {1, 3, 33, 70})
                if ((in == b || out != 33))
                    check_shape(t, in, out);
        if (t.type == KG_TYPE_F8_E4M3)
            check_shape(t, 2080, 192);
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
