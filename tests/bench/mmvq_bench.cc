/*
 * mmvq_bench: the decoding products of a provider, without the gate around them.
 *
 *   mmvq_bench PROVIDER.so check [TYPE]          bits of every form against stage_b, odd shapes
 *   mmvq_bench PROVIDER.so speed [TYPE] [IN OUT] us, GB/s and % of the copy rate, by m
 *
 * speed: weights rotate over two tensors of more than the L2 each, activations over two of their
 * own, as those of `kgate run --bench` do; the time is the median of 15 runs of a graph of 64
 * launches, divided by 64: as long as the gate's, in which an H200 lowers its clock (graphs of 8
 * take 5 % less where arithmetic is the limit); the copy and stage_b, for comparison, in graphs of
 * 4. Bytes are weights, activations (codes and scales) and results once. E4M3 has lines with a
 * scale of the tensor, of each row and of each block. Each shape's result is also compared with
 * stage_b, bit by bit, or for E4M3 with the kernel for unaligned weights.
 */
#include <cstring>

#include "bench.h"

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

struct activations {
    memory q, d, s;
    activations(int64_t in, int64_t m)
        : q((size_t)(in * m)), d((size_t)(in / 32 * m) * 4), s((size_t)(in / 32 * m) * 4)
    {
        std::vector<float> x((size_t)(in * m));
        for (float &v : x)
            v = (float)((int)(rnd() % 20001u) - 10000) * 1e-4f;
        const memory dx(x);
        must(pv->matvec->quantize_q8_1(dx, q, d, s, m, in, nullptr), "quantize");
        must(pv->device->sync(nullptr), "sync");
    }
};

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
                                       const memory &dw, const activations &a, int64_t in,
                                       int64_t out, int64_t m, int kind,
                                       const float *scales, const memory &y)
{
    must(pv->device->fill(y, 0xff, (size_t)(m * out) * 4), "fill");
    if (t.type != KG_TYPE_F8_E4M3) {
        must(pv->matvec->stage_b(t.type, dw, a.q, a.d, a.s, y, in, out, m, nullptr),
             "stage_b");
        return fetch<uint32_t>(y, (size_t)(m * out));
    }
    const memory whole(w.size() + 1);
    uint8_t *odd = (uint8_t *)whole + 1;
    must(pv->device->upload(odd, w.data(), w.size()), "upload");
    kg_mmvq_tensor x = {odd, y, out, 1.0f, scales};
    must(pv->mmvq->product(t.type, KG_LAYOUT_FILE, kind, &x, 1, a.q, a.d, a.s, in, m, 8,
                           nullptr),
         "plain");
    return fetch<uint32_t>(y, (size_t)(m * out));
}

