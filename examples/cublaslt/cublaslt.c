/*
 * A kgate provider around cuBLASLt: ceiling.matmul for f16, bf16 and int8. Everything is
 * column-major over there, so row-major c[m][n] = a * b^T is asked for as c^T = b * a^T.
 */
#include <cublasLt.h>
#include <kgate/device/cuda.h>
#include <kgate/kernels.h>

static cublasLtHandle_t handle;

static int open_device(const struct kg_open_options *options)
{
    int rc = kg_cuda_open(options);
    if (rc == 0 && cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
        rc = KG_E_UNSUPPORTED;
    return rc;
}
static void close_device(void)
{
    cublasLtDestroy(handle);
}

static const struct kg_device_ops device = KG_CUDA_DEVICE(open_device, close_device);

/* ---- the products ---- */

static int matmul(int type, const void *a, const void *b, void *c, int64_t m, int64_t n,
                  int64_t k, void *workspace, size_t bytes, struct CUstream_st *stream)
{
    int is_int = type == KG_TYPE_I8;
    cudaDataType_t in = is_int                ? CUDA_R_8I
                        : type == KG_TYPE_F16 ? CUDA_R_16F
                                              : CUDA_R_16BF;
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t la = NULL, lb = NULL, lc = NULL;
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t best;
    cublasOperation_t transpose = CUBLAS_OP_T;
    float one_f = 1, zero_f = 0;
    int32_t one_i = 1, zero_i = 0;
    int found = 0, rc = KG_E_UNSUPPORTED;

    if (type != KG_TYPE_F16 && type != KG_TYPE_BF16 && !is_int)
        return KG_E_UNSUPPORTED;
    if (m <= 0 || n <= 0 || k <= 0 || !a || !b || !c)
        return KG_E_INVALID;
    if (!cublasLtMatmulDescCreate(&desc, is_int ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                  is_int ? CUDA_R_32I : CUDA_R_32F) &&
        !cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                        sizeof transpose) &&
        !cublasLtMatrixLayoutCreate(&lb, in, (uint64_t)k, (uint64_t)n, k) &&
        !cublasLtMatrixLayoutCreate(&la, in, (uint64_t)k, (uint64_t)m, k) &&
        !cublasLtMatrixLayoutCreate(&lc, is_int ? CUDA_R_32I : in, (uint64_t)n,
                                    (uint64_t)m, n) &&
        !cublasLtMatmulPreferenceCreate(&pref) &&
        !cublasLtMatmulPreferenceSetAttribute(
            pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes) &&
        !cublasLtMatmulAlgoGetHeuristic(handle, desc, lb, la, lc, lc, pref, 1, &best,
                                        &found) &&
        found > 0)
        rc = cublasLtMatmul(handle, desc, is_int ? (void *)&one_i : (void *)&one_f, b, lb,
                            a, la, is_int ? (void *)&zero_i : (void *)&zero_f, c, lc, c,
                            lc, &best.algo, workspace, bytes, stream)
                 ? KG_E_LAUNCH
                 : 0;
    cublasLtMatmulPreferenceDestroy(pref);
    cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatmulDescDestroy(desc);
    return rc;
}

static const struct kg_ceiling_ops ceiling = {.size = sizeof ceiling, .matmul = matmul};

const struct kg_provider kgate_provider = {
    .abi = KG_PROVIDER_ABI,
    .size = sizeof kgate_provider,
    .name = "cublaslt",
    .build_id = "cuBLASLt example",
    .device = &device,
    .ceiling = &ceiling,
};
