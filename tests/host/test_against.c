/*
 * --against: a cell on two providers in one process; bits, verdicts, paired times.
 */
#include "tests/host/fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/cell.h"

/* ---- two devices whose launches take a known time ---- */

enum { N = 8 };

struct clock {
    double us, launch_us; /* now; what a launch takes */
    int captured;         /* launches in the open graph; -1: none is open */
    int live;             /* allocations, events and graphs */
    float last;           /* what the last element of an output is off by */
    bool fails_in_graph;
};
static struct clock clocks[2];

struct CUevent_st {
    double us;
};
struct CUgraphExec_st {
    int launches;
};

static int launch(int side, float *y, const float *x, int64_t n)
{
    struct clock *c = &clocks[side];
    if (c->captured >= 0 && c->fails_in_graph)
        return KG_E_LAUNCH;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    y[n - 1] += c->last;
    if (c->captured >= 0)
        c->captured++;
    else
        c->us += c->launch_us;
    return 0;
}

#define DEVICE(S)                                                                        \
    static int alloc##S(void **p, size_t bytes)                                          \
    {                                                                                    \
        *p = aligned_alloc(256, (bytes + 255) / 256 * 256);                              \
        clocks[S].live++;                                                                \
        return *p ? 0 : KG_E_MEMORY;                                                     \
    }                                                                                    \
    static int release##S(void *p)                                                       \
    {                                                                                    \
        free(p);                                                                         \
        clocks[S].live--;                                                                \
        return 0;                                                                        \
    }                                                                                    \
    static int event_create##S(struct CUevent_st **e)                                    \
    {                                                                                    \
        *e = calloc(1, sizeof **e);                                                      \
        clocks[S].live++;                                                                \
        return 0;                                                                        \
    }                                                                                    \
    static int event_destroy##S(struct CUevent_st *e)                                    \
    {                                                                                    \
        return release##S(e);                                                            \
    }                                                                                    \
    static int event_record##S(struct CUevent_st *e, struct CUstream_st *s)              \
    {                                                                                    \
        (void)s;                                                                         \
        e->us = clocks[S].us;                                                            \
        return 0;                                                                        \
    }                                                                                    \
    static int graph_begin##S(struct CUstream_st *s)                                     \
    {                                                                                    \
        (void)s;                                                                         \
        clocks[S].captured = 0;                                                          \
        return 0;                                                                        \
    }                                                                                    \
    static int graph_end##S(struct CUstream_st *s, struct CUgraphExec_st **g)            \
    {                                                                                    \
        (void)s;                                                                         \
        *g = calloc(1, sizeof **g);                                                      \
        (*g)->launches = clocks[S].captured;                                             \
        clocks[S].captured = -1;                                                         \
        clocks[S].live++;                                                                \
        return 0;                                                                        \
    }                                                                                    \
    static int graph_launch##S(struct CUgraphExec_st *g, struct CUstream_st *s)          \
    {                                                                                    \
        (void)s;                                                                         \
        clocks[S].us += g->launches * clocks[S].launch_us;                               \
        return 0;                                                                        \
    }                                                                                    \
    static int graph_destroy##S(struct CUgraphExec_st *g)                                \
    {                                                                                    \
        return release##S(g);                                                            \
    }                                                                                    \
    static int dequantize##S(int type, const void *src, float *dst, int64_t n,           \
                             struct CUstream_st *s)                                      \
    {                                                                                    \
        (void)type, (void)s;                                                             \
        return launch(S, dst, src, n);                                                   \
    }                                                                                    \
    static const struct kg_matvec_ops matvec##S = {.size = sizeof matvec##S,             \
                                                   .dequantize = dequantize##S};         \
    static const struct kg_device_ops device##S = {                                      \
        .size = sizeof device##S,                                                        \
        .alloc = alloc##S,                                                               \
        .release = release##S,                                                           \
        .upload = move,                                                                  \
        .download = move,                                                                \
        .copy = move,                                                                    \
        .fill = fill,                                                                    \
        .sync = sync_stream,                                                             \
        .event_create = event_create##S,                                                 \
        .event_destroy = event_destroy##S,                                               \
        .event_record = event_record##S,                                                 \
        .event_elapsed_us = elapsed,                                                     \
        .graph_begin = graph_begin##S,                                                   \
        .graph_end = graph_end##S,                                                       \
        .graph_launch = graph_launch##S,                                                 \
        .graph_destroy = graph_destroy##S,                                               \
        .last_error = last_error,                                                        \
    };                                                                                   \
    static const struct kg_provider provider##S = {.abi = KG_PROVIDER_ABI,               \
                                                   .size = sizeof provider##S,           \
                                                   .name = "p" #S,                       \
                                                   .build_id = "1",                      \
                                                   .device = &device##S,                 \
                                                   .matvec = &matvec##S};

