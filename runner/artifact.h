/*
 * runner/artifact.h: opening model files (include/kgate/artifact.h reads from them).
 *
 * What is covered against a file that changes under us: the descriptors stay open and
 * kg_artifact_unchanged compares size and modification time with those seen at open. What
 * is not: a file truncated while a tensor is being read ends the process with SIGBUS, as
 * with any mapping. The supervisor sees that as a crash of the section's own process, so
 * call kg_artifact_unchanged after such a crash or before a cell to say why.
 */
#ifndef KG_RUNNER_ARTIFACT_H
#define KG_RUNNER_ARTIFACT_H

#include <stdbool.h>

#include "kgate/artifact.h"
#include "runner/error.h"

/*
 * Opens and checks a model. `format` is "gguf", "safetensors" (one file) or
 * "safetensors-dir" (a directory with model.safetensors.index.json, or with one
 * model.safetensors; config.json, if present, is the metadata). `synthetic` marks it a
 * stand-in whatever the file says. Every header is checked here; no tensor data is read.
 * Returns 0 and *out, or KG_E_IO, KG_E_FORMAT, KG_E_MEMORY, KG_E_INVALID (unknown format)
 * with *out NULL and `error` set.
 */
int kg_artifact_open(const char *path, const char *format, bool synthetic,
                     struct kg_artifact **out, struct kg_error *error);

/* Unmaps the files and frees everything; every kg_tensor handed out is gone. NULL is
   fine. */
void kg_artifact_close(struct kg_artifact *artifact);

/* 0, or KG_E_IO with `error` naming the file whose size or modification time is no longer
   what it was at open. */
int kg_artifact_unchanged(const struct kg_artifact *artifact, struct kg_error *error);

#endif
