/*
 * Kernels of the scan and the visitor form for weights of any loader, and their launches.
 */
#ifndef KGATE_KERNELS_GROUPED_LAUNCH_H
#define KGATE_KERNELS_GROUPED_LAUNCH_H

#include "kernels/grouped/tile.h"
#include "kernels/matvec/launch.h"

/* Blocks of a walk: `each` to a multiprocessor, which is what runs at one time. */
static inline unsigned walk_blocks(unsigned each)
{
#if defined(KG_EMU)
    return 4 * each;
#else
    int device = 0, count = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess)
        return 132 * each;
    return each * (unsigned)count;
#endif
}

template <class W>
static __global__ void __launch_bounds__(TILE_THREADS)
    grouped_scan_kernel(const struct grouped_view g)
{
    KG_SHARED_DYNAMIC(shared);
    struct walk walk = {};
    struct tile t;
    if (find_tile(g, blockIdx.x, &walk, &t))
        run_tile<W, SMALL_ROWS, 32, 2>(g, t, shared);
}

/* DEPTH, STAGES: of the small tile. */
template <class W, int DEPTH, int STAGES, bool WITH_BIG>
static __global__ void __launch_bounds__(TILE_THREADS, WITH_BIG ? 2 : 3)
    grouped_walk_kernel(const struct grouped_view g)
{
    KG_SHARED_DYNAMIC(shared);
    struct walk walk = {};
    struct tile t;
    for (int64_t i = blockIdx.x; find_tile(g, i, &walk, &t); i += gridDim.x) {
        if (WITH_BIG && t.big)
            run_tile<W, TILE_ROWS, 64, 3>(g, t, shared);
        else
            run_tile<W, SMALL_ROWS, DEPTH, STAGES>(g, t, shared);
    }
}

template <class W, int DEPTH, int STAGES, bool WITH_BIG>
static int launch_walk(const struct grouped_view &view, struct CUstream_st *stream)
{
    using big = tile_shape<TILE_ROWS, 64, 3>;
    using small = tile_shape<SMALL_ROWS, DEPTH, STAGES>;
    return KG_LAUNCH(stream, walk_blocks(WITH_BIG ? 2 : 3), TILE_THREADS,
                     WITH_BIG ? (size_t)big::BYTES : (size_t)small::BYTES,
                     (grouped_walk_kernel<W, DEPTH, STAGES, WITH_BIG>), view);
}

template <class W>
static int launch_visitor(struct grouped_view view, const struct kg_grouped_form &form,
                          struct CUstream_st *stream)
{
    const bool can_64 = view.in % 64 == 0;
    const bool with_big = can_64 && form.cross != INT32_MAX;
    view.cross = with_big ? form.cross : INT32_MAX;
    if (form.deep && can_64)
        return with_big ? launch_walk<W, 64, 3, true>(view, stream)
                        : launch_walk<W, 64, 3, false>(view, stream);
    return with_big ? launch_walk<W, 32, 2, true>(view, stream)
                    : launch_walk<W, 32, 2, false>(view, stream);
}

template <class W>
static int launch_scan(struct grouped_view view, int64_t pairs,
                       struct CUstream_st *stream)
{
    /* As many row tiles as there may be: each group leaves at most one that is not full. */
    const int64_t row_tiles = pairs / SMALL_ROWS + view.groups;
    const int64_t tiles = row_tiles * ((view.out + TILE_OUTS - 1) / TILE_OUTS);
    if (tiles > 0x7fffffff)
        return KG_E_UNSUPPORTED;
    view.cross = INT32_MAX;
    return KG_LAUNCH(stream, (unsigned)tiles, TILE_THREADS,
                     (size_t)(tile_shape<SMALL_ROWS, 32, 2>::BYTES),
                     grouped_scan_kernel<W>, view);
}

/* Checks a product whose weights have rows of `row_bytes`; see kgate/ops/grouped.h. */
int kg_grouped_check(const struct kg_grouped *g, int64_t block, int64_t block_bytes,
                     const void *w, const void *x, const float *y);
struct grouped_view kg_grouped_view(const struct kg_grouped *g, const void *w,
                                    const void *x, float *y);

#endif
