/*
 * kgate/ops/ssm.h: the causal depthwise convolution in front of a state-space layer.
 *
 *   x [channels][n_tokens + d_conv - 1] f32: d_conv - 1 earlier values, then the tokens'
 *   w [channels][d_conv]    y [channels][n_tokens]    state [channels][d_conv - 1]
 *
 *   y[c][t] = f(sum over j of x[c][t + j] * w[c][j]),   f = silu or the identity
 *
 * The sum goes over j upwards from 0 with fused multiply-add.
 *
 * A launcher validates, enqueues on `stream`, and returns; it never allocates or waits.
 * KG_E_INVALID: a negative size, d_conv outside 2 .. 8, a size whose bytes overflow or that
 * no grid covers, a NULL pointer to something of more than 0 elements, or an array that is
 * not aligned to 4 bytes. No array overlaps another. Sizes of 0 do nothing.
 */
#ifndef KGATE_OPS_SSM_H
#define KGATE_OPS_SSM_H

#include <stdbool.h>
#include <stdint.h>

struct CUstream_st;

struct kg_ssm_ops {
    uint32_t size; /* sizeof(struct kg_ssm_ops) */

    /* The formula above. */
    int (*ssm_conv1d)(const float *x, const float *w, float *y, int64_t channels,
                      int64_t n_tokens, int64_t d_conv, bool silu,
                      struct CUstream_st *stream);

    /* x[c] = state[c] followed by token[c]; then the state drops its oldest value and takes
       token[c]. token [channels], x [channels][d_conv]: what ssm_conv1d takes for one
       token. */
    int (*conv_assemble_and_roll)(const float *token, float *state, float *x,
                                  int64_t channels, int64_t d_conv,
                                  struct CUstream_st *stream);

    /* Both for one token, y [channels], f = silu: the bits of conv_assemble_and_roll and
       ssm_conv1d. */
    int (*ssm_conv1d_fused_decode)(const float *token, float *state, const float *w,
                                   float *y, int64_t channels, int64_t d_conv,
                                   struct CUstream_st *stream);
};

#endif
