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
 * sum; w, which all rows share, comes from cache afterwards.
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

/* All threads of the row's T must be here. */
template <int STEPS, bool WIDE>
static __device__ __forceinline__ void norm_finish(const struct norm_row &r, int vector,
                                                   int cols, float scale, float4 v,
                                                   float4 z)
{
    float y[4] = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
    if (!(STEPS & L2)) {
        const float4 w = row_load<WIDE, true>(r.w, vector, cols);
        y[0] *= w.x;
        y[1] *= w.y;
        y[2] *= w.z;
        y[3] *= w.w;
    }
    if (STEPS & GATED) {
        y[0] *= kg_siluf(z.x);
        y[1] *= kg_siluf(z.y);
        y[2] *= kg_siluf(z.z);
        y[3] *= kg_siluf(z.w);
    }
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

#pragma unroll
    for (int i = 0; i < KG_ROW_VECTORS; i++)
        if (i * T < vectors)
            norm_finish<STEPS, WIDE>(r, t + i * T, cols, scale, v[i], z[i]);
    /* whole warps stay together: q8_1_encode shuffles */
    for (int k = t + KG_ROW_VECTORS * T; k - t % 32 < vectors; k += T) {
        const float4 more = row_load<WIDE>(STEPS & ADD ? r.res : r.x, k, cols);
        norm_finish<STEPS, WIDE>(r, k, cols, scale, more,
                                 STEPS & GATED ? row_load<WIDE>(r.z, k, cols) : more);
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

template <int STEPS, int T, bool WIDE>
static __global__
__launch_bounds__(row_block(T),
                  (blocks_per_sm<STEPS, T>())) void norm_kernel(struct norm_row a,
                                                                int64_t rows, int cols,
                                                                float eps)
{
    const int64_t row = row_index<T>();
    if (row >= rows)
        return;
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
    norm_one<STEPS, T, WIDE>(r, cols, eps);
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
