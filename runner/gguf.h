/*
 * runner/gguf.h: reading GGUF files, versions 2 and 3, little-endian.
 *
 * Checked before anything is handed out: magic, version and byte order; that the counts
 * of key-values and tensors can fit in the file; every length, string and array against
 * the end of the file; key and tensor names (no NUL, UTF-8 is not required, no
 * duplicates); value types; general.alignment (u32, a power of two from 8 to 65536);
 * dimensions (0 to 4 of them, each at least 1, their product within int64); the type
 * number; whole blocks in a row; data offsets (aligned, inside the file, not overlapping).
 *
 * Scalars and strings of the metadata can be read; arrays are only walked over, which
 * touches the lengths of string arrays. An array of arrays is refused.
 */
#ifndef KG_RUNNER_GGUF_H
#define KG_RUNNER_GGUF_H

#include "runner/artifact.h"

/* Maps `path` and fills `artifact`, which is empty. KG_E_IO, KG_E_FORMAT, KG_E_MEMORY. */
int kg_gguf_read(struct kg_artifact *artifact, const char *path, struct kg_error *error);

#endif
