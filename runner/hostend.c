#include "runner/hostrun.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "runner/escape.h"

#define STATUS_START_AGAIN 75 /* a host whose device is lost asks for a successor */
#define IDLE_DEATHS_MAX 2
#define TAIL_LINES 20

/* How a host ended, as a verdict for whatever it was doing. */
struct ending {
    enum kg_verdict verdict;
    const char *reason;
    char text[512];
    char signal_name[16]; /* "" if no signal ended it by itself */
};

static void describe_exit(int status, struct ending *e)
{
    e->verdict = KG_FAIL;
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        const char *name = sigabbrev_np(number);
        snprintf(e->signal_name, sizeof e->signal_name, "SIG%s", name ? name : "?");
        bool killed = number == SIGKILL || number == SIGTERM || number == SIGINT ||
                      number == SIGHUP || number == SIGQUIT;
        e->reason = killed ? "killed" : "crashed";
        snprintf(e->text, sizeof e->text, "%s (%s)", e->signal_name, strsignal(number));
    } else {
        e->reason = "exited";
        snprintf(e->text, sizeof e->text, "status %d", WEXITSTATUS(status));
    }
}

static void describe(const struct kg_hostrun *run, int status, struct ending *e)
{
    const struct kg_task *job = run->job;
    memset(e, 0, sizeof *e);
    e->verdict = KG_FAIL;
    e->reason = "hung";
    switch (run->ended) {
    case KG_ENDED_CELL_TIME:
        snprintf(e->text, sizeof e->text, "no verdict within the cell limit of %g s",
                 job->cell_seconds);
        break;
    case KG_ENDED_SECTION_TIME:
        snprintf(e->text, sizeof e->text, "the section limit of %g s was reached",
                 job->section_seconds);
        break;
    case KG_ENDED_START_TIME:
        snprintf(e->text, sizeof e->text, "the host went silent between cells");
        break;
    case KG_ENDED_MEMORY:
        e->verdict = KG_ERROR;
        e->reason = "out-of-memory";
        snprintf(e->text, sizeof e->text, "over the memory limit of %llu MiB",
                 (unsigned long long)(job->memory_bytes >> 20));
        break;
    case KG_ENDED_PROTOCOL:
        e->reason = "protocol";
        snprintf(e->text, sizeof e->text, "%s", run->fault);
        break;
    case KG_ENDED_ITSELF:
    case KG_ENDED_INTERRUPT:
        describe_exit(status, e);
        break;
    }
}

static bool cells_are_left(const struct kg_hostrun *run)
{
    const struct kg_result_section *section = run->job->section;
    for (size_t i = run->next; i < section->n_cells; i++)
        if (section->cells[i].selected)
            return true;
    return false;
}

static void section_error(struct kg_hostrun *run, const char *reason, const char *detail)
{
    struct kg_result_section *section = run->job->section;
    section->status = KG_SECTION_ERROR;
    free(section->reason);
    free(section->detail);
    free(section->log_tail);
    section->reason = kg_xstrdup(reason);
    section->detail = kg_utf8_dup(detail, strlen(detail));
    section->log_tail = kg_hostlog_last(&run->log, run->log_mark, TAIL_LINES);
}

void kg_hostrun_abandon(struct kg_hostrun *run, const char *why, bool interrupted)
{
    struct kg_result_section *section = run->job->section;
    if (!run->planned) {
        /* Half a plan is no plan: the result must not pretend to know the cells. */
        for (size_t i = 0; i < section->n_cells; i++) {
            free(section->cells[i].id);
            free(section->cells[i].role);
        }
        section->n_cells = 0;
        return;
    }
    for (size_t i = 0; i < section->n_cells; i++) {
        struct kg_result_cell *cell = &section->cells[i];
        if (cell->verdict != KG_NO_VERDICT)
            continue;
        kg_cell_set(cell, KG_ERROR, "not-run", why);
        cell->interrupted = interrupted;
        if (run->watcher->cell_done)
            run->watcher->cell_done(run->watcher->context, section, cell);
    }
    run->next = section->n_cells;
}

/* The verdict of a cell that its host did not survive. */
static void blame(struct kg_hostrun *run, ssize_t index, const struct ending *e)
{
    struct kg_result_cell *cell = &run->job->section->cells[index];
    kg_cell_set(cell, e->verdict, e->reason, e->text);
    if (e->signal_name[0] != '\0')
        cell->signal_name = kg_xstrdup(e->signal_name);
    cell->log_tail = kg_hostlog_last(&run->log, run->log_mark, TAIL_LINES);
}

