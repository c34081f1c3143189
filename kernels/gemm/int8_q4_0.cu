/*
 * The int8 GEMM of Q4_0, in both layouts; int8.h has the arithmetic.
 */
#include "kernels/gemm/launch.h"

const gemm_form gemm_forms_q4_0[] = {
    gemm_make_form<from_blocks<fmt_q4_0, 256>, 1>(KG_GEMM_BLOCKS),
    gemm_make_form<from_planes<fmt_q4_0>, 1>(KG_GEMM_PLANES),
    {-1, 0, 0, 0, false, {0, 0}, {}},
};
