/* What a manifest asks of a section, against what the section declares. */
#include <stdio.h>
#include <string.h>

#include "runner/host.h"
#include "runner/text.h"

enum { SHOWN_MAX = 64 };

/* The names that the section declares, ended by NULL; false if it may take any. */
static bool names_of(const struct kg_section *section, bool params,
                     const char *names[SHOWN_MAX + 1])
{
    size_t n = 0;
    bool known = !params || section->size >= offsetof(struct kg_section, params) +
                                                 sizeof section->params;
    if (!params)
        for (const struct kg_role *r = section->roles; r && r->name && n < SHOWN_MAX; r++)
            names[n++] = r->name;
    else if (known)
        for (const struct kg_section_param *p = section->params;
             p && p->name && n < SHOWN_MAX; p++)
            names[n++] = p->name;
    names[n] = NULL;
    return known;
}

static bool is_among(const char *const *names, const char *name)
{
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

bool kg_section_has_param(const struct kg_section *section, const char *name)
{
    const char *names[SHOWN_MAX + 1];
    return !names_of(section, true, names) || is_among(names, name);
}

static int refuse(const struct kg_section *section, const char *what, const char *name,
                  const char *where, const char *const *names, struct kg_error *error)
{
    char has[200] = "none";
    const char *near = kg_text_nearest(name, names);
    for (size_t i = 0, at = 0; names[i] && at < sizeof has; i++)
        at +=
            (size_t)snprintf(has + at, sizeof has - at, "%s%s", i ? ", " : "", names[i]);
    if (near)
        return kg_error_set(error, KG_E_INVALID,
                            "%s: section %s has no %s \"%s\", did you mean \"%s\"?",
                            where, section->name, what, name, near);
    return kg_error_set(error, KG_E_INVALID,
                        "%s: section %s has no %s \"%s\" (it has %s)", where,
                        section->name, what, name, has);
}

int kg_section_accept(const struct kg_section *section, const json_t *asked,
                      struct kg_error *error)
{
    for (int params = 0; params < 2; params++) {
        const char *names[SHOWN_MAX + 1], *name;
        json_t *where;
        json_t *table = json_object_get(asked, params ? "params" : "roles");
        if (!names_of(section, params, names))
            continue;
        json_object_foreach(table, name, where)
        {
            if (!is_among(names, name))
                return refuse(section, params ? "param" : "role", name,
                              json_string_value(where) ? json_string_value(where) : "?",
                              names, error);
        }
    }
    return 0;
}