static int move(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return 0;
}

static int fill(void *p, uint8_t byte, size_t bytes)
{
    memset(p, byte, bytes);
    return 0;
}

static int sync_stream(struct CUstream_st *s)
{
    (void)s;
    return 0;
}

static int elapsed(struct CUevent_st *from, struct CUevent_st *to, double *us)
{
    *us = to->us - from->us;
    return 0;
}

static const char *last_error(void)
{
    return "planted";
}

DEVICE(0)
DEVICE(1)

/* ---- cells ---- */

static void compare(struct kg_cell *c, bool ops_outside)
{
    const float *x = kg_pr(c, N, 0, 1.0f);
    double want[N], bound[N];
    struct kg_buf *dx = kg_input(c, "x", x, N * sizeof *x);
    struct kg_buf *dy = kg_output(c, "y", N * sizeof *x);
    struct kg_cost cost = {64, 0, NULL};
    int (*taken)(int, const void *, float *, int64_t, struct CUstream_st *) =
        KG_OPS(c, matvec, dequantize);
    if (ops_outside)
        KG_ARM(c, "arm", &cost,
               taken(KG_TYPE_F32, kg_ptr(dx), kg_ptr(dy), N, kg_stream(c)));
    else
        KG_ARM(c, "arm", &cost,
               KG_OPS(c, matvec, dequantize)(KG_TYPE_F32, kg_ptr(dx), kg_ptr(dy), N,
                                             kg_stream(c)));
    for (int i = 0; i < N; i++) {
        want[i] = (double)x[i];
        bound[i] = 1e-3;
    }
    kg_check_bound(c, "y", kg_fetch(dy), want, bound, N);
}

static void cell_inside(struct kg_cell *c, const void *row)
{
    (void)row;
    compare(c, false);
}

static void cell_outside(struct kg_cell *c, const void *row)
{
    (void)row;
    compare(c, true);
}

/* The events of a cell: begin, check, done, again, against. Caller releases. */
static json_t *run_both(kg_cell_fn *run, bool bench, json_t **done, json_t **against)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    struct kg_host host = {.event_fd = fileno(file),
                           .seat = {.provider = &provider0},
                           .other = {.provider = &provider1}};
    host.seat.device.mem_free = host.other.device.mem_free = 1 << 20;
    host.seat.device.l2_bytes = host.other.device.l2_bytes = 4096;
    host.job.bench.on = bench;
    clocks[0].captured = clocks[1].captured = -1;
    const struct kg_plan_cell plan = {.id = "t.cell", .run = run};
    kg_cell_run(&host, &plan);
    assert_ptr_equal(host.seat.provider, &provider0);
    assert_int_equal(clocks[0].live, 0);
    assert_int_equal(clocks[1].live, 0);

    json_t *events = json_array();
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    rewind(file);
    while ((n = getline(&line, &capacity, file)) > 0) {
        struct kg_event event;
        char fault[200];
        if (!kg_event_parse(line, (size_t)n - 1, &event, fault, sizeof fault))
            fail_msg("%s in %s", fault, line);
        json_array_append(events, event.json);
        if (event.kind == KG_EVENT_DONE)
            *done = event.json;
        if (event.kind == KG_EVENT_AGAINST)
            *against = event.json;
        kg_event_clear(&event);
    }
    free(line);
    fclose(file);
    /* The second pass sends no checks of its own. */
    assert_int_equal(json_array_size(events), 5);
    return events;
}

