/*
 * The FP4 product for few rows: 16 columns (rows of w) by 8 rows of x a block, all of k.
 *
 *   16 warps; warp v owns the partial sums t = v, v + 16, ..., v + 112 of all 128 outputs,
 *   as accumulators of mma.m16n8k16 (w is A, x is B, k in the order of kg_x_pairs).
 *   part[i] of warp v is t = v + 16 i; the halving tree over i (64, 32, 16) stays in
 *   registers, the one over v (8, 4, 2, 1) goes through shared memory.
 *
 * All of the tile's w and codes are on their way to shared memory before anything is computed:
 * at this size the latency of one round trip is as long as the transfer. The first 128
 * groups are a stage of their own, so that work on them overlaps the rest.
 *
 * Order, exactness and the fallbacks: fp4.h. A group that needs its order is summed from
 * the same shared memory by the lanes that own its outputs.
 */
#include "kernels/dsv4/launch.h"

namespace
{

constexpr int COLS = 16, ROWS = 8, WARPS = 16, THREADS = 32 * WARPS;
constexpr int PARTS = KG_DSV4_PARTS / WARPS; /* of a warp */

/* Rows in shared memory are 16 bytes longer than their data: the 8 rows that a warp reads
   together then lie in different banks. */
template <int KIND>
struct layout {
    int w_stride, code_stride, s_stride, factor_stride; /* bytes, bytes, floats, words */
    int codes_at, s_at, factors_at, sums_at, bytes;

