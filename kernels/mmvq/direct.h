/*
 * The direct product: each row of q alone (blockIdx.y), a warp to a few rows of w.
 * Nothing but q is shared between warps.
 *
 * Each warp copies its rows through a ring of its own, so that memory sees whole lines
 * whatever the block's size, and waits for itself only: no barrier of the block after the
 * first. With BULK (rows are multiples of 16 bytes; compute capability 9.0) one lane copies a
 * stage of a row at once: such a copy fills whole lines of shared memory, whereas cp.async, 16
 * bytes a lane, takes a cycle for each 32 bytes that arrive, which is about half of all cycles
 * that shared memory has.
 *
 * W is what a warp does with a stage: direct_lanes.h, direct_quads.h. It also brings q to
 * shared memory, once a block, in the order in which it reads it. Units are folded by the law of
 * kernels/matvec/unit.h: the bits are those of stage_b.
 *
 * Launches overlap (device/overlap.h): weights are copied before the launch ahead is complete,
 * q is asked for (ask.h), but read and y written after it.
 */
#ifndef KGATE_KERNELS_MMVQ_DIRECT_H
#define KGATE_KERNELS_MMVQ_DIRECT_H

#include "kernels/device/overlap.h"
#include "kernels/matvec/unit.h"
#include "kernels/mmvq/ask.h"
#if !defined(KG_EMU)
#include "kernels/device/sm90.h"
#endif

/* Whether the code that is being compiled may copy in bulk. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DIRECT_BULK 1
#else
#define DIRECT_BULK 0
#endif

enum { DIRECT_WARPS = 16 /* of a block, at most */ };

struct direct_args {
    const uint8_t *w;
    const int8_t *q;
    const float *d, *s;
    float *y;
    int64_t out;
    int in;
    float scale;
};

/* A stage of the ring: UNITS units a lane, 1024 * UNITS weights, of each row. */
template <class R, int UNITS>
struct direct_stage {
    static constexpr int blocks = 1024 * UNITS / R::F::BLOCK;
    static __host__ __device__ constexpr int bytes(int i) /* of a row in plane i */
    {
        return blocks * R::field(i);
    }
    static __host__ __device__ constexpr int pieces(int i) /* of 16 bytes */
    {
        return (bytes(i) + (R::PLANES > 1 ? 0 : 30)) / 16;
    }
    static __host__ __device__ constexpr int at(int i) /* of plane i in a row */
    {
        int sum = 0;
        for (int k = 0; k < i; k++)
            sum += (16 * pieces(k) + 127) / 128 * 128;
        return sum;
    }
    /*
     * Bits of a row's address that its place in shared memory has, too: a copy in bulk is faster
     * where both start at the same byte of a line of 128. SPREAD: rows are an odd multiple of
     * 32 bytes apart instead, which suits lanes that read different rows.
     */
    static constexpr unsigned phase = R::PLANES > 1 ? 0 : R::SPREAD ? 15 : 127;
    /* From row to row. */
    static constexpr int row = R::PLANES > 1 ? at(R::PLANES)
                               : R::SPREAD   ? (16 * pieces(0) + 4 + 31) / 64 * 64 + 32
                                             : (16 * pieces(0) + 112 + 127) / 128 * 128;
    /* Whether each plane of a stage is a multiple of 16 bytes. */
    static __host__ __device__ constexpr bool even(void)
    {
        for (int i = 0; i < R::PLANES; i++)
            if (bytes(i) % 16 != 0)
                return false;
        return true;
    }
};

/* What a warp copies next, and where. */
template <class R, int UNITS, int ROWS, int STAGES, bool BULK>
struct direct_ring {
    using L = direct_stage<R, UNITS>;
    static constexpr int SLOT = ROWS * L::row;

    const uint8_t *from[R::PLANES];
    uint8_t *slots;
    uint64_t *full; /* of each stage; BULK */
    int row, left, slot, stage, out, stride, in;
    int landed, read_slot;
    uint32_t parity;

    __device__ __forceinline__ int row_bytes(int i) const
    {
        return in / R::F::BLOCK * R::field(i);
    }

    __device__ __forceinline__ void start_row(const uint8_t *w)
    {
        left = in / R::F::BLOCK;
#pragma unroll
        for (int i = 0; i < R::PLANES; i++) {
            from[i] = w + (int64_t)row * row_bytes(i);
            w += (int64_t)out * row_bytes(i);
        }
    }

    __device__ __forceinline__ direct_ring(const struct direct_args &p, uint8_t *smem,
                                           uint64_t *barriers, int first, int row_stride)
        : slots(smem), full(barriers), row(first), slot(0), stage(0), out((int)p.out),
          stride(row_stride), in(p.in), landed(0), read_slot(0), parity(0)
    {
#if DIRECT_BULK
        if (BULK) {
            if (threadIdx.x % 32 == 0)
                for (int i = 0; i < STAGES; i++)
                    kg_mbarrier_init(full + i, 1);
            kg_mbarrier_init_fence();
            __syncwarp();
        }
#endif
        start_row(p.w);
    }

    __device__ __forceinline__ void advance(const uint8_t *w)
    {
        slot = slot + SLOT == STAGES * SLOT ? 0 : slot + SLOT;
        left -= L::blocks;
        if (left <= 0) {
            row += stride;
            start_row(w);
        } else {
#pragma unroll
            for (int i = 0; i < R::PLANES; i++)
                from[i] += L::bytes(i);
        }
    }

