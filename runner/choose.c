#include "runner/choose.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/escape.h"
#include "runner/lock.h"
#include "runner/supervisor.h"

#define PROBE_SECONDS 120.0 /* a driver that has to wake up its GPUs */

/* Opens the device in a host of its own, and measures its ceilings for --bench. Sets
   choice->facts, or `error`. */
static int probe(struct kg_choice *choice, const char *provider, bool calibrate,
                 struct kg_error *error)
{
    struct kg_result_section section = {.name = (char *)"probe"};
    struct kg_task task = {
        .mode = KG_TASK_PROBE,
        .order = json_pack("{s:s, s:s, s:i, s:b}", "mode", "probe", "provider", provider,
                           "ordinal", choice->ordinal, "calibrate", (int)calibrate),
        .section = &section,
        .cell_seconds = PROBE_SECONDS,
        .section_seconds = PROBE_SECONDS,
    };
    int rc = kg_supervise(&task, 1, 1, NULL, error);
    if (rc > 0) {
        choice->interrupted = rc;
        rc = 0;
    } else if (rc == 0 && section.status != KG_SECTION_OK) {
        rc = kg_error_set(error, KG_E_UNSUPPORTED, "%s",
                          section.detail ? section.detail : "the device does not answer");
    }
    json_decref(choice->facts);
    choice->facts = section.device;
    json_decref(task.order);
    free(section.reason);
    free(section.detail);
    free(section.log_tail);
    return rc;
}

static int refuse_bench(const struct kg_choice *choice, struct kg_error *error)
{
    return kg_error_set(
        error, KG_E_UNSUPPORTED,
        "--bench needs a GPU: times on the emulated device mean nothing%s%s%s",
        choice->note ? " (" : "", choice->note ? choice->note : "",
        choice->note ? ")" : "");
}

static int use_emu(struct kg_choice *choice, const struct kg_paths *paths,
                   struct kg_error *error)
{
    if (choice->bench)
        return refuse_bench(choice, error);
    choice->device = kg_xstrdup("emu");
    choice->ordinal = 0;
    return kg_paths_provider(paths, "emu", &choice->provider, error);
}

static void unlock(struct kg_choice *choice)
{
    if (choice->lock >= 0)
        close(choice->lock);
    choice->lock = -1;
}

/* The lock comes first: a probe measures, and must not disturb a run that does. */
static int use_gpu(struct kg_choice *choice, struct kg_error *error)
{
    KG_TRY(kg_lock_device(choice->ordinal, &choice->lock, error));
    choice->device = kg_format("cuda:%d", choice->ordinal);
    return probe(choice, choice->provider, choice->bench, error);
}

static int use_auto(struct kg_choice *choice, const struct kg_paths *paths,
                    struct kg_error *error)
{
    struct kg_error why;
    kg_error_init(&why);
    if (kg_paths_provider(paths, "cuda", &choice->provider, &why) == 0) {
        KG_TRY(kg_lock_device(choice->ordinal, &choice->lock, error));
        if (probe(choice, choice->provider, choice->bench, &why) == 0) {
            choice->device = kg_format("cuda:%d", choice->ordinal);
            return 0;
        }
        unlock(choice);
    }
    char line[1200];
    choice->note =
        kg_format("no GPU is used: %s", kg_error_line(&why, line, sizeof line));
    free(choice->provider);
    choice->provider = NULL;
    return use_emu(choice, paths, error);
}

/* Ceilings are the device's: kgate's own provider measures them, so that somebody's own needs
   no kernels for that. */
static int calibrate(struct kg_choice *choice, const struct kg_paths *paths,
                     struct kg_error *error)
{
    struct kg_error why;
    char *own = NULL;
    kg_error_init(&why);
    json_t *facts = json_incref(choice->facts);
    kg_paths_provider(paths, "cuda", &own, &why);
    int rc = probe(choice, own ? own : choice->provider, true, error);
    json_t *bench = json_incref(json_object_get(choice->facts, "bench"));
    json_decref(choice->facts);
    choice->facts = facts;
    if (bench)
        json_object_set_new(facts, "bench", bench);
    free(own);
    return rc;
}

/* Somebody's own provider: only its device can tell whether it is a GPU. */
static int use_named(struct kg_choice *choice, const char *file,
                     const struct kg_paths *paths, struct kg_error *error)
{
    KG_TRY(kg_paths_named_provider("--provider", file, &choice->provider, error));
    KG_TRY(kg_lock_device(choice->ordinal, &choice->lock, error));
    choice->device = kg_format("cuda:%d", choice->ordinal);
    KG_TRY(probe(choice, choice->provider, false, error));
    /* The emulated device has no compute capability, a GPU always has one. */
    if (json_integer_value(json_object_get(choice->facts, "cc_major")) > 0)
        return choice->bench && !choice->interrupted ? calibrate(choice, paths, error)
                                                     : 0;
    unlock(choice);
    if (choice->bench)
        return refuse_bench(choice, error);
    free(choice->device);
    choice->device = kg_xstrdup("emu");
    return 0;
}

int kg_choose(struct kg_choice *choice, const struct kg_options *options,
              const struct kg_paths *paths, struct kg_error *error)
{
    memset(choice, 0, sizeof *choice);
    choice->lock = -1;
    choice->ordinal = options->ordinal;
    choice->bench = options->bench;
    if (options->against)
        KG_TRY(kg_paths_named_provider("--against", options->against, &choice->against,
                                       error));
    if (options->provider)
        return use_named(choice, options->provider, paths, error);
    switch (options->device) {
    case KG_DEVICE_EMU:
        return use_emu(choice, paths, error);
    case KG_DEVICE_CUDA:
        KG_TRY(kg_paths_provider(paths, "cuda", &choice->provider, error));
        return use_gpu(choice, error);
    case KG_DEVICE_AUTO:
        break;
    }
    return use_auto(choice, paths, error);
}

void kg_choice_clear(struct kg_choice *choice)
{
    free(choice->provider);
    free(choice->against);
    free(choice->device);
    free(choice->note);
    json_decref(choice->facts);
    unlock(choice);
}
