/*
 * The int8 GEMM: y[t][o] = sum_k w[o][k] * x[t][k] through mma.sync m16n8k32 (k16 where 16
 * weights share a scale), with quantized activations.
 *
 *   w [out][in] of a source (source.h)    y [m][out] f32
 *   activations, XG = 1: q [m][in] int8, d and s [m][in/32] f32 (q8_1, ops/matvec.h)
 *                XG = 2: packed E2M1 [m][in/2], UE4M3 scales [m][in/16] (ops/gemm.h)
 *
 * Arithmetic of one output, the same for every tile width and layout. A segment is a run
 * of units (32 weights) of one row. Its sum starts at 0 and takes the units in ascending
 * order; a unit of scales a[g], minimum b, activation scale d (of the group: XG = 2), s:
 *
 *   for each group g, in order:   acc = fma(d, fl(a[g] * dot_g), acc)
 *   then, if there is a minimum:  acc = fma(b, s, acc)
 *
 * dot_g is the exact integer dot product. fl(a * dot) is one fma: the accumulators of the
 * tensor core start at MAGIC = 1.5 * 2^23, whose bits plus an integer below 2^22 are the
 * float MAGIC + dot, and fma(a, MAGIC + dot, -a * MAGIC) = fl(a * dot) as long as a * MAGIC
 * is exact, which it is: a scale of any type has at most 19 significant bits. That saves a
 * conversion per output and group, a third of the arithmetic.
 *
 * Tile form: one segment, the whole row. Stream-K: the slabs (SLAB weights) of all tiles,
 * tile after tile, are cut into `workers` runs of equal length (floor(total * i / workers));
 * a tile that a run ends in has several segments, whose sums fixup adds in ascending k,
 * ((s0 + s1) + s2) + ... So the tile form is stream-K with one worker a tile.
 *
 * A block of 8 warps computes 128 rows x BT tokens. Raw bytes of weights and activations
 * come by cp.async, RING slabs deep; every 64 weights of each row are unpacked to int8 in
 * shared memory, one step ahead of the tensor cores, two buffers, one barrier a step.
 */
#ifndef KGATE_KERNELS_GEMM_INT8_H
#define KGATE_KERNELS_GEMM_INT8_H

#include <type_traits>

#include "kernels/gemm/source.h"

struct gemm_int8_args {
    const uint8_t *w[2];  /* streams of the source, 16-byte aligned */
    int64_t row_bytes[2]; /* of each stream */
    const int8_t *q;      /* q8_1 codes, or packed E2M1 */
    const float *d, *s;
    const uint8_t *x_scale;   /* XG = 2: UE4M3 */
    const float *token_scale; /* multiplies the token's results at the end; or NULL */
    float *y;
    float *partial; /* [workers][2][BM * BT], of tiles with several segments */
    int64_t in, out, m;
    int64_t row_tiles, token_tiles;
    int64_t workers;
    int units, slabs; /* of a row: 32 weights; SLAB weights, the last maybe partly */
};

enum { GEMM_BM = 128, GEMM_THREADS = 256, GEMM_STEP = 64, GEMM_PITCH = GEMM_STEP + 16 };

#define GEMM_MAGIC_BITS 0x4b400000 /* of 12582912.0f */
#define GEMM_MAGIC 12582912.0f

/* acc + d * fl(a * dot): the one place where a product of integers becomes a float. */
static __device__ inline float gemm_fold(float acc, int biased, float a, float c, float d)
{
    return fmaf(d, fmaf(a, __int_as_float(biased), c), acc);
}

/* First slab of worker i. */
static __host__ __device__ inline int64_t gemm_begin(int64_t total, int64_t i,
                                                     int64_t workers)
{
    return total / workers * i + total % workers * i / workers;
}

static constexpr __host__ __device__ int gemm_min(int a, int b)
{
    return a < b ? a : b;
}

