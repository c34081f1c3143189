#include <string.h>

#include "runner/diff/markup.h"
#include "runner/diff/print.h"
#include "runner/escape.h"

const char *kg_diff_count_text(const struct kg_diff *d, unsigned mask, char *buffer,
                               size_t size)
{
    size_t at = 0;
    snprintf(buffer, size, "no change");
    for (enum kg_change_class c = 0; c < KG_N_CHANGES; c++)
        if (mask >> c & 1 && d->counts[c] && at < size)
            at += (size_t)snprintf(buffer + at, size - at, "%s%zu %s", at ? ", " : "",
                                   d->counts[c], kg_change_name(c));
    return buffer;
}

const char *kg_change_cause_text(const struct kg_change *c, char *buffer, size_t size)
{
    char causes[128];
    bool asks = c->class != KG_CHANGE_ENVIRONMENT &&
                c->class != KG_CHANGE_STILL_FAILING && c->class != KG_CHANGE_LEFT &&
                (c->class != KG_CHANGE_NEW || c->causes);
    snprintf(buffer, size, "%s%s%s", asks ? "[" : "",
             asks ? kg_cause_text(c->causes, causes, sizeof causes) : "",
             asks ? "]" : "");
    return buffer;
}

const char *kg_diff_refusal_text(const struct kg_diff *d, char *buffer, size_t size)
{
    size_t at = 0;
    buffer[0] = '\0';
    for (enum kg_refusal r = 0; r < KG_N_REFUSALS; r++)
        if (d->n_times_refused[r] && at < size)
            at += (size_t)snprintf(buffer + at, size - at, "%s%zu %s", at ? ", " : "",
                                   d->n_times_refused[r], kg_refusal_name(r));
    return buffer;
}

static void print_run(FILE *out, const char *side, struct kg_record *r)
{
    static const enum kg_fact shown[] = {KG_FACT_STARTED, KG_FACT_PROVIDER,
                                         KG_FACT_DEVICE, KG_FACT_HOST};
    fprintf(out, "%s  ", side);
    kg_put_plain(out, r->path);
    const char *commit = kg_fact(r, KG_FACT_COMMIT), *dirty = kg_fact(r, KG_FACT_DIRTY);
    if (commit) {
        fputs("  ", out);
        char some[13];
        snprintf(some, sizeof some, "%s", commit);
        kg_put_plain(out, some);
        fputs(dirty && strcmp(dirty, "yes") == 0 ? "+dirty" : "", out);
    }
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        if (kg_fact(r, shown[i])) {
            fputs("  ", out);
            kg_put_plain(out, kg_fact(r, shown[i]));
        }
    fprintf(out, "\n      ");
    kg_put_plain(out, r->verdict ? r->verdict : "no verdict");
    fprintf(out, ": %zu pass, %zu fail, %zu skip, %zu error\n", r->counts[KG_PASS],
            r->counts[KG_FAIL], r->counts[KG_SKIP], r->counts[KG_ERROR]);
}

static const char *cell_id(const struct kg_change *c)
{
    return c->head ? c->head->id : c->base ? c->base->id : c->what;
}

static void print_change(FILE *out, const struct kg_change *c, size_t columns)
{
    char causes[160];
    fputs("  ", out);
    kg_put_padded(out, cell_id(c), columns);
    fputs("  ", out);
    if (c->what && c->class != KG_CHANGE_ENVIRONMENT) {
        kg_put_plain(out, c->what);
        fputs(": ", out);
    }
    kg_put_plain(out, c->detail);
    kg_change_cause_text(c, causes, sizeof causes);
    fprintf(out, "%s%s", *causes ? "  " : "", causes);
    putc('\n', out);
    if (c->class == KG_CHANGE_BROKEN && c->head->repro) {
        fputs("    again: ", out);
        kg_put_plain(out, c->head->repro);
        putc('\n', out);
    }
}

static size_t longest(const struct kg_change *changes, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t columns = strlen(cell_id(&changes[i]));
        if (columns > most && columns <= 48)
            most = columns;
    }
    return most;
}

static void print_class(FILE *out, const struct kg_diff *d, const struct kg_print *print,
                        enum kg_change_class class, const struct kg_change *changes)
{
    size_t n = d->counts[class], shown = n;
    bool in_full = class == KG_CHANGE_COVERAGE_LOST || class == KG_CHANGE_LEFT ||
                   class == KG_CHANGE_NEW || class == KG_CHANGE_ENVIRONMENT;
    if (!in_full && print->limit && n > print->limit)
        shown = print->limit;
    fprintf(out, "\n%s (%zu)%s\n", kg_change_name(class), n,
            print->fail_on >> class & 1 ? "  <- worse" : "");
    size_t columns = longest(changes, shown);
    for (size_t i = 0; i < shown; i++)
        print_change(out, &changes[i], columns);
    if (shown < n)
        fprintf(out, "  ... and %zu more, less severe (--limit 0 shows all)\n",
                n - shown);
}

void kg_diff_print_text(FILE *out, const struct kg_diff *d, const struct kg_print *print)
{
    char counts[512];
    print_run(out, "base", d->base);
    print_run(out, "head", d->head);
    if (d->data_refused) {
        fputs("margins, bounds and digests are not compared: ", out);
        kg_put_plain(out, d->data_refused);
        putc('\n', out);
    }
    if (d->times_refused) {
        fputs("times are not compared: ", out);
        kg_put_plain(out, d->times_refused);
        putc('\n', out);
    }
    if (*kg_diff_refusal_text(d, counts, sizeof counts))
        fprintf(out, "times of arms are not compared: %s\n", counts);
    if (d->n_spread_runs)
        fprintf(out, "spread of margins: from %zu more runs of base's build\n",
                d->n_spread_runs);
    for (size_t i = 0; i < d->n_changes; i += d->counts[d->changes[i].class])
        print_class(out, d, print, d->changes[i].class, &d->changes[i]);
    fprintf(out, "\n%zu cells in both, %zu of them unchanged", d->n_common, d->n_same);
    if (d->n_timed)
        fprintf(out, "; times of %zu arms compared", d->n_timed);
    putc('\n', out);
    if (kg_diff_worse(d, print->fail_on))
        fprintf(out, "worse: %s\n",
                kg_diff_count_text(d, print->fail_on, counts, sizeof counts));
    else
        fprintf(out, "nothing worse\n");
}
