/*
 * The life of a cell: begin, the cell's own function, what is verified after it, done.
 */
#include "runner/cell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOTES_MAX 100
#define PARAMS_MAX 200
#define VALUE_MAX 512 /* bytes of a note or of a parameter's value */

double kg_seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- ways out ---- */

KG_NORETURN static void leave_v(struct kg_cell *cell, enum kg_verdict verdict,
                                const char *reason, const char *format, va_list args)
{
    if (!pthread_equal(cell->thread, pthread_self())) {
        /* Jumping onto another thread's stack would be worse than stopping here. */
        fputs("kgate: a cell called kgate from a thread of its own: ", stderr);
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
        abort();
    }
    cell->verdict = verdict;
    cell->reason = reason;
    vsnprintf(cell->detail, sizeof cell->detail, format, args);
    longjmp(cell->leave, 1);
}

void kg_cell_leave(struct kg_cell *cell, enum kg_verdict verdict, const char *reason,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    leave_v(cell, verdict, reason, format, args);
}

void kg_cell_misuse(struct kg_cell *cell, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    leave_v(cell, KG_ERROR, "misuse", format, args);
}

void kg_skip(struct kg_cell *cell, const char *reason, const char *format, ...)
{
    static const char *const known[] = {"not-applicable", "tensor-missing",
                                        "device-unsupported", "kernel-missing",
                                        "artifact-missing"};
    for (size_t i = 0; reason != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(reason, known[i]) != 0)
            continue;
        va_list args;
        va_start(args, format);
        leave_v(cell, KG_SKIP, known[i], format, args);
    }
    kg_cell_misuse(cell, "kg_skip with unknown reason \"%s\"", reason ? reason : "");
}

void kg_fail(struct kg_cell *cell, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    leave_v(cell, KG_FAIL, "check-failed", format, args);
}

void kg_error(struct kg_cell *cell, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    leave_v(cell, KG_ERROR, "misuse", format, args);
}

const char *kg_cell_device_text(const struct kg_cell *cell, int status)
{
    const char *text = cell->host->seat.provider->device->last_error();
    if (text != NULL && text[0] != '\0')
        return text;
    switch (status) {
    case KG_E_INVALID:
        return "the launcher refused its arguments";
    case KG_E_MEMORY:
        return "out of memory";
    case KG_E_LAUNCH:
        return "the kernel could not be launched";
    case KG_E_DEVICE:
        return "the device faulted";
    default:
        return "unknown status";
    }
}

void kg_cell_device(struct kg_cell *cell, int status, const char *what, const char *name)
{
    if (status == 0)
        return;
    const char *text = kg_cell_device_text(cell, status);
    if (status == KG_E_DEVICE) {
        cell->host->device_lost = true;
        kg_cell_leave(cell, KG_FAIL, "device-fault", "%s %s: %s", what, name, text);
    }
    if (status == KG_E_MEMORY)
        kg_cell_leave(cell, KG_ERROR, "out-of-memory", "%s %s: %s", what, name, text);
    kg_cell_leave(cell, KG_FAIL, "launch-failed", "%s %s: status %d, %s", what, name,
                  status, text);
}

void kg_cell_outside_arm(struct kg_cell *cell, const char *what)
{
    if (cell->arm_state == KG_ARM_READY || cell->arm_state == KG_ARM_RUNNING)
        kg_cell_misuse(cell, "%s inside arm %s", what, cell->arm);
}

/* ---- memory ---- */

struct kg_block *kg_cell_block(struct kg_cell *cell, size_t bytes, bool zero)
{
    const size_t align = 64;
    size_t head = (sizeof(struct kg_block) + align - 1) / align * align;
    void *raw = NULL;
    if (bytes < SIZE_MAX - head - 2 * align) {
        size_t total = head + align + bytes;
        raw = zero ? calloc(1, total) : malloc(total);
    }
    if (raw == NULL)
        kg_cell_leave(cell, KG_ERROR, "out-of-memory", "%zu bytes of host memory", bytes);
    struct kg_block *block = raw;
    uintptr_t start = (uintptr_t)raw + head;
    *block = (struct kg_block){
        .next = cell->blocks,
        .start = (uint8_t *)((start + align - 1) / align * align),
        .bytes = bytes,
    };
    cell->blocks = block;
    return block;
}

void kg_cell_free_blocks(struct kg_cell *cell)
{
    while (cell->blocks != NULL) {
        struct kg_block *next = cell->blocks->next;
        free(cell->blocks);
        cell->blocks = next;
    }
}

void *kg_alloc(struct kg_cell *cell, size_t bytes)
{
    return kg_cell_block(cell, bytes, true)->start;
}

bool kg_cell_is_fetched(const struct kg_cell *cell, const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    for (const struct kg_block *b = cell->blocks; b != NULL; b = b->next) {
        uintptr_t start = (uintptr_t)b->start;
        if (b->output && at >= start && at - start <= b->bytes &&
            bytes <= b->bytes - (at - start))
            return true;
    }
    return false;
}

