/*
 * Append to the KV cache: quantize rows of keys and values into their slots.
 *
 *   k [rows][k_dim], v [rows][v_dim] f32   ->   slot rows of blocks (kgate/ops/kv.h has
 *   the layouts and each type's rounding)
 *
 * A warp takes one block of 32 elements, a lane one element. Row r's first k_dim / 32
 * warps are its key blocks, the rest its value blocks. Nothing is added up; the maxima do
 * not depend on an order. All forms are this one kernel and differ only in where a row's
 * caches and slot come from, so their bytes are equal.
 */
#include "kernels/device/device.h"
#include "kgate/ops/kv.h"
#include "kgate/types.h"

#define WARPS 4

struct place {
    uint8_t *k, *v;        /* base of the caches */
    const uint64_t *table; /* offsets of each row's caches, or NULL */
    const int32_t *slots;  /* slot of each row, or NULL: slot0 + row */
    int64_t slot0;
};

static __device__ inline float warp_max(float x)
{
    for (int distance = 16; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(KG_WARP_ALL, x, distance));
    return x;
}

static __device__ inline void store_half(uint8_t *p, float x)
{
    *(uint16_t *)p = kg_f32_to_half(x).bits;
}

static __device__ inline void put_q8_0(uint8_t *p, float x, int lane)
{
    const float d = warp_max(fabsf(x)) / 127.0f;
    const float id = d > 0.0f ? 1.0f / d : 0.0f;
    p[2 + lane] = (uint8_t)__float2int_rn(x * id);
    if (lane == 0)
        store_half(p, d);
}

/* Codes of lanes j and j + 16 into byte j. */
static __device__ inline void put_nibbles(uint8_t *p, int code, int lane)
{
    const int high = __shfl_down_sync(KG_WARP_ALL, code, 16);
    if (lane < 16)
        p[lane] = (uint8_t)((code & 15) | (high & 15) << 4);
}

static __device__ inline void put_q5_1(uint8_t *p, float x, int lane)
{
    const float low = -warp_max(-x);
    const float d = (warp_max(x) - low) / 31.0f;
    const float id = d > 0.0f ? 1.0f / d : 0.0f;
    const int code = min(31, __float2int_rz((x - low) * id + 0.5f));
    const uint32_t fifth = __ballot_sync(KG_WARP_ALL, code & 16);
    put_nibbles(p + 8, code, lane);
    if (lane == 0) {
        store_half(p, d);
        store_half(p + 2, low);
        *(uint32_t *)(p + 4) = fifth;
    }
}

static __device__ inline void put_q4_0(uint8_t *p, float x, int lane)
{
    const float amax = warp_max(fabsf(x));
    const int first = __ffs((int)__ballot_sync(KG_WARP_ALL, fabsf(x) == amax)) - 1;
    const float d = __shfl_sync(KG_WARP_ALL, x, first & 31) / -8.0f;
    const float id = d != 0.0f ? 1.0f / d : 0.0f;
    put_nibbles(p + 2, min(15, __float2int_rz(x * id + 8.5f)), lane);
    if (lane == 0)
        store_half(p, d);
}

/* Block `block` of a row of `type`, from the element x of each lane. */
static __device__ inline void put_block(int type, uint8_t *row, int64_t block, float x,
                                        int lane)
{
    if (type == KG_TYPE_Q8_0)
        put_q8_0(row + block * 34, x, lane);
    else if (type == KG_TYPE_Q5_1)
        put_q5_1(row + block * 24, x, lane);
    else if (type == KG_TYPE_Q4_0)
        put_q4_0(row + block * 18, x, lane);
    else
        row[block * 32 + lane] = kg_f32_to_e4m3(x);
}

static __global__ void append_kernel(struct kg_kv_layout layout, const float *k,
                                     const float *v, struct place place, int64_t rows)
{
    const int lane = threadIdx.x % 32;
    const int64_t k_blocks = layout.k_dim / 32, v_blocks = layout.v_dim / 32;
    const int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t row = warp / (k_blocks + v_blocks);
    if (row >= rows)
        return;
    int64_t block = warp % (k_blocks + v_blocks);
    const int64_t slot = place.slots ? place.slots[row] : place.slot0 + row;
    uint8_t *k_row = place.k, *v_row = place.v;
    if (place.table) {
        k_row = (uint8_t *)((uintptr_t)k_row + place.table[2 * row]);
        v_row = (uint8_t *)((uintptr_t)v_row + place.table[2 * row + 1]);
    }
    if (block < k_blocks) {
        put_block(layout.k_type, k_row + slot * layout.k_stride, block,
                  k[row * layout.k_dim + block * 32 + lane], lane);
    } else {
        block -= k_blocks;
        put_block(layout.v_type, v_row + slot * layout.v_stride, block,
                  v[row * layout.v_dim + block * 32 + lane], lane);
    }
}

