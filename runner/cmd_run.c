/*
 * `kgate run`: battery, device, results folder, supervisor, result, in that order, so
 * that whatever can be found wrong is found before the first kernel runs.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/battery.h"
#include "runner/bench/show.h"
#include "runner/bench/timer.h"
#include "runner/choose.h"
#include "runner/commands.h"
#include "runner/escape.h"
#include "runner/facts.h"
#include "runner/hostrun.h"
#include "runner/json_text.h"
#include "runner/progress.h"
#include "runner/store.h"

struct session {
    const struct kg_options *options;
    struct kg_battery battery;
    struct kg_choice choice;
    struct kg_store store;
    struct kg_progress progress;
    struct kg_banner banner;
    char selection[512];
    unsigned at_once;
    double began;
};

/* ---- the facts of the run ---- */

static json_t *make_run(const struct session *s, int argc, char **argv)
{
    const struct kg_options *o = s->options;
    const struct kg_manifest *m = s->battery.manifest;
    char started[32];
    json_t *run = json_object(), *command = json_array();
    kg_facts_time(started, sizeof started, false);
    kg_json_set_text(run, "started", started);
    for (int i = 0; i < argc; i++) {
        char *clean = kg_utf8_dup(argv[i], strlen(argv[i]));
        json_array_append_new(command, json_string(clean));
        free(clean);
    }
    json_object_set_new(run, "command", command);
    json_object_set_new(run, "kgate", json_pack("{s:s}", "version", KG_VERSION));
    json_object_set_new(run, "git", kg_facts_git(KG_SOURCE_ROOT));
    json_object_set_new(run, "host", kg_facts_host());
    json_object_set_new(run, "environment", kg_facts_environment());
    json_object_set_new(run, "pid", json_integer(getpid()));
    json_object_set_new(run, "jobs", json_integer(s->at_once));
    json_t *manifest = json_pack("{s:s}", "digest", m->digest);
    kg_json_set_text(manifest, "name", m->name);
    kg_json_set_text(manifest, "path", s->battery.manifest_path);
    json_object_set_new(run, "manifest", manifest);
    json_t *selection = json_object();
    kg_json_set_text(selection, "text", s->selection);
    json_object_set_new(run, "selection", selection);
    json_object_set_new(run, "seed",
                        o->has_seed ? json_integer((json_int_t)o->seed) : json_null());
    json_object_set_new(run, "schedule_seed", json_integer((json_int_t)o->schedule_seed));
    json_object_set(run, "artifacts", s->battery.artifacts);
    json_object_set_new(run, "synthetic", json_boolean(s->battery.has_synthetic));
    kg_json_set_text(run, "note", s->choice.note);
    json_t *bench = json_object_get(s->choice.facts, "bench");
    if (bench) {
        bench = json_copy(bench);
        json_object_set_new(bench, "policy",
                            json_pack("{s:s, s:i}", "name", kg_timer_cold.name, "version",
                                      kg_timer_cold.version));
        json_object_set_new(run, "bench", bench);
    }
    return run;
}

/* What a host said of its device, arranged as the result has it. */
static void add_device(const struct session *s, json_t *run)
{
    json_t *event = s->choice.facts;
    const struct kg_result *result = &s->battery.result;
    for (size_t i = 0; i < result->n_sections; i++)
        if (result->sections[i].device) {
            event = result->sections[i].device;
            break;
        }
    json_t *device = event ? json_copy(event) : json_object();
    json_t *provider = json_object_get(device, "provider");
    provider = provider ? json_copy(provider) : json_object();
    json_t *against = json_object_get(device, "against");
    against = against ? json_copy(against) : NULL;
    char *cc = kg_format(
        "%lld.%lld", (long long)json_integer_value(json_object_get(device, "cc_major")),
        (long long)json_integer_value(json_object_get(device, "cc_minor")));
    static const char *const moved[] = {"cc_major", "cc_minor", "provider", "against",
                                        "mem_free", "bench",    "health"};
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++)
        json_object_del(device, moved[i]);
    json_t *runtime = json_object_get(device, "runtime");
    if (runtime) {
        json_object_set(device, "cuda", runtime);
        json_object_del(device, "runtime");
    }
    kg_json_set_text(device, "compute_capability", cc);
    kg_json_set_text(device, "choice", s->choice.device);
    json_object_set_new(device, "ordinal", json_integer(s->choice.ordinal));
    kg_json_set_text(provider, "path", s->choice.provider);
    json_object_set_new(run, "device", device);
    json_object_set_new(run, "provider", provider);
    if (s->choice.against) {
        against = against ? against : json_object();
        kg_json_set_text(against, "path", s->choice.against);
    }
    if (against)
        json_object_set_new(run, "against", against);
    free(cc);
}

/* ---- steps ---- */

static int open_store(struct session *s, const json_t *run, struct kg_error *error)
{
    char stamp[32];
    kg_facts_time(stamp, sizeof stamp, true);
    const char *commit =
        json_string_value(json_object_get(json_object_get(run, "git"), "commit"));
    const char *host =
        json_string_value(json_object_get(json_object_get(run, "host"), "name"));
    KG_TRY(kg_store_open(&s->store, s->battery.paths.results, stamp, commit ? commit : "",
                         host ? host : "", error));
    json_t *logs = json_object();
    for (size_t i = 0; i < s->battery.n_tasks; i++) {
        struct kg_task *task = &s->battery.tasks[i];
        task->log_path = kg_format("%s/%s.log", s->store.logs, task->section->name);
        char *relative = kg_format("logs/%s.log", task->section->name);
        kg_json_set_text(logs, task->section->name, relative);
        free(relative);
    }
    json_object_set_new((json_t *)run, "logs", logs);
    return 0;
}

