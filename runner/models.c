/* Reads models.yaml; the search is in models_find.c. */
#include "runner/models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/models_impl.h"
#include "runner/text.h"

enum { MAX_MODELS = 1000, MAX_PATHS = 32 };

struct loader {
    struct kg_models *m;
    const struct kg_yaml *yaml;
    struct kg_error *error;
};

static int no_memory(struct loader *l)
{
    return kg_error_set(l->error, KG_E_MEMORY, "%s: out of memory",
                        kg_yaml_name(l->yaml));
}

static int read_id(struct loader *l, const struct kg_yaml_node *node, const char *what,
                   const char **id)
{
    KG_TRY(kg_yaml_string(l->yaml, node, what, id, l->error));
    if (!kg_text_is_name(*id))
        return kg_yaml_error(l->yaml, node, l->error,
                             "%s: expected lower-case letters, digits, hyphens and "
                             "underscores (at most 64), found \"%.80s\"",
                             what, *id);
    return 0;
}

/* A list of folders or files: absolute, under ~/, or relative to models.yaml. */
static int read_paths(struct loader *l, const struct kg_yaml_node *node, const char *what,
                      const char ***paths, size_t *n)
{
    if (!node)
        return 0;
    KG_TRY(kg_yaml_sequence(l->yaml, node, what, l->error));
    if (node->count > MAX_PATHS)
        return kg_yaml_error(l->yaml, node, l->error,
                             "%s: expected at most %d paths, found %zu", what, MAX_PATHS,
                             node->count);
    const char **list = kg_arena_array(&l->m->arena, node->count, sizeof *list);
    if (!list)
        return no_memory(l);
    for (size_t i = 0; i < node->count; i++) {
        KG_TRY(kg_yaml_string(l->yaml, node->items[i], what, &list[i], l->error));
        if (list[i][0] == '~' && list[i][1] != '/' && list[i][1] != '\0')
            return kg_yaml_error(l->yaml, node->items[i], l->error,
                                 "%s: only ~/ is expanded, found \"%.80s\"", what,
                                 list[i]);
    }
    *paths = list;
    *n = node->count;
    return 0;
}

static int read_name(struct loader *l, const struct kg_yaml_node *node, struct model *m)
{
    const struct kg_yaml_node *file = kg_yaml_get(node, "file");
    const struct kg_yaml_node *directory = kg_yaml_get(node, "directory");
    if (!file == !directory)
        return kg_yaml_error(
            l->yaml, node, l->error,
            "a model: expected either \"file\" or \"directory\", found %s",
            file ? "both" : "neither");
    const struct kg_yaml_node *name = file ? file : directory;
    const char *what = file ? "file" : "directory";
    m->is_directory = !file;
    KG_TRY(kg_yaml_string(l->yaml, name, what, &m->name, l->error));
    if (strchr(m->name, '/') || strcmp(m->name, ".") == 0 || strcmp(m->name, "..") == 0)
        return kg_yaml_error(l->yaml, name, l->error,
                             "%s: expected a name without a folder (folders go under "
                             "\"legacy\" or \"search\"), found \"%.80s\"",
                             what, m->name);
    return 0;
}

static int read_format(struct loader *l, const struct kg_yaml_node *node, struct model *m)
{
    static const char *const of_file[] = {"gguf", "safetensors", NULL};
    static const char *const of_directory[] = {"safetensors-dir", NULL};
    const struct kg_yaml_node *format =
        kg_yaml_require(l->yaml, node, "format", "a model", l->error);
    KG_TRY(kg_yaml_string(l->yaml, format, "format", &m->format, l->error));
    const char *const *k = m->is_directory ? of_directory : of_file;
    while (*k && strcmp(*k, m->format) != 0)
        k++;
    if (!*k)
        return kg_yaml_error(l->yaml, format, l->error,
                             "format: expected %s, found \"%.80s\"",
                             m->is_directory ? "safetensors-dir (it is a directory)"
                                             : "gguf or safetensors (it is a file)",
                             m->format);
    return 0;
}

