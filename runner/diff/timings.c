/* The one place that knows how a cell's timings are written. */
#include <math.h>
#include <string.h>

#include "runner/diff/cells.h"

enum { MAX_ARMS = 256, MAX_SAMPLES = 16384 };

static bool is(const char *key, const char *name)
{
    return strcmp(key, name) == 0;
}

static void read_samples(struct kg_scan *s, struct kg_record *r,
                         struct kg_record_timing *t)
{
    static double some[MAX_SAMPLES];
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
    t->samples_us = kg_record_keep(r, some, n * sizeof *some);
}

static void read_pair(struct kg_scan *s, double pair[2])
{
    size_t n = 0;
    if (kg_scan_peek(s) == KG_JSON_NULL) {
        kg_scan_skip(s, NULL, NULL);
        return;
    }
    if (!kg_scan_array(s))
        return;
    while (kg_scan_element(s)) {
        double v;
        kg_scan_real(s, &v);
        if (n < 2)
            pair[n++] = v;
    }
}

/* A policy's version is a number or a word; either is kept as its text. */
static void read_version(struct kg_scan *s, struct kg_record *r, const char **out)
{
    const char *begin;
    size_t size;
    if (kg_scan_peek(s) == KG_JSON_STRING) {
        kg_scan_string(s, out);
    } else if (kg_scan_skip(s, &begin, &size)) {
        char *copy = kg_arena_copy(&r->arena, begin, size);
        *out = copy;
    }
}

/* Series are told apart by the key where they do not say it: "ARM" and "ARM@warm". */
static void name_series(struct kg_record_timing *t)
{
    const char *at = strrchr(t->arm, '@');
    if (!t->series)
        t->series = at && is(at, "@warm") ? "warm" : "cold";
}

static void read_gpu(struct kg_scan *s, struct kg_record_timing *t)
{
    const char *key;
    if (kg_scan_peek(s) == KG_JSON_NULL) {
        kg_scan_skip(s, NULL, NULL);
        return;
    }
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "sm_mhz"))
            kg_scan_real(s, &t->sm_mhz);
        else if (is(key, "mem_mhz"))
            kg_scan_real(s, &t->mem_mhz);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

static void read_arm(struct kg_scan *s, struct kg_record *r, struct kg_record_timing *t)
{
    const char *key;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (is(key, "policy"))
            kg_scan_string_or_null(s, &t->policy);
        else if (is(key, "policy_version"))
            read_version(s, r, &t->policy_version);
        else if (is(key, "series"))
            kg_scan_string_or_null(s, &t->series);
        else if (is(key, "engine"))
            kg_scan_string_or_null(s, &t->engine);
        else if (is(key, "samples_us"))
            read_samples(s, r, t);
        else if (is(key, "median_us"))
            kg_scan_real(s, &t->median_us);
        else if (is(key, "mad_us"))
            kg_scan_real(s, &t->mad_us);
        else if (is(key, "ci95_us"))
            read_pair(s, t->ci95_us);
        else if (is(key, "gbps"))
            kg_scan_real(s, &t->gbps);
        else if (is(key, "tflops"))
            kg_scan_real(s, &t->tflops);
        else if (is(key, "gpu_after"))
            read_gpu(s, t);
        else if (is(key, "throttled"))
            kg_scan_bool(s, &t->throttled);
        else if (is(key, "invalid"))
            kg_scan_bool(s, &t->invalid);
        else if (is(key, "roofline_percent"))
            kg_scan_real(s, &t->roofline_percent);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

void kg_record_read_timings(struct kg_scan *s, struct kg_record *r,
                            struct kg_record_cell *c)
{
    static struct kg_record_timing some[MAX_ARMS];
    size_t n = 0;
    const char *arm;
    if (kg_scan_peek(s) == KG_JSON_NULL) {
        kg_scan_skip(s, NULL, NULL);
        return;
    }
    if (!kg_scan_object(s))
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
        read_arm(s, r, &some[n]);
        name_series(&some[n++]);
    }
    c->n_timings = n;
    c->timings = kg_record_keep(r, some, n * sizeof *some);
}
