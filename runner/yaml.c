#include "runner/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <yaml.h>

#include "runner/arena.h"
#include "runner/text.h"

struct kg_yaml {
    struct kg_arena arena;
    char *name;
    char digest[33];
    struct kg_yaml_node *root;
    size_t n_nodes;
};

/* A sequence or mapping whose end has not been seen. */
struct frame {
    struct kg_yaml_node *node;
    struct kg_yaml_node **keys, **items; /* malloc'ed while they grow */
    size_t capacity;
    struct kg_yaml_node *key; /* mapping: a key without its value yet */
};

struct builder {
    struct kg_yaml *yaml;
    struct kg_error *error;
    const char *bytes;
    size_t size;
    struct frame stack[KG_YAML_MAX_DEPTH];
    int depth;
};

static int error_at(const struct kg_yaml *yaml, struct kg_error *error, yaml_mark_t mark,
                    const char *text)
{
    return kg_error_at_line(error, KG_E_FORMAT, yaml->name, (int)mark.line + 1,
                            (int)mark.column + 1, "%s", text);
}

static int out_of_memory(const struct kg_yaml *yaml, struct kg_error *error)
{
    return kg_error_set(error, KG_E_MEMORY, "%s: out of memory", yaml->name);
}

static struct kg_yaml_node *new_node(struct builder *b, enum kg_yaml_kind kind,
                                     yaml_mark_t mark)
{
    if (b->yaml->n_nodes == KG_YAML_MAX_NODES) {
        char text[64];
        snprintf(text, sizeof text, "more than %u nodes", KG_YAML_MAX_NODES);
        error_at(b->yaml, b->error, mark, text);
        return NULL;
    }
    struct kg_yaml_node *node = kg_arena_alloc(&b->yaml->arena, sizeof *node);
    if (!node) {
        out_of_memory(b->yaml, b->error);
        return NULL;
    }
    b->yaml->n_nodes++;
    node->kind = kind;
    node->line = (int)mark.line + 1;
    node->column = (int)mark.column + 1;
    return node;
}

static bool grow(struct frame *f)
{
    if (f->node->count < f->capacity)
        return true;
    size_t capacity = f->capacity ? f->capacity * 2 : 8;
    struct kg_yaml_node **items = realloc(f->items, capacity * sizeof *items);
    if (items)
        f->items = items;
    struct kg_yaml_node **keys = realloc(f->keys, capacity * sizeof *keys);
    if (keys)
        f->keys = keys;
    if (!items || !keys)
        return false;
    f->capacity = capacity;
    return true;
}

/* Puts a node where it belongs: at the root, in a sequence, as a key or as a value. */
static int place(struct builder *b, struct kg_yaml_node *node)
{
    if (b->depth == 0) {
        b->yaml->root = node;
        return 0;
    }
    struct frame *f = &b->stack[b->depth - 1];
    if (f->node->kind == KG_YAML_MAPPING && !f->key) {
        if (node->kind != KG_YAML_SCALAR)
            return kg_yaml_error(
                b->yaml, node, b->error, "expected a scalar as a key, found %s",
                node->kind == KG_YAML_MAPPING ? "a mapping" : "a sequence");
        f->key = node;
        return 0;
    }
    if (!grow(f))
        return out_of_memory(b->yaml, b->error);
    f->keys[f->node->count] = f->key;
    f->items[f->node->count++] = node;
    f->key = NULL;
    return 0;
}

static int open_collection(struct builder *b, enum kg_yaml_kind kind, yaml_mark_t mark)
{
    if (b->depth == KG_YAML_MAX_DEPTH) {
        char text[64];
        snprintf(text, sizeof text, "nested deeper than %d levels", KG_YAML_MAX_DEPTH);
        return error_at(b->yaml, b->error, mark, text);
    }
    struct kg_yaml_node *node = new_node(b, kind, mark);
    if (!node)
        return b->error->status;
    KG_TRY(place(b, node));
    b->stack[b->depth++] = (struct frame){.node = node};
    return 0;
}

static int by_text_then_place(const void *a_, const void *b_)
{
    const struct kg_yaml_node *a = *(struct kg_yaml_node *const *)a_;
    const struct kg_yaml_node *b = *(struct kg_yaml_node *const *)b_;
    int order = strcmp(a->text, b->text);
    if (order == 0)
        order = (a->line > b->line) - (a->line < b->line);
    if (order == 0)
        order = (a->column > b->column) - (a->column < b->column);
    return order;
}

