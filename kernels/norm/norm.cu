/*
 * Norms of rows, alone and fused (kgate/ops/norm.h); row.h has layout and order of sums.
 *
 *   v        = x, or x + b rounded, which is also stored to res
 *   ss       = sum of v * v in the order of row.h
 *   scale    = 1 / sqrt(ss / cols + eps)          (l2: 1 / sqrt(ss + eps))
 *   y        = (v * scale) * w                    (l2: v * scale)
 *   gated:   y = ((v * scale) * w) * silu(z)
 *   q8_1:    y is not stored; q8_1.h makes codes of it, a block being 8 lanes of 4 values
 *
 * each operation rounded once. All forms are one device function with these steps switched
 * on or off, so a fused form has the bits of its chain. Memory is read once: the row waits
 * in registers for its sum. z is loaded together with x, so that it does not wait for the
 * sum, and silu is made of it before the barrier; w, which all rows share, comes from cache
 * afterwards. Rows of at most 128 elements go four to a warp (norm_heads).
 */
#include "kernels/device/device.h"
#include "kernels/matvec/q8_1.h"
#include "kernels/norm/row.h"
#include "kgate/kernels.h"

enum norm_step { ADD = 1, GATED = 2, L2 = 4, Q8 = 8 };

struct norm_row {
    const float *x, *b, *w, *z;
    float *res, *y;
    int8_t *q;
    float *d, *s;
};

/* y of four elements; z is what silu made of the gate. */
template <int STEPS>
static __device__ __forceinline__ void norm_values(float4 v, float scale, float4 w,
                                                   float4 z, float y[4])
{
    y[0] = v.x * scale;
    y[1] = v.y * scale;
    y[2] = v.z * scale;
    y[3] = v.w * scale;
    if (!(STEPS & L2)) {
        y[0] *= w.x;
        y[1] *= w.y;
        y[2] *= w.z;
        y[3] *= w.w;
    }
    if (STEPS & GATED) {
        y[0] *= z.x;
        y[1] *= z.y;
        y[2] *= z.z;
        y[3] *= z.w;
    }
}

static __device__ __forceinline__ float4 silu4(float4 z)
{
    return make_float4(kg_siluf(z.x), kg_siluf(z.y), kg_siluf(z.z), kg_siluf(z.w));
}

template <int STEPS, bool WIDE>
static __device__ __forceinline__ float4 weight_load(const struct norm_row &r, int vector,
                                                     int cols)
{
    return STEPS & L2 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                      : row_load<WIDE, true>(r.w, vector, cols);
}

/* One vector, anywhere behind the first ones. All threads of the row's T must be here. */
template <int STEPS, bool WIDE>
static __device__ __forceinline__ void norm_finish(const struct norm_row &r, int vector,
                                                   int cols, float scale, float4 v,
                                                   float4 z)
{
    float y[4];
    norm_values<STEPS>(v, scale, weight_load<STEPS, WIDE>(r, vector, cols), z, y);
    if (STEPS & Q8) {
        uint32_t codes[1];
        float d;
        int sum;
        q8_1_encode<4>(y, codes, &d, &sum);
        if (4 * vector < cols) {
            *(uint32_t *)(r.q + 4 * vector) = codes[0];
            if (vector % 8 == 0) {
                r.d[vector / 8] = d;
                r.s[vector / 8] = d * (float)sum;
            }
        }
    } else {
        row_store<WIDE>(r.y, vector, cols, make_float4(y[0], y[1], y[2], y[3]));
    }
}

/* Codes of four vectors of y. place(i) is the element that vector i begins with, or a
   negative number where nothing is to be stored. All lanes of the warp must be here. */
template <class PLACE>
static __device__ __forceinline__ void store_codes(const struct norm_row &r,
                                                   const float y[4][4], PLACE place)
{
    uint32_t words[4];
    float d;
    int sum;
    q8_1_encode_four(y, words, &d, &sum);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (place(i) >= 0)
            *(uint32_t *)(r.q + place(i)) = words[i];
    const int at = place((int)threadIdx.x % 8 / 2);
    if (at < 0)
        return;
    if (threadIdx.x % 2 == 0)
        r.d[at / 32] = d;
    else
        r.s[at / 32] = d * (float)sum;
}

