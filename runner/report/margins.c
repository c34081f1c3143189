/* The overview: how near to its bound each cell came, a row a section. */
#include <math.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/report/report.h"

enum { LEFT = 150, WIDTH = 640, ROW = 22, TOP = 22 };

static void put_grid(FILE *out, double bottom)
{
    for (int d = KG_PLOT_LOW; d <= KG_PLOT_HIGH; d++) {
        double x = kg_plot_x(pow(10, d), LEFT, WIDTH);
        fprintf(out,
                "<path class=\"%s\" d=\"M%.1f %dV%.0f\"/><text x=\"%.1f\" y=\"12\" "
                "text-anchor=\"middle\">%s</text>",
                d == 0 ? "bound" : "grid", x, TOP - 4, bottom, x,
                d == KG_PLOT_LOW    ? "&#8804;1e-6"
                : d == -5           ? "1e-5"
                : d == -4           ? "1e-4"
                : d == -3           ? "0.001"
                : d == -2           ? "0.01"
                : d == -1           ? "0.1"
                : d == 0            ? "bound"
                : d == KG_PLOT_HIGH ? "&#8805;100"
                                    : "10");
    }
}

/* Cells side by side that fall on one place are spread over the height of the row. */
static double jitter(size_t i)
{
    static const double steps[] = {0, -4, 4, -2, 2, -6, 6};
    return steps[i % (sizeof steps / sizeof steps[0])];
}

static void put_dot(FILE *out, const struct kg_record_cell *c,
                    const struct kg_record_check *k, double y)
{
    char number[32];
    fprintf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
            kg_report_class(c->verdict), kg_plot_x(k->margin, LEFT, WIDTH), y,
            c->verdict == KG_PASS ? "2.4" : "4");
    kg_put_xml(out, c->id);
    fprintf(out, ": %s</title></circle>",
            isnan(k->margin) ? "not a number" : kg_report_number(k->margin, number));
}

void kg_report_margins(FILE *out, const struct kg_report *report)
{
    const struct kg_record *r = kg_report_head(report);
    double bottom = TOP + (double)r->n_sections * ROW;
    if (r->n_sections == 0 || r->counts[KG_PASS] + r->counts[KG_FAIL] == 0)
        return;
    fprintf(
        out,
        "<h2>Margins</h2>\n<p class=\"dim\">Worst check of each cell: error as a part of "
        "its bound. Right of the line is over the bound; exact checks that hold are at "
        "the left.</p>\n<div class=\"wide\"><svg class=\"overview\" viewBox=\"0 0 %d "
        "%.0f\" role=\"img\" aria-label=\"margin of each cell, by section\">",
        LEFT + WIDTH + 30, bottom + 4);
    put_grid(out, bottom);
    for (size_t i = 0; i < r->n_sections; i++) {
        const struct kg_record_section *s = &r->sections[i];
        double y = TOP + ((double)i + 0.5) * ROW;
        fprintf(out, "<text class=\"name\" x=\"0\" y=\"%.1f\">", y + 4);
        char name[64];
        snprintf(name, sizeof name, "%.22s%s", s->name,
                 strlen(s->name) > 22 ? "..." : "");
        kg_put_xml(out, name);
        fputs("</text>", out);
        /* What failed is drawn last, on top. */
        for (int pass = 0; pass < 2; pass++)
            for (size_t j = 0; j < r->n_cells; j++) {
                const struct kg_record_cell *c = &r->cells[j];
                const struct kg_record_check *k = kg_report_worst(c);
                if (k && (c->verdict == KG_PASS) == (pass == 0) &&
                    strcmp(c->section, s->name) == 0)
                    put_dot(out, c, k, pass == 0 ? y + jitter(j) : y);
            }
    }
    fputs("</svg></div>\n", out);
}
