/* A directory of safetensors shards: the index, the shards it names, and config.json. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/artifact_impl.h"
#include "runner/json_scan.h"
#include "runner/safetensors.h"

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";
static const char config_name[] = "config.json";

enum {
    MAX_INDEX = 100 * 1000 * 1000,
    MAX_CONFIG = 16 * 1024 * 1024,
    MAX_SHARDS = 4096,
    MAX_KEY = 1024
};

struct listed {
    const char *name;
    uint32_t shard;
    bool found;
};

struct directory {
    struct kg_artifact *artifact;
    const char *path;
    int fd;
    struct listed *listed; /* what weight_map lists */
    size_t n_listed, room;
    struct kg_names names;
    const char *shards[MAX_SHARDS];
    uint32_t n_shards;
    uint32_t current; /* the shard that is being read */
    struct kg_names shard_names;
    struct kg_error *error;
};

static int no_memory(struct directory *d)
{
    return kg_error_set(d->error, KG_E_MEMORY, "out of memory");
}

static int map(struct directory *d, const char *name, struct kg_mapped **file)
{
    char shown[1024];
    snprintf(shown, sizeof shown, "%s/%s", d->path, name);
    return kg_artifact_map(d->artifact, d->fd, name, shown, file, d->error);
}

/* A link that leads nowhere is present: opening it says so. */
static bool present(const struct directory *d, const char *name)
{
    return faccessat(d->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Maps a JSON file of at most `most` bytes and sets up a reader of it. */
static int open_json(struct directory *d, const char *name, size_t most,
                     struct kg_json *json)
{
    struct kg_mapped *file;
    KG_TRY(map(d, name, &file));
    if (file->size == 0 || file->size > most)
        return kg_error_at_offset(d->error, KG_E_FORMAT, file->path, 0,
                                  "the file has %zu bytes, expected 1 to %zu", file->size,
                                  most);
    kg_json_init(json, (const char *)file->base, file->size, file->path, 0, d->error);
    return KG_OK;
}

static int take_shard(struct directory *d, struct kg_json *json, uint32_t *shard)
{
    struct kg_json_text text;
    int64_t at = kg_json_offset(json);
    KG_TRY(kg_json_string(json, &text));
    int shown = text.length < 80 ? (int)text.length : 80;
    if (text.length == 0 || text.length > 255 || memchr(text.bytes, '/', text.length) ||
        (text.bytes[0] == '.' &&
         (text.length == 1 || (text.length == 2 && text.bytes[1] == '.'))))
        return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, at,
                                  "shard \"%.*s\" is outside the directory, expected the "
                                  "plain name of a file in it",
                                  shown, text.bytes);
    char name[256];
    memcpy(name, text.bytes, text.length);
    name[text.length] = '\0';
    int64_t known = kg_names_find(&d->shard_names, name);
    if (known >= 0) {
        *shard = (uint32_t)known;
        return KG_OK;
    }
    if (d->n_shards == MAX_SHARDS)
        return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, at,
                                  "more than %d shards", (int)MAX_SHARDS);
    const char *copy = kg_artifact_text(d->artifact, name, text.length);
    if (!copy)
        return no_memory(d);
    *shard = d->n_shards;
    KG_TRY(kg_names_add(&d->shard_names, copy, shard));
    d->shards[d->n_shards++] = copy;
    return KG_OK;
}

static int take_listed(struct directory *d, struct kg_json *json)
{
    if (d->n_listed == d->room) {
        size_t room = d->room ? d->room * 2 : 1024;
        struct listed *bigger = realloc(d->listed, room * sizeof *bigger);
        if (!bigger)
            return no_memory(d);
        d->listed = bigger;
        d->room = room;
    }
    struct listed *entry = &d->listed[d->n_listed];
    struct kg_json_text text;
    int64_t at = kg_json_offset(json);
    KG_TRY(kg_json_key(json, &text));
    memset(entry, 0, sizeof *entry);
    entry->name = kg_artifact_text(d->artifact, text.bytes, text.length);
    if (!entry->name)
        return no_memory(d);
    uint32_t index = (uint32_t)d->n_listed;
    int rc = kg_names_add(&d->names, entry->name, &index);
    if (rc == KG_E_INVALID)
        return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, at,
                                  "weight_map lists %.80s twice", entry->name);
    KG_TRY(rc);
    KG_TRY(take_shard(d, json, &entry->shard));
    d->n_listed++;
    return KG_OK;
}

