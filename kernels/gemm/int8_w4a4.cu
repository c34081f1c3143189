/*
 * The int8 GEMM of NVFP4 weights with E2M1 activations (W4A4); int8.h has the arithmetic.
 */
#include "kernels/gemm/launch.h"

const gemm_form gemm_forms_w4a4[] = {
    gemm_make_form<from_blocks<fmt_nvfp4, 256>, 2>(KG_GEMM_BLOCKS),
    gemm_make_form<from_cutlass, 2>(KG_GEMM_CUTLASS),
    {-1, 0, 0, 0, false, {0, 0}, {}},
};
