/*
 * kgate/ops/kv.h: appending keys and values to a quantized cache.
 *
 *   k        [rows][k_dim]   f32 keys of one token after the other: all heads, each head's
 *                            elements together; k_dim = kv heads * head size of a key
 *   v        [rows][v_dim]   f32 values likewise
 *   k_cache  slot s at byte s * k_stride: k_dim elements of k_type, packed
 *   v_cache  slot s at byte s * v_stride: v_dim elements of v_type, packed
 *
 * Types: k_type Q8_0 or F8_E4M3; v_type Q5_1, Q4_0 or F8_E4M3. Blocks of 32 elements, all
 * arithmetic in f32, scales stored as f16 rounded to nearest even:
 *
 *   Q8_0    d = amax / 127, id = d > 0 ? 1 / d : 0, code = round-to-nearest-even(x * id)
 *   Q5_1    m = min, d = (max - min) / 31, id = d > 0 ? 1 / d : 0,
 *           code = (int)((x - m) * id + 0.5), at most 31
 *   Q4_0    e = the element of the largest magnitude, the first of equals; d = e / -8,
 *           id = d != 0 ? 1 / d : 0, code = (int)(x * id + 8.5), at most 15
 *   F8_E4M3 no scale: the element itself, to nearest even, saturated at +-448
 *
 * Inputs are finite and scales below 65520; others give unspecified codes. Dimensions are
 * multiples of 32; strides are at least a row's bytes (kg_row_bytes) and even where the
 * type has f16 scales, multiples of 4 for Q5_1; so are the caches' addresses.
 *
 * A launcher validates, enqueues and returns. KG_E_UNSUPPORTED: another type.
 * KG_E_INVALID: a contract above broken, or a NULL pointer to something not empty.
 */
#ifndef KGATE_OPS_KV_H
#define KGATE_OPS_KV_H

#include <stdint.h>

struct CUstream_st;

/* How both caches are laid out. */
struct kg_kv_layout {
    int32_t k_type, v_type;
    int64_t k_dim, v_dim;       /* elements of a token */
    int64_t k_stride, v_stride; /* bytes from one token to the next */
};

struct kg_kv_ops {
    uint32_t size; /* sizeof(struct kg_kv_ops) */

    /* One token into slot `slot`. */
    int (*append)(const struct kg_kv_layout *layout, const float *k, const float *v,
                  void *k_cache, void *v_cache, int64_t slot, struct CUstream_st *stream);

    /* `rows` tokens into slots slot0, slot0 + 1, ...; the bytes are those of `rows` calls
       of append. */
    int (*append_rows)(const struct kg_kv_layout *layout, const float *k, const float *v,
                       void *k_cache, void *v_cache, int64_t slot0, int64_t rows,
                       struct CUstream_st *stream);

    /* One token each for `batch` sequences; token z goes into slot slots[z] of sequence
       z, whose caches lie at (char *)k_cache + table[2z] and (char *)v_cache +
       table[2z + 1]. With NULL caches the table holds addresses. table and slots are in
       device memory. */
    int (*append_seqs)(const struct kg_kv_layout *layout, const float *k, const float *v,
                       void *k_cache, void *v_cache, const uint64_t *table,
                       const int32_t *slots, int64_t batch, struct CUstream_st *stream);
};

#endif
