#include <math.h>

#include "runner/diff/markup.h"
#include "runner/report/report.h"

enum { WIDTH = 200, HEIGHT = 14, LINE = 90, BAR = 5, MAX_BARS = 60 };

double kg_plot_x(double margin, double left, double width)
{
    double decade = margin <= 0 ? (double)KG_PLOT_LOW : log10(margin);
    if (!(decade < KG_PLOT_HIGH)) /* NaN and infinity too: as bad as the scale goes */
        decade = KG_PLOT_HIGH;
    if (decade < KG_PLOT_LOW)
        decade = KG_PLOT_LOW;
    return left + width * (decade - KG_PLOT_LOW) / (KG_PLOT_HIGH - KG_PLOT_LOW);
}

void kg_plot_axis(FILE *out)
{
    fprintf(out,
            "<svg class=\"mark\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"log "
            "scale, the bound at 1\">",
            WIDTH, HEIGHT);
    for (int d = KG_PLOT_LOW; d <= KG_PLOT_HIGH; d += 2)
        fprintf(out, "<text x=\"%.1f\" y=\"10\" text-anchor=\"%s\">%s</text>",
                kg_plot_x(pow(10, d), 4, WIDTH - 8),
                d == KG_PLOT_LOW    ? "start"
                : d == KG_PLOT_HIGH ? "end"
                                    : "middle",
                d == -6   ? "1e-6"
                : d == -4 ? "1e-4"
                : d == -2 ? "0.01"
                : d == 0  ? "1"
                          : "100");
    fputs("</svg>", out);
}

void kg_plot_mark(FILE *out, const struct kg_record_check *check, const char *class_name)
{
    double bound = kg_plot_x(1, 4, WIDTH - 8);
    fprintf(out,
            "<svg class=\"mark\" viewBox=\"0 0 %d %d\" aria-hidden=\"true\"><path "
            "class=\"bound\" d=\"M%.1f 0V%d\"/>",
            WIDTH, HEIGHT, bound, HEIGHT);
    if (check && (!isnan(check->margin) || !(check->value <= check->bound))) {
        double x = kg_plot_x(check->margin, 4, WIDTH - 8);
        fprintf(out,
                "<path class=\"stem\" d=\"M4 7H%.1f\"/><circle class=\"%s\" cx=\"%.1f\" "
                "cy=\"7\" r=\"3.2\"/>",
                x, class_name, x);
    }
    fputs("</svg>", out);
}

/* Where a value stands between the least and the most, 1 at the top. */
static double place(double v, double least, double most, bool log)
{
    if (log) {
        v = log10(fmax(v, 1e-12));
        least = log10(fmax(least, 1e-12));
        most = log10(fmax(most, 1e-12));
    }
    if (!isfinite(v))
        return 1;
    return most > least ? (v - least) / (most - least) : 0.5;
}

void kg_plot_line(FILE *out, const double *values, size_t n, bool log)
{
    double least = INFINITY, most = -INFINITY;
    size_t seen = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i])) {
            least = fmin(least, values[i]);
            most = fmax(most, values[i]);
            seen++;
        }
    if (seen == 0)
        return;
    fprintf(out, "<svg class=\"line\" viewBox=\"0 0 %d %d\" aria-hidden=\"true\">", LINE,
            HEIGHT);
    if (log && most >= 1)
        fprintf(out, "<path class=\"bound\" d=\"M0 %.1fH%d\"/>",
                HEIGHT - 2 - (HEIGHT - 4) * place(1, least, most, log), LINE);
    fputs("<path class=\"trend\" d=\"", out);
    bool pen = false;
    double x = 0, y = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(values[i])) {
            pen = false;
            continue;
        }
        x = n > 1 ? 2 + (LINE - 6) * (double)i / (double)(n - 1) : LINE / 2.0;
        y = HEIGHT - 2 - (HEIGHT - 4) * fmin(1, place(values[i], least, most, log));
        fprintf(out, "%c%.1f %.1f", pen ? 'L' : 'M', x, y);
        pen = true;
    }
    fprintf(out, "\"/><circle class=\"now\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/></svg>", x,
            y);
}

void kg_plot_strip(FILE *out, const enum kg_verdict *verdicts, size_t n)
{
    size_t first = n > MAX_BARS ? n - MAX_BARS : 0;
    fprintf(
        out,
        "<svg class=\"strip\" style=\"width:%zupx\" viewBox=\"0 0 %zu %d\" role=\"img\" "
        "aria-label=\"",
        (n - first) * BAR, (n - first) * BAR, HEIGHT);
    for (size_t i = first; i < n; i++)
        fprintf(out, "%s%s", i > first ? " " : "",
                verdicts[i] ? kg_verdict_name(verdicts[i]) : "-");
    fputs("\">", out);
    for (size_t i = first; i < n; i++) {
        /* Height says it too, for those who do not tell the colours apart. */
        int tall = verdicts[i] == KG_PASS                              ? 7
                   : verdicts[i] == KG_FAIL || verdicts[i] == KG_ERROR ? HEIGHT
                                                                       : 2;
        if (verdicts[i])
            fprintf(out,
                    "<rect class=\"%s\" x=\"%zu\" y=\"%d\" width=\"%d\" height=\"%d\"/>",
                    kg_report_class(verdicts[i]), (i - first) * BAR, HEIGHT - tall,
                    BAR - 1, tall);
    }
    fputs("</svg>", out);
}
