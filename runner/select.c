#include "runner/select.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runner/text.h"

/* "a,b,c" after what is in the buffer; cut off if it does not fit. */
static void append_list(char *buffer, size_t size, char *const *list, size_t n,
                        const char *before_each, const char *between)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(buffer);
        snprintf(buffer + at, size - at, "%s%s%s", i ? between : "", before_each,
                 list[i]);
    }
}

static void append(char *buffer, size_t size, const char *text)
{
    size_t at = strlen(buffer);
    snprintf(buffer + at, size - at, "%s", text);
}

static const char *only_name(const struct kg_select *s)
{
    return s->only_from_environment ? "KGATE_ONLY=" : "--only ";
}

static const char *fast_name(const struct kg_select *s)
{
    return s->fast_from_environment ? "KGATE_FAST" : "--fast";
}

/* Whether the glob can match an id of the section, which starts with "NAME.". Only the
   part before the first special character is looked at: true when in doubt. */
static bool glob_may_match(const char *glob, const char *name)
{
    size_t literal = strcspn(glob, "*?[\\"), n = strlen(name);
    size_t common = literal < n ? literal : n;
    if (strncmp(glob, name, common) != 0)
        return false;
    return literal <= n || glob[n] == '.';
}

static bool any_tag(const struct kg_select *s, const struct kg_manifest_section *section)
{
    for (size_t i = 0; i < s->n_tags; i++)
        if (kg_manifest_has_tag(section, s->tags[i]))
            return true;
    return s->n_tags == 0;
}

static bool any_only(const struct kg_select *s, const char *name)
{
    for (size_t i = 0; i < s->n_only; i++)
        if (strstr(name, s->only[i]))
            return true;
    return s->n_only == 0;
}

static bool any_glob_may_match(const struct kg_select *s, const char *name)
{
    for (size_t i = 0; i < s->n_cells; i++)
        if (glob_may_match(s->cells[i], name))
            return true;
    return s->n_cells == 0;
}

static bool any_glob(const struct kg_select *s, const char *id)
{
    for (size_t i = 0; i < s->n_cells; i++)
        if (fnmatch(s->cells[i], id, 0) == 0)
            return true;
    return s->n_cells == 0;
}

static void why_tags(const struct kg_select *s, char *why, size_t size)
{
    snprintf(why, size, "filtered: --tag ");
    append_list(why, size, s->tags, s->n_tags, "", ",");
}

static void why_only(const struct kg_select *s, char *why, size_t size)
{
    snprintf(why, size, "filtered: %s", only_name(s));
    append_list(why, size, s->only, s->n_only, "", ",");
}

static void why_cells(const struct kg_select *s, char *why, size_t size)
{
    snprintf(why, size, "filtered: ");
    append_list(why, size, s->cells, s->n_cells, "--cell ", " ");
}

bool kg_select_section(const struct kg_select *select,
                       const struct kg_manifest_section *section, char *why, size_t size)
{
    if (!any_tag(select, section)) {
        why_tags(select, why, size);
        return false;
    }
    if (!any_only(select, section->name)) {
        why_only(select, why, size);
        return false;
    }
    if (select->fast && kg_manifest_has_tag(section, KG_TAG_ARTIFACT)) {
        snprintf(why, size, "filtered: %s", fast_name(select));
        return false;
    }
    if (!any_glob_may_match(select, section->name)) {
        why_cells(select, why, size);
        return false;
    }
    return true;
}

uint32_t kg_select_shard_of(const char *id, uint32_t n_shards)
{
    if (n_shards <= 1)
        return 1;
    return (uint32_t)(XXH3_64bits(id, strlen(id)) % n_shards) + 1;
}

bool kg_select_cell(const struct kg_select *select, const char *id, const char *role,
                    char *why, size_t size)
{
    if (select->fast && role) {
        snprintf(why, size, "filtered: %s", fast_name(select));
        return false;
    }
    if (!any_glob(select, id)) {
        why_cells(select, why, size);
        return false;
    }
    if (select->n_shards > 1) {
        uint32_t shard = kg_select_shard_of(id, select->n_shards);
        if (shard != select->shard) {
            snprintf(why, size, "filtered: --shard %u/%u, the cell is in shard %u",
                     select->shard, select->n_shards, shard);
            return false;
        }
    }
    return true;
}

