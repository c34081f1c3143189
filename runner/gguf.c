#include "runner/gguf.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runner/artifact_impl.h"

enum value_type {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    BOOL,
    STR,
    ARR,
    U64,
    I64,
    F64,
    N_TYPES
};

static const uint8_t value_bytes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const value_names[N_TYPES] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                 "i32", "f32", "bool", "string", "array",
                                                 "u64", "i64", "f64"};

enum {
    MIN_KV_BYTES = 8 + 1 + 4 + 1,       /* key length, key, type, value */
    MIN_INFO_BYTES = 8 + 1 + 4 + 4 + 8, /* name length, name, n_dims, type, offset */
    MAX_KEY = 65535,                    /* the format's own limit */
    MAX_NAME = 63,                      /* ggml's limit */
    MAX_STRING = 16 * 1024 * 1024,      /* a chat template has some kilobytes */
    MAX_ALIGNMENT = 65536,
    MAX_COUNT = 1 << 24, /* names are numbered in 32 bits */
};

struct reader {
    struct kg_artifact *artifact;
    const char *path;
    const uint8_t *base;
    uint64_t size, at;
    uint64_t alignment;
    struct kg_error *error;
};

#define FAULT(r, offset, ...)                                                            \
    kg_error_at_offset((r)->error, KG_E_FORMAT, (r)->path, (int64_t)(offset), __VA_ARGS__)

/* The machines that kgate runs on are little-endian, like the files. */
static int take(struct reader *r, void *out, size_t bytes, const char *what)
{
    memset(out, 0, bytes);
    if (r->size - r->at < bytes)
        return FAULT(r, r->at,
                     "the file ends in %s: expected %zu bytes, %" PRIu64 " left", what,
                     bytes, r->size - r->at);
    memcpy(out, r->base + r->at, bytes);
    r->at += bytes;
    return KG_OK;
}

/* A length-prefixed string inside the file; *text is not NUL-terminated. */
static int take_text(struct reader *r, const char **text, uint64_t *length,
                     const char *what)
{
    uint64_t at = r->at;
    *text = NULL;
    KG_TRY(take(r, length, sizeof *length, what));
    if (*length > r->size - r->at)
        return FAULT(r, at,
                     "%s has length %" PRIu64 ", expected at most the %" PRIu64
                     " bytes left in the file",
                     what, *length, r->size - r->at);
    *text = (const char *)r->base + r->at;
    r->at += *length;
    return KG_OK;
}

/* As take_text, of 1 (or `least`) to `most` bytes without a NUL, copied. */
static int take_copy(struct reader *r, const char **copy, uint64_t least, uint64_t most,
                     const char *what)
{
    const char *text;
    uint64_t at = r->at, length;
    KG_TRY(take_text(r, &text, &length, what));
    if (length < least || length > most)
        return FAULT(r, at, "%s has length %" PRIu64 ", expected %" PRIu64 " to %" PRIu64,
                     what, length, least, most);
    if (memchr(text, 0, length))
        return FAULT(r, at, "%s contains a NUL byte", what);
    *copy = kg_artifact_text(r->artifact, text, length);
    return *copy ? KG_OK : kg_error_set(r->error, KG_E_MEMORY, "out of memory");
}

static int skip_array(struct reader *r, const char *key)
{
    uint64_t at = r->at, count, length;
    uint32_t type;
    const char *text;
    KG_TRY(take(r, &type, sizeof type, "an array's type"));
    KG_TRY(take(r, &count, sizeof count, "an array's length"));
    if (type == ARR)
        return FAULT(r, at, "%.80s is an array of arrays, expected scalars or strings",
                     key);
    if (type >= N_TYPES)
        return FAULT(r, at, "%.80s is an array of type %" PRIu32 ", expected 0 to 12",
                     key, type);
    uint64_t least = type == STR ? sizeof length : value_bytes[type];
    if (count > (r->size - r->at) / least)
        return FAULT(r, at,
                     "%.80s has %" PRIu64 " elements, expected at most the %" PRIu64
                     " that fit in the file",
                     key, count, (r->size - r->at) / least);
    if (type != STR) {
        r->at += count * least;
        return KG_OK;
    }
    for (uint64_t i = 0; i < count; i++)
        KG_TRY(take_text(r, &text, &length, "an array's string"));
    return KG_OK;
}

