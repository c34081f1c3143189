#include "runner/diff/classify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/attribute.h"
#include "runner/diff/compare.h"
#include "runner/escape.h"

static const char *const names[KG_N_CHANGES] = {
    [KG_CHANGE_BROKEN] = "broken",
    [KG_CHANGE_COVERAGE_LOST] = "coverage-lost",
    [KG_CHANGE_MARGIN_WORSE] = "margin-worse",
    [KG_CHANGE_SLOWER] = "slower",
    [KG_CHANGE_STILL_FAILING] = "still-failing",
    [KG_CHANGE_BITS] = "bits-changed",
    [KG_CHANGE_BOUND] = "bound-changed",
    [KG_CHANGE_LEFT] = "left",
    [KG_CHANGE_NEW] = "new",
    [KG_CHANGE_FIXED] = "fixed",
    [KG_CHANGE_MARGIN_BETTER] = "margin-better",
    [KG_CHANGE_FASTER] = "faster",
    [KG_CHANGE_ENVIRONMENT] = "environment-changed",
};

const char *kg_change_name(enum kg_change_class class)
{
    return names[class];
}

enum kg_change_class kg_change_of_name(const char *name, size_t length)
{
    enum kg_change_class c = 0;
    while (c < KG_N_CHANGES &&
           (strlen(names[c]) != length || memcmp(names[c], name, length) != 0))
        c++;
    return c;
}

struct kg_change *kg_diff_add(struct kg_diff *d, enum kg_change_class class,
                              const struct kg_record_cell *base,
                              const struct kg_record_cell *head, unsigned causes,
                              const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if ((d->n_changes & (d->n_changes - 1)) == 0)
        d->changes = kg_xrealloc(d->changes, (d->n_changes ? 2 * d->n_changes : 1) *
                                                 sizeof *d->changes);
    struct kg_change *c = &d->changes[d->n_changes++];
    *c = (struct kg_change){.class = class,
                            .causes = causes,
                            .base = base,
                            .head = head,
                            .base_value = NAN,
                            .head_value = NAN,
                            .p = NAN,
                            .effect = NAN};
    c->detail = kg_arena_copy(&d->arena, text, strlen(text));
    d->counts[class]++;
    return c;
}

static bool failing(const struct kg_record_cell *c)
{
    return c->verdict == KG_FAIL || c->verdict == KG_ERROR;
}

/* The cell was not judged because of what the user asked for. */
static bool left_out(const struct kg_record_cell *c)
{
    return c->reason &&
           (strcmp(c->reason, "filtered") == 0 || strcmp(c->reason, "not-run") == 0);
}

/* Not judged at all, be it by a skip or by the end of the run. */
static bool not_judged(const struct kg_record_cell *c)
{
    return c->verdict == KG_SKIP || (c->verdict == KG_ERROR && left_out(c));
}

static const char *state(const struct kg_record_cell *c, char buffer[160])
{
    snprintf(buffer, 160, "%s%s%.120s", kg_verdict_name(c->verdict), c->reason ? " " : "",
             c->reason ? c->reason : "");
    return buffer;
}

/* The particulars, without the reason code that they may begin with; "" if there are none. */
static const char *particulars(const char *reason, const char *detail)
{
    size_t n = reason ? strlen(reason) : 0;
    if (!detail)
        return "";
    if (n && strncmp(detail, reason, n) == 0 && strncmp(detail + n, ": ", 2) == 0)
        return detail + n + 2;
    return detail;
}

/* --against: whether the other provider fails the cell too. */
static const char *on_the_other(const struct kg_record_cell *c)
{
    if (!c->fails_on)
        return "";
    return strcmp(c->fails_on, "both") == 0  ? "; the other provider fails too"
           : strcmp(c->fails_on, "new") == 0 ? "; the other provider does not fail"
                                             : "";
}

/* The check that failed worst, for the line of a broken cell. */
static const struct kg_record_check *failed_check(const struct kg_record_cell *c)
{
    const struct kg_record_check *worst = NULL;
    for (size_t i = 0; i < c->n_checks; i++) {
        const struct kg_record_check *k = &c->checks[i];
        if (strcmp(k->class_name, "info") == 0 || k->value <= k->bound)
            continue;
        if (!worst || isnan(k->margin) || k->margin > worst->margin)
            worst = k;
    }
    return worst;
}

