/* What each option does to struct kg_options; every value is checked here. */
#include <stdlib.h>
#include <string.h>

#include "runner/options.h"
#include "runner/options_table.h"
#include "runner/text.h"

enum { MAX_LIST = 1000, MAX_SHARDS = 1000, MAX_JOBS = 256, MAX_ORDINAL = 63 };

static int bad(struct kg_error *error, const char *option, const char *expected,
               const char *found)
{
    return kg_error_set(error, KG_E_INVALID, "%s: expected %s, found \"%.100s\"", option,
                        expected, found);
}

static int no_memory(struct kg_error *error)
{
    return kg_error_set(error, KG_E_MEMORY,
                        "out of memory, or an option given more than "
                        "%d times",
                        MAX_LIST);
}

/* The list with room for one more; NULL if memory is gone or the list is absurd. */
static void *grow(void *list, size_t n, size_t bytes)
{
    return n < MAX_LIST ? realloc(list, (n + 1) * bytes) : NULL;
}

static int add(char ***list, size_t *n, const char *text, size_t length,
               struct kg_error *error)
{
    char **larger = grow(*list, *n, sizeof *larger);
    if (!larger)
        return no_memory(error);
    *list = larger;
    (*list)[*n] = strndup(text, length);
    if (!(*list)[*n])
        return no_memory(error);
    ++*n;
    return 0;
}

/* "a,b": an empty item is a mistake on the command line, nothing in a variable. */
int kg_option_add_csv(char ***list, size_t *n, const char *text, const char *option,
                      bool lenient, struct kg_error *error)
{
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        if (length > 0)
            KG_TRY(add(list, n, p, length, error));
        else if (!lenient)
            return bad(error, option, "names separated by commas", text);
        p += length;
        if (*p == '\0')
            return 0;
    }
}

static int set_number(const char *option, const char *text, uint64_t min, uint64_t max,
                      uint64_t *value, struct kg_error *error)
{
    if (kg_text_u64(text, max, value) && *value >= min)
        return 0;
    return kg_error_set(error, KG_E_INVALID,
                        "%s: expected a number from %llu to %llu, found \"%.100s\"",
                        option, (unsigned long long)min, (unsigned long long)max, text);
}

static int set_seconds(const char *option, const char *text, double *seconds,
                       struct kg_error *error)
{
    if (kg_text_seconds(text, seconds))
        return 0;
    return bad(error, option, "a time such as 30s, 10m or 2h", text);
}

static int set_device(const char *text, struct kg_options *o, struct kg_error *error)
{
    uint64_t ordinal = 0;
    o->device_text = text;
    o->ordinal = 0;
    if (strcmp(text, "auto") == 0)
        o->device = KG_DEVICE_AUTO;
    else if (strcmp(text, "emu") == 0)
        o->device = KG_DEVICE_EMU;
    else if (strcmp(text, "cuda") == 0)
        o->device = KG_DEVICE_CUDA;
    else if (strncmp(text, "cuda:", 5) == 0 &&
             kg_text_u64(text + 5, MAX_ORDINAL, &ordinal))
        o->device = KG_DEVICE_CUDA;
    else
        return bad(error, "--device", "auto, emu, cuda or cuda:N", text);
    o->ordinal = (int)ordinal;
    return 0;
}

static int set_shard(const char *text, struct kg_options *o, struct kg_error *error)
{
    static const char expected[] = "I/N with 1 <= I <= N <= 1000";
    char part[8];
    uint64_t i, n;
    size_t length = strcspn(text, "/");
    if (text[length] != '/' || length >= sizeof part)
        return bad(error, "--shard", expected, text);
    memcpy(part, text, length);
    part[length] = '\0';
    if (!kg_text_u64(text + length + 1, MAX_SHARDS, &n) || n == 0 ||
        !kg_text_u64(part, n, &i) || i == 0)
        return bad(error, "--shard", expected, text);
    o->select.shard = (uint32_t)i;
    o->select.n_shards = (uint32_t)n;
    return 0;
}

