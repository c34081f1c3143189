#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/diff/print.h"
#include "runner/escape.h"

/* One test case: a cell with its changes. */
struct testcase {
    const struct kg_record_cell *cell; /* of head where it has one */
    const struct kg_record_cell *head;
    const struct kg_change **changes;
    size_t n;
    bool fails;
};

static const char *change_id(const struct kg_change *c)
{
    return (c->head ? c->head : c->base)->id;
}

static int change_by_id(const void *a, const void *b)
{
    const struct kg_change *x = *(const struct kg_change *const *)a;
    const struct kg_change *y = *(const struct kg_change *const *)b;
    int order = strcmp(change_id(x), change_id(y));
    return order ? order : (x > y) - (x < y);
}

static int by_section(const void *a_, const void *b_)
{
    const struct testcase *a = a_, *b = b_;
    int order = strcmp(a->cell->section, b->cell->section);
    return order ? order : strcmp(a->cell->id, b->cell->id);
}

static void put_change(FILE *out, const struct kg_change *c)
{
    char causes[160];
    fprintf(out, "%s: ", kg_change_name(c->class));
    if (c->what) {
        kg_put_xml(out, c->what);
        fputs(": ", out);
    }
    kg_put_xml(out, c->detail);
    kg_change_cause_text(c, causes, sizeof causes);
    fprintf(out, "%s%s", *causes ? " " : "", causes);
}

static void put_failure(FILE *out, const struct kg_change *c)
{
    fprintf(out, "   <failure type=\"%s\" message=\"", kg_change_name(c->class));
    put_change(out, c);
    fputs("\">", out);
    if (c->head && c->head->repro)
        kg_put_xml(out, c->head->repro);
    fputs("</failure>\n", out);
}

static void put_case(FILE *out, const struct testcase *t, unsigned fail_on)
{
    bool told = false;
    fputs("  <testcase classname=\"", out);
    kg_put_xml(out, t->cell->section);
    fputs("\" name=\"", out);
    kg_put_xml(out, t->cell->id);
    fprintf(out, "\" time=\"%.3f\"",
            t->head && isfinite(t->head->seconds) ? t->head->seconds : 0.0);
    bool skipped = !t->fails && (!t->head || t->head->verdict == KG_SKIP);
    if (t->n == 0 && !skipped) {
        fputs("/>\n", out);
        return;
    }
    fputs(">\n", out);
    if (skipped) {
        fputs("   <skipped message=\"", out);
        kg_put_xml(out, !t->head ? "gone" : t->head->reason);
        fputs("\"/>\n", out);
    }
    for (size_t i = 0; i < t->n; i++)
        if (fail_on >> t->changes[i]->class & 1)
            put_failure(out, t->changes[i]);
    for (size_t i = 0; i < t->n; i++) {
        if (fail_on >> t->changes[i]->class & 1)
            continue;
        fputs(told ? "" : "   <system-out>", out);
        told = true;
        put_change(out, t->changes[i]);
        putc('\n', out);
    }
    fprintf(out, "%s  </testcase>\n", told ? "   </system-out>\n" : "");
}

/* Suite "run": one case for each fact that changed. */
static void put_environment(FILE *out, const struct kg_diff *d, unsigned fail_on)
{
    bool fails = fail_on >> KG_CHANGE_ENVIRONMENT & 1;
    size_t n = d->counts[KG_CHANGE_ENVIRONMENT];
    if (n == 0)
        return;
    fprintf(
        out,
        " <testsuite name=\"environment\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" "
        "skipped=\"0\" time=\"0\">\n",
        n, fails ? n : 0);
    for (size_t i = 0; i < d->n_changes; i++) {
        const struct kg_change *c = &d->changes[i];
        if (c->class != KG_CHANGE_ENVIRONMENT)
            continue;
        fputs("  <testcase classname=\"environment\" name=\"", out);
        kg_put_xml(out, c->what);
        fputs("\" time=\"0\">\n", out);
        if (fails) {
            put_failure(out, c);
        } else {
            fputs("   <system-out>", out);
            put_change(out, c);
            fputs("</system-out>\n", out);
        }
        fputs("  </testcase>\n", out);
    }
    fputs(" </testsuite>\n", out);
}

static void put_suite(FILE *out, const struct testcase *cases, size_t n, unsigned fail_on)
{
    size_t failures = 0, skipped = 0;
    double seconds = 0;
    for (size_t i = 0; i < n; i++) {
        failures += cases[i].fails;
        skipped +=
            !cases[i].fails && (!cases[i].head || cases[i].head->verdict == KG_SKIP);
        if (cases[i].head && isfinite(cases[i].head->seconds))
            seconds += cases[i].head->seconds;
    }
    fputs(" <testsuite name=\"", out);
    kg_put_xml(out, cases->cell->section);
    fprintf(out,
            "\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"%zu\" "
            "time=\"%.3f\">\n",
            n, failures, skipped, seconds);
    for (size_t i = 0; i < n; i++)
        put_case(out, &cases[i], fail_on);
    fputs(" </testsuite>\n", out);
}

void kg_diff_print_junit(FILE *out, const struct kg_diff *d, const struct kg_print *print)
{
    struct testcase *cases = kg_xcalloc(d->n_pairs, sizeof *cases);
    const struct kg_change **changes = kg_xcalloc(d->n_changes, sizeof *changes);
    size_t n_changes = 0, at = 0, failures = 0;
    for (size_t i = 0; i < d->n_changes; i++)
        if (d->changes[i].base || d->changes[i].head)
            changes[n_changes++] = &d->changes[i];
    qsort(changes, n_changes, sizeof *changes, change_by_id);
    for (size_t i = 0; i < d->n_pairs; i++) {
        struct testcase *t = &cases[i];
        t->head = d->pairs[i].head;
        t->cell = t->head ? t->head : d->pairs[i].base;
        t->changes = changes + at;
        for (; at < n_changes && strcmp(change_id(changes[at]), t->cell->id) == 0; at++) {
            t->n++;
            t->fails |= print->fail_on >> changes[at]->class & 1;
        }
        failures += t->fails;
    }
    qsort(cases, d->n_pairs, sizeof *cases, by_section);
    size_t facts = d->counts[KG_CHANGE_ENVIRONMENT];
    if (print->fail_on >> KG_CHANGE_ENVIRONMENT & 1)
        failures += facts;
    fprintf(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites name=\"kgate diff\" tests=\"%zu\" failures=\"%zu\" errors=\"0\">\n",
        d->n_pairs + facts, failures);
    put_environment(out, d, print->fail_on);
    for (size_t i = 0, n; i < d->n_pairs; i += n) {
        for (n = 1; i + n < d->n_pairs &&
                    strcmp(cases[i].cell->section, cases[i + n].cell->section) == 0;)
            n++;
        put_suite(out, &cases[i], n, print->fail_on);
    }
    fputs("</testsuites>\n", out);
    free(cases);
    free(changes);
}
