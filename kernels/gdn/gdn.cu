/*
 * The table of the gated delta net (kgate/ops/gdn.h).
 */
#include "kernels/device/device.h"
#include "kernels/gdn/launch.h"

#if !defined(KG_HAVE_SM90)
int kg_gdn_chunked_wgmma(const struct kg_gdn_args *args, int64_t chunk, void *workspace,
                         size_t workspace_bytes, struct CUstream_st *)
{
    KG_TRY(gdn_check_chunked(args, chunk, workspace, workspace_bytes));
    return KG_E_UNSUPPORTED;
}
#endif

static size_t kg_gdn_workspace_bytes(int64_t n_heads, int64_t n_tokens, int64_t chunk)
{
    return gdn_workspace_bytes(n_heads, n_tokens, chunk);
}

extern const struct kg_gdn_ops kg_gdn_table;
const struct kg_gdn_ops kg_gdn_table = {
    sizeof(struct kg_gdn_ops), kg_gdn_scan,
    kg_gdn_workspace_bytes,    kg_gdn_chunked,
    kg_gdn_chunked_mma,        kg_gdn_chunked_wgmma,
};
