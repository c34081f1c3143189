/*
 * kgate/ops/ceiling.h: launches that show what the device can do at best.
 *
 * They are timed once a run (kgate run --bench), by the same timer as the kernels under test;
 * every speed is then given as a part of them.
 */
#ifndef KGATE_OPS_CEILING_H
#define KGATE_OPS_CEILING_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

struct kg_ceiling_ops {
    uint32_t size; /* sizeof(struct kg_ceiling_ops) */

    /* to[0 .. bytes) = from[0 .. bytes); bytes a multiple of 16. */
    int (*copy)(void *to, const void *from, size_t bytes, struct CUstream_st *stream);
    /* Reads every byte; adds a checksum into *sum so that no read can be left out. */
    int (*read_sweep)(const void *from, size_t bytes, uint32_t *sum,
                      struct CUstream_st *stream);
    int (*empty)(struct CUstream_st *stream);
    /* c[m][n] = a[m][k] * b[n][k]^T through the vendor's library. type is KG_TYPE_F16,
       KG_TYPE_BF16 (c of the same type, f32 accumulation) or KG_TYPE_I8 (c is int32).
       workspace: device memory the library may use. KG_E_UNSUPPORTED if the library
       is not on this machine. */
    int (*matmul)(int type, const void *a, const void *b, void *c, int64_t m, int64_t n,
                  int64_t k, void *workspace, size_t workspace_bytes,
                  struct CUstream_st *stream);
};

#endif
