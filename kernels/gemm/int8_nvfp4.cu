/*
 * The int8 GEMM of NVFP4 weights with q8_1 activations (W4A8), in both layouts; int8.h has the arithmetic.
 */
#include "kernels/gemm/launch.h"

const gemm_form gemm_forms_nvfp4[] = {
    gemm_make_form<from_blocks<fmt_nvfp4, 256>, 1>(KG_GEMM_BLOCKS),
    gemm_make_form<from_planes<fmt_nvfp4>, 1>(KG_GEMM_PLANES),
    {-1, 0, 0, 0, false, {0, 0}, {}},
};
