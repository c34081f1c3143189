/*
 * kgate/ops/attention.h: softmax(scale * Q K^T) V, for prompts and for single tokens.
 *
 * Heads: n_heads query heads share n_kv_heads key heads, head h reads key head
 * h / (n_heads / n_kv_heads). head_dim is 64, 96, 128, 192, 256 or 512, of keys and values.
 *
 * What a query sees: the query at position p sees keys max(0, p - window + 1) .. p; a
 * window of 0 is no window, and a prompt that is not causal sees all keys. A query that
 * sees nothing gives zeros, and a log-sum-exp of minus infinity.
 *
 * A launcher validates, enqueues on `stream` and returns; it neither allocates nor waits.
 * KG_E_UNSUPPORTED: a type, head_dim or arm that this provider or device lacks.
 * KG_E_INVALID: a size below 0 (or 0 heads), n_heads no multiple of n_kv_heads, a NULL
 * pointer to something not empty, or a misaligned one. f32 and f16 arrays are aligned to
 * 16 bytes, caches to 16; a cache's stride is a multiple of the largest power of two up to
 * 16 that divides the bytes of one head's row, so packed caches qualify.
 */
#ifndef KGATE_OPS_ATTENTION_H
#define KGATE_OPS_ATTENTION_H

#include <stdint.h>

#include "kgate/ops/kv.h"

struct CUstream_st;

/* ---- decode: one query row a sequence, over the quantized cache ---- */

enum kg_decode_arm {
    KG_DECODE_SCALAR = 0, /* f32, one key after the other: the second reference */
    KG_DECODE_VECTOR = 1, /* f32, keys in splits, one key a lane */
    KG_DECODE_INT8 = 2,   /* as VECTOR with Q K^T in integers: K Q8_0 and V Q5_1 only.
                             q is quantized per 32 elements of a head: d = amax / 127,
                             code = round-to-nearest-even(q * (1 / d)) */
    KG_DECODE_DEEP = 16,  /* added to VECTOR or INT8: pipelined copies and the combination
                             in the same launch; the bits are those without it. K Q8_0
                             and V Q5_1 only */
};

struct kg_decode {
    struct kg_kv_layout layout; /* k_dim = v_dim = n_kv_heads * head_dim */
    int32_t head_dim, n_heads, n_kv_heads;
    int32_t window;
    float scale;
    const float *q;      /* [rows][n_heads][head_dim] */
    const void *k_cache; /* kgate/ops/kv.h; NULL where a table holds addresses */
    const void *v_cache;
    float *out;      /* [rows][n_heads][head_dim] */
    float *lse;      /* [rows][n_heads] log-sum-exp of the scaled scores, or NULL */
    void *workspace; /* decode_workspace() bytes, aligned to 16, zeroed before its
                              first use; a call leaves it ready for the next of as many
                              rows, whatever their lengths */
};

/* ---- prefill ---- */

enum kg_prefill_arm {
    KG_PREFILL_NAIVE = 0, /* f32, a warp a query: the second reference */
    KG_PREFILL_BF16 = 1,  /* flash attention, mma.sync: q, K, V and the weights in bf16,
                                  sums in f32 */
    KG_PREFILL_F16 = 2,   /* the same in f16 */
    KG_PREFILL_SINGLE_BF16 = 3, /* each half of the block's warps has half of head_dim, so
                                  that wide heads take one pass; head_dim 256 and 512 */
    KG_PREFILL_SINGLE_F16 = 4,
    KG_PREFILL_WGMMA_BF16 = 5, /* wgmma, on a workspace; sm_90a */
    KG_PREFILL_WGMMA_F16 = 6,
};

enum kg_prefill_source {
    KG_PREFILL_F32 = 0,   /* k, v: f32 [keys][n_kv_heads][head_dim] */
    KG_PREFILL_CACHE = 1, /* k, v: the cache of `layout`, unpacked in the kernel */
    KG_PREFILL_WORKSPACE =
        2, /* k, v: [keys][n_kv_heads][head_dim] in the arm's 16-bit type,
                                 by `stage`; the bits are those of the source it was made of.
                                 Not for the naive arm */
};

struct kg_prefill {
    struct kg_kv_layout layout; /* read when source is KG_PREFILL_CACHE */
    int32_t source;             /* kg_prefill_source */
    int32_t head_dim, n_heads, n_kv_heads;
    int32_t causal; /* query i stands at position keys - tokens + i */
    int32_t window;
    float scale;
    int64_t tokens, keys; /* queries, keys */
    const float *q;       /* [tokens][n_heads][head_dim] */
    const void *k, *v;
    float *out; /* [tokens][n_heads][head_dim] */
    float *lse; /* [tokens][n_heads] or NULL */
};

struct kg_attention_ops {
    uint32_t size; /* sizeof(struct kg_attention_ops) */

    /* Bytes of workspace for `rows` rows of at most max_length keys; negative: KG_E_*. */
    int64_t (*decode_workspace)(const struct kg_decode *args, int64_t rows,
                                int64_t max_length);

    /* One row that sees `length` keys; its position is length - 1. */
    int (*decode)(int arm, const struct kg_decode *args, int64_t length,
                  struct CUstream_st *stream);

    /* Row r of `rows` sees base + r + 1 keys. Bits of a row: those of decode. */
    int (*decode_rows)(int arm, const struct kg_decode *args, int64_t base, int64_t rows,
                       struct CUstream_st *stream);

    /* Row z has the caches at k_cache + table[2z], v_cache + table[2z + 1] (kv.h) and
       sees lengths[z] <= max_length keys. table, lengths: device memory. */
    int (*decode_seqs)(int arm, const struct kg_decode *args, const uint64_t *table,
                       const int32_t *lengths, int64_t batch, int64_t max_length,
                       struct CUstream_st *stream);

    /* As decode, with the length in device memory, at most max_length: for graphs that
       are replayed while the sequence grows. */
    int (*decode_dc)(int arm, const struct kg_decode *args, const int32_t *length,
                     int64_t max_length, struct CUstream_st *stream);

    int (*prefill)(int arm, const struct kg_prefill *args, struct CUstream_st *stream);

    /* K and V of `args` (source F32 or CACHE), rounded to nearest even as bf16 or, with
       `half`, as f16: k16 and v16 [keys][n_kv_heads][head_dim]. */
    int (*stage)(const struct kg_prefill *args, int half, void *k16, void *v16,
                 struct CUstream_st *stream);

    /* As decode_rows; keys and values at positions below `settled` may be read by a deep arm
       while the launch ahead in the stream still runs. So the launches that wrote them are
       complete, or a plain launch stands between them and this one. After a token has been
       appended: length - 1. 0, which is decode_rows, is always right. */
    int (*decode_settled)(int arm, const struct kg_decode *args, int64_t base,
                          int64_t rows, int64_t settled, struct CUstream_st *stream);
};

#endif
