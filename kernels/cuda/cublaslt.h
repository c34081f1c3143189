/*
 * kernels/cuda/cublaslt.h: the vendor's matrix product, loaded at run time.
 *
 * libcublasLt is several hundred megabytes, so it is neither linked nor required: it is looked
 * for when first used, and its absence is KG_E_UNSUPPORTED.
 */
#ifndef KG_KERNELS_CUDA_CUBLASLT_H
#define KG_KERNELS_CUDA_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* c[m][n] = a[m][k] * b[n][k]^T, all row-major and dense. in_type, out_type: kg_type numbers.
   F16 or BF16 in gives F16, BF16 or F32 out with f32 accumulation; I8 in gives I32 out.
   `workspace` may be NULL when workspace_bytes is 0. */
int kg_cublaslt_matmul(int in_type, int out_type, const void *a, const void *b, void *c,
                       int64_t m, int64_t n, int64_t k, void *workspace,
                       size_t workspace_bytes, struct CUstream_st *stream);

#endif
