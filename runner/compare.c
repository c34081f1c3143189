/*
 * Checks. A number passes only by `err <= bound`: every comparison is written so that NaN
 * falls on the failing side.
 */
#include "runner/cell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHECKS_MAX 4000 /* a cell; the supervisor reads no more than 4096 */
#define FAILED_KEPT 20  /* names of failed checks, for --against */
#define POISON_RUN 16   /* bytes; shorter runs of 0xFF occur in int8 and f16 results */

void kg_check_report(struct kg_cell *cell, struct kg_check *check, const char *failure)
{
    json_t *event = json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:b, s:I, s:I}", "ev", "check", "id",
        cell->plan->id, "name", kg_event_text(check->name), "class", check->class_name,
        "metric", check->metric, "value", kg_event_number(check->value), "bound",
        kg_event_number(check->bound), "margin", kg_event_number(check->margin), "ok",
        check->ok, "bad", (json_int_t)check->bad, "count", (json_int_t)check->count);
    if (check->has_worst)
        json_object_set_new(event, "worst",
                            json_pack("{s:I, s:o, s:o}", "index",
                                      (json_int_t)check->worst, "got", check->got, "want",
                                      check->want));
    if (check->text != NULL)
        json_object_set_new(event, "text", kg_event_text(check->text));
    if (cell->first == NULL)
        kg_event_write(cell->host->event_fd, event);
    else
        json_decref(event);

    if (strcmp(check->class_name, "info") == 0)
        return;
    /* A single number is the section's own word: it may have stepped over a NaN. */
    if (strcmp(check->metric, "value") == 0)
        cell->numbers++;
    else
        cell->compared++;
    if (!check->ok && json_array_size(cell->failed_checks) < FAILED_KEPT)
        json_array_append_new(cell->failed_checks, kg_event_text(check->name));
    if (!check->ok && cell->failed++ == 0)
        snprintf(cell->first_failure, sizeof cell->first_failure, "%s", failure);
}

/* Entry of every check: no arm is open, the name is new; gives and clears the flags. */
static uint32_t open_check(struct kg_cell *cell, const char *name)
{
    kg_cell_outside_arm(cell, "a check");
    kg_cell_need_name(cell, "a check", name);
    if (json_object_get(cell->check_names, name) != NULL)
        kg_cell_misuse(cell, "two checks are called %s", name);
    if (json_object_size(cell->check_names) >= CHECKS_MAX)
        kg_cell_misuse(cell, "more than %d checks", CHECKS_MAX);
    json_object_set_new(cell->check_names, name, json_true());
    uint32_t flags = cell->oracle_allow;
    cell->oracle_allow = 0;
    return flags;
}

static void need_elements(struct kg_cell *cell, const char *name, const void *got,
                          const void *want, size_t count)
{
    if (count == 0)
        kg_cell_leave(cell, KG_ERROR, "no-comparison", "check %s compares 0 elements",
                      name);
    if (got == NULL || want == NULL)
        kg_cell_misuse(cell, "check %s of a NULL array", name);
    if (got == want)
        kg_cell_misuse(cell, "check %s compares an array with itself", name);
}

KG_NORETURN static void degenerate(struct kg_cell *cell, const char *name,
                                   const char *what, size_t index, double value)
{
    kg_cell_leave(cell, KG_ERROR, "oracle-degenerate", "check %s: %s (element %zu: %g)",
                  name, what, index, value);
}

static void need_sound_oracle(struct kg_cell *cell, const char *name, const double *want,
                              size_t count, uint32_t allowed)
{
    bool all_zero = true;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(want[i]) && !(allowed & KG_ORACLE_NONFINITE))
            degenerate(cell, name, "the oracle is not finite", i, want[i]);
        all_zero = all_zero && want[i] == 0.0;
    }
    if (all_zero && !(allowed & KG_ORACLE_ZERO))
        degenerate(cell, name, "the oracle is zero everywhere", 0, 0.0);
}

