/*
 * The direct product (direct.h) with a unit a lane: lane l unpacks the law's units l, l + 32, ...
 * of each of the warp's rows from shared memory (direct_types.h) and folds them.
 *
 * Codes of q are in shared memory in the order in which a type's unpacking leaves the weights,
 * together with d, s and the sums of codes by which an offset of all codes of a type (8 of
 * Q4_0, 32 of Q6_K, ...) is taken off the integer dot.
 */
#ifndef KGATE_KERNELS_MMVQ_DIRECT_LANES_H
#define KGATE_KERNELS_MMVQ_DIRECT_LANES_H

#include "kernels/mmvq/direct.h"
#include "kernels/mmvq/direct_types.h"

/* Piece h of unit u's codes is kept at a place that spreads eight lanes over all banks. */
static __device__ __forceinline__ int x_place(int u, int h)
{
    return 32 * u + 16 * (h ^ (u >> 2 & 1));
}

/* The codes x of a unit in the order of a type. */
static __device__ __forceinline__ void order_codes(int order, const uint32_t x[8],
                                                   uint32_t o[8])
{
    for (int i = 0; i < 4; i++) {
        if (order == ORDER_PLAIN) {
            o[2 * i] = x[2 * i];
            o[2 * i + 1] = x[2 * i + 1];
        } else {
            const int low = order == ORDER_NIBBLES ? i : (i / 2) * 4 + i % 2;
            const uint32_t v = x[low], w = x[low + (order == ORDER_NIBBLES ? 4 : 2)];
            o[2 * i] = __byte_perm(v, w, 0x5140);
            o[2 * i + 1] = __byte_perm(v, w, 0x7362);
        }
    }
}

template <class TYPE, int UNITS_, int ROWS_>
struct direct_lanes {
    using R = TYPE;
    using F = typename R::F;
    enum { UNITS = UNITS_, ROWS = ROWS_, PARTS = F::BLOCK / KG_UNIT };
    using L = direct_stage<R, UNITS>;

    const uint8_t *x0, *x1;
    const float *sd, *ss;
    const int *sums;
    struct direct_tables tables;
    int units, lane, part, lane_at[R::PLANES];
    float acc[ROWS];

    /* Of the shared q: codes, d, sums, s, and the tables at the end. */
    static __host__ __device__ constexpr int x_bytes(int in)
    {
        return (in + in / 8 * (1 + ((int)R::SUMS != 0) + ((int)F::MINIMUM != 0)) +
                (int)sizeof(struct direct_tables) + 127) /
               128 * 128;
    }
    static __device__ __forceinline__ struct direct_tables *tables_at(uint8_t *smem,
                                                                      int units)
    {
        return (struct direct_tables *)(smem + x_bytes(KG_UNIT * units)) - 1;
    }

    static __device__ __forceinline__ void load(uint8_t *smem, const int8_t *q,
                                                const float *d, const float *s, int units)
    {
        float *to_d = (float *)(smem + 32 * units);
        int *to_sums = (int *)(to_d + units);
        float *to_s = (float *)(to_sums + ((int)R::SUMS != 0 ? units : 0));
        for (int u = (int)threadIdx.x; u < units; u += (int)blockDim.x) {
            uint32_t x[8], o[8];
            load16((const uint8_t *)q + 32 * u, x);
            load16((const uint8_t *)q + 32 * u + 16, x + 4);
            order_codes(R::ORDER, x, o);
            for (int h = 0; h < 2; h++)
                *(uint4 *)(smem + x_place(u, h)) =
                    make_uint4(o[4 * h], o[4 * h + 1], o[4 * h + 2], o[4 * h + 3]);
            to_d[u] = d[u];
            if ((int)R::SUMS != 0) {
                int sum[2] = {};
                for (int i = 0; i < 8; i++)
                    sum[i / 4] = __dp4a((int)x[i], 0x01010101, sum[i / 4]);
                to_sums[u] =
                    R::SUMS == 1
                        ? sum[0] + sum[1]
                        : (int)((uint32_t)sum[1] << 16 | ((uint32_t)sum[0] & 0xffffu));
            }
            if (F::MINIMUM)
                to_s[u] = s[u];
        }
        /* Through memory, so that the entries stay in registers: constants, and what is stored
           to a variable of its own is one, are moved at each use. */
        if (threadIdx.x == 0)
            *tables_at(smem, units) = R::tables();
    }

    __device__ __forceinline__ direct_lanes(uint8_t *smem, int n)
        : units(n), lane((int)threadIdx.x % 32), part(lane % PARTS)
    {
        x0 = smem + x_place(lane, 0);
        x1 = smem + x_place(lane, 1);
        sd = (const float *)(smem + 32 * units) + lane;
        sums = (const int *)sd + units;
        ss = (const float *)sums + ((int)R::SUMS != 0 ? units : 0);
        tables = *tables_at(smem, units);
        for (int i = 0; i < R::PLANES; i++)
            lane_at[i] = L::at(i) + lane / PARTS * R::field(i);
    }

    __device__ __forceinline__ void begin(void)
    {
        for (int r = 0; r < ROWS; r++)
            acc[r] = 0.0f;
    }

    template <bool WHOLE, class PHASE>
    __device__ __forceinline__ void stage(const uint8_t *smem, int slot,
                                          const PHASE &phase, int c)
    {
        int at[ROWS][R::PLANES];
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < R::PLANES; i++)
                at[r][i] = lane_at[i] + slot + phase(r);
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int group = c * UNITS + k;
            if (WHOLE || 32 * group + lane < units) {
                uint32_t x[8];
                load16(x0 + 1024 * group, x);
                load16(x1 + 1024 * group, x + 4);
                const float d = sd[32 * group];
                const int sum = (int)R::SUMS != 0 ? sums[32 * group] : 0;
                const float s = (int)F::MINIMUM != 0 ? ss[32 * group] : 0.0f;
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int dot[2], off[R::PLANES];
                    float a[2], b = 0.0f;
                    for (int i = 0; i < R::PLANES; i++)
                        off[i] = r * L::row + k * (L::bytes(i) / UNITS);
                    R::dots(smem, at[r], off, part, x, sum, tables, dot, a, &b);
                    acc[r] = add_dot<F>(acc[r], a[0], (float)dot[0], d);
                    if (F::GROUP == 16)
                        acc[r] = add_dot<F>(acc[r], a[1], (float)dot[1], d);
                    if (F::MINIMUM)
                        acc[r] = fmaf(b, s, acc[r]);
                }
            }
        }
    }

    __device__ __forceinline__ void end(const struct direct_args &p, int64_t m,
                                        int row) const
    {
        for (int r = 0; r < ROWS; r++) {
            const float v = warp_sum(acc[r]);
            if (lane == 0 && row + r < (int)p.out)
                p.y[m * p.out + row + r] = v * p.scale;
        }
    }
};

#endif
