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
        fputs(", ", p->out);
        print_check(p, kg_cell_worst_check(cell));
    }
    putc('\n', p->out);
    for (size_t i = 0; p->verbose && i < json_array_size(cell->checks); i++) {
        fputs("         ", p->out);
        print_check(p, json_array_get(cell->checks, i));
        putc('\n', p->out);
    }
}

/* "y: 3 of 64 differ, worst at 17: 0.5 and 0.25" of the first output that differs. */
static void print_difference(const struct kg_progress *p, const json_t *against)
{
    const char *key;
    json_t *entry;
    json_t *differing = json_object_get(json_object_get(against, "outputs"), "differing");
    json_object_foreach(differing, key, entry)
    {
        const json_t *worst = json_object_get(entry, "worst");
        fputs("; ", p->out);
        kg_line_text(p, key);
        fprintf(p->out, ": %lld of %lld differ, worst at %lld: ",
                (long long)json_integer_value(json_object_get(entry, "differ")),
                (long long)json_integer_value(json_object_get(entry, "count")),
                (long long)json_integer_value(json_object_get(worst, "index")));
        print_number(p->out, json_object_get(worst, "new"));
        fputs(" and ", p->out);
        print_number(p->out, json_object_get(worst, "old"));
        return;
    }
}

void kg_line_against(const struct kg_progress *p, const struct kg_result_cell *cell)
{
    const char *fails_on = kg_cell_fails_on(cell);
    if (fails_on == NULL)
        return;
    const char *detail = json_string_value(json_object_get(cell->against, "detail"));
    const char *reason = json_string_value(json_object_get(cell->against, "reason"));
    const char *verdict = json_string_value(json_object_get(cell->against, "verdict"));
    bool is_new = strcmp(fails_on, "new") == 0, is_old = strcmp(fails_on, "old") == 0;
    fputs("         ", p->out);
    if (is_old)
        fprintf(p->out, "%s  ", cell->id);
    kg_line_paint(p,
                  is_new   ? KG_STYLE_RED
                  : is_old ? KG_STYLE_YELLOW
                           : KG_STYLE_DIM,
                  is_new                          ? "only the new one fails"
                  : is_old                        ? "only the old one fails"
                  : strcmp(fails_on, "both") == 0 ? "the old one fails too"
                                                  : "neither fails");
    if (strcmp(verdict, "PASS") != 0) {
        fprintf(p->out, ": old %s ", verdict);
        kg_line_text(p, reason ? reason : "");
        if (detail && detail[0]) {
            fputs(": ", p->out);
            kg_line_text(p, detail);
        }
    }
    print_difference(p, cell->against);
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
