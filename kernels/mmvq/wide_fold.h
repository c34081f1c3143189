/*
 * The arithmetic of the wide product (wide.h): 1024 weights of a slot's rows, by a warp of its team.
 *
 * Scales of four units of a row are read by a lane each and exchanged through shared memory, as each lane
 * needs all four of its rows g and g + 8.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_FOLD_H
#define KGATE_KERNELS_MMVQ_WIDE_FOLD_H

#include "kernels/mmvq/wide_shared.h"

/* Dots of group k of a unit of rows g and g + 8, with the unit's fragments. */
template <class W>
static __device__ __forceinline__ void
wide_mma(int dot[4], const uint32_t c[2][4][2], const uint32_t e[2][4][2], int u,
         const uint32_t b[4], int k, const int from[4])
{
    if (W::TWICE) {
        const uint32_t a[4] = {c[0][u][k], c[1][u][k], e[0][u][k], e[1][u][k]};
        kg_mma_s8_16832_add(dot, a, b + 2 * k, from);
    } else if ((int)W::F::GROUP == 16) {
        const uint32_t a[2] = {c[0][u][k], c[1][u][k]};
        kg_mma_s8_16816_add(dot, a, b + k, from);
    } else {
        const uint32_t a[4] = {c[0][u][0], c[1][u][0], c[0][u][1], c[1][u][1]};
        kg_mma_s8_16832_add(dot, a, b, from);
        if (W::EXTRA) {
            const uint32_t extra[4] = {e[0][u][0], e[1][u][0], e[0][u][1], e[1][u][1]};
            kg_mma_s8_16832_add(dot, extra, b, dot);
        }
    }
}

/* Kind k of the scales of four units of a row; a lane writes that of one unit, and reads all. */
static __device__ __forceinline__ float *scale_place(float *scales, int k, int row)
{
    return scales + 4 * (WIDE_ROWS * k + row);
}

/* Both scales a[h] of a lane's unit of rows g and g + 8 to all lanes of the row: factor[h][k][u] of
   unit u. Four units with two scales each are 32 bytes; every other four rows have the halves of
   them exchanged, for the banks. What is not `there` becomes -0. */
static __device__ __forceinline__ void
exchange_pairs(const float a[2][2], bool there, float *scales, float factor[2][2][4])
{
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4, odd = g / 4;
    __syncwarp(); /* the last scales have been read */
    for (int h = 0; h < 2; h++) {
        float *const to = scales + 8 * (g + 8 * h) + 4 * (t / 2 ^ odd) + 2 * (t % 2);
        *(float2 *)to = make_float2(there ? a[h][0] : -0.0f, there ? a[h][1] : -0.0f);
    }
    __syncwarp();
    for (int h = 0; h < 2; h++)
        for (int n = 0; n < 2; n++) {
            const float4 v = kg_load_float4(scales + 8 * (g + 8 * h) + 4 * (n ^ odd));
            factor[h][0][2 * n] = v.x;
            factor[h][1][2 * n] = v.y;
            factor[h][0][2 * n + 1] = v.z;
            factor[h][1][2 * n + 1] = v.w;
        }
}

/* 1024 weights. Unless WHOLE, `left` of the row's units begin at the warp's first. acc[4u + i]: unit
   u, i as in the fragment. */
