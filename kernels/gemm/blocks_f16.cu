/*
 * The products of blocks with halves: which types have a form (blocks_f16.h).
 */
#include "kernels/gemm/blocks_f16_nvfp4.h"
#include "kernels/gemm/blocks_f16_q4_k.h"

int gemm_f16_blocks(int type, const void *w, const void *h, float *y, int64_t in,
                    int64_t out, int64_t m, struct CUstream_st *stream)
{
    switch (type) {
    case KG_TYPE_NVFP4:
        return blocks_f16_launch<blocks_f16_nvfp4>(w, h, y, in, out, m, stream);
    case KG_TYPE_Q4_K:
        return blocks_f16_launch<blocks_f16_q4_k>(w, h, y, in, out, m, stream);
    }
    return KG_E_UNSUPPORTED;
}
