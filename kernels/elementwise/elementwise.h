/*
 * What the files of this folder share: the launchers' names.
 */
#ifndef KGATE_KERNELS_ELEMENTWISE_H
#define KGATE_KERNELS_ELEMENTWISE_H

#include "kernels/device/device.h"
#include "kernels/matvec/launch.h"
#include "kgate/ops/elementwise.h"

#define KG_THREADS 256 /* in a block */

int kg_add(const float *a, const float *b, float *y, int64_t n,
           struct CUstream_st *stream);
int kg_silu_mul(const float *gate, const float *up, float *y, int64_t n,
                struct CUstream_st *stream);
int kg_silu_mul_scaled(const float *gate, const float *up, float gate_scale,
                       float up_scale, float *y, int64_t n, struct CUstream_st *stream);
int kg_gelu_mul(const float *gate, const float *up, float *y, int64_t n,
                struct CUstream_st *stream);
int kg_silu_mul_scaled_q8_1(const float *gate, const float *up, float gate_scale,
                            float up_scale, int8_t *q, float *d, float *s, int64_t n,
                            struct CUstream_st *stream);
int kg_quantize_d4(const float *x, void *d4, int64_t rows, int64_t cols,
                   struct CUstream_st *stream);
int kg_act_quantize_d4(enum kg_activation activation, const float *gate, const float *up,
                       void *d4, int64_t rows, int64_t cols, struct CUstream_st *stream);

#endif
