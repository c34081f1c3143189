/*
 * Grouped product of f16 weights: y[p][o] = scale[p] * sum_k w[e][o][k] * x[r][k].
 *
 * kgate/ops/grouped.h states shapes and arithmetic. Two forms:
 *
 *   scan      one block a tile of 32 x 128; the simplest, and the reference of the others
 *   visitor   two blocks a multiprocessor, each walking through tiles of 128 x 128 and
 *             32 x 128 (view.h numbers them, tile.h computes one)
 *
 * A warp of the big tile reads 128 rows from shared memory for 64 x 64 outputs; with
 * 64 x 32, reads and the writes of cp.async would take longer than the products.
 */
#include "kernels/grouped/launch.h"

#include <limits.h>

int kg_grouped_check(const struct kg_grouped *g, int64_t block, int64_t block_bytes,
                     const void *w, const void *x, const float *y)
{
    if (!g || g->groups < 0 || g->pairs < 0 || g->n_experts < 0 || g->n_rows < 0 ||
        g->in < 0 || g->out < 0 || g->groups > INT32_MAX || g->pairs > INT32_MAX ||
        g->n_rows > INT32_MAX || g->in > INT32_MAX - 64 || g->out > INT32_MAX - 128 ||
        size_product(g->in, g->out) < 0 || size_product(g->n_rows, g->in) < 0 ||
        size_product(g->pairs, g->out) < 0)
        return KG_E_INVALID;
    if (g->in % block != 0)
        return KG_E_UNSUPPORTED;
    int64_t expert_bytes, stride_all;
    if (__builtin_mul_overflow(g->in / block * block_bytes, g->out, &expert_bytes) ||
        g->expert_stride < expert_bytes || g->expert_stride % 16 != 0 ||
        __builtin_mul_overflow(g->expert_stride, g->n_experts, &stride_all))
        return KG_E_INVALID;
    if (g->groups == 0 && g->pairs > 0)
        return KG_E_INVALID;
    if (!g->experts && g->groups > g->n_experts)
        return KG_E_INVALID;
    if (!g->rows && g->pairs > g->n_rows)
        return KG_E_INVALID;
    if (!pointer_fits(g->offsets, 1, 4) || !pointer_fits(g->experts, 0, 4) ||
        (uintptr_t)g->experts % 4 != 0 || (uintptr_t)g->rows % 4 != 0 ||
        (uintptr_t)g->scale % 4 != 0 ||
        !pointer_fits(w, expert_bytes > 0 && g->n_experts > 0, 16) ||
        !pointer_fits(x, g->n_rows > 0 && g->in > 0, 16) ||
        !pointer_fits(y, g->pairs > 0 && g->out > 0, 16))
        return KG_E_INVALID;
    return KG_OK;
}

struct grouped_view kg_grouped_view(const struct kg_grouped *g, const void *w,
                                    const void *x, float *y)
{
    struct grouped_view v = {};
    v.offsets = g->offsets;
    v.experts = g->experts;
    v.rows = g->rows;
    v.scale = g->scale;
    v.w = (const uint8_t *)w;
    v.x = (const uint16_t *)x;
    v.y = y;
    v.expert_stride = g->expert_stride;
    v.groups = (int)g->groups;
    v.in = (int)g->in;
    v.out = (int)g->out;
    return v;
}

static int gemm_f16(const struct kg_grouped *g, const struct kg_grouped_form *form,
                    const void *w, const void *x, float *y, struct CUstream_st *stream)
{
    KG_TRY(kg_grouped_check(g, 32, 64, w, x, y));
    if (!form || form->cross < 0)
        return KG_E_INVALID;
    if (g->pairs == 0 || g->out == 0)
        return KG_OK;
    struct grouped_view view = kg_grouped_view(g, w, x, y);
    view.trim = form->trim != 0;
    if (!form->visitor)
        return launch_scan<half_weights>(view, g->pairs, stream);
    return launch_visitor<half_weights>(view, *form, stream);
}

int kg_grouped_gemm_quant(const struct kg_grouped *g, const struct kg_grouped_form *form,
                          int type, const void *w, const void *x, float *y,
                          struct CUstream_st *stream);
int kg_grouped_dequantize_f16(const struct kg_grouped *g, int type, const void *w,
                              void *dst, struct CUstream_st *stream);
#if defined(KG_HAVE_SM90)
int kg_sm90_grouped_gemm_f16(const struct kg_grouped *g, const void *w, const void *x,
                             float *y, struct CUstream_st *stream);
int kg_sm90_grouped_gemm_quant(const struct kg_grouped *g, int type, const void *w,
                               const void *x, float *y, struct CUstream_st *stream);
#else
static int kg_sm90_grouped_gemm_f16(const struct kg_grouped *, const void *, const void *,
                                    float *, struct CUstream_st *)
{
    return KG_E_UNSUPPORTED;
}
static int kg_sm90_grouped_gemm_quant(const struct kg_grouped *, int, const void *,
                                      const void *, float *, struct CUstream_st *)
{
    return KG_E_UNSUPPORTED;
}
#endif

extern const struct kg_grouped_ops kg_grouped_table;
const struct kg_grouped_ops kg_grouped_table = {
    sizeof(struct kg_grouped_ops), gemm_f16,
    kg_grouped_gemm_quant,         kg_grouped_dequantize_f16,
    kg_sm90_grouped_gemm_f16,      kg_sm90_grouped_gemm_quant,
};
