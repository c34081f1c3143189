/*
 * The int8 arm of decode attention over K Q8_0 and V Q5_1; decode.h has the kernel.
 */
#include "kernels/attention/decode.h"

int launch_decode_int8(int head_dim, bool deep, const struct decode &p, int rows,
                       struct CUstream_st *stream)
{
    return deep ? launch_head_dim<true, true, true>(head_dim, p, rows, stream)
                : launch_head_dim<true, true, false>(head_dim, p, rows, stream);
}
