#include "runner/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/attribute.h"
#include "runner/diff/facts.h"
#include "runner/escape.h"
#include "runner/result.h"

/* ---- do they belong together ---- */

static int check_facts(struct kg_record *a, struct kg_record *b, struct kg_error *error)
{
    static const enum kg_fact same[] = {
        KG_FACT_MANIFEST_DIGEST, KG_FACT_PROVIDER, KG_FACT_PROVIDER_DIGEST,
        KG_FACT_AGAINST_DIGEST,  KG_FACT_SEED,     KG_FACT_SCHEDULE,
        KG_FACT_COMMIT,          KG_FACT_KGATE,    KG_FACT_DEVICE,
        KG_FACT_DRIVER,          KG_FACT_CUDA};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        if (!kg_fact_differs(a, b, same[i]))
            continue;
        const char *x = kg_fact(a, same[i]), *y = kg_fact(b, same[i]);
        return kg_error_set(
            error, KG_E_INVALID,
            "%.100s and %.100s are not of one battery: %s differs: %.80s and "
            "%.80s",
            a->path, b->path, kg_fact_label(same[i]), x ? x : "not recorded",
            y ? y : "not recorded");
    }
    if (!kg_fact(a, KG_FACT_MANIFEST_DIGEST) || !kg_fact(a, KG_FACT_PROVIDER_DIGEST))
        return kg_error_set(
            error, KG_E_INVALID,
            "%.200s has no digest of its manifest or provider: nothing shows "
            "that the results belong together",
            a->path);
    return KG_OK;
}

/* The section ran in this shard, so what it ran with counts. */
static bool ran(const struct kg_record_section *s)
{
    return !s->status || strcmp(s->status, "ok") == 0 || strcmp(s->status, "error") == 0;
}

static int check_sections(struct kg_record *a, struct kg_record *b,
                          struct kg_error *error)
{
    for (size_t i = 0; i < a->n_sections; i++) {
        const struct kg_record_section *x = &a->sections[i];
        const struct kg_record_section *y = kg_record_section_find(b, x->name);
        if (!y || !ran(x) || !ran(y))
            continue;
        const char *field = NULL;
        if (x->digest && y->digest && strcmp(x->digest, y->digest) != 0)
            field = "plugin digest";
        else if (kg_attribute_artifacts(x, y, NULL))
            field = "artifacts";
        if (field)
            return kg_error_set(
                error, KG_E_INVALID,
                "%.100s and %.100s are not of one battery: the %s of section "
                "%.60s differs",
                a->path, b->path, field, x->name);
    }
    return KG_OK;
}

static bool filtered(const struct kg_record_cell *c)
{
    return c->verdict == KG_SKIP && c->reason && strcmp(c->reason, "filtered") == 0;
}

static int check_cells(struct kg_record *a, struct kg_record *b, struct kg_error *error)
{
    for (size_t i = 0; i < a->n_cells; i++) {
        const struct kg_record_cell *x = &a->cells[i];
        const struct kg_record_cell *y = kg_record_find(b, x->id);
        if (y && !filtered(x) && !filtered(y))
            return kg_error_set(
                error, KG_E_INVALID,
                "%.100s and %.100s are not shards of one battery: both ran "
                "the cell %.120s",
                a->path, b->path, x->id);
    }
    return KG_OK;
}

/* ---- joining ---- */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Index by name or id, so that 20,000 cells are not searched one by another. */
static json_t *joined_cells(json_t *const *trees, size_t n)
{
    json_t *places = json_object(), *cells = json_array(), *cell;
    size_t i;
    for (size_t k = 0; k < n; k++)
        json_array_foreach(json_object_get(trees[k], "cells"), i, cell)
        {
            const char *id = text_at(cell, "id");
            json_t *place = json_object_get(places, id);
            if (!place) {
                json_object_set_new(places, id,
                                    json_integer((json_int_t)json_array_size(cells)));
                json_array_append(cells, cell);
            } else if (strcmp(text_at(cell, "reason"), "filtered") != 0) {
                json_array_set(cells, (size_t)json_integer_value(place), cell);
            }
        }
    json_decref(places);
    return cells;
}

