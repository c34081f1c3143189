/*
 * What the files of this folder share: how the launcher of the int8 GEMM finds the kernel
 * of a type, layout and tile width.
 */
#ifndef KGATE_KERNELS_GEMM_LAUNCH_H
#define KGATE_KERNELS_GEMM_LAUNCH_H

#include "kernels/gemm/narrow.h"
#if !defined(KG_EMU)
#include "kernels/cuda/tensor_map.h"
#endif
#include "kernels/matvec/launch.h"
#include "kgate/ops/gemm.h"

enum { GEMM_WIDTHS = 3 }; /* tiles of 16, 64 and 128 tokens */

/* Enqueues the product, and the fixup where a worker's run ends inside a tile. */
typedef int gemm_run(const gemm_int8_args &g, struct CUstream_st *stream);

struct gemm_form {
    int type, layout, slab, block;
    bool minimum;
    int stream_bytes[2]; /* of one block in each stream; the second 0 if there is one */
    gemm_run *run[GEMM_WIDTHS];
};

template <class S, int BT, int XG>
static int gemm_run_form(const gemm_int8_args &g, struct CUstream_st *stream)
{
    typedef gemm_shape<S, BT, XG> H;
    const int64_t tiles = g.row_tiles * g.token_tiles;
    KG_TRY(KG_LAUNCH(stream, (unsigned)g.workers, GEMM_THREADS, H::BYTES,
                     (gemm_int8_kernel<S, BT, XG>), g));
    if (g.workers == tiles)
        return KG_OK;
    return KG_LAUNCH(stream, (unsigned)tiles, GEMM_THREADS, 0,
                     (gemm_int8_fixup_kernel<BT>), g);
}

/* Warps of a narrow block in tile form: the fewest rounds of blocks, one on each of 132
   multiprocessors; of equal ones the most warps. The bits do not depend on it. */
static inline int narrow_warps(int64_t out, int most)
{
    int best = most;
    int64_t least = 0;
    for (int warps = most; warps >= 4; warps--) {
        const int rows = NARROW_ROWS * warps;
        const int64_t blocks = (out + rows - 1) / rows;
        const int64_t cost = (blocks + 131) / 132 * warps;
        if (warps == most || cost < least) {
            least = cost;
            best = warps;
        }
    }
    return best;
}

/* A narrow kernel of so many blocks and warps. */
template <class F>
static int gemm_start_narrow(const gemm_int8_args &g, int64_t blocks, int warps,
                             struct CUstream_st *stream)
{
    narrow_args args = {};
    args.g = g;
#if !defined(KG_EMU)
    typedef typename F::source S;
    args.mapped = S::STREAMS == 1 && g.row_bytes[0] % 16 == 0 &&
                  kg_tensor_map_rows((CUtensorMap *)(void *)args.map, g.w[0],
                                     (uint64_t)g.out, (uint64_t)g.row_bytes[0],
                                     NARROW_ROWS, narrow_shape<S>::pitch(0)) == KG_OK;
#endif
    return KG_LAUNCH_OVERLAPPED(stream, (unsigned)blocks, 32 * warps,
                                narrow_memory<F>::bytes(warps), (gemm_narrow_kernel<F>),
                                args);
}

/* The tile form of a narrow product; the rest of g is filled in. */
template <class F>
static int gemm_launch_narrow(gemm_int8_args g, struct CUstream_st *stream)
{
    const int warps = narrow_warps(g.out, narrow_memory<F>::MOST);
    const int rows = NARROW_ROWS * warps;
    g.row_tiles = (g.out + rows - 1) / rows;
    g.workers = g.row_tiles;
    return gemm_start_narrow<F>(g, g.workers, warps, stream);
}

template <class S>
static int gemm_run_narrow(const gemm_int8_args &g, struct CUstream_st *stream)
{
    typedef narrow_int8<S> F;
    const int64_t tiles = g.row_tiles * g.token_tiles;
    if (g.workers == tiles)
        return gemm_launch_narrow<F>(g, stream);
    /* a cut tile has 128 rows */
    KG_TRY(gemm_start_narrow<F>(g, g.workers, GEMM_BM / NARROW_ROWS, stream));
    return KG_LAUNCH(stream, (unsigned)tiles, GEMM_THREADS, 0,
                     (gemm_int8_fixup_kernel<16>), g);
}

/* The form for up to 16 tokens. */
template <class S, int XG>
struct gemm_narrowest {
    static constexpr gemm_run *run = gemm_run_form<S, 16, XG>;
};
template <class S>
struct gemm_narrowest<S, 1> {
    static constexpr gemm_run *run = gemm_run_narrow<S>;
};

template <class S, int XG>
static constexpr gemm_form gemm_make_form(int layout)
{
    typedef typename S::format T;
    return {
        T::TYPE,
        layout,
        S::SLAB,
        T::BLOCK,
        T::MINIMUM != 0,
        {S::slab_bytes(0) / (S::SLAB / T::BLOCK),
                        S::STREAMS == 2 ? S::slab_bytes(1) / (S::SLAB / T::BLOCK) : 0},
        { gemm_narrowest<S, XG>::run, gemm_run_form<S, 64, XG>,
                        gemm_run_form<S, 128, XG>}
    };
}

/* Ends with a row of type -1. */
extern const gemm_form gemm_forms_q8_0[], gemm_forms_q4_0[], gemm_forms_super[];
extern const gemm_form gemm_forms_nvfp4[], gemm_forms_w4a4[];

int gemm_mirror_f16(int type, const void *w, void *to, int64_t n,
                    struct CUstream_st *stream);
int gemm_to_f16(const float *x, void *h, int64_t n, struct CUstream_st *stream);
int gemm_q8_to_f16(const int8_t *q, const float *d, void *h, int64_t m, int64_t in,
                   struct CUstream_st *stream);
int gemm_f16(const void *mirror, const void *h, float *y, int64_t in, int64_t out,
             int64_t m, struct CUstream_st *stream);
int gemm_f16_blocks(int type, const void *w, const void *h, float *y, int64_t in,
                    int64_t out, int64_t m, struct CUstream_st *stream);
int nvfp4_channels(const float *x, int64_t m, int64_t in, int k, float *amax,
                   int32_t *channels, struct CUstream_st *stream);
int nvfp4_quantize(const float *x, int64_t m, int64_t in, const int32_t *skip, int k,
                   int levels, uint8_t *codes, uint8_t *scales, float *token_scale,
                   struct CUstream_st *stream);
int nvfp4_residual(const void *w, const float *x, const int32_t *channels, int k,
                   float *y, int64_t in, int64_t out, int64_t m,
                   struct CUstream_st *stream);
int cutlass_pack(const void *w, uint8_t *codes, uint8_t *scales, int64_t in, int64_t out,
                 struct CUstream_st *stream);
int cutlass_unpack(const uint8_t *codes, const uint8_t *scales, void *w, int64_t in,
                   int64_t out, struct CUstream_st *stream);
int gemm_mirror_q8_0(const void *w, void *mirror, int64_t in, int64_t out,
                     struct CUstream_st *stream);
/* Only where the provider is built for the architecture: KG_HAVE_SM90, KG_HAVE_SM120. */
int sm90_q8_0(const void *mirror, const int8_t *q, const float *d, float *y, int64_t in,
              int64_t out, int64_t m, struct CUstream_st *stream);
int sm120_nvfp4(const void *w, const uint8_t *codes, const uint8_t *scales,
                const float *token_scale, float *y, int64_t in, int64_t out, int64_t m,
                struct CUstream_st *stream);

#endif