template <int STEPS, int T, bool WIDE>
static __device__ __forceinline__ void norm_one(const struct norm_row &r, int cols,
                                                float eps)
{
    const int t = row_thread<T>();
    const int vectors = (cols + 3) / 4;
    float4 v[KG_ROW_VECTORS], z[KG_ROW_VECTORS], b[KG_ROW_VECTORS];
#pragma unroll
    for (int i = 0; i < KG_ROW_VECTORS; i++) {
        v[i] = row_load<WIDE>(r.x, t + i * T, cols);
        if (STEPS & ADD)
            b[i] = row_load<WIDE>(r.b, t + i * T, cols);
        z[i] = STEPS & GATED ? row_load<WIDE>(r.z, t + i * T, cols) : v[i];
    }
    float acc = 0.0f;
#pragma unroll
    for (int i = 0; i < KG_ROW_VECTORS; i++) {
        if (STEPS & ADD) {
            v[i].x += b[i].x;
            v[i].y += b[i].y;
            v[i].z += b[i].z;
            v[i].w += b[i].w;
            row_store<WIDE>(r.res, t + i * T, cols, v[i]);
        }
        acc = dot4(v[i], v[i], acc);
        if (STEPS & GATED) /* work for the time until the other warps have their sums */
            z[i] = silu4(z[i]);
    }
    for (int k = t + KG_ROW_VECTORS * T; k < vectors; k += T) {
        float4 more = row_load<WIDE>(r.x, k, cols);
        if (STEPS & ADD) {
            const float4 add = row_load<WIDE>(r.b, k, cols);
            more.x += add.x;
            more.y += add.y;
            more.z += add.z;
            more.w += add.w;
            row_store<WIDE>(r.res, k, cols, more);
        }
        acc = dot4(more, more, acc);
    }
    const float ss = row_sum<T>(acc);
    const float scale = kg_rsqrtf((STEPS & L2 ? ss : ss / (float)cols) + eps);

    if (STEPS & Q8) {
        float y[KG_ROW_VECTORS][4];
#pragma unroll
        for (int i = 0; i < KG_ROW_VECTORS; i++)
            norm_values<STEPS>(v[i], scale, weight_load<STEPS, WIDE>(r, t + i * T, cols),
                               z[i], y[i]);
        store_codes(r, y, [=](int i) {
            const int at = 4 * (t + i * T);
            return at < cols ? at : -1;
        });
    } else {
#pragma unroll
        for (int i = 0; i < KG_ROW_VECTORS; i++)
            if (i * T < vectors)
                norm_finish<STEPS, WIDE>(r, t + i * T, cols, scale, v[i], z[i]);
    }
    /* whole warps stay together: q8_1_encode shuffles */
    for (int k = t + KG_ROW_VECTORS * T; k - t % 32 < vectors; k += T) {
        const float4 more = row_load<WIDE>(STEPS & ADD ? r.res : r.x, k, cols);
        norm_finish<STEPS, WIDE>(r, k, cols, scale, more,
                                 STEPS & GATED ? silu4(row_load<WIDE>(r.z, k, cols))
                                               : more);
    }
}

/* Sums of four rows over a warp: lanes 8i .. 8i + 7 get that of v[i]. Every sum is that of
   row_sum<32>: the same tree, an addition taking its terms in either order. */
static __device__ __forceinline__ float row_sum4(const float v[4])
{
    const bool high = (threadIdx.x & 16) != 0, odd = (threadIdx.x & 8) != 0;
    const float a =
        (high ? v[2] : v[0]) + __shfl_xor_sync(KG_WARP_ALL, high ? v[0] : v[2], 16);
    const float b =
        (high ? v[3] : v[1]) + __shfl_xor_sync(KG_WARP_ALL, high ? v[1] : v[3], 16);
    float c = (odd ? b : a) + __shfl_xor_sync(KG_WARP_ALL, odd ? a : b, 8);
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2)
        c += __shfl_xor_sync(KG_WARP_ALL, c, distance);
    return c;
}

