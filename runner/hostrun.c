#include "runner/hostrun.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner/escape.h"

#define GRACE_SECONDS 2.0   /* between SIGTERM and SIGKILL */
#define FAREWELL_SECONDS 30 /* between bye and the end: leak checkers need a while */

double kg_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- orders ---- */

static void order(struct kg_hostrun *run, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    if (text == NULL)
        return;
    size_t n = strlen(text);
    run->out = kg_xrealloc(run->out, run->out_length + n + 1);
    memcpy(run->out + run->out_length, text, n);
    run->out[run->out_length + n] = '\n';
    run->out_length += n + 1;
    free(text);
}

/* Ids that are left, in lines well below the limit of 1 MiB. */
static void order_cells(struct kg_hostrun *run)
{
    struct kg_result_section *section = run->job->section;
    json_t *ids = json_array();
    for (size_t i = run->next; i < section->n_cells; i++) {
        if (section->cells[i].selected)
            json_array_append_new(ids, json_string(section->cells[i].id));
        if (json_array_size(ids) == 1000) {
            order(run, json_pack("{s:o}", "run", ids));
            ids = json_array();
        }
    }
    if (json_array_size(ids) > 0)
        order(run, json_pack("{s:o}", "run", ids));
    else
        json_decref(ids);
    order(run, json_pack("{s:b}", "go", 1));
}

int kg_hostrun_start(struct kg_hostrun *run, struct kg_error *error)
{
    kg_child_close(&run->child);
    KG_TRY(kg_child_spawn(&run->child, error));
    if (run->in == NULL)
        run->in = kg_xrealloc(NULL, KG_EVENT_LINE_MAX);
    run->phase = KG_PHASE_HELLO;
    run->said_hello = false;
    run->n_plan_seen = 0;
    run->current = run->last_done = -1;
    run->n_begun = 0;
    run->in_length = run->out_length = run->out_at = 0;
    run->kill_at = 0;
    run->ended = KG_ENDED_ITSELF;
    run->fault[0] = run->error_code[0] = '\0';
    free(run->error_text);
    run->error_text = NULL;
    run->host_since = kg_now();
    run->log_mark = run->log.total;
    order(run, json_incref(run->job->order));
    return 0;
}

/* ---- events ---- */

static void fault(struct kg_hostrun *run, const char *text)
{
    if (run->fault[0] == '\0')
        snprintf(run->fault, sizeof run->fault, "%s", text);
    kg_hostrun_end(run, KG_ENDED_PROTOCOL);
}

static void add_cell(struct kg_hostrun *run, const json_t *json)
{
    struct kg_result_section *section = run->job->section;
    size_t n = section->n_cells;
    if ((n & (n - 1)) == 0)
        section->cells =
            kg_xrealloc(section->cells, (n ? 2 * n : 1) * sizeof *section->cells);
    struct kg_result_cell *cell = &section->cells[n];
    memset(cell, 0, sizeof *cell);
    const char *role = json_string_value(json_object_get(json, "role"));
    cell->id = kg_xstrdup(json_string_value(json_object_get(json, "id")));
    cell->role = role ? kg_xstrdup(role) : NULL;
    cell->ordered = json_is_true(json_object_get(json, "ordered"));
    cell->optional = json_is_true(json_object_get(json, "optional"));
    cell->selected = true;
    section->n_cells++;
}

/* Everything is known of the plan: what does not run gets its verdict now. */
static void plan_complete(struct kg_hostrun *run)
{
    struct kg_result_section *section = run->job->section;
    const struct kg_watcher *w = run->watcher;
    char why[256];
    kg_names_init(&run->ids, section->n_cells);
    for (size_t i = 0; i < section->n_cells; i++) {
        uint32_t index = (uint32_t)i;
        kg_names_add(&run->ids, section->cells[i].id, &index);
    }
    run->planned = true;
    for (size_t i = 0; i < section->n_cells && run->job->mode != KG_TASK_PROBE; i++) {
        struct kg_result_cell *cell = &section->cells[i];
        why[0] = '\0';
        if (w->select && !w->select(w->select_context, section, cell, why, sizeof why)) {
            cell->selected = false;
            kg_cell_set(cell, KG_SKIP, "filtered", why);
        }
    }
    if (w->planned)
        w->planned(w->context, section);
    for (size_t i = 0; i < section->n_cells; i++)
        if (!section->cells[i].selected && w->cell_done)
            w->cell_done(w->context, section, &section->cells[i]);
}

