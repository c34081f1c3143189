/*
 * Q8_0 blocks to the planes that the wgmma form takes: codes [out][in], and, at the next
 * multiple of 16 bytes, scales [in/32][out] in f32. Nothing is rounded.
 */
#include "kernels/gemm/launch.h"

/* One thread a block of 32 weights. */
static __global__ void mirror_q8_0_kernel(const uint8_t *w, uint8_t *codes, float *scales,
                                          int64_t row_blocks, int64_t out)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= row_blocks * out)
        return;
    struct unit32 u;
    fmt_q8_0::unpack(w + i * 34, 0, &u);
    uint4 *to = (uint4 *)(codes + i * 32);
    to[0] = make_uint4(u.c[0], u.c[1], u.c[2], u.c[3]);
    to[1] = make_uint4(u.c[4], u.c[5], u.c[6], u.c[7]);
    scales[i % row_blocks * out + i / row_blocks] = u.a[0];
}

int gemm_mirror_q8_0(const void *w, void *mirror, int64_t in, int64_t out,
                     struct CUstream_st *stream)
{
    KG_TRY(check_product(in, out, 1, 32));
    const int64_t blocks = in / 32 * out;
    if (blocks == 0)
        return KG_OK;
    if (!pointer_fits(w, 1, 2) || !pointer_fits(mirror, 1, 16) ||
        !grid_blocks(blocks, 128))
        return KG_E_INVALID;
    return KG_LAUNCH(stream, grid_blocks(blocks, 128), 128, 0, mirror_q8_0_kernel,
                     (const uint8_t *)w, (uint8_t *)mirror,
                     (float *)((uint8_t *)mirror + (in * out + 15) / 16 * 16), in / 32,
                     out);
}