/* Sizes of everything in shared memory, in bytes. */
template <class S, int BT_, int XG_>
struct gemm_shape {
    typedef typename S::format T;
    enum {
        BT = BT_,
        XG = XG_,
        WARPS_T = BT == 128  ? 4
                  : BT == 64 ? 2
                             : 1, /* warps side by side along tokens */
        WARPS_M = 8 / WARPS_T,
        MI = GEMM_BM / WARPS_M / 16,
        NI = BT / WARPS_T / 8,
        STEPS = S::SLAB / GEMM_STEP, /* in a slab */
        GROUPS = 32 / T::GROUP,
        RING = BT == 16 && T::BYTES != 210 ? 3 : 2,
        AHEAD = XG == 2    ? 1
                : BT == 16 ? (RING - 1) * STEPS
                           : 2,
        XRING = AHEAD + 1,
    };
    static_assert(AHEAD <= (RING - 1) * STEPS, "a slab would be awaited before its copy");
    static constexpr __host__ __device__ int chunks(int s)
    {
        return (S::slab_bytes(s) + (S::align(s) < 16 ? 16 - S::align(s) : 0) + 15) / 16;
    }
    /* an odd number of chunks, so that rows fall on different banks; past the end of a row
       load_words may read 2 bytes more */
    static constexpr __host__ __device__ int pitch(int s)
    {
        return ((chunks(s) + (S::align(s) == 2 ? 1 : 0)) | 1) * 16;
    }
    enum {
        RAW0 = GEMM_BM * pitch(0),
        RAW = RAW0 + (S::STREAMS == 2 ? GEMM_BM * pitch(1) : 0),
        W_AT = RING * RAW,
        X_AT = W_AT + 2 * GEMM_BM * GEMM_PITCH,
        A_AT = X_AT + XRING * BT * GEMM_PITCH,
        B_AT = A_AT + 2 * 2 * GROUPS * GEMM_BM * 8,
        D_AT = B_AT + (T::MINIMUM ? 2 * 2 * GEMM_BM * 4 : 0),
        S_AT = D_AT + XRING * 2 * XG * BT * 4,
        BYTES = S_AT + (T::MINIMUM ? XRING * 2 * BT * 4 : 0),
    };
};

/* Starts the copy of one slab of 128 rows of stream ST: four threads a row. Rows past the
   end become zeros; bytes past the end of the tensor are not read. A tile with a row behind
   it needs no such care: what a copy reads too much is less than that row. */
template <class S, class H, int ST>
static __device__ inline void gemm_copy_stream(const gemm_int8_args &g, unsigned char *to,
                                               int64_t row0, int slab)
{
    constexpr int n = H::chunks(ST), pitch = H::pitch(ST), slab_bytes = S::slab_bytes(ST);
    const int chunk0 = threadIdx.x % 4, r = threadIdx.x / 4;
    const int64_t start = (row0 + r) * g.row_bytes[ST] + (int64_t)slab * slab_bytes,
                  end = g.out * g.row_bytes[ST];
    to += r * pitch + 16 * chunk0;
    if (row0 + GEMM_BM < g.out && g.row_bytes[ST] >= 16 * n) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t at = start + h * 64 * g.row_bytes[ST];
            if (S::align(ST) < 16)
                at &= ~(int64_t)15;
            const uint8_t *from = g.w[ST] + at + 16 * chunk0;
#pragma unroll
            for (int j = 0; j < (n + 3) / 4; j++)
                if (4 * j + 3 < n || chunk0 + 4 * j < n)
                    kg_cp_async_16(to + h * 64 * pitch + 64 * j, from + 64 * j);
        }
        return;
    }
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
        int64_t at = start + h * 64 * g.row_bytes[ST];
        if (S::align(ST) < 16)
            at &= ~(int64_t)15;
        const int left =
            row0 + r + 64 * h < g.out ? (int)min((int64_t)(16 * n), end - at) : 0;
        const uint8_t *from = g.w[ST] + at;
#pragma unroll 1
        for (int chunk = chunk0; chunk < n; chunk += 4)
            kg_cp_async_16(to + h * 64 * pitch + 16 * (chunk - chunk0), from + 16 * chunk,
                           max(0, min(16, left - 16 * chunk)));
    }
}

template <class S, class H>
static __device__ inline void gemm_copy_slab(const gemm_int8_args &g, unsigned char *smem,
                                             int64_t row0, int slab)
{
    unsigned char *raw = smem + slab % H::RING * H::RAW;
    gemm_copy_stream<S, H, 0>(g, raw, row0, slab);
    if (S::STREAMS == 2)
        gemm_copy_stream<S, H, S::STREAMS - 1>(g, raw + H::RAW0, row0, slab);
}