/* --output names a file of the user's; whether it can be written is asked now. */
static int check_output(const char *output, struct kg_error *error)
{
    if (output == NULL)
        return 0;
    char *folder = kg_xstrdup(output);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int rc = 0;
    if (access(slash ? folder : ".", W_OK) != 0)
        rc = kg_error_at_offset(error, KG_E_IO, output, -1, "cannot write: %s",
                                strerror(errno));
    free(folder);
    return rc;
}

static void show_banner(struct session *s)
{
    char *device = NULL;
    const char *name = json_string_value(json_object_get(s->choice.facts, "name"));
    if (name && s->choice.device && strcmp(name, s->choice.device) == 0)
        name = NULL;
    device = kg_format("%s%s%s%s", s->choice.device ? s->choice.device : "",
                       name ? " (" : "", name ? name : "", name ? ")" : "");
    s->banner = (struct kg_banner){
        .manifest = s->battery.manifest_path,
        .device = device,
        .provider = s->options->provider || s->options->verbose ? s->choice.provider : "",
        .selection = strcmp(s->selection, "everything") == 0 ? "" : s->selection,
        .note = s->choice.note,
    };
    kg_progress_banner(&s->progress, &s->banner);
    free(device);
}

/* Everything is judged: annotate, write, tell. Returns the exit status. */
static int conclude(struct session *s, struct kg_error *error)
{
    const struct kg_options *o = s->options;
    struct kg_result *result = &s->battery.result;
    struct kg_summary summary;
    struct kg_error local;
    char *fallback = NULL;
    kg_error_init(&local);
    kg_battery_annotate(&s->battery, s->choice.device);
    add_device(s, result->run);
    json_object_set_new(result->run, "seconds", json_real(kg_now() - s->began));
    json_t *json = kg_result_json(result);
    int rc = kg_store_finish(&s->store, json, &fallback, &local);
    const char *where = rc == 0 ? s->store.result : fallback;
    if (o->output && kg_store_write_json(o->output, json, &local) != 0)
        rc = local.status;
    if (!o->quiet && !o->json) {
        if (o->bench)
            kg_show_bench(stdout, json);
        if (o->timings)
            kg_show_times(stdout, json);
    }
    kg_progress_summary(&s->progress, result, where);
    if (o->json) {
        json_dumpf(json, stdout, JSON_SORT_KEYS | JSON_INDENT(1));
        putchar('\n');
    }
    json_decref(json);
    kg_result_summarise(result, &summary);
    int status = kg_result_exit_status(result, &summary, o->require_complete);
    if (rc != 0) {
        kg_error_set(error, local.status, "%s%s%s", local.file, local.file[0] ? ": " : "",
                     local.text);
        status = status == 130 ? 130 : 2;
    } else if (!result->interrupted && summary.verdict != KG_RUN_RED &&
               kg_battery_accept(&s->battery, result, error) != 0) {
        status = 2;
    }
    free(fallback);
    return status;
}

static int run(struct session *s, int argc, char **argv, struct kg_error *error)
{
    const struct kg_options *o = s->options;
    struct kg_battery *b = &s->battery;
    struct kg_result *result = &b->result;
    KG_TRY(kg_battery_load(b, o, error) ? 2 : 0);
    kg_select_describe(&o->select, s->selection, sizeof s->selection);
    KG_TRY(check_output(o->output, error) ? 2 : 0);
    int rc = kg_battery_rehearse(b, error);
    if (rc != 0)
        return rc > 0 ? 130 : 2;
    KG_TRY(kg_choose(&s->choice, o, &b->paths, error) ? 2 : 0);
    if (s->choice.interrupted)
        return 130;
    kg_battery_aim(b, s->choice.provider, s->choice.against, s->choice.ordinal,
                   json_object_get(s->choice.facts, "bench"), s->at_once);
    result->run = make_run(s, argc, argv);
    if (open_store(s, result->run, error) != 0) {
        kg_store_discard(&s->store);
        return 2;
    }
    kg_progress_open(&s->progress, o->json ? stderr : stdout, o->quiet, o->verbose,
                     o->no_color);
    show_banner(s);
    struct kg_watcher watcher = {.select = kg_battery_select,
                                 .select_context = &o->select};
    kg_progress_watch(&s->progress, &watcher, result);
    rc = kg_supervise(b->tasks, b->n_tasks, s->at_once, &watcher, error);
    kg_progress_close(&s->progress);
    if (rc < 0)
        return 2;
    result->interrupted = rc > 0;
    result->keep_times = o->timings;
    return conclude(s, error);
}

int kg_cmd_run(const struct kg_options *options, int argc, char **argv,
               struct kg_error *error)
{
    struct session s = {.options = options,
                        .at_once = options->jobs ? options->jobs : 1,
                        .began = kg_now(),
                        .choice = {.lock = -1}};
    /* From here to the end a signal is the supervisor's to see, or waits until the result
       is written. */
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    int status = run(&s, argc, argv, error);
    kg_store_clear(&s.store);
    kg_choice_clear(&s.choice);
    kg_battery_clear(&s.battery);
    /* A second Ctrl-C that came while the result was written must not spoil the status. */
    struct timespec at_once = {0, 0};
    while (status == 130 && sigtimedwait(&set, NULL, &at_once) > 0)
        ;
    sigprocmask(SIG_SETMASK, &old, NULL);
    return status;
}
