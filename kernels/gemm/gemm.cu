/*
 * The table of the family and the launcher of the int8 GEMM (int8.h).
 */
#include "kernels/gemm/launch.h"

static const gemm_form *find_form(const gemm_form *const *tables, int n, int type,
                                  int layout)
{
    for (int i = 0; i < n; i++)
        for (const gemm_form *form = tables[i]; form->type >= 0; form++)
            if (form->type == type && form->layout == layout)
                return form;
    return nullptr;
}

/* Tokens of a tile: the narrowest that holds them all, at most 128. */
static int width_index(int64_t m)
{
    return m <= 16 ? 0 : m <= 64 ? 1 : 2;
}

static const int widths[GEMM_WIDTHS] = {16, 64, 128};

static int int8_workspace(int64_t m, int form, int workers, size_t *bytes)
{
    if (m < 0 || !bytes || (form != KG_GEMM_TILE && form != KG_GEMM_STREAM_K) ||
        (form == KG_GEMM_STREAM_K && (workers < 1 || workers > 65535)))
        return KG_E_INVALID;
    *bytes = form == KG_GEMM_TILE ? 0
                                  : (size_t)workers * 2 * GEMM_BM *
                                        (size_t)widths[width_index(m)] * sizeof(float);
    return KG_OK;
}

/* Fills in what follows from the shape and launches. */
static int run_form(const gemm_form *form, gemm_int8_args g, const void *w, int form_k,
                    int workers, void *workspace, size_t workspace_bytes,
                    struct CUstream_st *stream)
{
    const int width = width_index(g.m);
    size_t need;
    KG_TRY(check_product(g.in, g.out, g.m, form->block));
    KG_TRY(int8_workspace(g.m, form_k, workers, &need));
    if (g.in == 0)
        return KG_E_INVALID;
    if (g.out == 0 || g.m == 0)
        return KG_OK;
    if (!pointer_fits(w, 1, 16) || !pointer_fits(g.q, 1, 16) ||
        !pointer_fits(g.y, 1, 4) || need > workspace_bytes ||
        !pointer_fits(workspace, (int64_t)need, 16))
        return KG_E_INVALID;
    const int64_t row_blocks = g.in / form->block, blocks = g.out * row_blocks;
    for (int s = 0; s < 2; s++)
        g.row_bytes[s] = row_blocks * form->stream_bytes[s];
    g.w[0] = (const uint8_t *)w;
    if (form->stream_bytes[1])
        g.w[1] = g.w[0] + (blocks * form->stream_bytes[0] + 15) / 16 * 16;
    g.partial = (float *)workspace;
    g.row_tiles = (g.out + GEMM_BM - 1) / GEMM_BM;
    g.token_tiles = (g.m + widths[width] - 1) / widths[width];
    const int64_t tiles = g.row_tiles * g.token_tiles;
    if (tiles > 0x7fffffff || g.in > (int64_t)1 << 30)
        return KG_E_UNSUPPORTED;
    g.units = (int)(g.in / 32);
    g.slabs = (int)((g.in + form->slab - 1) / form->slab);
    g.workers = form_k == KG_GEMM_TILE ? tiles : workers;
    return form->run[width](g, stream);
}

static int int8(int type, int layout, const void *w, const int8_t *q, const float *d,
                const float *s, float *y, int64_t in, int64_t out, int64_t m, int form,
                int workers, void *workspace, size_t workspace_bytes,
                struct CUstream_st *stream)
{
    static const gemm_form *const tables[] = {gemm_forms_q8_0, gemm_forms_q4_0,
                                              gemm_forms_super, gemm_forms_nvfp4};
    const gemm_form *found = find_form(tables, 4, type, layout);
    if (!found)
        return KG_E_UNSUPPORTED;
    if (m > 0 && (!pointer_fits(d, 1, 4) || !pointer_fits(s, found->minimum, 4)))
        return KG_E_INVALID;
    gemm_int8_args g = {};
    g.q = q;
    g.d = d;
    g.s = s;
    g.y = y;
    g.in = in;
    g.out = out;
    g.m = m;
    return run_form(found, g, w, form, workers, workspace, workspace_bytes, stream);
}

static int w4a4(int layout, const void *w, const uint8_t *w_scales, const uint8_t *codes,
                const uint8_t *scales, const float *token_scale, float *y, int64_t in,
                int64_t out, int64_t m, int form, int workers, void *workspace,
                size_t workspace_bytes, struct CUstream_st *stream)
{
    static const gemm_form *const tables[] = {gemm_forms_w4a4};
    const gemm_form *found = find_form(tables, 1, KG_TYPE_NVFP4, layout);
    if (!found)
        return KG_E_UNSUPPORTED;
    if (m > 0 && (!scales || !pointer_fits(token_scale, 1, 4) ||
                  !pointer_fits(w_scales, layout == KG_GEMM_CUTLASS, 16)))
        return KG_E_INVALID;
    gemm_int8_args g = {};
    g.w[1] = w_scales;
    g.q = (const int8_t *)codes;
    g.x_scale = scales;
    g.token_scale = token_scale;
    g.y = y;
    g.in = in;
    g.out = out;
    g.m = m;
    return run_form(found, g, w, form, workers, workspace, workspace_bytes, stream);
}

#if !defined(KG_HAVE_SM90)
int sm90_q8_0(const void *, const int8_t *, const float *, float *, int64_t, int64_t,
              int64_t, struct CUstream_st *)
{
    return KG_E_UNSUPPORTED;
}
#endif

#if !defined(KG_HAVE_SM120)
int sm120_nvfp4(const void *, const uint8_t *, const uint8_t *, const float *, float *,
                int64_t, int64_t, int64_t, struct CUstream_st *)
{
    return KG_E_UNSUPPORTED;
}
#endif

extern const struct kg_gemm_ops kg_gemm_table;
const struct kg_gemm_ops kg_gemm_table = {
    sizeof(struct kg_gemm_ops),
    int8,
    int8_workspace,
    gemm_mirror_f16,
    gemm_to_f16,
    gemm_f16,
    nvfp4_channels,
    nvfp4_quantize,
    w4a4,
    nvfp4_residual,
    cutlass_pack,
    cutlass_unpack,
    nullptr, /* int8_clc: not built */
    sm120_nvfp4,
    sm90_q8_0,
    gemm_mirror_q8_0,
    gemm_q8_to_f16,
    gemm_f16_blocks,
};
