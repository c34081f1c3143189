#include "runner/diff/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fact {
    const char *label;
    const char *path; /* in "run", dots between; alternatives after '|' */
    unsigned cause;
    bool environment;
};

static const struct fact facts[KG_N_FACTS] = {
    [KG_FACT_COMMIT] = {"commit",                 "git.commit|commit",                   0,                  false},
    [KG_FACT_DIRTY] = {"uncommitted changes",    "git.dirty|dirty",                     0,                  false},
    [KG_FACT_STARTED] = {"started",                "started|time.started",                0,                  false},
    [KG_FACT_KGATE] = {"kgate version",          "kgate.version|kgate|version",         KG_CAUSE_RUNNER,
                        true                                                                                      },
    [KG_FACT_MANIFEST] = {"manifest",               "manifest.name|manifest.path",         0,                  true },
    [KG_FACT_MANIFEST_DIGEST] = {"manifest digest",        "manifest.digest",                     0,                  true },
    [KG_FACT_SELECTION] = {"selection",              "selection.text|selection",            KG_CAUSE_SELECTION,
                        true                                                                                      },
    [KG_FACT_SEED] = {"seed",                   "seed",                                KG_CAUSE_SEED,      true },
    [KG_FACT_SCHEDULE] = {"schedule seed",          "schedule_seed|schedule",              KG_CAUSE_SEED,      true },
    [KG_FACT_PROVIDER] = {"provider",               "provider.name",                       KG_CAUSE_DEVICE,    true },
    [KG_FACT_PROVIDER_BUILD] = {"provider build",         "provider.build_id",                   0,                  true },
    [KG_FACT_PROVIDER_DIGEST] = {"provider digest",        "provider.digest",                     KG_CAUSE_KERNEL,
                        true                                                                                      },
    [KG_FACT_AGAINST_DIGEST] = {"--against digest",       "against.digest",                      0,                  true },
    [KG_FACT_HOST] = {"host",                   "host.name|host",                      0,                  true },
    [KG_FACT_CPU] = {"CPU",                    "host.cpu|cpu.model|cpu",              0,                  true },
    [KG_FACT_DEVICE] = {"device",                 "device.name|gpu.name",                KG_CAUSE_DEVICE,    true },
    [KG_FACT_DEVICE_CC] = {"compute capability",     "device.compute_capability|device.cc",
                        KG_CAUSE_DEVICE,                                                                     true },
    [KG_FACT_DRIVER] = {"GPU driver",             "device.driver|gpu.driver|driver",     KG_CAUSE_DRIVER,
                        true                                                                                      },
    [KG_FACT_CUDA] = {"CUDA",                   "device.cuda|gpu.cuda|cuda",           KG_CAUSE_DRIVER,    true },
    [KG_FACT_SM_CLOCK] = {"SM clock (MHz)",         "bench.clocks.sm_mhz",                 0,                  true },
    [KG_FACT_MEM_CLOCK] = {"memory clock (MHz)",     "bench.clocks.mem_mhz",                0,                  true },
    [KG_FACT_POWER_LIMIT] = {"power limit (W)",        "bench.power_limit_w",                 0,                  true },
    [KG_FACT_ECC] = {"ECC",                    "device.ecc|gpu.ecc",                  0,                  true },
    [KG_FACT_TIMING_POLICY] = {"timing policy",          "bench.policy.name",                   0,                  true },
    [KG_FACT_TIMING_VERSION] = {"timing policy version",  "bench.policy.version",                0,                  true },
    [KG_FACT_NOISE] = {"noise floor (relative)", "bench.noise_floor.relative",          0,                  false},
    [KG_FACT_COPY] = {"copy ceiling (GB/s)",    "bench.ceilings.copy_gbps",            0,                  false},
    [KG_FACT_READ] = {"read ceiling (GB/s)",    "bench.ceilings.read_gbps",            0,                  false},
    [KG_FACT_F16] = {"f16 ceiling (TFLOP/s)",  "bench.ceilings.f16_tflops",           0,                  false},
    [KG_FACT_INT8] = {"int8 ceiling (TOP/s)",   "bench.ceilings.int8_tops",            0,                  false},
    [KG_FACT_SYNTHETIC] = {"synthetic artifacts",    "synthetic",                           KG_CAUSE_ARTIFACT,  true },
    [KG_FACT_INTERRUPTED] = {"interrupted",            "interrupted",                         KG_CAUSE_SELECTION, true },
};

const char *kg_fact_label(enum kg_fact fact)
{
    return facts[fact].label;
}

unsigned kg_fact_cause(enum kg_fact fact)
{
    return facts[fact].cause;
}

bool kg_fact_is_environment(enum kg_fact fact)
{
    return facts[fact].environment;
}

