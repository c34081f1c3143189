#include "runner/safetensors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runner/artifact_impl.h"
#include "runner/json_scan.h"

enum { MAX_HEADER = 100 * 1000 * 1000, MAX_DIMS = 8, MAX_NAME = 4096 };

struct entry {
    struct kg_tensor tensor;
    int64_t begin, end; /* in the data */
    int64_t at;         /* of the name, in the file */
};

struct header {
    struct kg_artifact *artifact;
    const struct kg_mapped *file;
    struct kg_json json;
    struct kg_names names;
    struct entry *entries;
    size_t count, room;
    int64_t data, data_bytes; /* where the data start, and how many there are */
    struct kg_error *error;
};

#define FAULT(h, offset, ...)                                                            \
    kg_error_at_offset((h)->error, KG_E_FORMAT, (h)->file->path, (int64_t)(offset),      \
                       __VA_ARGS__)

static int no_memory(struct header *h)
{
    return kg_error_set(h->error, KG_E_MEMORY, "out of memory");
}

static const enum kg_type dtypes[] = {
    KG_TYPE_F32,     KG_TYPE_F16,  KG_TYPE_BF16,    KG_TYPE_F64,
    KG_TYPE_U8,      KG_TYPE_I8,   KG_TYPE_F8_E4M3, KG_TYPE_F8_E8M0,
    KG_TYPE_F8_E5M2, KG_TYPE_BOOL, KG_TYPE_I16,     KG_TYPE_U16,
    KG_TYPE_I32,     KG_TYPE_U32,  KG_TYPE_I64,     KG_TYPE_U64,
};

static bool is(const struct kg_json_text *text, const char *word)
{
    return text->length == strlen(word) && memcmp(text->bytes, word, text->length) == 0;
}

static int take_dtype(struct header *h, struct kg_tensor *t)
{
    static const char *const others[] = {"F4",  "F6_E2M3",     "F6_E3M2",
                                         "C64", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
    struct kg_json_text text;
    int64_t at = kg_json_offset(&h->json);
    KG_TRY(kg_json_string(&h->json, &text));
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (is(&text, kg_type_name((int)dtypes[i]))) {
            t->type = dtypes[i];
            return KG_OK;
        }
    }
    int shown = text.length < 32 ? (int)text.length : 32;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (is(&text, others[i]))
            return FAULT(h, at, "%.80s: dtype %s is not supported (no kernel reads it)",
                         t->name, others[i]);
    return FAULT(h, at, "%.80s: unknown dtype \"%.*s\"", t->name, shown, text.bytes);
}

static int take_size(struct header *h, const char *name, const char *what, int64_t *value)
{
    struct kg_json_number number;
    int64_t at = kg_json_offset(&h->json);
    KG_TRY(kg_json_number(&h->json, &number));
    if (!number.integer || number.i64 < 0)
        return FAULT(h, at, "%.80s: %s is not an integer from 0 to 2^63-1", name, what);
    *value = number.i64;
    return KG_OK;
}

static int take_shape(struct header *h, struct kg_tensor *t)
{
    int64_t shape[MAX_DIMS], at = kg_json_offset(&h->json);
    bool more;
    KG_TRY(kg_json_begin(&h->json, '['));
    for (size_t n = 0;; n++) {
        KG_TRY(kg_json_next(&h->json, ']', n, &more));
        if (!more)
            break;
        if (n == MAX_DIMS)
            return FAULT(h, at, "%.80s: more than 8 dimensions", t->name);
        KG_TRY(take_size(h, t->name, "a dimension", &shape[n]));
        t->n_dims = (int)n + 1;
    }
    for (int i = 0; i < 8; i++)
        t->ne[i] = i < t->n_dims ? shape[t->n_dims - 1 - i] : 1;
    return KG_OK;
}

static int take_offsets(struct header *h, struct entry *e)
{
    int64_t at = kg_json_offset(&h->json);
    int64_t *const ends[2] = {&e->begin, &e->end};
    bool more;
    KG_TRY(kg_json_begin(&h->json, '['));
    for (size_t n = 0;; n++) {
        KG_TRY(kg_json_next(&h->json, ']', n, &more));
        if (more != (n < 2))
            return FAULT(h, at, "%.80s: data_offsets has %s than 2 numbers",
                         e->tensor.name, more ? "more" : "fewer");
        if (!more)
            break;
        KG_TRY(take_size(h, e->tensor.name, "a data offset", ends[n]));
    }
    if (e->begin > e->end || e->end > h->data_bytes)
        return FAULT(h, at,
                     "%.80s: data_offsets [%" PRId64 ", %" PRId64
                     "], expected a range within the %" PRId64 " bytes of data",
                     e->tensor.name, e->begin, e->end, h->data_bytes);
    return KG_OK;
}

