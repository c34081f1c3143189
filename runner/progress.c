#include "runner/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runner/escape.h"
#include "runner/hostrun.h"

#define BOLD "1"
#define RED "1;31"
#define GREEN "1;32"
#define YELLOW "33"
#define DIM "2"

static void paint(const struct kg_progress *p, const char *style, const char *text)
{
    if (p->color)
        fprintf(p->out, "\033[%sm%s\033[0m", style, text);
    else
        fputs(text, p->out);
}

/* As much of a text from elsewhere as a line can bear. */
static void shown(const struct kg_progress *p, const char *text)
{
    char clean[1000];
    size_t length = strlen(text);
    kg_escape(text, length, clean, sizeof clean);
    fputs(clean, p->out);
    if (length > sizeof clean)
        fputs("...", p->out);
}

void kg_progress_open(struct kg_progress *p, FILE *out, bool quiet, bool verbose,
                      bool no_color)
{
    memset(p, 0, sizeof *p);
    const char *term = getenv("TERM"), *never = getenv("NO_COLOR");
    bool is_terminal = isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
    p->out = out;
    p->quiet = quiet;
    p->verbose = verbose;
    p->live = is_terminal && !quiet;
    p->color = is_terminal && !no_color && !(never && never[0] != '\0');
    p->started = kg_now();
}

void kg_progress_banner(struct kg_progress *p, const struct kg_banner *b)
{
    if (p->quiet)
        return;
    const char *const rows[][2] = {
        {"battery",   b->manifest },
        {"device",    b->device   },
        {"provider",  b->provider },
        {"selection", b->selection},
        {"note",      b->note     }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i][1] == NULL || rows[i][1][0] == '\0')
            continue;
        char label[16];
        snprintf(label, sizeof label, "%-11s", rows[i][0]);
        paint(p, DIM, label);
        shown(p, rows[i][1]);
        putc('\n', p->out);
    }
    putc('\n', p->out);
    fflush(p->out);
}

/* ---- the live line ---- */

static void erase(struct kg_progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", p->out);
    free(p->drawn);
    p->drawn = NULL;
}

