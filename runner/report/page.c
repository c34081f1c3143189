#include <math.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/report/report.h"

struct kg_record *kg_report_head(const struct kg_report *report)
{
    return &report->runs[report->n - 1];
}

const struct kg_record_check *kg_report_worst(const struct kg_record_cell *cell)
{
    const struct kg_record_check *worst = NULL;
    double most = -1;
    for (size_t i = 0; i < cell->n_checks; i++) {
        const struct kg_record_check *k = &cell->checks[i];
        if (strcmp(k->class_name, "info") == 0)
            continue;
        double rank = isnan(k->margin) ? INFINITY : k->margin;
        if (!worst || rank > most) {
            worst = k;
            most = rank;
        }
    }
    return worst;
}

const char *kg_report_class(enum kg_verdict verdict)
{
    static const char *const names[] = {"", "pass", "fail", "skip", "error"};
    return names[verdict];
}

const char *kg_report_number(double value, char buffer[32])
{
    if (isnan(value))
        buffer[0] = '\0';
    else
        snprintf(buffer, 32, "%.3g", value);
    return buffer;
}

static const char *verdict_class(const char *verdict)
{
    return strcmp(verdict, "GREEN") == 0 ? "pass"
           : strcmp(verdict, "RED") == 0 ? "fail"
                                         : "error";
}

static void put_fact(FILE *out, struct kg_record *r, enum kg_fact fact,
                     const char *before)
{
    const char *text = kg_fact(r, fact);
    if (!text)
        return;
    fputs(before, out);
    kg_put_xml(out, text);
}

static void put_count(FILE *out, size_t n, const char *class_name, const char *word)
{
    fprintf(out, "<span class=\"%s\"><b>%zu</b> %s</span>\n", n ? class_name : "zero", n,
            word);
}

static void put_header(FILE *out, const struct kg_report *report)
{
    struct kg_record *r = kg_report_head(report);
    const char *verdict = r->verdict ? r->verdict : "NO VERDICT";
    const char *manifest = kg_fact(r, KG_FACT_MANIFEST);
    const char *synthetic = kg_fact(r, KG_FACT_SYNTHETIC);
    const char *interrupted = kg_fact(r, KG_FACT_INTERRUPTED);
    const char *dirty = kg_fact(r, KG_FACT_DIRTY), *commit = kg_fact(r, KG_FACT_COMMIT);
    fprintf(out, "<header><h1><span class=\"badge big %s\">", verdict_class(verdict));
    kg_put_xml(out, verdict);
    fputs("</span> <span>kgate: ", out);
    kg_put_xml(out, manifest ? manifest : "battery");
    fputs("</span></h1>\n<p class=\"counts\">", out);
    put_count(out, r->counts[KG_PASS], "green", "passed");
    put_count(out, r->counts[KG_FAIL], "red", "failed");
    put_count(out, r->counts[KG_ERROR], "amber", "could not be judged");
    put_count(out, r->counts[KG_SKIP], "", "skipped");
    fputs("</p>\n<p class=\"dim\">", out);
    put_fact(out, r, KG_FACT_STARTED, "");
    if (commit) {
        char some[13];
        snprintf(some, sizeof some, "%s", commit);
        fputs(" · commit <code>", out);
        kg_put_xml(out, some);
        fprintf(out, "</code>%s",
                dirty && strcmp(dirty, "yes") == 0 ? " with uncommitted changes" : "");
    }
    put_fact(out, r, KG_FACT_PROVIDER, " · provider ");
    put_fact(out, r, KG_FACT_DEVICE, " · device ");
    put_fact(out, r, KG_FACT_HOST, " · host ");
    fputs("</p>\n", out);
    if (interrupted && strcmp(interrupted, "yes") == 0)
        fputs("<p class=\"note\">The run was interrupted: what it had not reached is "
              "listed "
              "as not run.</p>\n",
              out);
    if (synthetic && strcmp(synthetic, "yes") == 0)
        fputs(
            "<p class=\"note\">Synthetic: stand-ins took the place of real model files. "
            "</p>\n",
            out);
    if (r->n_cells == 0)
        fputs("<p class=\"note\">The result has no cells: nothing was compared.</p>\n",
              out);
    fputs("</header>\n", out);
}

void kg_report_write(FILE *out, const struct kg_report *report)
{
    struct kg_record *r = kg_report_head(report);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; img-src data:\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>kgate ",
          out);
    kg_put_xml(out, r->verdict ? r->verdict : "");
    put_fact(out, r, KG_FACT_MANIFEST, ": ");
    put_fact(out, r, KG_FACT_STARTED, ", ");
    fprintf(out, "</title>\n<style>%s</style></head>\n<body>\n", kg_report_style);
    put_header(out, report);
    kg_report_failures(out, report);
    kg_report_against(out, report);
    kg_report_sections(out, report);
    kg_report_margins(out, report);
    kg_report_skips(out, report);
    kg_report_runs(out, report);
    kg_report_cells(out, report);
    kg_report_timings(out, report);
    kg_report_environment(out, report);
    fputs("</body></html>\n", out);
}
