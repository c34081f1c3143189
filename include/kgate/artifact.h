/*
 * kgate/artifact.h: reading model files, from a section's point of view.
 *
 * An artifact is a GGUF file, a safetensors file, or a directory of safetensors shards.
 * It is mapped, not read: only the pages of tensors that are touched cost memory. All
 * bounds have been checked when a tensor is handed out: data[0 .. bytes) lies inside the
 * file. Nothing here needs freeing.
 */
#ifndef KGATE_ARTIFACT_H
#define KGATE_ARTIFACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kgate/status.h"
#include "kgate/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kg_artifact;

struct kg_tensor {
    const char *name;
    enum kg_type type;
    int n_dims;    /* 0 (a scalar) to 8 */
    int64_t ne[8]; /* ne[0] is the contiguous dimension in both formats; 1 past n_dims */
    const void *data; /* a multiple of 8 from the start of a GGUF file; any byte of a
                         safetensors file, so read wider elements with memcpy */
    uint64_t bytes;
};

KG_EXPORT size_t kg_artifact_count(const struct kg_artifact *artifact);
/* Tensor number `index` in file order; index < kg_artifact_count. */
KG_EXPORT const struct kg_tensor *kg_artifact_at(const struct kg_artifact *artifact,
                                                 size_t index);
/* The tensor called `name`, or NULL. Constant time. */
KG_EXPORT const struct kg_tensor *kg_artifact_find(const struct kg_artifact *artifact,
                                                   const char *name);
/* Metadata (GGUF key-values; config.json of a safetensors directory, nested keys joined
   by dots). False if the key is absent or of another type. Booleans read as i64 0 or 1;
   kg_artifact_f64 also takes an integer. The string is NUL-terminated. */
KG_EXPORT bool kg_artifact_i64(const struct kg_artifact *artifact, const char *key,
                               int64_t *value);
KG_EXPORT bool kg_artifact_f64(const struct kg_artifact *artifact, const char *key,
                               double *value);
KG_EXPORT bool kg_artifact_str(const struct kg_artifact *artifact, const char *key,
                               const char **value);
/* True for a stand-in (kgate-mkmodel) or a reduced copy: not a model anybody serves. */
KG_EXPORT bool kg_artifact_is_synthetic(const struct kg_artifact *artifact);

#ifdef __cplusplus
}
#endif

#endif
