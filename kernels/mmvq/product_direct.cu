/*
 * The direct product (direct.h) of the block types, one tensor. The shape of each form's stages
 * and the warps that share a multiprocessor are those that measured best on an H200 at
 * 8192 -> 28672.
 */
#include "kernels/mmvq/direct_lanes.h"
#include "kernels/mmvq/direct_planes.h"
#include "kernels/mmvq/direct_quads.h"
#include "kernels/mmvq/launch.h"

/* Shared memory of a multiprocessor, of which the system takes 1 KiB for each block; the mbarriers
   take less than another. */
#define DIRECT_SHARED (228 * 1024)
#define DIRECT_BLOCKS                                                                    \
    132u /* one on each multiprocessor of the largest chip of this kind */

struct direct_form {
    int type, layout;
    int (*run)(const struct direct_args &, unsigned m, struct CUstream_st *);
};

/* Whether each row starts, in all planes, at a multiple of 16 bytes. */
template <class R>
static bool rows_are_even(int in)
{
    for (int i = 0; i < R::PLANES; i++)
        if (in / R::F::BLOCK * R::field(i) % 16 != 0)
            return false;
    return true;
}

/* As many warps as there is room for, at most DIRECT_WARPS, and no more than are busy for all
   rounds of the rows. */
template <class W, int STAGES>
static int run_direct(const struct direct_args &p, unsigned m, struct CUstream_st *stream)
{
    static_assert(direct_stage<typename W::R, W::UNITS>::even(), "bulk copies");
    const bool even = rows_are_even<typename W::R>(p.in);
    if (!even && W::R::PLANES > 1)
        return KG_E_UNSUPPORTED;
    int warps = DIRECT_WARPS;
    while (direct_shared<W, STAGES>(p.in, warps) + 2048 > DIRECT_SHARED)
        if (--warps < 4)
            return KG_E_UNSUPPORTED;
    const unsigned all = grid_blocks(p.out, W::ROWS);
    const unsigned each = grid_blocks(all, DIRECT_BLOCKS);
    const unsigned rounds = grid_blocks(each, warps);
    warps = (int)grid_blocks(each, rounds);
    const int bytes = direct_shared<W, STAGES>(p.in, warps);
    const dim3 grid(all < DIRECT_BLOCKS ? all : DIRECT_BLOCKS, m);
#if !defined(KG_EMU)
    if (even)
        return KG_LAUNCH_OVERLAPPED(stream, grid, 32 * warps, bytes,
                                    (direct_kernel<W, STAGES, true>), p);
#endif
    return KG_LAUNCH_OVERLAPPED(stream, grid, 32 * warps, bytes,
                                (direct_kernel<W, STAGES, false>), p);
}

#define FORM(layout, reader, units, stages, rows)                                        \
    {                                                                                    \
        reader::F::TYPE, layout, run_direct<direct_lanes<reader, units, rows>, stages>   \
    }

/* Units a lane of a stage, stages, rows of a warp. */
static const struct direct_form forms[] = {
    FORM(KG_LAYOUT_FILE, direct_q4_0, 4, 2, 2),
    FORM(KG_LAYOUT_FILE, direct_q8_0, 4, 3, 1),
    FORM(KG_LAYOUT_FILE, direct_q4_k, 4, 2, 2),
    FORM(KG_LAYOUT_FILE, direct_q5_k, 4, 2, 2),
    FORM(KG_LAYOUT_FILE, direct_q6_k, 4, 2, 2),
    FORM(KG_LAYOUT_FILE, direct_iq4_xs, 4, 2, 2),
    FORM(KG_LAYOUT_FILE, direct_nvfp4, 4, 2, 2),
    FORM(KG_LAYOUT_FILE, direct_mxfp4, 4, 2, 2),
    FORM(KG_LAYOUT_SPLIT, direct_split_q4_0, 4, 2, 2),
    FORM(KG_LAYOUT_SPLIT, direct_split_nvfp4, 4, 2, 2),
    FORM(KG_LAYOUT_SPLIT, direct_split_q4_k, 4, 2, 2),
    FORM(KG_LAYOUT_SPLIT, direct_split_q6_k, 4, 2, 2),
    {KG_TYPE_Q3_K, KG_LAYOUT_FILE, run_direct<direct_quads<4, 1>, 2>},
};

int kg_mmvq_direct(int type, int layout, const struct product_args &a,
                   struct CUstream_st *stream)
{
    const struct product_tensor &t = a.tensor[0];
    if (a.m > 65535 || a.in > 32768 || t.out > 1 << 24 ||
        t.out * (a.in / KG_UNIT) > INT64_C(1) << 40)
        return KG_E_UNSUPPORTED;
    const struct direct_args p = {t.w, a.q, a.d, a.s, t.y, t.out, (int)a.in, t.scale};
    for (const struct direct_form &f : forms)
        if (f.type == type && f.layout == layout)
            return f.run(p, (unsigned)a.m, stream);
    return KG_E_UNSUPPORTED;
}