/* Starts the copy of one step of q8_1 activations: codes [BT][64], scales [2][BT]. */
template <class H>
static __device__ inline void gemm_copy_x(const gemm_int8_args &g, unsigned char *smem,
                                          int64_t t0, int step)
{
    typedef typename H::T T;
    const int slot = step % H::XRING;
    unsigned char *codes = smem + H::X_AT + slot * H::BT * GEMM_PITCH;
#pragma unroll
    for (int j = 0; j < (H::BT + 63) / 64; j++) {
        const int t = threadIdx.x / 4 + 64 * j, chunk = threadIdx.x % 4;
        const bool there = t0 + t < g.m && step * 2 + chunk / 2 < g.units;
        if (H::BT % 64 == 0 || t < H::BT)
            kg_cp_async_16(codes + t * GEMM_PITCH + chunk * 16,
                           g.q + (t0 + t) * g.in + step * GEMM_STEP + chunk * 16,
                           there ? 16 : 0);
    }
    const int t = threadIdx.x / 2, u = threadIdx.x % 2;
    if (H::BT == 128 || t < H::BT) {
        const bool there = t0 + t < g.m && step * 2 + u < g.units;
        const int64_t at = (t0 + t) * g.units + step * 2 + u;
        const int to = (slot * 2 + u) * H::BT + t;
        kg_cp_async_4((float *)(smem + H::D_AT) + to, g.d + at, there ? 4 : 0);
        if (T::MINIMUM)
            kg_cp_async_4((float *)(smem + H::S_AT) + to, g.s + at, there ? 4 : 0);
    }
}

/* Unpacks one step of E2M1 activations straight from global memory: byte j of a unit has
   elements 2j (low nibble) and 2j + 1. */
template <class H>
static __device__ inline void gemm_unpack_x(const gemm_int8_args &g, unsigned char *smem,
                                            int64_t t0, int step)
{
    const int slot = step % H::XRING;
    const int t = threadIdx.x / 2, u = threadIdx.x % 2;
    if (t >= H::BT)
        return;
    uint32_t c[8] = {};
    float scale[2] = {};
    if (t0 + t < g.m && step * 2 + u < g.units) {
        const int64_t at = (t0 + t) * g.units + step * 2 + u;
        const uint4 v = kg_load_uint4(g.q + at * 16);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t even, odd;
            lookup16(words[j], E2M1_TABLE, &even, &odd);
            c[2 * j] = __byte_perm(even, odd, 0x5140u);
            c[2 * j + 1] = __byte_perm(even, odd, 0x7362u);
        }
        scale[0] = ue4m3_half(g.x_scale[at * 2]);
        scale[1] = ue4m3_half(g.x_scale[at * 2 + 1]);
    }
    uint4 *to = (uint4 *)(smem + H::X_AT + (slot * H::BT + t) * GEMM_PITCH + u * 32);
    float *scales = (float *)(smem + H::D_AT) + (slot * 2 + u) * 2 * H::BT + t;
    to[0] = make_uint4(c[0], c[1], c[2], c[3]);
    to[1] = make_uint4(c[4], c[5], c[6], c[7]);
    scales[0] = scale[0];
    scales[H::BT] = scale[1];
}

/* Slot of row r's scale among 128: rows r and r + 8 of sixteen side by side. */
static __device__ inline int gemm_scale_slot(int r)
{
    return (r & ~15) | (r & 7) << 1 | (r >> 3 & 1);
}

