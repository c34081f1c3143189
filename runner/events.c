#include "runner/events.h"

#include <stdio.h>
#include <string.h>

#include "runner/escape.h"

const char *kg_verdict_name(enum kg_verdict verdict)
{
    static const char *const names[] = {"?", "PASS", "FAIL", "SKIP", "ERROR"};
    return verdict <= KG_ERROR ? names[verdict] : names[0];
}

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

bool kg_reason_is_known(enum kg_verdict verdict, const char *reason)
{
    static const char *const fail[] = {"check-failed", "launch-failed", "device-fault",
                                       "crashed",      "hung",          "killed",
                                       "exited",       "protocol",      NULL};
    static const char *const skip[] = {"filtered",
                                       "artifact-missing",
                                       "tensor-missing",
                                       "kernel-missing",
                                       "device-unsupported",
                                       "not-applicable",
                                       NULL};
    static const char *const error[] = {
        "no-comparison", "oracle-degenerate", "out-of-memory", "misuse", "not-run", NULL};
    switch (verdict) {
    case KG_PASS:
        return reason[0] == '\0';
    case KG_FAIL:
        return is_one_of(reason, fail);
    case KG_SKIP:
        return is_one_of(reason, skip);
    case KG_ERROR:
        return is_one_of(reason, error);
    default:
        return false;
    }
}

/* ---- fields ---- */

enum field_type { ID, STRING, NUMBER, FLEXIBLE, BOOL, OBJECT, ARRAY, COUNT, ANY };

struct field {
    const char *key;
    enum field_type type;
    bool required;
};

/* "nan", "inf" and "-inf" stand for the numbers that JSON lacks. */
static bool is_number(const json_t *value)
{
    static const char *const words[] = {"nan", "inf", "-inf", NULL};
    return json_is_number(value) ||
           (json_is_string(value) && is_one_of(json_string_value(value), words));
}

static bool is_id(const json_t *value)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-+:=,";
    const char *text = json_string_value(value);
    size_t n = text ? strlen(text) : 0;
    return n > 0 && n <= KG_EVENT_ID_MAX && strspn(text, allowed) == n;
}

static bool has_type(const json_t *value, enum field_type type)
{
    switch (type) {
    case ID:
        return is_id(value);
    case STRING:
        return json_is_string(value);
    case NUMBER:
        return json_is_number(value);
    case FLEXIBLE:
        return is_number(value);
    case BOOL:
        return json_is_boolean(value);
    case OBJECT:
        return json_is_object(value);
    case ARRAY:
        return json_is_array(value);
    case COUNT:
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case ANY:
        return true;
    }
    return false;
}

static bool is_shallow(const json_t *value, int depth)
{
    if (depth == 0)
        return !json_is_object(value) && !json_is_array(value);
    if (json_is_object(value)) {
        const char *key;
        json_t *item;
        json_object_foreach((json_t *)value, key, item)
        {
            if (!is_shallow(item, depth - 1))
                return false;
        }
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!is_shallow(json_array_get(value, i), depth - 1))
            return false;
    return true;
}

static bool fault_in(char *fault, size_t size, const char *what, const char *key,
                     const char *problem)
{
    snprintf(fault, size, "%s event: %s %s", what, key, problem);
    return false;
}

/* Checks each field, and drops keys that are not in the table. null is absence. */
static bool check_fields(json_t *object, const struct field *fields, const char *what,
                         char *fault, size_t size)
{
    json_t *kept = json_object();
    for (const struct field *f = fields; f->key; f++) {
        json_t *value = json_object_get(object, f->key);
        if (value == NULL || json_is_null(value)) {
            if (f->required) {
                json_decref(kept);
                return fault_in(fault, size, what, f->key, "is missing");
            }
            continue;
        }
        if (!has_type(value, f->type)) {
            json_decref(kept);
            return fault_in(fault, size, what, f->key, "is not what it should be");
        }
        json_object_set(kept, f->key, value);
    }
    json_object_clear(object);
    json_object_update(object, kept);
    json_decref(kept);
    return true;
}

/* ---- kinds ---- */

static bool check_plan(struct kg_event *event, char *fault, size_t size)
{
    static const struct field cell_fields[] = {
        {"id",       ID,     true },
        {"role",     STRING, false},
        {"ordered",  BOOL,   false},
        {"optional", BOOL,   false},
        {NULL,       ANY,    false}
    };
    event->cells = json_object_get(event->json, "cells");
    for (size_t i = 0; i < json_array_size(event->cells); i++) {
        json_t *cell = json_array_get(event->cells, i);
        if (!json_is_object(cell))
            return fault_in(fault, size, "plan", "a cell", "is not an object");
        if (!check_fields(cell, cell_fields, "plan", fault, size))
            return false;
    }
    json_t *last = json_object_get(event->json, "last");
    event->last = last == NULL || json_is_true(last);
    return true;
}

