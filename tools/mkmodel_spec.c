/* Reads the spec of a stand-in model. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mkmodel.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static const struct kg_type_info *type_called(const char *name)
{
    for (int type = 0; type < 2000; type++) {
        const struct kg_type_info *info = kg_type_info(type);
        if (info && strcmp(info->name, name) == 0)
            return info;
    }
    return NULL;
}

static int read_shape(struct mk_spec *spec, const struct kg_yaml_node *node,
                      struct mk_tensor *t, struct kg_error *error)
{
    KG_TRY(kg_yaml_sequence(spec->yaml, node, "shape", error));
    if (node->count > 4)
        return kg_yaml_error(spec->yaml, node, error,
                             "shape has %zu dimensions, at most 4", node->count);
    t->n_dims = (int)node->count;
    int64_t rows = 1;
    for (int i = 0; i < 4; i++) {
        t->ne[i] = 1;
        if (i < t->n_dims)
            KG_TRY(kg_yaml_int(spec->yaml, node->items[i], "a dimension", 1, 1 << 30,
                               &t->ne[i], error));
        if (i > 0 && __builtin_mul_overflow(rows, t->ne[i], &rows))
            return kg_yaml_error(spec->yaml, node, error, "the shape is too large");
    }
    size_t row = kg_row_bytes((int)t->type->type, t->ne[0]);
    if (row == 0)
        return kg_yaml_error(spec->yaml, node, error,
                             "the first dimension is no multiple of the %d-element block "
                             "of %s",
                             t->type->block, t->type->name);
    if (__builtin_mul_overflow((uint64_t)row, (uint64_t)rows, &t->bytes) ||
        t->bytes > (uint64_t)1 << 44)
        return kg_yaml_error(spec->yaml, node, error, "the shape is too large");
    return KG_OK;
}

static enum mk_fill default_fill(const struct mk_tensor *t)
{
    if (ends_with(t->name, "scale") || ends_with(t->name, "scale_2"))
        return MK_SCALE;
    return t->n_dims == 1 && strstr(t->name, "norm") ? MK_NORM : MK_WEIGHT;
}

static int read_fill(struct mk_spec *spec, const struct kg_yaml_node *node,
                     struct mk_tensor *t, struct kg_error *error)
{
    static const char *const names[] = {"weight", "norm", "scale", "activation"};
    const char *text;
    KG_TRY(kg_yaml_string(spec->yaml, node, "fill", &text, error));
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            t->fill = (enum mk_fill)i;
            return KG_OK;
        }
    }
    return kg_yaml_error(
        spec->yaml, node, error,
        "unknown fill \"%.40s\", expected weight, norm, scale or activation", text);
}

static int add_tensor(struct mk_spec *spec, const struct kg_yaml_node *node,
                      struct mk_tensor *t, bool has_fill, struct kg_error *error)
{
    KG_TRY(kg_yaml_string(spec->yaml, node, "a tensor's name", &t->name, error));
    if (strlen(t->name) > 63)
        return kg_yaml_error(spec->yaml, node, error,
                             "a tensor name of more than 63 bytes");
    for (size_t i = 0; i < spec->n_tensors; i++)
        if (strcmp(spec->tensors[i].name, t->name) == 0)
            return kg_yaml_error(spec->yaml, node, error, "tensor %s appears twice",
                                 t->name);
    if (!has_fill)
        t->fill = default_fill(t);
    struct mk_tensor *bigger =
        realloc(spec->tensors, (spec->n_tensors + 1) * sizeof *bigger);
    if (!bigger)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    spec->tensors = bigger;
    spec->tensors[spec->n_tensors++] = *t;
    return KG_OK;
}

static int read_tensor(struct mk_spec *spec, const struct kg_yaml_node *node,
                       struct kg_error *error)
{
    static const char *const known[] = {"name", "names", "dtype", "shape", "fill", NULL};
    struct mk_tensor t = {0};
    const char *dtype;
    KG_TRY(kg_yaml_mapping(spec->yaml, node, "a tensor", known, error));
    const struct kg_yaml_node *name = kg_yaml_get(node, "name");
    const struct kg_yaml_node *names = kg_yaml_get(node, "names");
    const struct kg_yaml_node *fill = kg_yaml_get(node, "fill");
    if (!name == !names)
        return kg_yaml_error(spec->yaml, node, error, "expected either name or names");
    const struct kg_yaml_node *type =
        kg_yaml_require(spec->yaml, node, "dtype", "a tensor", error);
    KG_TRY(kg_yaml_string(spec->yaml, type, "dtype", &dtype, error));
    t.type = type_called(dtype);
    if (!t.type || !mk_can_fill(t.type->type))
        return kg_yaml_error(spec->yaml, type, error, "dtype \"%.40s\" cannot be made",
                             dtype);
    KG_TRY(read_shape(spec, kg_yaml_require(spec->yaml, node, "shape", "a tensor", error),
                      &t, error));
    if (fill)
        KG_TRY(read_fill(spec, fill, &t, error));
    if (name)
        return add_tensor(spec, name, &t, fill != NULL, error);
    KG_TRY(kg_yaml_sequence(spec->yaml, names, "names", error));
    for (size_t i = 0; i < names->count; i++)
        KG_TRY(add_tensor(spec, names->items[i], &t, fill != NULL, error));
    return KG_OK;
}

static int read_metadata(struct mk_spec *spec, const struct kg_yaml_node *node,
                         struct kg_error *error)
{
    KG_TRY(kg_yaml_mapping(spec->yaml, node, "metadata", NULL, error));
    spec->meta = calloc(node->count + 1, sizeof *spec->meta);
    if (!spec->meta)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    for (size_t i = 0; i < node->count; i++) {
        struct mk_meta *m = &spec->meta[spec->n_meta++];
        const struct kg_yaml_node *value = node->items[i];
        char *end;
        m->key = node->keys[i]->text;
        if (strcmp(m->key, "general.name") == 0 ||
            strcmp(m->key, "general.alignment") == 0 || strncmp(m->key, "kgate.", 6) == 0)
            return kg_yaml_error(spec->yaml, value, error,
                                 "%s is written by this program", m->key);
        m->kind = MK_STR;
        KG_TRY(kg_yaml_string(spec->yaml, value, m->key, &m->str, error));
        if (value->quoted)
            continue;
        errno = 0;
        m->i64 = strtoll(m->str, &end, 10);
        if (*end == '\0' && errno == 0)
            m->kind = MK_I64;
        else if (m->f64 = strtod(m->str, &end), *end == '\0' && m->f64 - m->f64 == 0)
            m->kind = MK_F64;
        else if (strcmp(m->str, "true") == 0 || strcmp(m->str, "false") == 0)
            m->kind = MK_BOOL;
        if (m->kind == MK_BOOL)
            m->i64 = m->str[0] == 't';
    }
    return KG_OK;
}

int mk_spec_load(const char *path, struct mk_spec *spec, struct kg_error *error)
{
    static const char *const known[] = {"name",     "format",  "seed", "shards",
                                        "metadata", "tensors", NULL};
    memset(spec, 0, sizeof *spec);
    spec->format = "gguf";
    spec->seed = 1;
    spec->shards = 1;
    KG_TRY(kg_yaml_load(path, &spec->yaml, error));
    const struct kg_yaml_node *root = kg_yaml_root(spec->yaml), *node;
    KG_TRY(kg_yaml_mapping(spec->yaml, root, "a spec", known, error));
    node = kg_yaml_require(spec->yaml, root, "name", "a spec", error);
    KG_TRY(kg_yaml_string(spec->yaml, node, "name", &spec->name, error));
    if ((node = kg_yaml_get(root, "format")))
        KG_TRY(kg_yaml_string(spec->yaml, node, "format", &spec->format, error));
    if ((node = kg_yaml_get(root, "seed")))
        KG_TRY(kg_yaml_int(spec->yaml, node, "seed", 0, INT64_MAX, &spec->seed, error));
    if ((node = kg_yaml_get(root, "shards")))
        KG_TRY(kg_yaml_int(spec->yaml, node, "shards", 1, 999, &spec->shards, error));
    if ((node = kg_yaml_get(root, "metadata")))
        KG_TRY(read_metadata(spec, node, error));
    node = kg_yaml_require(spec->yaml, root, "tensors", "a spec", error);
    KG_TRY(kg_yaml_sequence(spec->yaml, node, "tensors", error));
    for (size_t i = 0; i < node->count; i++)
        KG_TRY(read_tensor(spec, node->items[i], error));
    if (spec->n_tensors == 0)
        return kg_yaml_error(spec->yaml, node, error, "tensors is empty");
    return KG_OK;
}

void mk_spec_free(struct mk_spec *spec)
{
    free(spec->tensors);
    free(spec->meta);
    kg_yaml_free(spec->yaml);
    memset(spec, 0, sizeof *spec);
}