static void add_broken(struct kg_diff *d, const struct kg_record_cell *b,
                       const struct kg_record_cell *h, unsigned causes)
{
    char from[160], to[160];
    const struct kg_record_check *k = failed_check(h);
    bool judged = h->reason && strcmp(h->reason, "check-failed") == 0;
    if (b && judged && kg_attribute_same_output(b, h))
        causes &= ~(unsigned)(KG_CAUSE_KERNEL | KG_CAUSE_DRIVER | KG_CAUSE_DEVICE);
    for (size_t i = 0; b && k && i < b->n_checks; i++)
        if (strcmp(b->checks[i].name, k->name) == 0 &&
            kg_attribute_bound(&b->checks[i], k))
            causes = b->checks[i].value == k->value
                         ? KG_CAUSE_BOUND | (causes & KG_CAUSE_SECTION)
                         : causes | KG_CAUSE_BOUND;
    struct kg_change *c;
    if (k)
        c = kg_diff_add(d, KG_CHANGE_BROKEN, b, h, causes,
                        "%s -> %s: value %.4g over bound %.3g%s",
                        b ? state(b, from) : "absent", state(h, to), k->value, k->bound,
                        on_the_other(h));
    else
        c = kg_diff_add(d, KG_CHANGE_BROKEN, b, h, causes, "%s -> %s%s%.300s%s",
                        b ? state(b, from) : "absent", state(h, to),
                        *particulars(h->reason, h->detail) ? ": " : "",
                        particulars(h->reason, h->detail), on_the_other(h));
    c->what = k ? k->name : NULL;
    c->head_value = k ? k->margin : (double)NAN;
    /* A crash, a hang or a NaN first, then by how far the bound was missed. */
    c->weight = k && isfinite(k->margin) ? k->margin : (double)INFINITY;
}

static void compare_cells(struct kg_diff *d, const struct kg_diff_options *options,
                          const struct kg_record_cell *b, const struct kg_record_cell *h,
                          unsigned causes, double floor)
{
    char from[160], to[160];
    if (not_judged(b) && not_judged(h))
        return;
    if (not_judged(h)) {
        causes = left_out(h) ? KG_CAUSE_SELECTION
                 : h->reason && strcmp(h->reason, "kernel-missing") == 0
                     ? causes & KG_CAUSE_KERNEL
                     : causes;
        if (!left_out(h) && h->reason &&
            (strcmp(h->reason, "artifact-missing") == 0 ||
             strcmp(h->reason, "tensor-missing") == 0))
            causes = KG_CAUSE_ARTIFACT;
        kg_diff_add(d, KG_CHANGE_COVERAGE_LOST, b, h, causes, "%s -> %s%s%.300s",
                    state(b, from), state(h, to),
                    *particulars(h->reason, h->detail) ? ": " : "",
                    particulars(h->reason, h->detail))
            ->weight = 1;
        return;
    }
    if (failing(h) && !(failing(b) && !not_judged(b))) {
        add_broken(d, b, h, causes);
        return;
    }
    if (failing(h)) {
        kg_diff_add(d, KG_CHANGE_STILL_FAILING, b, h, 0, "%s -> %s", state(b, from),
                    state(h, to));
        return;
    }
    if (not_judged(b)) {
        kg_diff_add(d, KG_CHANGE_NEW, b, h, left_out(b) ? KG_CAUSE_SELECTION : causes,
                    "%s -> %s", state(b, from), state(h, to));
        return;
    }
    if (failing(b)) {
        kg_diff_add(d, KG_CHANGE_FIXED, b, h, causes, "%s -> %s", state(b, from),
                    state(h, to));
        return;
    }
    kg_compare_checks(d, options, b, h, causes);
    if (!d->data_refused)
        kg_compare_digests(d, b, h, causes);
    if (!d->times_refused)
        kg_compare_times(d, options, b, h, causes, floor);
}

static void add_gone(struct kg_diff *d, const struct kg_record_cell *b, unsigned causes)
{
    const struct kg_record_section *s = kg_record_section_find(d->head, b->section);
    const char *status = s && s->status ? s->status : "";
    char from[160];
    if (strcmp(status, "filtered") == 0 || strcmp(status, "not-run") == 0)
        causes = KG_CAUSE_SELECTION;
    enum kg_change_class class = not_judged(b) ? KG_CHANGE_LEFT : KG_CHANGE_COVERAGE_LOST;
    struct kg_change *c;
    if (!s)
        c = kg_diff_add(d, class, b, NULL, causes, "%s -> gone with its section",
                        state(b, from));
    else if (strcmp(status, "ok") == 0 || !*status)
        c = kg_diff_add(d, class, b, NULL, causes, "%s -> gone", state(b, from));
    else
        c = kg_diff_add(d, class, b, NULL, causes, "%s -> gone (section: %.40s%s%.200s)",
                        state(b, from), status, s->detail ? ": " : "",
                        particulars(status, s->detail));
    c->weight = 2;
}

static void add_joined(struct kg_diff *d, const struct kg_record_cell *h, unsigned causes)
{
    char to[160];
    if (failing(h) && !left_out(h))
        add_broken(d, NULL, h, causes);
    kg_diff_add(d, KG_CHANGE_NEW, NULL, h, 0, "joined: %s", state(h, to));
}

