/*
 * Prefill attention: the naive kernel, the 16-bit workspace, and the launchers.
 *
 * Naive: a warp has one query of one head, 32 keys at a time, a lane a key; f32. In order
 * of the keys from M = -inf, L = 0, out = 0:
 *
 *   s = scale * (chain of fma(q, k) over the elements in order)
 *   M' = max(M, max s);  r = exp(M - M');  w = exp(s - M'), 0 where the query does not see
 *   L = L * r + (butterfly sum of w);  out = out * r, then fma(w, v, out) key by key
 *
 * with lane l having elements l, l + 32, .. of out. At the end out / L.
 */
#include "kernels/attention/launch.h"
#include "kernels/attention/source.h"

#define HEAD_DIM_MAX 512

static __device__ inline float element(const uint8_t *row, int type, int i)
{
    float x[8];
    load8(row, type, i / 8 * 8, x);
    return x[i % 8];
}

static __global__ void naive_kernel(struct prefill p, int head_dim)
{
    const int lane = threadIdx.x;
    const int head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    const int64_t index = (int64_t)blockIdx.x * p.n_heads + head;
    const struct key_range range = keys_seen(p, blockIdx.x);
    const float *q = p.q + index * head_dim;
    float out[HEAD_DIM_MAX / 32] = {}, max = -INFINITY, sum = 0.0f;
    for (int64_t key0 = range.first; key0 < range.end; key0 += 32) {
        const int n = (int)min((int64_t)32, range.end - key0);
        float s = -INFINITY, dot = 0.0f;
        if (lane < n) {
            const uint8_t *k =
                p.k.data + (key0 + lane) * p.k.stride + (int64_t)kv_head * p.k.head_bytes;
            for (int i = 0; i < head_dim; i += 8) {
                float x[8];
                load8(k, p.k.type, i, x);
                for (int e = 0; e < 8; e++)
                    dot = fmaf(q[i + e], x[e], dot);
            }
            s = p.scale * dot;
        }
        const float top = fmaxf(max, warp_max(s));
        const float r = kg_expf(max - top);
        const float w = lane < n ? kg_expf(s - top) : 0.0f;
        max = top;
        sum = sum * r + warp_sum(w);
        for (int i = 0; i < head_dim / 32; i++)
            out[i] *= r;
        for (int t = 0; t < n; t++) {
            const float wt = __shfl_sync(KG_WARP_ALL, w, t);
            const uint8_t *v =
                p.v.data + (key0 + t) * p.v.stride + (int64_t)kv_head * p.v.head_bytes;
            for (int i = 0; i < head_dim / 32; i++)
                out[i] = fmaf(wt, element(v, p.v.type, 32 * i + lane), out[i]);
        }
    }
    for (int i = 0; i < head_dim / 32; i++)
        p.out[index * head_dim + 32 * i + lane] = finish(out[i], sum);
    if (p.lse && lane == 0)
        p.lse[index] = log_sum_exp(max, sum);
}

/* Eight elements a thread; K in grid y 0, V in 1. */
template <bool F16>
static __global__ void stage_kernel(struct prefill p, int head_dim, uint4 *k, uint4 *v)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int per_head = head_dim / 8;
    const int64_t per_key = (int64_t)p.n_kv_heads * per_head;
    if (i >= p.keys * per_key)
        return;
    const int at = (int)(i % per_head) * 8, kv_head = (int)(i % per_key / per_head);
    if (blockIdx.y == 0)
        k[i] = stage8<F16>(p.k, i / per_key, kv_head, at);
    else
        v[i] = stage8<F16>(p.v, i / per_key, kv_head, at);
}

/* ---- launchers ---- */

static int make_side(const struct kg_prefill *a, int type, int64_t stride,
                     const void *data, struct side *side)
{
    const int blocks = a->head_dim / 32;
    side->data = (const uint8_t *)data;
    side->type = a->source == KG_PREFILL_F32     ? KG_TYPE_F32
                 : a->source == KG_PREFILL_CACHE ? type
                                                 : KG_TYPE_F16;
    side->head_bytes = side->type == KG_TYPE_F32    ? a->head_dim * 4
                       : side->type == KG_TYPE_F16  ? a->head_dim * 2
                       : side->type == KG_TYPE_Q8_0 ? blocks * 34
                       : side->type == KG_TYPE_Q5_1 ? blocks * 24
                       : side->type == KG_TYPE_Q4_0 ? blocks * 18
                                                    : blocks * 32;
    const int64_t row = (int64_t)a->n_kv_heads * side->head_bytes;
    side->stride = a->source == KG_PREFILL_CACHE ? stride : row;
    const int64_t align = side->type == KG_TYPE_Q5_1 ? 4 : 2;
    if (side->stride < row || side->stride % align != 0 ||
        side->stride > INT64_C(1) << 31 || (uintptr_t)data % 16 != 0 ||
        (a->keys > 0 && !data))
        return KG_E_INVALID;
    return KG_OK;
}

