/*
 * A tile's share of the output: sums of p * d * code over its 16 keys, by one warp.
 *
 * digit_values, V Q5_1: products of small integers on the tensor cores, which are exact. A
 * weight p * d of a tile and head becomes two digits, each an integer of up to 2^11:
 *
 *   s      2^(127 - P - D) where P and D (at least 1) are the exponent fields of the largest p of
 *          the tile and head (f32) and of the tile's largest |d| (f16)
 *   hi     p * s * d, rounded to a multiple of 2^-24: to f16, below whose 2^-13 all numbers
 *          are such multiples
 *   lo     what hi lacks, times 2^12, rounded in the same way
 *   acc    += (sum of hi * code) / s, and beside it those of lo: fma once a tile
 *   end    o = (acc of lo) * 2^-12 + (acc of hi)
 *
 * So a weight is off by no more than 2^-22 of (largest p) * (largest |d|) of its tile. Codes
 * are f16 below the normal range, too, where the bits of an integer are its value: masks make
 * them, and the elements of a block have them 1, 2, 16 and 32 times too large. In f32 such
 * sums (up to 2^20 units of 2^-48) have no rounding, in whatever order they are added.
 *
 * code_values, the other types: acc = fma(p * d, code, acc), a lane's keys in order, CHAINS
 * chains by turns; at the end the chains, then the slots in order. A lane has a unit of eight
 * elements (two units where a head has 512) and the keys of its slot: unit u is word u % 4
 * of the codes of block u / 4, that is elements 4 (u % 4) .. + 3 of the block and the four
 * that lie 16 further.
 */
#ifndef KGATE_KERNELS_ATTENTION_VALUES_H
#define KGATE_KERNELS_ATTENTION_VALUES_H

#include "kernels/attention/tile.h"
#include "kernels/device/bits.h"
#include "kernels/device/f16x2.h"

/* ---- V Q5_1 ---- */

template <int HD, int HG>
struct digit_values {
    typedef tile_shape<HD, HG, true> shape;
    enum {
        BLOCKS = shape::BLOCKS,
        COLUMNS = HG / 4, /* products side by side: of two pairs of heads each */
        DIGIT_BYTES = TILE * HG * 4, /* of a block */
        WEIGHT_BYTES = BLOCKS * DIGIT_BYTES,
        OUT_STRIDE = HD + 8, /* floats; keeps the heads off each other's banks */
        OUT_BYTES = HG * OUT_STRIDE * 4,
    };
    /* Rows and columns of a product: elements and, for pair 2j + t / 2, the hi (t even) or lo
       digits of its two heads. Product i of a block has elements 2q + i and 2q + 16 + i in
       its rows g and g + 8. */
    float acc[BLOCKS][2][COLUMNS][4];
    float factor[COLUMNS][2]; /* 2^24 / s of those heads */

    /* Where a key's digits are from byte `at` on: neither the stores of half a warp, four keys
       and four that are 8 further (HG = 8: four keys), nor ldmatrix, eight keys, meet on a bank. */
    static __device__ __forceinline__ int place(int key, int at)
    {
        return HG == 4 ? (key ^ (key >> 1 & 4)) * 16 + at
                       : key * 32 + (at ^ (key << 2 & 16));
    }
    /* The lane whose own pair is that of this lane's columns. */
    static __device__ __forceinline__ int source(int j)
    {
        const int lane = threadIdx.x % 32;
        return (lane & ~3) + 2 * j + lane % 4 / 2;
    }
    /* Bytes 2q, 2q + 1 of a block's codes are a lane's: those that ldmatrix gives it. */
    static __device__ __forceinline__ int codes_of(int b)
    {
        const int g = threadIdx.x % 32 / 4;
        return b % 2 ? g : (g + 4) % 8;
    }

    __device__ __forceinline__ void rescale(const float (&r)[2])
    {
        for (int j = 0; j < COLUMNS; j++)
            for (int i = 0; i < 2; i++) {
                const float f = __shfl_sync(KG_WARP_ALL, r[i], source(j));
#pragma unroll
                for (int b = 0; b < BLOCKS; b++)
                    for (int m = 0; m < 2; m++) {
                        acc[b][m][j][i] *= f;
                        acc[b][m][j][2 + i] *= f;
                    }
            }
    }

