#include "runner/battery.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/artifact.h"
#include "runner/cell.h"
#include "runner/escape.h"
#include "runner/json_text.h"

/* A plugin that does not plan within it is judged in the run itself. */
#define REHEARSAL_SECONDS 10.0

/* ---- model files ---- */

/* Opens the file once, so that a broken one is a line before the run and not a verdict
   for each cell in the middle of it. */
static int preflight(const struct kg_resolved *found, bool *synthetic,
                     struct kg_error *error)
{
    struct kg_artifact *artifact = NULL;
    KG_TRY(
        kg_artifact_open(found->path, found->format, found->synthetic, &artifact, error));
    *synthetic = found->reduced || kg_artifact_is_synthetic(artifact);
    kg_artifact_close(artifact);
    return 0;
}

static int add_artifact(struct kg_battery *b, size_t s,
                        const struct kg_manifest_artifact *wanted, json_t *orders,
                        struct kg_error *error)
{
    const struct kg_options *o = b->options;
    struct kg_models_query query = {o->models_dir, o->model, getenv("HOME")};
    struct kg_resolved found = {0};
    bool synthetic = false;
    json_t *told = json_object();
    int rc = kg_models_resolve(b->models, &query, wanted->id, &found, error);
    if (rc != 0)
        goto out;
    kg_json_set_text(told, "asked", wanted->id);
    kg_json_set_text(told, "found", kg_found_name(found.found));
    if (found.found == KG_FOUND_NOT) {
        kg_json_set_text(b->misses[s], wanted->role, found.miss);
        goto out;
    }
    rc = preflight(&found, &synthetic, error);
    if (rc != 0)
        goto out;
    b->has_synthetic |= synthetic;
    kg_json_set_text(told, "id", found.id);
    kg_json_set_text(told, "how", found.how);
    kg_json_set_text(told, "format", found.format);
    json_object_set_new(told, "bytes", json_integer((json_int_t)found.bytes));
    json_object_set_new(told, "fallback", json_boolean(found.fallback));
    json_object_set_new(told, "synthetic", json_boolean(synthetic));
    if (found.sha256)
        kg_json_set_text(told, "sha256", found.sha256);
    json_t *order = json_pack("{s:b}", "synthetic", (int)synthetic);
    kg_json_set_text(order, "path", found.path);
    kg_json_set_text(order, "format", found.format);
    json_object_set_new(orders, wanted->role, order);
    json_t *place = json_object();
    kg_json_set_text(place, "path", found.path);
    json_object_set_new(b->artifacts, found.id, place);
out:
    json_object_set_new(b->result.sections[s].artifacts, wanted->role, told);
    kg_resolved_clear(&found);
    return rc;
}

/* ---- sections ---- */

static json_t *make_params(const struct kg_options *o,
                           const struct kg_manifest_section *section)
{
    json_t *params = json_object();
    for (size_t i = 0; i < section->n_params; i++)
        kg_json_set_text(params, section->params[i].key, section->params[i].value);
    if (o->synthetic_activations)
        kg_json_set_text(params, "synthetic-activations", "true");
    for (size_t i = 0; i < o->n_params; i++)
        if (strcmp(o->params[i].section, section->name) == 0)
            kg_json_set_text(params, o->params[i].key, o->params[i].value);
    return params;
}

/* For the host: where the manifest or the command line names roles and params. */
static json_t *make_asked(const struct kg_battery *b,
                          const struct kg_manifest_section *section)
{
    const struct kg_options *o = b->options;
    json_t *roles = json_object(), *params = json_object();
    for (size_t i = 0; i < section->n_artifacts + section->n_params; i++) {
        bool is_role = i < section->n_artifacts;
        size_t p = i - section->n_artifacts;
        char *where =
            kg_format("%s:%d:%d", b->manifest->path,
                      is_role ? section->artifacts[i].line : section->params[p].line,
                      is_role ? section->artifacts[i].column : section->params[p].column);
        kg_json_set_text(is_role ? roles : params,
                         is_role ? section->artifacts[i].role : section->params[p].key,
                         where);
        free(where);
    }
    for (size_t i = 0; i < o->n_params; i++)
        if (strcmp(o->params[i].section, section->name) == 0)
            kg_json_set_text(params, o->params[i].key, "--param");
    return json_pack("{s:o, s:o}", "roles", roles, "params", params);
}

