#include "tests/host/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/cell.h"

struct fake fake;

static int fake_count(int *n_devices)
{
    *n_devices = 1;
    return 0;
}

static int fake_open(const struct kg_open_options *options)
{
    return options->ordinal == 0 ? 0 : KG_E_INVALID;
}

static void fake_close(void)
{
}

static int fake_info(struct kg_device_info *info)
{
    snprintf(info->name, sizeof info->name, "fake");
    return 0;
}

static int status(void)
{
    fake.calls_after_fault += fake.faulted;
    return 0;
}

static int fake_alloc(void **pointer, size_t bytes)
{
    if (fake.alloc_status != 0)
        return fake.alloc_status;
    *pointer = aligned_alloc(256, (bytes + 255) / 256 * 256);
    fake.last = *pointer;
    fake.live += fake.last != NULL;
    return *pointer ? status() : KG_E_MEMORY;
}

static int fake_release(void *pointer)
{
    free(pointer);
    fake.live--;
    return status();
}

static int fake_move(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return status();
}

static int fake_fill(void *device, uint8_t byte, size_t bytes)
{
    memset(device, byte, bytes);
    return status();
}

static int fake_stream_create(struct CUstream_st **stream)
{
    *stream = NULL;
    return status();
}

static int fake_stream_destroy(struct CUstream_st *stream)
{
    (void)stream;
    return status();
}

static int fake_sync(struct CUstream_st *stream)
{
    (void)stream;
    status();
    fake.faulted = fake.faulted || fake.sync_status == KG_E_DEVICE;
    return fake.sync_status;
}

static const char *fake_last_error(void)
{
    return fake.faulted ? "an illegal memory access was encountered" : "";
}

static const struct kg_device_ops device = {
    .size = sizeof device,
    .count = fake_count,
    .open = fake_open,
    .close = fake_close,
    .info = fake_info,
    .alloc = fake_alloc,
    .release = fake_release,
    .upload = fake_move,
    .download = fake_move,
    .copy = fake_move,
    .fill = fake_fill,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .sync = fake_sync,
    .last_error = fake_last_error,
};

static int fake_dequantize(int type, const void *src, float *dst, int64_t n,
                           struct CUstream_st *stream)
{
    (void)type;
    (void)stream;
    memcpy(dst, src, (size_t)n * sizeof *dst);
    return 0;
}

static int fake_stage_b(int type, const void *w, const int8_t *q, const float *d,
                        const float *s, float *y, int64_t in, int64_t out, int64_t m,
                        struct CUstream_st *stream)
{
    (void)type, (void)w, (void)q, (void)d, (void)s, (void)y, (void)in, (void)out, (void)m;
    (void)stream;
    abort(); /* nobody may read past the end of the table */
}

/* Short on purpose: it says that it ends before stage_b. quantize_q8_1 is NULL. */
static const struct kg_matvec_ops matvec = {
    .size = offsetof(struct kg_matvec_ops, stage_b),
    .dequantize = fake_dequantize,
    .stage_b = fake_stage_b,
};

const struct kg_provider fake_provider = {
    .abi = KG_PROVIDER_ABI,
    .size = sizeof fake_provider,
    .name = "fake",
    .build_id = "1",
    .device = &device,
    .matvec = &matvec,
};

#ifdef FAKE_PROVIDER_LIBRARY
const struct kg_provider kgate_provider = {
    .abi = KG_PROVIDER_ABI,
    .size = sizeof kgate_provider,
    .name = "fake",
    .build_id = "1",
    .device = &device,
    .matvec = &matvec,
};
#else

static const struct kg_role roles[] = {
    {"model", "gguf", "a model"},
    {NULL,    NULL,   NULL     }
};
static const struct kg_section section = {
    .abi = KG_SECTION_ABI, .size = sizeof section, .name = "t", .roles = roles};

struct outcome run_cell_as(const struct kg_plan_cell *plan, const struct kg_job *job)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    struct kg_host host = {.event_fd = fileno(file),
                           .section = &section,
                           .seat = {.provider = &fake_provider},
                           .job = *job,
                           .pr_shift = job->seeded ? kg_seed_shift(job->seed) : 0};
    kg_cell_run(&host, plan);

    struct outcome outcome = {.events = json_array(), .device_lost = host.device_lost};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    enum kg_event_kind last = KG_EVENT_BYE;
    rewind(file);
    while ((n = getline(&line, &capacity, file)) > 0) {
        struct kg_event event;
        char fault[200];
        if (!kg_event_parse(line, (size_t)n - 1, &event, fault, sizeof fault))
            fail_msg("%s in %s", fault, line);
        json_array_append(outcome.events, event.json);
        last = event.kind;
        kg_event_clear(&event);
    }
    free(line);
    fclose(file);
    size_t count = json_array_size(outcome.events);
    assert_true(count >= 2);
    outcome.done = json_array_get(outcome.events, count - 1);
    assert_int_equal(last, KG_EVENT_DONE);
    return outcome;
}

struct outcome run_cell(kg_cell_fn *run, const void *row)
{
    const struct kg_plan_cell plan = {.id = "t.cell", .run = run, .row = row};
    const struct kg_job job = {.plan_only = false};
    return run_cell_as(&plan, &job);
}

void free_outcome(struct outcome *outcome)
{
    json_decref(outcome->events);
}

void assert_outcome(kg_cell_fn *run, const char *verdict, const char *reason,
                    const char *detail)
{
    memset(&fake, 0, sizeof fake);
    struct outcome o = run_cell(run, NULL);
    assert_string_equal(json_string_value(json_object_get(o.done, "verdict")), verdict);
    assert_string_equal(json_string_value(json_object_get(o.done, "reason")), reason);
    const char *text = json_string_value(json_object_get(o.done, "detail"));
    if (strstr(text, detail) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", detail, text);
    assert_int_equal(fake.live, 0);
    free_outcome(&o);
}

json_t *check_named(const struct outcome *outcome, const char *name)
{
    for (size_t i = 0; i < json_array_size(outcome->events); i++) {
        json_t *event = json_array_get(outcome->events, i);
        const char *seen = json_string_value(json_object_get(event, "name"));
        if (seen != NULL && strcmp(seen, name) == 0)
            return event;
    }
    fail_msg("no check is called %s", name);
    return NULL;
}
#endif