/* Sorts a copy, so that a mapping of 50,000 keys is not a matter of n * n. */
static int refuse_duplicates(struct builder *b, const struct frame *f)
{
    size_t n = f->node->count;
    if (n < 2)
        return 0;
    struct kg_yaml_node **sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return out_of_memory(b->yaml, b->error);
    memcpy(sorted, f->keys, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text_then_place);
    int rc = 0;
    for (size_t i = 1; i < n && rc == 0; i++) {
        if (strcmp(sorted[i - 1]->text, sorted[i]->text) == 0)
            rc = kg_yaml_error(b->yaml, sorted[i], b->error,
                               "duplicate key \"%.80s\", first seen in line %d",
                               sorted[i]->text, sorted[i - 1]->line);
    }
    free(sorted);
    return rc;
}

static int close_collection(struct builder *b)
{
    struct frame *f = &b->stack[b->depth - 1];
    size_t n = f->node->count;
    if (f->node->kind == KG_YAML_MAPPING) {
        KG_TRY(refuse_duplicates(b, f));
        f->node->keys = kg_arena_array(&b->yaml->arena, n, sizeof *f->keys);
        if (!f->node->keys)
            return out_of_memory(b->yaml, b->error);
        if (n)
            memcpy(f->node->keys, f->keys, n * sizeof *f->keys);
    }
    f->node->items = kg_arena_array(&b->yaml->arena, n, sizeof *f->items);
    if (!f->node->items)
        return out_of_memory(b->yaml, b->error);
    if (n)
        memcpy(f->node->items, f->items, n * sizeof *f->items);
    free(f->keys);
    free(f->items);
    b->depth--;
    return 0;
}

static int scalar(struct builder *b, const yaml_event_t *event)
{
    struct kg_yaml_node *node = new_node(b, KG_YAML_SCALAR, event->start_mark);
    if (!node)
        return b->error->status;
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    /* The file has no NUL, but "\0" in double quotes makes one. */
    if (memchr(text, '\0', length))
        return error_at(b->yaml, b->error, event->start_mark, "NUL in a string");
    node->text = kg_arena_copy(&b->yaml->arena, text, length);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (!node->text)
        return out_of_memory(b->yaml, b->error);
    return place(b, node);
}

static int refuse_properties(struct builder *b, const yaml_event_t *event,
                             const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return error_at(b->yaml, b->error, event->start_mark,
                        "anchors are not accepted: write the value out");
    if (tag)
        return error_at(b->yaml, b->error, event->start_mark, "tags are not accepted");
    return 0;
}

/* Sets *done at the end of the stream. */
static int take_event(struct builder *b, const yaml_event_t *event, bool *done)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->yaml->root)
            return error_at(b->yaml, b->error, event->start_mark,
                            "a second document: expected one document a file");
        if (event->data.document_start.version_directive ||
            event->data.document_start.tag_directives.start !=
                event->data.document_start.tag_directives.end)
            return error_at(b->yaml, b->error, event->start_mark,
                            "directives are not accepted");
        return 0;
    case YAML_ALIAS_EVENT:
        return error_at(b->yaml, b->error, event->start_mark,
                        "aliases are not accepted: write the value out");
    case YAML_SCALAR_EVENT:
        KG_TRY(refuse_properties(b, event, event->data.scalar.anchor,
                                 event->data.scalar.tag));
        return scalar(b, event);
    case YAML_SEQUENCE_START_EVENT:
        KG_TRY(refuse_properties(b, event, event->data.sequence_start.anchor,
                                 event->data.sequence_start.tag));
        return open_collection(b, KG_YAML_SEQUENCE, event->start_mark);
    case YAML_MAPPING_START_EVENT:
        KG_TRY(refuse_properties(b, event, event->data.mapping_start.anchor,
                                 event->data.mapping_start.tag));
        return open_collection(b, KG_YAML_MAPPING, event->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_collection(b);
    case YAML_STREAM_END_EVENT:
        *done = true;
        return 0;
    default:
        return 0;
    }
}

/* libyaml's word on a syntax error, in one line; a tab gets the advice it needs. */
static int syntax_error(struct builder *b, const yaml_parser_t *parser)
{
    yaml_mark_t mark = parser->problem_mark;
    if (parser->error == YAML_MEMORY_ERROR)
        return out_of_memory(b->yaml, b->error);
    if (mark.index < b->size && b->bytes[mark.index] == '\t')
        return error_at(b->yaml, b->error, mark, "a tab: indent with spaces");
    char text[256];
    snprintf(text, sizeof text, "not YAML: %s%s%s",
             parser->problem ? parser->problem : "unreadable", parser->context ? " " : "",
             parser->context ? parser->context : "");
    return error_at(b->yaml, b->error, mark, text);
}

