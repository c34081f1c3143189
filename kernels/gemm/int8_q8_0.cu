/*
 * The int8 GEMM of Q8_0; int8.h has the arithmetic.
 */
#include "kernels/gemm/launch.h"

const gemm_form gemm_forms_q8_0[] = {
    gemm_make_form<from_blocks<fmt_q8_0, 128>, 1>(KG_GEMM_BLOCKS),
    {-1, 0, 0, 0, false, {0, 0}, {}},
};
