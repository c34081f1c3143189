/*
 * What the launchers of this folder share.
 */
#ifndef KGATE_KERNELS_MMVQ_LAUNCH_H
#define KGATE_KERNELS_MMVQ_LAUNCH_H

#include "kernels/matvec/launch.h"
#include "kernels/mmvq/plain.h"
#include "kernels/mmvq/product.h"

/* Two blocks on each multiprocessor of the largest chip of this kind; a smaller one has more
   than are resident, a larger one is left partly idle. */
#define PRODUCT_BLOCKS 264

/* One type and layout: the fast kernel for 1, 8 and 16 columns, and the plain one. A NULL
   width is not there. */
struct product_row {
    int type, layout, block, align;
    bool minimum;
    int (*fast)(const struct product_args &, int cols, struct CUstream_st *);
    int (*plain)(const struct product_tensor &, const int8_t *, const float *,
                 const float *, int64_t in, int64_t m, int scale_kind,
                 struct CUstream_st *);
};

template <class R, int COLS>
static int launch_product(const struct product_args &args, struct CUstream_st *stream)
{
    const unsigned blocks = args.jobs < PRODUCT_BLOCKS ? args.jobs : PRODUCT_BLOCKS;
    return KG_LAUNCH(stream, blocks, PRODUCT_THREADS, (stage_layout<R, COLS>::total),
                     (product_kernel<R, COLS>), args);
}

template <class R>
static int run_product(const struct product_args &args, int cols,
                       struct CUstream_st *stream)
{
    if (cols == 1)
        return launch_product<R, 1>(args, stream);
    if (cols == 8)
        return launch_product<R, 8>(args, stream);
    if constexpr ((int)R::F::TYPE == KG_TYPE_Q6_K)
        return launch_product<R, 16>(args, stream);
    return KG_E_UNSUPPORTED;
}

template <class P>
static int run_plain(const struct product_tensor &t, const int8_t *q, const float *d,
                     const float *s, int64_t in, int64_t m, int,
                     struct CUstream_st *stream)
{
    return KG_LAUNCH(stream, grid_blocks(t.out, KG_WARPS), 32 * KG_WARPS, 0,
                     (plain_kernel<P, 4>), t.w, q, d, s, t.y, in, t.out, m, t.scale);
}

#define PRODUCT_ROW(layout, reader, plain)                                               \
    {                                                                                    \
        reader::F::TYPE, layout, reader::F::BLOCK,                                       \
            (layout) == KG_LAYOUT_SPLIT ? 16 : (int)reader::F::ALIGN,                    \
            reader::F::MINIMUM != 0, run_product<reader>, run_plain<plain>               \
    }

extern const struct product_row product_rows_small[4];
extern const struct product_row product_rows_kquant[5];
extern const struct product_row product_rows_split[4];
extern const struct product_row product_row_e4m3;

/* One tensor, each row of q alone; KG_E_UNSUPPORTED, and nothing done, where another must take
   it: long rows, many rows, other types, planes whose rows do not start at multiples of 16. */
int kg_mmvq_direct(int type, int layout, const struct product_args &a,
                   struct CUstream_st *stream);
/* Forms that product_tile.cu lists; KG_E_UNSUPPORTED, and nothing done, for others. */
int kg_mmvq_tile(int type, int layout, const struct product_args &a, int n_tensors,
                 struct CUstream_st *stream);
/* Two to eight rows of q at once; KG_E_UNSUPPORTED, and nothing done, for forms that
   product_wide.cu does not list, rows that are no multiples of 64 weights and 16 bytes, or too
   long. */
int kg_mmvq_wide(int type, int layout, const struct product_args &a, int n_tensors,
                 struct CUstream_st *stream);
int kg_mmvq_ksplit_add(const float *parts, float *y, int64_t n, float scale,
                       struct CUstream_st *stream);
int kg_mmvq_split(int type, const void *from, void *to, int64_t in, int64_t out,
                  struct CUstream_st *stream);
int kg_mmvq_unsplit(int type, const void *from, void *to, int64_t in, int64_t out,
                    struct CUstream_st *stream);
int kg_mmvq_stage_a_split(int type, const void *w, const float *x, float *y, int64_t in,
                          int64_t out, int64_t m, struct CUstream_st *stream);
int kg_mmvq_stage_b_split(int type, const void *w, const int8_t *q, const float *d,
                          const float *s, float *y, int64_t in, int64_t out, int64_t m,
                          struct CUstream_st *stream);

#endif