static void refuse(struct kg_result_section *section, const char *reason,
                   const struct kg_error *why)
{
    char line[1200];
    kg_error_line(why, line, sizeof line);
    section->status = KG_SECTION_ERROR;
    section->reason = kg_xstrdup(reason);
    section->detail = kg_utf8_dup(line, strlen(line));
}

static int add_section(struct kg_battery *b, size_t s, struct kg_error *error)
{
    const struct kg_options *o = b->options;
    const struct kg_manifest_section *from = &b->manifest->sections[s];
    struct kg_result_section *to = &b->result.sections[s];
    char why[256] = "", hex[33];
    to->name = kg_xstrdup(from->name);
    to->optional = from->optional;
    to->artifacts = json_object();
    b->misses[s] = json_object();
    if (!kg_select_section(&o->select, from, why, sizeof why)) {
        to->status = KG_SECTION_FILTERED;
        to->reason = kg_xstrdup("filtered");
        to->detail = kg_xstrdup(why);
        return 0;
    }
    struct kg_task *task = &b->tasks[b->n_tasks];
    task->section = to;
    task->cell_seconds = o->limit_cell > 0 ? o->limit_cell : from->limits.cell_seconds;
    task->section_seconds =
        o->limit_section > 0 ? o->limit_section : from->limits.section_seconds;
    task->memory_bytes = from->limits.memory_bytes;
    to->limits = json_pack("{s:f, s:f, s:I}", "cell_seconds", task->cell_seconds,
                           "section_seconds", task->section_seconds, "memory_bytes",
                           (json_int_t)task->memory_bytes);

    struct kg_error local;
    kg_error_init(&local);
    char *plugin = NULL;
    if (kg_paths_plugin(&b->paths, from->name, &plugin, &local) != 0) {
        refuse(to, "bad-plugin", &local);
        return 0;
    }
    if (kg_digest_file(plugin, hex) == 0)
        to->plugin = json_pack("{s:s}", "digest", hex);
    json_t *artifacts = json_object();
    int rc = 0;
    for (size_t i = 0; i < from->n_artifacts && rc == 0 && !o->select.fast; i++)
        rc = add_artifact(b, s, &from->artifacts[i], artifacts, error);
    task->order =
        json_pack("{s:s, s:b, s:b, s:o, s:o, s:I, s:n, s:n}", "section", from->name,
                  "no_artifacts", (int)o->select.fast, "timings", (int)o->timings,
                  "artifacts", artifacts, "params", make_params(o, from), "schedule_seed",
                  (json_int_t)o->schedule_seed, "against", "bench");
    kg_json_set_text(task->order, "plugin", plugin);
    json_object_set_new(task->order, "asked", make_asked(b, from));
    json_object_set_new(task->order, "seed",
                        o->has_seed ? json_integer((json_int_t)o->seed) : json_null());
    free(plugin);
    b->n_tasks++;
    return rc;
}

static int check_params(const struct kg_battery *b, struct kg_error *error)
{
    for (size_t i = 0; i < b->options->n_params; i++)
        if (!kg_manifest_find(b->manifest, b->options->params[i].section))
            return kg_error_set(error, KG_E_INVALID,
                                "--param: the manifest has no section \"%s\"",
                                b->options->params[i].section);
    return 0;
}

static bool needs_models(const struct kg_manifest *manifest)
{
    for (size_t s = 0; s < manifest->n_sections; s++)
        if (manifest->sections[s].n_artifacts > 0)
            return true;
    return false;
}