/* Unpacks step `step` of the slab ring: one unit a thread. */
template <class S, class H>
static __device__ inline void gemm_unpack_w(const gemm_int8_args &g, unsigned char *smem,
                                            int64_t row0, int step)
{
    typedef typename H::T T;
    const int r = threadIdx.x % GEMM_BM, u = threadIdx.x / GEMM_BM;
    if (step * 2 + u >= g.units)
        return;
    const int slab = step / H::STEPS;
    const int part = step % H::STEPS * 2 + u;
    const unsigned char *p[2];
    for (int s = 0; s < 2; s++) {
        const uint32_t at =
            (uint32_t)(row0 + r) * (uint32_t)g.row_bytes[s < S::STREAMS ? s : 0] +
            (uint32_t)slab * (uint32_t)S::slab_bytes(s);
        p[s] = smem + slab % H::RING * H::RAW + (s ? H::RAW0 : 0) +
               r * H::pitch(s < S::STREAMS ? s : 0) + (S::align(s) < 16 ? at % 16 : 0);
    }
    if (std::is_same<S, from_cutlass>::value)
        p[1] = g.w[1] + (row0 / 128 * (g.units / 2) + slab * (S::SLAB / 64)) * 512 +
               r % 32 * 16 + r / 32 * 4;
    struct unit32 unit;
    S::unpack(p[0], p[1], part, &unit);

    const int buffer = step & 1;
    uint4 *to = (uint4 *)(smem + H::W_AT + (buffer * GEMM_BM + r) * GEMM_PITCH + u * 32);
    to[0] = make_uint4(unit.c[0], unit.c[1], unit.c[2], unit.c[3]);
    to[1] = make_uint4(unit.c[4], unit.c[5], unit.c[6], unit.c[7]);
    const int slot = gemm_scale_slot(r);
    for (int group = 0; group < H::GROUPS; group++) {
        float2 pair;
        pair.x = unit.a[group];
        pair.y = -(unit.a[group] * GEMM_MAGIC);
        ((float2 *)(smem +
                    H::A_AT))[((buffer * 2 + u) * H::GROUPS + group) * GEMM_BM + slot] =
            pair;
    }
    if (T::MINIMUM)
        ((float *)(smem + H::B_AT))[(buffer * 2 + u) * GEMM_BM + slot] = unit.b[0];
}

/* The products of one unit: acc[mi][ni] as device/mma.h lays them out. */
template <class H>
static __device__ inline void gemm_multiply(const unsigned char *smem, int64_t step,
                                            int u, int warp_m, int warp_t,
                                            float acc[H::MI][H::NI][4])
{
    typedef typename H::T T;
    const int lane = threadIdx.x % 32, gid = lane / 4, tig = lane % 4;
    const int slot = step % H::XRING, buffer = step & 1;
    const unsigned char *x =
        smem + H::X_AT + (slot * H::BT + warp_t * H::NI * 8) * GEMM_PITCH + u * 32 +
        ((lane >> 4) * 8 + lane % 8) * GEMM_PITCH + (lane >> 3 & 1) * 16;
    uint32_t b[H::NI][2];
    float2 d[H::XG][H::NI], s[H::NI];
#pragma unroll
    for (int ni = 0; ni < H::NI; ni += 2) {
        uint32_t r[4];
        kg_ldmatrix_x4(r, x + ni * 8 * GEMM_PITCH);
        b[ni][0] = r[0];
        b[ni][1] = r[1];
        b[ni + 1][0] = r[2];
        b[ni + 1][1] = r[3];
    }
#pragma unroll
    for (int ni = 0; ni < H::NI; ni++) {
        const int t = warp_t * H::NI * 8 + ni * 8 + 2 * tig;
#pragma unroll
        for (int g = 0; g < H::XG; g++)
            d[g][ni] = *(const float2 *)((const float *)(smem + H::D_AT) +
                                         ((slot * 2 + u) * H::XG + g) * H::BT + t);
        if (T::MINIMUM)
            s[ni] = *(const float2 *)((const float *)(smem + H::S_AT) +
                                      (slot * 2 + u) * H::BT + t);
    }
#pragma unroll
    for (int mi = 0; mi < H::MI; mi++) {
        const int row = (warp_m * H::MI + mi) * 16;
        uint32_t a[4];
        kg_ldmatrix_x4(a, smem + H::W_AT + (buffer * GEMM_BM + row) * GEMM_PITCH +
                              u * 32 + ((lane >> 3 & 1) * 8 + lane % 8) * GEMM_PITCH +
                              (lane >> 4) * 16);
#pragma unroll
        for (int g = 0; g < H::GROUPS; g++) {
            const float4 v = kg_load_float4((const float2 *)(smem + H::A_AT) +
                                            ((buffer * 2 + u) * H::GROUPS + g) * GEMM_BM +
                                            row + 2 * gid);
#pragma unroll
            for (int ni = 0; ni < H::NI; ni++) {
                int dot[4];
                if (T::GROUP == 32)
                    kg_mma_s8_16832_from(dot, a, b[ni], GEMM_MAGIC_BITS);
                else
                    kg_mma_s8_16816_from(dot, a + 2 * g, b[ni] + g, GEMM_MAGIC_BITS);
                const float2 dx = d[H::XG == 2 ? g : 0][ni];
                float *to = acc[mi][ni];
                to[0] = gemm_fold(to[0], dot[0], v.x, v.y, dx.x);
                to[1] = gemm_fold(to[1], dot[1], v.x, v.y, dx.y);
                to[2] = gemm_fold(to[2], dot[2], v.z, v.w, dx.x);
                to[3] = gemm_fold(to[3], dot[3], v.z, v.w, dx.y);
            }
        }
        if (T::MINIMUM) {
            const float2 minimum =
                *(const float2 *)((const float *)(smem + H::B_AT) +
                                  (buffer * 2 + u) * GEMM_BM + row + 2 * gid);
#pragma unroll
            for (int ni = 0; ni < H::NI; ni++) {
                float *to = acc[mi][ni];
                to[0] = fmaf(minimum.x, s[ni].x, to[0]);
                to[1] = fmaf(minimum.x, s[ni].y, to[1]);
                to[2] = fmaf(minimum.y, s[ni].x, to[2]);
                to[3] = fmaf(minimum.y, s[ni].y, to[3]);
            }
        }
    }
}

