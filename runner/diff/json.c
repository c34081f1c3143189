#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/print.h"
#include "runner/escape.h"

/* NULL becomes null, a NaN becomes null, infinities their strings, as in a result. */
static json_t *text(const char *s)
{
    if (!s)
        return json_null();
    char *clean = kg_utf8_dup(s, strlen(s));
    json_t *json = json_string(clean);
    free(clean);
    return json;
}

static json_t *real(double v)
{
    if (isnan(v))
        return json_null();
    return isinf(v) ? json_string(v > 0 ? "inf" : "-inf") : json_real(v);
}

static json_t *cause_list(unsigned causes)
{
    json_t *list = json_array();
    for (unsigned bit = 1; bit && bit <= causes; bit <<= 1)
        if (causes & bit)
            json_array_append_new(list, json_string(kg_cause_name(bit)));
    return list;
}

static json_t *side(struct kg_record *r)
{
    json_t *json = json_object();
    json_object_set_new(json, "path", text(r->path));
    json_object_set_new(json, "verdict", text(r->verdict));
    json_object_set_new(json, "commit", text(kg_fact(r, KG_FACT_COMMIT)));
    json_object_set_new(json, "started", text(kg_fact(r, KG_FACT_STARTED)));
    json_object_set_new(json, "provider", text(kg_fact(r, KG_FACT_PROVIDER)));
    json_object_set_new(json, "device", text(kg_fact(r, KG_FACT_DEVICE)));
    json_object_set_new(json, "pass", json_integer((json_int_t)r->counts[KG_PASS]));
    json_object_set_new(json, "fail", json_integer((json_int_t)r->counts[KG_FAIL]));
    json_object_set_new(json, "skip", json_integer((json_int_t)r->counts[KG_SKIP]));
    json_object_set_new(json, "error", json_integer((json_int_t)r->counts[KG_ERROR]));
    return json;
}

static json_t *verdict(const struct kg_record_cell *c)
{
    return c ? json_string(kg_verdict_name(c->verdict)) : json_null();
}

static json_t *change(const struct kg_change *c)
{
    json_t *json = json_object();
    const struct kg_record_cell *cell = c->head ? c->head : c->base;
    json_object_set_new(json, "class", json_string(kg_change_name(c->class)));
    json_object_set_new(json, "what", text(c->what));
    json_object_set_new(json, "detail", text(c->detail));
    if (!cell)
        return json;
    json_object_set_new(json, "causes", cause_list(c->causes));
    json_object_set_new(json, "cell", text(cell->id));
    json_object_set_new(json, "section", text(cell->section));
    json_object_set_new(json, "base_verdict", verdict(c->base));
    json_object_set_new(json, "head_verdict", verdict(c->head));
    if (!isnan(c->base_value))
        json_object_set_new(json, "base_value", real(c->base_value));
    if (!isnan(c->head_value))
        json_object_set_new(json, "head_value", real(c->head_value));
    if (!isnan(c->p)) {
        json_object_set_new(json, "p", real(c->p));
        json_object_set_new(json, "cliffs_delta", real(c->effect));
    }
    if (c->class == KG_CHANGE_BROKEN)
        json_object_set_new(json, "repro", text(c->head->repro));
    return json;
}

static json_t *refusals(const struct kg_diff *d)
{
    json_t *json = json_object();
    for (enum kg_refusal r = 0; r < KG_N_REFUSALS; r++)
        if (d->n_times_refused[r])
            json_object_set_new(json, kg_refusal_name(r),
                                json_integer((json_int_t)d->n_times_refused[r]));
    return json;
}

void kg_diff_print_json(FILE *out, const struct kg_diff *d, const struct kg_print *print)
{
    json_t *counts = json_object(), *worse = json_array(), *changes = json_array();
    for (enum kg_change_class c = 0; c < KG_N_CHANGES; c++) {
        json_object_set_new(counts, kg_change_name(c),
                            json_integer((json_int_t)d->counts[c]));
        if (print->fail_on >> c & 1)
            json_array_append_new(worse, json_string(kg_change_name(c)));
    }
    for (size_t i = 0; i < d->n_changes; i++)
        json_array_append_new(changes, change(&d->changes[i]));
    json_t *root = json_pack(
        "{s:{s:s,s:i,s:i},s:o,s:o,s:o,s:b,s:o,s:I,s:I,s:o,s:o,s:{s:I,s:o,s:o}}", "schema",
        "name", "kgate.diff", "major", 1, "minor", 0, "base", side(d->base), "head",
        side(d->head), "data_refused", text(d->data_refused), "worse",
        kg_diff_worse(d, print->fail_on) > 0, "fail_on", worse, "cells_in_both",
        (json_int_t)d->n_common, "cells_unchanged", (json_int_t)d->n_same, "counts",
        counts, "changes", changes, "times", "arms_compared", (json_int_t)d->n_timed,
        "arms_refused", refusals(d), "refused", text(d->times_refused));
    if (!root)
        abort();
    json_dumpf(root, out, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    putc('\n', out);
    json_decref(root);
}
