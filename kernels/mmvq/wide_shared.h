/*
 * What the wide product (wide.h) has in shared memory: all of q, in the order in which lanes read
 * it, sums of the butterfly, a ring of slots for weights, and barriers.
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_SHARED_H
#define KGATE_KERNELS_MMVQ_WIDE_SHARED_H

#include "kernels/device/split_barrier.h"
#include "kernels/mmvq/tile.h"
#include "kernels/mmvq/wide_readers.h"

enum {
    WIDE_ROWS = 16, /* of w in a tile */
    WIDE_TEAMS = 2,
    TEAM_WARPS = 8,
    COPY_WARP = WIDE_TEAMS * TEAM_WARPS,
    STORE_WARP = COPY_WARP + 1,          /* the first of one for each team */
    WIDE_THREADS = 32 * (COPY_WARP + 4), /* registers are a warpgroup's */
    WIDE_SLOTS = 8,                      /* at most */
    WIDE_PLANES = 4,                     /* at most */
    WIDE_BOXES = 2,                      /* of a slot, at most */
    WIDE_BARRIERS = 384,                 /* bytes of them */
};

/* ---- shapes ---- */

/* A slot of 1024 * S weights of each row, in one box of the tensor map or two, which are released
   one by one: a row of a box is at most 2048 bytes. Each row and plane starts at a multiple of 16 bytes, with rows spread over the
   banks: words want odd multiples of 16, 8-byte loads odd multiples of 32. */
template <class R, int S>
struct wide_slot {
    static constexpr int boxes = R::plane_bytes(0) * S > 2000 ? 2 : 1;
    static constexpr int thousands = S / boxes;           /* of weights in a box */
    static __device__ __host__ constexpr int bytes(int i) /* of a row in plane i */
    {
        return R::plane_bytes(i) * thousands;
    }
    static __device__ __host__ constexpr int stride(int i)
    {
        const int n = (bytes(i) + 15) / 16;
        if ((int)R::MAP == (int)MAP_RUN && i == 0)
            return (n + (6 - n % 4) % 4) * 16;
        return (n | 1) * 16;
    }
    /* Of plane i in a box. No loop, which the compiler would not fold where i is known after
       unrolling. */
    static __device__ __host__ constexpr int at(int i)
    {
        return WIDE_ROWS * ((i > 0 ? stride(0) : 0) + (i > 1 ? stride(1) : 0) +
                            (i > 2 ? stride(2) : 0) + (i > 3 ? stride(3) : 0));
    }
    static constexpr int box = at(R::PLANES);
    static constexpr int total = boxes * box;
};

/* Of the shared q, for each pair of units 2p, 2p + 1: codes by lane (where they are read TWICE, a
   matrix of 8 x 16 bytes for each group), then d, s and addends, by column as lanes want them. An
   addend takes the bits of DOT_ZERO off a dot, and what the
   offset of all codes is in it. Codes for E4M3 have 128 added, as raised_to_half2 wants them. */
template <class R>
struct wide_x {
    enum {
        E4M3 = (int)R::F::TYPE == KG_TYPE_F8_E4M3,
        ADDEND = (int)R::OFFSET != 0,
        KINDS = (int)R::F::GROUP == 16 ? 2 : 1,
        CODE_BYTES = 512,
        FLOATS = 64,
        BYTES = CODE_BYTES +
                FLOATS * (1 + ((int)R::F::MINIMUM != 0) + (ADDEND ? (int)KINDS : 0)),
        FACTORS =
            R::F::QUADS ? 3 : (int)KINDS + ((int)R::F::MINIMUM != 0), /* of a unit */
        /* Of a warp, the factors of its units of each row. */
        SCALE_BYTES = (R::F::QUADS ? 8 : 4) * 4 * (int)WIDE_ROWS * (int)FACTORS,
        LANES = R::F::QUADS ? 2 : 4,                      /* of the law in a warp */
        SUM_BYTES = (int)TEAM_WARPS * 4 * LANES * 32 * 4, /* of a team */
    };
};

/* Shared memory in front of the ring. */
template <class R, int S>
static __device__ __host__ __forceinline__ int wide_front(int k)
{
    const int stages = (k + 1024 * S - 1) / (1024 * S);
    return (int)WIDE_BARRIERS + 16 * S * stages * wide_x<R>::BYTES +
           WIDE_TEAMS * wide_x<R>::SUM_BYTES + COPY_WARP * wide_x<R>::SCALE_BYTES;
}

/* ---- barriers ---- */

/* What the block's warps wait for, at the front of the dynamic shared memory: the address of a variable of
   its own would be computed at each use. A slot that serves both teams in turn has a barrier for each:
   copies land in any order, and who waits for the next but one phase of a barrier would take the
   one before for it. */
struct wide_barriers {
    uint64_t landed[WIDE_TEAMS][WIDE_SLOTS], released[WIDE_SLOTS][WIDE_BOXES];
    uint64_t put[WIDE_TEAMS], stored[WIDE_TEAMS];
};
static_assert(sizeof(struct wide_barriers) <= WIDE_BARRIERS, "their room");

/* One arrival of a warp, all of whose lanes are done. */
static __device__ __forceinline__ void warp_arrive(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        kg_split_arrive(barrier);
}

/* ---- q ---- */

template <class R>
struct wide_shared {
    uint8_t *codes;
    float *d, *s, *addend;

    __device__ __forceinline__ wide_shared(uint8_t *x, int pairs)
    {
        codes = x;
        d = (float *)(x + pairs * wide_x<R>::CODE_BYTES);
        s = d + 16 * pairs;
        addend = s + (R::F::MINIMUM ? 16 * pairs : 0);
    }
};

