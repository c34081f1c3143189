/*
 * dsv4_bench: the kernels of a DeepSeek-V4 expert of a provider, timed outside of the gate.
 *
 *   dsv4_bench PROVIDER.so [FILTER]
 *
 * A product's line: the median and the least of 15 runs of a graph of launches that take turns on
 * copies of the weights, together more than twice the L2, divided by the number of launches; the
 * activations stay the same. `read` is that of a kernel that only reads the weights and
 * their scales, measured likewise and by bytes of 4.17 TB/s. `differ`: outputs whose bits are not
 * those of the ordered form, which must be 0. FILTER: only lines that contain it.
 */
#include "bench.h"

static int wrong;

static const char *const kinds[] = {"nvfp4", "mxfp4"};
static const char *const forms[] = {"auto", "ordered", "rows8", "tiles"};
static const size_t together = 160u << 20; /* bytes of the copies */

/* A bell curve with some values far out, as activations have. */
static std::vector<float> bell(size_t n)
{
    std::vector<float> x(n);
    for (float &v : x) {
        v = 0;
        for (int i = 0; i < 6; i++)
            v += (float)(int32_t)(rnd() << 8) * 0x1p-31f;
    }
    return x;
}

static std::vector<uint8_t> random_bytes(size_t n, int from, int count)
{
    std::vector<uint8_t> bytes(n);
    for (uint8_t &b : bytes)
        b = (uint8_t)(from + (int)(rnd() % (uint32_t)count));
    return bytes;
}

struct weights {
    int kind;
    int64_t n, k;
    std::vector<memory> w, ws;

    weights(int kind_, int64_t n_, int64_t k_) : kind(kind_), n(n_), k(k_)
    {
        const size_t bytes = (size_t)(n * k / 2);
        const int64_t group = kind == KG_DSV4_NVFP4 ? 16 : 32;
        const std::vector<uint8_t> codes = random_bytes(bytes, 0, 256);
        const std::vector<uint8_t> scales =
            kind == KG_DSV4_NVFP4 ? random_bytes((size_t)(n * k / group), 0x28, 32)
                                  : random_bytes((size_t)(n * k / group), 120, 8);
        for (size_t i = 0; i < together / bytes + 1; i++) {
            w.emplace_back(codes, 0xff);
            ws.emplace_back(scales, 0xff);
        }
    }
    int copies() const
    {
        return (int)w.size();
    }
    size_t bytes() const
    {
        return (size_t)(n * k / 2 + n * k / (kind == KG_DSV4_NVFP4 ? 16 : 32));
    }
};

static double read_us(const weights &w)
{
    const size_t bytes = w.bytes() / 256 * 256;
    const memory all(w.bytes() * (size_t)w.copies(), 0xff), sum(4, 0xff);
    const auto launch = [&](int i) {
        return pv->ceiling->read_sweep((char *)all.p + bytes * (size_t)i, bytes, sum,
                                       stream);
    };
    return time_us(w.copies(), launch).median;
}

static std::string name_of(int kind, int form, int64_t m, int64_t n, int64_t k)
{
    char name[96];
    snprintf(name, sizeof name, "%s %-7s %4lld x %4lld x %4lld", kinds[kind], forms[form],
             (long long)m, (long long)n, (long long)k);
    return name;
}

static void product(const weights &w, double read, int form, int64_t m)
{
    const std::string name = name_of(w.kind, form, m, w.n, w.k);
    const kg_dsv4_ops *ops = pv->dsv4;
    const memory x(bell((size_t)(m * w.k)), 0xff), codes((size_t)(m * w.k), 0xff),
        scales((size_t)(m * w.k / 32), 0xff), y((size_t)(m * w.n * 4), 0xff);
    size_t need;
    must(ops->gemm_scratch(w.kind, form, m, w.n, w.k, &need), "scratch");
    const memory scratch(need, 0xff);
    must(ops->act_quant(x, codes, scales, m, w.k, stream), "act_quant");
    const auto launch = [&](int f, int i) {
        return ops->gemm(w.kind, f, codes, scales, w.w[(size_t)i], w.ws[(size_t)i],
                         0.0123f, y, m, w.n, w.k, scratch, need, stream);
    };
    const auto result = [&](int f) {
        must(pv->device->sync(stream), "sync");
        must(pv->device->fill(y, 0xff, (size_t)(m * w.n) * 4), "fill");
        must(launch(f, 0), "gemm");
        return fetch<uint32_t>(y, (size_t)(m * w.n));
    };
    const std::vector<uint32_t> want = result(KG_DSV4_ORDERED);
    const auto differ = [&](const std::vector<uint32_t> &got) {
        size_t n = 0;
        for (size_t i = 0; i < want.size(); i++)
            n += got[i] != want[i] ? 1 : 0;
        return n;
    };
    size_t n = differ(result(form));
    const timing t = time_us(w.copies(), [&](int i) { return launch(form, i); });
    /* and what the last of many launches in a row left there */
    n += differ(fetch<uint32_t>(y, want.size()));
    printf("%s  %7.2f us (least %7.2f)  read %5.2f (x%.2f), by bytes %5.2f (x%.2f)  "
           "differ %zu\n",
           name.c_str(), t.median, t.least, read, t.median / read,
           (double)w.bytes() / 4.17e6, t.median / ((double)w.bytes() / 4.17e6), n);
    fflush(stdout);
    wrong += n != 0;
}

