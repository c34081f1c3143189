#include "runner/cmd_models.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runner/models.h"
#include "runner/text.h"

struct line {
    struct kg_resolved r;
    const char *sha; /* with --verify: "matches", "differs", "not given", "unread" */
};

struct table {
    const struct kg_models *models;
    size_t n;
    struct line *lines; /* $model, then file order */
};

static const char *size_text(uint64_t bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024.0;
        unit++;
    }
    snprintf(buffer, size, "%.*f %s", unit ? 1 : 0, value, units[unit]);
    return buffer;
}

static int verify(struct line *line, struct kg_error *error)
{
    const struct kg_resolved *r = &line->r;
    if (!r->path)
        return 0;
    if (!r->sha256) {
        line->sha = "not given";
        return 0;
    }
    char hex[65];
    KG_TRY(kg_models_sha256(r->path, hex, error));
    line->sha = strcmp(hex, r->sha256) == 0 ? "matches" : "differs";
    return 0;
}

static int fill(struct table *t, const struct kg_options *o, struct kg_error *error)
{
    struct kg_models_query query = {o->models_dir, o->model, getenv("HOME")};
    size_t n = kg_models_count(t->models) + 1;
    t->lines = calloc(n, sizeof *t->lines);
    if (!t->lines)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const char *id = i ? kg_models_id(t->models, i - 1) : KG_MODEL_ARGUMENT;
        KG_TRY(kg_models_resolve(t->models, &query, id, &t->lines[i].r, error));
        t->n = i + 1;
        if (o->verify)
            KG_TRY(verify(&t->lines[i], error));
    }
    return 0;
}

static void print_text(const struct table *t, const struct kg_options *o, FILE *out)
{
    int width = 0;
    for (size_t i = 0; i < t->n; i++)
        if ((int)strlen(t->lines[i].r.asked) > width)
            width = (int)strlen(t->lines[i].r.asked);
    for (size_t i = 0; i < t->n; i++) {
        const struct line *line = &t->lines[i];
        const struct kg_resolved *r = &line->r;
        char size[32], shown[1024];
        if (r->path)
            fprintf(out, "%-*s  %10s  %s  (%s%s%s%s%s)\n", width, r->asked,
                    size_text(r->bytes, size, sizeof size),
                    kg_text_shown(r->path, shown, sizeof shown), r->how,
                    r->reduced ? ", reduced" : "", r->synthetic ? ", synthetic" : "",
                    line->sha ? ", sha256 " : "", line->sha ? line->sha : "");
        else
            fprintf(out, "%-*s  %10s  %s\n", width, r->asked, "missing",
                    kg_text_shown(r->miss + strlen(r->asked) + 2, shown, sizeof shown));
        for (size_t j = 0; o->verbose && j < r->n_tried; j++)
            fprintf(out, "%*s  %s %s\n", width + 12, "",
                    r->path && j + 1 == r->n_tried ? "found" : "tried",
                    kg_text_shown(r->tried[j], shown, sizeof shown));
    }
}

/* Paths may be any bytes; JSON is UTF-8. */
static json_t *text_json(const char *text)
{
    size_t bad;
    if (!text)
        return json_null();
    if (kg_text_is_utf8(text, strlen(text), &bad))
        return json_string(text);
    char *safe = strdup(text);
    for (char *c = safe; c && *c; c++)
        if (*c & 0x80)
            *c = '?';
    json_t *result = safe ? json_string(safe) : NULL;
    free(safe);
    return result;
}

static json_t *line_json(const struct line *line)
{
    const struct kg_resolved *r = &line->r;
    json_t *tried = json_array();
    for (size_t i = 0; i < r->n_tried; i++)
        json_array_append_new(tried, text_json(r->tried[i]));
    return json_pack(
        "{s:s, s:o, s:o, s:s?, s:s, s:I, s:o, s:b, s:b, s:b, s:o, s:o, s:s?}", "asked",
        r->asked, "id", text_json(r->id), "path", text_json(r->path), "format", r->format,
        "found", kg_found_name(r->found), "bytes", (json_int_t)r->bytes, "how",
        text_json(r->path ? r->how : NULL), "fallback", r->fallback, "reduced",
        r->reduced, "synthetic", r->synthetic, "tried", tried, "miss",
        text_json(r->path ? NULL : r->miss), "sha256", line->sha);
}

static int print_json(const struct table *t, FILE *out, struct kg_error *error)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(list, line_json(&t->lines[i]));
    json_t *root = json_pack("{s:o, s:o}", "file", text_json(kg_models_path(t->models)),
                             "models", list);
    int rc = root && json_dumpf(root, out, JSON_INDENT(2) | JSON_SORT_KEYS) == 0 &&
                     fputc('\n', out) != EOF
                 ? 0
                 : kg_error_set(error, KG_E_IO, "the table could not be written");
    json_decref(root);
    return rc;
}

int kg_cmd_models(const struct kg_options *options, const struct kg_paths *paths,
                  FILE *out, struct kg_error *error)
{
    struct kg_models *models = NULL;
    struct table t = {0};
    int rc = kg_models_load(paths->models, &models, error);
    t.models = models;
    if (rc == 0)
        rc = fill(&t, options, error);
    if (rc == 0 && options->json)
        rc = print_json(&t, out, error);
    else if (rc == 0)
        print_text(&t, options, out);
    int status = rc == 0 ? 0 : 2;
    for (size_t i = 0; i < t.n; i++) {
        if (status == 0 && t.lines[i].sha && strcmp(t.lines[i].sha, "differs") == 0)
            status = 1;
        kg_resolved_clear(&t.lines[i].r);
    }
    free(t.lines);
    kg_models_free(models);
    return status;
}