/* Every dimension is checked, so that no later product of some of them overflows even if
   another one is 0. */
static int check_size(struct header *h, const struct entry *e)
{
    const struct kg_tensor *t = &e->tensor;
    int64_t elements = 1, nonzero = 1, bytes;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->ne[i] != 0 && __builtin_mul_overflow(nonzero, t->ne[i], &nonzero))
            return FAULT(h, e->at, "%.80s: more than 2^63-1 elements", t->name);
        elements = t->ne[i] == 0 ? 0 : elements == 0 ? 0 : nonzero;
    }
    if (__builtin_mul_overflow(elements, kg_type_info((int)t->type)->bytes, &bytes))
        return FAULT(h, e->at, "%.80s: more than 2^63-1 bytes", t->name);
    if (bytes != e->end - e->begin)
        return FAULT(h, e->at,
                     "%.80s: data_offsets span %" PRId64 " bytes, expected %" PRId64
                     " for %s and its shape",
                     t->name, e->end - e->begin, bytes, kg_type_name((int)t->type));
    return KG_OK;
}

static int take_entry(struct header *h, struct entry *e)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    struct kg_json_text key;
    int seen = 0;
    bool more;
    KG_TRY(kg_json_begin(&h->json, '{'));
    for (size_t n = 0;; n++) {
        KG_TRY(kg_json_next(&h->json, '}', n, &more));
        if (!more)
            break;
        int64_t at = kg_json_offset(&h->json);
        KG_TRY(kg_json_key(&h->json, &key));
        int field = is(&key, "dtype")          ? DTYPE
                    : is(&key, "shape")        ? SHAPE
                    : is(&key, "data_offsets") ? OFFSETS
                                               : 0;
        if (field == 0 || (seen & field))
            return FAULT(h, at, "%.80s: %s key \"%.*s\"", e->tensor.name,
                         field ? "duplicate" : "unknown",
                         key.length < 32 ? (int)key.length : 32, key.bytes);
        seen |= field;
        KG_TRY(field == DTYPE   ? take_dtype(h, &e->tensor)
               : field == SHAPE ? take_shape(h, &e->tensor)
                                : take_offsets(h, e));
    }
    if (seen != ALL)
        return FAULT(h, e->at, "%.80s: %s is missing", e->tensor.name,
                     !(seen & DTYPE)   ? "dtype"
                     : !(seen & SHAPE) ? "shape"
                                       : "data_offsets");
    e->tensor.bytes = (uint64_t)(e->end - e->begin);
    e->tensor.data = h->file->base + h->data + e->begin;
    return check_size(h, e);
}

static int take_metadata(struct header *h, bool keep)
{
    struct kg_json_text text;
    bool more;
    KG_TRY(kg_json_begin(&h->json, '{'));
    for (size_t n = 0;; n++) {
        KG_TRY(kg_json_next(&h->json, '}', n, &more));
        if (!more)
            return KG_OK;
        struct kg_meta meta = {.kind = KG_META_STR};
        int64_t at = kg_json_offset(&h->json);
        KG_TRY(kg_json_key(&h->json, &text));
        if (!(meta.key = kg_artifact_text(h->artifact, text.bytes, text.length)))
            return no_memory(h);
        KG_TRY(kg_json_string(&h->json, &text));
        meta.value.str = kg_artifact_text(h->artifact, text.bytes, text.length);
        if (!meta.value.str)
            return no_memory(h);
        int rc = keep ? kg_artifact_add_meta(h->artifact, &meta) : KG_OK;
        if (rc == KG_E_INVALID)
            return FAULT(h, at, "metadata key %.80s appears twice", meta.key);
        KG_TRY(rc);
    }
}

