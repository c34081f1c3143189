/*
 * runner/safetensors.h: reading safetensors files and directories of them.
 *
 * A file is a u64 length, a JSON header of that length, and the data. Checked: the length
 * (2 bytes to 100 MB, and inside the file); the JSON (strict; exactly dtype, shape and
 * data_offsets for each tensor, none twice); the dtype; 0 to 8 dimensions, none negative,
 * their product within int64; that data_offsets span exactly the product times the element
 * size; that sorted by offset the tensors cover the data without a hole or an overlap. The
 * shape is stored outermost first: ne[] is its reverse. Types that pack elements below a
 * byte (F4, F6) are refused. Data may start at any byte: read with memcpy.
 *
 * The headers of all shards are read when a directory is opened, with json_scan.h, which
 * builds no tree; that is fast enough not to need laziness, and then every fault is
 * reported at open.
 */
#ifndef KG_RUNNER_SAFETENSORS_H
#define KG_RUNNER_SAFETENSORS_H

#include "runner/artifact.h"

struct kg_mapped;

/* One file. The strings of its __metadata__ become metadata. */
int kg_safetensors_read(struct kg_artifact *artifact, const char *path,
                        struct kg_error *error);

/* A directory: model.safetensors.index.json with its shards, or model.safetensors alone.
   The names in weight_map must be plain names of regular files in the directory (not of
   symbolic links). Exactly the tensors that weight_map lists are handed out, in the order
   of the shards' names. config.json, if present, is the metadata: an object inside it
   gives keys joined by dots, an array is present without a value. */
int kg_safetensors_dir_read(struct kg_artifact *artifact, const char *path,
                            struct kg_error *error);

/* For the directory reader: reads the header of a mapped file. `want` is called for each
   tensor in data order, its name interned: 1 adds it, 0 leaves it out, negative fails. */
typedef int kg_safetensors_want(void *context, const char *name);
int kg_safetensors_read_mapped(struct kg_artifact *artifact, const struct kg_mapped *file,
                               bool metadata, kg_safetensors_want *want, void *context,
                               struct kg_error *error);

#endif
