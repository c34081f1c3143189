/* Where the numbers come from: the facts of the run, the runs of the history, timings. */
#include <math.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/report/report.h"

void kg_report_environment(FILE *out, const struct kg_report *report)
{
    struct kg_record *r = kg_report_head(report);
    fputs("<h2>Environment</h2>\n<dl>", out);
    for (enum kg_fact f = 0; f < KG_N_FACTS; f++) {
        const char *text = kg_fact(r, f);
        if (!text)
            continue;
        fprintf(out, "<dt>%s</dt><dd>", kg_fact_label(f));
        kg_put_xml(out, text);
        fputs("</dd>\n", out);
    }
    fputs("<dt>result</dt><dd>", out);
    kg_put_xml(out, r->path);
    fprintf(out, "</dd><dt>schema</dt><dd>%s %d.%d</dd></dl>\n", KG_RECORD_SCHEMA,
            r->major, r->minor);
}

void kg_report_runs(FILE *out, const struct kg_report *report)
{
    if (report->n < 2)
        return;
    fputs("<h2>Runs</h2>\n<div class=\"wide\"><table><thead><tr><th>started<th>commit<th "
          "class=\"opt\">provider<th class=\"opt\">device<th>verdict<th "
          "class=\"n\">passed<th class=\"n\">failed<th "
          "class=\"n\">error<th class=\"n\">skipped</tr></thead><tbody>\n",
          out);
    for (size_t i = report->n; i-- > 0;) {
        struct kg_record *r = &report->runs[i];
        static const enum kg_fact shown[] = {KG_FACT_STARTED, KG_FACT_COMMIT,
                                             KG_FACT_PROVIDER, KG_FACT_DEVICE};
        fputs("<tr>", out);
        for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
            const char *text = kg_fact(r, shown[k]);
            char some[41];
            snprintf(some, sizeof some, "%.*s", shown[k] == KG_FACT_COMMIT ? 12 : 40,
                     text ? text : "");
            fprintf(out, "<td class=\"%s\">", k < 2 ? "when" : "opt");
            kg_put_xml(out, some);
        }
        const char *verdict = r->verdict ? r->verdict : "";
        fprintf(out, "<td><span class=\"badge %s\">",
                strcmp(verdict, "GREEN") == 0 ? "pass"
                : strcmp(verdict, "RED") == 0 ? "fail"
                                              : "error");
        kg_put_xml(out, verdict);
        fprintf(out,
                "</span><td class=\"n\">%zu<td class=\"n\">%zu<td class=\"n\">%zu<td "
                "class=\"n\">%zu</tr>\n",
                r->counts[KG_PASS], r->counts[KG_FAIL], r->counts[KG_ERROR],
                r->counts[KG_SKIP]);
    }
    fputs("</tbody></table></div>\n", out);
}

static void put_number(FILE *out, double value, const char *format)
{
    fputs("<td class=\"n\">", out);
    if (isfinite(value))
        fprintf(out, format, value);
}

static void put_timing(FILE *out, const struct kg_record_cell *c,
                       const struct kg_record_timing *t)
{
    /* Over the roofline the measurement is wrong, not the kernel fast. */
    bool invalid = t->invalid || t->throttled;
    fprintf(out, "<tr%s><td class=\"id\">", invalid ? " class=\"error\"" : "");
    kg_put_xml(out, c->id);
    fputs("<td class=\"id\">", out);
    kg_put_xml(out, t->arm);
    fputs("<td>", out);
    kg_put_xml(out, t->series);
    put_number(out, t->median_us, "%.4g");
    put_number(out, t->mad_us, "%.2g");
    fprintf(out, "<td class=\"n\">%zu", t->n_samples);
    put_number(out, t->gbps, "%.0f");
    put_number(out, t->tflops, "%.2f");
    put_number(out, t->roofline_percent, "%.0f %%");
    fprintf(out, "%s</tr>\n",
            t->invalid     ? " <span class=\"badge error\">invalid</span>"
            : t->throttled ? " <span class=\"badge error\">throttled</span>"
                           : "");
}

void kg_report_timings(FILE *out, const struct kg_report *report)
{
    const struct kg_record *r = kg_report_head(report);
    bool begun = false;
    double floor = kg_fact_noise_floor(r);
    for (size_t i = 0; i < r->n_cells; i++)
        for (size_t k = 0; k < r->cells[i].n_timings; k++) {
            if (!begun)
                fputs(
                    "<h2>Timings</h2>\n<div class=\"wide\"><table><thead><tr><th>cell<th>"
                    "arm<th>series<th class=\"n\">median µs<th class=\"n\">MAD<th "
                    "class=\"n\">samples<th class=\"n\">GB/s<th class=\"n\">TFLOP/s<th "
                    "class=\"n\">of the roofline</tr></thead><tbody>\n",
                    out);
            begun = true;
            put_timing(out, &r->cells[i], &r->cells[i].timings[k]);
        }
    if (begun)
        fputs("</tbody></table></div>\n", out);
    if (begun && !isnan(floor))
        fprintf(out, "<p class=\"dim\">Noise floor of the run: %.2g %%.</p>\n",
                floor * 100);
}
