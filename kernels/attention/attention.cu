/*
 * The attention family's launchers of decode, and its table.
 *
 * All forms come down to rows: where each one's length and caches are read, and the most
 * splits that any has (partition.h).
 */
#include "kernels/attention/launch.h"
#include "kgate/types.h"

#define ROWS_MAX 65535 /* grid z */

/* Workspace: the counters, the splits' states, their partial outputs. Counters come first,
   so that they stay where they are when the length changes. */
struct workspace {
    int64_t state, partial, bytes; /* offsets */
};

static struct workspace workspace_of(const struct kg_decode *a, int64_t rows,
                                     int64_t splits)
{
    struct workspace w;
    const int64_t n = rows * a->n_heads * splits;
    w.state = (rows * a->n_heads * (int64_t)sizeof(unsigned) + 15) / 16 * 16;
    w.partial = w.state + (n * (int64_t)sizeof(float2) + 15) / 16 * 16;
    w.bytes = w.partial + n * a->head_dim * (int64_t)sizeof(float);
    return w;
}

static int check_heads(const struct kg_decode *a, int64_t rows, int64_t max_length)
{
    if (!a || rows < 0 || rows > ROWS_MAX || max_length < 0 || max_length > INT32_MAX ||
        a->n_heads < 1 || a->n_kv_heads < 1 || a->n_heads % a->n_kv_heads != 0 ||
        a->n_heads > ROWS_MAX || a->window < 0)
        return KG_E_INVALID;
    switch (a->head_dim) {
    case 64:
    case 96:
    case 128:
    case 192:
    case 256:
    case 512:
        return KG_OK;
    default:
        return KG_E_UNSUPPORTED;
    }
}

/* Bytes of a head's row, and the largest power of two up to 16 that divides them. */
static int64_t head_bytes(int type, int head_dim, int64_t *align)
{
    const int64_t block = type == KG_TYPE_Q8_0   ? 34
                          : type == KG_TYPE_Q5_1 ? 24
                          : type == KG_TYPE_Q4_0 ? 18
                                                 : 32;
    const int64_t bytes = head_dim / 32 * block;
    *align = bytes & -bytes;
    *align = *align > 16 ? 16 : *align;
    return bytes;
}

static int check_side(const struct kg_decode *a, int type, int64_t dim, int64_t stride,
                      const void *cache, bool table)
{
    int64_t align;
    const int64_t bytes = head_bytes(type, a->head_dim, &align);
    if (dim != (int64_t)a->n_kv_heads * a->head_dim || stride < a->n_kv_heads * bytes ||
        stride % align != 0 || stride > INT64_C(1) << 31 || (!cache && !table) ||
        (uintptr_t)cache % 16 != 0)
        return KG_E_INVALID;
    return KG_OK;
}