static int build(struct builder *b)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return out_of_memory(b->yaml, b->error);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)b->bytes, b->size);
    int rc = 0;
    bool done = false;
    while (rc == 0 && !done) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            rc = syntax_error(b, &parser);
            break;
        }
        rc = take_event(b, &event, &done);
        yaml_event_delete(&event);
    }
    for (; b->depth > 0; b->depth--) { /* only after an error */
        free(b->stack[b->depth - 1].keys);
        free(b->stack[b->depth - 1].items);
    }
    yaml_parser_delete(&parser);
    return rc;
}

static void digest(const void *bytes, size_t size, char hex[33])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", canonical.digest[i]);
}

static int refuse_bytes(const struct kg_yaml *yaml, const char *bytes, size_t size,
                        struct kg_error *error)
{
    size_t bad;
    if (size > KG_YAML_MAX_BYTES)
        return kg_error_at_line(error, KG_E_FORMAT, yaml->name, 0, 0,
                                "larger than %u bytes", KG_YAML_MAX_BYTES);
    if (size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        return error_at(yaml, error, (yaml_mark_t){0},
                        "starts with a byte order mark: save it as UTF-8 without one");
    if (kg_text_is_utf8(bytes, size, &bad))
        return 0;
    yaml_mark_t mark = {.index = bad};
    for (size_t i = 0; i < bad; i++) {
        if (bytes[i] == '\n') {
            mark.line++;
            mark.column = 0;
        } else if ((bytes[i] & 0xc0) != 0x80) {
            mark.column++;
        }
    }
    return error_at(yaml, error, mark, bytes[bad] == '\0' ? "NUL byte" : "not UTF-8");
}

int kg_yaml_parse(const char *name, const void *bytes, size_t size, struct kg_yaml **yaml,
                  struct kg_error *error)
{
    *yaml = NULL;
    struct kg_yaml *y = calloc(1, sizeof *y);
    if (!y || !(y->name = kg_arena_copy(&y->arena, name, strlen(name)))) {
        kg_yaml_free(y);
        return kg_error_set(error, KG_E_MEMORY, "%s: out of memory", name);
    }
    int rc = refuse_bytes(y, bytes, size, error);
    if (rc == 0) {
        digest(bytes, size, y->digest);
        struct builder b = {.yaml = y, .error = error, .bytes = bytes, .size = size};
        rc = build(&b);
    }
    if (rc == 0 && !y->root)
        rc =
            error_at(y, error, (yaml_mark_t){0}, "expected a mapping, the file is empty");
    if (rc != 0)
        kg_yaml_free(y);
    else
        *yaml = y;
    return rc;
}

int kg_yaml_load(const char *path, struct kg_yaml **yaml, struct kg_error *error)
{
    *yaml = NULL;
    /* Opening a FIFO would block. */
    struct stat st;
    if (stat(path, &st) != 0)
        return kg_error_at_line(error, KG_E_IO, path, 0, 0, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kg_error_at_line(error, KG_E_IO, path, 0, 0, "not a regular file");
    FILE *file = fopen(path, "rbe");
    if (!file)
        return kg_error_at_line(error, KG_E_IO, path, 0, 0, "%s", strerror(errno));
    int rc;
    char *bytes = malloc(KG_YAML_MAX_BYTES + 1);
    if (!bytes) {
        rc = kg_error_set(error, KG_E_MEMORY, "%s: out of memory", path);
    } else {
        size_t size = fread(bytes, 1, KG_YAML_MAX_BYTES + 1, file);
        if (ferror(file))
            rc = kg_error_at_line(error, KG_E_IO, path, 0, 0, "%s", strerror(errno));
        else
            rc = kg_yaml_parse(path, bytes, size, yaml, error);
    }
    free(bytes);
    fclose(file);
    return rc;
}

void kg_yaml_free(struct kg_yaml *yaml)
{
    if (yaml)
        kg_arena_clear(&yaml->arena);
    free(yaml);
}

const struct kg_yaml_node *kg_yaml_root(const struct kg_yaml *yaml)
{
    return yaml->root;
}

const char *kg_yaml_name(const struct kg_yaml *yaml)
{
    return yaml->name;
}

const char *kg_yaml_digest(const struct kg_yaml *yaml)
{
    return yaml->digest;
}
