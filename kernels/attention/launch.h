/*
 * The instances of the attention kernels, one translation unit each.
 */
#ifndef KGATE_KERNELS_ATTENTION_LAUNCH_H
#define KGATE_KERNELS_ATTENTION_LAUNCH_H

#include "kernels/attention/rows.h"

int launch_decode_scalar(int head_dim, const struct decode &p, int rows,
                         struct CUstream_st *stream);
int launch_decode_any(int head_dim, const struct decode &p, int rows,
                      struct CUstream_st *stream);
int launch_decode_vector(int head_dim, bool deep, const struct decode &p, int rows,
                         struct CUstream_st *stream);
int launch_decode_int8(int head_dim, bool deep, const struct decode &p, int rows,
                       struct CUstream_st *stream);

struct prefill;
int launch_prefill_bf16(int head_dim, bool single, const struct prefill &p,
                        struct CUstream_st *stream);
int launch_prefill_f16(int head_dim, bool single, const struct prefill &p,
                       struct CUstream_st *stream);
int launch_prefill_wgmma(int head_dim, bool f16, const struct prefill &p,
                         struct CUstream_st *stream);

int kg_attention_prefill(int arm, const struct kg_prefill *args,
                         struct CUstream_st *stream);
int kg_attention_stage(const struct kg_prefill *args, int half, void *k16, void *v16,
                       struct CUstream_st *stream);

#endif
