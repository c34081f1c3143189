/*
 * Grouped products of weights in quantized blocks, without a copy of them in f16.
 *
 * The tiles and their order of products are those of grouped.cu; only the weights' loader
 * differs: a thread takes 64 (or 32) weights of one row as units (matvec/unit.h), before
 * the products of the stage in front so that the loads have time, and writes their f16
 * values after them. dequantize_f16 rounds the same values by unit_value, so both give the
 * same bits. One row more in the table adds a type of formats.h.
 */
#include "kernels/grouped/launch.h"
#include "kernels/grouped/q4_k.h"

template <class T>
static __global__ void dequantize_f16_kernel(const struct grouped_view g, uint16_t *dst,
                                             int64_t units)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= units)
        return;
    const int64_t per_group = (int64_t)g.in / KG_UNIT * g.out;
    const int group = (int)(i / per_group);
    const int64_t unit = i % per_group;
    const int expert = g.experts ? g.experts[group] : group;
    enum { PARTS = T::BLOCK / KG_UNIT };
    struct unit32 u;
    T::unpack(g.w + expert * g.expert_stride + unit / PARTS * T::BYTES,
              (int)(unit % PARTS), &u);
    uint32_t words[16];
    for (int k = 0; k < 16; k++)
        words[k] =
            kg_pack_f32_to_half2(unit_value<T>(u, 2 * k), unit_value<T>(u, 2 * k + 1));
    uint4 *to = (uint4 *)(dst + i * KG_UNIT);
    for (int k = 0; k < 4; k++)
        to[k] = make_uint4(words[4 * k], words[4 * k + 1], words[4 * k + 2],
                           words[4 * k + 3]);
}

template <class T>
static int dequantize(const struct grouped_view &view, uint16_t *dst, int64_t units,
                      struct CUstream_st *stream)
{
    const unsigned blocks = grid_blocks(units, 128);
    if (!blocks)
        return KG_E_UNSUPPORTED;
    return KG_LAUNCH(stream, blocks, 128, 0, dequantize_f16_kernel<T>, view, dst, units);
}

struct quant_row {
    int type, block, bytes;
    int (*gemm)(struct grouped_view, const struct kg_grouped_form &,
                struct CUstream_st *);
    int (*dequantize)(const struct grouped_view &, uint16_t *, int64_t,
                      struct CUstream_st *);
};

#define ROW(f, loader)                                                                   \
    {                                                                                    \
        f::TYPE, f::BLOCK, f::BYTES, launch_visitor<loader>, dequantize<f>               \
    }

static const struct quant_row rows[] = {
    ROW(fmt_q4_k, q4_k_weights),
    ROW(fmt_q6_k, block_weights<fmt_q6_k>),
    ROW(fmt_iq4_xs, block_weights<fmt_iq4_xs>),
    ROW(fmt_iq3_s, block_weights<fmt_iq3_s>),
};

static const struct quant_row *find(int type)
{
    for (const struct quant_row &r : rows)
        if (r.type == type)
            return &r;
    return nullptr;
}

int kg_grouped_gemm_quant(const struct kg_grouped *g, const struct kg_grouped_form *form,
                          int type, const void *w, const void *x, float *y,
                          struct CUstream_st *stream)
{
    const struct quant_row *row = find(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    KG_TRY(kg_grouped_check(g, row->block, row->bytes, w, x, y));
    if (!form || form->cross < 0)
        return KG_E_INVALID;
    if (!form->visitor)
        return KG_E_UNSUPPORTED;
    if (g->pairs == 0 || g->out == 0)
        return KG_OK;
    struct grouped_view view = kg_grouped_view(g, w, x, y);
    view.trim = form->trim != 0;
    return row->gemm(view, *form, stream);
}

int kg_grouped_dequantize_f16(const struct kg_grouped *g, int type, const void *w,
                              void *dst, struct CUstream_st *stream)
{
    const struct quant_row *row = find(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    if (!g)
        return KG_E_INVALID;
    struct kg_grouped only = *g;
    only.pairs = only.n_rows = 0;
    only.rows = nullptr;
    only.scale = nullptr;
    only.offsets = (const int32_t *)w; /* not read here; any address will do */
    KG_TRY(kg_grouped_check(&only, row->block, row->bytes, w, w, nullptr));
    const int64_t per_group = only.in / KG_UNIT * only.out;
    int64_t units;
    if (__builtin_mul_overflow(per_group, only.groups, &units) ||
        size_product(units, KG_UNIT) < 0 || !pointer_fits(dst, units, 16))
        return KG_E_INVALID;
    if (units == 0)
        return KG_OK;
    return row->dequantize(kg_grouped_view(&only, w, nullptr, nullptr), (uint16_t *)dst,
                           units, stream);
}