static int take_value(struct reader *r, uint32_t type, struct kg_meta *meta)
{
    uint64_t at = r->at, bits = 0;
    if (type == ARR) {
        meta->kind = KG_META_OTHER;
        return skip_array(r, meta->key);
    }
    if (type == STR) {
        meta->kind = KG_META_STR;
        return take_copy(r, &meta->value.str, 0, MAX_STRING, "a string value");
    }
    KG_TRY(take(r, &bits, value_bytes[type], "a value"));
    meta->kind = KG_META_I64;
    switch (type) {
    case I8:
        meta->value.i64 = (int8_t)bits;
        break;
    case I16:
        meta->value.i64 = (int16_t)bits;
        break;
    case I32:
        meta->value.i64 = (int32_t)bits;
        break;
    case F32: {
        uint32_t half = (uint32_t)bits;
        float value;
        memcpy(&value, &half, sizeof value);
        meta->kind = KG_META_F64;
        meta->value.f64 = value;
        break;
    }
    case F64:
        meta->kind = KG_META_F64;
        memcpy(&meta->value.f64, &bits, sizeof bits);
        break;
    case BOOL:
        if (bits > 1)
            return FAULT(r, at, "%.80s is a bool of value %" PRIu64 ", expected 0 or 1",
                         meta->key, bits);
        meta->value.i64 = (int64_t)bits;
        break;
    case U64:
        if (bits > INT64_MAX)
            meta->kind = KG_META_OTHER;
        meta->value.i64 = (int64_t)bits;
        break;
    default:
        meta->value.i64 = (int64_t)bits;
    }
    return KG_OK;
}

static int take_alignment(struct reader *r, uint64_t at, uint32_t type, int64_t value)
{
    if (type != U32)
        return FAULT(r, at, "general.alignment is of type %s, expected u32",
                     value_names[type]);
    if (value < 8 || value > MAX_ALIGNMENT || (value & (value - 1)) != 0)
        return FAULT(r, at,
                     "general.alignment is %" PRId64
                     ", expected a power of two from 8 to 65536",
                     value);
    r->alignment = (uint64_t)value;
    return KG_OK;
}

static int take_key_value(struct reader *r)
{
    struct kg_meta meta = {0};
    uint64_t at = r->at;
    uint32_t type;
    KG_TRY(take_copy(r, &meta.key, 1, MAX_KEY, "a key"));
    uint64_t value_at = r->at;
    KG_TRY(take(r, &type, sizeof type, "a value's type"));
    if (type >= N_TYPES)
        return FAULT(r, value_at, "%.80s has value type %" PRIu32 ", expected 0 to 12",
                     meta.key, type);
    KG_TRY(take_value(r, type, &meta));
    if (strcmp(meta.key, "general.alignment") == 0)
        KG_TRY(take_alignment(r, value_at, type, meta.value.i64));
    int rc = kg_artifact_add_meta(r->artifact, &meta);
    if (rc == KG_E_INVALID)
        return FAULT(r, at, "key %.80s appears twice", meta.key);
    return rc;
}

/* What one tensor info says, before the start of the data is known. */
struct info {
    struct kg_tensor tensor;
    uint64_t at;        /* of the info */
    uint64_t offset_at; /* of its data offset */
    uint64_t offset;
};

/* Checks the dimensions before any rounding up, and computes the bytes. */
static int check_shape(struct reader *r, struct kg_tensor *t, uint64_t dims_at)
{
    int64_t elements = 1;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t at = dims_at + 8 * (uint64_t)i;
        if (t->ne[i] < 1)
            return FAULT(r, at, "%.63s: ne[%d] is %" PRId64 ", expected at least 1",
                         t->name, i, t->ne[i]);
        if (__builtin_mul_overflow(elements, t->ne[i], &elements))
            return FAULT(r, at, "%.63s: more than 2^63-1 elements", t->name);
    }
    const struct kg_type_info *info = kg_type_info((int)t->type);
    if (t->ne[0] % info->block != 0)
        return FAULT(r, dims_at,
                     "%.63s: ne[0] is %" PRId64
                     ", expected a multiple of the %d-element block of %s",
                     t->name, t->ne[0], info->block, info->name);
    if (__builtin_mul_overflow((uint64_t)(elements / info->block), (uint64_t)info->bytes,
                               &t->bytes) ||
        t->bytes > INT64_MAX)
        return FAULT(r, dims_at, "%.63s: more than 2^63-1 bytes", t->name);
    return KG_OK;
}

static int take_info(struct reader *r, struct info *info)
{
    struct kg_tensor *t = &info->tensor;
    uint32_t n_dims;
    int32_t type;
    info->at = r->at;
    KG_TRY(take_copy(r, &t->name, 1, MAX_NAME, "a tensor name"));
    uint64_t dims_at = r->at + sizeof n_dims;
    KG_TRY(take(r, &n_dims, sizeof n_dims, "a tensor's n_dims"));
    if (n_dims > 4)
        return FAULT(r, dims_at - 4, "%.63s: n_dims is %" PRIu32 ", expected 0 to 4",
                     t->name, n_dims);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < 8; i++)
        t->ne[i] = 1;
    KG_TRY(take(r, t->ne, 8 * n_dims, "a tensor's dimensions"));
    uint64_t type_at = r->at;
    KG_TRY(take(r, &type, sizeof type, "a tensor's type"));
    if (type < 0 || type > KG_TYPE_NVFP4 || !kg_type_info(type))
        return FAULT(r, type_at,
                     "%.63s: type %" PRId32 " is unknown or was removed from "
                     "ggml",
                     t->name, type);
    t->type = (enum kg_type)type;
    info->offset_at = r->at;
    KG_TRY(take(r, &info->offset, sizeof info->offset, "a tensor's offset"));
    return check_shape(r, t, dims_at);
}

