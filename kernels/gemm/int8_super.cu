/*
 * The int8 GEMM of the types with super-blocks of 256; int8.h has the arithmetic.
 */
#include "kernels/gemm/launch.h"

const gemm_form gemm_forms_super[] = {
    gemm_make_form<from_blocks<fmt_q4_k, 256>, 1>(KG_GEMM_BLOCKS),
    gemm_make_form<from_blocks<fmt_q5_k, 256>, 1>(KG_GEMM_BLOCKS),
    gemm_make_form<from_blocks<fmt_q6_k, 256>, 1>(KG_GEMM_BLOCKS),
    gemm_make_form<from_blocks<fmt_iq4_xs, 256>, 1>(KG_GEMM_BLOCKS),
    {-1, 0, 0, 0, false, {0, 0}, {}},
};
