/*
 * provider.cu: the one symbol that a provider exports.
 *
 * Every family's table is a weak reference: a family whose file is not built into this
 * provider reads NULL, "no such kernel". To add a family, list its file in meson.build and
 * its table here.
 */
#include "kgate/kernels.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#if defined(KG_EMU)
#define PROVIDER_NAME "emu"
#define COMPILER "g++ " __VERSION__
#else
#define PROVIDER_NAME "cuda"
#define COMPILER                                                                         \
    "nvcc " TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__) "." TEXT(          \
        __CUDACC_VER_BUILD__) ", g++ " __VERSION__
#endif

/* KG_BUILD_FLAGS: kgate's version, and the architectures or -march, from meson. */
#define BUILD_ID KG_BUILD_FLAGS " (" COMPILER ")"

#define TABLE(family)                                                                    \
    extern const struct kg_##family##_ops kg_##family##_table                            \
        __attribute__((weak, visibility("hidden")))

TABLE(device);
TABLE(matvec);
TABLE(ceiling);
TABLE(norm);
TABLE(elementwise);
TABLE(ssm);
TABLE(gdn);
TABLE(mmvq);
TABLE(fp8);
TABLE(gemm);
TABLE(kv);
TABLE(attention);
TABLE(grouped);
TABLE(router);
TABLE(expert_cache);
TABLE(dsv4);

const struct kg_provider kgate_provider = {
    KG_PROVIDER_ABI,        sizeof(struct kg_provider),
    PROVIDER_NAME,          BUILD_ID,
    &kg_device_table,       &kg_matvec_table,
    &kg_ceiling_table,      &kg_norm_table,
    &kg_elementwise_table,  &kg_ssm_table,
    &kg_gdn_table,          &kg_mmvq_table,
    &kg_fp8_table,          &kg_gemm_table,
    &kg_kv_table,           &kg_attention_table,
    &kg_grouped_table,      &kg_router_table,
    &kg_expert_cache_table, &kg_dsv4_table,
};
