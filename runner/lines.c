#include "runner/lines.h"

#include <string.h>

#include "runner/escape.h"

void kg_line_paint(const struct kg_progress *p, const char *style, const char *text)
{
    if (p->color)
        fprintf(p->out, "\033[%sm%s\033[0m", style, text);
    else
        fputs(text, p->out);
}

/* As much of a text from elsewhere as a line can bear. */
void kg_line_text(const struct kg_progress *p, const char *text)
{
    char clean[1000];
    size_t length = strlen(text);
    kg_escape(text, length, clean, sizeof clean);
    fputs(clean, p->out);
    if (length > sizeof clean)
        fputs("...", p->out);
}

static const char *style_of(enum kg_verdict verdict)
{
    return verdict == KG_PASS   ? KG_STYLE_GREEN
           : verdict == KG_SKIP ? KG_STYLE_YELLOW
                                : KG_STYLE_RED;
}

static void print_number(FILE *out, const json_t *value)
{
    if (json_is_number(value))
        fprintf(out, "%.4g", json_number_value(value));
    else
        fputs(json_is_string(value) ? json_string_value(value) : "?", out);
}

/* "y: 0.0123 over the bound 0.001 (margin 12.3)" of the check that was furthest off. */
static void print_check(const struct kg_progress *p, const json_t *check)
{
    fputs(", ", p->out);
    kg_line_text(p, json_string_value(json_object_get(check, "name")));
    const json_t *margin = json_object_get(check, "margin");
    const json_t *value = json_object_get(check, "value");
    const json_t *bound = json_object_get(check, "bound");
    if (value) {
        fputs(": ", p->out);
        print_number(p->out, value);
    }
    if (bound) {
        fputs(" against ", p->out);
        print_number(p->out, bound);
    }
    if (margin) {
        fputs(", margin ", p->out);
        print_number(p->out, margin);
    }
}

void kg_line_cell(const struct kg_progress *p, const struct kg_result_cell *cell)
{
    fputs("  ", p->out);
    char word[8];
    snprintf(word, sizeof word, "%-5s", kg_verdict_name(cell->verdict));
    kg_line_paint(p, style_of(cell->verdict), word);
    fprintf(p->out, "  %s", cell->id);
    if (cell->verdict != KG_PASS)
        fprintf(p->out, "  %s", cell->reason);
    if (cell->detail[0] != '\0') {
        fputs(": ", p->out);
        kg_line_text(p, cell->detail);
    } else if (cell->verdict == KG_FAIL && kg_cell_worst_check(cell)) {
        print_check(p, kg_cell_worst_check(cell));
    }
    putc('\n', p->out);
}

void kg_line_count(const struct kg_progress *p, bool *is_first, size_t n,
                   const char *word, const char *style)
{
    if (n == 0)
        return;
    char text[64];
    snprintf(text, sizeof text, "%zu %s", n, word);
    if (!*is_first)
        fputs(", ", p->out);
    kg_line_paint(p, style, text);
    *is_first = false;
}