void kg_cell_need_name(struct kg_cell *cell, const char *what, const char *name)
{
    if (name == NULL || name[0] == '\0')
        kg_cell_misuse(cell, "%s without a name", what);
    if (strnlen(name, KG_NAME_MAX + 1) > KG_NAME_MAX)
        kg_cell_misuse(cell, "name of %s longer than %d bytes: %.40s...", what,
                       KG_NAME_MAX, name);
    for (const char *p = name; *p; p++)
        if (*p < ' ' || *p > '~')
            kg_cell_misuse(cell, "name of %s is not printable ASCII: %s", what, name);
}

const char *kg_cell_name(struct kg_cell *cell, const char *what, const char *name)
{
    kg_cell_need_name(cell, what, name);
    size_t length = strlen(name);
    return memcpy(kg_cell_block(cell, length + 1, true)->start, name, length);
}

/* ---- what the run was given ---- */

const struct kg_artifact *kg_artifact(struct kg_cell *cell, const char *role)
{
    if (role == NULL || !kg_host_has_role(cell->host, role))
        kg_cell_misuse(cell, "kg_artifact: the section declares no role \"%s\"",
                       role ? role : "");
    const struct kg_artifact *artifact = kg_host_artifact(cell->host, role);
    if (artifact == NULL && cell->host->job.no_artifacts)
        kg_cell_leave(cell, KG_SKIP, "filtered", "artifacts were left out; role %s",
                      role);
    if (artifact == NULL)
        kg_cell_leave(cell, KG_SKIP, "artifact-missing", "role %s", role);
    return artifact;
}

const struct kg_tensor *kg_tensor(struct kg_cell *cell, const char *role,
                                  const char *name)
{
    const struct kg_artifact *artifact = kg_artifact(cell, role);
    const struct kg_tensor *tensor = name ? kg_artifact_find(artifact, name) : NULL;
    if (tensor == NULL)
        kg_cell_leave(cell, KG_SKIP, "tensor-missing", "%s is not in the %s artifact",
                      name ? name : "(null)", role);
    return tensor;
}

const char *kg_option(const struct kg_cell *cell, const char *key)
{
    if (!kg_section_has_param(cell->host->section, key))
        kg_cell_misuse((struct kg_cell *)cell,
                       "kg_option: the section declares no param \"%s\"", key);
    return json_string_value(json_object_get(cell->host->job.params, key));
}

const struct kg_device_info *kg_device(const struct kg_cell *cell)
{
    return &cell->host->seat.device;
}

struct CUstream_st *kg_stream(const struct kg_cell *cell)
{
    return cell->host->seat.stream;
}

const struct kg_provider *kg_provider(const struct kg_cell *cell)
{
    return cell->host->seat.provider;
}

/* ---- what is shown beside the checks ---- */

static void set_param(struct kg_cell *cell, const char *name, json_t *value)
{
    json_object_set_new(cell->params, name, value);
    if (json_object_size(cell->params) > PARAMS_MAX)
        kg_cell_misuse(cell, "more than %d parameters", PARAMS_MAX);
}

void kg_param_i(struct kg_cell *cell, const char *name, int64_t value)
{
    kg_cell_need_name(cell, "a parameter", name);
    set_param(cell, name, json_integer(value));
}

void kg_param_f(struct kg_cell *cell, const char *name, double value)
{
    kg_cell_need_name(cell, "a parameter", name);
    set_param(cell, name, kg_event_number(value));
}

void kg_param_s(struct kg_cell *cell, const char *name, const char *value)
{
    kg_cell_need_name(cell, "a parameter", name);
    char text[VALUE_MAX];
    snprintf(text, sizeof text, "%s", value ? value : "");
    set_param(cell, name, kg_event_text(text));
}