/* The forms and numbers of rows of `list`. */
static void products(int kind, int64_t n, int64_t k,
                     std::vector<std::pair<int, int64_t>> list)
{
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const std::pair<int, int64_t> &e) {
                                  return !wanted(name_of(kind, e.first, e.second, n, k));
                              }),
               list.end());
    if (list.empty())
        return;
    const weights w(kind, n, k);
    const double read = read_us(w);
    for (const auto &entry : list)
        product(w, read, entry.first, entry.second);
}

/* Element by element: `in` and `out` bytes a launch. */
static void elements(const char *name, size_t in, size_t out,
                     const std::function<int(char *, char *)> &launch)
{
    if (!wanted(name))
        return;
    const int copies = (int)(together / (in + out)) + 1;
    const memory from((in + 256) * (size_t)copies, 0xff),
        to((out + 256) * (size_t)copies, 0xff);
    must(pv->device->fill(from, 0x3e, in * (size_t)copies), "fill");
    const timing t = time_us(copies, [&](int i) {
        return launch((char *)from.p + in * (size_t)i, (char *)to.p + out * (size_t)i);
    });
    printf("%-32s  %7.2f us (least %7.2f)  by bytes %5.2f\n", name, t.median, t.least,
           (double)(in + out) / 4.17e6);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: dsv4_bench PROVIDER.so [FILTER]\n");
        return 2;
    }
    if (!load(argv[1], "no such tables", [] { return pv->dsv4 && pv->ceiling; }))
        return 2;
    if (!any_device())
        return 77;
    open_device();
    must(pv->device->stream_create(&stream), "stream");
    filter = argc > 2 ? argv[2] : "";
    const int rows8 = KG_DSV4_ROWS8, tiles = KG_DSV4_TILES;

    products(KG_DSV4_NVFP4, 2048, 4096,
             {
                 {rows8, 1  },
                 {rows8, 8  },
                 {rows8, 64 },
                 {rows8, 128},
                 {tiles, 64 },
                 {tiles, 128},
                 {tiles, 512}
    });
    products(KG_DSV4_NVFP4, 4096, 2048,
             {
                 {rows8, 8  },
                 {tiles, 512}
    });
    products(KG_DSV4_MXFP4, 2048, 4096,
             {
                 {rows8, 1  },
                 {rows8, 8  },
                 {rows8, 64 },
                 {tiles, 512}
    });
    products(KG_DSV4_MXFP4, 4096, 2048,
             {
                 {rows8, 8  },
                 {tiles, 512}
    });
    products(KG_DSV4_NVFP4, 3072, 7168,
             {
                 {rows8, 8  },
                 {tiles, 512}
    });
    elements("act_quant 512 x 4096", 512 * 4096 * 4, 512 * 4096 + 512 * 32 * 4,
             [](char *from, char *to) {
                 return pv->dsv4->act_quant((float *)from, (uint8_t *)to,
                                            (float *)(to + 512 * 4096), 512, 4096,
                                            stream);
             });
    elements("swiglu 512 x 2048", 2 * 512 * 2048 * 4, 512 * 2048 * 4,
             [](char *from, char *to) {
                 return pv->dsv4->swiglu((float *)from, (float *)from + 512 * 2048,
                                         nullptr, 10.0f, (float *)to, 512, 2048, stream);
             });
    return wrong != 0;
}