static void on_plan(struct kg_hostrun *run, const struct kg_event *event)
{
    struct kg_result_section *section = run->job->section;
    size_t n = json_array_size(event->cells);
    if (run->n_plan_seen + n > KG_EVENT_CELLS_MAX) {
        fault(run, "a plan of more than 100000 cells");
        return;
    }
    for (size_t i = 0; i < n; i++, run->n_plan_seen++) {
        json_t *json = json_array_get(event->cells, i);
        if (!run->planned) {
            add_cell(run, json);
        } else if (run->n_plan_seen >= section->n_cells ||
                   strcmp(section->cells[run->n_plan_seen].id,
                          json_string_value(json_object_get(json, "id"))) != 0) {
            fault(run, "the plan differs from the first one");
            return;
        }
    }
    if (!event->last)
        return;
    if (run->planned && run->n_plan_seen != section->n_cells) {
        fault(run, "the plan differs from the first one");
        return;
    }
    if (!run->planned) {
        struct kg_names seen;
        bool twice = false;
        kg_names_init(&seen, section->n_cells);
        for (size_t i = 0; i < section->n_cells; i++) {
            uint32_t index = (uint32_t)i;
            twice |= kg_names_add(&seen, section->cells[i].id, &index) != 0;
        }
        kg_names_free(&seen);
        if (twice) {
            fault(run, "the plan names a cell twice");
            return;
        }
        plan_complete(run);
    }
    run->phase = KG_PHASE_IDLE;
    run->host_since = kg_now();
    if (run->job->mode == KG_TASK_RUN)
        order_cells(run);
}

static void on_begin(struct kg_hostrun *run, const struct kg_event *event)
{
    struct kg_result_section *section = run->job->section;
    int64_t index = kg_names_find(&run->ids, event->id);
    while (run->next < section->n_cells && !section->cells[run->next].selected)
        run->next++;
    if (index < 0 || (size_t)index != run->next) {
        char text[300];
        snprintf(text, sizeof text, "begins %s, which is not the next cell", event->id);
        fault(run, text);
        return;
    }
    struct kg_result_cell *cell = &section->cells[index];
    run->current = (ssize_t)index;
    run->next = (size_t)index + 1;
    run->n_begun++;
    run->phase = KG_PHASE_CELL;
    run->cell_bytes = 0;
    run->cell_since = kg_now();
    run->log_mark = run->log.total;
    cell->checks = json_array();
    if (run->watcher->cell_begun)
        run->watcher->cell_begun(run->watcher->context, section, cell);
}

/* A host that was overwritten may say PASS; it must have compared something, and all its
   checks must have held. */
static const char *contradiction(const struct kg_result_cell *cell,
                                 const struct kg_event *event)
{
    size_t compared = 0, failed = 0;
    for (size_t i = 0; i < json_array_size(cell->checks); i++) {
        const json_t *check = json_array_get(cell->checks, i);
        const char *class_name = json_string_value(json_object_get(check, "class"));
        bool is_info = strcmp(class_name, "info") == 0;
        compared += !is_info;
        failed += !is_info && !json_is_true(json_object_get(check, "ok"));
    }
    if (event->verdict == KG_PASS && compared == 0)
        return "says PASS of a cell that compared nothing";
    if (event->verdict == KG_PASS && failed > 0)
        return "says PASS of a cell with a check that failed";
    return NULL;
}

static void on_done(struct kg_hostrun *run, struct kg_event *event)
{
    struct kg_result_cell *cell = &run->job->section->cells[run->current];
    const char *wrong = contradiction(cell, event);
    if (wrong) {
        fault(run, wrong);
        return;
    }
    kg_cell_set(cell, event->verdict, event->reason, event->text);
    cell->done = json_incref(event->json);
    size_t index = (size_t)run->current;
    run->last_done = run->current;
    run->current = -1;
    run->phase = KG_PHASE_IDLE;
    run->host_since = kg_now();
    run->idle_deaths = 0;
    kg_hostrun_settle(run, index);
}