/* Heads: `count` (1 .. 4) rows of at most 128 elements, one vector a lane, so that four rows
   are under way at one time, and the square root and the divisions are made for all four
   at once. WIDE only. All lanes of the warp must be here. */
template <int STEPS>
static __device__ __forceinline__ void norm_heads(const struct norm_row &r, int count,
                                                  int cols, float eps)
{
    const int lane = threadIdx.x % 32;
    float4 v[4], z[4], b[4];
    float acc[4], y[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int here = i < count ? cols : 0; /* nothing is read of rows past the last */
        v[i] = row_load<true>(r.x + i * cols, lane, here);
        if (STEPS & ADD)
            b[i] = row_load<true>(r.b + i * cols, lane, here);
        z[i] = STEPS & GATED ? row_load<true>(r.z + i * cols, lane, here) : v[i];
    }
    const float4 w = weight_load<STEPS, true>(r, lane, cols);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (STEPS & ADD) {
            v[i].x += b[i].x;
            v[i].y += b[i].y;
            v[i].z += b[i].z;
            v[i].w += b[i].w;
            row_store<true>(r.res + i * cols, lane, i < count ? cols : 0, v[i]);
        }
        acc[i] = dot4(v[i], v[i], 0.0f);
    }
    const float ss = row_sum4(acc);
    const float scale = kg_rsqrtf((STEPS & L2 ? ss : ss / (float)cols) + eps);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (STEPS & GATED)
            z[i] = silu4(z[i]);
        norm_values<STEPS>(v[i], __shfl_sync(KG_WARP_ALL, scale, 8 * i), w, z[i], y[i]);
    }
    if (STEPS & Q8) {
        store_codes(r, y, [=](int i) {
            return i < count && 4 * lane < cols ? i * cols + 4 * lane : -1;
        });
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            row_store<true>(r.y + i * cols, lane, i < count ? cols : 0,
                            make_float4(y[i][0], y[i][1], y[i][2], y[i][3]));
    }
}

/* Registers: 40 a thread where only the row is held, 64 where two arrays are, and for rows
   of one warp, which wait for no barrier and so need fewer warps. */
template <int STEPS, int T>
static constexpr int blocks_per_sm()
{
    constexpr int threads = T == 32 || (STEPS & (ADD | GATED)) != 0 ? 1024 : 1536;
    return threads / row_block(T) > 0 ? threads / row_block(T) : 1;
}

/* Row number `row`, and those behind it, of the arrays of a. */
template <int STEPS>
static __device__ __forceinline__ struct norm_row row_of(const struct norm_row &a,
                                                         int64_t row, int cols)
{
    const int64_t at = row * cols;
    struct norm_row r = {};
    r.x = a.x + at;
    r.w = a.w;
    if (STEPS & ADD) {
        r.b = a.b + at;
        r.res = a.res + at;
    }
    if (STEPS & GATED)
        r.z = a.z + at;
    if (STEPS & Q8) {
        r.q = a.q + at;
        r.d = a.d + at / 32;
        r.s = a.s + at / 32;
    } else {
        r.y = a.y + at;
    }
    return r;
}

template <int STEPS, int T, bool WIDE>
static __global__
__launch_bounds__(row_block(T),
                  (blocks_per_sm<STEPS, T>())) void norm_kernel(struct norm_row a,
                                                                int64_t rows, int cols,
                                                                float eps)
{
    const int64_t row = row_index<T>();
    if (row < rows)
        norm_one<STEPS, T, WIDE>(row_of<STEPS>(a, row, cols), cols, eps);
}

static constexpr int HEAD_COLS = 128, HEAD_ROWS = 16; /* a row's most, a block's rows */

template <int STEPS>
static __global__
__launch_bounds__(row_block(32), (blocks_per_sm<STEPS, 32>())) void norm_heads_kernel(
    struct norm_row a, int64_t rows, int cols, float eps)
{
    const int64_t row = (int64_t)blockIdx.x * HEAD_ROWS + threadIdx.x / 32 * 4;
    const int64_t left = rows - row;
    if (left > 0)
        norm_heads<STEPS>(row_of<STEPS>(a, row, cols), left < 4 ? (int)left : 4, cols,
                          eps);
}

