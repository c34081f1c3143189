#include "runner/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/arena.h"
#include "runner/models.h"
#include "runner/text.h"
#include "runner/yaml.h"

/* More sections than any battery has, so that a mistake does not start 100,000 processes.
 */
enum { MAX_SECTIONS = 1000, MAX_TAGS = 32, MAX_ROLES = 32, MAX_PARAMS = 64 };

struct loaded {
    struct kg_manifest manifest; /* first: the pointer handed out */
    struct kg_arena arena;
    struct kg_yaml *yaml;
};

struct loader {
    struct loaded *m;
    const struct kg_yaml *yaml;
    struct kg_error *error;
};

static int no_memory(struct loader *l)
{
    return kg_error_set(l->error, KG_E_MEMORY, "%s: out of memory", l->m->manifest.path);
}

static int read_name(struct loader *l, const struct kg_yaml_node *node, const char *what,
                     const char **name)
{
    KG_TRY(kg_yaml_string(l->yaml, node, what, name, l->error));
    if (!kg_text_is_name(*name))
        return kg_yaml_error(l->yaml, node, l->error,
                             "%s: expected lower-case letters, digits, hyphens and "
                             "underscores (at most 64), found \"%.80s\"",
                             what, *name);
    return 0;
}

static int read_seconds(struct loader *l, const struct kg_yaml_node *limits,
                        const char *key, const char *what, double *seconds)
{
    const struct kg_yaml_node *node = kg_yaml_get(limits, key);
    const char *text;
    if (!node)
        return 0;
    KG_TRY(kg_yaml_string(l->yaml, node, what, &text, l->error));
    if (!kg_text_seconds(text, seconds))
        return kg_yaml_error(l->yaml, node, l->error,
                             "%s: expected a duration such as 30s, 10m or 2h (at most 7 "
                             "days), found \"%.80s\"",
                             what, text);
    return 0;
}

/* Overwrites in `limits` what the node gives. The node may be absent. */
static int read_limits(struct loader *l, const struct kg_yaml_node *node,
                       struct kg_limits *limits)
{
    static const char *const known[] = {"cell", "section", "memory", NULL};
    if (!node)
        return 0;
    KG_TRY(kg_yaml_mapping(l->yaml, node, "limits", known, l->error));
    KG_TRY(read_seconds(l, node, "cell", "limits.cell", &limits->cell_seconds));
    KG_TRY(read_seconds(l, node, "section", "limits.section", &limits->section_seconds));
    const struct kg_yaml_node *memory = kg_yaml_get(node, "memory");
    if (memory) {
        const char *text;
        KG_TRY(kg_yaml_string(l->yaml, memory, "limits.memory", &text, l->error));
        if (!kg_text_bytes(text, &limits->memory_bytes))
            return kg_yaml_error(l->yaml, memory, l->error,
                                 "limits.memory: expected a size such as 512MiB or 8GiB, "
                                 "found \"%.80s\"",
                                 text);
    }
    if (limits->cell_seconds > limits->section_seconds)
        return kg_yaml_error(l->yaml, node, l->error,
                             "limits: a cell may take %g s but its section only %g s",
                             limits->cell_seconds, limits->section_seconds);
    return 0;
}

static int at_most(struct loader *l, const struct kg_yaml_node *node, const char *what,
                   size_t max)
{
    if (node->count > max)
        return kg_yaml_error(l->yaml, node, l->error,
                             "%s: expected at most %zu entries, found %zu", what, max,
                             node->count);
    return 0;
}

static int read_tags(struct loader *l, const struct kg_yaml_node *node,
                     struct kg_manifest_section *s)
{
    if (!node)
        return 0;
    KG_TRY(kg_yaml_sequence(l->yaml, node, "tags", l->error));
    KG_TRY(at_most(l, node, "tags", MAX_TAGS));
    const char **tags = kg_arena_array(&l->m->arena, node->count, sizeof *tags);
    if (!tags)
        return no_memory(l);
    for (size_t i = 0; i < node->count; i++) {
        KG_TRY(read_name(l, node->items[i], "a tag", &tags[i]));
        for (size_t j = 0; j < i; j++)
            if (strcmp(tags[i], tags[j]) == 0)
                return kg_yaml_error(l->yaml, node->items[i], l->error,
                                     "tags: \"%s\" appears twice", tags[i]);
    }
    s->tags = tags;
    s->n_tags = node->count;
    return 0;
}

static int read_artifacts(struct loader *l, const struct kg_yaml_node *node,
                          struct kg_manifest_section *s)
{
    if (!node)
        return 0;
    KG_TRY(kg_yaml_mapping(l->yaml, node, "artifacts", NULL, l->error));
    KG_TRY(at_most(l, node, "artifacts", MAX_ROLES));
    struct kg_manifest_artifact *list =
        kg_arena_array(&l->m->arena, node->count, sizeof *list);
    if (!list)
        return no_memory(l);
    for (size_t i = 0; i < node->count; i++) {
        const struct kg_yaml_node *value = node->items[i];
        KG_TRY(read_name(l, node->keys[i], "a role", &list[i].role));
        KG_TRY(
            kg_yaml_string(l->yaml, value, "the id of a model", &list[i].id, l->error));
        if (strcmp(list[i].id, KG_MODEL_ARGUMENT) != 0)
            KG_TRY(read_name(l, value, "the id of a model", &list[i].id));
        list[i].line = node->keys[i]->line;
        list[i].column = node->keys[i]->column;
    }
    s->artifacts = list;
    s->n_artifacts = node->count;
    return 0;
}

