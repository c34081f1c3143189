/*
 * kgate/kernels.h: the provider ABI, which is how kernels reach the gates.
 *
 * A provider is a shared object with one exported symbol, `kgate_provider`, a constant
 * struct kg_provider. kgate loads it with dlopen(RTLD_NOW | RTLD_LOCAL) and reads `abi`
 * and `size` before anything else. Launchers sit in one table per kernel family
 * (kgate/ops/FAMILY.h). A table that is NULL, a table that is too short to hold an entry,
 * and an entry that is NULL all mean "this provider has no such kernel": its cells SKIP
 * with `kernel-missing`. So an engine's adapter fills in what it has and leaves the rest
 * zero.
 *
 * Growth: members are only ever appended, to this struct and to the tables, which say their
 * size; what launchers take does not grow, so that what is new there is a new launcher.
 * KG_PROVIDER_ABI changes when that rule is broken.
 */
#ifndef KGATE_KERNELS_H
#define KGATE_KERNELS_H

#include <stdint.h>

#include "kgate/ops/attention.h"
#include "kgate/ops/ceiling.h"
#include "kgate/ops/device.h"
#include "kgate/ops/dsv4.h"
#include "kgate/ops/elementwise.h"
#include "kgate/ops/expert_cache.h"
#include "kgate/ops/fp8.h"
#include "kgate/ops/gdn.h"
#include "kgate/ops/gemm.h"
#include "kgate/ops/grouped.h"
#include "kgate/ops/kv.h"
#include "kgate/ops/matvec.h"
#include "kgate/ops/mmvq.h"
#include "kgate/ops/norm.h"
#include "kgate/ops/router.h"
#include "kgate/ops/ssm.h"
#include "kgate/status.h"
#include "kgate/types.h"

#define KG_PROVIDER_ABI 1u
#define KG_PROVIDER_SYMBOL "kgate_provider"

/* Tables whose header is not included here are declared there. */

struct kg_provider {
    uint32_t abi;         /* KG_PROVIDER_ABI */
    uint32_t size;        /* sizeof(struct kg_provider) */
    const char *name;     /* short: "cuda", "emu", "myengine" */
    const char *build_id; /* what tells two builds apart: compiler, flags, version */
    const struct kg_device_ops *device; /* required */
    const struct kg_matvec_ops *matvec;
    const struct kg_ceiling_ops *ceiling;
    const struct kg_norm_ops *norm;
    const struct kg_elementwise_ops *elementwise;
    const struct kg_ssm_ops *ssm;
    const struct kg_gdn_ops *gdn;
    const struct kg_mmvq_ops *mmvq;
    const struct kg_fp8_ops *fp8;
    const struct kg_gemm_ops *gemm;
    const struct kg_kv_ops *kv;
    const struct kg_attention_ops *attention;
    const struct kg_grouped_ops *grouped;
    const struct kg_router_ops *router;
    const struct kg_expert_cache_ops *expert_cache;
    const struct kg_dsv4_ops *dsv4;
};

#ifdef __cplusplus
extern "C" {
#endif
extern KG_EXPORT const struct kg_provider kgate_provider;
#ifdef __cplusplus
}
#endif

#endif
