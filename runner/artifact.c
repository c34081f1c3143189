#include "runner/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/artifact_impl.h"
#include "runner/gguf.h"
#include "runner/safetensors.h"

/* Names and strings live in chunks: tens of thousands of them, freed together. */
struct kg_chunk {
    struct kg_chunk *next;
    size_t used, size;
    char bytes[];
};

char *kg_artifact_text(struct kg_artifact *artifact, const char *bytes, size_t length)
{
    enum { CHUNK = 256 * 1024 };
    struct kg_chunk *chunk = artifact->arena;
    if (!chunk || chunk->size - chunk->used <= length) {
        size_t size = length + 1 > CHUNK ? length + 1 : CHUNK;
        chunk = malloc(sizeof *chunk + size);
        if (!chunk)
            return NULL;
        chunk->used = 0;
        chunk->size = size;
        chunk->next = artifact->arena;
        artifact->arena = chunk;
    }
    char *text = chunk->bytes + chunk->used;
    if (length > 0)
        memcpy(text, bytes, length);
    text[length] = '\0';
    chunk->used += length + 1;
    return text;
}

static int map_opened(struct kg_mapped *file, struct kg_error *error)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return kg_error_at_offset(error, KG_E_IO, file->path, -1,
                                  "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kg_error_at_offset(
            error, KG_E_IO, file->path, -1, "is %s, expected a file",
            S_ISDIR(st.st_mode) ? "a directory" : "a device, pipe or socket");
    file->modified = st.st_mtim;
    file->size = (size_t)st.st_size;
    if (file->size == 0)
        return KG_OK;
    void *base = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (base == MAP_FAILED)
        return kg_error_at_offset(error, KG_E_IO, file->path, -1, "cannot be mapped: %s",
                                  strerror(errno));
    file->base = base;
    return KG_OK;
}

int kg_artifact_map(struct kg_artifact *artifact, int dir_fd, const char *name,
                    const char *shown, struct kg_mapped **out, struct kg_error *error)
{
    struct kg_mapped *files =
        realloc(artifact->files, (artifact->n_files + 1) * sizeof *files);
    if (!files)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    artifact->files = files;
    struct kg_mapped *file = &files[artifact->n_files];
    memset(file, 0, sizeof *file);
    file->path = strdup(shown);
    if (!file->path)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    /* Without O_NONBLOCK, opening a FIFO would wait for a writer. */
    file->fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    artifact->n_files++;
    *out = file;
    if (file->fd < 0)
        return kg_error_at_offset(error, KG_E_IO, shown, -1, "cannot be opened: %s",
                                  strerror(errno));
    return map_opened(file, error);
}

static int reserve(void **array, size_t *room, size_t count, size_t item)
{
    if (count < *room)
        return KG_OK;
    size_t more = *room ? *room * 2 : 64;
    void *bigger = realloc(*array, more * item);
    if (!bigger)
        return KG_E_MEMORY;
    *array = bigger;
    *room = more;
    return KG_OK;
}

int kg_artifact_add_tensor(struct kg_artifact *artifact, const struct kg_tensor *tensor)
{
    uint32_t index = (uint32_t)artifact->n_tensors;
    KG_TRY(reserve((void **)&artifact->tensors, &artifact->tensors_room, index,
                   sizeof artifact->tensors[0]));
    KG_TRY(kg_names_add(&artifact->tensor_names, tensor->name, &index));
    artifact->tensors[artifact->n_tensors++] = *tensor;
    return KG_OK;
}

int kg_artifact_add_meta(struct kg_artifact *artifact, const struct kg_meta *meta)
{
    uint32_t index = (uint32_t)artifact->n_meta;
    KG_TRY(reserve((void **)&artifact->meta, &artifact->meta_room, index,
                   sizeof artifact->meta[0]));
    KG_TRY(kg_names_add(&artifact->meta_names, meta->key, &index));
    artifact->meta[artifact->n_meta++] = *meta;
    return KG_OK;
}

/* A stand-in says so in kgate.synthetic; a reduced copy says "(reduced ...)" in its
   name. */
static bool says_synthetic(const struct kg_artifact *artifact)
{
    int64_t flag = 0;
    const char *text;
    if (kg_artifact_i64(artifact, "kgate.synthetic", &flag) && flag != 0)
        return true;
    if (kg_artifact_str(artifact, "kgate.synthetic", &text) && strcmp(text, "true") == 0)
        return true;
    return kg_artifact_str(artifact, "general.name", &text) && strstr(text, "(reduced");
}

static const struct {
    const char *format;
    int (*read)(struct kg_artifact *artifact, const char *path, struct kg_error *error);
} readers[] = {
    {"gguf",            kg_gguf_read           },
    {"safetensors",     kg_safetensors_read    },
    {"safetensors-dir", kg_safetensors_dir_read},
};

