/*
 * The scalar arm of decode attention: one key after the other, f32, nothing shared with
 * the fast arms but the combination's last step. The second reference.
 *
 * A warp has one head of one row; lane l has elements l, l + 32, .. of the head. In order
 * of the keys, from M = -inf, L = 0, out = 0:
 *
 *   s = scale * (butterfly sum over the lanes of the lane's chain of fma(q, k))
 *   M' = max(M, s);  r = exp(M - M');  p = exp(s - M')
 *   L = L * r + p;   out = fma(p, v, out * r)
 *
 * k = d * code, v = d * code + m (multiply, then add). At the end out / L.
 */
#include "kernels/attention/launch.h"
#include "kgate/types.h"

#define HEAD_DIM_MAX 512

static __device__ inline float stored_half(const uint8_t *p)
{
    return kg_half_to_f32(kg_half_from_bits(kg_load_u16(p)));
}

/* Element i of a row of `type`. */
static __device__ inline float element(const uint8_t *row, int type, int i)
{
    const int b = i / 32, j = i % 32;
    if (type == KG_TYPE_Q8_0)
        return stored_half(row + b * 34) * (float)(int8_t)row[b * 34 + 2 + j];
    if (type == KG_TYPE_F8_E4M3)
        return kg_e4m3_to_f32(row[i]);
    const int bytes = type == KG_TYPE_Q5_1 ? 24 : 18;
    const uint8_t *block = row + b * bytes;
    const int nibble = block[bytes - 16 + j % 16] >> (j < 16 ? 0 : 4) & 15;
    if (type == KG_TYPE_Q4_0)
        return stored_half(block) * (float)(nibble - 8);
    const int code = nibble | (block[4 + j / 8] >> j % 8 & 1) << 4;
    return stored_half(block) * (float)code + stored_half(block + 2);
}

static __device__ inline int head_bytes(int type, int head_dim)
{
    return head_dim / 32 *
           (type == KG_TYPE_Q8_0   ? 34
            : type == KG_TYPE_Q5_1 ? 24
            : type == KG_TYPE_Q4_0 ? 18
                                   : 32);
}

static __global__ void decode_scalar_kernel(struct decode p, int head_dim)
{
    const int lane = threadIdx.x, head = blockIdx.x, row = blockIdx.y;
    const int kv_head = head / (p.n_heads / p.n_kv_heads);
    const struct row_keys keys = keys_of(p, row);
    const int64_t index = (int64_t)row * p.n_heads + head;
    const uint8_t *k = keys.k + kv_head * head_bytes(p.k_type, head_dim);
    const uint8_t *v = keys.v + kv_head * head_bytes(p.v_type, head_dim);
    float q[HEAD_DIM_MAX / 32], out[HEAD_DIM_MAX / 32];
    float max = -INFINITY, sum = 0.0f;
    for (int i = 0; i < head_dim / 32; i++) {
        q[i] = p.q[index * head_dim + 32 * i + lane];
        out[i] = 0.0f;
    }
    for (int t = 0; t < keys.n; t++) {
        float dot = 0.0f;
        for (int i = 0; i < head_dim / 32; i++)
            dot = fmaf(q[i], element(k, p.k_type, 32 * i + lane), dot);
        const float s = p.scale * warp_sum(dot);
        const float old = max;
        max = fmaxf(old, s);
        const float r = kg_expf(old - max), weight = kg_expf(s - max);
        sum = sum * r + weight;
        for (int i = 0; i < head_dim / 32; i++)
            out[i] = fmaf(weight, element(v, p.v_type, 32 * i + lane), out[i] * r);
        k += p.k_stride;
        v += p.v_stride;
    }
    for (int i = 0; i < head_dim / 32; i++)
        p.out[index * head_dim + 32 * i + lane] = finish(out[i], sum);
    if (p.lse && lane == 0)
        p.lse[index] = log_sum_exp(max, sum);
}

int launch_decode_scalar(int head_dim, const struct decode &p, int rows,
                         struct CUstream_st *stream)
{
    const dim3 grid((unsigned)p.n_heads, (unsigned)rows);
    return KG_LAUNCH(stream, grid, 32, 0, decode_scalar_kernel, p, head_dim);
}
