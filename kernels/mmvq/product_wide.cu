/*
 * The wide product (wide.h) of the types and layouts that gain by it.
 */
#include "kernels/mmvq/launch.h"
#include "kernels/mmvq/wide.h"
#if !defined(KG_EMU)
#include "kernels/cuda/tensor_map.h"
#endif

/* Shared memory of a block, and the multiprocessors of the largest chip of this kind. */
#define WIDE_SHARED (227 * 1024)
#define WIDE_BLOCKS 132

template <class R, int S>
static int run_wide(const struct product_args &p, int n_tensors,
                    struct CUstream_st *stream)
{
    using W = wide_reader<R>;
    using L = wide_slot<W, S>;
    static_assert((int)R::PLANES <= (int)WIDE_PLANES && L::bytes(0) % 16 == 0 &&
                      L::bytes(R::PLANES - 1) % 16 == 0 && L::stride(0) <= 2048,
                  "boxes of a tensor map");
    const int64_t groups = (p.m + p.width - 1) / p.width;
    if (!in_whole_pieces<R>(p) || p.in % 64 != 0 || p.in > 32768 || groups > 65535)
        return KG_E_UNSUPPORTED;
    const int front = wide_front<W, S>(p.k);
    const int room = (WIDE_SHARED - front - 16) / L::total;
    /* The staged product of E4M3 is faster than two slots. */
    if (room < (wide_x<W>::E4M3 ? 3 : (int)WIDE_TEAMS))
        return KG_E_UNSUPPORTED;
    const int slots = room < (int)WIDE_SLOTS ? room : (int)WIDE_SLOTS;
    const uint32_t turns = (p.tiles + WIDE_TEAMS - 1) / WIDE_TEAMS;
    const dim3 grid(turns < WIDE_BLOCKS ? turns : WIDE_BLOCKS, (unsigned)groups);
    struct wide_args args = {};
    args.p = p;
    args.slots = slots;
#if !defined(KG_EMU)
    for (int t = 0; t < n_tensors; t++) {
        const uint8_t *plane = p.tensor[t].w;
        for (int i = 0; i < R::PLANES; i++) {
            const int64_t row = p.in / KG_UNIT * R::plane_bytes(i) / 32;
            KG_TRY(kg_tensor_map_long_rows((CUtensorMap *)(void *)args.map[t][i], plane,
                                           (uint64_t)p.tensor[t].out, (uint64_t)row,
                                           WIDE_ROWS, (uint32_t)L::stride(i)));
            plane += p.tensor[t].out * row;
        }
    }
#else
    (void)n_tensors;
#endif
    return KG_LAUNCH_OVERLAPPED(stream, grid, WIDE_THREADS,
                                (size_t)(front + slots * L::total + 16),
                                (wide_kernel<R, S>), args);
}

struct wide_form {
    int type, layout;
    int (*run)(const struct product_args &, int n_tensors, struct CUstream_st *);
};

#define FORM(r, layout, s)                                                               \
    {                                                                                    \
        r::F::TYPE, layout, run_wide<r, s>                                               \
    }

/* Of each form: thousands of weights of a row in a slot. */
static const struct wide_form forms[] = {
    FORM(read_q4_0, KG_LAYOUT_FILE, 4),   FORM(read_q8_0, KG_LAYOUT_FILE, 1),
    FORM(read_q3_k, KG_LAYOUT_FILE, 4),   FORM(read_q4_k, KG_LAYOUT_FILE, 2),
    FORM(read_q5_k, KG_LAYOUT_FILE, 2),   FORM(read_q6_k, KG_LAYOUT_FILE, 2),
    FORM(read_iq4_xs, KG_LAYOUT_FILE, 4), FORM(read_nvfp4, KG_LAYOUT_FILE, 4),
    FORM(read_mxfp4, KG_LAYOUT_FILE, 4),  FORM(split_q4_0, KG_LAYOUT_SPLIT, 2),
    FORM(split_q4_k, KG_LAYOUT_SPLIT, 2), FORM(split_nvfp4, KG_LAYOUT_SPLIT, 4),
    FORM(split_q6_k, KG_LAYOUT_SPLIT, 2), FORM(read_e4m3, KG_LAYOUT_FILE, 2),
};

int kg_mmvq_wide(int type, int layout, const struct product_args &a, int n_tensors,
                 struct CUstream_st *stream)
{
    struct product_args p = a;
    int64_t tiles = 0;
    for (int i = 0; i < n_tensors; i++) {
        tiles += (p.tensor[i].out + WIDE_ROWS - 1) / WIDE_ROWS;
        if (tiles > 0x7ffffff)
            return KG_E_UNSUPPORTED;
        p.tensor[i].tile_end = (uint32_t)tiles;
    }
    for (int i = n_tensors; i < KG_MMVQ_TENSORS; i++)
        p.tensor[i].tile_end = (uint32_t)tiles;
    p.tiles = (uint32_t)tiles;
    if (p.m == 1 || p.width == 1 || p.width > 8)
        return KG_E_UNSUPPORTED;
    for (const struct wide_form &f : forms)
        if (f.type == type && f.layout == layout)
            return f.run(p, n_tensors, stream);
    return KG_E_UNSUPPORTED;
}
