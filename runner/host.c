/*
 * The dialogue of a host process with its supervisor: job, plan, cells, bye.
 */
#include "runner/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/artifact.h"
#include "runner/bench/nvml.h"
#include "runner/cell.h"
#include "runner/child.h"

#define PLAN_CELLS_PER_EVENT 1000

/* ---- orders ---- */

struct orders {
    FILE *stream;
    char *line;
    size_t capacity;
};

/* The next line without its newline; its length, or -1 at the end. */
static ssize_t next_order(struct orders *orders)
{
    ssize_t n = getline(&orders->line, &orders->capacity, orders->stream);
    if (n > 0 && orders->line[n - 1] == '\n')
        orders->line[--n] = '\0';
    return n;
}

/* ---- events ---- */

static int send_error(struct kg_host *host, const char *code,
                      const struct kg_error *error)
{
    char line[1200];
    kg_error_line(error, line, sizeof line);
    fprintf(stderr, "kgate: %s\n", line);
    kg_event_write(host->event_fd, json_pack("{s:s, s:s, s:o}", "ev", "error", "code",
                                             code, "text", kg_event_text(line)));
    return KG_EXIT_SETUP;
}

/* The GPU's clocks, temperature, throttle reasons and error counts, where NVML knows. */
static void add_health(json_t *event)
{
    struct kg_gpu_state state = kg_nvml_state();
    if (state.available)
        json_object_set_new(event, "health", kg_gpu_state_json(&state));
}

/* `bench`: what was measured of the device, or NULL; stolen. */
static void send_device(struct kg_host *host, json_t *bench)
{
    const struct kg_device_info *d = &host->seat.device;
    const struct kg_provider *p = host->seat.provider;
    json_t *event = json_pack(
        "{s:s, s:o, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, "
        "s:{s:o, s:o, s:s}}",
        "ev", "device", "name", kg_event_text(d->name), "cc_major", (int)d->cc_major,
        "cc_minor", (int)d->cc_minor, "sm_count", (int)d->sm_count, "mem_total",
        (json_int_t)d->mem_total, "mem_free", (json_int_t)d->mem_free, "l2_bytes",
        (json_int_t)d->l2_bytes, "smem_per_block", (json_int_t)d->smem_per_block,
        "driver", kg_event_text(d->driver), "runtime", kg_event_text(d->runtime), "uuid",
        kg_event_text(d->uuid), "pci_bus_id", kg_event_text(d->pci_bus_id), "provider",
        "name", kg_event_text(p->name), "build_id", kg_event_text(p->build_id), "digest",
        host->seat.library.digest);
    if (bench)
        json_object_set_new(event, "bench", bench);
    const struct kg_seat *other = &host->other;
    if (other->provider)
        json_object_set_new(event, "against",
                            json_pack("{s:o, s:o, s:s, s:o}", "name",
                                      kg_event_text(other->provider->name), "build_id",
                                      kg_event_text(other->provider->build_id), "digest",
                                      other->library.digest, "device",
                                      kg_event_text(other->device.name)));
    add_health(event);
    kg_event_write(host->event_fd, event);
}

/* The ceilings and the state of the GPU around their measurement. */
static int calibrate(struct kg_host *host, json_t **bench, struct kg_error *error)
{
    struct kg_calibration found;
    *bench = NULL;
    if (!host->job.calibrate)
        return 0;
    struct kg_gpu_state before = kg_nvml_state();
    KG_TRY(kg_calibrate(host->seat.provider, &host->seat.device, host->seat.stream,
                        &found, error));
    struct kg_gpu_state after = kg_nvml_state();
    *bench = kg_calibration_json(&found);
    json_object_set_new(*bench, "gpu_before", kg_gpu_state_json(&before));
    json_object_set_new(*bench, "gpu_after", kg_gpu_state_json(&after));
    return 0;
}