static void check_shape(const type_row &t, int64_t in, int64_t out)
{
    const int64_t m = 9, blocks = in / t.block;
    const bool fp8 = t.type == KG_TYPE_F8_E4M3;
    const int64_t outs[3] = {out, out / 2 + 3, 1};
    std::vector<uint8_t> w[3];
    std::vector<memory> dw, sp, y;
    const memory parts((size_t)(2 * m * out) * 4);
    const activations a(in, m);
    std::vector<float> scales((size_t)(out + in + 64));
    for (float &v : scales)
        v = (float)(rnd() % 1000u + 1u) * 0.001f;
    const memory ds(scales);
    for (int i = 0; i < 3; i++) {
        w[i].resize((size_t)(outs[i] * blocks * t.bytes));
        fill_weights(t, w[i].data(), outs[i] * blocks);
        dw.emplace_back(w[i]);
        if (t.split) {
            sp.emplace_back(w[i].size());
            must(pv->mmvq->split(t.type, dw[i], sp[i], in, outs[i], nullptr), "split");
            const memory back(w[i].size());
            must(pv->mmvq->unsplit(t.type, sp[i], back, in, outs[i], nullptr), "unsplit");
            report("unsplit", t, in, outs[i], 0, 0,
                   fetch<uint8_t>(back, w[i].size()) != w[i]);
        }
        y.emplace_back((size_t)(m * outs[i]) * 4);
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
                        std::vector<uint32_t> got =
                            fetch<uint32_t>(y[i], (size_t)(rows * outs[i]));
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
               different(fetch<uint32_t>(y[0], (size_t)(m * out)), want[0]));
        std::vector<uint32_t> first;
        for (int width : {1, 5, 8}) {
            kg_mmvq_tensor x = {sp[0], y[0], out, 1.0f, nullptr};
            must(
                pv->mmvq->ksplit(t.type, &x, a.q, a.d, a.s, in, m, width, parts, nullptr),
                "ksplit");
            std::vector<uint32_t> got = fetch<uint32_t>(y[0], (size_t)(m * out));
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
}

static void speed(const type_row &t, int64_t in, int64_t out, double copy_rate)
{
    const bool fp8 = t.type == KG_TYPE_F8_E4M3;
    std::vector<uint8_t> w((size_t)(in / t.block * t.bytes * out));
    fill_large(t, w);
    const memory file[2] = {memory(w), memory(w)};
    std::vector<memory> split;
    if (t.split)
        for (int i = 0; i < 2; i++) {
            split.emplace_back(w.size());
            must(pv->mmvq->split(t.type, file[i], split[i], in, out, nullptr), "split");
        }
    std::vector<float> made((size_t)(out + in + (in / 128 + 1) * (out / 128 + 1)));
    for (float &v : made)
        v = (float)(rnd() % 1000u + 1u) * 0.001f;
    const memory scales(made);
    const activations a[2] = {activations(in, 16), activations(in, 16)};
    const memory y((size_t)(16 * out) * 4);
    for (int form = 0; form <= (fp8 ? 2 : t.split); form++) {
        const int layout = t.split ? form : 0, kind = fp8 ? form : 0;
        const char *const names[2][3] = {
            {"file", "split", ""     },
            {"file", "row",   "block"}
        };
        const std::vector<uint32_t> want =
            reference(t, w, file[0], a[0], in, out, 16, kind, scales, y);
        double one = 0;
        for (int m : {1, 2, 4, 8, 16}) {
            if (m == 16 && t.type != KG_TYPE_Q6_K)
                continue;
            kg_mmvq_tensor x[2];
            for (int i = 0; i < 2; i++)
                x[i] = {layout ? split[i] : file[i], y, out, 1.0f, scales};
            const auto launch = [&](int i) {
                const activations &q = a[i % 2];
                return pv->mmvq->product(t.type, layout, kind, &x[i % 2], 1, q.q, q.d,
                                         q.s, in, m, m, stream);
            };
            must(pv->device->fill(y, 0xff, (size_t)(16 * out) * 4), "fill");
            must(launch(0), "product");
            std::vector<uint32_t> got = fetch<uint32_t>(y, (size_t)(m * out));
            const int64_t bad = different(
                got, std::vector<uint32_t>(want.begin(), want.begin() + m * out));
            const double us = time_us(64, launch).median;
            const double bytes =
                (double)w.size() + (double)m * (double)(in + in / 32 * 4 + out * 4);
            if (m == 1)
                one = us;
            printf("%-7s %-5s m %2d  %8.2f us  %7.1f GB/s  %5.1f %% of copy  x%.2f  %s\n",
                   t.name, names[fp8][form], m, us, bytes / us * 1e-3,
                   bytes / us * 1e-3 / copy_rate * 100, us / one, bad ? "BITS" : "ok");
            fflush(stdout);
            failures += bad != 0;
        }
    }
    if (!fp8) {
        const auto launch = [&](int i) {
            const activations &q = a[i % 2];
            return pv->matvec->stage_b(t.type, file[i % 2], q.q, q.d, q.s, y, in, out, 1,
                                       stream);
        };
        const double us = time_us(4, launch).median;
        printf("%-7s stage_b m 1 %8.2f us  %5.1f %% of copy\n", t.name, us,
               (double)w.size() / us * 1e-3 / copy_rate * 100);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s PROVIDER.so check|speed [TYPE|all] [IN OUT]\n",
                argv[0]);
        return 2;
    }
    if (!load(argv[1], "no mmvq kernels", [] { return pv->mmvq != nullptr; }))
        return 2;
    open_device();
    const char *only = argc > 3 && strcmp(argv[3], "all") != 0 ? argv[3] : nullptr;
    const bool timed = strcmp(argv[2], "speed") == 0;
    double copy_rate = 0;
    if (timed) {
        must(pv->device->stream_create(&stream), "stream");
        const size_t bytes = 512 << 20;
        const memory from(bytes), to(bytes);
        const auto copy = [&](int) { return pv->ceiling->copy(to, from, bytes, stream); };
        copy_rate = 2.0 * (double)bytes / time_us(4, copy).median * 1e-3;
        printf("copy %.1f GB/s\n", copy_rate);
    }
    for (const type_row &t : types) {
        if (only && strcmp(only, t.name) != 0)
            continue;
        if (timed) {
            speed(t, argc > 5 ? atoll(argv[4]) : 8192, argc > 5 ? atoll(argv[5]) : 28672,
                  copy_rate);
            continue;
        }
        const int64_t b = t.block;
        for (int64_t in : {b, 3 * b, 1024 + b, (int64_t)2048, 4096 - b})
            for (int64_t out : {1, 3, 33, 70})
                if ((in == b || out != 33))
                    check_shape(t, in, out);
        if (t.type == KG_TYPE_F8_E4M3)
            for (int64_t in : {1216, 2080})
                check_shape(t, in, 192);
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