void kg_oracle_allow(struct kg_cell *cell, uint32_t flags)
{
    if (flags & ~(uint32_t)(KG_ORACLE_ZERO | KG_ORACLE_NONFINITE))
        kg_cell_misuse(cell, "kg_oracle_allow with unknown flags 0x%x", (unsigned)flags);
    cell->oracle_allow = flags;
}

/* Where a result is not finite by right: 0 if it matches, else infinite. */
static double nonfinite_error(float got, double want)
{
    if (isnan(want))
        return isnan(got) ? 0.0 : HUGE_VAL;
    return (double)got == want ? 0.0 : HUGE_VAL;
}

static double error_of(float got, double want)
{
    return isfinite(want) ? fabs((double)got - want) : nonfinite_error(got, want);
}

/* err / bound, where 0 / 0 is 0 and anything that would be NaN is infinite. */
static double ratio_of(double err, double bound)
{
    if (err == 0.0)
        return 0.0;
    double ratio = err / bound;
    return isnan(ratio) ? HUGE_VAL : ratio;
}

/* ---- elements that hold the poison ---- */

static bool all_poison(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != KG_POISON)
            return false;
    return true;
}

/* True if element i of a fetched output looks as it did before any kernel ran. Elements
   of one and two bytes take that value by right, so they need neighbours that agree. */
static bool is_unwritten(const uint8_t *data, size_t count, size_t elem_bytes, size_t i)
{
    if (!all_poison(data + i * elem_bytes, elem_bytes))
        return false;
    if (elem_bytes >= 4)
        return true;
    size_t total = count * elem_bytes, low = i * elem_bytes, high = low + elem_bytes;
    while (low > 0 && high - low < POISON_RUN && data[low - 1] == KG_POISON)
        low--;
    while (high < total && high - low < POISON_RUN && data[high] == KG_POISON)
        high++;
    return high - low >= POISON_RUN || high - low == total;
}

static uint64_t count_unwritten(const struct kg_cell *cell, const void *data,
                                size_t count, size_t elem_bytes)
{
    if (!kg_cell_is_fetched(cell, data, count * elem_bytes))
        return 0;
    uint64_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_unwritten(data, count, elem_bytes, i);
    return n;
}

static void append_unwritten(char *line, size_t size, uint64_t n)
{
    size_t at = strlen(line);
    if (n > 0)
        snprintf(line + at, size - at, "; %llu hold the poison (never written)",
                 (unsigned long long)n);
}

/* ---- classes ---- */

static uint64_t element(const void *data, size_t elem_bytes, size_t i)
{
    uint64_t value = 0;
    memcpy(&value, (const uint8_t *)data + i * elem_bytes, elem_bytes);
    return value;
}

static json_t *hex_json(const void *data, size_t elem_bytes, size_t i, char text[24])
{
    snprintf(text, 24, "0x%0*llx", (int)(2 * elem_bytes),
             (unsigned long long)element(data, elem_bytes, i));
    return json_string(text);
}

