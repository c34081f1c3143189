#include "runner/diff/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/escape.h"

#define AT(type, member) offsetof(struct kg_record_##type, member)

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

static void read_worst(struct kg_scan *s, void *check, void *context)
{
    static const struct kg_scan_field fields[] = {
        {"index",      KG_SCAN_REAL, AT(check, worst_index),            NULL},
        {"got",            KG_SCAN_REAL,                    AT(check,     worst_got), NULL},
        {"want",        KG_SCAN_REAL,                    AT(check,                       worst_want),                           NULL},
        {NULL, KG_SCAN_BY,         0,NULL},
    };
    if (!kg_scan_null(s))
        kg_scan_fields(s, fields, check, context);
}

static void read_check(struct kg_scan *s, struct kg_record_check *c)
{
    static const struct kg_scan_field fields[] = {
        {"name",        KG_SCAN_STRING, AT(check, name),                      NULL},
        {"class",             KG_SCAN_STRING,                     AT(check,   class_name), NULL},
        {"metric",         KG_SCAN_STRING_OR_NULL,                       AT(check,                        metric),                    NULL},
        {"value",      KG_SCAN_REAL,                AT(check, value),  NULL},
        {"bound",     KG_SCAN_REAL,AT(check,  bound),                           NULL},
        {"margin",KG_SCAN_REAL,      AT(check,       margin),   NULL},
        {"spread",      KG_SCAN_REAL,            AT(check,       spread),                    NULL},
        {"worst",             KG_SCAN_BY,                    0,           read_worst                 },
        {NULL,         KG_SCAN_BY,                       0,                         NULL         },
    };
    *c = (struct kg_record_check){.value = NAN,
                                  .bound = NAN,
                                  .margin = NAN,
                                  .spread = NAN,
                                  .worst_index = NAN,
                                  .worst_got = NAN,
                                  .worst_want = NAN};
    kg_scan_fields(s, fields, c, NULL);
    if (!s->error->status && (!c->name || !c->class_name))
        kg_scan_fail(s, "a check without a name or class");
}

static void read_checks(struct kg_scan *s, void *cell, void *record)
{
    static struct kg_record_check some[MAX_CHECKS];
    struct kg_record_cell *c = cell;
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
    c->checks = kg_record_keep(record, some, n * sizeof *some);
}

static void read_digests(struct kg_scan *s, void *cell, void *record)
{
    static struct kg_record_digest some[MAX_DIGESTS];
    struct kg_record_cell *c = cell;
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
    c->digests = kg_record_keep(record, some, n * sizeof *some);
}

static void read_verdict(struct kg_scan *s, void *cell, void *record)
{
    struct kg_record_cell *c = cell;
    const char *word = NULL;
    (void)record;
    if (!kg_scan_string(s, &word))
        return;
    for (enum kg_verdict v = KG_PASS; v <= KG_ERROR; v++)
        if (strcmp(word, kg_verdict_name(v)) == 0) {
            c->verdict = v;
            return;
        }
    kg_scan_fail(s, "verdict \"%.40s\" is none of PASS, FAIL, SKIP, ERROR", word);
}

static void read_determinism(struct kg_scan *s, void *cell, void *record)
{
    const char *word = NULL;
    (void)record;
    kg_scan_string_or_null(s, &word);
    ((struct kg_record_cell *)cell)->ordered = word && strcmp(word, "ordered") == 0;
}

static void read_params(struct kg_scan *s, void *cell, void *record)
{
    struct kg_record_cell *c = cell;
    (void)record;
    kg_scan_skip(s, &c->params, &c->params_size);
}

/* What is there of another kind is stepped over. */
static void read_object(struct kg_scan *s, const struct kg_scan_field *fields, void *into)
{
    if (kg_scan_peek(s) == KG_JSON_OBJECT)
        kg_scan_fields(s, fields, into, NULL);
    else
        kg_scan_skip(s, NULL, NULL);
}

static void read_outputs(struct kg_scan *s, void *cell, void *record)
{
    static const struct kg_scan_field fields[] = {
        {"compared", KG_SCAN_REAL, AT(cell, outputs),              NULL},
        {"equal",          KG_SCAN_REAL,                AT(cell,  equal_outputs), NULL},
        {NULL,      KG_SCAN_BY,                  0,                      NULL                           },
    };
    (void)record;
    read_object(s, fields, cell);
}