/* The other provider took the host down; the cell's own verdict stands. */
static bool judge_again(struct kg_hostrun *run, const struct ending *e)
{
    json_t *against = json_pack("{s:s, s:s, s:s}", "verdict", kg_verdict_name(e->verdict),
                                "reason", e->reason, "detail", "");
    char *text = kg_utf8_dup(e->text, strlen(e->text));
    json_object_set_new(against, "detail", json_string(text));
    free(text);
    kg_hostrun_compared(run, against);
    if (run->ended != KG_ENDED_SECTION_TIME)
        return cells_are_left(run);
    if (cells_are_left(run)) {
        section_error(run, "hung", e->text);
        kg_hostrun_abandon(run, e->text, false);
    }
    return false;
}

/* No cell was in flight. The one that ended last is what the death belongs to: its memory
   was being freed, or what it had overwritten was used. */
static void blame_last(struct kg_hostrun *run, struct ending *e)
{
    struct kg_result_cell *cell = &run->job->section->cells[run->last_done];
    if (cell->verdict != KG_PASS && cell->verdict != KG_SKIP)
        return;
    char text[sizeof e->text];
    snprintf(text, sizeof text, "%.400s, right after the cell had ended with %s", e->text,
             kg_verdict_name(cell->verdict));
    memcpy(e->text, text, sizeof text);
    blame(run, run->last_done, e);
    if (run->watcher->cell_revised)
        run->watcher->cell_revised(run->watcher->context, run->job->section, cell);
}

static bool judge_cell(struct kg_hostrun *run, struct ending *e)
{
    size_t index = (size_t)run->current;
    blame(run, run->current, e);
    kg_hostrun_settle(run, index);
    run->idle_deaths = 0;
    if (run->ended != KG_ENDED_SECTION_TIME)
        return cells_are_left(run);
    if (cells_are_left(run)) {
        section_error(run, "hung", e->text);
        kg_hostrun_abandon(run, e->text, false);
    }
    return false;
}

/* Uncorrected errors that the GPU's memory had during the section. */
static json_int_t memory_errors(const struct kg_result_section *section)
{
    static const char key[] = "ecc_uncorrected";
    json_t *before = json_object_get(section->health, "before");
    json_t *after = json_object_get(section->health, "after");
    return json_integer_value(json_object_get(after, key)) -
           json_integer_value(json_object_get(before, key));
}

bool kg_hostrun_judge(struct kg_hostrun *run, int status)
{
    struct ending e;
    describe(run, status, &e);
    bool is_clean =
        run->ended == KG_ENDED_ITSELF && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool again = run->ended == KG_ENDED_ITSELF && WIFEXITED(status) &&
                 WEXITSTATUS(status) == STATUS_START_AGAIN;

    if (run->ended == KG_ENDED_INTERRUPT) {
        kg_hostrun_abandon(run, "the run was interrupted", true);
        return false;
    }
    if (run->phase == KG_PHASE_OVER) {
        section_error(run, run->error_code, run->error_text);
        kg_hostrun_abandon(run, run->error_text, false);
        return false;
    }
    if (run->current >= 0)
        return judge_cell(run, &e);
    if (run->phase == KG_PHASE_AGAIN)
        return judge_again(run, &e);
    if (run->phase == KG_PHASE_BYE) {
        if (run->job->mode == KG_TASK_RUN && cells_are_left(run)) {
            section_error(run, "protocol", "the host said bye with cells left to run");
            kg_hostrun_abandon(run, "the host said bye before it", false);
        } else if (!is_clean) {
            char text[640];
            snprintf(text, sizeof text, "after its last cell: %s", e.text);
            section_error(run, e.reason, text);
        } else if (memory_errors(run->job->section) > 0) {
            section_error(run, "gpu-fault",
                          "the GPU counted uncorrected memory errors while it ran");
        }
        return false;
    }
    if (run->last_done >= 0 && run->ended != KG_ENDED_SECTION_TIME) {
        if (!again)
            blame_last(run, &e);
        return cells_are_left(run);
    }
    /* It died before its first cell. A first host has no excuse; one that was started
       again gets another try, since the device may need a moment after a fault. */
    if (run->job->section->restarts > 0 && run->ended == KG_ENDED_ITSELF &&
        ++run->idle_deaths < IDLE_DEATHS_MAX)
        return true;
    const char *when = !run->said_hello ? "before it said hello"
                       : !run->planned  ? "while planning"
                                        : "before the first of the cells left";
    char text[640];
    snprintf(text, sizeof text, "%s, %s", e.text, when);
    section_error(run, e.reason, text);
    kg_hostrun_abandon(run, text, false);
    return false;
}