static size_t terminal_width(const struct kg_progress *p)
{
    struct winsize size;
    if (ioctl(fileno(p->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* Cuts to `columns`; the text is UTF-8. */
static void cut(char *text, size_t columns)
{
    size_t n = 0;
    for (char *c = text; *c; c++) {
        if (((unsigned char)*c & 0xc0) != 0x80 && n++ == columns) {
            *c = '\0';
            return;
        }
    }
}

static void draw(struct kg_progress *p)
{
    if (!p->live || p->section == NULL)
        return;
    double now = kg_now();
    char *name = kg_escape_dup(p->cell ? p->cell->id : p->section->name);
    char *line =
        kg_format("[%zu/%zu] %zu/%zu cells  %.0f s  %s", p->sections_done + 1,
                  p->n_sections, p->cells_done, p->cells_planned, now - p->started, name);
    if (p->cell && now - p->cell_since >= 3) {
        char *longer = kg_format("%s (%.0f s)", line, now - p->cell_since);
        free(line);
        line = longer;
    }
    cut(line, terminal_width(p) - 1);
    free(name);
    if (p->drawn && strcmp(p->drawn, line) == 0) {
        free(line);
        return;
    }
    erase(p);
    paint(p, DIM, line);
    fflush(p->out);
    p->drawn = line;
}

/* ---- lines that stay ---- */

static const char *style_of(enum kg_verdict verdict)
{
    return verdict == KG_PASS ? GREEN : verdict == KG_SKIP ? YELLOW : RED;
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
    shown(p, json_string_value(json_object_get(check, "name")));
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

static void print_cell(const struct kg_progress *p, const struct kg_result_cell *cell)
{
    fputs("  ", p->out);
    char word[8];
    snprintf(word, sizeof word, "%-5s", kg_verdict_name(cell->verdict));
    paint(p, style_of(cell->verdict), word);
    fprintf(p->out, "  %s", cell->id);
    if (cell->verdict != KG_PASS)
        fprintf(p->out, "  %s", cell->reason);
    if (cell->detail[0] != '\0') {
        fputs(": ", p->out);
        shown(p, cell->detail);
    } else if (cell->verdict == KG_FAIL && kg_cell_worst_check(cell)) {
        print_check(p, kg_cell_worst_check(cell));
    }
    putc('\n', p->out);
}

static void on_section_begun(void *context, const struct kg_result_section *section)
{
    struct kg_progress *p = context;
    p->section = section;
    p->cell = NULL;
    draw(p);
}

static void on_planned(void *context, const struct kg_result_section *section)
{
    struct kg_progress *p = context;
    for (size_t i = 0; i < section->n_cells; i++)
        p->cells_planned += section->cells[i].selected;
}

static void on_cell_begun(void *context, const struct kg_result_section *section,
                          const struct kg_result_cell *cell)
{
    struct kg_progress *p = context;
    p->section = section;
    p->cell = cell;
    p->cell_since = kg_now();
}

static void on_cell_revised(void *context, const struct kg_result_section *section,
                            const struct kg_result_cell *cell)
{
    struct kg_progress *p = context;
    (void)section;
    if (p->quiet)
        return;
    erase(p);
    print_cell(p, cell);
    draw(p);
}

static void on_cell_done(void *context, const struct kg_result_section *section,
                         const struct kg_result_cell *cell)
{
    struct kg_progress *p = context;
    p->cells_done += cell->selected;
    p->cell = p->cell == cell ? NULL : p->cell;
    /* A whole section that did not run is one line, not a thousand. */
    bool is_bad = cell->verdict == KG_FAIL ||
                  (cell->verdict == KG_ERROR && strcmp(cell->reason, "not-run") != 0);
    if (is_bad || (p->verbose && cell->selected))
        on_cell_revised(context, section, cell);
}

static void print_count(const struct kg_progress *p, bool *is_first, size_t n,
                        const char *word, const char *style)
{
    if (n == 0)
        return;
    char text[64];
    snprintf(text, sizeof text, "%zu %s", n, word);
    if (!*is_first)
        fputs(", ", p->out);
    paint(p, style, text);
    *is_first = false;
}

static void on_section_done(void *context, const struct kg_result_section *section)
{
    struct kg_progress *p = context;
    size_t counts[KG_ERROR + 1] = {0};
    bool is_first = true;
    p->sections_done++;
    if (p->section == section)
        p->section = NULL;
    if (p->quiet)
        return;
    for (size_t i = 0; i < section->n_cells; i++)
        counts[section->cells[i].verdict]++;
    erase(p);
    fprintf(p->out, "%-*s  ", (int)p->section_name_width, section->name);
    print_count(p, &is_first, counts[KG_PASS], "passed", GREEN);
    print_count(p, &is_first, counts[KG_FAIL], "failed", RED);
    print_count(p, &is_first, counts[KG_ERROR], "in error", RED);
    print_count(p, &is_first, counts[KG_SKIP], "skipped", YELLOW);
    if (is_first && section->status == KG_SECTION_OK)
        fputs("no cells", p->out);
    fprintf(p->out, "%s%.1f s", is_first ? "" : "  ", section->seconds);
    if (section->status == KG_SECTION_ERROR) {
        fputs("\n  ", p->out);
        paint(p, RED, "ERROR");
        fprintf(p->out, "  the section: %s: ", section->reason);
        shown(p, section->detail);
    }
    putc('\n', p->out);
    fflush(p->out);
}

static void on_tick(void *context)
{
    draw(context);
}

void kg_progress_watch(struct kg_progress *p, struct kg_watcher *watcher,
                       const struct kg_result *result)
{
    for (size_t s = 0; s < result->n_sections; s++) {
        size_t width = strlen(result->sections[s].name);
        if (result->sections[s].status == KG_SECTION_FILTERED)
            continue;
        p->n_sections++;
        p->section_name_width =
            width > p->section_name_width ? width : p->section_name_width;
    }
    watcher->context = p;
    watcher->section_begun = on_section_begun;
    watcher->planned = on_planned;
    watcher->cell_begun = on_cell_begun;
    watcher->cell_done = on_cell_done;
    watcher->cell_revised = on_cell_revised;
    watcher->section_done = on_section_done;
    watcher->tick = on_tick;
}

void kg_progress_close(struct kg_progress *p)
{
    erase(p);
    p->section = NULL;
    fflush(p->out);
}

/* ---- the end ---- */

#define LISTED_MAX 20

static void print_failures(const struct kg_progress *p, const struct kg_result *result)
{
    size_t n = 0;
    for (size_t s = 0; s < result->n_sections; s++) {
        const struct kg_result_section *section = &result->sections[s];
        if (section->status == KG_SECTION_ERROR && n++ < LISTED_MAX) {
            fputs(n == 1 ? "\n  " : "  ", p->out);
            paint(p, RED, "ERROR");
            fprintf(p->out, "  section %s  %s: ", section->name, section->reason);
            shown(p, section->detail);
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
            print_cell(p, cell);
            fputs("         ", p->out);
            shown(p, cell->repro ? cell->repro : "");
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
            shown(p, detail);
        }
        putc('\n', p->out);
    }
    if (n_sections > 0)
        fprintf(p->out, "  %5zu  section%s left out by the selection\n", n_sections,
                n_sections == 1 ? "" : "s");
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
        putc('\n', p->out);
    }
    paint(p,
          summary.verdict == KG_RUN_GREEN
              ? GREEN
              : (summary.verdict == KG_RUN_INCOMPLETE ? YELLOW : RED),
          kg_run_verdict_name(summary.verdict));
    fputs("  ", p->out);
    print_count(p, &is_first, summary.pass, "passed", GREEN);
    print_count(p, &is_first, summary.fail, "failed", RED);
    print_count(p, &is_first, summary.error, "in error", RED);
    print_count(p, &is_first, summary.skip, "skipped", YELLOW);
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
        shown(p, where);
        putc('\n', p->out);
    }
    fflush(p->out);
}
