/*
 * runner/artifact_impl.h: what the readers share (gguf.c, safetensors.c,
 * safetensors_dir.c). Everything else uses runner/artifact.h.
 *
 * A reader maps files, adds metadata and tensors, and returns. It need not clean up on
 * failure: kg_artifact_open closes the half-made artifact.
 */
#ifndef KG_RUNNER_ARTIFACT_IMPL_H
#define KG_RUNNER_ARTIFACT_IMPL_H

#include <sys/stat.h>

#include "runner/artifact.h"
#include "runner/names.h"

struct kg_mapped {
    char *path; /* as shown in messages */
    int fd;
    const uint8_t *base; /* NULL if the file is empty */
    size_t size;
    struct timespec modified;
};

enum kg_meta_kind { KG_META_I64, KG_META_F64, KG_META_STR, KG_META_OTHER };

struct kg_meta {
    const char *key;
    enum kg_meta_kind kind; /* OTHER: present (an array, null), but not handed out */
    union {
        int64_t i64;
        double f64;
        const char *str;
    } value;
};

struct kg_chunk;

struct kg_artifact {
    struct kg_mapped *files;
    size_t n_files;
    struct kg_tensor *tensors;
    size_t n_tensors, tensors_room;
    struct kg_meta *meta;
    size_t n_meta, meta_room;
    struct kg_names tensor_names, meta_names;
    struct kg_chunk *arena;
    bool synthetic;
};

/* Opens `name` below the directory `dir_fd` (AT_FDCWD: any path), checks that it is a
   regular file or a link to one, maps it, and adds it to artifact->files.
   `shown` is the path for messages. The result is valid until the next call. */
int kg_artifact_map(struct kg_artifact *artifact, int dir_fd, const char *name,
                    const char *shown, struct kg_mapped **out, struct kg_error *error);

/* A NUL-terminated copy that lives as long as the artifact; NULL when out of memory. */
char *kg_artifact_text(struct kg_artifact *artifact, const char *bytes, size_t length);

/* Adds one; KG_E_INVALID means that the name or key is there already (nothing is said in
   an error: the caller knows the file and the offset). */
int kg_artifact_add_tensor(struct kg_artifact *artifact, const struct kg_tensor *tensor);
int kg_artifact_add_meta(struct kg_artifact *artifact, const struct kg_meta *meta);

#endif
