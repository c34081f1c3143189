/*
 * Prefill attention in f16; prefill.h has the kernel.
 */
#include "kernels/attention/prefill.h"

int launch_prefill_f16(int head_dim, bool single, const struct prefill &p,
                       struct CUstream_st *stream)
{
    return launch_flash<true>(head_dim, single, p, stream);
}
