/*
 * The partition law: how the keys of a row are cut into splits.
 *
 * A row that sees `keys` keys with n_kv_heads key heads has splits of split_keys(keys,
 * splits_wanted(n_kv_heads)) keys, the last one shorter. Every form of decode attention
 * cuts so, whatever its grid: split s is keys s * size .. of those the row sees, and a block
 * whose split is past the end does nothing. So the bits of a row do not depend on the form,
 * nor on the rows beside it, nor on the bucket under which a graph was captured. Within a
 * split, tile t of 16 keys is of warp t % WARPS, and WARPS depends on head_dim alone
 * (decode.h).
 *
 * The size aims at 132 blocks over all key heads (one on each multiprocessor), and
 * at no less than 128 keys, below which starting and combining costs more than it gains.
 */
#ifndef KGATE_KERNELS_ATTENTION_PARTITION_H
#define KGATE_KERNELS_ATTENTION_PARTITION_H

#include "kernels/device/device.h"

#define SPLIT_BLOCKS 132
#define SPLIT_KEYS_MIN 128
#define SPLIT_KEYS_MAX 0x7fffffff
#define SPLIT_KEYS_STEP 64 /* sizes are multiples of it, and so of a tile */

static __host__ __device__ inline int splits_wanted(int n_kv_heads)
{
    return n_kv_heads >= SPLIT_BLOCKS ? 1 : SPLIT_BLOCKS / n_kv_heads;
}

static __host__ __device__ inline int split_keys(int keys, int wanted)
{
    const unsigned size = ((unsigned)keys + (unsigned)wanted - 1u) / (unsigned)wanted;
    const unsigned rounded =
        (size + SPLIT_KEYS_STEP - 1u) / SPLIT_KEYS_STEP * SPLIT_KEYS_STEP;
    return rounded < SPLIT_KEYS_MIN   ? SPLIT_KEYS_MIN
           : rounded > SPLIT_KEYS_MAX ? SPLIT_KEYS_MAX
                                      : (int)rounded;
}

static __host__ __device__ inline int split_count(int keys, int size)
{
    return (int)(((unsigned)keys + (unsigned)size - 1u) / (unsigned)size);
}

/* The most splits that any row of at most `keys` keys has. split_count itself is not
   monotonic: it falls where the size goes up a step. */
static __host__ __device__ inline int split_count_max(int keys, int n_kv_heads)
{
    const int wanted = splits_wanted(n_kv_heads);
    const int most = (int)(((int64_t)keys + SPLIT_KEYS_MIN - 1) / SPLIT_KEYS_MIN);
    return most < wanted ? most : wanted;
}

#endif