void kg_hostrun_compared(struct kg_hostrun *run, json_t *against)
{
    struct kg_result_cell *cell = &run->job->section->cells[run->last_done];
    cell->against = against;
    run->phase = KG_PHASE_IDLE;
    run->host_since = kg_now();
    if (run->watcher->cell_compared)
        run->watcher->cell_compared(run->watcher->context, run->job->section, cell);
}

/* What a host told of its GPU: the first "before" and the last "after" stay. */
static void note_health(struct kg_result_section *section, const char *when,
                        const json_t *event)
{
    json_t *state = json_object_get(event, "health");
    if (state == NULL)
        return;
    if (section->health == NULL)
        section->health = json_object();
    if (strcmp(when, "after") == 0 || json_object_get(section->health, when) == NULL)
        json_object_set(section->health, when, state);
}

static void on_event(struct kg_hostrun *run, struct kg_event *event)
{
    static const char *const expected[] = {"hello",        "device",        "plan",
                                           "begin or bye", "check or done", "against",
                                           "nothing",      "nothing"};
    static const char *const names[] = {"hello", "device", "plan", "error", "begin",
                                        "check", "done",   "bye",  "again", "against"};
    struct kg_result_section *section = run->job->section;
    bool takes_plan = run->phase == KG_PHASE_PLAN ||
                      (run->phase == KG_PHASE_DEVICE && run->job->mode == KG_TASK_PLAN);
    bool is_of_cell = run->phase == KG_PHASE_CELL && event->id &&
                      strcmp(event->id, section->cells[run->current].id) == 0;
    bool is_of_last = run->last_done >= 0 && event->id &&
                      strcmp(event->id, section->cells[run->last_done].id) == 0 &&
                      section->cells[run->last_done].against == NULL;
    switch (event->kind) {
    case KG_EVENT_HELLO:
        if (run->phase != KG_PHASE_HELLO)
            break;
        run->said_hello = true;
        run->phase = KG_PHASE_DEVICE;
        return;
    case KG_EVENT_DEVICE:
        if (run->phase != KG_PHASE_DEVICE)
            break;
        if (section->device == NULL)
            section->device = json_incref(event->json);
        note_health(section, "before", event->json);
        run->phase = run->job->mode == KG_TASK_PROBE ? KG_PHASE_IDLE : KG_PHASE_PLAN;
        return;
    case KG_EVENT_PLAN:
        if (!takes_plan)
            break;
        run->phase = KG_PHASE_PLAN;
        on_plan(run, event);
        return;
    case KG_EVENT_ERROR:
        if (run->phase > KG_PHASE_IDLE)
            break;
        snprintf(run->error_code, sizeof run->error_code, "%s", event->reason);
        run->error_text = kg_xstrdup(event->text);
        run->phase = KG_PHASE_OVER;
        run->host_since = kg_now();
        return;
    case KG_EVENT_BEGIN:
        if (run->phase != KG_PHASE_IDLE || run->job->mode != KG_TASK_RUN)
            break;
        on_begin(run, event);
        return;
    case KG_EVENT_CHECK:
        if (!is_of_cell)
            break;
        if (json_array_size(section->cells[run->current].checks) >= KG_EVENT_CHECKS_MAX) {
            fault(run, "more than 4096 checks in one cell");
            return;
        }
        json_object_del(event->json, "id");
        json_array_append(section->cells[run->current].checks, event->json);
        return;
    case KG_EVENT_DONE:
        if (!is_of_cell)
            break;
        on_done(run, event);
        return;
    case KG_EVENT_AGAIN:
        if (run->phase != KG_PHASE_IDLE || !is_of_last)
            break;
        run->phase = KG_PHASE_AGAIN;
        run->cell_since = kg_now();
        run->log_mark = run->log.total;
        return;
    case KG_EVENT_AGAINST:
        if (run->phase != KG_PHASE_AGAIN || !is_of_last)
            break;
        json_object_del(event->json, "id");
        kg_hostrun_compared(run, json_incref(event->json));
        return;
    case KG_EVENT_BYE:
        if (run->phase != KG_PHASE_IDLE)
            break;
        note_health(section, "after", event->json);
        run->phase = KG_PHASE_BYE;
        run->host_since = kg_now();
        return;
    }
    char text[300];
    snprintf(text, sizeof text, "%s where %s was to come", names[event->kind],
             expected[run->phase]);
    fault(run, text);
}

