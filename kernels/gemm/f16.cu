/*
 * The f16 mirror: weights dequantized once to half precision, products on f16 tensor cores.
 *
 *   mirror_f16   mirror[i] = f16(f32 value of weight i), to nearest even (formats.h)
 *   to_f16       h[i] = f16(x[i]), likewise; beyond 65504 it is infinite
 *   q8_to_f16    h[t][k] = f16(fl(d[t][k / 32] * q[t][k])), of q8_1 codes
 *   f16          y[t][o] = sum_k mirror[o][k] * h[t][k], products exact, added in f32 by
 *                mma.sync m16n8k16, 16 values of k at a time in ascending order. How the
 *                hardware adds the 16 is not documented: results agree within a bound.
 *
 * A block of 8 warps computes 128 rows x BT tokens; STAGES steps of 64 values are under way by
 * cp.async. Rows and tokens past the end, and k past the end, are zeros in shared memory.
 */
#include "kernels/gemm/launch.h"

enum { F16_STEP = 64, F16_PITCH = 2 * F16_STEP + 16, F16_STAGES = 3 };

template <int BT>
struct f16_shape {
    enum {
        WARPS_T = BT == 128  ? 4
                  : BT == 64 ? 2
                             : 1,
        WARPS_M = 8 / WARPS_T,
        MI = GEMM_BM / WARPS_M / 16,
        NI = BT / WARPS_T / 8,
        STAGE = (GEMM_BM + BT) * F16_PITCH,
        BYTES = F16_STAGES * STAGE,
    };
};

struct f16_args {
    const uint8_t *w, *x; /* halves */
    float *y;
    int64_t in, out, m;
};

/* Starts the copy of one step: 8 chunks a row, weights first, then tokens. */
template <int BT>
static __device__ inline void f16_copy(const f16_args &g, unsigned char *stage,
                                       int64_t row0, int64_t t0, int step)
{
    const int chunk = threadIdx.x % 8;
    const int64_t k = (int64_t)step * F16_STEP + chunk * 8;
#pragma unroll
    for (int j = 0; j < (GEMM_BM + BT + 31) / 32; j++) {
        const int r = threadIdx.x / 8 + 32 * j;
        if (r >= GEMM_BM + BT)
            continue;
        const bool weight = r < GEMM_BM;
        const int64_t row = weight ? row0 + r : t0 + r - GEMM_BM;
        const bool there = row < (weight ? g.out : g.m) && k < g.in;
        const uint8_t *from = weight ? g.w : g.x;
        kg_cp_async_16(stage + r * F16_PITCH + chunk * 16,
                       there ? from + (row * g.in + k) * 2 : from, there ? 16 : 0);
    }
}

template <int BT>
static __global__ void __launch_bounds__(GEMM_THREADS, 2) f16_kernel(const f16_args g)
{
    typedef f16_shape<BT> H;
    KG_SHARED_DYNAMIC(smem);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / H::WARPS_T, warp_t = warp % H::WARPS_T;
    const int64_t t0 = (int64_t)blockIdx.x * BT, row0 = (int64_t)blockIdx.y * GEMM_BM;
    const int steps = (int)((g.in + F16_STEP - 1) / F16_STEP);
    float acc[H::MI][H::NI][4] = {};

    for (int i = 0; i < F16_STAGES - 1; i++) {
        if (i < steps)
            f16_copy<BT>(g, smem + i * H::STAGE, row0, t0, i);
        kg_cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
        kg_cp_async_wait<F16_STAGES - 2>();
        __syncthreads();
        const int ahead = step + F16_STAGES - 1;
        if (ahead < steps)
            f16_copy<BT>(g, smem + ahead % F16_STAGES * H::STAGE, row0, t0, ahead);
        kg_cp_async_commit();
        const unsigned char *w =
            smem + step % F16_STAGES * H::STAGE +
            (warp_m * H::MI * 16 + (lane >> 3 & 1) * 8 + lane % 8) * F16_PITCH +
            (lane >> 4) * 16;
        const unsigned char *x =
            smem + step % F16_STAGES * H::STAGE +
            (GEMM_BM + warp_t * H::NI * 8 + (lane >> 4) * 8 + lane % 8) * F16_PITCH +
            (lane >> 3 & 1) * 16;
#pragma unroll
        for (int k = 0; k < F16_STEP / 16; k++) {
            uint32_t b[H::NI][2];
#pragma unroll
            for (int ni = 0; ni < H::NI; ni += 2) {
                uint32_t r[4];
                kg_ldmatrix_x4(r, x + ni * 8 * F16_PITCH + k * 32);
                b[ni][0] = r[0];
                b[ni][1] = r[1];
                b[ni + 1][0] = r[2];
                b[ni + 1][1] = r[3];
            }
#pragma unroll
            for (int mi = 0; mi < H::MI; mi++) {
                uint32_t a[4];
                kg_ldmatrix_x4(a, w + mi * 16 * F16_PITCH + k * 32);
#pragma unroll
                for (int ni = 0; ni < H::NI; ni++)
                    kg_mma_f16_16816(acc[mi][ni], a, b[ni]);
            }
        }
    }
    kg_cp_async_wait<0>();
    gemm_store<H>(g.y + t0 * g.out + row0, g.out,
                  (int)min((int64_t)GEMM_BM, g.out - row0),
                  (int)min((int64_t)BT, g.m - t0), nullptr, warp_m, warp_t, acc);
}