static int by_weight(const void *a_, const void *b_)
{
    const struct kg_change *a = a_, *b = b_;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    const struct kg_record_cell *x = a->head ? a->head : a->base;
    const struct kg_record_cell *y = b->head ? b->head : b->base;
    int order = x && y ? strcmp(x->id, y->id) : 0;
    if (order == 0 && a->what && b->what)
        order = strcmp(a->what, b->what);
    return order;
}

static bool looked_at(const struct kg_diff_options *options,
                      const struct kg_record_cell *cell)
{
    for (size_t i = 0; i < options->n_only; i++)
        if (strstr(cell->section, options->only[i]))
            return true;
    return options->n_only == 0;
}

static void add_environment(struct kg_diff *d)
{
    for (enum kg_fact f = 0; f < KG_N_FACTS; f++) {
        if (!kg_fact_is_environment(f) || !kg_fact_differs(d->base, d->head, f))
            continue;
        const char *a = kg_fact(d->base, f), *b = kg_fact(d->head, f);
        struct kg_change *c =
            kg_diff_add(d, KG_CHANGE_ENVIRONMENT, NULL, NULL, 0, "%.300s -> %.300s",
                        a ? a : "not recorded", b ? b : "not recorded");
        c->what = kg_fact_label(f);
        c->weight = -(double)f;
    }
}

static bool has_times(const struct kg_record *r)
{
    for (size_t i = 0; i < r->n_cells; i++)
        if (r->cells[i].n_timings)
            return true;
    return false;
}

/* What --bench measured as noise, and at least one percent: two clocks, one kernel. */
static double noise_floor(const struct kg_diff *d)
{
    double a = kg_fact_noise_floor(d->base), b = kg_fact_noise_floor(d->head);
    return fmax(0.01, fmax(isnan(a) ? 0 : a, isnan(b) ? 0 : b));
}

int kg_diff_make(struct kg_diff *d, struct kg_record *base, struct kg_record *head,
                 const struct kg_diff_options *options, struct kg_error *error)
{
    char why[512];
    struct kg_attribution a;
    memset(d, 0, sizeof *d);
    d->base = base;
    d->head = head;
    d->n_spread_runs = options->n_spread_runs;
    if (has_times(base) && has_times(head)) {
        const char *text = kg_fact_times_refused(base, head, why, sizeof why);
        d->times_refused = text ? kg_arena_copy(&d->arena, text, strlen(text)) : NULL;
    }
    if (kg_fact_differs(base, head, KG_FACT_SEED)) {
        const char *x = kg_fact(base, KG_FACT_SEED), *y = kg_fact(head, KG_FACT_SEED);
        snprintf(why, sizeof why, "seed differs: %.80s -> %.80s", x ? x : "none",
                 y ? y : "none");
        d->data_refused = kg_arena_copy(&d->arena, why, strlen(why));
    }
    double floor = noise_floor(d);
    kg_attribute_init(&a, base, head);
    add_environment(d);
    d->pairs = kg_xcalloc(base->n_cells + head->n_cells, sizeof *d->pairs);
    for (size_t i = 0, j = 0; i < base->n_cells || j < head->n_cells;) {
        const struct kg_record_cell *b = i < base->n_cells ? &base->cells[i] : NULL;
        const struct kg_record_cell *h = j < head->n_cells ? &head->cells[j] : NULL;
        int order = !b ? 1 : !h ? -1 : strcmp(b->id, h->id);
        if (order < 0)
            h = NULL;
        else if (order > 0)
            b = NULL;
        i += b != NULL;
        j += h != NULL;
        if (!looked_at(options, h ? h : b))
            continue;
        d->pairs[d->n_pairs++] = (struct kg_pair){b, h};
        d->n_cells_base += b != NULL;
        d->n_cells_head += h != NULL;
        size_t before = d->n_changes;
        unsigned causes = kg_attribute_cell(&a, base, head, b, h);
        if (!h)
            add_gone(d, b, causes);
        else if (!b)
            add_joined(d, h, causes);
        else
            compare_cells(d, options, b, h, causes, floor);
        d->n_common += b && h;
        d->n_same += b && h && d->n_changes == before;
    }
    if (d->n_changes)
        qsort(d->changes, d->n_changes, sizeof *d->changes, by_weight);
    if (d->n_common == 0)
        return kg_error_set(error, KG_E_INVALID,
                            "cannot compare: the results have no cell in common "
                            "(%zu and %zu cells%s)",
                            d->n_cells_base, d->n_cells_head,
                            options->n_only ? " after --only" : "");
    return KG_OK;
}

void kg_diff_clear(struct kg_diff *d)
{
    free(d->changes);
    free(d->pairs);
    kg_arena_clear(&d->arena);
    memset(d, 0, sizeof *d);
}

size_t kg_diff_worse(const struct kg_diff *d, unsigned fail_on)
{
    size_t n = 0;
    for (enum kg_change_class c = 0; c < KG_N_CHANGES; c++)
        n += fail_on >> c & 1 ? d->counts[c] : 0;
    return n;
}