static int run(int arm, const struct kg_decode *a, struct decode p, int64_t rows,
               int64_t max_length, struct CUstream_st *stream)
{
    KG_TRY(check_heads(a, rows, max_length));
    const struct kg_kv_layout *l = &a->layout;
    if ((l->k_type != KG_TYPE_Q8_0 && l->k_type != KG_TYPE_F8_E4M3) ||
        (l->v_type != KG_TYPE_Q5_1 && l->v_type != KG_TYPE_Q4_0 &&
         l->v_type != KG_TYPE_F8_E4M3))
        return KG_E_UNSUPPORTED;
    if (rows == 0)
        return KG_OK;
    KG_TRY(check_side(a, l->k_type, l->k_dim, l->k_stride, a->k_cache, p.table));
    KG_TRY(check_side(a, l->v_type, l->v_dim, l->v_stride, a->v_cache, p.table));
    if (!a->q || !a->out || (uintptr_t)a->q % 16 != 0 || (uintptr_t)a->out % 16 != 0 ||
        (uintptr_t)a->lse % 4 != 0 || !a->workspace || (uintptr_t)a->workspace % 16 != 0)
        return KG_E_INVALID;
    /* A window bounds what a row sees, and the splits with it. */
    if (a->window > 0 && max_length > a->window)
        max_length = a->window;
    p.splits_max = split_count_max((int)max_length, a->n_kv_heads);
    const struct workspace w = workspace_of(a, rows, p.splits_max);
    uint8_t *base = (uint8_t *)a->workspace;
    p.q = a->q;
    p.k = (const uint8_t *)a->k_cache;
    p.v = (const uint8_t *)a->v_cache;
    p.out = a->out;
    p.lse = a->lse;
    p.partial = (float *)(base + w.partial);
    p.state = (float2 *)(base + w.state);
    p.counter = (unsigned *)base;
    p.k_stride = (uint32_t)l->k_stride;
    p.v_stride = (uint32_t)l->v_stride;
    p.k_type = l->k_type;
    p.v_type = l->v_type;
    p.n_heads = a->n_heads;
    p.n_kv_heads = a->n_kv_heads;
    p.group = a->n_heads / a->n_kv_heads;
    p.splits_wanted = splits_wanted(a->n_kv_heads);
    p.size_max = split_keys((int)max_length, p.splits_wanted);
    if (rows == 1 && !p.table && !p.lengths) {
        p.split_size = p.size_max;
        p.n_splits = split_count((int)max_length, p.split_size);
    }
    p.window = a->window;
    p.scale = a->scale;

    const bool main = l->k_type == KG_TYPE_Q8_0 && l->v_type == KG_TYPE_Q5_1;
    const bool deep = (arm & KG_DECODE_DEEP) != 0;
    switch (arm & ~KG_DECODE_DEEP) {
    case KG_DECODE_SCALAR:
        return deep ? KG_E_UNSUPPORTED
                    : launch_decode_scalar(a->head_dim, p, (int)rows, stream);
    case KG_DECODE_VECTOR:
        if (main)
            return launch_decode_vector(a->head_dim, deep, p, (int)rows, stream);
        return deep ? KG_E_UNSUPPORTED
                    : launch_decode_any(a->head_dim, p, (int)rows, stream);
    case KG_DECODE_INT8:
        return main ? launch_decode_int8(a->head_dim, deep, p, (int)rows, stream)
                    : KG_E_UNSUPPORTED;
    default:
        return KG_E_UNSUPPORTED;
    }
}

static int64_t kg_decode_workspace(const struct kg_decode *a, int64_t rows,
                                   int64_t max_length)
{
    KG_TRY(check_heads(a, rows, max_length));
    return workspace_of(a, rows, split_count_max((int)max_length, a->n_kv_heads)).bytes;
}

static int kg_decode_row(int arm, const struct kg_decode *args, int64_t length,
                         struct CUstream_st *stream)
{
    struct decode p = {};
    if (length < 0 || length > INT32_MAX)
        return KG_E_INVALID;
    p.length = (int)length;
    return run(arm, args, p, 1, length, stream);
}

static int kg_decode_settled(int arm, const struct kg_decode *args, int64_t base,
                             int64_t rows, int64_t settled, struct CUstream_st *stream)
{
    struct decode p = {};
    if (base < 0 || rows < 0 || rows > ROWS_MAX || base > INT32_MAX - rows || settled < 0)
        return KG_E_INVALID;
    p.length = (int)base + 1;
    p.settled = (int)min(settled, (int64_t)INT32_MAX);
    return run(arm, args, p, rows, base + rows, stream);
}

static int kg_decode_rows(int arm, const struct kg_decode *args, int64_t base,
                          int64_t rows, struct CUstream_st *stream)
{
    return kg_decode_settled(arm, args, base, rows, 0, stream);
}

static int kg_decode_seqs(int arm, const struct kg_decode *args, const uint64_t *table,
                          const int32_t *lengths, int64_t batch, int64_t max_length,
                          struct CUstream_st *stream)
{
    struct decode p = {};
    if (batch > 0 && (!table || !lengths))
        return KG_E_INVALID;
    p.table = table;
    p.lengths = lengths;
    return run(arm, args, p, batch, max_length, stream);
}

static int kg_decode_dc(int arm, const struct kg_decode *args, const int32_t *length,
                        int64_t max_length, struct CUstream_st *stream)
{
    struct decode p = {};
    if (!length)
        return KG_E_INVALID;
    p.lengths = length;
    return run(arm, args, p, 1, max_length, stream);
}

extern const struct kg_attention_ops kg_attention_table;
const struct kg_attention_ops kg_attention_table = {
    sizeof(struct kg_attention_ops),
    kg_decode_workspace,
    kg_decode_row,
    kg_decode_rows,
    kg_decode_seqs,
    kg_decode_dc,
    kg_attention_prefill,
    kg_attention_stage,
    kg_decode_settled,
};
