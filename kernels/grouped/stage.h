/*
 * A stage of the pipeline: a slice of k of the rows and of the weights in shared memory.
 *
 * Rows of DEPTH halves, 64 or 32, in chunks of 16 bytes. Chunk c of row r lies at place
 * c ^ (r % 8) (DEPTH 64) or c ^ (r / 2 % 4) (DEPTH 32), so that the eight rows that one
 * phase of ldmatrix or of a store touches lie in different banks.
 *
 * Loaders: of a type W, W::loader<DEPTH> fills 128 rows of weights in two steps.
 * start() begins it early, finish() comes after the products of the stage before; the data
 * is there for all after the wait and the barrier of the stage.
 */
#ifndef KGATE_KERNELS_GROUPED_STAGE_H
#define KGATE_KERNELS_GROUPED_STAGE_H

#include "kernels/grouped/view.h"
#include "kernels/matvec/formats.h"

template <int DEPTH>
static __device__ inline unsigned chunk_offset(unsigned row, unsigned chunk)
{
    const unsigned twist = DEPTH == 64 ? row & 7 : row >> 1 & 3;
    return row * (DEPTH * 2) + ((chunk ^ twist) << 4);
}

/* HEIGHT rows of x, rows past `valid` zero. A thread has the same chunk of every
   STEP-th row. */
template <int HEIGHT, int DEPTH>
struct row_loader {
    enum { CHUNKS = DEPTH / 8, STEP = TILE_THREADS / CHUNKS, COUNT = HEIGHT / STEP };
    const uint16_t *x; /* of the chunk in row 0 */
    int row[COUNT];    /* of x; -1 past the end */
    int in;

    __device__ inline row_loader(const struct grouped_view &g, const struct tile &t)
    {
        const int first = threadIdx.x / CHUNKS;
        x = g.x + threadIdx.x % CHUNKS * 8;
        in = g.in;
        for (int i = 0; i < COUNT; i++) {
            const int r = first + i * STEP;
            const int64_t pair = t.pair + r;
            row[i] = r >= t.rows ? -1 : g.rows ? g.rows[pair] : (int)pair;
        }
    }
    __device__ inline void start(unsigned char *stage, int k) const
    {
        const unsigned first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            kg_cp_async_16(stage + chunk_offset<DEPTH>(first + i * STEP, chunk),
                           x + (int64_t)(row[i] < 0 ? 0 : row[i]) * in + k,
                           row[i] < 0 ? 0 : 16);
    }
};

/* Weights that are f16 in memory. */
struct half_weights {
    template <int DEPTH>
    struct loader {
        enum { CHUNKS = DEPTH / 8, STEP = TILE_THREADS / CHUNKS };
        const uint16_t *w;
        int64_t step; /* elements between the thread's rows */
        int valid;    /* of the thread's rows */

        __device__ inline loader(const struct grouped_view &g, const struct tile &t)
        {
            const int first = threadIdx.x / CHUNKS;
            const int left = g.out - t.out - first;
            valid = left <= 0 ? 0 : (left + STEP - 1) / STEP;
            w = (const uint16_t *)t.w + (valid ? (int64_t)(t.out + first) * g.in : 0) +
                threadIdx.x % CHUNKS * 8;
            step = (int64_t)STEP * g.in;
        }
        __device__ inline void start(unsigned char *stage, int k)
        {
            const unsigned first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
#pragma unroll
            for (int i = 0; i < TILE_OUTS / STEP; i++)
                kg_cp_async_16(stage + chunk_offset<DEPTH>(first + i * STEP, chunk),
                               w + (i < valid ? i * step : 0) + k, i < valid ? 16 : 0);
        }
        __device__ inline void finish(unsigned char *) const
        {
        }
    };
};

/* Codes 4i .. 4i+3 of a unit as exact f32. Behind a mantissa's leading one the code, with
   its top bit flipped, counts from 2^23: two instructions of full rate, where a conversion
   has a quarter of it. */
static __device__ inline void codes_f32(uint32_t word, float f[4])
{
    word ^= 0x80808080u;
    f[0] = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440)) - 8388736.0f;
    f[1] = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7441)) - 8388736.0f;
    f[2] = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7442)) - 8388736.0f;
    f[3] = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7443)) - 8388736.0f;
}

/* Weights 8j .. 8j+7 of the unit, as unit_value computes them, rounded to f16. A scale
   has at most 17 bits (an 11-bit half times six) where there is a minimum, and the code
   five: their product is exact, so that fmaf rounds as unit_value does. */
template <class T>
static __device__ inline uint4 unit_halves(const struct unit32 &u, int j)
{
    const int g = T::GROUP == 16 ? j / 2 : 0;
    float v[8];
    codes_f32(u.c[2 * j], v);
    codes_f32(u.c[2 * j + 1], v + 4);
    for (int i = 0; i < 8; i++) {
        v[i] = T::MINIMUM ? fmaf(u.a[g], v[i], u.b[g]) : u.a[g] * v[i];
    }
    uint4 h;
    h.x = kg_pack_f32_to_half2(v[0], v[1]);
    h.y = kg_pack_f32_to_half2(v[2], v[3]);
    h.z = kg_pack_f32_to_half2(v[4], v[5]);
    h.w = kg_pack_f32_to_half2(v[6], v[7]);
    return h;
}

/* Weights in blocks of format T. Thread r has row r of the tile. */
template <class T>
struct block_weights {
    template <int DEPTH>
    struct loader {
        enum { UNITS = DEPTH / KG_UNIT, PARTS = T::BLOCK / KG_UNIT };
        const uint8_t *w; /* the thread's row */
        struct unit32 u[UNITS];

        __device__ inline loader(const struct grouped_view &g, const struct tile &t)
        {
            /* Past the last output any row will do: nobody stores what comes of it. */
            const int o = min(t.out + (int)threadIdx.x, g.out - 1);
            w = t.w + (int64_t)o * (g.in / T::BLOCK) * T::BYTES;
        }
        __device__ inline void start(unsigned char *, int k)
        {
#pragma unroll
            for (int i = 0; i < UNITS; i++) {
                const int unit = k / KG_UNIT + i;
                T::unpack(w + (int64_t)(unit / PARTS) * T::BYTES, unit % PARTS, &u[i]);
            }
        }
        __device__ inline void finish(unsigned char *stage) const
        {
#pragma unroll
            for (int i = 0; i < UNITS; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    *(uint4 *)(stage + chunk_offset<DEPTH>(threadIdx.x, 4 * i + j)) =
                        unit_halves<T>(u[i], j);
        }
    };
};

#endif