/* The value at one dotted path of `length` bytes. */
static const json_t *at_path(const json_t *json, const char *path, size_t length)
{
    while (json && length > 0) {
        const char *dot = memchr(path, '.', length);
        size_t n = dot ? (size_t)(dot - path) : length;
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        json = json_object_get(json, key);
        path += n + (dot != NULL);
        length -= n + (dot != NULL);
    }
    return json;
}

static const json_t *lookup(const struct kg_record *record, const char *paths)
{
    for (;;) {
        size_t n = strcspn(paths, "|");
        const json_t *json = at_path(record->run, paths, n);
        if (json && !json_is_null(json) && !json_is_object(json))
            return json;
        if (!paths[n])
            return NULL;
        paths += n + 1;
    }
}

const char *kg_fact(struct kg_record *record, enum kg_fact fact)
{
    const json_t *json = lookup(record, facts[fact].path);
    if (!json)
        return NULL;
    if (json_is_string(json))
        return *json_string_value(json) ? json_string_value(json) : NULL;
    if (json_is_true(json))
        return "yes";
    if (json_is_false(json))
        return "no";
    char *dump =
        json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!dump)
        return NULL;
    const char *text = kg_arena_copy(&record->arena, dump, strlen(dump));
    free(dump);
    return text;
}

bool kg_fact_differs(struct kg_record *base, struct kg_record *head, enum kg_fact fact)
{
    const char *a = kg_fact(base, fact), *b = kg_fact(head, fact);
    return a && b ? strcmp(a, b) != 0 : a != b;
}

static const char *const cause_names[] = {"kernel",    "section", "bound", "artifact",
                                          "driver",    "device",  "seed",  "parameters",
                                          "selection", "runner"};

const char *kg_cause_name(unsigned cause)
{
    for (size_t i = 0; i < sizeof cause_names / sizeof cause_names[0]; i++)
        if (cause == 1u << i)
            return cause_names[i];
    return "?";
}

const char *kg_cause_text(unsigned causes, char *buffer, size_t size)
{
    size_t at = 0;
    snprintf(buffer, size, "%s", causes ? "" : "not explained");
    for (size_t i = 0; i < sizeof cause_names / sizeof cause_names[0]; i++)
        if (causes & 1u << i && at < size)
            at += (size_t)snprintf(buffer + at, size - at, "%s%s", at ? ", " : "",
                                   cause_names[i]);
    return buffer;
}

double kg_fact_noise_floor(const struct kg_record *record)
{
    static const char path[] = "bench.noise_floor.relative";
    const json_t *json = at_path(record->run, path, strlen(path));
    return json_is_number(json) ? json_number_value(json) : (double)NAN;
}

/* Clocks wander a little even when they are locked. */
static bool far_apart(const char *a, const char *b, double relative)
{
    if (!a || !b)
        return a != b;
    double x = strtod(a, NULL), y = strtod(b, NULL);
    return !(fabs(x - y) <= relative * fmax(fabs(x), fabs(y)));
}

const char *kg_fact_times_refused(struct kg_record *base, struct kg_record *head,
                                  char *buffer, size_t size)
{
    static const enum kg_fact same[] = {KG_FACT_PROVIDER, KG_FACT_DEVICE, KG_FACT_DRIVER,
                                        KG_FACT_CUDA, KG_FACT_ECC};
    static const enum kg_fact near[] = {KG_FACT_SM_CLOCK, KG_FACT_MEM_CLOCK,
                                        KG_FACT_POWER_LIMIT};
    enum kg_fact hit = KG_N_FACTS;
    for (size_t i = 0; i < sizeof same / sizeof same[0] && hit == KG_N_FACTS; i++)
        if (kg_fact_differs(base, head, same[i]))
            hit = same[i];
    for (size_t i = 0; i < sizeof near / sizeof near[0] && hit == KG_N_FACTS; i++)
        if (far_apart(kg_fact(base, near[i]), kg_fact(head, near[i]), 0.02))
            hit = near[i];
    /* Without a device of its own the CPU is what was timed. */
    if (hit == KG_N_FACTS && !kg_fact(base, KG_FACT_DRIVER)) {
        if (kg_fact_differs(base, head, KG_FACT_CPU))
            hit = KG_FACT_CPU;
        else if (kg_fact_differs(base, head, KG_FACT_HOST))
            hit = KG_FACT_HOST;
    }
    if (hit == KG_N_FACTS)
        return NULL;
    const char *a = kg_fact(base, hit), *b = kg_fact(head, hit);
    snprintf(buffer, size, "%s differs: %s -> %s", facts[hit].label,
             a ? a : "not recorded", b ? b : "not recorded");
    return buffer;
}
