/*
 * grouped_bench: the wgmma forms of a provider's grouped products, checked and timed.
 *
 *   grouped_bench PROVIDER.so [check | time [4096-tokens|4096-rows]]
 *
 * check: ragged groups; the form that reads Q4_K blocks must give the bits of the f16 form on
 * the weights that dequantize_f16 makes, and both lie near the visitor's. time: 128 experts of
 * 4096 -> 1536 with groups that fall as 1 / (i + 8), as the gate's bench cells have them; a
 * time is the median of 11 runs of a graph of four launches, divided by four; each arm is
 * timed twice, in turn. `copied`: dequantize_f16 and the f16 form.
 */
#include <cmath>
#include <cstring>

#include "bench.h"

/* Arbitrary bytes with both scales of a block between 2^-4 and 2^-3, or, with `wild`, any
   finite half; an expert is `stride` bytes. Made once, repeated over the experts. */
static std::vector<uint8_t> make_blocks(size_t bytes, bool wild)
{
    std::vector<uint8_t> w(bytes);
    for (uint8_t &b : w)
        b = (uint8_t)rnd();
    for (size_t at = 0; at + 144 <= bytes; at += 144)
        for (size_t i = 1; i < 4; i += 2) /* high bytes of the halves */
            w[at + i] = wild ? (uint8_t)(w[at + i] % 0x60) | (uint8_t)(w[at + i] & 0x80)
                             : (uint8_t)(0x2c | (w[at + i] & 3));
    return w;
}

static std::vector<uint16_t> make_rows(size_t n)
{
    std::vector<uint16_t> x(n);
    for (uint16_t &h : x) /* 2^-4 .. 1, both signs */
        h = (uint16_t)((0x2c00 + rnd() % 0x1000) | (rnd() & 1) << 15);
    return x;
}

struct problem {
    std::vector<int32_t> offsets, experts, rows;
    std::vector<float> scale;
    int64_t n_experts, n_rows, in, out;
    size_t stride;
};

/* A problem in device memory, and its arms. */
struct arms {
    const problem &p;
    memory offsets, experts, rows, scale, x, w, copy, y;

    arms(const problem &p_, const std::vector<uint8_t> &blocks)
        : p(p_), offsets(p.offsets), experts(p.experts), rows(p.rows), scale(p.scale),
          x(make_rows((size_t)(p.n_rows * p.in))), w((size_t)p.n_experts * p.stride),
          copy((p.offsets.size() - 1) * (size_t)(p.in * p.out) * 2),
          y(p.rows.size() * (size_t)p.out * 4)
    {
        for (size_t e = 0; e < (size_t)p.n_experts; e++)
            must(pv->device->upload((uint8_t *)w.p + e * p.stride,
                                    blocks.data() + e % 7 * 144, p.stride),
                 "upload");
    }
    kg_grouped now(bool of_copy) const
    {
        kg_grouped g = {};
        g.groups = (int64_t)p.offsets.size() - 1;
        g.pairs = (int64_t)p.rows.size();
        g.n_experts = of_copy ? g.groups : p.n_experts;
        g.n_rows = p.n_rows;
        g.in = p.in;
        g.out = p.out;
        g.expert_stride = of_copy ? p.in * p.out * 2 : (int64_t)p.stride;
        g.offsets = offsets;
        g.experts = of_copy ? nullptr : (const int32_t *)experts;
        g.rows = rows;
        g.scale = scale;
        return g;
    }
    void dequantize(void) const
    {
        const kg_grouped g = now(false);
        must(pv->grouped->dequantize_f16(&g, KG_TYPE_Q4_K, w, copy, stream), "copy");
    }
    void direct(void) const
    {
        const kg_grouped g = now(false);
        must(pv->grouped->sm90_gemm_quant(&g, KG_TYPE_Q4_K, w, x, y, stream),
             "sm90_gemm_quant");
    }
    void f16(void) const
    {
        const kg_grouped g = now(true);
        must(pv->grouped->sm90_gemm_f16(&g, copy, x, y, stream), "sm90_gemm_f16");
    }
    void visitor(void) const
    {
        const kg_grouped g = now(true);
        const kg_grouped_form form = {1, 33, 1, 1};
        must(pv->grouped->gemm_f16(&g, &form, copy, x, y, stream), "gemm_f16");
    }
    std::vector<float> result(const std::function<void()> &launch) const
    {
        const size_t n = p.rows.size() * (size_t)p.out;
        must(pv->device->fill(y, 0xff, n * 4), "fill");
        launch();
        return fetch<float>(y, n);
    }
};

static problem make_problem(const std::vector<int32_t> &sizes, int64_t n_rows, int64_t in,
                            int64_t out, size_t gap)
{
    problem p = {};
    const int32_t n = (int32_t)sizes.size();
    p.offsets.push_back(0);
    for (int32_t i = 0; i < n; i++) {
        p.offsets.push_back(p.offsets.back() + sizes[(size_t)i]);
        p.experts.push_back(n - 1 - i);
    }
    for (int32_t i = 0; i < p.offsets.back(); i++) {
        p.rows.push_back((int32_t)((int64_t)i * 1571 % n_rows));
        p.scale.push_back(1.0f + (float)(i % 5) * 0.25f);
    }
    p.n_experts = n;
    p.n_rows = n_rows;
    p.in = in;
    p.out = out;
    p.stride = (size_t)(in / 256 * 144 * out) + gap;
    return p;
}