static int read_sha256(struct loader *l, const struct kg_yaml_node *node, struct model *m)
{
    const struct kg_yaml_node *sha = kg_yaml_get(node, "sha256");
    if (!sha)
        return 0;
    KG_TRY(kg_yaml_string(l->yaml, sha, "sha256", &m->sha256, l->error));
    if (m->is_directory)
        return kg_yaml_error(l->yaml, sha, l->error, "sha256: only a file can have one");
    if (strlen(m->sha256) != 64 || strspn(m->sha256, "0123456789abcdef") != 64)
        return kg_yaml_error(l->yaml, sha, l->error,
                             "sha256: expected 64 lower-case hexadecimal digits, found "
                             "\"%.80s\"",
                             m->sha256);
    return 0;
}

static int read_model(struct loader *l, const struct kg_yaml_node *key,
                      const struct kg_yaml_node *node, struct model *m)
{
    static const char *const known[] = {"file",    "directory", "format",
                                        "legacy",  "sha256",    "fallback",
                                        "reduced", "synthetic", NULL};
    KG_TRY(read_id(l, key, "the id of a model", &m->id));
    KG_TRY(kg_yaml_mapping(l->yaml, node, "a model", known, l->error));
    KG_TRY(read_name(l, node, m));
    KG_TRY(read_format(l, node, m));
    KG_TRY(
        read_paths(l, kg_yaml_get(node, "legacy"), "legacy", &m->legacy, &m->n_legacy));
    KG_TRY(read_sha256(l, node, m));
    const struct kg_yaml_node *fallback = kg_yaml_get(node, "fallback");
    const struct kg_yaml_node *reduced = kg_yaml_get(node, "reduced");
    const struct kg_yaml_node *synthetic = kg_yaml_get(node, "synthetic");
    if (fallback)
        KG_TRY(read_id(l, fallback, "fallback", &m->fallback_id));
    if (reduced)
        KG_TRY(kg_yaml_bool(l->yaml, reduced, "reduced", &m->reduced, l->error));
    if (synthetic)
        KG_TRY(kg_yaml_bool(l->yaml, synthetic, "synthetic", &m->synthetic, l->error));
    return 0;
}

