/*
 * Selection of experts: softmax or sqrt-softplus, top k, renormalised weights.
 *
 * kgate/ops/router.h states the rules. One warp a token. Lane l keeps the keys and scores
 * of experts l, l + 32, .. in registers. A key is 64 bits: the logit (or biased score) as
 * an unsigned number of the same order in the high half, the inverted index in the low
 * half, so that the largest key is the highest value and then the lowest index. Each of k
 * rounds takes the maximum over the warp and clears it.
 */
#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"
#include "kgate/ops/router.h"

enum { ROUTER_WARPS = 4, MAX_K = 32, MAX_EXPERTS = 512 };

/* f32 in ascending order as unsigned: NaN is 0, -inf above it, both zeros the same. */
static __device__ inline uint32_t ordered(float v)
{
    if (v != v)
        return 0;
    const uint32_t bits = __float_as_uint(v + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static __device__ inline float sum_of_warp(float v)
{
    for (int distance = 16; distance > 0; distance /= 2)
        v += __shfl_xor_sync(KG_WARP_ALL, v, distance);
    return v;
}

/* score[] from logit[]: unnormalised exponentials and their sum over the warp. */
template <int SLOTS>
static __device__ inline void softmax(float (&score)[SLOTS], const float (&logit)[SLOTS])
{
    float most = -INFINITY;
    for (int i = 0; i < SLOTS; i++)
        most = logit[i] > most ? logit[i] : most; /* false for NaN */
    for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(KG_WARP_ALL, most, distance));
    float sum = 0.0f;
    for (int i = 0; i < SLOTS; i++) {
        if (!(logit[i] > -INFINITY)) /* NaN too */
            score[i] = 0.0f;
        else if (most == INFINITY)
            score[i] = logit[i] == INFINITY ? 1.0f : 0.0f;
        else
            score[i] = kg_expf(logit[i] - most);
        sum += score[i];
    }
    sum = sum_of_warp(sum);
    for (int i = 0; i < SLOTS; i++)
        score[i] = sum > 0.0f ? score[i] / sum : 0.0f;
}

template <int SLOTS>
static __device__ inline void sqrt_softplus(float (&score)[SLOTS],
                                            const float (&logit)[SLOTS])
{
    for (int i = 0; i < SLOTS; i++) {
        const float v = fminf(logit[i], 3.402823466e38f);
        score[i] = logit[i] == logit[i] ? kg_sqrtf(kg_softplusf(v)) : 0.0f;
    }
}

template <int SLOTS>
static __global__ void topk_kernel(const float *logits, const float *bias, int scoring,
                                   int32_t *ids, float *weights, int64_t tokens,
                                   int experts, int k)
{
    const int lane = threadIdx.x % 32;
    const int64_t token = (int64_t)blockIdx.x * ROUTER_WARPS + threadIdx.x / 32;
    if (token >= tokens)
        return;
    float logit[SLOTS], score[SLOTS];
    uint64_t key[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        const int e = lane + 32 * i;
        logit[i] = e < experts ? logits[token * experts + e] : -INFINITY;
    }
    if (scoring == KG_ROUTER_SOFTMAX)
        softmax(score, logit);
    else
        sqrt_softplus(score, logit);
    for (int i = 0; i < SLOTS; i++) {
        const int e = lane + 32 * i;
        const float b = bias && e < experts ? bias[e] : 0.0f;
        float v = logit[i];
        if (scoring != KG_ROUTER_SOFTMAX && logit[i] == logit[i])
            v = score[i];
        key[i] = e < experts
                     ? (uint64_t)ordered(v + b) << 32 | (0xffffffffu - (uint32_t)e)
                     : 0;
    }

    float mine = 0.0f, sum = 0.0f; /* lane j keeps rank j */
    int chosen = 0;
    for (int rank = 0; rank < k; rank++) {
        uint64_t top = 0;
        float top_score = 0.0f;
        for (int i = 0; i < SLOTS; i++)
            if (key[i] > top) {
                top = key[i];
                top_score = score[i];
            }
        uint64_t best = top;
        for (int distance = 16; distance > 0; distance /= 2) {
            const uint64_t other =
                __shfl_xor_sync(KG_WARP_ALL, (unsigned long long)best, distance);
            best = other > best ? other : best;
        }
        const int e = (int)(0xffffffffu - (uint32_t)best);
        const float s = __shfl_sync(KG_WARP_ALL, top_score, e % 32);
        sum += s;
        if (lane == rank) {
            mine = s;
            chosen = e;
        }
        for (int i = 0; i < SLOTS; i++)
            if (key[i] == best)
                key[i] = 0;
    }
    if (lane < k) {
        ids[token * k + lane] = chosen;
        weights[token * k + lane] = mine / fmaxf(sum, 0x1p-14f);
    }
}

template <int SLOTS>
static int launch_topk(const float *logits, const float *bias, int scoring, int32_t *ids,
                       float *weights, int64_t tokens, int64_t experts, int64_t k,
                       struct CUstream_st *stream)
{
    const unsigned blocks = grid_blocks(tokens, ROUTER_WARPS);
    if (!blocks)
        return KG_E_UNSUPPORTED;
    return KG_LAUNCH(stream, blocks, 32 * ROUTER_WARPS, 0, topk_kernel<SLOTS>, logits,
                     bias, scoring, ids, weights, tokens, (int)experts, (int)k);
}

static int topk(const float *logits, const float *bias, int scoring, int32_t *ids,
                float *weights, int64_t tokens, int64_t experts, int64_t k,
                struct CUstream_st *stream)
{
    if (tokens < 0 || experts < 0 || k < 0 || k > experts ||
        (scoring != KG_ROUTER_SOFTMAX && scoring != KG_ROUTER_SQRT_SOFTPLUS) ||
        size_product(tokens, experts) < 0)
        return KG_E_INVALID;
    if (experts > MAX_EXPERTS || k > MAX_K)
        return KG_E_UNSUPPORTED;
    if (tokens == 0 || k == 0)
        return KG_OK;
    if (!pointer_fits(logits, 1, 4) || (uintptr_t)bias % 4 != 0 ||
        !pointer_fits(ids, 1, 4) || !pointer_fits(weights, 1, 4))
        return KG_E_INVALID;
    if (experts <= 64)
        return launch_topk<2>(logits, bias, scoring, ids, weights, tokens, experts, k,
                              stream);
    if (experts <= 128)
        return launch_topk<4>(logits, bias, scoring, ids, weights, tokens, experts, k,
                              stream);
    if (experts <= 256)
        return launch_topk<8>(logits, bias, scoring, ids, weights, tokens, experts, k,
                              stream);
    return launch_topk<16>(logits, bias, scoring, ids, weights, tokens, experts, k,
                           stream);
}

int kg_router_matvec(const float *w, const float *x, float *logits, int64_t in,
                     int64_t experts, int64_t tokens, struct CUstream_st *stream);
int kg_router_matvec_batch(const float *w, const float *x, float *logits, int64_t in,
                           int64_t experts, int64_t tokens, struct CUstream_st *stream);

extern const struct kg_router_ops kg_router_table;
const struct kg_router_ops kg_router_table = {
    sizeof(struct kg_router_ops),
    topk,
    kg_router_matvec,
    kg_router_matvec_batch,
};