struct qkv {
    const float *x[3], *w[3];
    float *y[3];
};

/* Rows of q, then of k, then of v. */
template <int T, bool WIDE>
static __global__
__launch_bounds__(row_block(T), (blocks_per_sm<0, T>())) void rms_norm_qkv_kernel(
    struct qkv a, int64_t rows_q, int64_t rows_kv, int cols, float eps)
{
    int64_t row = row_index<T>();
    if (row >= rows_q + 2 * rows_kv)
        return;
    struct norm_row r = {};
    r.x = a.x[0];
    r.w = a.w[0];
    r.y = a.y[0];
    if (row >= rows_q) {
        const bool is_v = row >= rows_q + rows_kv;
        row -= rows_q + (is_v ? rows_kv : 0);
        r.x = is_v ? a.x[2] : a.x[1];
        r.w = is_v ? a.w[2] : a.w[1];
        r.y = is_v ? a.y[2] : a.y[1];
    }
    r.x += row * cols;
    r.y += row * cols;
    norm_one<0, T, WIDE>(r, cols, eps);
}

static bool shape_fits(int64_t rows, int64_t cols)
{
    return size_product(rows, cols) >= 0 && cols <= KG_ROW_COLS_MAX &&
           (rows == 0 || row_grid(rows, cols) != 0);
}

template <int STEPS>
static int norm(const struct norm_row &a, int64_t rows, int64_t cols, float eps,
                struct CUstream_st *stream)
{
    if (!shape_fits(rows, cols) || (STEPS & Q8 && cols % 32 != 0))
        return KG_E_INVALID;
    const int64_t n = rows * cols;
    if (n == 0)
        return KG_OK;
    if (!pointer_fits(a.x, n, 16) || !pointer_fits(a.w, STEPS & L2 ? 0 : n, 16) ||
        !pointer_fits(a.b, STEPS & ADD ? n : 0, 16) ||
        !pointer_fits(a.res, STEPS & ADD ? n : 0, 16) ||
        !pointer_fits(a.z, STEPS & GATED ? n : 0, 16) ||
        !pointer_fits(a.y, STEPS & Q8 ? 0 : n, 16) ||
        !pointer_fits(a.q, STEPS & Q8 ? n : 0, 16) ||
        !pointer_fits(a.d, STEPS & Q8 ? n : 0, 4) ||
        !pointer_fits(a.s, STEPS & Q8 ? n : 0, 4))
        return KG_E_INVALID;
    if (cols <= HEAD_COLS && cols % 4 == 0)
        return KG_LAUNCH(stream, grid_blocks(rows, HEAD_ROWS), row_block(32), 0,
                         norm_heads_kernel<STEPS>, a, rows, (int)cols, eps);
    const unsigned grid = row_grid(rows, cols);
#define LAUNCH_WIDE(T)                                                                   \
    KG_LAUNCH(stream, grid, row_block(T), 0, (norm_kernel<STEPS, T, true>), a, rows,     \
              (int)cols, eps)
#define LAUNCH_NARROW(T)                                                                 \
    KG_LAUNCH(stream, grid, row_block(T), 0, (norm_kernel<STEPS, T, (STEPS & Q8) != 0>), \
              a, rows, (int)cols, eps)
    return cols % 4 == 0 ? KG_ROW_DISPATCH(cols, LAUNCH_WIDE)
                         : KG_ROW_DISPATCH(cols, LAUNCH_NARROW);
}

static int kg_rms_norm(const float *x, const float *w, float *y, int64_t rows,
                       int64_t cols, float eps, struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = x;
    a.w = w;
    a.y = y;
    return norm<0>(a, rows, cols, eps, stream);
}