    /* The digits of the lane's weights p into shared memory, a key's beside each other: of
       each pair hi, hi, lo, lo. */
    __device__ __forceinline__ void weigh(uint8_t *weights, int key0, int pair,
                                          const float (&p)[shape::KEYS][2],
                                          const uint32_t (&scales)[shape::KEYS][BLOCKS])
    {
        /* The largest of both heads at once: the upper halves of numbers >= 0 are in the
           order of their bits. */
        uint32_t top, d_top = 1u << 27;
        for (int k = 0; k < shape::KEYS; k++) {
            const uint32_t both =
                __byte_perm(__float_as_uint(p[k][0]), __float_as_uint(p[k][1]), 0x7632);
            top = k == 0 ? both : kg_max_u16x2(top, both);
            for (int b = 0; b < BLOCKS; b++)
                d_top = max(d_top, scales[k][b] << 17);
        }
        for (int distance = 16; distance >= (HG == 4 ? 2 : 4); distance /= 2)
            top = kg_max_u16x2(top, __shfl_xor_sync(KG_WARP_ALL, top, distance));
        /* From here on exponents are where f32 has them: that of a pair's second head as it
           is, that of the first 16 bits lower. */
        top &= 0x7f807f80u;
        d_top = __reduce_max_sync(KG_WARP_ALL, d_top) >> 4 & 0x0f800000u;
        const uint32_t from = (254u << 23) - d_top, to = (24u << 23) + d_top;
        const float s[2] = {__uint_as_float(from - (top << 16)),
                            __uint_as_float(from - (top & 0x7f800000u))};
        for (int j = 0; j < COLUMNS; j++) {
            const uint32_t own = __shfl_sync(KG_WARP_ALL, top, source(j));
            factor[j][0] = __uint_as_float(to + (own << 16));
            factor[j][1] = __uint_as_float(to + (own & 0x7f800000u));
        }
        for (int k = 0; k < shape::KEYS; k++) {
            const float x = p[k][0] * s[0], y = p[k][1] * s[1];
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                const float d = half_of(scales[k][b]);
                const uint32_t hi = kg_round_half2(x * d, y * d);
                const uint32_t lo =
                    kg_round_half2(fmaf(half_of(hi), -4096.0f, x * 4096.0f * d),
                                   fmaf(half_of(hi >> 16), -4096.0f, y * 4096.0f * d));
                *(uint2 *)(weights + b * DIGIT_BYTES + place(key0 + 8 * k, 8 * pair)) =
                    make_uint2(hi, lo);
            }
        }
    }

    __device__ __forceinline__ void add(const uint8_t *v_tile, int,
                                        const uint8_t *weights)
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *row = v_tile + lane % 16 * shape::V_STRIDE + lane / 16 * 16;
#pragma unroll
        for (int b = 0; b < BLOCKS; b += 2) {
            /* Two blocks are three chunks of 16 bytes: 8 of scales and fifth bits and half
               of the codes; the other half and the next block's first 8; its codes. Of two
               keys a register has the same two bytes. */
            uint32_t mixed[4], codes[2];
            kg_ldmatrix_x4_trans(mixed, row + 24 * b);
            const bool upper = lane / 4 >= 4;
            const uint32_t x[2] = {upper ? mixed[0] : mixed[2],
                                   upper ? mixed[1] : mixed[3]};
            const uint32_t high[4] = {of_group<2>(mixed[0]), of_group<3>(mixed[0]),
                                      of_group<2>(mixed[1]), of_group<3>(mixed[1])};
            add_block(b, x, high, weights);
            if (b + 1 == BLOCKS)
                break;
            kg_ldmatrix_x2_trans(codes, row + 24 * b + 32);
            const uint32_t next[4] = {of_group<6>(mixed[2]), of_group<7>(mixed[2]),
                                      of_group<6>(mixed[3]), of_group<7>(mixed[3])};
            add_block(b + 1, codes, next, weights);
        }
    }

    /* Over the warp's own ring: o of its heads. Lanes with an even t keep the first head of
       the pair, whose hi digits they have, and the others the second. */
    __device__ __forceinline__ void store(uint8_t *own) const
    {
        const int lane = threadIdx.x % 32, t = lane % 4;
        const bool odd = t % 2 != 0;
        const float keeps = odd ? 0x1p-12f : 1.0f, gets = odd ? 1.0f : 0x1p-12f;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            for (int j = 0; j < COLUMNS; j++)
                for (int r = 0; r < 2; r++) {
                    float o[2];
                    for (int m = 0; m < 2; m++) {
                        const float *x = &acc[b][m][j][2 * r];
                        const float size = (m ? 0.5f : 1.0f) * (r ? 0.0625f : 1.0f);
                        const float got =
                            __shfl_xor_sync(KG_WARP_ALL, odd ? x[0] : x[1], 1);
                        o[m] = fmaf(odd ? x[1] : x[0], keeps * size, got * (gets * size));
                    }
                    *(float2 *)((float *)own + (4 * j + t) * OUT_STRIDE + 32 * b +
                                16 * r + 2 * codes_of(b)) = make_float2(o[0], o[1]);
                }
    }
    template <int E>
    static __device__ __forceinline__ void stored(const uint8_t *own, int h, int dim,
                                                  float (&o)[E])
    {
        lane_elements<HD>::load((const float *)own + h * OUT_STRIDE + dim, o);
    }

  private:
    /* From lane 4G + t. The instruction keeps a lane's own low bits by itself. */
    template <int G>
    static __device__ __forceinline__ uint32_t of_group(uint32_t x)
    {
#if defined(__CUDA_ARCH__)
        uint32_t y;
        asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x031f, 0xffffffff;"
                     : "=r"(y)
                     : "r"(x), "n"(4 * G));
        return y;
