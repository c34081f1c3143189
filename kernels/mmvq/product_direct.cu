/*
 * The direct product (direct.h) of the block types in their files' layout, one tensor. The
 * shape of each type's stages and the warps that share a multiprocessor are those that
 * measured best on an H200 at 8192 -> 28672.
 */
#include "kernels/mmvq/direct.h"
#include "kernels/mmvq/launch.h"

/* Shared memory of a multiprocessor, of which the system takes 1 KiB for each block; the mbarriers
   take less than another. */
#define DIRECT_SHARED (228 * 1024)
#define DIRECT_BLOCKS                                                                    \
    132u /* one on each multiprocessor of the largest chip of this kind */

struct direct_row {
    int type;
    int (*run)(const struct direct_args &, unsigned m, struct CUstream_st *);
};

/* As many warps, of WARPS, as there is room for. */
template <class R, int UNITS, int STAGES, int ROWS, int WARPS>
static int run_direct(const struct direct_args &p, unsigned m, struct CUstream_st *stream)
{
    static_assert(direct_stage<R, UNITS>::bytes % 16 == 0 && WARPS <= DIRECT_WARPS,
                  "bulk copies");
    int warps = WARPS;
    while (direct_shared<R, UNITS, STAGES, ROWS>(p.in, warps) + 2048 > DIRECT_SHARED)
        if (--warps < 4)
            return KG_E_UNSUPPORTED;
    const int bytes = direct_shared<R, UNITS, STAGES, ROWS>(p.in, warps);
    const unsigned all = grid_blocks(p.out, warps * ROWS);
    const dim3 grid(all < DIRECT_BLOCKS ? all : DIRECT_BLOCKS, m);
#if !defined(KG_EMU)
    if (p.in / R::F::BLOCK * R::F::BYTES % 16 == 0)
        return KG_LAUNCH(stream, grid, 32 * warps, bytes,
                         (direct_kernel<R, UNITS, STAGES, ROWS, true>), p);
#endif
    return KG_LAUNCH(stream, grid, 32 * warps, bytes,
                     (direct_kernel<R, UNITS, STAGES, ROWS, false>), p);
}

/* UNITS, STAGES, ROWS of direct.h, warps in a block. */
static const struct direct_row rows[] = {
    {KG_TYPE_Q4_0,   run_direct<direct_q4_0,   4, 2, 2, 16>},
    {KG_TYPE_Q8_0,   run_direct<direct_q8_0,   4, 3, 1, 16>},
    {KG_TYPE_Q3_K,   run_direct<direct_q3_k,   4, 2, 2, 16>},
    {KG_TYPE_Q4_K,   run_direct<direct_q4_k,   4, 2, 2, 16>},
    {KG_TYPE_Q5_K,   run_direct<direct_q5_k,   4, 2, 2, 16>},
    {KG_TYPE_Q6_K,   run_direct<direct_q6_k,   4, 2, 2, 16>},
    {KG_TYPE_IQ4_XS, run_direct<direct_iq4_xs, 8, 2, 1, 16>},
    {KG_TYPE_NVFP4,  run_direct<direct_nvfp4,  4, 3, 1, 16>},
    {KG_TYPE_MXFP4,  run_direct<direct_mxfp4,  4, 3, 1, 16>},
};

int kg_mmvq_direct(int type, const struct product_args &a, struct CUstream_st *stream)
{
    const struct product_tensor &t = a.tensor[0];
    if (a.m > 65535 || a.in > 32768 || t.out > 1 << 24 ||
        t.out * (a.in / KG_UNIT) > INT64_C(1) << 40)
        return KG_E_UNSUPPORTED;
    const struct direct_args p = {t.w, a.q, a.d, a.s, t.y, t.out, (int)a.in, t.scale};
    for (const struct direct_row &r : rows)
        if (r.type == type)
            return r.run(p, (unsigned)a.m, stream);
    return KG_E_UNSUPPORTED;
}
