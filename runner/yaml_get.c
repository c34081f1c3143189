/* The typed readers of yaml.h: what was expected, what was found, and where. */
#include "runner/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/text.h"

int kg_yaml_error(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                  struct kg_error *error, const char *format, ...)
{
    char text[sizeof error->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kg_error_at_line(error, KG_E_FORMAT, kg_yaml_name(yaml), node->line,
                            node->column, "%s", text);
}

const struct kg_yaml_node *kg_yaml_get(const struct kg_yaml_node *mapping,
                                       const char *key)
{
    if (!mapping || mapping->kind != KG_YAML_MAPPING)
        return NULL;
    for (size_t i = 0; i < mapping->count; i++)
        if (strcmp(mapping->keys[i]->text, key) == 0)
            return mapping->items[i];
    return NULL;
}

const struct kg_yaml_node *kg_yaml_require(const struct kg_yaml *yaml,
                                           const struct kg_yaml_node *mapping,
                                           const char *key, const char *what,
                                           struct kg_error *error)
{
    const struct kg_yaml_node *node = kg_yaml_get(mapping, key);
    if (!node)
        kg_yaml_error(yaml, mapping, error, "%s: missing key \"%s\"", what, key);
    return node;
}

static bool is_null(const struct kg_yaml_node *node)
{
    return node->kind == KG_YAML_SCALAR && !node->quoted &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 ||
            strcmp(node->text, "null") == 0);
}

/* "WHAT: expected EXPECTED, found ..." */
static int wrong(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                 const char *what, const char *expected, struct kg_error *error)
{
    if (node->kind == KG_YAML_MAPPING)
        return kg_yaml_error(yaml, node, error, "%s: expected %s, found a mapping", what,
                             expected);
    if (node->kind == KG_YAML_SEQUENCE)
        return kg_yaml_error(yaml, node, error, "%s: expected %s, found a sequence", what,
                             expected);
    if (is_null(node))
        return kg_yaml_error(yaml, node, error, "%s: expected %s, found nothing", what,
                             expected);
    return kg_yaml_error(yaml, node, error, "%s: expected %s, found %s\"%.80s\"", what,
                         expected, node->quoted ? "the string " : "", node->text);
}

int kg_yaml_mapping(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                    const char *what, const char *const *known, struct kg_error *error)
{
    if (!node)
        return error->status;
    if (node->kind != KG_YAML_MAPPING)
        return wrong(yaml, node, what, "a mapping", error);
    for (size_t i = 0; known && i < node->count; i++) {
        const struct kg_yaml_node *key = node->keys[i];
        const char *const *k = known;
        while (*k && strcmp(*k, key->text) != 0)
            k++;
        if (*k)
            continue;
        const char *near = kg_text_nearest(key->text, known);
        if (near)
            return kg_yaml_error(yaml, key, error,
                                 "%s: unknown key \"%.80s\", did you mean \"%s\"?", what,
                                 key->text, near);
        char list[256] = "";
        for (k = known; *k; k++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                     k == known ? "" : ", ", *k);
        return kg_yaml_error(yaml, key, error,
                             "%s: unknown key \"%.80s\", expected one of %s", what,
                             key->text, list);
    }
    return 0;
}

int kg_yaml_sequence(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                     const char *what, struct kg_error *error)
{
    if (!node)
        return error->status;
    if (node->kind != KG_YAML_SEQUENCE)
        return wrong(yaml, node, what, "a sequence", error);
    return 0;
}

int kg_yaml_string(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                   const char *what, const char **text, struct kg_error *error)
{
    if (!node)
        return error->status;
    if (node->kind != KG_YAML_SCALAR || is_null(node))
        return wrong(yaml, node, what, "a string", error);
    if (node->text[0] == '\0')
        return kg_yaml_error(yaml, node, error,
                             "%s: expected a string, found an empty one", what);
    *text = node->text;
    return 0;
}

int kg_yaml_bool(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                 const char *what, bool *value, struct kg_error *error)
{
    if (!node)
        return error->status;
    if (node->kind == KG_YAML_SCALAR && !node->quoted) {
        if (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0) {
            *value = node->text[0] == 't';
            return 0;
        }
    }
    return wrong(yaml, node, what, "true or false", error);
}

int kg_yaml_int(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                const char *what, int64_t min, int64_t max, int64_t *value,
                struct kg_error *error)
{
    if (!node)
        return error->status;
    char expected[80];
    if (min == max)
        snprintf(expected, sizeof expected, "the number %lld", (long long)min);
    else
        snprintf(expected, sizeof expected, "a number from %lld to %lld", (long long)min,
                 (long long)max);
    if (node->kind != KG_YAML_SCALAR || node->quoted)
        return wrong(yaml, node, what, expected, error);
    bool negative = node->text[0] == '-';
    uint64_t magnitude;
    if (!kg_text_u64(node->text + negative, INT64_MAX, &magnitude))
        return wrong(yaml, node, what, expected, error);
    int64_t v = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    if (v < min || v > max)
        return wrong(yaml, node, what, expected, error);
    *value = v;
    return 0;
}
