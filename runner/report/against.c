/* --against: the cells on which the two providers do not agree. */
#include <stdlib.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/report/report.h"

enum { ROWS_MAX = 200 };

/* By how much it matters: who fails, then the bits. */
static int rank(const struct kg_record_cell *c)
{
    static const char *const order[] = {"new", "both", "old", "neither"};
    for (int i = 0; i < 4; i++)
        if (c->fails_on && strcmp(c->fails_on, order[i]) == 0)
            return i < 3 ? i : c->equal_outputs < c->outputs ? 3 : 4;
    return 5;
}

void kg_report_against(FILE *out, const struct kg_report *report)
{
    static const char *const words[] = {"only the new one fails", "both fail",
                                        "only the old one fails", "other bits"};
    const struct kg_record *r = kg_report_head(report);
    size_t counts[6] = {0}, shown = 0;
    for (size_t i = 0; i < r->n_cells; i++)
        counts[rank(&r->cells[i])]++;
    if (counts[5] == r->n_cells)
        return;
    fprintf(out,
            "<h2>Against the other provider</h2>\n<p>%zu cells fail on the new one only, "
            "%zu on both, %zu on the old one only; %zu pass on both with other bits, %zu "
            "agree.</p>\n",
            counts[0], counts[1], counts[2], counts[3], counts[4]);
    if (counts[0] + counts[1] + counts[2] + counts[3] == 0)
        return;
    fputs("<div class=\"wide\"><table><thead><tr><th>who<th>cell<th class=\"n\">outputs "
          "that differ<th class=\"opt\">the old one</tr></thead><tbody>\n",
          out);
    for (int k = 0; k < 4; k++)
        for (size_t i = 0; i < r->n_cells && shown < ROWS_MAX; i++) {
            const struct kg_record_cell *c = &r->cells[i];
            if (rank(c) != k)
                continue;
            shown++;
            fprintf(out, "<tr%s><td>%s<td class=\"id\">", k == 0 ? " class=\"fail\"" : "",
                    words[k]);
            kg_put_xml(out, c->id);
            if (c->outputs > 0)
                fprintf(out, "<td class=\"n\">%.0f of %.0f<td class=\"opt dim\">",
                        c->outputs - c->equal_outputs, c->outputs);
            else
                fputs("<td class=\"n\"><td class=\"opt dim\">", out);
            kg_put_xml(out, c->other_detail);
            fputs("</tr>\n", out);
        }
    fputs("</tbody></table></div>\n", out);
    if (shown < counts[0] + counts[1] + counts[2] + counts[3])
        fputs("<p class=\"dim\">More of them are in the result.</p>\n", out);
}
