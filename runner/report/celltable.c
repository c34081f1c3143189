/* Every cell, a table a section; of several runs, the history of each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/escape.h"
#include "runner/report/report.h"

enum { OPEN_AT_MOST = 400 }; /* above, tables in which all passed are folded */

/* The history of one cell, one entry a run. */
struct history {
    enum kg_verdict *verdicts;
    double *margins, *times;
};

/* The first arm's median where the run was timed, else what the whole cell took. */
static double time_of(const struct kg_record_cell *c)
{
    return c->n_timings ? c->timings[0].median_us * 1e-6 : c->seconds;
}

static void fill(struct history *h, const struct kg_report *report, const char *id)
{
    for (size_t i = 0; i < report->n; i++) {
        const struct kg_record_cell *c = kg_record_find(&report->runs[i], id);
        const struct kg_record_check *k = c ? kg_report_worst(c) : NULL;
        h->verdicts[i] = c ? c->verdict : KG_NO_VERDICT;
        h->margins[i] = k ? k->margin : (double)NAN;
        h->times[i] = c && c->verdict != KG_SKIP ? time_of(c) : (double)NAN;
    }
}

static void put_row(FILE *out, const struct kg_report *report,
                    const struct kg_record_cell *c, struct history *h)
{
    const struct kg_record_check *k = kg_report_worst(c);
    char number[32];
    fprintf(out,
            "<tr class=\"%s\"><td><span class=\"badge %s\">%s</span><td class=\"id\">",
            kg_report_class(c->verdict), kg_report_class(c->verdict),
            kg_verdict_name(c->verdict));
    kg_put_xml(out, c->id);
    fputs("<td class=\"opt dim\">", out);
    kg_put_xml(out, k ? k->name : c->reason);
    fprintf(out, "<td class=\"n\">%s<td class=\"opt\">",
            !k ? ""
            : isnan(k->margin) && c->verdict != KG_PASS
                ? "nan"
                : kg_report_number(k->margin, number));
    if (k)
        kg_plot_mark(out, k, kg_report_class(c->verdict));
    if (report->n > 1) {
        fill(h, report, c->id);
        fputs("<td>", out);
        kg_plot_strip(out, h->verdicts, report->n);
        fputs("<td class=\"opt\">", out);
        kg_plot_line(out, h->margins, report->n, true);
        fputs("<td class=\"opt\">", out);
        kg_plot_line(out, h->times, report->n, false);
    }
    fputs("</tr>\n", out);
}

static int by_section(const void *a_, const void *b_)
{
    const struct kg_record_cell *a = *(const struct kg_record_cell *const *)a_;
    const struct kg_record_cell *b = *(const struct kg_record_cell *const *)b_;
    int order = strcmp(a->section, b->section);
    if (order == 0) { /* what failed first */
        int x = a->verdict == KG_FAIL ? 0 : a->verdict == KG_ERROR ? 1 : 2;
        int y = b->verdict == KG_FAIL ? 0 : b->verdict == KG_ERROR ? 1 : 2;
        order = x - y;
    }
    return order ? order : strcmp(a->id, b->id);
}

static void put_table(FILE *out, const struct kg_report *report,
                      const struct kg_record_cell *const *cells, size_t n, bool open,
                      struct history *h)
{
    fprintf(out, "<details%s><summary>", open ? " open" : "");
    kg_put_xml(out, cells[0]->section);
    fprintf(
        out,
        " <span class=\"dim\">(%zu)</span></summary><div class=\"wide\"><table><thead>"
        "<tr><th>verdict<th>cell<th class=\"opt\">check<th class=\"n\">margin<th "
        "class=\"opt\">",
        n);
    kg_plot_axis(out);
    if (report->n > 1)
        fputs("<th>history<th class=\"opt\">margin<th class=\"opt\">time", out);
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; i < n; i++)
        put_row(out, report, cells[i], h);
    fputs("</tbody></table></div></details>\n", out);
}

void kg_report_cells(FILE *out, const struct kg_report *report)
{
    const struct kg_record *r = kg_report_head(report);
    struct history h = {kg_xcalloc(report->n, sizeof *h.verdicts),
                        kg_xcalloc(report->n, sizeof *h.margins),
                        kg_xcalloc(report->n, sizeof *h.times)};
    const struct kg_record_cell **cells = kg_xcalloc(r->n_cells, sizeof *cells);
    for (size_t i = 0; i < r->n_cells; i++)
        cells[i] = &r->cells[i];
    if (r->n_cells) {
        qsort(cells, r->n_cells, sizeof *cells, by_section);
        fputs("<h2>Cells</h2>\n", out);
        if (report->n > 1)
            fputs(
                "<p class=\"dim\">History: oldest run at the left. A tall bar failed, a "
                "low one was skipped, a gap means that the run had no such cell. Time is "
                "the kernel's median where the run was timed, else that of the whole "
                "cell.</p>\n",
                out);
    }
    for (size_t i = 0, n; i < r->n_cells; i += n) {
        bool bad = false;
        for (n = 0;
             i + n < r->n_cells && strcmp(cells[i + n]->section, cells[i]->section) == 0;
             n++)
            bad |= cells[i + n]->verdict == KG_FAIL || cells[i + n]->verdict == KG_ERROR;
        put_table(out, report, &cells[i], n, bad || r->n_cells <= OPEN_AT_MOST, &h);
    }
    free(cells);
    free(h.verdicts);
    free(h.margins);
    free(h.times);
}