/* The segment of slabs [slab0, slab1) of one tile, into acc. */
template <class S, class H>
static __device__ inline void
gemm_segment(const gemm_int8_args &g, unsigned char *smem, int64_t row0, int64_t t0,
             int slab0, int slab1, int warp_m, int warp_t, float acc[H::MI][H::NI][4])
{
    const int first = slab0 * H::STEPS;
    const int end = min(slab1 * H::STEPS, (g.units + 1) / 2);
    int slab = slab0;
    for (int i = 0; i < H::AHEAD; i++) {
        const int until = slab0 + (i < H::AHEAD - 1 ? gemm_min(i + 1, H::RING) : H::RING);
        for (; slab < min(until, slab1); slab++)
            gemm_copy_slab<S, H>(g, smem, row0, slab);
        if (H::XG == 1 && first + i < end)
            gemm_copy_x<H>(g, smem, t0, first + i);
        kg_cp_async_commit();
    }
    kg_cp_async_wait<H::AHEAD - 1>();
    __syncthreads();
    gemm_unpack_w<S, H>(g, smem, row0, first);
    if (H::XG == 2)
        gemm_unpack_x<H>(g, smem, t0, first);
    for (int step = first; step < end; step++) {
        kg_cp_async_wait<H::AHEAD - 1>();
        __syncthreads();
        const int next = step + 1;
        if (next % H::STEPS == 0 && slab < slab1)
            gemm_copy_slab<S, H>(g, smem, row0, slab++);
        if (H::XG == 1 && step + H::AHEAD < end)
            gemm_copy_x<H>(g, smem, t0, step + H::AHEAD);
        kg_cp_async_commit();
        if (next < end) {
            gemm_unpack_w<S, H>(g, smem, row0, next);
            if (H::XG == 2)
                gemm_unpack_x<H>(g, smem, t0, next);
        }
        gemm_multiply<H>(smem, step, 0, warp_m, warp_t, acc);
        if (step * 2 + 1 < g.units)
            gemm_multiply<H>(smem, step, 1, warp_m, warp_t, acc);
    }
    kg_cp_async_wait<0>();
    __syncthreads();
}

/* Stores a tile: to[t * stride + r], for r < rows and t < tokens. */
template <class H>
static __device__ inline void gemm_store(float *to, int64_t stride, int rows, int tokens,
                                         const float *token_scale, int warp_m, int warp_t,
                                         const float acc[H::MI][H::NI][4])
{
    const int lane = threadIdx.x % 32;
    const int r0 = warp_m * H::MI * 16 + lane / 4;
    const int t0 = warp_t * H::NI * 8 + 2 * (lane % 4);
#pragma unroll
    for (int ni = 0; ni < H::NI; ni++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int t = t0 + ni * 8 + e;
            if (t >= tokens)
                continue;
            const float scale = token_scale ? token_scale[t] : 1.0f;
            float *column = to + t * stride;
#pragma unroll
            for (int mi = 0; mi < H::MI; mi++) {
                const int r = r0 + mi * 16;
                if (r < rows)
                    column[r] = acc[mi][ni][e] * scale;
                if (r + 8 < rows)
                    column[r + 8] = acc[mi][ni][e + 2] * scale;
            }
        }
    }
}