    __host__ __device__ explicit layout(int64_t k)
    {
        w_stride = (int)k / 2 + 16;
        code_stride = (int)k + 16;
        s_stride = (int)k / recipe<KIND>::GROUP + 4;
        factor_stride = (int)k / 128 + 1;
        codes_at = COLS * w_stride;
        s_at = codes_at + ROWS * code_stride;
        factors_at = s_at + COLS * s_stride * 4;
        bytes = factors_at + ROWS * factor_stride * 4;
        sums_at = 0; /* over w, when that is done with */
        const int sums_bytes = WARPS * COLS * ROWS * 4;
        bytes = bytes > sums_bytes ? bytes : sums_bytes;
    }
};

/* Copies columns [from, to) of `rows` rows, in bytes and multiples of 16. Row r of the source
   is row first + r of `count`: beyond it zeros are stored. */
__device__ inline void copy_rows(unsigned char *to_shared, int stride,
                                 const uint8_t *source, int64_t row_bytes, int64_t first,
                                 int64_t count, int rows, int from, int to)
{
    const int chunks = (to - from) / 16;
    for (int i = threadIdx.x; i < rows * chunks; i += THREADS) {
        const int r = i / chunks, at = from + i % chunks * 16;
        const bool real = first + r < count;
        kg_cp_async_16(to_shared + r * stride + at,
                       source + (real ? (first + r) * row_bytes + at : 0), real ? 16 : 0);
    }
}

/* The weight scales as f32 and the activation scales as factors; their ranges into `range`,
   which was set to {~0, 0, ~0, 0}. */
template <int KIND>
__device__ inline void load_scales(const struct gemm_args &a, int64_t col0, int64_t row0,
                                   const struct layout<KIND> &l, float *s,
                                   uint32_t *factors, uint32_t range[4])
{
    const int groups = (int)(a.k / recipe<KIND>::GROUP), words = groups / 4;
    uint32_t low = ~0u, high = 0;
    for (int i = threadIdx.x; i < COLS * words; i += THREADS) {
        const int c = i / words, j = i % words * 4;
        const int64_t col = col0 + c < a.n ? col0 + c : a.n - 1;
        const uint32_t word = kg_load_u32(a.ws + col * groups + j);
        for (int e = 0; e < 4; e++) {
            const float value = recipe<KIND>::scale((uint8_t)(word >> 8 * e), a.scale2);
            const uint32_t bits = __float_as_uint(value) & 0x7fffffffu;
            s[c * l.s_stride + j + e] = value;
            low = bits != 0 ? min(low, bits) : low;
            high = max(high, bits);
        }
    }
    low = __reduce_min_sync(KG_WARP_ALL, low);
    high = __reduce_max_sync(KG_WARP_ALL, high);
    if (threadIdx.x % 32 == 0) {
        atomicMin(&range[0], low);
        atomicMax(&range[1], high);
    }
    low = ~0u, high = 0;
    const int blocks = (int)(a.k / 128);
    for (int i = threadIdx.x; i < ROWS * blocks; i += THREADS) {
        const int64_t row = row0 + i / blocks < a.m ? row0 + i / blocks : a.m - 1;
        const float scale = a.scales[row * blocks + i % blocks];
        factors[i / blocks * l.factor_stride + i % blocks] = x_factor(scale);
        low = min(low, scale_bits(scale));
        high = max(high, scale_bits(scale));
    }
    low = __reduce_min_sync(KG_WARP_ALL, low);
    high = __reduce_max_sync(KG_WARP_ALL, high);
    if (threadIdx.x % 32 == 0) {
        atomicMin(&range[2], low);
        atomicMax(&range[3], high);
    }
}

/* Bit 4r: whether this group of row r needs its order. `codes` are the lane's four (or twice
   four) of row lane / 4. */
template <int STEPS>
__device__ inline uint32_t rows_in_order(const uint32_t codes[STEPS])
{
    uint32_t sum = 0, bits = 0;
    for (int h = 0; h < STEPS; h++)
        add_integers(codes[h], &sum, &bits);
    for (int distance = 1; distance <= 2; distance *= 2) {
        sum += __shfl_xor_sync(KG_WARP_ALL, sum, distance);
        bits |= __shfl_xor_sync(KG_WARP_ALL, bits, distance);
    }
    return __ballot_sync(KG_WARP_ALL, needs_order(sum, bits));
}

/* sub * scale of such a group. Out of line, as nearly no group comes here. */
template <int GROUP>
__device__ __noinline__ float rare_group(const uint8_t *codes, const uint8_t *w,
                                         uint32_t factor)
{
    return ordered_group<GROUP>(codes, w) *
           (__uint_as_float(factor & 0xffff0000u) * 0x1p-120f);
}

template <int KIND>
__global__ void __launch_bounds__(THREADS) rows8_kernel(struct gemm_args a)
{
    constexpr int GROUP = recipe<KIND>::GROUP, STEPS = recipe<KIND>::STEPS;
    KG_SHARED_DYNAMIC(shared);
    KG_SHARED(uint32_t, range, [7]); /* and w_tables */
    const struct layout<KIND> l(a.k);
    unsigned char *codes = shared + l.codes_at;
    float *s = (float *)(shared + l.s_at);
    uint32_t *factors = (uint32_t *)(shared + l.factors_at);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int g = lane / 4, q = lane % 4;
    const int64_t col0 = (int64_t)blockIdx.x * COLS, row0 = (int64_t)blockIdx.y * ROWS;
    const int k = (int)a.k, groups = k / GROUP;
    const int stage = min(k, KG_DSV4_PARTS * GROUP);

    copy_rows(shared, l.w_stride, a.w, k / 2, col0, a.n, COLS, 0, stage / 2);
    copy_rows(codes, l.code_stride, a.codes, k, row0, a.m, ROWS, 0, stage);
    kg_cp_async_commit();
    copy_rows(shared, l.w_stride, a.w, k / 2, col0, a.n, COLS, stage / 2, k / 2);
    copy_rows(codes, l.code_stride, a.codes, k, row0, a.m, ROWS, stage, k);
    kg_cp_async_commit();
    if (threadIdx.x < 4)
        range[threadIdx.x] = threadIdx.x % 2 == 0 ? ~0u : 0u;
    store_w_tables(range + 4);
    __syncthreads();
    load_scales<KIND>(a, col0, row0, l, s, factors, range);
    kg_cp_async_wait<1>();
    __syncthreads();

    const struct ranges r = {range[0], range[1], range[2], range[3]};
    if (!scale_moves(r)) {
        kg_cp_async_wait<0>();
        for (int i = warp; i < COLS * ROWS; i += WARPS) {
            const int64_t row = row0 + i / COLS, col = col0 + i % COLS;
            if (row >= a.m || col >= a.n)
                continue;
            const float y = ordered_output<KIND>(a, row, col);
            if (lane == 0)
                a.y[row * a.n + col] = y;
        }
        return;
    }

    const unsigned char *my_w = shared + g * l.w_stride + q * 2;
    const unsigned char *my_codes = codes + g * l.code_stride + q * 4;
    const struct w_tables tables = {range[4], range[5], range[6]};
    float part[PARTS][4] = {};
    for (int j0 = 0; j0 < groups; j0 += KG_DSV4_PARTS) {
        if (j0 == KG_DSV4_PARTS) {
            kg_cp_async_wait<0>();
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            const int j = j0 + warp + WARPS * i;
            if (j >= groups)
                break;
            float d[4];
            uint32_t x4[STEPS], look = 0;
            const uint32_t factor = factors[g * l.factor_stride + j * GROUP / 128];
#pragma unroll
            for (int h = 0; h < STEPS; h++) {
                const unsigned char *w = my_w + j * (GROUP / 2) + h * 8;
                uint32_t top[2], bottom[2], x[2];
                x4[h] = kg_load_u32(my_codes + j * GROUP + h * 16);
                look |= needs_look<GROUP>(x4[h]);
                kg_x_pairs(x4[h], factor, x);
                w_pairs(tables, kg_load_u16(w), top);
                w_pairs(tables, kg_load_u16(w + 8 * l.w_stride), bottom);
                const uint32_t tile[4] = {top[0], bottom[0], top[1], bottom[1]};
                if (h == 0)
                    kg_mma_bf16_from(d, tile, x, 0.0f);
                else
                    kg_mma_bf16_16816(d, tile, x);
            }
            if (__any_sync(KG_WARP_ALL, look != 0)) {
                const uint32_t in_order = rows_in_order<STEPS>(x4);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int row = 2 * q + e % 2, col = g + e / 2 * 8;
                    if ((in_order >> 4 * row & 1u) != 0)
                        d[e] = rare_group<GROUP>(
                            codes + row * l.code_stride + j * GROUP,
                            shared + col * l.w_stride + j * (GROUP / 2),
                            factors[row * l.factor_stride + j * GROUP / 128]);
                }
            }
            const float s0 = s[g * l.s_stride + j], s8 = s[(g + 8) * l.s_stride + j];
            part[i][0] = add_term<KIND>(part[i][0], d[0], s0);
            part[i][1] = add_term<KIND>(part[i][1], d[1], s0);
            part[i][2] = add_term<KIND>(part[i][2], d[2], s8);
            part[i][3] = add_term<KIND>(part[i][3], d[3], s8);
        }
    }

#pragma unroll
    for (int h = PARTS / 2; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            for (int e = 0; e < 4; e++)
                part[i][e] = part[i][e] + part[i + h][e];
    __syncthreads(); /* w is done with */
    float *sums = (float *)(shared + l.sums_at);
    for (int e = 0; e < 4; e++)
        sums[(warp * ROWS + 2 * q + e % 2) * COLS + g + e / 2 * 8] = part[0][e];
    __syncthreads();
    if (threadIdx.x < ROWS * COLS) {
        float tree[WARPS];
#pragma unroll
        for (int v = 0; v < WARPS; v++)
            tree[v] = sums[v * ROWS * COLS + threadIdx.x];
#pragma unroll
        for (int h = WARPS / 2; h > 0; h /= 2)
            for (int v = 0; v < h; v++)
                tree[v] = tree[v] + tree[v + h];
        const int64_t row = row0 + threadIdx.x / COLS, col = col0 + threadIdx.x % COLS;
        if (row < a.m && col < a.n)
            a.y[row * a.n + col] = tree[0];
    }
}

} // namespace

template <int KIND>
int kg_dsv4_rows8(const struct gemm_args &args, struct CUstream_st *stream)
{
    const struct layout<KIND> l(args.k);
    const unsigned across = blocks_for(args.n, COLS), down = blocks_for(args.m, ROWS);
    if (down > 65535)
        return KG_E_INVALID;
    return KG_LAUNCH(stream, dim3(across, down), THREADS, (size_t)l.bytes,
                     rows8_kernel<KIND>, args);
}

template int kg_dsv4_rows8<KG_DSV4_NVFP4>(const struct gemm_args &, struct CUstream_st *);
template int kg_dsv4_rows8<KG_DSV4_MXFP4>(const struct gemm_args &, struct CUstream_st *);