static bool check_check(struct kg_event *event, char *fault, size_t size)
{
    static const char *const classes[] = {"exact", "bound", "band", "info", NULL};
    static const struct field worst_fields[] = {
        {"index", ANY, false},
        {"got",   ANY, false},
        {"want",  ANY, false},
        {NULL,    ANY, false}
    };
    if (!is_one_of(json_string_value(json_object_get(event->json, "class")), classes))
        return fault_in(fault, size, "check", "class", "is unknown");
    json_t *worst = json_object_get(event->json, "worst");
    if (worst && (!check_fields(worst, worst_fields, "check", fault, size) ||
                  !is_shallow(worst, 1)))
        return fault_in(fault, size, "check", "worst", "is not what it should be");
    return true;
}

/* The code goes to the terminal as it is. */
static bool check_error(struct kg_event *event, char *fault, size_t size)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz-";
    const char *code = json_string_value(json_object_get(event->json, "code"));
    size_t n = strlen(code);
    if (n == 0 || n > 40 || strspn(code, allowed) != n)
        return fault_in(fault, size, "error", "code", "is no code");
    event->reason = code;
    event->text = json_string_value(json_object_get(event->json, "text"));
    return true;
}

static bool is_hex_digest(const char *text)
{
    return text && strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static bool check_verdict(struct kg_event *event, const char *what, char *fault,
                          size_t size)
{
    const char *verdict = json_string_value(json_object_get(event->json, "verdict"));
    event->verdict = KG_NO_VERDICT;
    for (int v = KG_PASS; v <= KG_ERROR; v++)
        if (strcmp(verdict, kg_verdict_name((enum kg_verdict)v)) == 0)
            event->verdict = (enum kg_verdict)v;
    if (event->verdict == KG_NO_VERDICT)
        return fault_in(fault, size, what, "verdict", "is unknown");
    const char *reason = json_string_value(json_object_get(event->json, "reason"));
    event->reason = reason ? reason : "";
    if (!kg_reason_is_known(event->verdict, event->reason))
        return fault_in(fault, size, what, "reason", "does not belong to the verdict");
    const char *detail = json_string_value(json_object_get(event->json, "detail"));
    event->text = detail ? detail : "";
    return true;
}

static bool check_against(struct kg_event *event, char *fault, size_t size)
{
    static const char *const counts[] = {"compared", "equal", "unmatched"};
    const json_t *outputs = json_object_get(event->json, "outputs");
    const json_t *failed = json_object_get(event->json, "failed_checks");
    for (size_t i = 0; outputs && i < sizeof counts / sizeof counts[0]; i++)
        if (!has_type(json_object_get(outputs, counts[i]), COUNT))
            return fault_in(fault, size, "against", "outputs", "lacks a count");
    for (size_t i = 0; i < json_array_size(failed); i++)
        if (!json_is_string(json_array_get(failed, i)))
            return fault_in(fault, size, "against", "failed_checks",
                            "holds something else");
    return check_verdict(event, "against", fault, size);
}

static bool check_done(struct kg_event *event, char *fault, size_t size)
{
    if (!check_verdict(event, "done", fault, size))
        return false;
    event->seconds = json_number_value(json_object_get(event->json, "seconds"));

    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(event->json, "digest"), key, value)
    {
        if (!is_hex_digest(json_string_value(value)))
            return fault_in(fault, size, "done", "digest", "is not 32 hex digits");
    }
    json_object_foreach(json_object_get(event->json, "params"), key, value)
    {
        if (json_is_object(value) || json_is_array(value))
            return fault_in(fault, size, "done", "params", "holds something nested");
    }
    json_t *notes = json_object_get(event->json, "notes");
    for (size_t i = 0; i < json_array_size(notes); i++)
        if (!json_is_string(json_array_get(notes, i)))
            return fault_in(fault, size, "done", "notes", "holds something else");
    return true;
}