template <int BT>
static int f16_launch(const f16_args &g, struct CUstream_st *stream)
{
    const dim3 grid((unsigned)((g.m + BT - 1) / BT),
                    (unsigned)((g.out + GEMM_BM - 1) / GEMM_BM));
    if (grid.y > 65535)
        return KG_E_UNSUPPORTED;
    return KG_LAUNCH(stream, grid, GEMM_THREADS, f16_shape<BT>::BYTES, (f16_kernel<BT>),
                     g);
}

int gemm_f16(const void *mirror, const void *h, float *y, int64_t in, int64_t out,
             int64_t m, struct CUstream_st *stream)
{
    KG_TRY(check_product(in, out, m, 32));
    if (in == 0)
        return KG_E_INVALID;
    if (out == 0 || m == 0)
        return KG_OK;
    if (!pointer_fits(mirror, 1, 16) || !pointer_fits(h, 1, 16) || !pointer_fits(y, 1, 4))
        return KG_E_INVALID;
    const f16_args g = {(const uint8_t *)mirror, (const uint8_t *)h, y, in, out, m};
    return m <= 16   ? f16_launch<16>(g, stream)
           : m <= 64 ? f16_launch<64>(g, stream)
                     : f16_launch<128>(g, stream);
}

/* One thread a unit. */
template <class T>
static __global__ void mirror_f16_kernel(const uint8_t *w, kg_half *mirror, int64_t units)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= units)
        return;
    struct unit32 u;
    unpack_unit<T>(w, i, &u);
    for (int k = 0; k < 32; k++)
        mirror[i * 32 + k] = kg_f32_to_half(unit_value<T>(u, k));
}

template <class T>
static int mirror(const void *w, void *to, int64_t n, struct CUstream_st *stream)
{
    const unsigned blocks = grid_blocks(n / 32, 256);
    if (n % T::BLOCK != 0 || !blocks || !pointer_fits(w, 1, T::ALIGN))
        return KG_E_INVALID;
    return KG_LAUNCH(stream, blocks, 256, 0, (mirror_f16_kernel<T>), (const uint8_t *)w,
                     (kg_half *)to, n / 32);
}

int gemm_mirror_f16(int type, const void *w, void *to, int64_t n,
                    struct CUstream_st *stream)
{
    if (n < 0 || (n > 0 && !pointer_fits(to, 1, 16)))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    switch (type) {
    case KG_TYPE_Q8_0:
        return mirror<fmt_q8_0>(w, to, n, stream);
    case KG_TYPE_Q4_K:
        return mirror<fmt_q4_k>(w, to, n, stream);
    case KG_TYPE_Q5_K:
        return mirror<fmt_q5_k>(w, to, n, stream);
    case KG_TYPE_Q6_K:
        return mirror<fmt_q6_k>(w, to, n, stream);
    case KG_TYPE_NVFP4: /* at most six bits between 2^-10 and 2688: exact */
        return mirror<fmt_nvfp4>(w, to, n, stream);
    }
    return KG_E_UNSUPPORTED;
}

static __global__ void to_f16_kernel(const float *x, kg_half *h, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        h[i] = kg_f32_to_half(x[i]);
}

int gemm_to_f16(const float *x, void *h, int64_t n, struct CUstream_st *stream)
{
    if (n < 0 || !pointer_fits(x, n, 4) || !pointer_fits(h, n, 2) ||
        (n > 0 && !grid_blocks(n, 256)))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(n, 256), 256, 0, to_f16_kernel, x, (kg_half *)h,
                     n);
}

/* Sixteen values a thread. */
static __global__ void q8_to_f16_kernel(const int8_t *q, const float *d, uint4 *h,
                                        int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const uint4 v = kg_load_uint4(q + 16 * i);
    const uint32_t codes[4] = {v.x, v.y, v.z, v.w};
    const float scale = d[i / 2];
    uint32_t to[8];
    for (int j = 0; j < 8; j++) {
        const uint32_t pair = codes[j / 2] >> 16 * (j % 2);
        const kg_half low = kg_f32_to_half(scale * (float)(int8_t)pair),
                      high = kg_f32_to_half(scale * (float)(int8_t)(pair >> 8));
        to[j] = low.bits | (uint32_t)high.bits << 16;
    }
    h[2 * i] = make_uint4(to[0], to[1], to[2], to[3]);
    h[2 * i + 1] = make_uint4(to[4], to[5], to[6], to[7]);
}

int gemm_q8_to_f16(const int8_t *q, const float *d, void *h, int64_t m, int64_t in,
                   struct CUstream_st *stream)
{
    const int64_t n = size_product(m, in);
    if (n < 0 || in % 32 != 0 || !pointer_fits(q, n, 16) || !pointer_fits(d, n, 4) ||
        !pointer_fits(h, n, 16) || (n > 0 && !grid_blocks(n / 16, 256)))
        return KG_E_INVALID;
    if (n == 0)
        return KG_OK;
    return KG_LAUNCH(stream, grid_blocks(n / 16, 256), 256, 0, q8_to_f16_kernel, q, d,
                     (uint4 *)h, n / 16);
}