template <class S, int BT, int XG>
__global__ void __launch_bounds__(GEMM_THREADS, 2)
    gemm_int8_kernel(const gemm_int8_args g)
{
    typedef gemm_shape<S, BT, XG> H;
    KG_SHARED_DYNAMIC(smem);
    const int warp = threadIdx.x / 32;
    const int warp_m = warp / H::WARPS_T, warp_t = warp % H::WARPS_T;
    const int64_t total = g.row_tiles * g.token_tiles * g.slabs;
    const int64_t begin = gemm_begin(total, blockIdx.x, g.workers);
    const int64_t end = gemm_begin(total, (int64_t)blockIdx.x + 1, g.workers);

    for (int64_t at = begin; at < end;) {
        const int64_t tile = at / g.slabs;
        const int slab0 = (int)(at % g.slabs);
        const int slab1 = (int)min((int64_t)g.slabs, slab0 + end - at);
        const int64_t row0 = tile / g.token_tiles * GEMM_BM;
        const int64_t t0 = tile % g.token_tiles * BT;
        float acc[H::MI][H::NI][4] = {};
        gemm_segment<S, H>(g, smem, row0, t0, slab0, slab1, warp_m, warp_t, acc);
        if (slab1 - slab0 == g.slabs)
            gemm_store<H>(
                g.y + t0 * g.out + row0, g.out, (int)min((int64_t)GEMM_BM, g.out - row0),
                (int)min((int64_t)BT, g.m - t0),
                g.token_scale ? g.token_scale + t0 : nullptr, warp_m, warp_t, acc);
        else
            gemm_store<H>(g.partial +
                              ((int64_t)blockIdx.x * 2 + (at != begin)) * GEMM_BM * BT,
                          GEMM_BM, GEMM_BM, BT, nullptr, warp_m, warp_t, acc);
        at += slab1 - slab0;
    }
}

/* Adds the segments of the tiles that have several. One block a tile. */
template <int BT>
__global__ void gemm_int8_fixup_kernel(const gemm_int8_args g)
{
    const int64_t slabs = g.slabs;
    const int64_t total = g.row_tiles * g.token_tiles * slabs;
    const int64_t tile = blockIdx.x;
    /* the last worker that begins at or before the first and the last slab of the tile */
    int64_t first = 0, last = 0;
    for (int64_t step = (int64_t)1 << 30; step > 0; step /= 2) {
        if (first + step < g.workers &&
            gemm_begin(total, first + step, g.workers) <= tile * slabs)
            first += step;
        if (last + step < g.workers &&
            gemm_begin(total, last + step, g.workers) < (tile + 1) * slabs)
            last += step;
    }
    if (first == last)
        return;
    const int64_t row0 = tile / g.token_tiles * GEMM_BM;
    const int64_t t0 = tile % g.token_tiles * BT;
    for (int i = threadIdx.x; i < GEMM_BM * BT; i += GEMM_THREADS) {
        const int r = i % GEMM_BM, t = i / GEMM_BM;
        if (row0 + r >= g.out || t0 + t >= g.m)
            continue;
        float sum = 0.0f;
        for (int64_t w = first; w <= last; w++) {
            const int64_t begin = gemm_begin(total, w, g.workers);
            if (begin == gemm_begin(total, w + 1, g.workers))
                continue; /* more workers than slabs: this one had none */
            const int64_t slot = w * 2 + (begin < tile * slabs ? 1 : 0);
            const float v = g.partial[slot * GEMM_BM * BT + i];
            sum = w == first ? v : sum + v;
        }
        if (g.token_scale)
            sum *= g.token_scale[t0 + t];
        g.y[(t0 + t) * g.out + row0 + r] = sum;
    }
}

#endif
