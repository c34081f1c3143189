/* The containers of a stand-in model: GGUF, safetensors, a directory of safetensors. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/mkmodel.h"

/* A file that appears under its name only when it is whole. */
struct output {
    char path[1024], partial[1040];
    FILE *file;
    struct kg_error *error;
};

static int failed(struct output *out)
{
    return kg_error_at_offset(out->error, KG_E_IO, out->path, -1, "cannot be written: %s",
                              strerror(errno));
}

static int begin(struct output *out, const char *directory, const char *name,
                 struct kg_error *error)
{
    out->error = error;
    out->file = NULL;
    int n = snprintf(out->path, sizeof out->path, "%s%s%s", directory ? directory : "",
                     directory ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof out->path)
        return kg_error_set(error, KG_E_INVALID, "the output's path is too long");
    /* Renaming over a device, as root, would replace it. */
    struct stat st;
    if (lstat(out->path, &st) == 0 && !S_ISREG(st.st_mode))
        return kg_error_at_offset(error, KG_E_IO, out->path, -1,
                                  "is there and is not a regular file");
    snprintf(out->partial, sizeof out->partial, "%s.partial", out->path);
    out->file = fopen(out->partial, "wbe");
    return out->file ? KG_OK : failed(out);
}

/* Keeps the file if `rc` is 0, removes it otherwise; returns the final status. */
static int finish(struct output *out, int rc)
{
    if (!out->file)
        return rc;
    if (rc == KG_E_IO && out->error->status == 0)
        failed(out);
    if (fclose(out->file) != 0 && rc == 0)
        rc = failed(out);
    if (rc == 0 && rename(out->partial, out->path) != 0)
        rc = failed(out);
    if (rc != 0)
        unlink(out->partial);
    return rc;
}

static void put(struct output *out, const void *bytes, size_t size)
{
    fwrite(bytes, 1, size, out->file); /* a failure shows in ferror */
}

static void put32(struct output *out, uint32_t value)
{
    put(out, &value, 4);
}

static void put64(struct output *out, uint64_t value)
{
    put(out, &value, 8);
}

static void put_text(struct output *out, const char *text)
{
    put64(out, strlen(text));
    put(out, text, strlen(text));
}

static void pad_to(struct output *out, uint64_t alignment)
{
    static const uint8_t zeros[64];
    off_t at = ftello(out->file);
    put(out, zeros, (size_t)((alignment - (uint64_t)at % alignment) % alignment));
}

enum {
    ALIGNMENT = 32,
    GGUF_U32 = 4,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STR = 8,
    GGUF_I64 = 11
};

/* Numbers have the types that other software expects: u32 where it fits, and f32. */

static void put_meta(struct output *out, const struct mk_meta *m)
{
    put_text(out, m->key);
    switch (m->kind) {
    case MK_BOOL:
        put32(out, GGUF_BOOL);
        put(out, m->i64 ? "\1" : "\0", 1);
        break;
    case MK_I64:
        if (m->i64 >= 0 && m->i64 <= UINT32_MAX) {
            put32(out, GGUF_U32);
            put32(out, (uint32_t)m->i64);
            break;
        }
        put32(out, GGUF_I64);
        put(out, &m->i64, 8);
        break;
    case MK_F64: {
        float value = (float)m->f64;
        put32(out, GGUF_F32);
        put(out, &value, 4);
        break;
    }
    default:
        put32(out, GGUF_STR);
        put_text(out, m->str);
    }
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The two keys that every stand-in has. `full` holds the name and must outlive them. */
static void own_meta(const struct mk_spec *spec, struct mk_meta meta[2], char *full,
                     size_t size)
{
    snprintf(full, size, "%s (stand-in)", spec->name);
    meta[0] = (struct mk_meta){.key = "general.name", .kind = MK_STR, .str = full};
    meta[1] = (struct mk_meta){.key = "kgate.synthetic", .kind = MK_BOOL, .i64 = 1};
}

int mk_write_gguf(const struct mk_spec *spec, const char *path, struct kg_error *error)
{
    struct output out;
    struct mk_meta own[2];
    char full[256];
    uint64_t offset = 0;
    int rc = begin(&out, NULL, path, error);
    if (rc != 0)
        return finish(&out, rc);
    own_meta(spec, own, full, sizeof full);
    put(&out, "GGUF", 4);
    put32(&out, 3);
    put64(&out, spec->n_tensors);
    put64(&out, spec->n_meta + 2);
    for (int i = 0; i < 2; i++)
        put_meta(&out, &own[i]);
    for (size_t i = 0; i < spec->n_meta; i++)
        put_meta(&out, &spec->meta[i]);
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const struct mk_tensor *t = &spec->tensors[i];
        put_text(&out, t->name);
        put32(&out, (uint32_t)t->n_dims);
        put(&out, t->ne, 8 * (size_t)t->n_dims);
        put32(&out, (uint32_t)t->type->type);
        put64(&out, offset);
        offset += aligned(t->bytes);
    }
    for (size_t i = 0; i < spec->n_tensors && rc == 0; i++) {
        pad_to(&out, ALIGNMENT);
        rc = mk_fill(out.file, &spec->tensors[i], spec->seed);
    }
    pad_to(&out, ALIGNMENT);
    if (rc == 0 && ferror(out.file))
        rc = failed(&out);
    return finish(&out, rc);
}