void kg_hostrun_feed(struct kg_hostrun *run, const char *bytes, size_t n)
{
    /* After a fault nothing more is believed. */
    while (n > 0 && run->ended == KG_ENDED_ITSELF) {
        const char *newline = memchr(bytes, '\n', n);
        size_t piece = newline ? (size_t)(newline - bytes) : n;
        if (run->in_length + piece > KG_EVENT_LINE_MAX) {
            fault(run, "a line of more than 1 MiB");
            return;
        }
        memcpy(run->in + run->in_length, bytes, piece);
        run->in_length += piece;
        bytes += piece;
        n -= piece;
        if (newline == NULL)
            return;
        bytes++;
        n--;
        run->cell_bytes += run->in_length;
        run->section_bytes += run->in_length;
        if (((run->phase == KG_PHASE_CELL || run->phase == KG_PHASE_AGAIN) &&
             run->cell_bytes > KG_EVENT_CELL_BYTES_MAX) ||
            run->section_bytes > KG_EVENT_SECTION_BYTES_MAX) {
            fault(run, "more events than anybody wants to know");
            return;
        }
        struct kg_event event;
        char text[256];
        if (kg_event_parse(run->in, run->in_length, &event, text, sizeof text)) {
            on_event(run, &event);
            kg_event_clear(&event);
        } else {
            fault(run, text);
        }
        run->in_length = 0;
    }
}

/* ---- ending ---- */

void kg_hostrun_end(struct kg_hostrun *run, enum kg_ended why)
{
    if (run->ended != KG_ENDED_ITSELF)
        return;
    run->ended = why;
    /* A host out of memory or of its mind gets no grace. */
    bool at_once = why == KG_ENDED_MEMORY || why == KG_ENDED_PROTOCOL;
    kg_child_signal(&run->child, at_once ? SIGKILL : SIGTERM);
    run->kill_at = kg_now() + (at_once ? 0 : GRACE_SECONDS);
}

void kg_hostrun_watch(struct kg_hostrun *run, double now)
{
    const struct kg_task *job = run->job;
    if (run->kill_at > 0) {
        if (now >= run->kill_at)
            kg_child_signal(&run->child, SIGKILL);
        return;
    }
    if (now - run->started > job->section_seconds)
        kg_hostrun_end(run, KG_ENDED_SECTION_TIME);
    else if ((run->phase == KG_PHASE_CELL || run->phase == KG_PHASE_AGAIN) &&
             now - run->cell_since > job->cell_seconds)
        kg_hostrun_end(run, KG_ENDED_CELL_TIME);
    else if (run->phase >= KG_PHASE_BYE && now - run->host_since > FAREWELL_SECONDS)
        kg_hostrun_end(run, KG_ENDED_START_TIME);
    else if (run->phase == KG_PHASE_IDLE && run->n_begun > 0 &&
             now - run->host_since > job->cell_seconds)
        kg_hostrun_end(run, KG_ENDED_START_TIME);
    else if (job->memory_bytes > 0 &&
             kg_child_memory(&run->child) > (int64_t)job->memory_bytes)
        kg_hostrun_end(run, KG_ENDED_MEMORY);
}

void kg_hostrun_settle(struct kg_hostrun *run, size_t index)
{
    struct kg_result_cell *cell = &run->job->section->cells[index];
    cell->seconds = cell->done ? json_number_value(json_object_get(cell->done, "seconds"))
                               : kg_now() - run->cell_since;
    if (run->watcher->cell_done)
        run->watcher->cell_done(run->watcher->context, run->job->section, cell);
}

void kg_hostrun_clear(struct kg_hostrun *run)
{
    kg_child_close(&run->child);
    kg_hostlog_close(&run->log);
    kg_names_free(&run->ids);
    free(run->in);
    free(run->out);
    free(run->error_text);
    run->in = run->out = run->error_text = NULL;
}