static const struct kind {
    const char *name;
    enum kg_event_kind kind;
    bool (*check)(struct kg_event *event, char *fault, size_t size);
    struct field fields[20];
} kinds[] = {
    {"hello",   KG_EVENT_HELLO, NULL,          {{"protocol", COUNT, true}}                    },
    {"device",
     KG_EVENT_DEVICE,           NULL,
     {{"name", STRING, true},
      {"cc_major", COUNT, false},
      {"cc_minor", COUNT, false},
      {"sm_count", COUNT, false},
      {"mem_total", COUNT, false},
      {"mem_free", COUNT, false},
      {"l2_bytes", COUNT, false},
      {"smem_per_block", COUNT, false},
      {"driver", STRING, false},
      {"runtime", STRING, false},
      {"uuid", STRING, false},
      {"pci_bus_id", STRING, false},
      {"provider", OBJECT, true},
      {"against", OBJECT, false},
      {"health", OBJECT, false},
      {"bench", OBJECT, false}}                                                               },
    {"plan",    KG_EVENT_PLAN,  check_plan,    {{"cells", ARRAY, true}, {"last", BOOL, false}}},
    {"error",
     KG_EVENT_ERROR,            check_error,
     {{"code", STRING, true}, {"text", STRING, true}}                                         },
    {"begin",   KG_EVENT_BEGIN, NULL,          {{"id", ID, true}}                             },
    {"check",
     KG_EVENT_CHECK,            check_check,
     {{"id", ID, true},
      {"name", STRING, true},
      {"class", STRING, true},
      {"metric", STRING, false},
      {"value", FLEXIBLE, false},
      {"bound", FLEXIBLE, false},
      {"margin", FLEXIBLE, false},
      {"ok", BOOL, true},
      {"worst", OBJECT, false},
      {"bad", COUNT, false},
      {"count", COUNT, false},
      {"text", STRING, false},
      {"detail", STRING, false}}                                                              },
    {"done",
     KG_EVENT_DONE,             check_done,
     {{"id", ID, true},
      {"verdict", STRING, true},
      {"reason", STRING, false},
      {"detail", STRING, false},
      {"seconds", NUMBER, false},
      {"digest", OBJECT, false},
      {"params", OBJECT, false},
      {"notes", ARRAY, false},
      {"times", OBJECT, false},
      {"timings", OBJECT, false},
      {"health", OBJECT, false}}                                                              },
    {"bye",     KG_EVENT_BYE,   NULL,          {{"health", OBJECT, false}}                    },
    {"again",   KG_EVENT_AGAIN, NULL,          {{"id", ID, true}}                             },
    {"against",
     KG_EVENT_AGAINST,          check_against,
     {{"id", ID, true},
      {"verdict", STRING, true},
      {"reason", STRING, false},
      {"detail", STRING, false},
      {"failed_checks", ARRAY, false},
      {"outputs", OBJECT, false},
      {"same_inputs", BOOL, false},
      {"pairs", OBJECT, false},
      {"seconds", NUMBER, false}}                                                             },
};

bool kg_event_parse(const char *line, size_t length, struct kg_event *event, char *fault,
                    size_t fault_size)
{
    memset(event, 0, sizeof *event);
    json_error_t why;
    json_t *json = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(json)) {
        char shown[64];
        kg_escape(line, length, shown, sizeof shown);
        snprintf(fault, fault_size, "not a JSON object: \"%s\"%s", shown,
                 strlen(shown) + 8 < length ? "..." : "");
        json_decref(json);
        return false;
    }
    event->json = json;
    const char *name = json_string_value(json_object_get(json, "ev"));
    const struct kind *kind = NULL;
    for (size_t i = 0; name && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(name, kinds[i].name) == 0)
            kind = &kinds[i];
    bool ok = kind != NULL;
    if (!ok)
        snprintf(fault, fault_size, "an event that is not known");
    ok = ok && check_fields(json, kind->fields, kind->name, fault, fault_size);
    if (ok) {
        event->kind = kind->kind;
        event->id = json_string_value(json_object_get(json, "id"));
        if (kind->kind == KG_EVENT_HELLO &&
            json_integer_value(json_object_get(json, "protocol")) != KG_EVENT_PROTOCOL)
            ok = fault_in(fault, fault_size, "hello", "protocol", "is another one");
    }
    if (ok && !is_shallow(json, KG_EVENT_DEPTH_MAX))
        ok = fault_in(fault, fault_size, kind->name, "an object", "is nested too deeply");
    ok = ok && (kind->check == NULL || kind->check(event, fault, fault_size));
    if (!ok)
        kg_event_clear(event);
    return ok;
}

void kg_event_clear(struct kg_event *event)
{
    json_decref(event->json);
    memset(event, 0, sizeof *event);
}