    /* The next stage, if there is one. */
    __device__ __forceinline__ void copy(const uint8_t *w)
    {
#if DIRECT_BULK
        if (BULK) {
            if (row < out) {
                copy_in_bulk();
                advance(w);
            }
            return;
        }
#endif
        if (row < out) {
            const bool whole = row + ROWS < out && left >= L::blocks;
#pragma unroll
            for (int i = 0; i < R::PLANES; i++)
                copy_pieces(i, whole);
            advance(w);
        }
        kg_cp_async_commit();
    }

#if DIRECT_BULK
    __device__ __forceinline__ void copy_in_bulk(void)
    {
        const int blocks = min(left, L::blocks), rows = min(ROWS, out - row);
        uint64_t *const barrier = full + stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        if (threadIdx.x % 32 != 0)
            return;
        kg_mbarrier_expect(barrier, (uint32_t)(blocks * (int)R::F::BYTES * rows));
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < rows)
#pragma unroll
                for (int i = 0; i < R::PLANES; i++) {
                    const uint8_t *const start = from[i] + r * row_bytes(i);
                    kg_bulk_load(slots + slot + r * L::row + L::at(i) +
                                     ((unsigned)(uintptr_t)start & L::phase),
                                 start, (uint32_t)(blocks * R::field(i)), barrier);
                }
    }
#endif

    /* Of plane i, 16 bytes a lane. The tensor may end behind a stage that is not whole. */
    __device__ __forceinline__ void copy_pieces(int i, bool whole) const
    {
        const int lane = threadIdx.x % 32;
        for (int r = 0; r < ROWS && row + r < out; r++) {
            const uint8_t *start = from[i] + r * row_bytes(i);
            uint8_t *const to = slots + slot + L::at(i) + r * L::row + 16 * lane +
                                ((uintptr_t)start & L::phase & ~(uintptr_t)15);
            const int before = (int)((uintptr_t)start & 15);
            const int bytes = before + min(left, L::blocks) * R::field(i);
            start += 16 * lane - before;
            for (int k = 0; k < L::pieces(i); k += 32) {
                const int n = whole ? 16 : min(bytes - 16 * (lane + k), 16);
                if (lane + k < L::pieces(i) && n > 0)
                    kg_cp_async_16(to + 16 * k, start + 16 * k, n);
            }
        }
    }

    /* The oldest stage has landed for the whole warp, and nobody reads the one that is copied to
       next. Its place. */
    __device__ __forceinline__ int wait(void)
    {
        const int place = read_slot;
#if DIRECT_BULK
        if (BULK) {
            kg_mbarrier_wait(full + landed, parity);
            landed = landed + 1 == STAGES ? 0 : landed + 1;
            parity ^= landed == 0;
        }
#endif
        if (!BULK || !DIRECT_BULK)
            kg_cp_async_wait<STAGES - 2>();
        __syncwarp();
        read_slot = read_slot + SLOT == STAGES * SLOT ? 0 : read_slot + SLOT;
        return place;
    }
};

template <class W, int STAGES, bool BULK>
__global__ void __launch_bounds__(32 * DIRECT_WARPS, 1)
    direct_kernel(const struct direct_args p)
{
    using R = typename W::R;
    using ring_type = direct_ring<R, W::UNITS, W::ROWS, STAGES, BULK>;
    using L = typename ring_type::L;
    KG_SHARED_DYNAMIC(smem);
    KG_SHARED(uint64_t, landed, [DIRECT_WARPS][STAGES]);
    const int units = p.in / KG_UNIT, out = (int)p.out;
    /* The same in all lanes, as the compiler then knows: it keeps the ring in uniform registers. */
    const int warp = __shfl_sync(KG_WARP_ALL, (int)(threadIdx.x / 32), 0);
    const int chunks = (units + 32 * W::UNITS - 1) / (32 * W::UNITS);
    const int stride = (int)(gridDim.x * (blockDim.x / 32)) * W::ROWS;
    const int first = (warp * (int)gridDim.x + (int)blockIdx.x) * W::ROWS;
    const int at = W::x_bytes(p.in) + warp * STAGES * ring_type::SLOT;
    ring_type ring(p, smem + at, landed[warp], first, stride);
    for (int i = 0; i < STAGES - 1; i++)
        ring.copy(p.w);
    const int64_t m = blockIdx.y; /* row of q */
    ask_for_q(p.q, p.d, W::F::MINIMUM ? p.s : nullptr, p.in, m, 1, (int)threadIdx.x,
              (int)blockDim.x);
    kg_grid_wait();
    kg_grid_release();
    W::load(smem, p.q + m * p.in, p.d + m * units, p.s + m * units, units);
    __syncthreads();
    W work(smem, units);
    for (int row = first; row < out; row += stride) {
        work.begin();
        const unsigned start =
            (unsigned)(uintptr_t)p.w + (unsigned)row * (unsigned)ring.row_bytes(0);
        for (int c = 0; c < chunks; c++) {
            const int slot = at + ring.wait();
            ring.copy(p.w);
            /* Of row r. */
            const auto phase = [&](int r) {
                return (
                    int)((start + (unsigned)(r * ring.row_bytes(0) + c * L::bytes(0))) &
                         L::phase);
            };
            if ((c + 1) * W::UNITS * 32 <= units)
                work.template stage<true>(smem, slot, phase, c);
            else
                work.template stage<false>(smem, slot, phase, c);
        }
        work.end(p, m, row);
    }
}

/* Bytes of shared memory of a block. */
template <class W, int STAGES>
static constexpr int direct_shared(int in, int warps)
{
    return W::x_bytes(in) +
           warps * STAGES * (int)W::ROWS * direct_stage<typename W::R, W::UNITS>::row +
           16;
}

#endif
