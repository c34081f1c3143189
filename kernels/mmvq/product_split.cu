/*
 * KG_LAYOUT_SPLIT: the fast product, the sum of a product whose k is in two parts, the forms
 * with one warp a row, and the rearrangement of the bytes.
 *
 *   split, unsplit   a thread moves two bytes: half-word n of the planes is found in its
 *                    plane, block and field, and copied from or to the file's place
 *   stage_a_split    arithmetic and order of matvec's stage_a for block types
 *   ksplit_add       y = (parts[0] + parts[1]) * scale
 */
#include "kernels/mmvq/launch.h"
#include "kernels/mmvq/split.h"

#define ROW(name) PRODUCT_ROW(KG_LAYOUT_SPLIT, split_##name, planes_##name)

const struct product_row product_rows_split[4] = {
    ROW(q4_0),
    ROW(nvfp4),
    ROW(q4_k),
    ROW(q6_k),
};

__global__ void ksplit_add_kernel(const float *parts, float *y, int64_t n, float scale)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = (parts[i] + parts[n + i]) * scale;
}

int kg_mmvq_ksplit_add(const float *parts, float *y, int64_t n, float scale,
                       struct CUstream_st *stream)
{
    return KG_LAUNCH(stream, grid_blocks(n, 256), 256, 0, ksplit_add_kernel, parts, y, n,
                     scale);
}

template <class P, bool TO_PLANES>
__global__ void rearrange_kernel(const uint8_t *from, uint8_t *to, int64_t blocks)
{
    int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, plane = 0;
    for (int i = 0; i < P::PLANES; i++) {
        const int words = P::field_bytes(i) / 2;
        if (n < blocks * words) {
            const int64_t planar = plane + 2 * n;
            const int64_t packed =
                n / words * P::F::BYTES + P::field_at(i) + 2 * (n % words);
            *(uint16_t *)(to + (TO_PLANES ? planar : packed)) =
                kg_load_u16(from + (TO_PLANES ? packed : planar));
            return;
        }
        n -= blocks * words;
        plane += blocks * P::field_bytes(i);
    }
}

template <class P, bool TO_PLANES>
static int rearrange(const uint8_t *from, uint8_t *to, int64_t blocks,
                     struct CUstream_st *stream)
{
    return KG_LAUNCH(stream, grid_blocks(blocks * (P::F::BYTES / 2), 256), 256, 0,
                     (rearrange_kernel<P, TO_PLANES>), from, to, blocks);
}

template <class P>
__global__ void stage_a_split_kernel(const uint8_t *w, const float *x, float *y,
                                     int64_t in, int64_t out, int64_t m)
{
    using F = typename P::F;
    const int lane = threadIdx.x % 32;
    const int64_t o = (int64_t)blockIdx.x * KG_WARPS + threadIdx.x / 32;
    const int64_t units = in / KG_UNIT, blocks = out * (in / F::BLOCK);
    if (o >= out)
        return;
    for (int64_t r = 0; r < m; r++) {
        float acc = 0.0f;
        for (int64_t i = lane; i < units; i += 32) {
            struct unit32 u;
            P::unpack(w, blocks, o * units + i, &u);
            for (int k = 0; k < KG_UNIT; k++)
                acc = fmaf(unit_value<F>(u, k), x[r * in + i * KG_UNIT + k], acc);
        }
        const float sum = warp_sum(acc);
        if (lane == 0)
            y[r * out + o] = sum;
    }
}

template <class P>
static int stage_a_split(const uint8_t *w, const float *x, float *y, int64_t in,
                         int64_t out, int64_t m, struct CUstream_st *stream)
{
    return KG_LAUNCH(stream, grid_blocks(out, KG_WARPS), 32 * KG_WARPS, 0,
                     (stage_a_split_kernel<P>), w, x, y, in, out, m);
}

struct split_row {
    int type, block, block_bytes;
    bool minimum;
    int (*split)(const uint8_t *, uint8_t *, int64_t, struct CUstream_st *);
    int (*unsplit)(const uint8_t *, uint8_t *, int64_t, struct CUstream_st *);
    int (*stage_a)(const uint8_t *, const float *, float *, int64_t, int64_t, int64_t,
                   struct CUstream_st *);
    int (*stage_b)(const struct product_tensor &, const int8_t *, const float *,
                   const float *, int64_t, int64_t, int, struct CUstream_st *);
};

#define SPLIT_ROW(p)                                                                     \
    {                                                                                    \
        p::F::TYPE, p::F::BLOCK, p::F::BYTES, p::F::MINIMUM != 0, rearrange<p, true>,    \
            rearrange<p, false>, stage_a_split<p>, run_plain<p>                          \
    }

static const struct split_row rows[] = {
    SPLIT_ROW(planes_q4_0),
    SPLIT_ROW(planes_nvfp4),
    SPLIT_ROW(planes_q4_k),
    SPLIT_ROW(planes_q6_k),
};

static const struct split_row *find_row(int type)
{
    for (const struct split_row &r : rows)
        if (r.type == type)
            return &r;
    return nullptr;
}

static int rearrange_any(int type, const void *from, void *to, int64_t in, int64_t out,
                         bool to_planes, struct CUstream_st *stream)
{
    const struct split_row *row = find_row(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, 1, row->block));
    const int64_t blocks = out * (in / row->block);
    if (!pointer_fits(from, blocks, 16) || !pointer_fits(to, blocks, 16) ||
        !grid_blocks(blocks * (row->block_bytes / 2) + 1, 256))
        return KG_E_INVALID;
    if (blocks == 0)
        return KG_OK;
    return (to_planes ? row->split : row->unsplit)((const uint8_t *)from, (uint8_t *)to,
                                                   blocks, stream);
}

int kg_mmvq_split(int type, const void *from, void *to, int64_t in, int64_t out,
                  struct CUstream_st *stream)
{
    return rearrange_any(type, from, to, in, out, true, stream);
}

int kg_mmvq_unsplit(int type, const void *from, void *to, int64_t in, int64_t out,
                    struct CUstream_st *stream)
{
    return rearrange_any(type, from, to, in, out, false, stream);
}

int kg_mmvq_stage_a_split(int type, const void *w, const float *x, float *y, int64_t in,
                          int64_t out, int64_t m, struct CUstream_st *stream)
{
    const struct split_row *row = find_row(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, m, row->block));
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, in, 16) || !pointer_fits(x, in, 4) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    return row->stage_a((const uint8_t *)w, x, y, in, out, m, stream);
}

int kg_mmvq_stage_b_split(int type, const void *w, const int8_t *q, const float *d,
                          const float *s, float *y, int64_t in, int64_t out, int64_t m,
                          struct CUstream_st *stream)
{
    const struct split_row *row = find_row(type);
    if (!row)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, m, row->block));
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, in, 16) || !pointer_fits(q, in, 16) || !pointer_fits(d, in, 4) ||
        !pointer_fits(s, row->minimum ? in : 0, 4) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    struct product_tensor t = {};
    t.w = (const uint8_t *)w;
    t.y = y;
    t.out = out;
    t.scale = 1.0f;
    return row->stage_b(t, q, d, s, in, m, KG_SCALE_NONE, stream);
}
