#include "runner/diff/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/escape.h"

enum { MAX_CHECKS = 4096, MAX_DIGESTS = 1024 };

void *kg_record_keep(struct kg_record *r, const void *from, size_t bytes)
{
    if (bytes == 0)
        return NULL;
    void *to = kg_arena_alloc(&r->arena, bytes);
    if (!to)
        abort(); /* as kg_xrealloc: without memory kgate cannot go on */
    return memcpy(to, from, bytes);
}

/* Room for one more in an array that doubles. */
static void *grow(void *array, size_t n, size_t bytes)
{
    if (n & (n - 1))
        return array;
    return kg_xrealloc(array, (n ? 2 * n : 1) * bytes);
}

static bool is(const char *key, const char *name)
{
    return strcmp(key, name) == 0;
}

static void read_worst(struct kg_scan *s, struct kg_record_check *c)
{
    const char *key;
    if (kg_scan_peek(s) == KG_JSON_NULL) {
        kg_scan_skip(s, NULL, NULL);
        return;
    }
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "index"))
            kg_scan_real(s, &c->worst_index);
        else if (is(key, "got"))
            kg_scan_real(s, &c->worst_got);
        else if (is(key, "want"))
            kg_scan_real(s, &c->worst_want);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

static void read_check(struct kg_scan *s, struct kg_record_check *c)
{
    const char *key;
    *c = (struct kg_record_check){.value = NAN,
                                  .bound = NAN,
                                  .margin = NAN,
                                  .spread = NAN,
                                  .worst_index = NAN,
                                  .worst_got = NAN,
                                  .worst_want = NAN};
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "name"))
            kg_scan_string(s, &c->name);
        else if (is(key, "class"))
            kg_scan_string(s, &c->class_name);
        else if (is(key, "metric"))
            kg_scan_string_or_null(s, &c->metric);
        else if (is(key, "value"))
            kg_scan_real(s, &c->value);
        else if (is(key, "bound"))
            kg_scan_real(s, &c->bound);
        else if (is(key, "margin"))
            kg_scan_real(s, &c->margin);
        else if (is(key, "spread"))
            kg_scan_real(s, &c->spread);
        else if (is(key, "worst"))
            read_worst(s, c);
        else
            kg_scan_skip(s, NULL, NULL);
    }
    if (!s->error->status && (!c->name || !c->class_name))
        kg_scan_fail(s, "a check without a name or class");
}

static void read_checks(struct kg_scan *s, struct kg_record *r, struct kg_record_cell *c)
{
    static struct kg_record_check some[MAX_CHECKS];
    size_t n = 0;
    if (!kg_scan_array(s))
        return;
    while (kg_scan_element(s)) {
        if (n == MAX_CHECKS) {
            kg_scan_fail(s, "more than %d checks in a cell", MAX_CHECKS);
            return;
        }
        read_check(s, &some[n++]);
    }
    c->n_checks = n;
    c->checks = kg_record_keep(r, some, n * sizeof *some);
}

static void read_digests(struct kg_scan *s, struct kg_record *r, struct kg_record_cell *c)
{
    static struct kg_record_digest some[MAX_DIGESTS];
    size_t n = 0;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &some[n].key)) {
        kg_scan_string(s, &some[n].hex);
        if (++n == MAX_DIGESTS) {
            kg_scan_fail(s, "more than %d digests in a cell", MAX_DIGESTS - 1);
            return;
        }
    }
    c->n_digests = n;
    c->digests = kg_record_keep(r, some, n * sizeof *some);
}

static void read_verdict(struct kg_scan *s, struct kg_record_cell *c)
{
    const char *word = NULL;
    if (!kg_scan_string(s, &word))
        return;
    for (enum kg_verdict v = KG_PASS; v <= KG_ERROR; v++)
        if (is(word, kg_verdict_name(v))) {
            c->verdict = v;
            return;
        }
    kg_scan_fail(s, "verdict \"%.40s\" is none of PASS, FAIL, SKIP, ERROR", word);
}

static void read_outputs(struct kg_scan *s, struct kg_record_cell *c)
{
    const char *key;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "compared"))
            kg_scan_real(s, &c->outputs);
        else if (is(key, "equal"))
            kg_scan_real(s, &c->equal_outputs);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

static void read_against(struct kg_scan *s, struct kg_record_cell *c)
{
    const char *key;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "fails_on"))
            kg_scan_string_or_null(s, &c->fails_on);
        else if (is(key, "detail"))
            kg_scan_string_or_null(s, &c->other_detail);
        else if (is(key, "outputs") && kg_scan_peek(s) == KG_JSON_OBJECT)
            read_outputs(s, c);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