static int take_index(struct directory *d, struct kg_json *json)
{
    bool more, had_map = false;
    KG_TRY(kg_json_begin(json, '{'));
    for (size_t n = 0;; n++) {
        struct kg_json_text key;
        KG_TRY(kg_json_next(json, '}', n, &more));
        if (!more)
            break;
        int64_t at = kg_json_offset(json);
        KG_TRY(kg_json_key(json, &key));
        if (key.length != 10 || memcmp(key.bytes, "weight_map", 10) != 0) {
            KG_TRY(kg_json_skip(json));
            continue;
        }
        if (had_map)
            return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, at,
                                      "weight_map appears twice");
        had_map = true;
        KG_TRY(kg_json_begin(json, '{'));
        for (size_t m = 0;; m++) {
            KG_TRY(kg_json_next(json, '}', m, &more));
            if (!more)
                break;
            KG_TRY(take_listed(d, json));
        }
    }
    KG_TRY(kg_json_end(json));
    if (!had_map || d->n_listed == 0)
        return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, 0,
                                  "weight_map is missing or empty");
    return KG_OK;
}

/* Takes from a shard exactly the tensors that weight_map places in it. */
static int want_listed(void *context, const char *name)
{
    struct directory *d = context;
    int64_t index = kg_names_find(&d->names, name);
    if (index < 0 || d->listed[index].shard != d->current)
        return 0;
    d->listed[index].found = true;
    return 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int read_shards(struct directory *d)
{
    const char **sorted = malloc(d->n_shards * sizeof *sorted);
    if (!sorted)
        return no_memory(d);
    memcpy(sorted, d->shards, d->n_shards * sizeof *sorted);
    qsort(sorted, d->n_shards, sizeof *sorted, by_name);
    int rc = KG_OK;
    for (uint32_t i = 0; i < d->n_shards && rc == 0; i++) {
        struct kg_mapped *file;
        d->current = (uint32_t)kg_names_find(&d->shard_names, sorted[i]);
        rc = map(d, sorted[i], &file);
        if (rc == 0)
            rc = kg_safetensors_read_mapped(d->artifact, file, false, want_listed, d,
                                            d->error);
    }
    free(sorted);
    KG_TRY(rc);
    for (size_t i = 0; i < d->n_listed; i++) {
        char shown[1024];
        if (d->listed[i].found)
            continue;
        snprintf(shown, sizeof shown, "%s/%s", d->path, index_name);
        return kg_error_at_offset(d->error, KG_E_FORMAT, shown, -1,
                                  "weight_map places %.80s in %.80s, which has no such "
                                  "tensor",
                                  d->listed[i].name, d->shards[d->listed[i].shard]);
    }
    return KG_OK;
}

/* Adds the members of one object of config.json; `prefix` is the dotted path to it, of
   `length` characters, in a buffer of MAX_KEY. */
static int take_config(struct directory *d, struct kg_json *json, char *prefix,
                       size_t length, int depth)
{
    bool more;
    if (depth == KG_JSON_MAX_DEPTH)
        return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, kg_json_offset(json),
                                  "JSON: nested more than %d deep", KG_JSON_MAX_DEPTH);
    KG_TRY(kg_json_begin(json, '{'));
    for (size_t n = 0;; n++) {
        struct kg_json_text text;
        struct kg_meta meta = {.kind = KG_META_OTHER};
        KG_TRY(kg_json_next(json, '}', n, &more));
        if (!more)
            return KG_OK;
        int64_t at = kg_json_offset(json);
        KG_TRY(kg_json_key(json, &text));
        size_t dot = length > 0, end = length + dot + text.length;
        if (end >= MAX_KEY)
            return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, at,
                                      "a key of more than %d bytes", MAX_KEY - 1);
        if (dot)
            prefix[length] = '.';
        memcpy(prefix + length + dot, text.bytes, text.length);
        int kind = kg_json_peek(json);
        if (kind == '{') {
            KG_TRY(take_config(d, json, prefix, end, depth + 1));
            continue;
        }
        if (!(meta.key = kg_artifact_text(d->artifact, prefix, end)))
            return no_memory(d);
        if (kind == '"') {
            KG_TRY(kg_json_string(json, &text));
            meta.kind = KG_META_STR;
            meta.value.str = kg_artifact_text(d->artifact, text.bytes, text.length);
            if (!meta.value.str)
                return no_memory(d);
        } else if (kind == 0) {
            struct kg_json_number number;
            KG_TRY(kg_json_number(json, &number));
            meta.kind = number.integer ? KG_META_I64 : KG_META_F64;
            if (number.integer)
                meta.value.i64 = number.i64;
            else
                meta.value.f64 = number.f64;
        } else if (kind == 't' || kind == 'f') {
            int literal;
            KG_TRY(kg_json_literal(json, &literal));
            meta.kind = KG_META_I64;
            meta.value.i64 = literal;
        } else {
            KG_TRY(kg_json_skip(json));
        }
        int rc = kg_artifact_add_meta(d->artifact, &meta);
        if (rc == KG_E_INVALID)
            return kg_error_at_offset(d->error, KG_E_FORMAT, json->file, at,
                                      "key %.80s appears twice", meta.key);
        KG_TRY(rc);
    }
}