static void send_plan(struct kg_host *host)
{
    const struct kg_plan *plan = &host->plan;
    for (size_t at = 0; at < plan->count;) {
        json_t *cells = json_array();
        for (size_t n = 0; n < PLAN_CELLS_PER_EVENT && at < plan->count; n++, at++) {
            const struct kg_plan_cell *cell = &plan->cells[at];
            json_array_append_new(
                cells, json_pack("{s:s, s:o, s:b, s:b}", "id", cell->id, "role",
                                 cell->role ? kg_event_text(cell->role) : json_null(),
                                 "ordered", (cell->flags & KG_CELL_ORDERED) != 0,
                                 "optional", (cell->flags & KG_CELL_OPTIONAL) != 0));
        }
        kg_event_write(host->event_fd, json_pack("{s:s, s:o, s:b}", "ev", "plan", "cells",
                                                 cells, "last", at == plan->count));
    }
}

/* ---- setting up ---- */

bool kg_host_has_role(const struct kg_host *host, const char *role)
{
    const struct kg_role *roles = host->section->roles;
    for (; roles != NULL && roles->name != NULL; roles++)
        if (strcmp(roles->name, role) == 0)
            return true;
    return false;
}

const struct kg_artifact *kg_host_artifact(const struct kg_host *host, const char *role)
{
    for (size_t i = 0; i < host->n_artifacts; i++)
        if (strcmp(host->artifacts[i].role, role) == 0)
            return host->artifacts[i].artifact;
    return NULL;
}

static int open_artifacts(struct kg_host *host, struct kg_error *error)
{
    const char *role;
    json_t *entry;
    size_t count = json_object_size(host->job.artifacts);
    if (host->job.no_artifacts || count == 0)
        return 0;
    host->artifacts = calloc(count, sizeof *host->artifacts);
    if (host->artifacts == NULL)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    json_object_foreach(host->job.artifacts, role, entry)
    {
        if (json_is_null(entry))
            continue;
        if (!kg_host_has_role(host, role))
            return kg_error_set(error, KG_E_INVALID,
                                "section %s has no role \"%s\" for an artifact",
                                host->section->name, role);
        const char *path = json_string_value(json_object_get(entry, "path"));
        const char *format = json_string_value(json_object_get(entry, "format"));
        bool synthetic = json_is_true(json_object_get(entry, "synthetic"));
        if (path == NULL || format == NULL)
            return kg_error_set(error, KG_E_FORMAT,
                                "job: artifact of role %s lacks a path or a format",
                                role);
        struct kg_host_artifact *a = &host->artifacts[host->n_artifacts];
        KG_TRY(kg_artifact_open(path, format, synthetic, &a->artifact, error));
        a->role = role;
        host->n_artifacts++;
    }
    return 0;
}

static int open_device(const struct kg_job *job, struct kg_seat *seat,
                       struct kg_error *error)
{
    const struct kg_device_ops *d = seat->provider->device;
    const char *name = seat->provider->name;
    int n_devices = 0;
    int rc = d->count(&n_devices);
    if (rc != 0)
        return kg_error_set(error, rc, "provider %s: no device: %s", name,
                            d->last_error());
    if (n_devices == 0)
        return kg_error_set(error, KG_E_UNSUPPORTED,
                            "provider %s: there is no device on this machine", name);
    if (job->ordinal >= n_devices)
        return kg_error_set(error, KG_E_INVALID,
                            "provider %s: no device %d, there are %d", name, job->ordinal,
                            n_devices);
    struct kg_open_options options = {
        .size = sizeof options,
        .ordinal = job->ordinal,
        .schedule_seed = job->schedule_seed,
        .host_threads = job->host_threads,
    };
    rc = d->open(&options);
    if (rc != 0)
        return kg_error_set(error, rc, "provider %s: device %d cannot be opened: %s",
                            name, job->ordinal, d->last_error());
    seat->device.size = sizeof seat->device;
    rc = d->info(&seat->device);
    if (rc == 0)
        rc = d->stream_create(&seat->stream);
    if (rc != 0)
        return kg_error_set(error, rc, "provider %s: device %d: %s", name, job->ordinal,
                            d->last_error());
    struct kg_device_info *info = &seat->device;
    info->name[sizeof info->name - 1] = '\0';
    info->driver[sizeof info->driver - 1] = '\0';
    info->runtime[sizeof info->runtime - 1] = '\0';
    info->uuid[sizeof info->uuid - 1] = '\0';
    info->pci_bus_id[sizeof info->pci_bus_id - 1] = '\0';
    return 0;
}