int kg_artifact_open(const char *path, const char *format, bool synthetic,
                     struct kg_artifact **out, struct kg_error *error)
{
    *out = NULL;
    size_t which = 0, count = sizeof readers / sizeof readers[0];
    while (which < count && strcmp(readers[which].format, format) != 0)
        which++;
    if (which == count)
        return kg_error_set(error, KG_E_INVALID,
                            "unknown artifact format \"%.40s\", expected gguf, "
                            "safetensors or safetensors-dir",
                            format);
    struct kg_artifact *artifact = calloc(1, sizeof *artifact);
    int rc = KG_E_MEMORY;
    if (artifact && kg_names_init(&artifact->tensor_names, 256) == 0 &&
        kg_names_init(&artifact->meta_names, 64) == 0)
        rc = readers[which].read(artifact, path, error);
    if (rc != 0) {
        kg_artifact_close(artifact);
        return kg_error_set(error, rc, "out of memory");
    }
    artifact->synthetic = synthetic || says_synthetic(artifact);
    *out = artifact;
    return KG_OK;
}

void kg_artifact_close(struct kg_artifact *artifact)
{
    if (!artifact)
        return;
    for (size_t i = 0; i < artifact->n_files; i++) {
        struct kg_mapped *file = &artifact->files[i];
        if (file->base)
            munmap((void *)(uintptr_t)file->base, file->size);
        if (file->fd >= 0)
            close(file->fd);
        free(file->path);
    }
    while (artifact->arena) {
        struct kg_chunk *next = artifact->arena->next;
        free(artifact->arena);
        artifact->arena = next;
    }
    kg_names_free(&artifact->tensor_names);
    kg_names_free(&artifact->meta_names);
    free(artifact->files);
    free(artifact->tensors);
    free(artifact->meta);
    free(artifact);
}

int kg_artifact_unchanged(const struct kg_artifact *artifact, struct kg_error *error)
{
    for (size_t i = 0; i < artifact->n_files; i++) {
        const struct kg_mapped *file = &artifact->files[i];
        struct stat st;
        if (fstat(file->fd, &st) != 0)
            return kg_error_at_offset(error, KG_E_IO, file->path, -1,
                                      "cannot be examined: %s", strerror(errno));
        if ((uint64_t)st.st_size != file->size)
            return kg_error_at_offset(
                error, KG_E_IO, file->path, -1,
                "changed while in use: it has %lld bytes, %zu when opened",
                (long long)st.st_size, file->size);
        if (st.st_mtim.tv_sec != file->modified.tv_sec ||
            st.st_mtim.tv_nsec != file->modified.tv_nsec)
            return kg_error_at_offset(error, KG_E_IO, file->path, -1,
                                      "changed while in use: it was written to");
    }
    return KG_OK;
}

size_t kg_artifact_count(const struct kg_artifact *artifact)
{
    return artifact->n_tensors;
}

const struct kg_tensor *kg_artifact_at(const struct kg_artifact *artifact, size_t index)
{
    return index < artifact->n_tensors ? &artifact->tensors[index] : NULL;
}

const struct kg_tensor *kg_artifact_find(const struct kg_artifact *artifact,
                                         const char *name)
{
    int64_t index = kg_names_find(&artifact->tensor_names, name);
    return index < 0 ? NULL : &artifact->tensors[index];
}

static const struct kg_meta *find_meta(const struct kg_artifact *artifact,
                                       const char *key, enum kg_meta_kind kind)
{
    int64_t index = kg_names_find(&artifact->meta_names, key);
    if (index < 0 || artifact->meta[index].kind != kind)
        return NULL;
    return &artifact->meta[index];
}

bool kg_artifact_i64(const struct kg_artifact *artifact, const char *key, int64_t *value)
{
    const struct kg_meta *meta = find_meta(artifact, key, KG_META_I64);
    if (meta)
        *value = meta->value.i64;
    return meta != NULL;
}

bool kg_artifact_f64(const struct kg_artifact *artifact, const char *key, double *value)
{
    int64_t integer;
    const struct kg_meta *meta = find_meta(artifact, key, KG_META_F64);
    if (meta)
        *value = meta->value.f64;
    else if (kg_artifact_i64(artifact, key, &integer))
        *value = (double)integer;
    else
        return false;
    return true;
}

bool kg_artifact_str(const struct kg_artifact *artifact, const char *key,
                     const char **value)
{
    const struct kg_meta *meta = find_meta(artifact, key, KG_META_STR);
    if (meta)
        *value = meta->value.str;
    return meta != NULL;
}

bool kg_artifact_is_synthetic(const struct kg_artifact *artifact)
{
    return artifact->synthetic;
}
