/*
 * The vector arm of decode attention over every other pair of cache types; decode.h has
 * the kernel.
 */
#include "kernels/attention/decode.h"

int launch_decode_any(int head_dim, const struct decode &p, int rows,
                      struct CUstream_st *stream)
{
    return launch_head_dim<false, false, false>(head_dim, p, rows, stream);
}
