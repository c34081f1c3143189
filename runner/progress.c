#include "runner/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runner/escape.h"
#include "runner/hostrun.h"
#include "runner/lines.h"

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
        kg_line_paint(p, KG_STYLE_DIM, label);
        kg_line_text(p, rows[i][1]);
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
    kg_line_paint(p, KG_STYLE_DIM, line);
    fflush(p->out);
    p->drawn = line;
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
    kg_line_cell(p, cell);
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

/* A cell that is bad, or that the other provider does not agree on. */
static void on_cell_compared(void *context, const struct kg_result_section *section,
                             const struct kg_result_cell *cell)
{
    struct kg_progress *p = context;
    (void)section;
    bool is_told = strcmp(kg_cell_fails_on(cell), "neither") != 0;
    if (p->quiet || !(is_told || p->verbose))
        return;
    erase(p);
    kg_line_against(p, cell);
    draw(p);
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
    kg_line_count(p, &is_first, counts[KG_PASS], "passed", KG_STYLE_GREEN);
    kg_line_count(p, &is_first, counts[KG_FAIL], "failed", KG_STYLE_RED);
    kg_line_count(p, &is_first, counts[KG_ERROR], "in error", KG_STYLE_RED);
    kg_line_count(p, &is_first, counts[KG_SKIP], "skipped", KG_STYLE_YELLOW);
    if (is_first && section->status == KG_SECTION_OK)
        fputs("no cells", p->out);
    fprintf(p->out, "%s%.1f s", is_first ? "" : "  ", section->seconds);
    if (section->status == KG_SECTION_ERROR) {
        fputs("\n  ", p->out);
        kg_line_paint(p, KG_STYLE_RED, "ERROR");
        fprintf(p->out, "  the section: %s: ", section->reason);
        kg_line_text(p, section->detail);
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
    watcher->cell_compared = on_cell_compared;
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
