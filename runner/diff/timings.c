/* The one place that knows how a cell's timings are written. */
#include <math.h>
#include <string.h>

#include "runner/diff/cells.h"

#define AT(member) offsetof(struct kg_record_timing, member)

enum { MAX_ARMS = 256, MAX_SAMPLES = 16384 };

static void read_samples(struct kg_scan *s, void *timing, void *record)
{
    static double some[MAX_SAMPLES];
    struct kg_record_timing *t = timing;
    size_t n = 0;
    if (!kg_scan_array(s))
        return;
    while (kg_scan_element(s)) {
        if (n == MAX_SAMPLES) {
            kg_scan_fail(s, "more than %d samples of one arm", MAX_SAMPLES);
            return;
        }
        kg_scan_real(s, &some[n]);
        n += isfinite(some[n]) && some[n] >= 0;
    }
    t->n_samples = n;
    t->samples_us = kg_record_keep(record, some, n * sizeof *some);
}

static void read_interval(struct kg_scan *s, void *timing, void *record)
{
    struct kg_record_timing *t = timing;
    size_t n = 0;
    (void)record;
    if (kg_scan_null(s) || !kg_scan_array(s))
        return;
    while (kg_scan_element(s)) {
        double v;
        kg_scan_real(s, &v);
        if (n < 2)
            t->ci95_us[n++] = v;
    }
}

/* A policy's version is a number or a word; either is kept as its text. */
static void read_version(struct kg_scan *s, void *timing, void *record)
{
    struct kg_record_timing *t = timing;
    const char *begin;
    size_t size;
    if (kg_scan_peek(s) == KG_JSON_STRING)
        kg_scan_string(s, &t->policy_version);
    else if (kg_scan_skip(s, &begin, &size))
        t->policy_version =
            kg_arena_copy(&((struct kg_record *)record)->arena, begin, size);
}

/* Series are told apart by the key where they do not say it: "ARM" and "ARM@warm". */
static void name_series(struct kg_record_timing *t)
{
    const char *at = strrchr(t->arm, '@');
    if (!t->series)
        t->series = at && strcmp(at, "@warm") == 0 ? "warm" : "cold";
}

static void read_gpu(struct kg_scan *s, void *timing, void *record)
{
    static const struct kg_scan_field fields[] = {
        {"sm_mhz",  KG_SCAN_REAL, AT(sm_mhz),  NULL},
        {"mem_mhz", KG_SCAN_REAL, AT(mem_mhz), NULL},
        {NULL,      KG_SCAN_BY,   0,           NULL},
    };
    if (!kg_scan_null(s))
        kg_scan_fields(s, fields, timing, record);
}

static const struct kg_scan_field fields_of_arm[] = {
    {"policy",           KG_SCAN_STRING_OR_NULL, AT(policy),           NULL         },
    {"policy_version",   KG_SCAN_BY,             0,                    read_version },
    {"series",           KG_SCAN_STRING_OR_NULL, AT(series),           NULL         },
    {"engine",           KG_SCAN_STRING_OR_NULL, AT(engine),           NULL         },
    {"samples_us",       KG_SCAN_BY,             0,                    read_samples },
    {"median_us",        KG_SCAN_REAL,           AT(median_us),        NULL         },
    {"mad_us",           KG_SCAN_REAL,           AT(mad_us),           NULL         },
    {"ci95_us",          KG_SCAN_BY,             0,                    read_interval},
    {"gbps",             KG_SCAN_REAL,           AT(gbps),             NULL         },
    {"tflops",           KG_SCAN_REAL,           AT(tflops),           NULL         },
    {"gpu_after",        KG_SCAN_BY,             0,                    read_gpu     },
    {"throttled",        KG_SCAN_BOOL,           AT(throttled),        NULL         },
    {"invalid",          KG_SCAN_BOOL,           AT(invalid),          NULL         },
    {"roofline_percent", KG_SCAN_REAL,           AT(roofline_percent), NULL         },
    {NULL,               KG_SCAN_BY,             0,                    NULL         },
};

void kg_record_read_timings(struct kg_scan *s, void *cell, void *record)
{
    static struct kg_record_timing some[MAX_ARMS];
    struct kg_record_cell *c = cell;
    size_t n = 0;
    const char *arm;
    if (kg_scan_null(s) || !kg_scan_object(s))
        return;
    while (kg_scan_member(s, &arm)) {
        if (n == MAX_ARMS) {
            kg_scan_fail(s, "timings of more than %d arms in a cell", MAX_ARMS);
            return;
        }
        some[n] = (struct kg_record_timing){
            .arm = arm,
            .median_us = NAN,
            .mad_us = NAN,
            .ci95_us = {NAN, NAN},
            .gbps = NAN,
            .tflops = NAN,
            .roofline_percent = NAN
        };
        kg_scan_fields(s, fields_of_arm, &some[n], record);
        name_series(&some[n++]);
    }
    c->n_timings = n;
    c->timings = kg_record_keep(record, some, n * sizeof *some);
}