template <class W, int S, bool WHOLE>
static __device__ __forceinline__ void
wide_fold(const uint8_t *slot, int j, const struct wide_shared<W> &x, int pair, int w,
          int left, const struct tile_quad &zero, const struct code_tables &tables,
          float *scales, float acc[16])
{
    using L = wide_slot<W, S>;
    using X = wide_x<W>;
    using F = typename W::F;
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    /* With two scales a unit the codes are read behind the exchange of scales: registers. */
    constexpr bool LATE = X::KINDS == 2;
    uint32_t c[2][4][2], e[2][4][2];
    float a[2][2], m[2];
    int at[W::PLANES], off[2][W::PLANES];
#pragma unroll
    for (int i = 0; i < W::PLANES; i++) {
        at[i] = L::at(i) + g * L::stride(i);
        off[0][i] = j / L::thousands * L::box + j % L::thousands * W::plane_bytes(i);
        off[1][i] = off[0][i] + 8 * L::stride(i);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (!LATE)
            W::codes(slot, at, off[h], w, t, tables, c[h], e[h]);
        W::scales(slot, at, off[h], w, t, a[h], &m[h]);
    }
    float factor[2][X::FACTORS][4];
    if constexpr (F::SCALED) {
        exchange_pairs(a, WHOLE || t < left, scales, factor);
    } else {
        __syncwarp(); /* the last scales have been read */
        for (int h = 0; h < 2; h++) {
            const auto put = [&](int k, float v) {
                scale_place(scales, k, g + 8 * h)[t] = WHOLE || t < left ? v : -0.0f;
            };
            for (int k = 0; k < X::KINDS; k++)
                put(k, a[h][k]);
            if (F::MINIMUM)
                put(1, m[h]);
        }
        __syncwarp();
        for (int h = 0; h < 2; h++)
            for (int k = 0; k < X::FACTORS; k++) {
                const float4 v = kg_load_float4(scale_place(scales, k, g + 8 * h));
                factor[h][k][0] = v.x;
                factor[h][k][1] = v.y;
                factor[h][k][2] = v.z;
                factor[h][k][3] = v.w;
            }
    }
    if (LATE)
        for (int h = 0; h < 2; h++)
            W::codes(slot, at, off[h], w, t, tables, c[h], e[h]);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        uint32_t b[2][4];
        wide_fragments<W>(x.codes + X::CODE_BYTES * (pair + n), b);
        float d[2][2];
        wide_scales_of_q(x.d + 16 * (pair + n) + 4 * t, d);
        float s[4], addend[2][4];
        if (F::MINIMUM) {
            const float4 s4 = kg_load_float4(x.s + 16 * (pair + n) + 4 * t);
            s[0] = s4.x;
            s[1] = s4.y;
            s[2] = s4.z;
            s[3] = s4.w;
        }
        for (int k = 0; k < X::KINDS; k++) {
            float4 v = {};
            if (X::ADDEND)
                v = kg_load_float4(x.addend + 16 * (X::KINDS * (pair + n) + k) + 4 * t);
            addend[k][0] = v.x;
            addend[k][1] = v.y;
            addend[k][2] = v.z;
            addend[k][3] = v.w;
        }
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const int u = 2 * n + v;
            float *const sum = acc + 4 * u;
#pragma unroll
            for (int k = 0; k < X::KINDS; k++) {
                int dot[4];
                wide_mma<W>(dot, c, e, u, b[v], k, zero.v);
                if constexpr (F::SCALED) {
                    static_assert(!X::ADDEND, "each column would have its own");
                    for (int i = 0; i < 4; i++) {
                        /* The sign of a scale that is not there stays. */
                        const float scale = factor[i / 2][k][u],
                                    less = -DOT_ZERO_F * fabsf(scale);
                        const float scaled = fmaf(scale, __int_as_float(dot[i]), less);
                        sum[i] = fmaf(d[v][i % 2], scaled, sum[i]);
                    }
                } else {
                    for (int i = 0; i < 4; i++) {
                        const float less =
                            X::ADDEND ? addend[k][2 * v + i % 2] : -DOT_ZERO_F;
                        sum[i] =
                            fmaf(factor[i / 2][k][u],
                                 d[v][i % 2] * (__int_as_float(dot[i]) + less), sum[i]);
                    }
                }
            }
            if (F::MINIMUM)
                for (int i = 0; i < 4; i++)
                    sum[i] = fmaf(factor[i / 2][1][u], s[2 * v + i % 2], sum[i]);
        }
    }
}

#endif