static int read_config(struct directory *d)
{
    char prefix[MAX_KEY];
    struct kg_json json;
    if (!present(d, config_name))
        return KG_OK;
    KG_TRY(open_json(d, config_name, MAX_CONFIG, &json));
    json.python = true;
    int rc = take_config(d, &json, prefix, 0, 0);
    if (rc == 0)
        rc = kg_json_end(&json);
    kg_json_free(&json);
    return rc;
}

static int read_indexed(struct directory *d)
{
    struct kg_json json;
    KG_TRY(open_json(d, index_name, MAX_INDEX, &json));
    int rc = take_index(d, &json);
    kg_json_free(&json);
    return rc ? rc : read_shards(d);
}

static int read_directory(struct directory *d)
{
    struct kg_mapped *file;
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0)
        return kg_error_at_offset(d->error, KG_E_IO, d->path, -1,
                                  "cannot be opened as a directory: %s", strerror(errno));
    KG_TRY(read_config(d));
    if (present(d, index_name))
        return read_indexed(d);
    if (!present(d, single_name))
        return kg_error_at_offset(d->error, KG_E_IO, d->path, -1, "has neither %s nor %s",
                                  index_name, single_name);
    KG_TRY(map(d, single_name, &file));
    return kg_safetensors_read_mapped(d->artifact, file, false, NULL, NULL, d->error);
}

int kg_safetensors_dir_read(struct kg_artifact *artifact, const char *path,
                            struct kg_error *error)
{
    struct directory *d = calloc(1, sizeof *d);
    if (!d)
        return KG_E_MEMORY;
    d->artifact = artifact;
    d->path = path;
    d->fd = -1;
    d->error = error;
    int rc = kg_names_init(&d->names, 1024);
    if (rc == 0)
        rc = kg_names_init(&d->shard_names, 64);
    if (rc == 0)
        rc = read_directory(d);
    if (d->fd >= 0)
        close(d->fd);
    kg_names_free(&d->names);
    kg_names_free(&d->shard_names);
    free(d->listed);
    free(d);
    return rc;
}
