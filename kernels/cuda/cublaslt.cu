#include "cuda/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <mutex>

#include "kgate/status.h"
#include "kgate/types.h"

namespace
{

struct library {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) pref_create;
    decltype(&cublasLtMatmulPreferenceDestroy) pref_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) pref_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    cublasLtHandle_t handle;
    bool ready;
};

template <class F>
bool symbol(void *from, const char *name, F *slot)
{
    *slot = reinterpret_cast<F>(dlsym(from, name));
    return *slot != nullptr;
}

bool load(library *l)
{
    void *so = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!so)
        so = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    return so && symbol(so, "cublasLtCreate", &l->create) &&
           symbol(so, "cublasLtMatmul", &l->matmul) &&
           symbol(so, "cublasLtMatmulDescCreate", &l->desc_create) &&
           symbol(so, "cublasLtMatmulDescDestroy", &l->desc_destroy) &&
           symbol(so, "cublasLtMatmulDescSetAttribute", &l->desc_set) &&
           symbol(so, "cublasLtMatrixLayoutCreate", &l->layout_create) &&
           symbol(so, "cublasLtMatrixLayoutDestroy", &l->layout_destroy) &&
           symbol(so, "cublasLtMatmulPreferenceCreate", &l->pref_create) &&
           symbol(so, "cublasLtMatmulPreferenceDestroy", &l->pref_destroy) &&
           symbol(so, "cublasLtMatmulPreferenceSetAttribute", &l->pref_set) &&
           symbol(so, "cublasLtMatmulAlgoGetHeuristic", &l->heuristic) &&
           l->create(&l->handle) == CUBLAS_STATUS_SUCCESS;
}

const library *cublaslt()
{
    static library l;
    static std::once_flag once;
    std::call_once(once, [] { l.ready = load(&l); });
    return l.ready ? &l : nullptr;
}

bool data_type(int type, cudaDataType_t *out)
{
    switch (type) {
    case KG_TYPE_F16:
        *out = CUDA_R_16F;
        return true;
    case KG_TYPE_BF16:
        *out = CUDA_R_16BF;
        return true;
    case KG_TYPE_F32:
        *out = CUDA_R_32F;
        return true;
    case KG_TYPE_I8:
        *out = CUDA_R_8I;
        return true;
    case KG_TYPE_I32:
        *out = CUDA_R_32I;
        return true;
    default:
        return false;
    }
}

/* What one product needs, freed together. */
struct plan {
    const library *l;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulPreference_t pref = nullptr;
    explicit plan(const library *lib) : l(lib)
    {
    }
    ~plan()
    {
        if (pref)
            l->pref_destroy(pref);
        if (a)
            l->layout_destroy(a);
        if (b)
            l->layout_destroy(b);
        if (c)
            l->layout_destroy(c);
        if (desc)
            l->desc_destroy(desc);
    }
};

} // namespace

/* cuBLAS is column-major. Row-major c[m][n] is column-major c'[n][m] = b * a^T with b stored
   as k x n (transposed) and a as k x m. */
int kg_cublaslt_matmul(int in_type, int out_type, const void *a, const void *b, void *c,
                       int64_t m, int64_t n, int64_t k, void *workspace,
                       size_t workspace_bytes, struct CUstream_st *stream)
{
    cudaDataType_t in, out;
    if (m <= 0 || n <= 0 || k <= 0 || !a || !b || !c)
        return KG_E_INVALID;
    if (!data_type(in_type, &in) || !data_type(out_type, &out))
        return KG_E_UNSUPPORTED;
    const library *l = cublaslt();
    if (!l)
        return KG_E_UNSUPPORTED;
    bool integer = in_type == KG_TYPE_I8;
    cublasOperation_t transpose = CUBLAS_OP_T;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    plan p(l);
    if (l->desc_create(&p.desc, integer ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                       integer ? CUDA_R_32I : CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
        l->desc_set(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose) !=
            CUBLAS_STATUS_SUCCESS ||
        l->layout_create(&p.a, in, k, n, k) != CUBLAS_STATUS_SUCCESS ||
        l->layout_create(&p.b, in, k, m, k) != CUBLAS_STATUS_SUCCESS ||
        l->layout_create(&p.c, out, n, m, n) != CUBLAS_STATUS_SUCCESS ||
        l->pref_create(&p.pref) != CUBLAS_STATUS_SUCCESS ||
        l->pref_set(p.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                    sizeof workspace_bytes) != CUBLAS_STATUS_SUCCESS)
        return KG_E_LAUNCH;
    if (l->heuristic(l->handle, p.desc, p.a, p.b, p.c, p.c, p.pref, 1, &found,
                     &n_found) != CUBLAS_STATUS_SUCCESS ||
        n_found == 0)
        return KG_E_UNSUPPORTED;
    float one_f = 1, zero_f = 0;
    int32_t one_i = 1, zero_i = 0;
    const void *one = integer ? (const void *)&one_i : (const void *)&one_f;
    const void *zero = integer ? (const void *)&zero_i : (const void *)&zero_f;
    cublasStatus_t status =
        l->matmul(l->handle, p.desc, one, b, p.a, a, p.b, zero, c, p.c, c, p.c,
                  &found.algo, workspace, workspace_bytes, (cudaStream_t)stream);
    return status == CUBLAS_STATUS_SUCCESS ? KG_OK : KG_E_LAUNCH;
}
