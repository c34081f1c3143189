#include <stdlib.h>
#include <string.h>

#include "runner/host.h"

static int wrong(struct kg_error *error, const char *what)
{
    return kg_error_set(error, KG_E_FORMAT, "job: %s", what);
}

/* An absent key, a null and a string are fine; anything else is not. */
static int get_string(const json_t *json, const char *key, const char **value,
                      struct kg_error *error)
{
    json_t *item = json_object_get(json, key);
    *value = json_string_value(item);
    if (item == NULL || json_is_null(item) || *value != NULL)
        return 0;
    return kg_error_set(error, KG_E_FORMAT, "job: \"%s\" is not a string", key);
}

static int get_integer(const json_t *json, const char *key, json_int_t low,
                       json_int_t high, json_int_t *value, struct kg_error *error)
{
    json_t *item = json_object_get(json, key);
    *value = 0;
    if (item == NULL || json_is_null(item))
        return 0;
    *value = json_integer_value(item);
    if (!json_is_integer(item) || *value < low || *value > high)
        return kg_error_set(error, KG_E_FORMAT, "job: \"%s\" is not an integer in range",
                            key);
    return 0;
}

static int get_table(const json_t *json, const char *key, json_t **value,
                     struct kg_error *error)
{
    *value = json_object_get(json, key);
    if (*value == NULL || json_is_null(*value)) {
        *value = NULL;
        return 0;
    }
    if (!json_is_object(*value))
        return kg_error_set(error, KG_E_FORMAT, "job: \"%s\" is not an object", key);
    return 0;
}

int kg_job_parse(struct kg_job *job, const char *line, size_t length,
                 struct kg_error *error)
{
    memset(job, 0, sizeof *job);
    json_error_t why;
    json_t *json = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(json)) {
        json_decref(json);
        return wrong(error, "not a JSON object");
    }
    job->json = json;

    const char *mode = NULL;
    KG_TRY(get_string(json, "mode", &mode, error));
    if (mode == NULL || (strcmp(mode, "run") != 0 && strcmp(mode, "plan") != 0 &&
                         strcmp(mode, "probe") != 0))
        return wrong(error, "\"mode\" is none of run, plan, probe");
    job->plan_only = strcmp(mode, "plan") == 0;
    job->probe_only = strcmp(mode, "probe") == 0;

    KG_TRY(get_string(json, "section", &job->section, error));
    KG_TRY(get_string(json, "plugin", &job->plugin, error));
    KG_TRY(get_string(json, "provider", &job->provider, error));
    KG_TRY(get_string(json, "against", &job->against, error));
    if (job->plugin == NULL && !job->probe_only)
        return wrong(error, "no \"plugin\"");
    if (job->provider == NULL && !job->plan_only)
        return wrong(error, "no \"provider\"");

    json_int_t number = 0;
    KG_TRY(get_integer(json, "ordinal", 0, 1023, &number, error));
    job->ordinal = (int)number;
    KG_TRY(get_integer(json, "host_threads", 0, 4096, &number, error));
    job->host_threads = (int)number;
    /* 64-bit seeds above INT64_MAX travel as the negative number of the same bits. */
    KG_TRY(get_integer(json, "schedule_seed", INT64_MIN, INT64_MAX, &number, error));
    job->schedule_seed = (uint64_t)number;
    KG_TRY(get_integer(json, "seed", INT64_MIN, INT64_MAX, &number, error));
    job->seed = (uint64_t)number;
    job->seeded = json_is_integer(json_object_get(json, "seed"));
    job->no_artifacts = json_is_true(json_object_get(json, "no_artifacts"));
    KG_TRY(get_table(json, "artifacts", &job->artifacts, error));
    KG_TRY(get_table(json, "params", &job->params, error));
    KG_TRY(get_table(json, "asked", &job->asked, error));

    job->calibrate = json_is_true(json_object_get(json, "calibrate"));
    json_t *bench = json_object_get(json, "bench");
    if (kg_bench_job_read(bench, &job->bench) != 0)
        return wrong(error, "\"bench\" is malformed");
    return 0;
}

void kg_job_free(struct kg_job *job)
{
    json_decref(job->json);
    memset(job, 0, sizeof *job);
}