static int place(struct reader *r, struct info *info, uint64_t data)
{
    struct kg_tensor *t = &info->tensor;
    uint64_t room = data < r->size ? r->size - data : 0;
    if (info->offset % r->alignment != 0)
        return FAULT(r, info->offset_at,
                     "%.63s: data offset %" PRIu64 ", expected a multiple of %" PRIu64,
                     t->name, info->offset, r->alignment);
    if (info->offset > room || t->bytes > room - info->offset)
        return FAULT(r, info->offset_at,
                     "%.63s: %" PRIu64 " bytes at data offset %" PRIu64
                     ", expected to end within the %" PRIu64 " bytes of data",
                     t->name, t->bytes, info->offset, room);
    t->data = r->base + data + info->offset;
    int rc = kg_artifact_add_tensor(r->artifact, t);
    if (rc == KG_E_INVALID)
        return FAULT(r, info->at, "tensor name %.63s appears twice", t->name);
    return rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct info *x = *(const struct info *const *)a;
    const struct info *y = *(const struct info *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int check_overlap(struct reader *r, const struct info *infos, uint64_t count)
{
    const struct info **sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted)
        return kg_error_set(r->error, KG_E_MEMORY, "out of memory");
    bool in_order = true;
    for (uint64_t i = 0; i < count; i++) {
        sorted[i] = &infos[i];
        in_order = in_order && (i == 0 || infos[i - 1].offset <= infos[i].offset);
    }
    if (!in_order)
        qsort(sorted, count, sizeof *sorted, by_offset);
    int rc = KG_OK;
    for (uint64_t i = 1; i < count && rc == 0; i++) {
        const struct info *a = sorted[i - 1], *b = sorted[i];
        if (b->offset < a->offset + a->tensor.bytes)
            rc = FAULT(r, b->offset_at, "%.63s: its data overlap those of %.63s",
                       b->tensor.name, a->tensor.name);
    }
    free(sorted);
    return rc;
}

static int take_tensors(struct reader *r, uint64_t count)
{
    struct info *infos = calloc(count + 1, sizeof *infos);
    if (!infos)
        return kg_error_set(r->error, KG_E_MEMORY,
                            "out of memory for %" PRIu64 " tensors", count);
    int rc = KG_OK;
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = take_info(r, &infos[i]);
    uint64_t data = (r->at + r->alignment - 1) / r->alignment * r->alignment;
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = place(r, &infos[i], data);
    if (rc == 0)
        rc = check_overlap(r, infos, count);
    free(infos);
    return rc;
}

static int take_version(struct reader *r)
{
    uint32_t version;
    if (r->size < 4 || memcmp(r->base, "GGUF", 4) != 0)
        return FAULT(r, 0, "not a GGUF file: expected the magic \"GGUF\"");
    r->at = 4;
    KG_TRY(take(r, &version, sizeof version, "the version"));
    uint32_t swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 3)
        return FAULT(r, 4, "a big-endian GGUF file, expected little-endian");
    if (version != 2 && version != 3)
        return FAULT(r, 4, "GGUF version %" PRIu32 ", expected 2 or 3", version);
    return KG_OK;
}

static int check_count(struct reader *r, uint64_t at, uint64_t count, uint64_t least,
                       const char *what)
{
    if (count > (r->size - r->at) / least || count > MAX_COUNT)
        return FAULT(r, at,
                     "%" PRIu64 " %s, expected at most the %" PRIu64
                     " that fit in the file and the reader",
                     count, what,
                     (r->size - r->at) / least < MAX_COUNT ? (r->size - r->at) / least
                                                           : (uint64_t)MAX_COUNT);
    return KG_OK;
}

int kg_gguf_read(struct kg_artifact *artifact, const char *path, struct kg_error *error)
{
    struct kg_mapped *file;
    uint64_t n_tensors, n_kv;
    KG_TRY(kg_artifact_map(artifact, AT_FDCWD, path, path, &file, error));
    struct reader r = {artifact, file->path, file->base, file->size, 0, 32, error};
    KG_TRY(take_version(&r));
    KG_TRY(take(&r, &n_tensors, sizeof n_tensors, "the number of tensors"));
    KG_TRY(take(&r, &n_kv, sizeof n_kv, "the number of key-values"));
    KG_TRY(check_count(&r, 8, n_tensors, MIN_INFO_BYTES, "tensors"));
    KG_TRY(check_count(&r, 16, n_kv, MIN_KV_BYTES, "key-values"));
    for (uint64_t i = 0; i < n_kv; i++)
        KG_TRY(take_key_value(&r));
    /* Again, against what is left: the table below is allocated by this count. */
    KG_TRY(check_count(&r, 8, n_tensors, MIN_INFO_BYTES, "tensors"));
    return take_tensors(&r, n_tensors);
}