bool kg_check_exact(struct kg_cell *cell, const char *name, const void *got,
                    const void *want, size_t count, size_t elem_bytes)
{
    uint32_t allowed = open_check(cell, name);
    need_elements(cell, name, got, want, count);
    if (elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8)
        kg_cell_misuse(cell, "check %s: elements of %zu bytes", name, elem_bytes);
    if (count > SIZE_MAX / elem_bytes)
        kg_cell_misuse(cell, "check %s of %zu elements", name, count);
    kg_output_mark(cell, got, (unsigned)elem_bytes, false);
    kg_output_mark(cell, want, (unsigned)elem_bytes, false);

    const uint8_t *g = got, *w = want;
    size_t total = count * elem_bytes;
    bool all_zero = w[0] == 0 && memcmp(w, w + 1, total - 1) == 0;
    if (all_zero && !(allowed & KG_ORACLE_ZERO))
        degenerate(cell, name, "the reference is zero everywhere", 0, 0.0);

    /* Where both sides come from kernels, both may have left out the same element. */
    bool twins =
        kg_cell_is_fetched(cell, want, total) && kg_cell_is_fetched(cell, got, total);
    uint64_t bad = 0, unwritten = 0;
    size_t first = 0;
    if (twins || memcmp(g, w, total) != 0) {
        for (size_t i = 0; i < count; i++) {
            bool differs =
                memcmp(g + i * elem_bytes, w + i * elem_bytes, elem_bytes) != 0;
            bool both_left_out =
                !differs && twins && is_unwritten(g, count, elem_bytes, i);
            unwritten += both_left_out;
            if ((differs || both_left_out) && bad++ == 0)
                first = i;
        }
    }
    if (bad > unwritten)
        unwritten = count_unwritten(cell, got, count, elem_bytes);

    struct kg_check check = {
        .name = name,
        .class_name = "exact",
        .metric = "differing-elements",
        .value = (double)bad,
        .margin = bad ? HUGE_VAL : 0.0,
        .ok = bad == 0,
        .bad = bad,
        .count = count,
    };
    char line[400] = "";
    if (bad > 0) {
        char got_text[24], want_text[24];
        check.has_worst = true;
        check.worst = first;
        check.got = hex_json(got, elem_bytes, first, got_text);
        check.want = hex_json(want, elem_bytes, first, want_text);
        snprintf(line, sizeof line,
                 "%s: %llu of %zu elements differ, first at %zu: got %s, want %s", name,
                 (unsigned long long)bad, count, first, got_text, want_text);
        append_unwritten(line, sizeof line, unwritten);
        check.text = unwritten ? line : NULL;
    }
    kg_check_report(cell, &check, line);
    return check.ok;
}

/* Fills in what bound and band share, reports, and says whether the check held. */
static bool report_floats(struct kg_cell *cell, struct kg_check *check, const float *got,
                          const double *want)
{
    size_t i = (size_t)check->worst;
    kg_output_mark(cell, got, sizeof *got, true);
    check->has_worst = true;
    check->got = kg_event_number((double)got[i]);
    check->want = kg_event_number(want[i]);
    char line[500] = "";
    if (!check->ok) {
        snprintf(line, sizeof line,
                 "%s: %s %.4g exceeds %.4g at %zu: got %.9g, want %.9g; %llu of %llu "
                 "elements are out",
                 check->name, check->metric, check->value, check->bound, i,
                 (double)got[i], want[i], (unsigned long long)check->bad,
                 (unsigned long long)check->count);
        uint64_t unwritten =
            count_unwritten(cell, got, (size_t)check->count, sizeof *got);
        append_unwritten(line, sizeof line, unwritten);
        check->text = unwritten ? line : NULL;
    }
    kg_check_report(cell, check, line);
    return check->ok;
}

bool kg_check_bound(struct kg_cell *cell, const char *name, const float *got,
                    const double *want, const double *bound, size_t count)
{
    uint32_t allowed = open_check(cell, name);
    need_elements(cell, name, got, want, count);
    if (bound == NULL)
        kg_cell_misuse(cell, "check %s without a bound", name);
    need_sound_oracle(cell, name, want, count, allowed);
    for (size_t i = 0; i < count; i++)
        if (isfinite(want[i]) && !(isfinite(bound[i]) && bound[i] >= 0.0))
            degenerate(cell, name, "the bound is not a finite number >= 0", i, bound[i]);

    struct kg_check check = {
        .name = name, .class_name = "bound", .metric = "abs-err", .count = count};
    double worst = -1.0;
    for (size_t i = 0; i < count; i++) {
        double limit = isfinite(want[i]) ? bound[i] : 0.0;
        double err = error_of(got[i], want[i]);
        double ratio = ratio_of(err, limit);
        if (!(err <= limit)) {
            check.bad++;
            /* A bound so small that the quotient rounds to 1, or is below it. */
            if (!(ratio > 1.0))
                ratio = nextafter(1.0, 2.0);
        }
        if (ratio > worst) {
            worst = ratio;
            check.worst = i;
            check.value = err;
            check.bound = limit;
        }
    }
    check.margin = worst;
    check.ok = check.bad == 0;
    return report_floats(cell, &check, got, want);
}