/* The worse of two: an error is told, and what ran in one shard ran. */
static int status_rank(const char *status)
{
    static const char *const order[] = {"filtered", "not-run", "ok", "error"};
    for (int i = 0; i < 4; i++)
        if (strcmp(status, order[i]) == 0)
            return i;
    return 0;
}

static void add_number(json_t *into, const json_t *from, const char *key)
{
    json_t *a = json_object_get(into, key), *b = json_object_get(from, key);
    if (json_is_integer(a) && json_is_integer(b))
        json_object_set_new(into, key,
                            json_integer(json_integer_value(a) + json_integer_value(b)));
    else if (json_is_number(a) && json_is_number(b))
        json_object_set_new(into, key,
                            json_real(json_number_value(a) + json_number_value(b)));
}

/* Sections in the order in which they are first seen. */
static json_t *joined_sections(json_t *const *trees, size_t n)
{
    json_t *sections = json_array(), *section, *seen;
    size_t i, j;
    for (size_t k = 0; k < n; k++)
        json_array_foreach(json_object_get(trees[k], "sections"), i, section)
        {
            json_t *same = NULL;
            json_array_foreach(
                sections, j,
                seen) if (strcmp(text_at(seen, "name"), text_at(section, "name")) == 0)
            {
                same = seen;
                break;
            }
            if (!same) {
                json_array_append_new(sections, json_deep_copy(section));
                continue;
            }
            json_t *winner = json_copy(status_rank(text_at(section, "status")) >
                                               status_rank(text_at(same, "status"))
                                           ? section
                                           : same);
            json_t *other = status_rank(text_at(section, "status")) >
                                    status_rank(text_at(same, "status"))
                                ? same
                                : section;
            add_number(winner, other, "seconds");
            add_number(winner, other, "restarts");
            json_array_set_new(sections, j, winner);
        }
    return sections;
}

static void count_cells(json_t *sections, const json_t *cells)
{
    json_t *section, *cell, *counts = json_object();
    size_t i;
    json_array_foreach(cells, i, cell)
    {
        const char *name = text_at(cell, "section");
        json_int_t count = json_integer_value(json_object_get(counts, name));
        json_object_set_new(counts, name, json_integer(count + 1));
    }
    json_array_foreach(sections, i, section)
    {
        json_t *count = json_object_get(counts, text_at(section, "name"));
        json_object_set_new(section, "cells", json_integer(json_integer_value(count)));
    }
    json_decref(counts);
}

/* What the shards left out, one behind another: "--shard 1/2 + --shard 2/2". */
static json_t *joined_selection(json_t *const *trees, size_t n)
{
    char text[512];
    size_t at = 0;
    for (size_t k = 0; k < n && at < sizeof text; k++) {
        const json_t *run = json_object_get(trees[k], "run");
        const char *one = text_at(json_object_get(run, "selection"), "text");
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", k ? " + " : "", one);
    }
    char *clean = kg_utf8_dup(text, strlen(text)); /* it may be cut inside a character */
    json_t *selection = json_pack("{s:s}", "text", clean);
    free(clean);
    return selection;
}

/* The facts of the first shard, with a list of where each came from. */
static json_t *joined_run(json_t *const *trees, size_t n)
{
    json_t *run = json_deep_copy(json_object_get(trees[0], "run"));
    json_t *shards = json_array();
    bool interrupted = false, synthetic = false;
    for (size_t k = 0; k < n; k++) {
        const json_t *from = json_object_get(trees[k], "run");
        json_t *shard = json_object();
        static const char *const kept[] = {"host",  "selection", "started",
                                           "ended", "seconds",   "command"};
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
            if (json_object_get(from, kept[i]))
                json_object_set(shard, kept[i], json_object_get(from, kept[i]));
        json_array_append_new(shards, shard);
        interrupted |= json_is_true(json_object_get(from, "interrupted"));
        synthetic |= json_is_true(json_object_get(from, "synthetic"));
    }
    json_object_set_new(run, "shards", shards);
    json_object_set_new(run, "selection", joined_selection(trees, n));
    json_object_set_new(run, "interrupted", json_boolean(interrupted));
    if (json_object_get(run, "synthetic"))
        json_object_set_new(run, "synthetic", json_boolean(synthetic));
    return run;
}