const char *kg_select_describe(const struct kg_select *s, char *buffer, size_t size)
{
    buffer[0] = '\0';
    if (s->n_tags) {
        append(buffer, size, " --tag ");
        append_list(buffer, size, s->tags, s->n_tags, "", ",");
    }
    if (s->n_only) {
        append(buffer, size, " ");
        append(buffer, size, only_name(s));
        append_list(buffer, size, s->only, s->n_only, "", ",");
    }
    if (s->n_cells) {
        append(buffer, size, " ");
        append_list(buffer, size, s->cells, s->n_cells, "--cell ", " ");
    }
    if (s->fast) {
        append(buffer, size, " ");
        append(buffer, size, fast_name(s));
    }
    if (s->n_shards > 1) {
        size_t at = strlen(buffer);
        snprintf(buffer + at, size - at, " --shard %u/%u", s->shard, s->n_shards);
    }
    if (buffer[0] == '\0')
        snprintf(buffer, size, "everything");
    else
        memmove(buffer, buffer + 1, strlen(buffer));
    return buffer;
}

/* A mistyped word among good ones would be a part of the battery that silently does not
   run. KGATE_ONLY may be meant for several manifests, so there a spare word is fine. */
static int refuse_idle_words(const struct kg_select *s, const struct kg_manifest *m,
                             struct kg_error *error)
{
    for (size_t i = 0; i < s->n_tags + s->n_only; i++) {
        const bool tag = i < s->n_tags;
        const char *word = tag ? s->tags[i] : s->only[i - s->n_tags];
        bool used = !tag && s->only_from_environment;
        for (size_t j = 0; j < m->n_sections && !used; j++)
            used = tag ? kg_manifest_has_tag(&m->sections[j], word)
                       : strstr(m->sections[j].name, word) != NULL;
        if (!used)
            return kg_error_set(error, KG_E_INVALID,
                                "--%s: no section of %s %s \"%.100s\" (kgate list shows "
                                "them)",
                                tag ? "tag" : "only", m->name,
                                tag ? "has the tag" : "has a name with", word);
    }
    return 0;
}

int kg_select_require_section(const struct kg_select *select,
                              const struct kg_manifest *manifest, struct kg_error *error)
{
    char text[256];
    KG_TRY(refuse_idle_words(select, manifest, error));
    for (size_t i = 0; i < manifest->n_sections; i++)
        if (kg_select_section(select, &manifest->sections[i], text, sizeof text))
            return 0;

    char names[160] = "";
    for (size_t i = 0; i < manifest->n_sections; i++) {
        append(names, sizeof names, i ? ", " : "");
        append(names, sizeof names, manifest->sections[i].name);
    }
    return kg_error_set(error, KG_E_INVALID,
                        "no section of %s matches %.200s (sections: %s)", manifest->name,
                        kg_select_describe(select, text, sizeof text), names);
}

static bool matches_any(const char *glob, const char *const *ids)
{
    while (*ids && fnmatch(glob, *ids, 0) != 0)
        ids++;
    return *ids != NULL;
}

/* One that matches nothing is a mistake even where another does not. */
static int refuse_idle_globs(const struct kg_select *s, const char *const *ids,
                             struct kg_error *error)
{
    for (size_t i = 0; i < s->n_cells; i++) {
        if (matches_any(s->cells[i], ids))
            continue;
        const char *near = kg_text_nearest(s->cells[i], ids);
        return kg_error_set(error, KG_E_INVALID,
                            "no cell matches --cell %.200s%s%.128s%s", s->cells[i],
                            near ? ", did you mean --cell " : "", near ? near : "",
                            near ? "?" : " (kgate list --cells shows them)");
    }
    return 0;
}

int kg_select_require_cells(const struct kg_select *select, const char *const *ids,
                            size_t n_ids, size_t n_selected, struct kg_error *error)
{
    char text[256];
    const char **list = calloc(n_ids + 1, sizeof *list); /* ends with NULL */
    if (!list)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    for (size_t i = 0; i < n_ids; i++)
        list[i] = ids[i];
    int rc = refuse_idle_globs(select, list, error);
    free(list);
    if (rc == 0 && n_selected == 0)
        rc = kg_error_set(error, KG_E_INVALID,
                          "no cell matches %.200s (kgate list --cells shows them)",
                          kg_select_describe(select, text, sizeof text));
    return rc;
}

static void clear_list(char ***list, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        free((*list)[i]);
    free(*list);
    *list = NULL;
    *n = 0;
}

void kg_select_clear(struct kg_select *select)
{
    clear_list(&select->tags, &select->n_tags);
    clear_list(&select->only, &select->n_only);
    clear_list(&select->cells, &select->n_cells);
}