static void read_against(struct kg_scan *s, void *cell, void *record)
{
    static const struct kg_scan_field fields[] = {
        {"fails_on",    KG_SCAN_STRING_OR_NULL, AT(cell, fails_on),                          NULL},
        {"detail",             KG_SCAN_STRING_OR_NULL,                            AT(cell, other_detail), NULL},
        {"outputs",         KG_SCAN_BY,                               0,                              read_outputs                                             },
        {NULL, KG_SCAN_BY,                       0,NULL},
    };
    (void)record;
    read_object(s, fields, cell);
}

static void read_cell(struct kg_scan *s, struct kg_record *r, struct kg_record_cell *c)
{
    static const struct kg_scan_field fields[] = {
        {"id",                    KG_SCAN_STRING,         AT(cell,                id),NULL},
        {"section",                       KG_SCAN_STRING,                                     AT(cell,                       section),NULL},
        {"verdict",                   KG_SCAN_BY,                                         0,                                                       read_verdict                                               },
        {"reason",           KG_SCAN_STRING_OR_NULL,                                 AT(cell,reason),NULL},
        {"detail",                KG_SCAN_STRING_OR_NULL,                                  AT(cell,                                                               detail),                                                                                                                                              NULL},
        {"repro",                KG_SCAN_STRING_OR_NULL,AT(cell,repro),NULL},
        {"role",KG_SCAN_STRING_OR_NULL,    AT(cell,                                                                   role),                                                                                                                                                                                                                                                           NULL},
        {"determinism",                  KG_SCAN_BY,                                 0,                                             read_determinism},
        {"log_tail",                       KG_SCAN_STRING_OR_NULL,                                 AT(cell,                            log_tail),NULL},
        {"optional",                       KG_SCAN_BOOL,                                    AT(cell,              optional),  NULL},
        {"seconds",                   KG_SCAN_REAL,                                         AT(cell,                                                      seconds),                          NULL},
        {"checks",              KG_SCAN_BY,                                0,                                         read_checks},
        {"digest",                KG_SCAN_BY,0,read_digests},
        {"params",KG_SCAN_BY,0,read_params},
        {"against",KG_SCAN_BY,                              0,                                                                                      read_against                                                                                                                                                            },
        {"timings",              KG_SCAN_BY,                                              0,                                                                                                 kg_record_read_timings                                                                                  },
        {NULL,                KG_SCAN_BY,        0,NULL},
    };
    *c = (struct kg_record_cell){.seconds = NAN, .outputs = NAN, .equal_outputs = NAN};
    kg_scan_fields(s, fields, c, r);
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
static void read_plugin(struct kg_scan *s, void *section, void *context)
{
    static const struct kg_scan_field fields[] = {
        {"digest", KG_SCAN_STRING_OR_NULL, AT(section, digest),  NULL},
        {NULL,        KG_SCAN_BY,                           0,                    NULL},
    };
    (void)context;
    read_object(s, fields, section);
}

static void read_artifacts(struct kg_scan *s, void *section, void *context)
{
    struct kg_record_section *c = section;
    (void)context;
    kg_scan_skip(s, &c->artifacts, &c->artifacts_size);
}

static void read_section(struct kg_scan *s, struct kg_record_section *c)
{
    static const struct kg_scan_field fields[] = {
        {"name",        KG_SCAN_STRING,        AT(section,         name),                       NULL},
        {"status",             KG_SCAN_STRING_OR_NULL,                           AT(section,           status),  NULL},
        {"reason",         KG_SCAN_STRING_OR_NULL,                              AT(section,                                         reason),                                     NULL},
        {"detail",      KG_SCAN_STRING_OR_NULL,                       AT(section, detail),NULL},
        {"seconds",   KG_SCAN_REAL,AT(section,         seconds),                                                    NULL},
        {"plugin",KG_SCAN_BY,                0,                  read_plugin},
        {"artifacts",      KG_SCAN_BY,                   0,                     read_artifacts                   },
        {"log_tail",   KG_SCAN_STRING_OR_NULL,         AT(section,        log_tail), NULL},
        {NULL,    KG_SCAN_BY, 0, NULL           },
    };
    *c = (struct kg_record_section){.seconds = NAN};
    kg_scan_fields(s, fields, c, NULL);
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
