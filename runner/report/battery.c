/* What failed, the sections, what was skipped. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/escape.h"
#include "runner/report/report.h"

enum { MAX_CARDS = 200, MAX_SKIPPED = 200 };

static void put_check(FILE *out, const struct kg_record_check *k)
{
    char a[32], b[32], c[32];
    fputs("<p><b>", out);
    kg_put_xml(out, k->name);
    fputs("</b> ", out);
    kg_put_xml(out, k->metric);
    fprintf(out, " %s, bound %s", isnan(k->value) ? "nan" : kg_report_number(k->value, a),
            isnan(k->bound) ? "not recorded" : kg_report_number(k->bound, b));
    if (!isnan(k->margin))
        fprintf(out, ", margin %s", kg_report_number(k->margin, c));
    if (!isnan(k->worst_index))
        fprintf(out, "; worst at %.0f: got %.9g, want %.9g", k->worst_index, k->worst_got,
                k->worst_want);
    fputs("</p>\n", out);
}

static void put_log(FILE *out, const char *log)
{
    if (!log)
        return;
    fputs("<details><summary>end of the log</summary><pre>", out);
    /* Line by line: the ends of lines stay, all else that is no text shows as \xNN. */
    for (const char *p = log; *p;) {
        size_t n = strcspn(p, "\n");
        char *line = kg_xcalloc(n + 1, 1);
        memcpy(line, p, n);
        kg_put_xml(out, line);
        free(line);
        p += n + (p[n] == '\n');
        putc('\n', out);
    }
    fputs("</pre></details>\n", out);
}

static void put_card(FILE *out, const struct kg_record_cell *c)
{
    fprintf(out,
            "<div class=\"card %s\"><header><span class=\"badge %s\">%s</span><span "
            "class=\"id\">",
            kg_report_class(c->verdict), kg_report_class(c->verdict),
            kg_verdict_name(c->verdict));
    kg_put_xml(out, c->id);
    fputs("</span><span class=\"dim\">", out);
    kg_put_xml(out, c->reason);
    fputs("</span></header>\n", out);
    for (size_t i = 0; i < c->n_checks; i++)
        if (strcmp(c->checks[i].class_name, "info") != 0 &&
            !(c->checks[i].value <= c->checks[i].bound))
            put_check(out, &c->checks[i]);
    if (c->detail) {
        fputs("<p>", out);
        kg_put_xml(out, c->detail);
        fputs("</p>\n", out);
    }
    if (c->fails_on)
        fprintf(out, "<p>%s</p>\n",
                strcmp(c->fails_on, "both") == 0
                    ? "The provider it was compared with fails too."
                    : "The provider it was compared with does not fail.");
    put_log(out, c->log_tail);
    if (c->repro) {
        fputs("<pre>", out);
        kg_put_xml(out, c->repro);
        fputs("</pre>", out);
    }
    fputs("</div>\n", out);
}

static void put_section_card(FILE *out, const struct kg_record_section *s)
{
    fputs("<div class=\"card error\"><header><span class=\"badge "
          "error\">SECTION</span><span "
          "class=\"id\">",
          out);
    kg_put_xml(out, s->name);
    fputs("</span><span class=\"dim\">", out);
    kg_put_xml(out, s->reason);
    fputs("</span></header>\n<p>", out);
    kg_put_xml(out, s->detail);
    fputs("</p>", out);
    put_log(out, s->log_tail);
    fputs("</div>\n", out);
}

void kg_report_failures(FILE *out, const struct kg_report *report)
{
    const struct kg_record *r = kg_report_head(report);
    size_t bad = r->counts[KG_FAIL] + r->counts[KG_ERROR], shown = 0;
    size_t sections = 0;
    for (size_t i = 0; i < r->n_sections; i++)
        sections += r->sections[i].status && strcmp(r->sections[i].status, "error") == 0;
    if (bad + sections == 0)
        return;
    fputs("<h2>What failed</h2>\n", out);
    for (size_t i = 0; i < r->n_sections; i++)
        if (r->sections[i].status && strcmp(r->sections[i].status, "error") == 0)
            put_section_card(out, &r->sections[i]);
    for (enum kg_verdict v = KG_FAIL;; v = KG_ERROR) {
        for (size_t i = 0; i < r->n_cells && shown < MAX_CARDS; i++)
            if (r->cells[i].verdict == v) {
                put_card(out, &r->cells[i]);
                shown++;
            }
        if (v == KG_ERROR)
            break;
    }
    if (shown < bad)
        fprintf(out, "<p class=\"dim\">%zu more are among the cells below.</p>\n",
                bad - shown);
}

