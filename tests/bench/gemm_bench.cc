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
#include <cmath>
#include <cstring>

#include "bench.h"

static int sm_count;

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

static void run(const type_row &t, int64_t in, int64_t out, int64_t m)
{
    const kg_gemm_ops *g = pv->gemm;
    const size_t blocks = (size_t)(in / t.block * out), bytes = blocks * (size_t)t.bytes;
    const int copies = (int)std::max<size_t>(2, (160u << 20) / bytes + 1);
    const std::vector<uint8_t> w = make_weights(t, blocks);
    std::vector<memory> dw;
    for (int i = 0; i < copies; i++)
        dw.emplace_back(w, 0);
    std::vector<float> x((size_t)(in * m));
    for (float &v : x)
        v = (float)(int32_t)(rnd() << 8) * 0x1p-31f;
    const memory dx(x, 0), q(x.size(), 0), d(x.size() / 8, 0), s(x.size() / 8, 0);
    const memory y((size_t)(out * m) * 4, 0), ref((size_t)(out * 4) * 4, 0);
    must(pv->matvec->quantize_q8_1(dx, q, d, s, m, in, stream), "quantize");
    const int64_t few = std::min<int64_t>(m, 4);
    must(pv->matvec->stage_b(t.type, dw[0], q, d, s, ref, in, out, few, stream),
         "stage_b");
    const std::vector<float> want = fetch<float>(ref, (size_t)(out * few));

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
        const std::vector<float> got = fetch<float>(y, want.size());
        double diff = 0, largest = 0;
        for (size_t i = 0; i < got.size(); i++) {
            const double e = std::fabs((double)got[i] - want[i]);
            diff = e <= diff ? diff : e;
            largest = std::max(largest, (double)std::fabs(want[i]));
        }
        const double us = pv->device->graph_begin ? time_us(copies, launch).median : NAN;
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
        const memory partial(need, 0);
        const std::string arm = "stream-k/" + std::to_string(workers);
        report(arm.c_str(), [&](int i) {
            return g->int8(t.type, KG_GEMM_BLOCKS, dw[(size_t)i], q, d, s, y, in, out, m,
                           KG_GEMM_STREAM_K, workers, partial, need, stream);
        });
    }
    const memory h(x.size() * 2, 0);
    /* W4A8: halves of the codes */
    must(t.type == KG_TYPE_NVFP4 ? g->q8_to_f16(q, d, h, m, in, stream)
                                 : g->to_f16(dx, h, (int64_t)x.size(), stream),
         "to_f16");
    std::vector<memory> mirrors;
    for (int i = 0; i < 2; i++) {
        mirrors.emplace_back((size_t)(in * out) * 2, 0);
        if (g->mirror_f16(t.type, dw[0], mirrors.back(), in * out, stream) != KG_OK)
            mirrors.pop_back();
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
        std::vector<memory> planes;
        for (int i = 0; i < copies; i++)
            planes.emplace_back((size_t)(in * out) + (size_t)(in / 32 * out) * 4, 0);
        int rc = KG_OK;
        for (const memory &p : planes)
            rc = rc ?: g->mirror_q8_0(dw[0], p, in, out, stream);
        if (rc == KG_OK)
            report("wgmma", [&](int i) {
                return g->int8_wgmma(planes[(size_t)i], q, d, y, in, out, m, stream);
            });
    }
    if (t.type == KG_TYPE_NVFP4) {
        const memory codes(x.size() / 2, 0), scales(x.size() / 16, 0),
            token((size_t)m * 4, 0);
        must(g->nvfp4_quantize(dx, m, in, nullptr, 0, 2, codes, scales, token, stream),
             "nvfp4_quantize");
        report("w4a4", [&](int i) {
            return g->w4a4(KG_GEMM_BLOCKS, dw[(size_t)i], nullptr, codes, scales, token,
                           y, in, out, m, KG_GEMM_TILE, 0, nullptr, 0, stream);
        });
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: gemm_bench PROVIDER.so [TYPE|all] [IN OUT [T]]\n");
        return 2;
    }
    if (!load(argv[1], "no such tables", [] { return pv->gemm && pv->matvec; }))
        return 2;
    if (!any_device())
        return 77;
    open_device();
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
