#include <stdlib.h>
#include <string.h>

#include "runner/hostrun.h"
#include "runner/lines.h"
#include "runner/progress.h"

#define LISTED_MAX 20

static void print_failures(const struct kg_progress *p, const struct kg_result *result)
{
    size_t n = 0;
    for (size_t s = 0; s < result->n_sections; s++) {
        const struct kg_result_section *section = &result->sections[s];
        if (section->status == KG_SECTION_ERROR && n++ < LISTED_MAX) {
            fputs(n == 1 ? "\n  " : "  ", p->out);
            kg_line_paint(p, KG_STYLE_RED, "ERROR");
            fprintf(p->out, "  section %s  %s: ", section->name, section->reason);
            kg_line_text(p, section->detail);
            putc('\n', p->out);
        }
        for (size_t i = 0; i < section->n_cells; i++) {
            const struct kg_result_cell *cell = &section->cells[i];
            bool is_told = section->status == KG_SECTION_ERROR || cell->interrupted;
            if (cell->verdict != KG_FAIL && cell->verdict != KG_ERROR)
                continue;
            if (is_told && strcmp(cell->reason, "not-run") == 0)
                continue;
            if (n++ >= LISTED_MAX)
                continue;
            if (n == 1)
                putc('\n', p->out);
            kg_line_cell(p, cell);
            kg_line_against(p, cell);
            fputs("         ", p->out);
            kg_line_text(p, cell->repro ? cell->repro : "");
            putc('\n', p->out);
        }
    }
    if (n > LISTED_MAX)
        fprintf(p->out, "  ... and %zu more in the result\n", n - LISTED_MAX);
}

struct group {
    const char *reason, *detail;
    size_t n;
};

static int by_count(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : strcmp(x->reason, y->reason);
}

static void count_skip(struct group *groups, size_t *n, size_t max, const char *reason,
                       const char *detail)
{
    for (size_t g = 0; g < *n; g++) {
        if (strcmp(groups[g].reason, reason) != 0)
            continue;
        groups[g].n++;
        if (groups[g].detail && strcmp(groups[g].detail, detail) != 0)
            groups[g].detail = NULL;
        return;
    }
    if (*n < max)
        groups[(*n)++] = (struct group){reason, detail, 1};
}

/* Skips by reason; the particulars where they are the same for all. */
static void print_skips(const struct kg_progress *p, const struct kg_result *result)
{
    struct group groups[16];
    size_t n = 0, n_sections = 0;
    for (size_t s = 0; s < result->n_sections; s++) {
        const struct kg_result_section *section = &result->sections[s];
        n_sections += section->status == KG_SECTION_FILTERED;
        for (size_t i = 0; i < section->n_cells; i++)
            if (section->cells[i].verdict == KG_SKIP)
                count_skip(groups, &n, 16, section->cells[i].reason,
                           section->cells[i].detail);
    }
    qsort(groups, n, sizeof groups[0], by_count);
    if (n + n_sections > 0)
        fputs("\nSkipped:\n", p->out);
    for (size_t g = 0; g < n; g++) {
        fprintf(p->out, "  %5zu  %s", groups[g].n, groups[g].reason);
        const char *detail = groups[g].detail ? groups[g].detail : "";
        /* The selection's own words begin with the reason. */
        size_t n_reason = strlen(groups[g].reason);
        if (strncmp(detail, groups[g].reason, n_reason) == 0 && detail[n_reason] == ':')
            detail += n_reason + 1 + (detail[n_reason + 1] == ' ');
        if (detail[0]) {
            fputs(": ", p->out);
            kg_line_text(p, detail);
        }
        putc('\n', p->out);
    }
    if (n_sections > 0)
        fprintf(p->out, "  %5zu  section%s left out by the selection\n", n_sections,
                n_sections == 1 ? "" : "s");
}

static json_int_t count_of(const struct kg_result_cell *cell, const char *key)
{
    return json_integer_value(
        json_object_get(json_object_get(cell->against, "outputs"), key));
}