int kg_battery_load(struct kg_battery *b, const struct kg_options *options,
                    struct kg_error *error)
{
    memset(b, 0, sizeof *b);
    b->options = options;
    b->artifacts = json_object();
    KG_TRY(kg_paths_init(&b->paths, options, error));
    KG_TRY(kg_paths_manifest(&b->paths, options->manifest, &b->manifest_path, error));
    KG_TRY(kg_manifest_load(b->manifest_path, &b->manifest, error));
    KG_TRY(check_params(b, error));
    KG_TRY(kg_select_require_section(&options->select, b->manifest, error));
    if (needs_models(b->manifest))
        KG_TRY(kg_models_load(b->paths.models, &b->models, error));
    size_t n = b->manifest->n_sections;
    b->result.sections = kg_xcalloc(n, sizeof *b->result.sections);
    b->tasks = kg_xcalloc(n, sizeof *b->tasks);
    b->misses = kg_xcalloc(n, sizeof *b->misses);
    for (size_t s = 0; s < n; s++) {
        b->result.n_sections++;
        KG_TRY(add_section(b, s, error));
    }
    return 0;
}

void kg_battery_aim(struct kg_battery *b, const char *provider, const char *against,
                    int ordinal, json_t *calibration, unsigned at_once)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = cores > (long)at_once ? cores / (long)at_once : 1;
    for (size_t i = 0; i < b->n_tasks; i++) {
        json_t *order = b->tasks[i].order;
        b->tasks[i].mode = provider ? KG_TASK_RUN : KG_TASK_PLAN;
        json_object_set_new(order, "mode", json_string(provider ? "run" : "plan"));
        json_object_set_new(order, "provider",
                            provider ? json_string(provider) : json_null());
        json_object_set_new(order, "against",
                            against ? json_string(against) : json_null());
        json_object_set_new(order, "ordinal", json_integer(ordinal));
        json_object_set_new(order, "host_threads", json_integer(threads));
        if (calibration)
            json_object_set_new(order, "bench",
                                json_pack("{s:b, s:O}", "warm",
                                          (int)b->options->bench_warm, "calibration",
                                          calibration));
    }
}

/* ---- after the run ---- */

static void word(FILE *out, const char *option, const char *value)
{
    if (value == NULL)
        return;
    fprintf(out, " %s ", option);
    kg_shell_word(out, value);
}

/* What every repro command has in common, up to the cell. */
static void common_words(FILE *out, const struct kg_battery *b, const char *device)
{
    const struct kg_options *o = b->options;
    fputs("kgate run", out);
    kg_shell_word((putc(' ', out), out), b->options->manifest);
    if (o->provider == NULL)
        word(out, "--device", device);
    word(out, "--provider", o->provider);
    word(out, "--against", o->against);
    for (size_t i = 0; i < o->n_plugin_dirs; i++)
        word(out, "--plugin-dir", o->plugin_dirs[i]);
    word(out, "--model", o->model);
    word(out, "--models", o->models_file);
    if (o->has_seed)
        fprintf(out, " --seed %llu", (unsigned long long)o->seed);
    if (o->schedule_seed)
        fprintf(out, " --schedule %llu", (unsigned long long)o->schedule_seed);
    if (o->synthetic_activations)
        fputs(" --synthetic-activations", out);
    if (o->bench)
        fputs(" --bench", out);
}

static void add_repro(const struct kg_battery *b, const struct kg_result_section *section,
                      struct kg_result_cell *cell, const char *common)
{
    size_t size = 0;
    FILE *out = open_memstream(&cell->repro, &size);
    if (out == NULL)
        return;
    fputs(common, out);
    for (size_t i = 0; i < b->options->n_params; i++) {
        const struct kg_param_override *p = &b->options->params[i];
        if (strcmp(p->section, section->name) != 0)
            continue;
        char *text = kg_format("%s.%s=%s", p->section, p->key, p->value);
        word(out, "--param", text);
        free(text);
    }
    word(out, "--cell", cell->id);
    fclose(out);
}