bool kg_check_band(struct kg_cell *cell, const char *name, const float *got,
                   const double *want, size_t count, double floor_value, double limit)
{
    uint32_t allowed = open_check(cell, name);
    need_elements(cell, name, got, want, count);
    if (!(isfinite(limit) && limit >= 0.0) ||
        !(isfinite(floor_value) && floor_value > 0.0))
        kg_cell_misuse(cell, "check %s: limit %g, floor %g", name, limit, floor_value);
    need_sound_oracle(cell, name, want, count, allowed);

    double scale = floor_value;
    for (size_t i = 0; i < count; i++)
        if (isfinite(want[i]) && fabs(want[i]) > scale)
            scale = fabs(want[i]);
    struct kg_check check = {.name = name,
                             .class_name = "band",
                             .metric = "rel-err",
                             .bound = limit,
                             .count = count};
    double worst = -1.0;
    for (size_t i = 0; i < count; i++) {
        double rel = error_of(got[i], want[i]) / scale;
        if (!(rel <= limit))
            check.bad++;
        double rank = isnan(rel) ? HUGE_VAL : rel;
        if (rank > worst) {
            worst = rank;
            check.worst = i;
            check.value = rel;
        }
    }
    check.margin = ratio_of(check.value, limit);
    check.ok = check.bad == 0;
    return report_floats(cell, &check, got, want);
}

bool kg_check_value(struct kg_cell *cell, const char *name, const char *class_name,
                    double value, double limit)
{
    open_check(cell, name);
    bool is_bound = class_name != NULL && strcmp(class_name, "bound") == 0;
    if (!is_bound && (class_name == NULL || strcmp(class_name, "band") != 0))
        kg_cell_misuse(cell, "check %s: class is neither bound nor band", name);
    if (!isfinite(limit))
        kg_cell_leave(cell, KG_ERROR, "oracle-degenerate",
                      "check %s: the limit is not finite (%g)", name, limit);
    bool ok = isfinite(value) && value <= limit;
    struct kg_check check = {
        .name = name,
        .class_name = is_bound ? "bound" : "band",
        .metric = "value",
        .value = value,
        .bound = limit,
        .ok = ok,
        .margin = limit > 0.0 ? ratio_of(value, limit) : (ok ? 0.0 : HUGE_VAL),
        .bad = !ok,
        .count = 1,
    };
    char line[300] = "";
    if (!ok)
        snprintf(line, sizeof line, "%s: %.6g exceeds %.6g", name, value, limit);
    kg_check_report(cell, &check, line);
    return ok;
}

bool kg_check_that(struct kg_cell *cell, const char *name, bool holds, const char *format,
                   ...)
{
    open_check(cell, name);
    char text[512], line[700] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct kg_check check = {
        .name = name,
        .class_name = "exact",
        .metric = "condition",
        .value = holds ? 0.0 : 1.0,
        .margin = holds ? 0.0 : HUGE_VAL,
        .ok = holds,
        .bad = !holds,
        .count = 1,
        .text = text,
    };
    if (!holds)
        snprintf(line, sizeof line, "%s: %s", name, text);
    kg_check_report(cell, &check, line);
    return holds;
}

void kg_info(struct kg_cell *cell, const char *name, double value)
{
    open_check(cell, name);
    struct kg_check check = {.name = name,
                             .class_name = "info",
                             .metric = "value",
                             .value = value,
                             .ok = true,
                             .count = 1};
    kg_check_report(cell, &check, "");
}