static void print_pair(const struct kg_progress *p, const char *id, const char *arm,
                       const json_t *pair)
{
    const json_t *ci = json_object_get(pair, "ci95");
    fprintf(p->out, "  %-44s ", id);
    kg_line_text(p, arm);
    if (json_object_get(pair, "ratio") == NULL) {
        fputs("  not timed: ", p->out);
        kg_line_text(p, json_string_value(json_object_get(pair, "error")));
    } else {
        fprintf(p->out, "  %.2f us, old %.2f us, ratio %.4f [%.4f, %.4f]%s",
                json_number_value(json_object_get(pair, "new_us")),
                json_number_value(json_object_get(pair, "old_us")),
                json_number_value(json_object_get(pair, "ratio")),
                json_number_value(json_array_get(ci, 0)),
                json_number_value(json_array_get(ci, 1)),
                json_is_true(json_object_get(pair, "throttled")) ? "  throttled" : "");
    }
    putc('\n', p->out);
}

/* --against: who fails what, and how many cells gave other bits. */
static void print_against(const struct kg_progress *p, const struct kg_result *result)
{
    size_t on_both = 0, other_bits = 0, fails[4] = {0};
    bool has_pairs = false;
    for (size_t s = 0; s < result->n_sections; s++) {
        for (size_t i = 0; i < result->sections[s].n_cells; i++) {
            const struct kg_result_cell *cell = &result->sections[s].cells[i];
            const char *on = kg_cell_fails_on(cell);
            const char *arm;
            json_t *pair;
            if (on == NULL)
                continue;
            on_both += count_of(cell, "compared") > 0;
            other_bits += count_of(cell, "equal") < count_of(cell, "compared");
            fails[on[0] == 'n' ? on[2] == 'w' : on[0] == 'o' ? 2 : 3]++;
            json_object_foreach(json_object_get(cell->against, "pairs"), arm, pair)
            {
                if (!has_pairs)
                    fputs(
                        "\nTimes, the new one by the old one, with the 95 % interval:\n",
                        p->out);
                has_pairs = true;
                print_pair(p, cell->id, arm, pair);
            }
        }
    }
    if (fails[0] + fails[1] + fails[2] + fails[3] == 0)
        return;
    fprintf(p->out,
            "\nAgainst    %zu cells fail on the new one only, %zu on the old one only, "
            "%zu on both;\n           %zu of %zu compared have other bits\n",
            fails[1], fails[2], fails[3], other_bits, on_both);
}

void kg_progress_summary(const struct kg_progress *p, const struct kg_result *result,
                         const char *where)
{
    struct kg_summary summary;
    bool is_first = true;
    kg_result_summarise(result, &summary);
    if (!p->quiet) {
        print_failures(p, result);
        print_skips(p, result);
        print_against(p, result);
        putc('\n', p->out);
    }
    kg_line_paint(
        p,
        summary.verdict == KG_RUN_GREEN
            ? KG_STYLE_GREEN
            : (summary.verdict == KG_RUN_INCOMPLETE ? KG_STYLE_YELLOW : KG_STYLE_RED),
        kg_run_verdict_name(summary.verdict));
    fputs("  ", p->out);
    kg_line_count(p, &is_first, summary.pass, "passed", KG_STYLE_GREEN);
    kg_line_count(p, &is_first, summary.fail, "failed", KG_STYLE_RED);
    kg_line_count(p, &is_first, summary.error, "in error", KG_STYLE_RED);
    kg_line_count(p, &is_first, summary.skip, "skipped", KG_STYLE_YELLOW);
    fprintf(p->out, "%s in %.1f s\n", is_first ? "no cells" : "", kg_now() - p->started);
    if (result->interrupted)
        fputs(
            "The run was interrupted; cells that had no verdict yet are ERROR not-run.\n",
            p->out);
    else if (summary.verdict == KG_RUN_ERROR)
        fputs("Nothing was compared.\n", p->out);
    else if (summary.verdict == KG_RUN_INCOMPLETE)
        fprintf(p->out, "%zu required cell%s did not run.\n", summary.missing,
                summary.missing == 1 ? "" : "s");
    if (where) {
        fputs("Result: ", p->out);
        kg_line_text(p, where);
        putc('\n', p->out);
    }
    fflush(p->out);
}