void kg_battery_annotate(struct kg_battery *b, const char *device)
{
    char *common = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&common, &size);
    if (out == NULL)
        return;
    common_words(out, b, device);
    fclose(out);
    for (size_t s = 0; s < b->result.n_sections; s++) {
        struct kg_result_section *section = &b->result.sections[s];
        for (size_t i = 0; i < section->n_cells; i++) {
            struct kg_result_cell *cell = &section->cells[i];
            const char *miss =
                cell->role ? json_string_value(json_object_get(b->misses[s], cell->role))
                           : NULL;
            if (miss && cell->verdict == KG_SKIP &&
                strcmp(cell->reason, "artifact-missing") == 0)
                kg_cell_set(cell, KG_SKIP, "artifact-missing", miss);
            add_repro(b, section, cell, common);
        }
    }
    free(common);
}

bool kg_battery_select(const void *select, const struct kg_result_section *section,
                       const struct kg_result_cell *cell, char *why, size_t size)
{
    (void)section;
    return kg_select_cell(select, cell->id, cell->role, why, size);
}

/* ---- before the run ---- */

int kg_battery_accept(const struct kg_battery *b, const struct kg_result *planned,
                      struct kg_error *error)
{
    size_t n_errors = 0, n_selected = 0, n_ids = 0;
    for (size_t s = 0; s < planned->n_sections; s++)
        n_ids += planned->sections[s].n_cells;
    const char **ids = kg_xcalloc(n_ids, sizeof *ids);
    n_ids = 0;
    for (size_t s = 0; s < planned->n_sections; s++) {
        const struct kg_result_section *section = &planned->sections[s];
        bool is_error = section->status == KG_SECTION_ERROR;
        if (is_error && strcmp(section->reason, "bad-manifest") == 0)
            kg_error_set(error, KG_E_INVALID, "%s", section->detail);
        n_errors += is_error;
        for (size_t i = 0; i < section->n_cells; i++) {
            n_selected += section->cells[i].selected;
            ids[n_ids++] = section->cells[i].id;
        }
    }
    /* A section that could not be planned may hold what was asked for. */
    if (error->status == 0 && n_errors == 0)
        kg_select_require_cells(&b->options->select, ids, n_ids, n_selected, error);
    free(ids);
    return error->status;
}

int kg_battery_rehearse(struct kg_battery *b, struct kg_error *error)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct kg_result planned = {.sections =
                                    kg_xcalloc(b->n_tasks, sizeof *planned.sections),
                                .n_sections = b->n_tasks};
    struct kg_task *tasks = kg_xcalloc(b->n_tasks, sizeof *tasks);
    struct kg_watcher watcher = {.select = kg_battery_select,
                                 .select_context = &b->options->select};
    kg_battery_aim(b, NULL, NULL, 0, NULL, 1);
    for (size_t i = 0; i < b->n_tasks; i++) {
        planned.sections[i].name = kg_xstrdup(b->tasks[i].section->name);
        tasks[i] = b->tasks[i];
        tasks[i].section = &planned.sections[i];
        if (tasks[i].section_seconds > REHEARSAL_SECONDS)
            tasks[i].section_seconds = REHEARSAL_SECONDS;
    }
    int rc =
        kg_supervise(tasks, b->n_tasks, cores > 1 ? (unsigned)cores : 1, &watcher, error);
    if (rc == 0)
        rc = kg_battery_accept(b, &planned, error);
    kg_result_clear(&planned);
    free(tasks);
    return rc;
}

void kg_battery_clear(struct kg_battery *b)
{
    for (size_t i = 0; i < b->n_tasks; i++) {
        json_decref(b->tasks[i].order);
        free(b->tasks[i].log_path);
    }
    for (size_t s = 0; b->misses && s < b->result.n_sections; s++)
        json_decref(b->misses[s]);
    kg_result_clear(&b->result);
    free(b->tasks);
    free(b->misses);
    json_decref(b->artifacts);
    kg_models_free(b->models);
    kg_manifest_free(b->manifest);
    free(b->manifest_path);
    kg_paths_clear(&b->paths);
    memset(b, 0, sizeof *b);
}