/* Where chunk c of the four of row n of a pair of units is as it comes: spread over the banks. */
static __device__ __forceinline__ uint8_t *raw_chunk(uint8_t *codes, int n, int c)
{
    return codes + 64 * n + 16 * (c ^ n / 2);
}

/* What lane (n, t) copies of a pair of units: chunk t of row n of q, d or s of a unit. Columns that do
   not exist are copies of the last one: nobody stores them. */
struct wide_source {
    const int8_t *q;
    const float *d, *s;

    __device__ __forceinline__ wide_source(const struct product_args &p, int64_t q0)
    {
        const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4;
        const int64_t row = min64(q0 + n, p.m - 1), unit = row * (p.k / KG_UNIT) + t % 2;
        q = p.q + row * p.in + 16 * t;
        d = p.d + unit;
        s = p.s ? p.s + unit : nullptr;
    }
};

/* Unless WHOLE, pairs behind the last one are zeros. */
template <class R, bool WHOLE>
static __device__ __forceinline__ void wide_copy_q(const struct wide_source &from,
                                                   int units, int pair,
                                                   const struct wide_shared<R> &x)
{
    const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4;
    const int to = 16 * pair + 4 * (n / 2) + n % 2 + 2 * (t % 2);
    const bool there = WHOLE || 2 * pair < units;
    const int at = there ? pair : 0;
    kg_cp_async_16(raw_chunk(x.codes + wide_x<R>::CODE_BYTES * pair, n, t),
                   from.q + 64 * at, there ? 16 : 0);
    if (t < 2)
        kg_cp_async_4(x.d + to, from.d + 2 * at, there ? 4 : 0);
    else if (R::F::MINIMUM)
        kg_cp_async_4(x.s + to, from.s + 2 * at, there ? 4 : 0);
}

/* S pairs, `pair` and each sixteenth behind it, which the same warp has copied, in the order in which lanes
   want them: lane (n, t) the codes of both units for row n of q; lane t of a row of w d, s and addends of
   columns 2t and 2t + 1 of the first, then of the second. */
template <class R, int S>
static __device__ __forceinline__ void wide_take_q(int pair,
                                                   const struct wide_shared<R> &x)
{
    using X = wide_x<R>;
    const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4;
    uint8_t *const codes = x.codes + X::CODE_BYTES * pair;
    uint32_t b[S][2][2];
#pragma unroll
    for (int j = 0; j < S; j++)
        for (int i = 0; i < 2; i++) {
            uint8_t *const from = codes + 16 * j * X::CODE_BYTES;
            load_x<R::MAP>(raw_chunk(from, n, 2 * i), raw_chunk(from, n, 2 * i + 1), t,
                           b[j][i]);
            for (int k = 0; k < 2 && X::E4M3; k++)
                b[j][i][k] ^= 0x80808080u;
        }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < S; j++) {
        uint8_t *const to = codes + 16 * j * X::CODE_BYTES;
        if (R::TWICE) {
            for (int i = 0; i < 4; i++)
                *(uint32_t *)(to + 128 * i + 4 * lane) = b[j][i / 2][i % 2];
        } else {
            *(uint4 *)(to + 16 * lane) =
                make_uint4(b[j][0][0], b[j][0][1], b[j][1][0], b[j][1][1]);
        }
        if (X::ADDEND) {
            const int kind = t / 2, column = 4 * (n / 2) + n % 2 + 2 * (t % 2);
            int start[2][2];
            for (int i = 0; i < 2; i++)
                tile_init<R>(b[j][i], start[i]);
            const int one = kind ? start[0][1] : start[0][0],
                      other = kind ? start[1][1] : start[1][0];
            if (kind < X::KINDS)
                x.addend[16 * (X::KINDS * (pair + 16 * j) + kind) + column] =
                    (float)((t % 2 ? other : one) - DOT_ZERO) - DOT_ZERO_F;
        }
    }
}

/* Fragments of both units of a pair, two words each; where they are read TWICE, of both groups of
   each unit, each word twice. */
template <class R>
static __device__ __forceinline__ void wide_fragments(const uint8_t *codes,
                                                      uint32_t b[2][4])
{
    const int lane = threadIdx.x % 32;
    if (R::TWICE) {
        for (int i = 0; i < 2; i++)
            kg_ldmatrix_x4(b[i], codes + 256 * i + 128 * (lane / 16) + 16 * (lane % 8));
    } else {
        const uint4 v = kg_load_uint4(codes + 16 * lane);
        b[0][0] = v.x;
        b[0][1] = v.y;
        b[1][0] = v.z;
        b[1][1] = v.w;
    }
}

/* d of columns 2t and 2t + 1 of both units of a pair, from where a lane's own are. */
static __device__ __forceinline__ void wide_scales_of_q(const void *from, float d[2][2])
{
    const float4 v = kg_load_float4(from);
    d[0][0] = v.x;
    d[0][1] = v.y;
    d[1][0] = v.z;
    d[1][1] = v.w;
}

/* Until at most `groups` of this thread's groups of copies are under way. */
static __device__ __forceinline__ void wait_groups(int groups)
{
    if (groups >= 3)
        kg_cp_async_wait<3>();
    else if (groups == 2)
        kg_cp_async_wait<2>();
    else if (groups == 1)
        kg_cp_async_wait<1>();
    else
        kg_cp_async_wait<0>();
}

#endif