static void read_cell(struct kg_scan *s, struct kg_record *r, struct kg_record_cell *c)
{
    const char *key;
    *c = (struct kg_record_cell){.seconds = NAN, .outputs = NAN, .equal_outputs = NAN};
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "id"))
            kg_scan_string(s, &c->id);
        else if (is(key, "section"))
            kg_scan_string(s, &c->section);
        else if (is(key, "verdict"))
            read_verdict(s, c);
        else if (is(key, "reason"))
            kg_scan_string_or_null(s, &c->reason);
        else if (is(key, "detail"))
            kg_scan_string_or_null(s, &c->detail);
        else if (is(key, "repro"))
            kg_scan_string_or_null(s, &c->repro);
        else if (is(key, "role"))
            kg_scan_string_or_null(s, &c->role);
        else if (is(key, "determinism")) {
            const char *word = NULL;
            kg_scan_string_or_null(s, &word);
            c->ordered = word && is(word, "ordered");
        } else if (is(key, "log_tail"))
            kg_scan_string_or_null(s, &c->log_tail);
        else if (is(key, "optional"))
            kg_scan_bool(s, &c->optional);
        else if (is(key, "seconds"))
            kg_scan_real(s, &c->seconds);
        else if (is(key, "checks"))
            read_checks(s, r, c);
        else if (is(key, "digest"))
            read_digests(s, r, c);
        else if (is(key, "params"))
            kg_scan_skip(s, &c->params, &c->params_size);
        else if (is(key, "against") && kg_scan_peek(s) == KG_JSON_OBJECT)
            read_against(s, c);
        else if (is(key, "timings"))
            kg_record_read_timings(s, r, c);
        else
            kg_scan_skip(s, NULL, NULL);
    }
    /* The writer has "" where there is nothing to say. */
    const char **texts[] = {&c->reason, &c->detail, &c->repro, &c->role, &c->log_tail};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (*texts[i] && !**texts[i])
            *texts[i] = NULL;
    if (!s->error->status && (!c->id || !c->id[0] || !c->section || !c->verdict))
        kg_scan_fail(s, "a cell without an id, section or verdict");
}

void kg_record_read_cells(struct kg_scan *s, struct kg_record *r)
{
    if (!kg_scan_array(s))
        return;
    while (kg_scan_element(s)) {
        r->cells = grow(r->cells, r->n_cells, sizeof *r->cells);
        read_cell(s, r, &r->cells[r->n_cells]);
        if (s->error->status)
            return;
        r->n_cells++;
    }
}

/* {"digest": "...", ...}: only the digest is of interest. */
static void read_plugin(struct kg_scan *s, struct kg_record_section *c)
{
    const char *key;
    if (kg_scan_peek(s) != KG_JSON_OBJECT) {
        kg_scan_skip(s, NULL, NULL);
        return;
    }
    kg_scan_object(s);
    while (kg_scan_member(s, &key)) {
        if (is(key, "digest"))
            kg_scan_string_or_null(s, &c->digest);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

static void read_section(struct kg_scan *s, struct kg_record_section *c)
{
    const char *key;
    *c = (struct kg_record_section){.seconds = NAN};
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "name"))
            kg_scan_string(s, &c->name);
        else if (is(key, "status"))
            kg_scan_string_or_null(s, &c->status);
        else if (is(key, "reason"))
            kg_scan_string_or_null(s, &c->reason);
        else if (is(key, "detail"))
            kg_scan_string_or_null(s, &c->detail);
        else if (is(key, "seconds"))
            kg_scan_real(s, &c->seconds);
        else if (is(key, "plugin"))
            read_plugin(s, c);
        else if (is(key, "artifacts"))
            kg_scan_skip(s, &c->artifacts, &c->artifacts_size);
        else if (is(key, "log_tail"))
            kg_scan_string_or_null(s, &c->log_tail);
        else
            kg_scan_skip(s, NULL, NULL);
    }
    if (!s->error->status && !c->name)
        kg_scan_fail(s, "a section without a name");
}

void kg_record_read_sections(struct kg_scan *s, struct kg_record *r)
{
    if (!kg_scan_array(s))
        return;
    while (kg_scan_element(s)) {
        r->sections = grow(r->sections, r->n_sections, sizeof *r->sections);
        read_section(s, &r->sections[r->n_sections]);
        if (s->error->status)
            return;
        r->n_sections++;
    }
}
