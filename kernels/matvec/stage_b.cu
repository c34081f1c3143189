/*
 * Stage B: y[r][o] = sum_k w[o][k] * x[r][k] on q8_1 activations, in integers per group.
 *
 *   w [out][in] of a block type      q [m][in] int8, d and s [m][in/32] f32      y [m][out]
 *
 * One warp a row of w: lane l folds units l, l+32, .. (32 weights each, one q8_1 block) into
 * its accumulator by unit_fold, or with three others by quad_fold, then the butterfly; unit.h
 * states all. Every other form of this product (batched, fused, other layouts) uses the same
 * functions in the same order and so gives the same bits.
 *
 * Up to TILE rows of activations share one unpacking of the weights. TILE does not enter
 * the arithmetic: a row of a batch has the bits that it has alone.
 *
 * To add a type: its struct in formats.h, its row in the table below, its `stage_b` flag in
 * plugins/oracle/types.c, which makes its cells.
 */
#include "kernels/matvec/formats.h"
#include "kernels/matvec/launch.h"

template <class T, int TILE>
__global__ void stage_b_kernel(const uint8_t *w, const int8_t *q, const float *d,
                               const float *s, float *y, int64_t in, int64_t out,
                               int64_t m)
{
    const int lane = threadIdx.x % 32;
    const int64_t o = (int64_t)blockIdx.x * KG_WARPS + threadIdx.x / 32;
    const int64_t units = in / KG_UNIT;
    if (o >= out)
        return;
    /* A quad's lanes need the whole warp. */
    const int64_t end = T::QUADS ? (units + 31) / 32 * 32 : units;
    const uint8_t *row = w + o * (in / T::BLOCK) * T::BYTES;
    for (int64_t r0 = 0; r0 < m; r0 += TILE) {
        row_sum<T> acc[TILE] = {};
        for (int64_t i = lane; i < end; i += 32) {
            const bool there = i < units;
            const int64_t at = there ? i : units - 1;
            struct unit32 u;
            unpack_unit<T>(row, at, &u);
            for (int t = 0; t < TILE; t++) {
                const int64_t r = r0 + t < m ? r0 + t : m - 1;
                const uint8_t *codes = (const uint8_t *)(q + r * in + at * KG_UNIT);
                uint32_t x[8];
                load16(codes, x);
                load16(codes + 16, x + 4);
                acc[t].add(u, x, d[r * units + at], T::MINIMUM ? s[r * units + at] : 0.0f,
                           there);
            }
        }
        for (int t = 0; t < TILE; t++) {
            const float sum = acc[t].total();
            if (lane == 0 && r0 + t < m)
                y[(r0 + t) * out + o] = sum;
        }
    }
}

template <class T>
static int stage_b(const uint8_t *w, const int8_t *q, const float *d, const float *s,
                   float *y, int64_t in, int64_t out, int64_t m,
                   struct CUstream_st *stream)
{
    const unsigned blocks = grid_blocks(out, KG_WARPS);
    if (m == 1)
        return KG_LAUNCH(stream, blocks, 32 * KG_WARPS, 0, (stage_b_kernel<T, 1>), w, q,
                         d, s, y, in, out, m);
    return KG_LAUNCH(stream, blocks, 32 * KG_WARPS, 0, (stage_b_kernel<T, 4>), w, q, d, s,
                     y, in, out, m);
}

struct stage_b_row {
    int type, block, align;
    bool minimum;
    int (*run)(const uint8_t *, const int8_t *, const float *, const float *, float *,
               int64_t, int64_t, int64_t, struct CUstream_st *);
};

#define ROW(f)                                                                           \
    {                                                                                    \
        f::TYPE, f::BLOCK, f::ALIGN, f::MINIMUM != 0, stage_b<f>                         \
    }

static const struct stage_b_row rows[] = {
    ROW(fmt_q4_0), ROW(fmt_q8_0),   ROW(fmt_q3_k),   ROW(fmt_q4_k),  ROW(fmt_q5_k),
    ROW(fmt_q6_k), ROW(fmt_iq4_nl), ROW(fmt_iq4_xs), ROW(fmt_nvfp4), ROW(fmt_mxfp4),
};

int kg_stage_b(int type, const void *w, const int8_t *q, const float *d, const float *s,
               float *y, int64_t in, int64_t out, int64_t m, struct CUstream_st *stream)
{
    const struct stage_b_row *row = nullptr;
    for (const struct stage_b_row &r : rows)
        if (r.type == type)
            row = &r;
    if (!row)
        return KG_E_UNSUPPORTED;
    KG_TRY(check_product(in, out, m, row->block));
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(w, in, row->align) || !pointer_fits(q, in, 16) ||
        !pointer_fits(d, in, 4) || !pointer_fits(s, row->minimum ? in : 0, 4) ||
        !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    return row->run((const uint8_t *)w, q, d, s, y, in, out, m, stream);
}
