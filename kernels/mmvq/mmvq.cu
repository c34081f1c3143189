/*
 * The table of the family, the checks of arguments, and the choice of the kernel.
 */
#include "kernels/mmvq/launch.h"

static const struct product_row *find_row(int type, int layout)
{
    for (const struct product_row &r : product_rows_small)
        if (r.type == type && r.layout == layout)
            return &r;
    for (const struct product_row &r : product_rows_kquant)
        if (r.type == type && r.layout == layout)
            return &r;
    for (const struct product_row &r : product_rows_split)
        if (r.type == type && r.layout == layout)
            return &r;
    const struct product_row &e4m3 = product_row_e4m3;
    return e4m3.type == type && e4m3.layout == layout ? &e4m3 : nullptr;
}

static int check_tensor(const struct product_row *row, const struct kg_mmvq_tensor &t,
                        int scale_kind, int64_t in, int64_t m)
{
    KG_TRY(check_product(in, t.out, m, row->block));
    if (t.out == 0 || m == 0)
        return KG_OK;
    const bool scales = scale_kind != KG_SCALE_NONE;
    if (!pointer_fits(t.w, in, (uintptr_t)row->align) || !pointer_fits(t.y, 1, 4) ||
        !pointer_fits(t.scales, scales ? 1 : 0, 4))
        return KG_E_INVALID;
    return KG_OK;
}

/* Whether the fast kernel can take it: it copies 16 bytes at a time. */
static bool fast_fits(const struct product_args &a, int n_tensors)
{
    for (int i = 0; i < n_tensors; i++)
        if ((uintptr_t)a.tensor[i].w % 16 != 0)
            return false;
    return a.in > 0 && a.in < 1 << 30;
}

static int count_jobs(struct product_args *a, int n_tensors)
{
    int64_t tiles = 0;
    for (int i = 0; i < n_tensors; i++) {
        tiles += (a->tensor[i].out + TILE_ROWS - 1) / TILE_ROWS;
        if (tiles > 0x7fffffff)
            return KG_E_INVALID;
        a->tensor[i].tile_end = (uint32_t)tiles;
    }
    const int64_t groups = (a->m + a->width - 1) / a->width * a->parts;
    if (groups > 0x7fffffff || tiles * groups > 0x7fffffff)
        return KG_E_INVALID;
    a->tiles = (uint32_t)tiles;
    a->jobs = (uint32_t)(tiles * groups);
    return KG_OK;
}

static int check_common(const struct product_row *row, int width, const int8_t *q,
                        const float *d, const float *s, int64_t in)
{
    if (width < 1 || (width > 8 && !(width == 16 && row->type == KG_TYPE_Q6_K)))
        return KG_E_UNSUPPORTED;
    if (!pointer_fits(q, in, 16) || !pointer_fits(d, in, 4) ||
        !pointer_fits(s, row->minimum ? in : 0, 4))
        return KG_E_INVALID;
    return KG_OK;
}

static int kg_mmvq_product(int type, int layout, int scale_kind,
                           const struct kg_mmvq_tensor *tensors, int n_tensors,
                           const int8_t *q, const float *d, const float *s, int64_t in,
                           int64_t m, int width, struct CUstream_st *stream)
{
    const struct product_row *row = find_row(type, layout);
    if (!row)
        return KG_E_UNSUPPORTED;
    if (!tensors || n_tensors < 1 || n_tensors > KG_MMVQ_TENSORS || scale_kind < 0 ||
        scale_kind > KG_SCALE_BLOCK ||
        (scale_kind != KG_SCALE_NONE && type != KG_TYPE_F8_E4M3))
        return KG_E_INVALID;
    struct product_args a = {};
    int n = 0;
    for (int i = 0; i < n_tensors; i++) {
        const struct kg_mmvq_tensor &t = tensors[i];
        KG_TRY(check_tensor(row, t, scale_kind, in, m));
        if (t.out == 0)
            continue;
        a.tensor[n].w = (const uint8_t *)t.w;
        a.tensor[n].y = t.y;
        a.tensor[n].scales = t.scales;
        a.tensor[n].out = t.out;
        a.tensor[n].scale = t.scale;
        n++;
    }
    if (n == 0 || m == 0)
        return width < 1 ? KG_E_UNSUPPORTED : KG_OK;
    KG_TRY(check_common(row, width, q, d, s, in));
    a.q = q;
    a.d = d;
    a.s = row->minimum ? s : nullptr;
    a.in = in;
    a.k = (int)in;
    a.m = m;
    a.width = width;
    a.parts = 1;
    a.row_scales = scale_kind == KG_SCALE_ROW;
    a.block_scales = scale_kind == KG_SCALE_BLOCK;
    if (!fast_fits(a, n)) {
        for (int i = 0; i < n; i++)
            KG_TRY(row->plain(a.tensor[i], q, d, s, in, m, scale_kind, stream));
        return KG_OK;
    }
    int rc = KG_E_UNSUPPORTED;
    if (n == 1 && (width == 1 || m == 1))
        rc = kg_mmvq_direct(type, layout, a, stream);
    if (rc == KG_E_UNSUPPORTED)
        rc = kg_mmvq_wide(type, layout, a, n, stream);
    if (rc == KG_E_UNSUPPORTED)
        rc = kg_mmvq_tile(type, layout, a, n, stream);
    if (rc != KG_E_UNSUPPORTED)
        return rc;
    KG_TRY(count_jobs(&a, n));
    return row->fast(a, width == 1 ? 1 : width <= 8 ? 8 : 16, stream);
}

static int kg_mmvq_ksplit(int type, const struct kg_mmvq_tensor *tensor, const int8_t *q,
                          const float *d, const float *s, int64_t in, int64_t m,
                          int width, float *parts, struct CUstream_st *stream)
{
    const struct product_row *row = find_row(type, KG_LAYOUT_SPLIT);
    if (!row)
        return KG_E_UNSUPPORTED;
    if (!tensor)
        return KG_E_INVALID;
    KG_TRY(check_tensor(row, *tensor, KG_SCALE_NONE, in, m));
    if (tensor->out == 0 || m == 0)
        return KG_OK;
    if (in <= STAGE_K) /* one group of units: the second part is empty */
        return kg_mmvq_product(type, KG_LAYOUT_SPLIT, KG_SCALE_NONE, tensor, 1, q, d, s,
                               in, m, width, stream);
    KG_TRY(check_common(row, width, q, d, s, in));
    if (!pointer_fits(parts, 1, 4))
        return KG_E_INVALID;
    struct product_args a = {};
    a.tensor[0].w = (const uint8_t *)tensor->w;
    a.tensor[0].out = tensor->out;
    a.q = q;
    a.d = d;
    a.s = row->minimum ? s : nullptr;
    a.in = in;
    a.k = (int)in;
    a.m = m;
    a.width = width;
    a.parts = 2;
    a.part_y = parts;
    KG_TRY(count_jobs(&a, 1));
    KG_TRY(row->fast(a, width == 1 ? 1 : width <= 8 ? 8 : 16, stream));
    return kg_mmvq_ksplit_add(parts, tensor->y, m * tensor->out, tensor->scale, stream);
}

extern const struct kg_mmvq_ops kg_mmvq_table;
const struct kg_mmvq_ops kg_mmvq_table = {
    sizeof(struct kg_mmvq_ops),
    kg_mmvq_product,
    kg_mmvq_ksplit,
    kg_mmvq_split,
    kg_mmvq_unsplit,
    kg_mmvq_stage_a_split,
    kg_mmvq_stage_b_split,
};
