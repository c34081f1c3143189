/*
 * tools/mkmodel.h: the parts of kgate-mkmodel.
 *
 * A spec (YAML) describes a stand-in model:
 *
 *   name: qwen35-9b-nvfp4           # general.name gets " (stand-in)" behind it
 *   format: gguf                    # gguf, safetensors or safetensors-dir
 *   seed: 1                         # optional; another seed, other contents
 *   shards: 2                       # optional, safetensors-dir only
 *   metadata:                       # optional; unquoted true/false, integers, decimals
 *     general.architecture: qwen35  # keep their type, all else is text
 *   tensors:
 *     - name: blk.0.ffn_gate.weight # or names: [A, B, ...] for several alike
 *       dtype: NVFP4
 *       shape: [4096, 12288]        # ne[] order, contiguous first; [] is a scalar
 *       fill: weight                # optional: weight, norm, scale or activation
 *
 * `fill` defaults to scale for names that end in "scale" or "scale_2", to norm for
 * one-dimensional tensors whose name contains "norm", and to weight otherwise.
 */
#ifndef KG_TOOLS_MKMODEL_H
#define KG_TOOLS_MKMODEL_H

#include <stdio.h>

#include "kgate/types.h"
#include "runner/error.h"
#include "runner/yaml.h"

enum mk_fill { MK_WEIGHT, MK_NORM, MK_SCALE, MK_ACTIVATION };

struct mk_tensor {
    const char *name;
    const struct kg_type_info *type;
    enum mk_fill fill;
    int n_dims;
    int64_t ne[4]; /* 1 past n_dims */
    uint64_t bytes;
};

enum mk_kind { MK_BOOL, MK_I64, MK_F64, MK_STR };

struct mk_meta {
    const char *key;
    enum mk_kind kind;
    int64_t i64; /* also the bool */
    double f64;
    const char *str;
};

struct mk_spec {
    struct kg_yaml *yaml; /* owns the text */
    const char *name, *format;
    int64_t seed, shards;
    struct mk_tensor *tensors;
    size_t n_tensors;
    struct mk_meta *meta;
    size_t n_meta;
};

/* 0 or negative with `error` set. Free with mk_spec_free in either case. */
int mk_spec_load(const char *path, struct mk_spec *spec, struct kg_error *error);
void mk_spec_free(struct mk_spec *spec);

/* True if this program knows how to fill a tensor of the type. */
bool mk_can_fill(enum kg_type type);
/* Writes the contents of one tensor, which depend on seed, name, type and shape alone.
   0 or KG_E_IO (errno is set). */
int mk_fill(FILE *file, const struct mk_tensor *tensor, int64_t seed);

/* Write a whole model to `out`: a file, or a directory that is made if it is absent. */
int mk_write_gguf(const struct mk_spec *spec, const char *out, struct kg_error *error);
int mk_write_safetensors(const struct mk_spec *spec, const char *out,
                         struct kg_error *error);
int mk_write_directory(const struct mk_spec *spec, const char *out,
                       struct kg_error *error);

#endif