/* An id that must be one of the file's. */
static int find_id(struct loader *l, const struct kg_yaml_node *node, const char *what,
                   const char *id, const struct model **found)
{
    *found = kg_models_find(l->m, id);
    if (*found)
        return 0;
    const char **ids = kg_arena_array(&l->m->arena, l->m->n_models + 1,
                                      sizeof *ids); /* ends with NULL */
    if (!ids)
        return no_memory(l);
    for (size_t i = 0; i < l->m->n_models; i++)
        ids[i] = l->m->models[i].id;
    const char *near = kg_text_nearest(id, ids);
    return kg_yaml_error(
        l->yaml, node, l->error, "%s: no model \"%s\" in this file%s%s%s", what, id,
        near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int link_fallbacks(struct loader *l, const struct kg_yaml_node *list)
{
    for (size_t i = 0; i < l->m->n_models; i++) {
        struct model *m = &l->m->models[i];
        if (!m->fallback_id)
            continue;
        const struct kg_yaml_node *node = kg_yaml_get(list->items[i], "fallback");
        KG_TRY(find_id(l, node, "fallback", m->fallback_id, &m->fallback));
        if (strcmp(m->format, m->fallback->format) != 0)
            return kg_yaml_error(l->yaml, node, l->error,
                                 "fallback: \"%s\" is %s, \"%s\" is %s", m->id, m->format,
                                 m->fallback_id, m->fallback->format);
    }
    for (size_t i = 0; i < l->m->n_models; i++) {
        const struct model *start = &l->m->models[i], *m = start;
        /* A chain that leads into a circle is longer than the list; it is reported at a
           model that is part of the circle. */
        for (size_t steps = 0; m->fallback && steps <= l->m->n_models; steps++) {
            m = m->fallback;
            if (m == start)
                return kg_yaml_error(
                    l->yaml, kg_yaml_get(list->items[i], "fallback"), l->error,
                    "fallback: \"%s\" falls back on itself%s%s%s", start->id,
                    start->fallback == start ? "" : " (through \"",
                    start->fallback == start ? "" : start->fallback_id,
                    start->fallback == start ? "" : "\")");
        }
    }
    return 0;
}

static int read_models(struct loader *l)
{
    static const char *const known[] = {"kgate", "search", "default_model", "models",
                                        NULL};
    const struct kg_yaml_node *root = kg_yaml_root(l->yaml);
    int64_t version;
    KG_TRY(kg_yaml_mapping(l->yaml, root, "models.yaml", known, l->error));
    KG_TRY(kg_yaml_int(l->yaml,
                       kg_yaml_require(l->yaml, root, "kgate", "models.yaml", l->error),
                       "kgate (the version of the format)", 1, 1, &version, l->error));
    KG_TRY(read_paths(l, kg_yaml_get(root, "search"), "search", &l->m->search,
                      &l->m->n_search));
    const struct kg_yaml_node *list =
        kg_yaml_require(l->yaml, root, "models", "models.yaml", l->error);
    KG_TRY(kg_yaml_mapping(l->yaml, list, "models", NULL, l->error));
    if (list->count > MAX_MODELS)
        return kg_yaml_error(l->yaml, list, l->error,
                             "models: expected at most %d, found %zu", MAX_MODELS,
                             list->count);
    l->m->models = kg_arena_array(&l->m->arena, list->count, sizeof *l->m->models);
    if (!l->m->models)
        return no_memory(l);
    for (size_t i = 0; i < list->count; i++) {
        KG_TRY(read_model(l, list->keys[i], list->items[i], &l->m->models[i]));
        l->m->n_models = i + 1;
    }
    KG_TRY(link_fallbacks(l, list));
    const struct kg_yaml_node *node = kg_yaml_get(root, "default_model");
    if (node) {
        const char *id;
        KG_TRY(read_id(l, node, "default_model", &id));
        KG_TRY(find_id(l, node, "default_model", id, &l->m->default_model));
    }
    return 0;
}

static char *absolute_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash          ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    char *absolute = folder ? realpath(folder, NULL) : NULL;
    free(folder);
    return absolute;
}

int kg_models_load(const char *path, struct kg_models **models, struct kg_error *error)
{
    *models = NULL;
    struct kg_models *m = calloc(1, sizeof *m);
    if (!m)
        return kg_error_set(error, KG_E_MEMORY, "%s: out of memory", path);
    int rc = kg_yaml_load(path, &m->yaml, error);
    if (rc == 0) {
        m->folder = absolute_folder(path);
        if (!m->folder)
            rc = kg_error_at_line(error, KG_E_IO, path, 0, 0, "%s", strerror(errno));
    }
    if (rc == 0)
        rc = read_models(&(struct loader){m, m->yaml, error});
    if (rc != 0)
        kg_models_free(m);
    else
        *models = m;
    return rc;
}

void kg_models_free(struct kg_models *models)
{
    if (!models)
        return;
    kg_yaml_free(models->yaml);
    kg_arena_clear(&models->arena);
    free(models->folder);
    free(models);
}

const char *kg_models_path(const struct kg_models *models)
{
    return kg_yaml_name(models->yaml);
}

size_t kg_models_count(const struct kg_models *models)
{
    return models->n_models;
}

const char *kg_models_id(const struct kg_models *models, size_t index)
{
    return models->models[index].id;
}

const struct model *kg_models_find(const struct kg_models *models, const char *id)
{
    for (size_t i = 0; i < models->n_models; i++)
        if (strcmp(models->models[i].id, id) == 0)
            return &models->models[i];
    return NULL;
}

bool kg_models_has(const struct kg_models *models, const char *id)
{
    return strcmp(id, KG_MODEL_ARGUMENT) == 0 || kg_models_find(models, id) != NULL;
}