static enum kg_verdict verdict_of(const json_t *cell)
{
    for (enum kg_verdict v = KG_PASS; v <= KG_ERROR; v++)
        if (strcmp(text_at(cell, "verdict"), kg_verdict_name(v)) == 0)
            return v;
    return KG_ERROR;
}

static enum kg_section_status status_of(const json_t *section)
{
    for (enum kg_section_status s = KG_SECTION_NOT_RUN; s <= KG_SECTION_FILTERED; s++)
        if (strcmp(text_at(section, "status"), kg_section_status_name(s)) == 0)
            return s;
    return KG_SECTION_ERROR;
}

/* The summary by the same rule as that of a run: just what that rule looks at is filled
   in. */
static json_t *summarise(const json_t *run, const json_t *sections, const json_t *cells)
{
    size_t n_sections = json_array_size(sections), i;
    struct kg_result result = {.interrupted =
                                   json_is_true(json_object_get(run, "interrupted")),
                               .n_sections = n_sections};
    struct kg_summary s;
    json_t *cell, *section;
    result.sections = kg_xcalloc(n_sections, sizeof *result.sections);
    json_array_foreach(sections, i, section)
    {
        struct kg_result_section *to = &result.sections[i];
        const json_t *c;
        size_t j;
        to->status = status_of(section);
        to->optional = json_is_true(json_object_get(section, "optional"));
        to->cells =
            kg_xcalloc((size_t)json_integer_value(json_object_get(section, "cells")),
                       sizeof *to->cells);
        json_array_foreach(cells, j, cell)
        {
            c = cell;
            if (strcmp(text_at(c, "section"), text_at(section, "name")) != 0)
                continue;
            struct kg_result_cell *k = &to->cells[to->n_cells++];
            k->verdict = verdict_of(c);
            k->optional = json_is_true(json_object_get(c, "optional"));
            k->selected = strcmp(text_at(c, "reason"), "filtered") != 0;
            k->interrupted = result.interrupted && k->verdict == KG_ERROR &&
                             strcmp(text_at(c, "reason"), "not-run") == 0;
        }
    }
    kg_result_summarise(&result, &s);
    for (i = 0; i < n_sections; i++)
        free(result.sections[i].cells);
    free(result.sections);
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "verdict",
                     kg_run_verdict_name(s.verdict), "pass", (json_int_t)s.pass, "fail",
                     (json_int_t)s.fail, "skip", (json_int_t)s.skip, "error",
                     (json_int_t)s.error, "missing", (json_int_t)s.missing, "left_out",
                     (json_int_t)s.left_out);
}

int kg_merge(struct kg_record *records, json_t *const *trees, size_t n, json_t **out,
             struct kg_error *error)
{
    *out = NULL;
    for (size_t i = 1; i < n; i++)
        KG_TRY(check_facts(&records[0], &records[i], error));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            KG_TRY(check_sections(&records[i], &records[j], error));
            KG_TRY(check_cells(&records[i], &records[j], error));
        }
    json_t *sections = joined_sections(trees, n), *cells = joined_cells(trees, n);
    json_t *run = joined_run(trees, n);
    count_cells(sections, cells);
    json_t *summary = summarise(run, sections, cells);
    *out =
        json_pack("{s:O,s:o,s:o,s:o,s:o}", "schema", json_object_get(trees[0], "schema"),
                  "run", run, "summary", summary, "sections", sections, "cells", cells);
    return *out ? KG_OK : kg_error_set(error, KG_E_MEMORY, "out of memory");
}
