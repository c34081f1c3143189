/*
 * kgate/types.h: element and block types, numbered as GGUF files number them.
 *
 * Numbers below 1000 are ggml's (https://github.com/ggml-org/ggml, enum ggml_type). Forks
 * of ggml reuse 41 and up for types of their own, so a file that carries such a number is
 * refused. Numbers from 1000 are kgate's own, for types that only safetensors files have.
 */
#ifndef KGATE_TYPES_H
#define KGATE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "kgate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kg_type {
    KG_TYPE_F32 = 0,
    KG_TYPE_F16 = 1,
    KG_TYPE_Q4_0 = 2,
    KG_TYPE_Q4_1 = 3,
    KG_TYPE_Q5_0 = 6,
    KG_TYPE_Q5_1 = 7,
    KG_TYPE_Q8_0 = 8,
    KG_TYPE_Q8_1 = 9,
    KG_TYPE_Q2_K = 10,
    KG_TYPE_Q3_K = 11,
    KG_TYPE_Q4_K = 12,
    KG_TYPE_Q5_K = 13,
    KG_TYPE_Q6_K = 14,
    KG_TYPE_Q8_K = 15,
    KG_TYPE_IQ2_XXS = 16,
    KG_TYPE_IQ2_XS = 17,
    KG_TYPE_IQ3_XXS = 18,
    KG_TYPE_IQ1_S = 19,
    KG_TYPE_IQ4_NL = 20,
    KG_TYPE_IQ3_S = 21,
    KG_TYPE_IQ2_S = 22,
    KG_TYPE_IQ4_XS = 23,
    KG_TYPE_I8 = 24,
    KG_TYPE_I16 = 25,
    KG_TYPE_I32 = 26,
    KG_TYPE_I64 = 27,
    KG_TYPE_F64 = 28,
    KG_TYPE_IQ1_M = 29,
    KG_TYPE_BF16 = 30,
    KG_TYPE_TQ1_0 = 34,
    KG_TYPE_TQ2_0 = 35,
    KG_TYPE_MXFP4 = 39,
    KG_TYPE_NVFP4 = 40,

    KG_TYPE_U8 = 1000,
    KG_TYPE_F8_E4M3 = 1001,
    KG_TYPE_F8_E8M0 = 1002,
    KG_TYPE_BOOL = 1003,
    KG_TYPE_F8_E5M2 = 1004,
    KG_TYPE_U16 = 1005,
    KG_TYPE_U32 = 1006,
    KG_TYPE_U64 = 1007,
};

/* How a type is stored: `block` consecutive elements of a row occupy `bytes` bytes. */
struct kg_type_info {
    enum kg_type type;
    const char *name; /* as ggml or safetensors spells it: "Q4_K", "F8_E4M3" */
    int32_t block;
    int32_t bytes;
};

/* The description of `type`, or NULL for a number that is unknown or was removed. */
KG_EXPORT const struct kg_type_info *kg_type_info(int type);

/* The name of `type`, or "type?" for an unknown number. Never NULL. */
KG_EXPORT const char *kg_type_name(int type);

/* Bytes of one row of `cols` elements; 0 if the type is unknown, cols <= 0, cols is not a
   multiple of the block, or the product does not fit. */
KG_EXPORT size_t kg_row_bytes(int type, int64_t cols);

#ifdef __cplusplus
}
#endif

#endif
