/*
 * oracle/kv.h: the KV cache on the host. Plain code, nothing shared with kernels/.
 */
#ifndef KGATE_ORACLE_KV_H
#define KGATE_ORACLE_KV_H

#include <stddef.h>
#include <stdint.h>

#include "kgate/types.h"

/* Bytes of n elements of a cache type (Q8_0, Q5_1, Q4_0, F8_E4M3); n a multiple of 32. */
size_t kg_oracle_kv_bytes(int type, int64_t n);

/* The bytes that kgate/ops/kv.h defines for n elements. */
void kg_oracle_kv_quantize(int type, const float *x, void *dst, int64_t n);

/* Elements first .. first + n - 1 of a row in f64, exact; both multiples of 32. */
void kg_oracle_kv_values(int type, const void *row, int64_t first, int64_t n,
                         double *dst);

#endif
