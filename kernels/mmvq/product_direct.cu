/*
 * The direct product (direct.h) of the block types in their files' layout, one tensor. The
 * shape of each type's stages and the warps that share a multiprocessor are those that
 * measured best on an H200 at 8192 -> 28672.
 */
#include "kernels/mmvq/direct.h"
#include "kernels/mmvq/launch.h"

/* Shared memory of a multiprocessor, of which the system takes 1 KiB for each block. */
#define DIRECT_SHARED (228 * 1024)
#define DIRECT_MULTIPROCESSORS 132

struct direct_row {
    int type;
    int (*run)(const struct direct_args &, unsigned m, struct CUstream_st *);
};

template <class R, int UNITS, int STAGES, int ROWS, int BLOCKS, int WARPS>
static int run_direct(const struct direct_args &p, unsigned m, struct CUstream_st *stream)
{
    const int bytes = direct_shared<R, UNITS, STAGES, ROWS>(p.in, WARPS);
    if ((bytes + 1024) * BLOCKS > DIRECT_SHARED)
        return KG_E_UNSUPPORTED;
    const unsigned all = grid_blocks(p.out, WARPS * ROWS);
    const unsigned most = DIRECT_MULTIPROCESSORS * BLOCKS;
    return KG_LAUNCH(stream, dim3(all < most ? all : most, m), 32 * WARPS, bytes,
                     (direct_kernel<R, UNITS, STAGES, ROWS>), p);
}

/* UNITS, STAGES, ROWS of direct.h; blocks on a multiprocessor, warps in a block. */
static const struct direct_row rows[] = {
    {KG_TYPE_Q4_0,   run_direct<direct_q4_0,   4, 3, 1, 1, 16>},
    {KG_TYPE_Q8_0,   run_direct<direct_q8_0,   2, 3, 2, 2, 8> },
    {KG_TYPE_Q3_K,   run_direct<direct_q3_k,   2, 3, 2, 1, 16>},
    {KG_TYPE_Q4_K,   run_direct<direct_q4_k,   2, 4, 1, 1, 16>},
    {KG_TYPE_Q5_K,   run_direct<direct_q5_k,   4, 3, 1, 2, 12>},
    {KG_TYPE_Q6_K,   run_direct<direct_q6_k,   2, 3, 2, 2, 8> },
    {KG_TYPE_IQ4_XS, run_direct<direct_iq4_xs, 2, 4, 1, 1, 16>},
    {KG_TYPE_NVFP4,  run_direct<direct_nvfp4,  2, 4, 1, 1, 16>},
    {KG_TYPE_MXFP4,  run_direct<direct_mxfp4,  2, 6, 1, 1, 16>},
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
