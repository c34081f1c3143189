/*
 * The tile product (tile.h) of the types and layouts that gain by it. The shape of the stages
 * and the warps of a block are those that measured best on an H200 at 8192 -> 28672.
 */
#include "kernels/mmvq/launch.h"
#include "kernels/mmvq/tile.h"

/* Shared memory of a block, and the multiprocessors of the largest chip of this kind. */
#define TILE_SHARED (227 * 1024)
#define TILE_MULTIPROCESSORS 132

template <class R, bool WIDE, int GROUPS, int STAGES, bool EVEN>
static int launch_tile(const struct product_args &p, int most_warps,
                       struct CUstream_st *stream)
{
    using L = tile_stage<R, GROUPS, EVEN>;
    const int64_t stages = (p.in + 256 * GROUPS - 1) / (256 * GROUPS);
    const int64_t x = (stages * GROUPS * tile_x<R, WIDE>::BYTES + 127) / 128 * 128;
    const int64_t room = (TILE_SHARED - x) / (STAGES * L::total);
    int64_t warps = (p.tiles + TILE_MULTIPROCESSORS - 1) / TILE_MULTIPROCESSORS;
    warps = warps < most_warps ? warps : most_warps;
    if (room < (warps < 4 ? warps : 4))
        return KG_E_UNSUPPORTED;
    warps = warps < room ? warps : room;
    const int64_t blocks = (p.tiles + warps - 1) / warps;
    const int64_t groups = (p.m + p.width - 1) / p.width;
    if (groups > 65535)
        return KG_E_UNSUPPORTED;
    const int64_t grid = blocks < TILE_MULTIPROCESSORS ? blocks : TILE_MULTIPROCESSORS;
    return KG_LAUNCH_OVERLAPPED(stream, dim3((unsigned)grid, (unsigned)groups),
                                32 * (unsigned)warps,
                                (size_t)(x + warps * STAGES * L::total),
                                (tile_kernel<R, WIDE, GROUPS, STAGES, EVEN>), p);
}

template <class R, bool WIDE, int GROUPS, int STAGES, int WARPS>
static int run_tile(const struct product_args &p, struct CUstream_st *stream)
{
    if constexpr (!WIDE)
        if (in_whole_pieces<R>(p))
            return launch_tile<R, WIDE, GROUPS, STAGES, true>(p, WARPS, stream);
    return launch_tile<R, WIDE, GROUPS, STAGES, false>(p, WARPS, stream);
}

struct tile_form {
    int type, layout;
    int (*narrow)(const struct product_args &, struct CUstream_st *);
    int (*wide)(const struct product_args &, struct CUstream_st *);
};

#define NARROW(r, ...) run_tile<r, false, __VA_ARGS__>
#define WIDE(r, ...) run_tile<r, true, __VA_ARGS__>
#define FORM(r, layout, narrow, wide)                                                    \
    {                                                                                    \
        r::F::TYPE, layout, narrow, wide                                                 \
    }

/* Where the tile product is the fastest; with several rows of q, where the wide product
   (product_wide.cu) cannot have the rows of w. Of each form: groups in a stage, stages, warps. */
static const struct tile_form forms[] = {
    FORM(read_q3_k, KG_LAYOUT_FILE, nullptr, WIDE(read_q3_k, 4, 2, 16)),
    FORM(read_q6_k, KG_LAYOUT_FILE, nullptr, WIDE(read_q6_k, 2, 2, 16)),
    FORM(read_iq4_xs, KG_LAYOUT_FILE, nullptr, WIDE(read_iq4_xs, 2, 2, 16)),
    FORM(read_nvfp4, KG_LAYOUT_FILE, nullptr, WIDE(read_nvfp4, 2, 2, 16)),
    FORM(read_mxfp4, KG_LAYOUT_FILE, nullptr, WIDE(read_mxfp4, 2, 2, 16)),
    FORM(read_e4m3, KG_LAYOUT_FILE, NARROW(read_e4m3, 2, 2, 16), nullptr),
    FORM(split_q4_0, KG_LAYOUT_SPLIT, NARROW(split_q4_0, 4, 2, 16), nullptr),
    FORM(split_q4_k, KG_LAYOUT_SPLIT, NARROW(split_q4_k, 4, 2, 16), nullptr),
    FORM(split_nvfp4, KG_LAYOUT_SPLIT, NARROW(split_nvfp4, 4, 2, 16),
         WIDE(split_nvfp4, 2, 2, 16)),
    FORM(split_q6_k, KG_LAYOUT_SPLIT, NARROW(split_q6_k, 4, 2, 16),
         WIDE(split_q6_k, 2, 2, 16)),
};

int kg_mmvq_tile(int type, int layout, const struct product_args &a, int n_tensors,
                 struct CUstream_st *stream)
{
    struct product_args p = a;
    int64_t tiles = 0;
    for (int i = 0; i < n_tensors; i++) {
        tiles += (p.tensor[i].out + TILE - 1) / TILE;
        if (tiles > 0x7fffffff)
            return KG_E_UNSUPPORTED;
        p.tensor[i].tile_end = (uint32_t)tiles;
    }
    p.tiles = (uint32_t)tiles;
    if (p.m == 1)
        p.width = 1;
    for (const struct tile_form &f : forms)
        if (f.type == type && f.layout == layout) {
            int (*const run)(const struct product_args &, struct CUstream_st *) =
                p.width == 1 ? f.narrow : f.wide;
            return run && p.width <= 8 ? run(p, stream) : (int)KG_E_UNSUPPORTED;
        }
    return KG_E_UNSUPPORTED;
}