static bool differ(const char *what, const std::vector<float> &a,
                   const std::vector<float> &b, double limit)
{
    double largest = 0, diff = 0;
    size_t bits = 0, first = 0;
    for (size_t i = 0; i < a.size(); i++) {
        if (memcmp(&a[i], &b[i], 4) != 0 && bits++ == 0)
            first = i;
        if (std::isfinite(a[i]) && std::isfinite(b[i])) {
            diff = std::max(diff, std::fabs((double)a[i] - b[i]));
            largest = std::max(largest, std::fabs((double)b[i]));
        } else if (std::isfinite(a[i]) != std::isfinite(b[i]) && limit > 0) {
            diff = INFINITY;
        }
    }
    const bool bad = limit > 0 ? !(diff <= limit * largest) : bits > 0;
    if (bad)
        printf("%s: %zu of %zu differ, first %zu: %a %a; largest difference %g of %g\n",
               what, bits, a.size(), first, (double)a[first], (double)b[first], diff,
               largest);
    return bad;
}

static int check(void)
{
    int bad = 0, n = 0;
    const std::vector<int32_t> all = {0,   1,   63,  64, 65,  129, 200, 300,
                                      128, 192, 193, 0,  256, 257, 513, 7};
    for (const std::vector<int32_t> &sizes : {
             all, std::vector<int32_t>{1   },
              std::vector<int32_t>{ 0, 0, 255}
    })
        for (const int64_t in : {256, 512, 4096})
            for (const int64_t out : {1, 100, 128, 257, 300, 512})
                for (const bool wild : {false, true}) {
                    const problem p = make_problem(sizes, 613, in, out, wild ? 0 : 48);
                    const arms a(p, make_blocks(p.stride + 7 * 144, wild));
                    a.dequantize();
                    const std::vector<float> f16 = a.result([&] { a.f16(); });
                    const std::vector<float> direct = a.result([&] { a.direct(); });
                    const std::string what = std::to_string(in) + " -> " +
                                             std::to_string(out) + (wild ? " wild" : "");
                    bad += differ((what + " direct").c_str(), direct, f16, 0);
                    if (!wild)
                        bad += differ((what + " visitor").c_str(),
                                      a.result([&] { a.visitor(); }), f16, 1e-5);
                    n++;
                }
    printf("%d problems, %d bad\n", n, bad);
    return bad;
}

/* Microseconds of one launch. */
static double median_us(const std::function<void()> &launch)
{
    const auto one = [&](int) {
        launch();
        return KG_OK;
    };
    return time_us(4, one, {11, 1, 1}).median;
}

static void time_shape(const char *name, int32_t pairs, int32_t tokens)
{
    enum { EXPERTS = 128 };
    std::vector<int32_t> sizes(EXPERTS);
    int32_t left = pairs;
    double sum = 0;
    for (int i = 0; i < EXPERTS; i++)
        sum += 1.0 / (i + 8);
    for (int i = 0; i < EXPERTS; i++)
        left -= sizes[(size_t)(i * 37 % EXPERTS)] = (int32_t)(pairs / (i + 8.0) / sum);
    sizes[0] += left;
    const problem p = make_problem(sizes, tokens, 4096, 1536, 0);
    const arms a(p, make_blocks(p.stride + 7 * 144, false));
    a.dequantize();
    const double ops = 2.0 * pairs * 4096 * 1536;
    double f16 = 0, direct = 0;
    for (int turn = 0; turn < 2; turn++) {
        f16 = median_us([&] { a.f16(); });
        direct = median_us([&] { a.direct(); });
        printf("%-12s f16 %8.1f us (%.0f TFLOP/s)  q4_k %8.1f us (%.0f TFLOP/s)  "
               "q4_k / f16 %.3f\n",
               name, f16, ops / f16 / 1e6, direct, ops / direct / 1e6, direct / f16);
        fflush(stdout);
    }
    printf("%-12s copied %8.1f us\n", name, median_us([&] {
               a.dequantize();
               a.f16();
           }));
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: grouped_bench PROVIDER.so [check | time [SHAPE]]\n");
        return 2;
    }
    if (!load(argv[1], "no such table", [] { return pv->grouped != nullptr; }))
        return 2;
    if (!any_device())
        return 77;
    open_device();
    must(pv->device->stream_create(&stream), "stream");
    const std::string only = argc > 2 ? argv[2] : "";
    int bad = 0;
    if (only != "time")
        bad = check();
    if (only != "check") {
        const std::string shape = argc > 3 ? argv[3] : "";
        if (shape != "4096-rows")
            time_shape("4096-tokens", 32768, 4096);
        if (shape != "4096-tokens")
            time_shape("4096-rows", 4096, 4096);
    }
    return bad ? 1 : 0;
}