static int read_params(struct loader *l, const struct kg_yaml_node *node,
                       struct kg_manifest_section *s)
{
    if (!node)
        return 0;
    KG_TRY(kg_yaml_mapping(l->yaml, node, "params", NULL, l->error));
    KG_TRY(at_most(l, node, "params", MAX_PARAMS));
    struct kg_manifest_param *list =
        kg_arena_array(&l->m->arena, node->count, sizeof *list);
    if (!list)
        return no_memory(l);
    for (size_t i = 0; i < node->count; i++) {
        KG_TRY(read_name(l, node->keys[i], "the name of a param", &list[i].key));
        KG_TRY(
            kg_yaml_string(l->yaml, node->items[i], "a param", &list[i].value, l->error));
        list[i].line = node->keys[i]->line;
        list[i].column = node->keys[i]->column;
    }
    s->params = list;
    s->n_params = node->count;
    return 0;
}

static int read_section(struct loader *l, const struct kg_yaml_node *node,
                        const struct kg_limits *limits, struct kg_manifest_section *s)
{
    static const char *const known[] = {"name",   "tags",     "artifacts", "limits",
                                        "params", "optional", NULL};
    KG_TRY(kg_yaml_mapping(l->yaml, node, "a section", known, l->error));
    s->line = node->line;
    s->column = node->column;
    s->limits = *limits;
    const struct kg_yaml_node *name =
        kg_yaml_require(l->yaml, node, "name", "a section", l->error);
    KG_TRY(read_name(l, name, "the name of a section", &s->name));
    for (const struct kg_manifest_section *o = l->m->manifest.sections; o < s; o++)
        if (strcmp(o->name, s->name) == 0)
            return kg_yaml_error(l->yaml, name, l->error,
                                 "section \"%s\" is listed twice, first in line %d",
                                 s->name, o->line);
    KG_TRY(read_tags(l, kg_yaml_get(node, "tags"), s));
    KG_TRY(read_artifacts(l, kg_yaml_get(node, "artifacts"), s));
    KG_TRY(read_limits(l, kg_yaml_get(node, "limits"), &s->limits));
    KG_TRY(read_params(l, kg_yaml_get(node, "params"), s));
    const struct kg_yaml_node *optional = kg_yaml_get(node, "optional");
    if (optional)
        KG_TRY(kg_yaml_bool(l->yaml, optional, "optional", &s->optional, l->error));
    return 0;
}

static int read_manifest(struct loader *l)
{
    static const char *const known[] = {"kgate", "name", "limits", "sections", NULL};
    const struct kg_yaml_node *root = kg_yaml_root(l->yaml);
    struct kg_manifest *m = &l->m->manifest;
    int64_t version;
    KG_TRY(kg_yaml_mapping(l->yaml, root, "a manifest", known, l->error));
    KG_TRY(kg_yaml_int(l->yaml,
                       kg_yaml_require(l->yaml, root, "kgate", "a manifest", l->error),
                       "kgate (the version of the format)", 1, 1, &version, l->error));
    KG_TRY(read_name(l, kg_yaml_require(l->yaml, root, "name", "a manifest", l->error),
                     "the name of a manifest", &m->name));
    struct kg_limits limits = {KG_DEFAULT_CELL_SECONDS, KG_DEFAULT_SECTION_SECONDS,
                               KG_DEFAULT_MEMORY_BYTES};
    KG_TRY(read_limits(l, kg_yaml_get(root, "limits"), &limits));
    const struct kg_yaml_node *list =
        kg_yaml_require(l->yaml, root, "sections", "a manifest", l->error);
    KG_TRY(kg_yaml_sequence(l->yaml, list, "sections", l->error));
    KG_TRY(at_most(l, list, "sections", MAX_SECTIONS));
    if (list->count == 0)
        return kg_yaml_error(l->yaml, list, l->error,
                             "sections: expected at least one, a battery of none would "
                             "pass by checking nothing");
    struct kg_manifest_section *sections =
        kg_arena_array(&l->m->arena, list->count, sizeof *sections);
    if (!sections)
        return no_memory(l);
    m->sections = sections;
    for (size_t i = 0; i < list->count; i++) {
        KG_TRY(read_section(l, list->items[i], &limits, &sections[i]));
        m->n_sections = i + 1;
    }
    return 0;
}

int kg_manifest_load(const char *path, struct kg_manifest **manifest,
                     struct kg_error *error)
{
    *manifest = NULL;
    struct loaded *m = calloc(1, sizeof *m);
    if (!m)
        return kg_error_set(error, KG_E_MEMORY, "%s: out of memory", path);
    int rc = kg_yaml_load(path, &m->yaml, error);
    if (rc == 0) {
        m->manifest.path = kg_yaml_name(m->yaml);
        m->manifest.digest = kg_yaml_digest(m->yaml);
        rc = read_manifest(&(struct loader){m, m->yaml, error});
    }
    if (rc != 0)
        kg_manifest_free(&m->manifest);
    else
        *manifest = &m->manifest;
    return rc;
}

void kg_manifest_free(struct kg_manifest *manifest)
{
    struct loaded *m = (struct loaded *)manifest;
    if (!m)
        return;
    kg_yaml_free(m->yaml);
    kg_arena_clear(&m->arena);
    free(m);
}

const struct kg_manifest_section *kg_manifest_find(const struct kg_manifest *manifest,
                                                   const char *name)
{
    for (size_t i = 0; i < manifest->n_sections; i++)
        if (strcmp(manifest->sections[i].name, name) == 0)
            return &manifest->sections[i];
    return NULL;
}

bool kg_manifest_has_tag(const struct kg_manifest_section *section, const char *tag)
{
    for (size_t i = 0; i < section->n_tags; i++)
        if (strcmp(section->tags[i], tag) == 0)
            return true;
    return false;
}
