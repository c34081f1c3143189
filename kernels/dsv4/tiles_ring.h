/*
 * How the tiles form (tiles.cu) gets its operands from scratch into shared memory: a ring of stages
 * of 8 steps, each three pieces in one go (tiles_prepare.h). A warp of its own copies, up to
 * STAGES stages ahead; the others wait for a stage to be `full`, and arrive at `empty` when they
 * are done with it. So a warpgroup may be a stage ahead of the other: one multiplies while the
 * other opens a stage or joins sums.
 */
#ifndef KGATE_KERNELS_DSV4_TILES_RING_H
#define KGATE_KERNELS_DSV4_TILES_RING_H

#include "kernels/device/bits.h"
#include "kernels/device/split_barrier.h"
#include "kernels/device/warpgroup.h"
#include "kernels/dsv4/tiles_prepare.h"

namespace
{

constexpr int STAGES = 3; /* in shared memory */

template <int KIND>
struct stage {
    static constexpr int POSITIONS = plan<KIND>::IN_STAGE;
    static constexpr int X = STEPS_IN_STAGE * 2048;
    static constexpr int W = COL_WARPS * STEPS_IN_STAGE * 128;
    static constexpr int S = COL_WARPS * POSITIONS * 64;
    static constexpr int BYTES = X + W + S;
};

struct ring {
    unsigned char *shared;
    uint64_t *full, *empty; /* STAGES of each */
};

/* By all threads, before a barrier of the block. */
__device__ inline struct ring ring_at(unsigned char *shared,
                                      uint64_t barriers[2 * STAGES])
{
    uint64_t *full = kg_opaque(barriers);
    const struct ring r = {shared, full, full + STAGES};
    kg_split_init(r.full, STAGES, 1);
    kg_split_init(r.empty, STAGES, COL_WARPS);
    return r;
}

/* What comes next round the ring. A slot that is new counts as one that was emptied. */
struct turn {
    int slot;
    uint32_t parity;
    __device__ __forceinline__ void go_on()
    {
        slot = slot == STAGES - 1 ? 0 : slot + 1;
        parity ^= slot == 0 ? 1u : 0u;
    }
};

/* Where the stages of a block come from. */
template <int KIND>
struct source {
    const unsigned char *x, *w, *s;
    int stages;
};

template <int KIND>
__device__ inline struct source<KIND> source_of(const struct plan<KIND> &p,
                                                const unsigned char *scratch) {
    typedef stage<KIND> S;
    const int stages = (int)(p.steps / STEPS_IN_STAGE);
    struct source<KIND> from;
    from.x = scratch + p.x_at + blockIdx.y * (int64_t)stages * S::X;
    from.w = scratch + p.w_at + blockIdx.x * (int64_t)stages * S::W;
    from.s = scratch + p.s_at + blockIdx.x * (int64_t)stages * S::S;
    from.stages = stages;
    return from;
}

/* Sets out to copy stage i to a slot, if there is one. By one warp. */
template <int KIND>
__device__ __forceinline__ void
copy_stage(const struct ring &r, const struct source<KIND> &from, int i, int slot)
{
    typedef stage<KIND> S;
    const int lane = threadIdx.x % 32;
    unsigned char *to = r.shared + slot * S::BYTES;
    const unsigned char *x = from.x + (int64_t)i * S::X, *w = from.w + (int64_t)i * S::W,
                        *s = from.s + (int64_t)i * S::S;
#if KG_SPLIT_BARRIER
    if (i < from.stages && lane == 0) {
        kg_split_expect(r.full + slot, S::BYTES);
        kg_bulk_load(to, x, S::X, r.full + slot);
        kg_bulk_load(to + S::X, w, S::W, r.full + slot);
        kg_bulk_load(to + S::X + S::W, s, S::S, r.full + slot);
    }
#else
    for (int b = lane * 16; i < from.stages && b < S::BYTES; b += 32 * 16)
        kg_cp_async_16(to + b, b < S::X          ? x + b
                               : b < S::X + S::W ? w + b - S::X
                                                 : s + b - S::X - S::W);
    kg_cp_async_commit();
#endif
}

/* The first STAGES - 1 stages, which find room at once. */
template <int KIND>
__device__ inline void start_ring(const struct ring &r, const struct source<KIND> &from)
{
    for (int i = 0; i < STAGES - 1; i++)
        copy_stage(r, from, i, i);
}

/* The others, by the same warp. */
template <int KIND>
__device__ inline void fill_ring(const struct ring &r, const struct source<KIND> &from)
{
    struct turn at = {STAGES - 1, 0};
    for (int i = STAGES - 1; i < from.stages + STAGES - 1; i++, at.go_on()) {
#if KG_SPLIT_BARRIER
        if (i < from.stages)
            kg_split_wait_idle(r.empty + at.slot, at.parity ^ 1u);
#else /* a wait is a barrier of the block: a stage is full, the one before it empty */
        kg_cp_async_wait<STAGES - 2>();
        kg_split_wait(r.full, 0);
#endif
        copy_stage(r, from, i, at.slot);
    }
}

/* Instead of that: nobody needs them, but they must not come when the block has ended. */
template <int KIND>
__device__ inline void drop_ring(const struct ring &r, const struct source<KIND> &from)
{
#if KG_SPLIT_BARRIER
    for (int i = 0; i < STAGES - 1 && i < from.stages; i++)
        kg_split_wait(r.full + i, 0);
#else
    (void)r, (void)from;
    kg_cp_async_wait<0>();
#endif
}

/* What a thread that multiplies knows while it walks along k. */
template <int KIND>
struct walk {
    struct ring ring;
    struct turn at;        /* the open stage */
    int number, stages;    /* its number; how many there are */
    const uint64_t *marks; /* of the block's rows */
    uint32_t of_32;        /* bit i: stage i of 32 has marks */
    bool marked;           /* the open stage has */
    /* where the thread reads the stage: the operands of all, its own part of x, w and s */
    kg_warpgroup_operand b;
    const unsigned char *x_in, *w_in, *s_in;
    const unsigned char *w0, *s0; /* those of slot 0 */
};

template <int KIND>
__device__ inline struct walk<KIND> walk_from(const struct ring &r,
                                              const struct plan<KIND> &p,
                                              const unsigned char *scratch) {
    typedef stage<KIND> S;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct walk<KIND> k;
    k.ring = r;
    k.at.slot = STAGES - 1;
    k.at.parity = 1;
    k.number = -1;
    k.stages = (int)(p.steps / STEPS_IN_STAGE);
    k.marks = (const uint64_t *)(scratch + p.marks_at) + blockIdx.y * p.positions;
    k.w0 = r.shared + S::X + warp * STEPS_IN_STAGE * 128 + lane * 4;
    k.s0 = r.shared + S::X + S::W + warp * S::POSITIONS * 64 + lane / 4 * 8;
    return k;
}

/* Which of the 32 stages from k.number on have marks. */
template <int KIND>
__device__ __forceinline__ uint32_t marked_stages(const struct walk<KIND> &k)
{
    constexpr int POSITIONS = stage<KIND>::POSITIONS;
    const int at = k.number + (int)threadIdx.x % 32;
    uint64_t marks = 0;
    if (at < k.stages)
#pragma unroll
        for (int i = 0; i < POSITIONS; i++)
            marks |= k.marks[(int64_t)at * POSITIONS + i];
    return __ballot_sync(KG_WARP_ALL, marks != 0);
}

/* Waits for the next stage and points the thread at it. */
template <int KIND>
__device__ __forceinline__ void open_stage(struct walk<KIND> &k)
{
    typedef stage<KIND> S;
    k.number++;
    k.at.go_on();
    if (k.number % 32 == 0)
        k.of_32 = marked_stages(k);
    k.marked = (k.of_32 >> k.number % 32 & 1u) != 0;
    kg_split_wait(k.ring.full + k.at.slot, k.at.parity);
    const int offset = k.at.slot * S::BYTES;
    k.x_in = k.ring.shared + offset;
    k.b = kg_warpgroup_b(k.x_in);
    k.w_in = k.w0 + offset;
    k.s_in = k.s0 + offset;
}

/* This warp does not read the open stage any more. */
template <int KIND>
__device__ __forceinline__ void close_stage(const struct walk<KIND> &k)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        kg_split_arrive(k.ring.empty + k.at.slot);
}

} // namespace

#endif