static int block_bytes(int type)
{
    return type == KG_TYPE_Q8_0   ? 34
           : type == KG_TYPE_Q5_1 ? 24
           : type == KG_TYPE_Q4_0 ? 18
                                  : 32;
}

static int alignment(int type)
{
    return type == KG_TYPE_Q5_1 ? 4 : type == KG_TYPE_F8_E4M3 ? 1 : 2;
}

static int check_side(int type, int64_t dim, int64_t stride, const void *from,
                      const void *cache, bool table)
{
    const int bytes = block_bytes(type), align = alignment(type);
    if (dim < 0 || dim % 32 != 0 || dim > INT32_MAX || stride < dim / 32 * bytes ||
        stride % align != 0 || stride > INT64_C(1) << 40)
        return KG_E_INVALID;
    if (dim > 0 && (!from || (uintptr_t)from % 4 != 0 || (!cache && !table) ||
                    (uintptr_t)cache % (uintptr_t)align != 0))
        return KG_E_INVALID;
    return KG_OK;
}

static int launch(const struct kg_kv_layout *layout, const float *k, const float *v,
                  struct place place, int64_t rows, struct CUstream_st *stream)
{
    if (!layout || rows < 0 || place.slot0 < 0)
        return KG_E_INVALID;
    if ((layout->k_type != KG_TYPE_Q8_0 && layout->k_type != KG_TYPE_F8_E4M3) ||
        (layout->v_type != KG_TYPE_Q5_1 && layout->v_type != KG_TYPE_Q4_0 &&
         layout->v_type != KG_TYPE_F8_E4M3))
        return KG_E_UNSUPPORTED;
    if (rows == 0)
        return KG_OK;
    KG_TRY(check_side(layout->k_type, layout->k_dim, layout->k_stride, k, place.k,
                      place.table != nullptr));
    KG_TRY(check_side(layout->v_type, layout->v_dim, layout->v_stride, v, place.v,
                      place.table != nullptr));
    const int64_t per_row = layout->k_dim / 32 + layout->v_dim / 32;
    if (per_row == 0)
        return KG_OK;
    if (rows > INT32_MAX / per_row)
        return KG_E_INVALID;
    const unsigned blocks = (unsigned)((rows * per_row + WARPS - 1) / WARPS);
    return KG_LAUNCH(stream, blocks, 32 * WARPS, 0, append_kernel, *layout, k, v, place,
                     rows);
}

static int kg_append_rows(const struct kg_kv_layout *layout, const float *k,
                          const float *v, void *k_cache, void *v_cache, int64_t slot0,
                          int64_t rows, struct CUstream_st *stream)
{
    const struct place place = {(uint8_t *)k_cache, (uint8_t *)v_cache, nullptr, nullptr,
                                slot0};
    return launch(layout, k, v, place, rows, stream);
}

static int kg_append(const struct kg_kv_layout *layout, const float *k, const float *v,
                     void *k_cache, void *v_cache, int64_t slot,
                     struct CUstream_st *stream)
{
    return kg_append_rows(layout, k, v, k_cache, v_cache, slot, 1, stream);
}

static int kg_append_seqs(const struct kg_kv_layout *layout, const float *k,
                          const float *v, void *k_cache, void *v_cache,
                          const uint64_t *table, const int32_t *slots, int64_t batch,
                          struct CUstream_st *stream)
{
    const struct place place = {(uint8_t *)k_cache, (uint8_t *)v_cache, table, slots, 0};
    if (batch > 0 && (!table || !slots))
        return KG_E_INVALID;
    return launch(layout, k, v, place, batch, stream);
}

extern const struct kg_kv_ops kg_kv_table;
const struct kg_kv_ops kg_kv_table = {
    sizeof(struct kg_kv_ops),
    kg_append,
    kg_append_rows,
    kg_append_seqs,
};
