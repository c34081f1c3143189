/*
 * skew: a provider that is wrong by a known part.
 *
 * It wraps another provider ($KGATE_SKEW_PROVIDER, a path) and multiplies what its kernels
 * write by 1 + $KGATE_SKEW, in device memory, after each launch: the product is taken in f64
 * and rounded to the element's type, so a skew far below half an ulp changes nothing. So
 * every later kernel and every oracle that reads such an array sees it skewed, as it would
 * with a faulty kernel; a chain of kernels is skewed once a kernel.
 *
 * Skewed are the arrays of f32 results. Left as they are, since their checks are exact:
 * quantized results with their scales and sums (q8_1, D4, Q8_0, caches, E2M1, E4M3), plain
 * conversions to f16 and bf16, repacking, copies, masks, indices, and scratch. Where a kernel
 * adds to what stands in its output, only the increment is skewed.
 */
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kgate/kernels.h"

namespace
{

const struct kg_provider *inner;
double skew;

int read_back(const float *device, size_t n, std::vector<float> *host)
{
    host->resize(n);
    return inner->device->download(host->data(), device, n * sizeof(float));
}

/* y = base + (y - base) * (1 + skew), base 0 where there is none, of the elements `first` to
   `first + run - 1` of every `period`. */
int skew_parts(float *y, int64_t n, const float *base, int64_t run, int64_t period)
{
    std::vector<float> host;
    KG_TRY(read_back(y, (size_t)n, &host));
    for (int64_t i = 0; i < n; i++) {
        double from = base != nullptr ? base[i] : 0.0;
        if (i % period < run)
            host[i] = (float)(from + (host[i] - from) * (1.0 + skew));
    }
    return inner->device->upload(y, host.data(), (size_t)n * sizeof(float));
}

/* One launch: what its launcher returned, and the arrays that it wrote. */
class launch
{
    int rc;

  public:
    launch(int status, struct CUstream_st *stream) : rc(status)
    {
        if (rc == 0 && skew != 0.0)
            rc = inner->device->sync(stream);
    }

    launch &wrote(float *y, int64_t n, const float *base = nullptr)
    {
        if (rc == 0 && skew != 0.0 && y != nullptr && n > 0)
            rc = skew_parts(y, n, base, 1, 1);
        return *this;
    }

    /* The first `run` of every `period` elements. */
    launch &wrote_parts(float *y, int64_t n, int64_t run, int64_t period)
    {
        if (rc == 0 && skew != 0.0 && y != nullptr && n > 0)
            rc = skew_parts(y, n, nullptr, run, period);
        return *this;
    }

