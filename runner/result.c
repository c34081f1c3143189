#include "runner/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/escape.h"
#include "runner/json_text.h"

static void cell_clear(struct kg_result_cell *cell)
{
    free(cell->id);
    free(cell->role);
    free(cell->reason);
    free(cell->detail);
    free(cell->signal_name);
    free(cell->log_tail);
    free(cell->repro);
    json_decref(cell->checks);
    json_decref(cell->done);
    json_decref(cell->against);
}

void kg_result_clear(struct kg_result *result)
{
    for (size_t s = 0; s < result->n_sections; s++) {
        struct kg_result_section *section = &result->sections[s];
        for (size_t i = 0; i < section->n_cells; i++)
            cell_clear(&section->cells[i]);
        free(section->cells);
        free(section->name);
        free(section->reason);
        free(section->detail);
        free(section->log_tail);
        json_decref(section->artifacts);
        json_decref(section->limits);
        json_decref(section->plugin);
        json_decref(section->device);
        json_decref(section->health);
    }
    free(result->sections);
    json_decref(result->run);
    memset(result, 0, sizeof *result);
}

void kg_cell_set(struct kg_result_cell *cell, enum kg_verdict verdict, const char *reason,
                 const char *detail)
{
    char *new_detail = kg_xstrdup(detail ? detail : "");
    free(cell->reason);
    free(cell->detail);
    cell->verdict = verdict;
    cell->reason = kg_xstrdup(reason ? reason : "");
    cell->detail = new_detail;
}

/* ---- summary ---- */

void kg_result_summarise(const struct kg_result *result, struct kg_summary *summary)
{
    size_t not_run_by_user = 0;
    memset(summary, 0, sizeof *summary);
    for (size_t s = 0; s < result->n_sections; s++) {
        const struct kg_result_section *section = &result->sections[s];
        bool has_error = false;
        for (size_t i = 0; i < section->n_cells; i++) {
            const struct kg_result_cell *cell = &section->cells[i];
            summary->pass += cell->verdict == KG_PASS;
            summary->fail += cell->verdict == KG_FAIL;
            summary->skip += cell->verdict == KG_SKIP;
            summary->error += cell->verdict == KG_ERROR;
            has_error |= cell->verdict == KG_ERROR;
            not_run_by_user += cell->interrupted;
            summary->left_out += !cell->selected;
            summary->missing += cell->selected && !cell->optional && !section->optional &&
                                cell->verdict != KG_PASS;
        }
        summary->error += section->status == KG_SECTION_ERROR && !has_error;
        summary->left_out += section->status == KG_SECTION_FILTERED;
        summary->missing += section->status == KG_SECTION_NOT_RUN && !section->optional;
    }
    if (summary->fail > 0 || summary->error > not_run_by_user)
        summary->verdict = KG_RUN_RED;
    else if (result->interrupted)
        summary->verdict = KG_RUN_INCOMPLETE;
    else if (summary->pass == 0)
        summary->verdict = KG_RUN_ERROR;
    else
        summary->verdict = summary->missing > 0 ? KG_RUN_INCOMPLETE : KG_RUN_GREEN;
}

const char *kg_run_verdict_name(enum kg_run_verdict verdict)
{
    static const char *const names[] = {"GREEN", "INCOMPLETE", "RED", "ERROR"};
    return names[verdict];
}

const char *kg_section_status_name(enum kg_section_status status)
{
    static const char *const names[] = {"not-run", "ok", "error", "filtered"};
    return names[status];
}

int kg_result_exit_status(const struct kg_result *result,
                          const struct kg_summary *summary, bool require_complete)
{
    if (result->interrupted)
        return 130;
    if (summary->verdict == KG_RUN_RED)
        return 1;
    if (summary->verdict == KG_RUN_ERROR)
        return 2;
    if (require_complete && (summary->missing > 0 || summary->left_out > 0))
        return 3;
    return 0;
}

const char *kg_cell_fails_on(const struct kg_result_cell *cell)
{
    static const char *const names[] = {"neither", "new", "old", "both"};
    const char *verdict = json_string_value(json_object_get(cell->against, "verdict"));
    if (verdict == NULL)
        return NULL;
    bool is_new = cell->verdict == KG_FAIL || cell->verdict == KG_ERROR;
    bool is_old = strcmp(verdict, "FAIL") == 0 || strcmp(verdict, "ERROR") == 0;
    return names[is_new + 2 * is_old];
}

/* ---- worst check ---- */

static double number(const json_t *value)
{
    if (json_is_number(value))
        return json_number_value(value);
    return json_is_string(value) ? (double)NAN : 0.0;
}

const json_t *kg_cell_worst_check(const struct kg_result_cell *cell)
{
    const json_t *worst = NULL;
    double worst_rank = -1.0;
    for (size_t i = 0; i < json_array_size(cell->checks); i++) {
        const json_t *check = json_array_get(cell->checks, i);
        const char *class_name = json_string_value(json_object_get(check, "class"));
        if (class_name && strcmp(class_name, "info") == 0)
            continue;
        double rank = number(json_object_get(check, "margin"));
        rank = isfinite(rank) ? rank : (double)INFINITY;
        /* A check that did not hold comes before any that did. */
        if (!json_is_true(json_object_get(check, "ok")))
            rank += 1e300;
        if (worst == NULL || rank > worst_rank) {
            worst = check;
            worst_rank = rank;
        }
    }
    return worst;
}