#else
        return __shfl_sync(KG_WARP_ALL, x, 4 * G + threadIdx.x % 4);
#endif
    }
    /* x: the codes of keys 2t, 2t + 1 and 2t + 8, 2t + 9; high: their fifth bits 0 .. 15
       and 16 .. 31, of the former and of the latter. */
    __device__ __forceinline__ void add_block(int b, const uint32_t (&x)[2],
                                              const uint32_t (&high)[4],
                                              const uint8_t *weights)
    {
        const int lane = threadIdx.x % 32, at = 2 * codes_of(b);
        uint32_t a[2][4], digits[COLUMNS][2];
        for (int o = 0; o < 2; o++) {
            /* Bits at, at + 1 to 4, 5 and to 8, 9. */
            const uint32_t low5 =
                __funnelshift_r(high[2 * o], high[2 * o], (unsigned)(at + 28));
            const uint32_t high5 =
                __funnelshift_r(high[2 * o + 1], high[2 * o + 1], (unsigned)(at + 24));
            const uint32_t y = x[o] >> 7;
            a[0][2 * o] = (x[o] & 0x000f000fu) | (low5 & 0x00100010u);
            a[0][2 * o + 1] = (x[o] & 0x00f000f0u) | (high5 & 0x01000100u);
            a[1][2 * o] = (y & 0x001e001eu) | (low5 & 0x00200020u);
            a[1][2 * o + 1] = (y & 0x01e001e0u) | (high5 & 0x02000200u);
        }
        const uint8_t *from = weights + b * DIGIT_BYTES;
        if constexpr (HG == 8)
            kg_ldmatrix_x4_trans(digits[0], from + place(lane % 16, lane / 16 * 16));
        else
            kg_ldmatrix_x2_trans(digits[0], from + place(lane % 16, 0));
        for (int m = 0; m < 2; m++)
            for (int j = 0; j < COLUMNS; j++) {
                float sum[4];
                kg_mma_f16_from(sum, a[m], digits[j], 0.0f);
                for (int i = 0; i < 4; i++)
                    acc[b][m][j][i] = fmaf(sum[i], factor[j][i % 2], acc[b][m][j][i]);
            }
    }
};

/* ---- the other types ---- */

/* The eight codes of word i of block b: [0..3] are elements 4i + e of the block, [4..7]
   those 16 further. */
static __device__ __forceinline__ void value_codes(const uint8_t *row, int type, int b,
                                                   int i, float (&c)[8])
{
    if (type == KG_TYPE_F8_E4M3) {
        for (int e = 0; e < 8; e++)
            c[e] = kg_e4m3_to_f32(row[32 * b + 16 * (e / 4) + 4 * i + e % 4]);
        return;
    }
    const bool five = type == KG_TYPE_Q5_1;
    const uint8_t *block = row + b * block_bytes(type);
    const uint32_t high = five ? kg_load_u32_a2(block + 4) : 0u;
    const uint32_t qs = kg_load_u32_a2(block + (five ? 8 : 2) + 4 * i);
    for (int e = 0; e < 8; e++) {
        const int element = 16 * (e / 4) + 4 * i + e % 4;
        const int nibble = (int)(qs >> (8 * (e % 4) + 4 * (e / 4)) & 15u);
        c[e] = (float)(five ? nibble | (int)(high >> element & 1u) << 4 : nibble - 8);
    }
}