static int add_param(const char *text, struct kg_options *o, struct kg_error *error)
{
    struct kg_param_override *larger = grow(o->params, o->n_params, sizeof *larger);
    if (!larger)
        return no_memory(error);
    o->params = larger;
    struct kg_param_override *p = &o->params[o->n_params];
    const char *equals = strchr(text, '=');
    const char *dot = memchr(text, '.', equals ? (size_t)(equals - text) : 0);
    if (!dot || equals[1] == '\0')
        return bad(error, "--param", "SECTION.KEY=VALUE", text);
    p->section = strndup(text, (size_t)(dot - text));
    p->key = strndup(dot + 1, (size_t)(equals - dot - 1));
    p->value = equals + 1;
    o->n_params++; /* from here on the options own them */
    if (!p->section || !p->key)
        return no_memory(error);
    if (!kg_text_is_name(p->section) || !kg_text_is_name(p->key))
        return bad(error, "--param", "SECTION.KEY=VALUE", text);
    return 0;
}

static int set_text(const char *option, const char *text, const char **value,
                    struct kg_error *error)
{
    if (*text == '\0')
        return kg_error_set(error, KG_E_INVALID, "%s: expected a value", option);
    *value = text;
    return 0;
}

static int add_plugin_dir(const char *text, struct kg_options *o, struct kg_error *error)
{
    const char **larger = grow(o->plugin_dirs, o->n_plugin_dirs, sizeof *larger);
    if (!larger)
        return no_memory(error);
    o->plugin_dirs = larger;
    KG_TRY(set_text("--plugin-dir", text, &o->plugin_dirs[o->n_plugin_dirs], error));
    o->n_plugin_dirs++;
    return 0;
}

int kg_option_apply(enum option_id id, const char *text, struct kg_options *o,
                    struct kg_error *error)
{
    struct kg_select *s = &o->select;
    uint64_t number = 0;
    switch (id) {
    case OPT_TAG:
        return kg_option_add_csv(&s->tags, &s->n_tags, text, "--tag", false, error);
    case OPT_ONLY:
        return kg_option_add_csv(&s->only, &s->n_only, text, "--only", false, error);
    case OPT_CELL:
        if (*text == '\0')
            return bad(error, "--cell", "a glob", text);
        return add(&s->cells, &s->n_cells, text, strlen(text), error);
    case OPT_FAST:
        s->fast = true;
        return 0;
    case OPT_SHARD:
        return set_shard(text, o, error);
    case OPT_PARAM:
        return add_param(text, o, error);
    case OPT_DEVICE:
        return set_device(text, o, error);
    case OPT_PROVIDER:
        return set_text("--provider", text, &o->provider, error);
    case OPT_AGAINST:
        return set_text("--against", text, &o->against, error);
    case OPT_PLUGIN_DIR:
        return add_plugin_dir(text, o, error);
    case OPT_MODEL:
        return set_text("--model", text, &o->model, error);
    case OPT_MODELS:
        return set_text("--models", text, &o->models_file, error);
    case OPT_SYNTHETIC_ACTIVATIONS:
        o->synthetic_activations = true;
        return 0;
    case OPT_JOBS:
        KG_TRY(set_number("--jobs", text, 1, MAX_JOBS, &number, error));
        o->jobs = (unsigned)number;
        return 0;
    case OPT_SEED: /* JSON numbers of the result are signed */
        o->has_seed = true;
        return set_number("--seed", text, 0, INT64_MAX, &o->seed, error);
    case OPT_SCHEDULE:
        return set_number("--schedule", text, 1, INT64_MAX, &o->schedule_seed, error);
    case OPT_LIMIT_CELL:
        return set_seconds("--limit-cell", text, &o->limit_cell, error);
    case OPT_LIMIT_SECTION:
        return set_seconds("--limit-section", text, &o->limit_section, error);
    case OPT_REQUIRE_COMPLETE:
        o->require_complete = true;
        return 0;
    case OPT_BENCH_WARM:
        o->bench_warm = true;
        /* fall through */
    case OPT_BENCH:
        o->bench = true;
        return 0;
    case OPT_TIMINGS:
        o->timings = true;
        return 0;
    case OPT_RESULTS:
        return set_text("--results", text, &o->results, error);
    case OPT_OUTPUT:
        return set_text("--output", text, &o->output, error);
    case OPT_CELLS:
        o->cells = true;
        return 0;
    case OPT_VERIFY:
        o->verify = true;
        return 0;
    case OPT_JSON:
        o->json = true;
        return 0;
    case OPT_QUIET:
        o->quiet = true;
        return 0;
    case OPT_VERBOSE:
        o->verbose = true;
        return 0;
    case OPT_NO_COLOR:
        o->no_color = true;
        return 0;
    case OPT_HELP:
        o->help_asked = true;
        return 0;
    }
    return 0;
}