void kg_note(struct kg_cell *cell, const char *format, ...)
{
    char text[VALUE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s: %s\n", cell->plan->id, text);
    size_t n = json_array_size(cell->notes);
    if (n < NOTES_MAX)
        json_array_append_new(cell->notes, kg_event_text(text));
    else if (n == NOTES_MAX)
        json_array_append_new(cell->notes, json_string("(more notes in the log)"));
}

/* ---- begin to done ---- */

static void judge(struct kg_cell *cell)
{
    if (cell->failed > 0) {
        /* What was seen to be wrong stays wrong, whatever stopped the cell later. */
        bool fault =
            cell->verdict == KG_FAIL && strcmp(cell->reason, "device-fault") == 0;
        char later[sizeof cell->detail];
        snprintf(later, sizeof later, "%s", cell->detail);
        cell->verdict = KG_FAIL;
        cell->reason = fault ? "device-fault" : "check-failed";
        int n = snprintf(cell->detail, sizeof cell->detail, "%s", cell->first_failure);
        if (cell->failed > 1 && n >= 0 && (size_t)n < sizeof cell->detail)
            n += snprintf(cell->detail + n, sizeof cell->detail - (size_t)n,
                          "; %u more checks failed", cell->failed - 1);
        if (later[0] != '\0' && n >= 0 && (size_t)n < sizeof cell->detail)
            snprintf(cell->detail + n, sizeof cell->detail - (size_t)n, "; then: %.900s",
                     later);
        return;
    }
    if (cell->verdict != KG_NO_VERDICT)
        return;
    if (cell->compared == 0 || cell->arm_number == 0) {
        cell->verdict = KG_ERROR;
        cell->reason = "no-comparison";
        snprintf(cell->detail, sizeof cell->detail, "%s",
                 cell->compared > 0  ? "the cell ran no arm: what it compared came from "
                                       "no kernel"
                 : cell->numbers > 0 ? "the cell compared no elements, only numbers that "
                                       "it made of them itself"
                                     : "the cell compared nothing");
        return;
    }
    cell->verdict = KG_PASS;
}

static void run(struct kg_cell *cell)
{
    if (setjmp(cell->leave) != 0)
        return;
    if (cell->plan->role != NULL)
        kg_artifact(cell, cell->plan->role);
    cell->plan->run(cell, cell->plan->row);
    kg_cell_outside_arm(cell, "the cell returned");
    kg_buffers_verify_all(cell);
}

static void release(struct kg_cell *cell)
{
    kg_bench_abort(cell);
    int rc = kg_buffers_release(cell);
    if (rc == 0)
        return;
    if (rc == KG_E_DEVICE)
        cell->host->device_lost = true;
    if (cell->verdict == KG_FAIL)
        return;
    cell->verdict = KG_FAIL;
    cell->reason = rc == KG_E_DEVICE ? "device-fault" : "launch-failed";
    snprintf(cell->detail, sizeof cell->detail, "releasing the buffers: %s",
             kg_cell_device_text(cell, rc));
}

struct kg_cell *kg_cell_pass(struct kg_host *host, const struct kg_plan_cell *plan,
                             const struct kg_cell *first)
{
    struct kg_cell *cell = calloc(1, sizeof *cell);
    if (cell == NULL) {
        fputs("kgate: out of memory for a cell\n", stderr);
        _exit(1);
    }
    cell->host = host;
    cell->plan = plan;
    cell->first = first;
    cell->thread = pthread_self();
    cell->buffers_tail = &cell->buffers;
    cell->outputs_tail = &cell->outputs;
    cell->verdict = KG_NO_VERDICT;
    cell->check_names = json_object();
    cell->params = json_object();
    cell->notes = json_array();
    cell->digests = json_object();
    cell->arms_done = json_object();
    cell->failed_checks = json_array();

    double start = kg_seconds_now();
    run(cell);
    judge(cell);
    release(cell);
    cell->seconds = kg_seconds_now() - start;
    return cell;
}

void kg_cell_free(struct kg_cell *cell)
{
    json_decref(cell->check_names);
    json_decref(cell->params);
    json_decref(cell->notes);
    json_decref(cell->digests);
    json_decref(cell->arms_done);
    json_decref(cell->failed_checks);
    json_decref(cell->timings);
    json_decref(cell->pairs);
    kg_cell_free_blocks(cell);
    free(cell);
}

static void send_done(const struct kg_cell *cell)
{
    const struct kg_times *t = &cell->times;
    double rest = cell->seconds - t->upload - t->kernel - t->download;
    json_t *done = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:f, s:O, s:O, s:O, s:{s:f, s:f, s:f, s:f}}", "ev",
        "done", "id", cell->plan->id, "verdict", kg_verdict_name(cell->verdict), "reason",
        cell->reason ? cell->reason : "", "detail", kg_event_text(cell->detail),
        "seconds", cell->seconds, "digest", cell->digests, "params", cell->params,
        "notes", cell->notes, "times", "upload", t->upload, "kernel", t->kernel,
        "download", t->download, "oracle", rest > 0 ? rest : 0.0);
    if (cell->timings)
        json_object_set(done, "timings", cell->timings);
    kg_event_write(cell->host->event_fd, done);
}

/* A cell that lacks its model lacks it on every provider. */
static bool is_worth_comparing(const struct kg_cell *cell)
{
    return cell->verdict != KG_SKIP || strcmp(cell->reason, "kernel-missing") == 0 ||
           strcmp(cell->reason, "device-unsupported") == 0;
}

void kg_cell_run(struct kg_host *host, const struct kg_plan_cell *plan)
{
    kg_event_write(host->event_fd,
                   json_pack("{s:s, s:s}", "ev", "begin", "id", plan->id));
    struct kg_cell *cell = kg_cell_pass(host, plan, NULL);
    send_done(cell);
    if (host->other.provider != NULL && !host->device_lost && is_worth_comparing(cell))
        kg_against_run(host, plan, cell);
    kg_cell_free(cell);
}