static int kg_rms_norm_qkv(const float *q, const float *k, const float *v,
                           const float *wq, const float *wk, const float *wv, float *yq,
                           float *yk, float *yv, int64_t rows_q, int64_t rows_kv,
                           int64_t cols, float eps, struct CUstream_st *stream)
{
    const struct qkv a = {
        {q,  k,  v },
        {wq, wk, wv},
        {yq, yk, yv}
    };
    if (!shape_fits(rows_q, cols) || !shape_fits(rows_kv, cols) ||
        !shape_fits(rows_q + 2 * rows_kv, cols))
        return KG_E_INVALID;
    for (int i = 0; i < 3; i++) {
        const int64_t n = (i == 0 ? rows_q : rows_kv) * cols;
        if (!pointer_fits(a.x[i], n, 16) || !pointer_fits(a.w[i], n, 16) ||
            !pointer_fits(a.y[i], n, 16))
            return KG_E_INVALID;
    }
    const int64_t rows = rows_q + 2 * rows_kv;
    if (rows * cols == 0)
        return KG_OK;
    const unsigned grid = row_grid(rows, cols);
#define LAUNCH_QKV_WIDE(T)                                                               \
    KG_LAUNCH(stream, grid, row_block(T), 0, (rms_norm_qkv_kernel<T, true>), a, rows_q,  \
              rows_kv, (int)cols, eps)
#define LAUNCH_QKV_NARROW(T)                                                             \
    KG_LAUNCH(stream, grid, row_block(T), 0, (rms_norm_qkv_kernel<T, false>), a, rows_q, \
              rows_kv, (int)cols, eps)
    return cols % 4 == 0 ? KG_ROW_DISPATCH(cols, LAUNCH_QKV_WIDE)
                         : KG_ROW_DISPATCH(cols, LAUNCH_QKV_NARROW);
}

static int kg_l2_norm(const float *x, float *y, int64_t rows, int64_t cols, float eps,
                      struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = x;
    a.y = y;
    return norm<L2>(a, rows, cols, eps, stream);
}

static int kg_add_rms_norm(const float *a_, const float *b, const float *w, float *res,
                           float *y, int64_t rows, int64_t cols, float eps,
                           struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = a_;
    a.b = b;
    a.w = w;
    a.res = res;
    a.y = y;
    return norm<ADD>(a, rows, cols, eps, stream);
}

static int kg_rms_norm_q8_1(const float *x, const float *w, int8_t *q, float *d, float *s,
                            int64_t rows, int64_t cols, float eps,
                            struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = x;
    a.w = w;
    a.q = q;
    a.d = d;
    a.s = s;
    return norm<Q8>(a, rows, cols, eps, stream);
}

static int kg_add_rms_norm_q8_1(const float *a_, const float *b, const float *w,
                                float *res, int8_t *q, float *d, float *s, int64_t rows,
                                int64_t cols, float eps, struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = a_;
    a.b = b;
    a.w = w;
    a.res = res;
    a.q = q;
    a.d = d;
    a.s = s;
    return norm<ADD | Q8>(a, rows, cols, eps, stream);
}

static int kg_gated_rmsnorm(const float *x, const float *w, const float *z, float *y,
                            int64_t rows, int64_t cols, float eps,
                            struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = x;
    a.w = w;
    a.z = z;
    a.y = y;
    return norm<GATED>(a, rows, cols, eps, stream);
}

static int kg_gated_rmsnorm_q8_1(const float *x, const float *w, const float *z,
                                 int8_t *q, float *d, float *s, int64_t rows,
                                 int64_t cols, float eps, struct CUstream_st *stream)
{
    struct norm_row a = {};
    a.x = x;
    a.w = w;
    a.z = z;
    a.q = q;
    a.d = d;
    a.s = s;
    return norm<GATED | Q8>(a, rows, cols, eps, stream);
}

extern const struct kg_norm_ops kg_norm_table;
const struct kg_norm_ops kg_norm_table = {
    sizeof(struct kg_norm_ops),
    kg_rms_norm,
    kg_rms_norm_qkv,
    kg_l2_norm,
    kg_add_rms_norm,
    kg_rms_norm_q8_1,
    kg_add_rms_norm_q8_1,
    kg_gated_rmsnorm,
    kg_gated_rmsnorm_q8_1,
};