template <int HD, int HG>
struct code_values {
    typedef tile_shape<HD, HG, false> shape;
    enum {
        BLOCKS = shape::BLOCKS,
        UNITS = HD / 8,
        /* Slots of keys side by side, units of a lane, and chains into which a lane's keys
           are dealt so that none is longer than 8. */
        SLOTS = UNITS < 32 ? 32 / UNITS : 1,
        PER_LANE = (UNITS + 31) / 32,
        CHAINS = SLOTS == 1 ? 2 : 1,
        STEPS = TILE / SLOTS / CHAINS,
        W_STRIDE = TILE * HG + (HG == 4 ? 8 : 16), /* floats, from block to block */
        WEIGHT_BYTES = BLOCKS * W_STRIDE * 4,
        OUT_BYTES = SLOTS * HG * HD * 4,
    };
    float acc[CHAINS][PER_LANE][HG][8];

    __device__ __forceinline__ void rescale(const float (&r)[2])
    {
#pragma unroll
        for (int h = 0; h < HG; h++) {
            const float f = __shfl_sync(KG_WARP_ALL, r[h % 2], h / 2);
            for (int c = 0; c < CHAINS; c++)
                for (int u = 0; u < PER_LANE; u++)
                    for (int e = 0; e < 8; e++)
                        acc[c][u][h][e] *= f;
        }
    }
    __device__ __forceinline__ void weigh(uint8_t *weights, int key0, int pair,
                                          const float (&p)[shape::KEYS][2],
                                          const uint32_t (&scales)[shape::KEYS][BLOCKS])
    {
        for (int k = 0; k < shape::KEYS; k++)
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                const float d = half_of(scales[k][b]);
                *(float2 *)((float *)weights + b * W_STRIDE + (key0 + 8 * k) * HG +
                            2 * pair) = make_float2(p[k][0] * d, p[k][1] * d);
            }
    }
    /* Lanes beyond the last slot repeat the first's work and drop it. */
    static __device__ __forceinline__ int slot_of(int lane)
    {
        return lane / (UNITS < 32 ? UNITS : 32);
    }
    static __device__ __forceinline__ int unit_of(int lane)
    {
        return UNITS < 32 ? lane % UNITS : lane;
    }
    __device__ __forceinline__ void add(const uint8_t *v_tile, int type,
                                        const uint8_t *weights)
    {
        const int lane = threadIdx.x % 32;
        const int slot = slot_of(lane) < SLOTS ? slot_of(lane) : 0;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
#pragma unroll
                for (int u = 0; u < PER_LANE; u++) {
                    const int key = (s * CHAINS + c) * SLOTS + slot;
                    const int unit = unit_of(lane) + 32 * u;
                    float w[HG], code[8];
#pragma unroll
                    for (int h = 0; h < HG; h += 4)
                        *(float4 *)(w + h) = kg_load_float4(
                            (const float *)weights + unit / 4 * W_STRIDE + key * HG + h);
                    value_codes(v_tile + key * shape::V_STRIDE, type, unit / 4, unit % 4,
                                code);
#pragma unroll
                    for (int h = 0; h < HG; h++)
#pragma unroll
                        for (int e = 0; e < 8; e++)
                            acc[c][u][h][e] = fmaf(w[h], code[e], acc[c][u][h][e]);
                }
    }
    __device__ __forceinline__ void store(uint8_t *own) const
    {
        const int lane = threadIdx.x % 32, slot = slot_of(lane);
        for (int u = 0; u < PER_LANE; u++) {
            const int unit = unit_of(lane) + 32 * u;
            float *to = (float *)own + slot * HG * HD + unit / 4 * 32 + unit % 4 * 4;
#pragma unroll
            for (int h = 0; h < HG; h++) {
                float x[8];
#pragma unroll
                for (int e = 0; e < 8; e++)
                    x[e] = CHAINS == 2 ? acc[0][u][h][e] + acc[CHAINS - 1][u][h][e]
                                       : acc[0][u][h][e];
                if (slot < SLOTS) {
                    *(float4 *)(to + h * HD) = make_float4(x[0], x[1], x[2], x[3]);
                    *(float4 *)(to + h * HD + 16) = make_float4(x[4], x[5], x[6], x[7]);
                }
            }
        }
    }
    template <int E>
    static __device__ __forceinline__ void stored(const uint8_t *own, int h, int dim,
                                                  float (&o)[E])
    {
        const float *from = (const float *)own + h * HD + dim;
        lane_elements<HD>::load(from, o);
        for (int s = 1; s < SLOTS; s++) {
            float x[E];
            lane_elements<HD>::load(from + s * HG * HD, x);
            for (int j = 0; j < E; j++)
                o[j] += x[j];
        }
    }
};

template <int HD, int HG, bool MAIN>
struct values_of {
    typedef code_values<HD, HG> type;
};
template <int HD, int HG>
struct values_of<HD, HG, true> {
    typedef digit_values<HD, HG> type;
};

#endif
