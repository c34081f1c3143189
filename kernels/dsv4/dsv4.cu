/*
 * The table of the family, the choice of a form, and the simplest form of the product: one
 * warp an output (ordered_output in fp4.h), which is the reference of the other two.
 */
#include "kernels/dsv4/launch.h"

static constexpr int WARPS = 4;

template <int KIND>
static __global__ void ordered_kernel(struct gemm_args a)
{
    const int64_t col = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t row = blockIdx.y;
    if (col >= a.n)
        return;
    const float y = ordered_output<KIND>(a, row, col);
    if (threadIdx.x % 32 == 0)
        a.y[row * a.n + col] = y;
}

template <int KIND>
int kg_dsv4_ordered(const struct gemm_args &args, struct CUstream_st *stream)
{
    if (args.m > 65535)
        return KG_E_INVALID;
    return KG_LAUNCH(stream, dim3(blocks_for(args.n, WARPS), (unsigned)args.m),
                     32 * WARPS, 0, ordered_kernel<KIND>, args);
}

/* Passes of 8 rows take a time in proportion to the results; tiles, while there are no more of them than
   multiprocessors, one that depends on k alone. So passes are faster up to so many results (measured:
   docs/performance/dsv4.md), fewer with a long k, which they have not in registers. */
static constexpr int64_t ROWS8_MOST = 128;
static constexpr int64_t ROWS8_K_MOST = 9216;
static constexpr int64_t ROWS8_RESULTS = 224 * 1024;
static constexpr int64_t ROWS8_RESULTS_LONG = 140 * 1024; /* k above 4096 */

static int chosen_form(int form, int64_t m, int64_t n, int64_t k)
{
    if (form != KG_DSV4_AUTO)
        return form;
    const int64_t results = k <= 4096 ? ROWS8_RESULTS : ROWS8_RESULTS_LONG;
    const bool few = m <= 8 || (m <= ROWS8_MOST && n <= results / m);
    return few && k <= ROWS8_K_MOST ? KG_DSV4_ROWS8 : KG_DSV4_TILES;
}

static int gemm_scratch(int kind, int form, int64_t m, int64_t n, int64_t k,
                        size_t *bytes)
{
    if (!bytes || !sizes_fit(m, n, k) || form < KG_DSV4_AUTO || form > KG_DSV4_TILES)
        return KG_E_INVALID;
    if (chosen_form(form, m, n, k) != KG_DSV4_TILES || m == 0 || n == 0)
        *bytes = 0;
    else if (kind == KG_DSV4_NVFP4)
        *bytes = kg_dsv4_tiles_scratch<KG_DSV4_NVFP4>(m, n, k);
    else if (kind == KG_DSV4_MXFP4)
        *bytes = kg_dsv4_tiles_scratch<KG_DSV4_MXFP4>(m, n, k);
    else
        return KG_E_INVALID;
    return KG_OK;
}

template <int KIND>
static int gemm_of(int form, const struct gemm_args &args, void *scratch,
                   struct CUstream_st *stream)
{
    switch (form) {
    case KG_DSV4_ORDERED:
        return kg_dsv4_ordered<KIND>(args, stream);
    case KG_DSV4_ROWS8:
        return args.k > ROWS8_K_MOST ? KG_E_UNSUPPORTED
                                     : kg_dsv4_rows8<KIND>(args, stream);
    default:
        return kg_dsv4_tiles<KIND>(args, scratch, stream);
    }
}

static int gemm(int kind, int form, const uint8_t *codes, const float *scales,
                const uint8_t *w, const uint8_t *ws, float scale2, float *y, int64_t m,
                int64_t n, int64_t k, void *scratch, size_t scratch_bytes,
                struct CUstream_st *stream)
{
    size_t need;
    KG_TRY(gemm_scratch(kind, form, m, n, k, &need));
    if (kind != KG_DSV4_NVFP4 && kind != KG_DSV4_MXFP4)
        return KG_E_INVALID;
    if (m == 0 || n == 0)
        return KG_OK;
    if (!aligned16(codes) || !aligned16(scales) || !aligned16(w) || !aligned16(ws) ||
        !aligned16(y) || scratch_bytes < need || (need > 0 && !aligned16(scratch)))
        return KG_E_INVALID;
    const struct gemm_args args = {codes, scales, w, ws, scale2, y, m, n, k};
    form = chosen_form(form, m, n, k);
    return kind == KG_DSV4_NVFP4 ? gemm_of<KG_DSV4_NVFP4>(form, args, scratch, stream)
                                 : gemm_of<KG_DSV4_MXFP4>(form, args, scratch, stream);
}

extern const struct kg_dsv4_ops kg_dsv4_table;
const struct kg_dsv4_ops kg_dsv4_table = {
    sizeof(struct kg_dsv4_ops),
    kg_dsv4_act_quant,
    gemm,
    gemm_scratch,
    kg_dsv4_swiglu,
    kg_dsv4_dequant_bf16,
    kg_dsv4_to_bf16,
    kg_dsv4_gemm_bf16,
};