static int make_prefill(const struct kg_prefill *a, struct prefill *p)
{
    if (!a || a->tokens < 0 || a->keys < 0 || a->tokens > INT32_MAX ||
        a->keys > INT32_MAX || a->n_heads < 1 || a->n_kv_heads < 1 ||
        a->n_heads % a->n_kv_heads != 0 || a->n_heads > 32767 || a->window < 0 ||
        a->source < KG_PREFILL_F32 || a->source > KG_PREFILL_WORKSPACE)
        return KG_E_INVALID;
    const int k = a->layout.k_type, v = a->layout.v_type;
    if (a->source == KG_PREFILL_CACHE &&
        ((k != KG_TYPE_Q8_0 && k != KG_TYPE_F8_E4M3) ||
         (v != KG_TYPE_Q5_1 && v != KG_TYPE_Q4_0 && v != KG_TYPE_F8_E4M3)))
        return KG_E_UNSUPPORTED;
    switch (a->head_dim) {
    case 64:
    case 96:
    case 128:
    case 192:
    case 256:
    case 512:
        break;
    default:
        return KG_E_UNSUPPORTED;
    }
    KG_TRY(make_side(a, k, a->layout.k_stride, a->k, &p->k));
    KG_TRY(make_side(a, v, a->layout.v_stride, a->v, &p->v));
    p->q = a->q;
    p->out = a->out;
    p->lse = a->lse;
    p->tokens = a->tokens;
    p->keys = a->keys;
    p->n_heads = a->n_heads;
    p->n_kv_heads = a->n_kv_heads;
    p->window = a->window;
    p->causal = a->causal;
    p->scale = a->scale;
    return KG_OK;
}

int kg_attention_prefill(int arm, const struct kg_prefill *args,
                         struct CUstream_st *stream)
{
    struct prefill p;
    KG_TRY(make_prefill(args, &p));
    if (args->tokens == 0)
        return KG_OK;
    if (!p.q || !p.out || (uintptr_t)p.q % 16 != 0 || (uintptr_t)p.out % 16 != 0 ||
        (uintptr_t)p.lse % 4 != 0)
        return KG_E_INVALID;
    switch (arm) {
    case KG_PREFILL_NAIVE:
        if (args->source == KG_PREFILL_WORKSPACE)
            return KG_E_UNSUPPORTED;
        return KG_LAUNCH(stream, dim3((unsigned)p.tokens, (unsigned)p.n_heads), 32, 0,
                         naive_kernel, p, args->head_dim);
    case KG_PREFILL_BF16:
    case KG_PREFILL_SINGLE_BF16:
        return launch_prefill_bf16(args->head_dim, arm == KG_PREFILL_SINGLE_BF16, p,
                                   stream);
    case KG_PREFILL_F16:
    case KG_PREFILL_SINGLE_F16:
        return launch_prefill_f16(args->head_dim, arm == KG_PREFILL_SINGLE_F16, p,
                                  stream);
#if defined(KG_HAVE_SM90)
    case KG_PREFILL_WGMMA_BF16:
    case KG_PREFILL_WGMMA_F16:
        if (args->source != KG_PREFILL_WORKSPACE)
            return KG_E_UNSUPPORTED;
        return launch_prefill_wgmma(args->head_dim, arm == KG_PREFILL_WGMMA_F16, p,
                                    stream);
#endif
    default:
        return KG_E_UNSUPPORTED;
    }
}

int kg_attention_stage(const struct kg_prefill *args, int half, void *k16, void *v16,
                       struct CUstream_st *stream)
{
    struct prefill p;
    KG_TRY(make_prefill(args, &p));
    if (args->source == KG_PREFILL_WORKSPACE)
        return KG_E_UNSUPPORTED;
    if (args->keys == 0)
        return KG_OK;
    if (!k16 || !v16 || (uintptr_t)k16 % 16 != 0 || (uintptr_t)v16 % 16 != 0)
        return KG_E_INVALID;
    const int64_t n = p.keys * p.n_kv_heads * (args->head_dim / 8);
    if (n > INT64_C(0x7fffffff) * 256)
        return KG_E_INVALID;
    const dim3 grid((unsigned)((n + 255) / 256), 2);
    if (half)
        return KG_LAUNCH(stream, grid, 256, 0, (stage_kernel<true>), p, args->head_dim,
                         (uint4 *)k16, (uint4 *)v16);
    return KG_LAUNCH(stream, grid, 256, 0, (stage_kernel<false>), p, args->head_dim,
                     (uint4 *)k16, (uint4 *)v16);
}