    operator int() const
    {
        return rc;
    }
};

typedef struct CUstream_st *stream_t;

/* ---- matvec ---- */

int dequantize(int type, const void *src, float *dst, int64_t n, stream_t stream)
{
    return launch(inner->matvec->dequantize(type, src, dst, n, stream), stream)
        .wrote(dst, n);
}

int stage_a(int type, const void *w, const float *x, float *y, int64_t in, int64_t out,
            int64_t m, stream_t stream)
{
    return launch(inner->matvec->stage_a(type, w, x, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

int stage_b(int type, const void *w, const int8_t *q, const float *d, const float *s,
            float *y, int64_t in, int64_t out, int64_t m, stream_t stream)
{
    return launch(inner->matvec->stage_b(type, w, q, d, s, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

/* ---- norm ---- */

int rms_norm(const float *x, const float *w, float *y, int64_t rows, int64_t cols,
             float eps, stream_t stream)
{
    return launch(inner->norm->rms_norm(x, w, y, rows, cols, eps, stream), stream)
        .wrote(y, rows * cols);
}

int rms_norm_qkv(const float *q, const float *k, const float *v, const float *wq,
                 const float *wk, const float *wv, float *yq, float *yk, float *yv,
                 int64_t rows_q, int64_t rows_kv, int64_t cols, float eps,
                 stream_t stream)
{
    return launch(inner->norm->rms_norm_qkv(q, k, v, wq, wk, wv, yq, yk, yv, rows_q,
                                            rows_kv, cols, eps, stream),
                  stream)
        .wrote(yq, rows_q * cols)
        .wrote(yk, rows_kv * cols)
        .wrote(yv, rows_kv * cols);
}

int l2_norm(const float *x, float *y, int64_t rows, int64_t cols, float eps,
            stream_t stream)
{
    return launch(inner->norm->l2_norm(x, y, rows, cols, eps, stream), stream)
        .wrote(y, rows * cols);
}

int add_rms_norm(const float *a, const float *b, const float *w, float *res, float *y,
                 int64_t rows, int64_t cols, float eps, stream_t stream)
{
    return launch(inner->norm->add_rms_norm(a, b, w, res, y, rows, cols, eps, stream),
                  stream)
        .wrote(res, rows * cols)
        .wrote(y, rows * cols);
}

int add_rms_norm_q8_1(const float *a, const float *b, const float *w, float *res,
                      int8_t *q, float *d, float *s, int64_t rows, int64_t cols,
                      float eps, stream_t stream)
{
    return launch(inner->norm->add_rms_norm_q8_1(a, b, w, res, q, d, s, rows, cols, eps,
                                                 stream),
                  stream)
        .wrote(res, rows * cols);
}

int gated_rmsnorm(const float *x, const float *w, const float *z, float *y, int64_t rows,
                  int64_t cols, float eps, stream_t stream)
{
    return launch(inner->norm->gated_rmsnorm(x, w, z, y, rows, cols, eps, stream), stream)
        .wrote(y, rows * cols);
}

/* ---- elementwise ---- */

int add(const float *a, const float *b, float *y, int64_t n, stream_t stream)
{
    return launch(inner->elementwise->add(a, b, y, n, stream), stream).wrote(y, n);
}

int silu_mul(const float *gate, const float *up, float *y, int64_t n, stream_t stream)
{
    return launch(inner->elementwise->silu_mul(gate, up, y, n, stream), stream)
        .wrote(y, n);
}

int silu_mul_scaled(const float *gate, const float *up, float gate_scale, float up_scale,
                    float *y, int64_t n, stream_t stream)
{
    return launch(inner->elementwise->silu_mul_scaled(gate, up, gate_scale, up_scale, y,
                                                      n, stream),
                  stream)
        .wrote(y, n);
}

int gelu_mul(const float *gate, const float *up, float *y, int64_t n, stream_t stream)
{
    return launch(inner->elementwise->gelu_mul(gate, up, y, n, stream), stream)
        .wrote(y, n);
}

int sigmoid_dot(const float *x, const float *w, float *y, int64_t rows, int64_t cols,
                stream_t stream)
{
    return launch(inner->elementwise->sigmoid_dot(x, w, y, rows, cols, stream), stream)
        .wrote(y, rows);
}

int rope_neox(float *x, const int32_t *pos, int64_t n_tokens, int64_t n_heads,
              int64_t head_dim, int64_t n_dims, float freq_base, float freq_scale,
              stream_t stream)
{
    return launch(inner->elementwise->rope_neox(x, pos, n_tokens, n_heads, head_dim,
                                                n_dims, freq_base, freq_scale, stream),
                  stream)
        .wrote_parts(x, n_tokens * n_heads * head_dim, n_dims, head_dim);
}

/* ---- ssm ---- */

int ssm_conv1d(const float *x, const float *w, float *y, int64_t channels,
               int64_t n_tokens, int64_t d_conv, bool silu, stream_t stream)
{
    return launch(
               inner->ssm->ssm_conv1d(x, w, y, channels, n_tokens, d_conv, silu, stream),
               stream)
        .wrote(y, channels * n_tokens);
}

int ssm_conv1d_fused_decode(const float *token, float *state, const float *w, float *y,
                            int64_t channels, int64_t d_conv, stream_t stream)
{
    return launch(inner->ssm->ssm_conv1d_fused_decode(token, state, w, y, channels,
                                                      d_conv, stream),
                  stream)
        .wrote(y, channels);
}

/* ---- gdn ---- */

launch &gdn_wrote(launch &&done, const struct kg_gdn_args *a)
{
    return done.wrote(a->out, a->n_tokens * a->n_heads * 128)
        .wrote(a->state_out, a->n_tokens > 0 ? a->n_heads * 128 * 128 : 0);
}

int gdn_scan(const struct kg_gdn_args *args, stream_t stream)
{
    return gdn_wrote(launch(inner->gdn->gdn_scan(args, stream), stream), args);
}

#define GDN_CHUNKED(entry)                                                               \
    int entry(const struct kg_gdn_args *args, int64_t chunk, void *workspace,            \
              size_t workspace_bytes, stream_t stream)                                   \
    {                                                                                    \
        return gdn_wrote(                                                                \
            launch(inner->gdn->entry(args, chunk, workspace, workspace_bytes, stream),   \
                   stream),                                                              \
            args);                                                                       \
    }
GDN_CHUNKED(gdn_chunked)
GDN_CHUNKED(gdn_chunked_mma)
GDN_CHUNKED(gdn_chunked_wgmma)

/* ---- mmvq ---- */

int product(int type, int layout, int scale_kind, const struct kg_mmvq_tensor *tensors,
            int n_tensors, const int8_t *q, const float *d, const float *s, int64_t in,
            int64_t m, int width, stream_t stream)
{
    launch done(inner->mmvq->product(type, layout, scale_kind, tensors, n_tensors, q, d,
                                     s, in, m, width, stream),
                stream);
    for (int t = 0; t < n_tensors; t++)
        done.wrote(tensors[t].y, m * tensors[t].out);
    return done;
}

int ksplit(int type, const struct kg_mmvq_tensor *tensor, const int8_t *q, const float *d,
           const float *s, int64_t in, int64_t m, int width, float *parts,
           stream_t stream)
{
    return launch(inner->mmvq->ksplit(type, tensor, q, d, s, in, m, width, parts, stream),
                  stream)
        .wrote(tensor->y, m * tensor->out);
}

int stage_a_split(int type, const void *w, const float *x, float *y, int64_t in,
                  int64_t out, int64_t m, stream_t stream)
{
    return launch(inner->mmvq->stage_a_split(type, w, x, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

int stage_b_split(int type, const void *w, const int8_t *q, const float *d,
                  const float *s, float *y, int64_t in, int64_t out, int64_t m,
                  stream_t stream)
{
    return launch(inner->mmvq->stage_b_split(type, w, q, d, s, y, in, out, m, stream),
                  stream)
        .wrote(y, m * out);
}

/* ---- gemm ---- */

int int8(int type, int layout, const void *w, const int8_t *q, const float *d,
         const float *s, float *y, int64_t in, int64_t out, int64_t m, int form,
         int workers, void *workspace, size_t workspace_bytes, stream_t stream)
{
    return launch(inner->gemm->int8(type, layout, w, q, d, s, y, in, out, m, form,
                                    workers, workspace, workspace_bytes, stream),
                  stream)
        .wrote(y, m * out);
}

int f16(const void *mirror, const void *h, float *y, int64_t in, int64_t out, int64_t m,
        stream_t stream)
{
    return launch(inner->gemm->f16(mirror, h, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

int f16_blocks(int type, const void *w, const void *h, float *y, int64_t in, int64_t out,
               int64_t m, stream_t stream)
{
    return launch(inner->gemm->f16_blocks(type, w, h, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

int w4a4(int layout, const void *w, const uint8_t *w_scales, const uint8_t *codes,
         const uint8_t *scales, const float *token_scale, float *y, int64_t in,
         int64_t out, int64_t m, int form, int workers, void *workspace,
         size_t workspace_bytes, stream_t stream)
{
    return launch(inner->gemm->w4a4(layout, w, w_scales, codes, scales, token_scale, y,
                                    in, out, m, form, workers, workspace, workspace_bytes,
                                    stream),
                  stream)
        .wrote(y, m * out);
}

int nvfp4_residual(const void *w, const float *x, const int32_t *channels, int k,
                   float *y, int64_t in, int64_t out, int64_t m, stream_t stream)
{
    std::vector<float> before;
    if (skew != 0.0 && y != nullptr && m > 0 && out > 0) {
        KG_TRY(inner->device->sync(stream));
        KG_TRY(read_back(y, (size_t)(m * out), &before));
    }
    return launch(inner->gemm->nvfp4_residual(w, x, channels, k, y, in, out, m, stream),
                  stream)
        .wrote(y, m * out, before.data());
}

int int8_clc(int type, const void *w, const int8_t *q, const float *d, const float *s,
             float *y, int64_t in, int64_t out, int64_t m, stream_t stream)
{
    return launch(inner->gemm->int8_clc(type, w, q, d, s, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

int w4a4_native(const void *w, const uint8_t *codes, const uint8_t *scales,
                const float *token_scale, float *y, int64_t in, int64_t out, int64_t m,
                stream_t stream)
{
    return launch(inner->gemm->w4a4_native(w, codes, scales, token_scale, y, in, out, m,
                                           stream),
                  stream)
        .wrote(y, m * out);
}

int int8_wgmma(const void *mirror, const int8_t *q, const float *d, float *y, int64_t in,
               int64_t out, int64_t m, stream_t stream)
{
    return launch(inner->gemm->int8_wgmma(mirror, q, d, y, in, out, m, stream), stream)
        .wrote(y, m * out);
}

/* ---- attention ---- */

launch &decode_wrote(launch &&done, const struct kg_decode *a, int64_t rows)
{
    return done.wrote(a->out, rows * a->n_heads * a->head_dim)
        .wrote(a->lse, rows * a->n_heads);
}

int decode(int arm, const struct kg_decode *args, int64_t length, stream_t stream)
{
    return decode_wrote(
        launch(inner->attention->decode(arm, args, length, stream), stream), args, 1);
}

int decode_rows(int arm, const struct kg_decode *args, int64_t base, int64_t rows,
                stream_t stream)
{
    return decode_wrote(
        launch(inner->attention->decode_rows(arm, args, base, rows, stream), stream),
        args, rows);
}

int decode_settled(int arm, const struct kg_decode *args, int64_t base, int64_t rows,
                   int64_t settled, stream_t stream)
{
    return decode_wrote(
        launch(inner->attention->decode_settled(arm, args, base, rows, settled, stream),
               stream),
        args, rows);
}

int decode_seqs(int arm, const struct kg_decode *args, const uint64_t *table,
                const int32_t *lengths, int64_t batch, int64_t max_length,
                stream_t stream)
{
    return decode_wrote(launch(inner->attention->decode_seqs(arm, args, table, lengths,
                                                             batch, max_length, stream),
                               stream),
                        args, batch);
}

int decode_dc(int arm, const struct kg_decode *args, const int32_t *length,
              int64_t max_length, stream_t stream)
{
    return decode_wrote(
        launch(inner->attention->decode_dc(arm, args, length, max_length, stream),
               stream),
        args, 1);
}

int prefill(int arm, const struct kg_prefill *args, stream_t stream)
{
    return launch(inner->attention->prefill(arm, args, stream), stream)
        .wrote(args->out, args->tokens * args->n_heads * args->head_dim)
        .wrote(args->lse, args->tokens * args->n_heads);
}

/* ---- grouped ---- */

int gemm_f16(const struct kg_grouped *g, const struct kg_grouped_form *form,
             const void *w, const void *x, float *y, stream_t stream)
{
    return launch(inner->grouped->gemm_f16(g, form, w, x, y, stream), stream)
        .wrote(y, g->pairs * g->out);
}

int gemm_quant(const struct kg_grouped *g, const struct kg_grouped_form *form, int type,
               const void *w, const void *x, float *y, stream_t stream)
{
    return launch(inner->grouped->gemm_quant(g, form, type, w, x, y, stream), stream)
        .wrote(y, g->pairs * g->out);
}

int sm90_gemm_f16(const struct kg_grouped *g, const void *w, const void *x, float *y,
                  stream_t stream)
{
    return launch(inner->grouped->sm90_gemm_f16(g, w, x, y, stream), stream)
        .wrote(y, g->pairs * g->out);
}

int sm90_gemm_quant(const struct kg_grouped *g, int type, const void *w, const void *x,
                    float *y, stream_t stream)
{
    return launch(inner->grouped->sm90_gemm_quant(g, type, w, x, y, stream), stream)
        .wrote(y, g->pairs * g->out);
}

/* ---- router ---- */

int topk(const float *logits, const float *bias, int scoring, int32_t *ids,
         float *weights, int64_t tokens, int64_t experts, int64_t k, stream_t stream)
{
    return launch(inner->router->topk(logits, bias, scoring, ids, weights, tokens,
                                      experts, k, stream),
                  stream)
        .wrote(weights, tokens * k);
}

int router_matvec(const float *w, const float *x, float *logits, int64_t in,
                  int64_t experts, int64_t tokens, stream_t stream)
{
    return launch(inner->router->matvec(w, x, logits, in, experts, tokens, stream),
                  stream)
        .wrote(logits, tokens * experts);
}

int router_matvec_batch(const float *w, const float *x, float *logits, int64_t in,
                        int64_t experts, int64_t tokens, stream_t stream)
{
    return launch(inner->router->matvec_batch(w, x, logits, in, experts, tokens, stream),
                  stream)
        .wrote(logits, tokens * experts);
}

/* ---- dsv4 ---- */

int dsv4_gemm(int kind, int form, const uint8_t *codes, const float *scales,
              const uint8_t *w, const uint8_t *ws, float scale2, float *y, int64_t m,
              int64_t n, int64_t k, void *scratch, size_t scratch_bytes, stream_t stream)
{
    return launch(inner->dsv4->gemm(kind, form, codes, scales, w, ws, scale2, y, m, n, k,
                                    scratch, scratch_bytes, stream),
                  stream)
        .wrote(y, m * n);
}

int swiglu(const float *gate, const float *up, const float *row_weight, float limit,
           float *h, int64_t m, int64_t n, stream_t stream)
{
    return launch(inner->dsv4->swiglu(gate, up, row_weight, limit, h, m, n, stream),
                  stream)
        .wrote(h, m * n);
}

int gemm_bf16(const uint16_t *x16, const uint16_t *w16, float *y, int64_t m, int64_t n,
              int64_t k, stream_t stream)
{
    return launch(inner->dsv4->gemm_bf16(x16, w16, y, m, n, k, stream), stream)
        .wrote(y, m * n);
}

/* ---- the tables: copies of the wrapped ones, with the entries above in place ---- */

struct kg_matvec_ops matvec_table;
struct kg_norm_ops norm_table;
struct kg_elementwise_ops elementwise_table;
struct kg_ssm_ops ssm_table;
struct kg_gdn_ops gdn_table;
struct kg_mmvq_ops mmvq_table;
struct kg_gemm_ops gemm_table;
struct kg_attention_ops attention_table;
struct kg_grouped_ops grouped_table;
struct kg_router_ops router_table;
struct kg_dsv4_ops dsv4_table;

/* An entry that the wrapped provider lacks stays NULL. */
#define ENTRY(family, entry, function)                                                   \
    if (family##_table.entry != nullptr)                                                 \
    family##_table.entry = function

#define TABLE(family)                                                                    \
    if (outer.family != nullptr && outer.family->size == sizeof family##_table) {        \
        family##_table = *outer.family;                                                  \
        outer.family = &family##_table;                                                  \
    } else if (outer.family != nullptr) {                                                \
        refuse("its table " #family " has another size");                                \
    }

/* Nobody to report to: the loader of providers runs this before it reads anything. */
[[noreturn]] void refuse(const char *why)
{
    fprintf(stderr, "skew: %s\n", why);
    exit(2);
}

struct kg_provider wrap()
{
    const char *path = getenv("KGATE_SKEW_PROVIDER"), *text = getenv("KGATE_SKEW");
    if (path == nullptr || text == nullptr)
        refuse("KGATE_SKEW_PROVIDER and KGATE_SKEW must be set");
    char *end = nullptr;
    skew = strtod(text, &end);
    if (end == text || *end != '\0' || !(skew > -1.0 && skew < 1.0))
        refuse("KGATE_SKEW is not a number between -1 and 1");
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr)
        refuse(dlerror());
    inner = (const struct kg_provider *)dlsym(object, KG_PROVIDER_SYMBOL);
    if (inner == nullptr || inner->abi != KG_PROVIDER_ABI ||
        inner->size != sizeof(struct kg_provider))
        refuse("KGATE_SKEW_PROVIDER is not a provider of this version");

    struct kg_provider outer = *inner;
    outer.name = "skew";
    TABLE(matvec)
    TABLE(norm)
    TABLE(elementwise)
    TABLE(ssm)
    TABLE(gdn)
    TABLE(mmvq)
    TABLE(gemm)
    TABLE(attention)
    TABLE(grouped)
    TABLE(router)
    TABLE(dsv4)
    ENTRY(matvec, dequantize, dequantize);
    ENTRY(matvec, stage_a, stage_a);
    ENTRY(matvec, stage_b, stage_b);
    ENTRY(norm, rms_norm, rms_norm);
    ENTRY(norm, rms_norm_qkv, rms_norm_qkv);
    ENTRY(norm, l2_norm, l2_norm);
    ENTRY(norm, add_rms_norm, add_rms_norm);
    ENTRY(norm, add_rms_norm_q8_1, add_rms_norm_q8_1);
    ENTRY(norm, gated_rmsnorm, gated_rmsnorm);
    ENTRY(elementwise, add, add);
    ENTRY(elementwise, silu_mul, silu_mul);
    ENTRY(elementwise, silu_mul_scaled, silu_mul_scaled);
    ENTRY(elementwise, gelu_mul, gelu_mul);
    ENTRY(elementwise, sigmoid_dot, sigmoid_dot);
    ENTRY(elementwise, rope_neox, rope_neox);
    ENTRY(ssm, ssm_conv1d, ssm_conv1d);
    ENTRY(ssm, ssm_conv1d_fused_decode, ssm_conv1d_fused_decode);
    ENTRY(gdn, gdn_scan, gdn_scan);
    ENTRY(gdn, gdn_chunked, gdn_chunked);
    ENTRY(gdn, gdn_chunked_mma, gdn_chunked_mma);
    ENTRY(gdn, gdn_chunked_wgmma, gdn_chunked_wgmma);
    ENTRY(mmvq, product, product);
    ENTRY(mmvq, ksplit, ksplit);
    ENTRY(mmvq, stage_a_split, stage_a_split);
    ENTRY(mmvq, stage_b_split, stage_b_split);
    ENTRY(gemm, int8, int8);
    ENTRY(gemm, f16, f16);
    ENTRY(gemm, f16_blocks, f16_blocks);
    ENTRY(gemm, w4a4, w4a4);
    ENTRY(gemm, nvfp4_residual, nvfp4_residual);
    ENTRY(gemm, int8_clc, int8_clc);
    ENTRY(gemm, w4a4_native, w4a4_native);
    ENTRY(gemm, int8_wgmma, int8_wgmma);
    ENTRY(attention, decode, decode);
    ENTRY(attention, decode_rows, decode_rows);
    ENTRY(attention, decode_seqs, decode_seqs);
    ENTRY(attention, decode_dc, decode_dc);
    ENTRY(attention, decode_settled, decode_settled);
    ENTRY(attention, prefill, prefill);
    ENTRY(grouped, gemm_f16, gemm_f16);
    ENTRY(grouped, gemm_quant, gemm_quant);
    ENTRY(grouped, sm90_gemm_f16, sm90_gemm_f16);
    ENTRY(grouped, sm90_gemm_quant, sm90_gemm_quant);
    ENTRY(router, topk, topk);
    ENTRY(router, matvec, router_matvec);
    ENTRY(router, matvec_batch, router_matvec_batch);
    ENTRY(dsv4, gemm, dsv4_gemm);
    ENTRY(dsv4, swiglu, swiglu);
    ENTRY(dsv4, gemm_bf16, gemm_bf16);
    return outer;
}

} // namespace

const struct kg_provider kgate_provider = wrap();