static int take_member(struct header *h, bool metadata, bool *had_metadata)
{
    struct kg_json_text key;
    int64_t at = kg_json_offset(&h->json);
    KG_TRY(kg_json_key(&h->json, &key));
    if (is(&key, "__metadata__")) {
        if (*had_metadata)
            return FAULT(h, at, "__metadata__ appears twice");
        *had_metadata = true;
        return take_metadata(h, metadata);
    }
    if (key.length == 0 || key.length > MAX_NAME)
        return FAULT(h, at, "a tensor name of %zu bytes, expected 1 to %d", key.length,
                     (int)MAX_NAME);
    if (h->count == h->room) {
        size_t room = h->room ? h->room * 2 : 256;
        struct entry *bigger = realloc(h->entries, room * sizeof *bigger);
        if (!bigger)
            return no_memory(h);
        h->entries = bigger;
        h->room = room;
    }
    struct entry *e = &h->entries[h->count];
    memset(e, 0, sizeof *e);
    e->at = at;
    e->tensor.name = kg_artifact_text(h->artifact, key.bytes, key.length);
    if (!e->tensor.name)
        return no_memory(h);
    uint32_t index = (uint32_t)h->count;
    int rc = kg_names_add(&h->names, e->tensor.name, &index);
    if (rc == KG_E_INVALID)
        return FAULT(h, at, "tensor name %.80s appears twice", e->tensor.name);
    KG_TRY(rc);
    h->count++;
    return take_entry(h, e);
}

static int by_offset(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Sorts the entries by offset and checks that they tile the data. */
static int check_tiling(struct header *h)
{
    bool in_order = true;
    for (size_t i = 1; i < h->count && in_order; i++)
        in_order = by_offset(&h->entries[i - 1], &h->entries[i]) < 0;
    if (!in_order)
        qsort(h->entries, h->count, sizeof h->entries[0], by_offset);
    int64_t end = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct entry *e = &h->entries[i];
        if (e->begin < end)
            return FAULT(h, e->at, "%.80s: its data overlap those of %.80s",
                         e->tensor.name, h->entries[i - 1].tensor.name);
        if (e->begin > end)
            return FAULT(h, e->at, "%.80s: a hole of %" PRId64 " bytes before its data",
                         e->tensor.name, e->begin - end);
        end = e->end;
    }
    if (end != h->data_bytes)
        return FAULT(h, h->data + end, "%" PRId64 " bytes after the last tensor",
                     h->data_bytes - end);
    return KG_OK;
}

static int take_header(struct header *h, bool metadata)
{
    const struct kg_mapped *file = h->file;
    uint64_t length;
    if (file->size < 8)
        return FAULT(h, 0, "the file has %zu bytes, expected a header length of 8",
                     file->size);
    memcpy(&length, file->base, 8);
    if (length < 2 || length > MAX_HEADER)
        return FAULT(h, 0, "header length %" PRIu64 ", expected 2 to 100000000", length);
    if (length > file->size - 8)
        return FAULT(h, 0,
                     "header length %" PRIu64 ", expected at most the %zu bytes left in "
                     "the file",
                     length, file->size - 8);
    h->data = 8 + (int64_t)length;
    h->data_bytes = (int64_t)file->size - h->data;
    kg_json_init(&h->json, (const char *)file->base + 8, (size_t)length, file->path, 8,
                 h->error);
    if (file->base[8] != '{')
        return FAULT(h, 8, "the header does not begin with '{'");
    bool more, had_metadata = false;
    KG_TRY(kg_json_begin(&h->json, '{'));
    for (size_t n = 0;; n++) {
        KG_TRY(kg_json_next(&h->json, '}', n, &more));
        if (!more)
            break;
        KG_TRY(take_member(h, metadata, &had_metadata));
    }
    KG_TRY(kg_json_end(&h->json));
    return check_tiling(h);
}

int kg_safetensors_read_mapped(struct kg_artifact *artifact, const struct kg_mapped *file,
                               bool metadata, kg_safetensors_want *want, void *context,
                               struct kg_error *error)
{
    struct header h = {.artifact = artifact, .file = file, .error = error};
    int rc = kg_names_init(&h.names, 256);
    if (rc == 0)
        rc = take_header(&h, metadata);
    for (size_t i = 0; i < h.count && rc == 0; i++) {
        const struct entry *e = &h.entries[i];
        int wanted = want ? want(context, e->tensor.name) : 1;
        if (wanted < 0)
            rc = wanted;
        else if (wanted)
            rc = kg_artifact_add_tensor(artifact, &e->tensor);
        /* Within the file, names are unique; two shards cannot both be wanted. */
        if (rc == KG_E_INVALID)
            rc = FAULT(&h, e->at, "tensor name %.80s appears twice", e->tensor.name);
    }
    kg_names_free(&h.names);
    kg_json_free(&h.json);
    free(h.entries);
    return rc;
}

int kg_safetensors_read(struct kg_artifact *artifact, const char *path,
                        struct kg_error *error)
{
    struct kg_mapped *file;
    KG_TRY(kg_artifact_map(artifact, AT_FDCWD, path, path, &file, error));
    return kg_safetensors_read_mapped(artifact, file, true, NULL, NULL, error);
}