void kg_report_sections(FILE *out, const struct kg_report *report)
{
    const struct kg_record *r = kg_report_head(report);
    char margin[32];
    if (r->n_sections == 0)
        return;
    fputs("<h2>Sections</h2>\n<div "
          "class=\"wide\"><table><thead><tr><th>section<th>status<th "
          "class=\"n\">passed<th class=\"n\">failed<th class=\"n\">error<th "
          "class=\"n\">skipped<th class=\"n\">worst margin<th class=\"n\">seconds</tr>"
          "</thead><tbody>\n",
          out);
    for (size_t i = 0; i < r->n_sections; i++) {
        const struct kg_record_section *s = &r->sections[i];
        size_t counts[KG_ERROR + 1] = {0};
        double worst = NAN;
        for (size_t j = 0; j < r->n_cells; j++) {
            const struct kg_record_cell *c = &r->cells[j];
            if (strcmp(c->section, s->name) != 0)
                continue;
            const struct kg_record_check *k = kg_report_worst(c);
            counts[c->verdict]++;
            if (k && !isnan(k->margin))
                worst = isnan(worst) ? k->margin : fmax(worst, k->margin);
        }
        bool bad = counts[KG_FAIL] || (s->status && strcmp(s->status, "error") == 0);
        fprintf(out, "<tr%s><td class=\"id\">", bad ? " class=\"fail\"" : "");
        kg_put_xml(out, s->name);
        fputs("<td>", out);
        kg_put_xml(out, s->status);
        if (s->reason && *s->reason) {
            fputs(" <span class=\"dim\">", out);
            kg_put_xml(out, s->reason);
            fputs("</span>", out);
        }
        fprintf(out,
                "<td class=\"n\">%zu<td class=\"n%s\">%zu<td class=\"n%s\">%zu<td "
                "class=\"n\">%zu<td class=\"n\">%s<td class=\"n\">",
                counts[KG_PASS], counts[KG_FAIL] ? " red" : "", counts[KG_FAIL],
                counts[KG_ERROR] ? " amber" : "", counts[KG_ERROR], counts[KG_SKIP],
                kg_report_number(worst, margin));
        if (!isnan(s->seconds))
            fprintf(out, "%.1f", s->seconds);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static int by_reason(const void *a_, const void *b_)
{
    const struct kg_record_cell *a = *(const struct kg_record_cell *const *)a_;
    const struct kg_record_cell *b = *(const struct kg_record_cell *const *)b_;
    int order = strcmp(or_empty(a->reason), or_empty(b->reason));
    if (order == 0)
        order = strcmp(or_empty(a->detail), or_empty(b->detail));
    return order ? order : strcmp(a->id, b->id);
}

static bool same_reason(const struct kg_record_cell *a, const struct kg_record_cell *b)
{
    return strcmp(or_empty(a->reason), or_empty(b->reason)) == 0 &&
           strcmp(or_empty(a->detail), or_empty(b->detail)) == 0;
}

void kg_report_skips(FILE *out, const struct kg_report *report)
{
    const struct kg_record *r = kg_report_head(report);
    size_t n = 0;
    if (r->counts[KG_SKIP] == 0)
        return;
    const struct kg_record_cell **skipped = kg_xcalloc(r->n_cells, sizeof *skipped);
    for (size_t i = 0; i < r->n_cells; i++)
        if (r->cells[i].verdict == KG_SKIP)
            skipped[n++] = &r->cells[i];
    qsort(skipped, n, sizeof *skipped, by_reason);
    fputs("<h2>Skipped</h2>\n", out);
    for (size_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && same_reason(skipped[i], skipped[i + k]);)
            k++;
        fputs("<details><summary>", out);
        kg_put_xml(out, skipped[i]->reason);
        fprintf(out, " <span class=\"dim\">(%zu) ", k);
        kg_put_xml(out, skipped[i]->detail);
        fputs("</span></summary><p>", out);
        for (size_t j = 0; j < k && j < MAX_SKIPPED; j++) {
            fputs("<span class=\"id\">", out);
            kg_put_xml(out, skipped[i + j]->id);
            fputs("</span><br>", out);
        }
        if (k > MAX_SKIPPED)
            fprintf(out, "... and %zu more", k - MAX_SKIPPED);
        fputs("</p></details>\n", out);
    }
    free(skipped);
}
