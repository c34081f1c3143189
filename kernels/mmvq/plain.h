/*
 * The plain forms: one warp a row of w, each unit unpacked from memory. The second reference,
 * and what runs where weights are not aligned for the fast kernel.
 */
#ifndef KGATE_KERNELS_MMVQ_PLAIN_H
#define KGATE_KERNELS_MMVQ_PLAIN_H

#include "kernels/matvec/formats.h"

/* A format in its file's layout, seen as the planes_* of split.h are. */
template <class T>
struct planes_file {
    using F = T;
    static __device__ inline void unpack(const uint8_t *w, int64_t, int64_t unit,
                                         struct unit32 *u)
    {
        unpack_unit<T>(w, unit, u);
    }
};

/* stage_b's arithmetic (kernels/matvec/stage_b.cu), then times `scale`. */
template <class P, int TILE>
__global__ void plain_kernel(const uint8_t *w, const int8_t *q, const float *d,
                             const float *s, float *y, int64_t in, int64_t out, int64_t m,
                             float scale)
{
    using F = typename P::F;
    const int lane = threadIdx.x % 32;
    const int64_t o = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int64_t units = in / KG_UNIT, blocks = out * (in / F::BLOCK);
    if (o >= out)
        return;
    /* A quad's lanes need the whole warp. */
    const int64_t end = F::QUADS ? (units + 31) / 32 * 32 : units;
    for (int64_t r0 = 0; r0 < m; r0 += TILE) {
        row_sum<F> acc[TILE] = {};
        for (int64_t i = lane; i < end; i += 32) {
            const bool there = i < units;
            const int64_t at = there ? i : units - 1;
            struct unit32 u;
            P::unpack(w, blocks, o * units + at, &u);
            for (int t = 0; t < TILE; t++) {
                const int64_t r = r0 + t < m ? r0 + t : m - 1;
                const uint8_t *codes = (const uint8_t *)(q + r * in + at * KG_UNIT);
                uint32_t x[8];
                load16(codes, x);
                load16(codes + 16, x + 4);
                acc[t].add(u, x, d[r * units + at], F::MINIMUM ? s[r * units + at] : 0.0f,
                           there);
            }
        }
        for (int t = 0; t < TILE; t++) {
            const float sum = acc[t].total();
            if (lane == 0 && r0 + t < m)
                y[(r0 + t) * out + o] = sum * scale;
        }
    }
}

#endif