static const char *text(const json_t *json, const char *key)
{
    const char *value = json_string_value(json_object_get(json, key));
    return value ? value : "";
}

static double number(const json_t *json, const char *key)
{
    return json_number_value(json_object_get(json, key));
}

static void test_bits(void **state)
{
    (void)state;
    json_t *done = NULL, *against = NULL;
    memset(clocks, 0, sizeof clocks);
    json_t *events = run_both(cell_inside, false, &done, &against);
    json_t *outputs = json_object_get(against, "outputs");
    assert_string_equal(text(done, "verdict"), "PASS");
    assert_string_equal(text(against, "verdict"), "PASS");
    assert_true(number(outputs, "compared") == 1 && number(outputs, "equal") == 1);
    assert_true(json_is_true(json_object_get(against, "same_inputs")));
    json_decref(events);

    clocks[1].last = 0.25f; /* the old one is wrong */
    events = run_both(cell_inside, false, &done, &against);
    assert_string_equal(text(done, "verdict"), "PASS");
    assert_string_equal(text(against, "verdict"), "FAIL");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(against, "failed_checks"), 0)),
        "y");
    json_t *y = json_object_get(
        json_object_get(json_object_get(against, "outputs"), "differing"), "arm/y");
    json_t *worst = json_object_get(y, "worst");
    assert_true(number(y, "differ") == 1 && number(y, "count") == N);
    assert_true(number(worst, "index") == N - 1);
    assert_true(fabs(number(worst, "old") - number(worst, "new") - 0.25) < 1e-6);
    json_decref(events);

    clocks[0].last = NAN;
    clocks[1].last = 0;
    events = run_both(cell_inside, false, &done, &against);
    assert_string_equal(text(done, "verdict"), "FAIL");
    assert_string_equal(text(against, "verdict"), "PASS");
    y = json_object_get(json_object_get(json_object_get(against, "outputs"), "differing"),
                        "arm/y");
    assert_true(number(json_object_get(y, "ulp"), "nan") == 1);
    json_decref(events);
}

static void test_pairs(void **state)
{
    (void)state;
    json_t *done = NULL, *against = NULL;
    memset(clocks, 0, sizeof clocks);
    clocks[0].launch_us = 3;
    clocks[1].launch_us = 2;
    json_t *events = run_both(cell_inside, true, &done, &against);
    json_t *pair = json_object_get(json_object_get(against, "pairs"), "arm");
    assert_true(fabs(number(pair, "new_us") - 3) < 1e-9);
    assert_true(fabs(number(pair, "old_us") - 2) < 1e-9);
    assert_true(fabs(number(pair, "ratio") - 1.5) < 1e-9);
    assert_int_equal(json_array_size(json_object_get(pair, "ratios")), 30);
    assert_true(json_is_true(json_object_get(pair, "ci_is_95")));
    json_decref(events);

    /* Taken outside of KG_ARM it would be one kernel timed twice. */
    events = run_both(cell_outside, true, &done, &against);
    assert_string_equal(text(against, "verdict"), "PASS");
    assert_null(json_object_get(against, "pairs"));
    json_decref(events);
}

/* That the new one cannot be captured is no fault of the old one. */
static void test_pair_fails(void **state)
{
    (void)state;
    json_t *done = NULL, *against = NULL;
    memset(clocks, 0, sizeof clocks);
    clocks[0].launch_us = clocks[1].launch_us = 1;
    clocks[1].fails_in_graph = true;
    json_t *events = run_both(cell_inside, true, &done, &against);
    json_t *pair = json_object_get(json_object_get(against, "pairs"), "arm");
    assert_string_equal(text(against, "verdict"), "PASS");
    assert_string_equal(text(pair, "error"), "planted");
    json_decref(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pair_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