static json_t *describe(const struct mk_tensor *t, uint64_t offset)
{
    json_t *shape = json_array();
    for (int i = t->n_dims - 1; i >= 0; i--)
        json_array_append_new(shape, json_integer(t->ne[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->type->name, "shape", shape,
                     "data_offsets", (json_int_t)offset, (json_int_t)(offset + t->bytes));
}

static json_t *value_of(const struct mk_meta *m, bool as_text)
{
    char text[64];
    if (m->kind == MK_STR)
        return json_string(m->str);
    if (!as_text)
        return m->kind == MK_BOOL  ? json_boolean(m->i64)
               : m->kind == MK_I64 ? json_integer(m->i64)
                                   : json_real(m->f64);
    if (m->kind == MK_BOOL)
        snprintf(text, sizeof text, "%s", m->i64 ? "true" : "false");
    else if (m->kind == MK_I64)
        snprintf(text, sizeof text, "%" PRId64, m->i64);
    else
        snprintf(text, sizeof text, "%.17g", m->f64);
    return json_string(text);
}

/* All metadata; __metadata__ of a file holds text only. */
static json_t *metadata(const struct mk_spec *spec, bool as_text)
{
    struct mk_meta own[2];
    char full[256];
    json_t *object = json_object();
    own_meta(spec, own, full, sizeof full);
    for (int i = 0; i < 2; i++)
        json_object_set_new(object, own[i].key, value_of(&own[i], as_text));
    for (size_t i = 0; i < spec->n_meta; i++)
        json_object_set_new(object, spec->meta[i].key, value_of(&spec->meta[i], as_text));
    return object;
}

/* Writes `object` as JSON text and lets go of it. */
static int put_json(struct output *out, json_t *object, bool with_length, size_t flags)
{
    char *text = object ? json_dumps(object, flags | JSON_PRESERVE_ORDER) : NULL;
    json_decref(object);
    if (!text)
        return kg_error_set(out->error, KG_E_INVALID,
                            "the spec's text cannot be written as JSON");
    size_t length = strlen(text), padding = with_length ? (8 - length % 8) % 8 : 0;
    if (with_length)
        put64(out, length + padding);
    put(out, text, length);
    put(out, "        ", padding);
    free(text);
    return ferror(out->file) ? failed(out) : KG_OK;
}

/* One file of the tensors from `first` to before `end`. */
static int write_shard(const struct mk_spec *spec, const char *directory,
                       const char *name, size_t first, size_t end, struct kg_error *error)
{
    struct output out;
    uint64_t offset = 0;
    json_t *header = json_object();
    json_object_set_new(header, "__metadata__", metadata(spec, true));
    for (size_t i = first; i < end; i++) {
        const struct mk_tensor *t = &spec->tensors[i];
        json_object_set_new(header, t->name, describe(t, offset));
        offset += t->bytes;
    }
    int rc = begin(&out, directory, name, error);
    if (rc != 0) {
        json_decref(header);
        return finish(&out, rc);
    }
    rc = put_json(&out, header, true, JSON_COMPACT);
    for (size_t i = first; i < end && rc == 0; i++)
        rc = mk_fill(out.file, &spec->tensors[i], spec->seed);
    return finish(&out, rc);
}

static int check_dtypes(const struct mk_spec *spec, struct kg_error *error)
{
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const struct mk_tensor *t = &spec->tensors[i];
        if (t->type->block > 1)
            return kg_error_set(error, KG_E_INVALID, "%s: safetensors has no dtype %s",
                                t->name, t->type->name);
    }
    return KG_OK;
}

int mk_write_safetensors(const struct mk_spec *spec, const char *path,
                         struct kg_error *error)
{
    KG_TRY(check_dtypes(spec, error));
    return write_shard(spec, NULL, path, 0, spec->n_tensors, error);
}

static int write_json(const char *directory, const char *name, json_t *object,
                      struct kg_error *error)
{
    struct output out;
    int rc = begin(&out, directory, name, error);
    if (rc != 0) {
        json_decref(object);
        return finish(&out, rc);
    }
    rc = put_json(&out, object, false, JSON_INDENT(1));
    return finish(&out, rc);
}

int mk_write_directory(const struct mk_spec *spec, const char *path,
                       struct kg_error *error)
{
    KG_TRY(check_dtypes(spec, error));
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return kg_error_at_offset(error, KG_E_IO, path, -1, "cannot be made: %s",
                                  strerror(errno));
    size_t shards = (size_t)spec->shards;
    if (shards > spec->n_tensors)
        shards = spec->n_tensors;
    json_t *map = json_object();
    uint64_t total = 0;
    int rc = KG_OK;
    for (size_t k = 0; k < shards && rc == 0; k++) {
        char name[64];
        size_t first = k * spec->n_tensors / shards;
        size_t end = (k + 1) * spec->n_tensors / shards;
        snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", k + 1, shards);
        rc = write_shard(spec, path, name, first, end, error);
        for (size_t i = first; i < end; i++) {
            json_object_set_new(map, spec->tensors[i].name, json_string(name));
            total += spec->tensors[i].bytes;
        }
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                              (json_int_t)total, "weight_map", map);
    if (rc == 0)
        rc = write_json(path, "config.json", metadata(spec, false), error);
    /* The index last: without it the directory is no model. */
    if (rc == 0)
        return write_json(path, "model.safetensors.index.json", index, error);
    json_decref(index);
    return rc;
}