/* ---- JSON ---- */

static json_t *or_empty(json_t *value)
{
    return value ? json_incref(value) : json_object();
}

static json_t *cell_json(const struct kg_result_section *section,
                         const struct kg_result_cell *cell, bool keep_times)
{
    static const char *const optional_keys[] = {"timings", "health", "times"};
    json_t *json = json_object();
    kg_json_set_text(json, "id", cell->id);
    kg_json_set_text(json, "section", section->name);
    kg_json_set_text(json, "verdict", kg_verdict_name(cell->verdict));
    kg_json_set_text(json, "reason", cell->reason ? cell->reason : "");
    kg_json_set_text(json, "detail", cell->detail ? cell->detail : "");
    kg_json_set_text(json, "role", cell->role);
    kg_json_set_text(json, "signal", cell->signal_name);
    if (cell->log_tail && cell->log_tail[0] != '\0')
        kg_json_set_text(json, "log_tail", cell->log_tail);
    kg_json_set_text(json, "repro", cell->repro ? cell->repro : "");
    kg_json_set_text(json, "determinism", cell->ordered ? "ordered" : "free");
    json_object_set_new(json, "optional", json_boolean(cell->optional));
    json_object_set_new(json, "seconds", json_real(cell->seconds));
    json_object_set_new(json, "checks",
                        cell->checks ? json_incref(cell->checks) : json_array());
    json_object_set_new(json, "digest", or_empty(json_object_get(cell->done, "digest")));
    json_object_set_new(json, "params", or_empty(json_object_get(cell->done, "params")));
    json_t *notes = json_object_get(cell->done, "notes");
    json_object_set_new(json, "notes", notes ? json_incref(notes) : json_array());
    size_t n_keys = sizeof optional_keys / sizeof optional_keys[0] - !keep_times;
    for (size_t i = 0; i < n_keys; i++) {
        json_t *value = json_object_get(cell->done, optional_keys[i]);
        if (value)
            json_object_set(json, optional_keys[i], value);
    }
    if (cell->against) {
        json_t *against = json_copy(cell->against);
        kg_json_set_text(against, "fails_on", kg_cell_fails_on(cell));
        json_object_set_new(json, "against", against);
    }
    return json;
}

static json_t *section_json(const struct kg_result_section *section)
{
    json_t *json = json_object();
    kg_json_set_text(json, "name", section->name);
    kg_json_set_text(json, "status", kg_section_status_name(section->status));
    kg_json_set_text(json, "reason", section->reason ? section->reason : "");
    kg_json_set_text(json, "detail", section->detail ? section->detail : "");
    if (section->log_tail && section->log_tail[0] != '\0')
        kg_json_set_text(json, "log_tail", section->log_tail);
    json_object_set_new(json, "optional", json_boolean(section->optional));
    json_object_set_new(json, "cells", json_integer((json_int_t)section->n_cells));
    json_object_set_new(json, "restarts", json_integer(section->restarts));
    json_object_set_new(json, "seconds", json_real(section->seconds));
    json_object_set_new(json, "artifacts", or_empty(section->artifacts));
    json_object_set_new(json, "plugin", or_empty(section->plugin));
    json_object_set_new(json, "limits", or_empty(section->limits));
    return json;
}

json_t *kg_result_json(const struct kg_result *result)
{
    struct kg_summary summary;
    kg_result_summarise(result, &summary);
    json_t *sections = json_array(), *cells = json_array();
    for (size_t s = 0; s < result->n_sections; s++) {
        const struct kg_result_section *section = &result->sections[s];
        json_array_append_new(sections, section_json(section));
        for (size_t i = 0; i < section->n_cells; i++)
            json_array_append_new(
                cells, cell_json(section, &section->cells[i], result->keep_times));
    }
    json_t *run = json_deep_copy(result->run ? result->run : json_null());
    if (!json_is_object(run))
        run = json_object();
    json_t *health = json_object();
    for (size_t s = 0; s < result->n_sections; s++)
        if (result->sections[s].health)
            json_object_set(health, result->sections[s].name, result->sections[s].health);
    json_object_set_new(run, "health", health);
    json_object_set_new(run, "interrupted", json_boolean(result->interrupted));
    return json_pack("{s:{s:s,s:i,s:i},s:o,s:{s:s,s:I,s:I,s:I,s:I,s:I,s:I},s:o,s:o}",
                     "schema", "name", "kgate.result", "major", KG_RESULT_MAJOR, "minor",
                     KG_RESULT_MINOR, "run", run, "summary", "verdict",
                     kg_run_verdict_name(summary.verdict), "pass",
                     (json_int_t)summary.pass, "fail", (json_int_t)summary.fail, "skip",
                     (json_int_t)summary.skip, "error", (json_int_t)summary.error,
                     "missing", (json_int_t)summary.missing, "left_out",
                     (json_int_t)summary.left_out, "sections", sections, "cells", cells);
}