void kg_host_swap(struct kg_host *host)
{
    struct kg_seat working = host->seat;
    host->seat = host->other;
    host->other = working;
    host->swapped = !host->swapped;
}

/* Both providers live in this process: one that is loaded twice would be one device that is
   opened twice. */
static int open_other(struct kg_host *host, const char **code, struct kg_error *error)
{
    *code = "bad-provider";
    if (host->job.against == NULL)
        return 0;
    KG_TRY(kg_provider_load(&host->other.library, host->job.against,
                            &host->other.provider, error));
    if (host->other.provider == host->seat.provider)
        return kg_error_set(
            error, KG_E_INVALID,
            "--against %s is the file that is under test; compare a build "
            "with itself by means of a copy",
            host->job.against);
    *code = "no-device";
    return open_device(&host->job, &host->other, error);
}

/* The oracles' OpenMP runtime comes with the plugin and reads these when it is loaded.
   Passive: threads that wait must not take processors from the emulated device. */
static void limit_threads(int host_threads)
{
    char text[16];
    if (host_threads > 0) {
        snprintf(text, sizeof text, "%d", host_threads);
        setenv("OMP_NUM_THREADS", text, 1);
        setenv("OMP_THREAD_LIMIT", text, 1);
    }
    setenv("OMP_DYNAMIC", "false", 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
}

/* ---- running ---- */

/* Takes one line of orders into `ids`. True when it was the last. */
static bool take_order(const char *line, size_t length, json_t *ids,
                       struct kg_error *error)
{
    json_error_t why;
    json_t *order = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
    json_t *run = json_object_get(order, "run");
    bool go = json_is_true(json_object_get(order, "go"));
    if (run == NULL && !go)
        kg_error_set(error, KG_E_FORMAT, "an order that is neither run nor go");
    else if (run != NULL && json_array_extend(ids, run) != 0)
        kg_error_set(error, KG_E_FORMAT, "an order to run that is not a list");
    json_decref(order);
    return go;
}

static int run_cells(struct kg_host *host, struct orders *orders)
{
    struct kg_error error;
    kg_error_init(&error);
    json_t *ids = json_array();
    int rc = 0;
    for (bool go = false; !go;) {
        ssize_t n = next_order(orders);
        if (n < 0)
            kg_error_set(&error, KG_E_IO, "the orders ended before the word to go");
        else
            go = take_order(orders->line, (size_t)n, ids, &error);
        if (error.status != 0) {
            rc = send_error(host, "bad-job", &error);
            goto done;
        }
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        const struct kg_plan_cell *cell = id ? kg_plan_find(&host->plan, id) : NULL;
        if (cell == NULL) {
            kg_error_set(&error, KG_E_INVALID, "ordered to run \"%s\", which is no cell",
                         id ? id : "");
            rc = send_error(host, "bad-job", &error);
            goto done;
        }
        kg_cell_run(host, cell);
        if (host->device_lost) {
            rc = KG_EXIT_DEVICE_LOST;
            goto done;
        }
    }
done:
    json_decref(ids);
    return rc;
}

static void close_device(const struct kg_seat *seat)
{
    if (seat->provider == NULL)
        return;
    seat->provider->device->stream_destroy(seat->stream);
    seat->provider->device->close();
}

static int farewell(struct kg_host *host)
{
    close_device(&host->seat);
    close_device(&host->other);
    json_t *bye = json_pack("{s:s}", "ev", "bye");
    add_health(bye);
    kg_event_write(host->event_fd, bye);
    return 0;
}

static int serve(struct kg_host *host, struct orders *orders)
{
    struct kg_error error;
    kg_error_init(&error);
    ssize_t n = next_order(orders);
    if (n < 0 || kg_job_parse(&host->job, orders->line, (size_t)n, &error) != 0) {
        kg_error_set(&error, KG_E_IO, "no job came");
        return send_error(host, "bad-job", &error);
    }
    kg_event_write(host->event_fd,
                   json_pack("{s:s, s:i}", "ev", "hello", "protocol", KG_HOST_PROTOCOL));
    host->pr_shift = host->job.seeded ? kg_seed_shift(host->job.seed) : 0;
    limit_threads(host->job.host_threads);

    if (!host->job.probe_only &&
        kg_section_load(&host->section_library, host->job.plugin, host->job.section,
                        &host->section, &error) != 0)
        return send_error(host, "bad-plugin", &error);
    if (!host->job.probe_only &&
        kg_section_accept(host->section, host->job.asked, &error) != 0)
        return send_error(host, "bad-manifest", &error);
    if (!host->job.plan_only) {
        const char *code;
        if (kg_provider_load(&host->seat.library, host->job.provider,
                             &host->seat.provider, &error) != 0)
            return send_error(host, "bad-provider", &error);
        if (open_device(&host->job, &host->seat, &error) != 0)
            return send_error(host, "no-device", &error);
        if (open_other(host, &code, &error) != 0)
            return send_error(host, code, &error);
        kg_nvml_open(host->seat.device.pci_bus_id);
        json_t *bench;
        if (calibrate(host, &bench, &error) != 0)
            return send_error(host, "no-bench", &error);
        send_device(host, bench);
    }
    if (host->job.probe_only)
        return farewell(host);
    if (open_artifacts(host, &error) != 0)
        return send_error(host, "bad-artifact", &error);
    if (kg_plan_make(&host->plan, host, &error) != 0)
        return send_error(host, "bad-plan", &error);
    send_plan(host);

    int rc = host->job.plan_only ? 0 : run_cells(host, orders);
    return rc != 0 ? rc : farewell(host);
}

int kg_host_serve(int order_fd, int event_fd)
{
    struct kg_host *host = calloc(1, sizeof *host);
    struct orders orders = {.stream = fdopen(order_fd, "r")};
    if (host == NULL || orders.stream == NULL)
        return 1;
    host->event_fd = event_fd;
    int rc = serve(host, &orders);
    if (rc == KG_EXIT_DEVICE_LOST) {
        /* Nothing may touch the device again, exit handlers of its runtime included. */
        fflush(NULL);
        _exit(rc);
    }
    kg_plan_free(&host->plan);
    for (size_t i = 0; i < host->n_artifacts; i++)
        kg_artifact_close(host->artifacts[i].artifact);
    free(host->artifacts);
    kg_job_free(&host->job);
    fclose(orders.stream);
    free(orders.line);
    free(host);
    return rc;
}

/* Moves a descriptor out of the way of code that writes to small numbers, and keeps it
   from programs that a plugin starts. */
static int hide(int fd)
{
    int hidden = fcntl(fd, F_DUPFD_CLOEXEC, 200);
    if (hidden < 0)
        hidden = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    if (hidden >= 0)
        close(fd);
    return hidden;
}

int kg_host_main(void)
{
    signal(SIGPIPE, SIG_IGN);
    /* The log shows what was printed before a crash. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    int events = hide(KG_FD_EVENTS);
    int orders = hide(KG_FD_ORDERS);
    if (events < 0 || orders < 0) {
        fputs("kgate: __host is started by kgate run, not by hand\n", stderr);
        return 1;
    }
    return kg_host_serve(orders, events);
}
