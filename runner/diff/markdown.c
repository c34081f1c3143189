#include <stdlib.h>
#include <string.h>

#include "runner/diff/markup.h"
#include "runner/diff/print.h"
#include "runner/escape.h"

enum { ROW_TEXT = 240, TAIL_BYTES = 400 };

/* Cuts at a character, so that one long name does not fill the page. */
static char *cut(const char *text)
{
    char *clean = kg_escape_dup(text);
    size_t n = strlen(clean);
    if (n > ROW_TEXT) {
        n = ROW_TEXT;
        while (n > 0 && ((unsigned char)clean[n] & 0xc0) == 0x80)
            n--;
        memcpy(clean + n - 3, "...", 4); /* ids are ASCII near here or lose a letter */
        char *safe = kg_utf8_dup(clean, strlen(clean));
        free(clean);
        return safe;
    }
    return clean;
}

static void put_code(FILE *out, const char *text)
{
    char *some = cut(text);
    kg_put_markdown_code(out, some);
    free(some);
}

static void put_text(FILE *out, const char *text)
{
    char *some = cut(text);
    kg_put_markdown(out, some);
    free(some);
}

static void run_row(FILE *out, const char *side, struct kg_record *r)
{
    char commit[13];
    const char *c = kg_fact(r, KG_FACT_COMMIT);
    snprintf(commit, sizeof commit, "%s", c ? c : "");
    fprintf(out, "| %s | ", side);
    put_code(out, r->path);
    fputs(" | ", out);
    put_code(out, commit);
    fputs(" | ", out);
    put_text(out, kg_fact(r, KG_FACT_PROVIDER));
    fputs(" | ", out);
    put_text(out, kg_fact(r, KG_FACT_DEVICE));
    fputs(" | ", out);
    put_text(out, r->verdict);
    fprintf(out, " | %zu | %zu | %zu | %zu |\n", r->counts[KG_PASS], r->counts[KG_FAIL],
            r->counts[KG_SKIP], r->counts[KG_ERROR]);
}

/* One row of a class in memory of its own, to be measured before it is printed. */
static char *change_row(const struct kg_change *c)
{
    char *row = NULL, causes[160];
    size_t size;
    FILE *out = open_memstream(&row, &size);
    if (!out)
        abort();
    fputs("| ", out);
    put_code(out, c->head ? c->head->id : c->base ? c->base->id : c->what);
    fputs(" | ", out);
    if (c->base || c->head)
        put_code(out, c->what);
    fputs(" | ", out);
    put_text(out, c->detail);
    fprintf(out, " | %s |\n", kg_change_cause_text(c, causes, sizeof causes));
    fclose(out);
    return row;
}

/* Bytes written, at most `budget`. */
static size_t print_class(FILE *out, const struct kg_diff *d,
                          const struct kg_print *print, const struct kg_change *changes,
                          size_t budget)
{
    enum kg_change_class class = changes->class;
    size_t n = d->counts[class], i = 0;
    bool worse = print->fail_on >> class & 1;
    char head[256];
    int used = snprintf(head, sizeof head,
                        "\n<details%s><summary>%s (%zu)</summary>\n\n"
                        "| cell | what | change | cause |\n|---|---|---|---|\n",
                        worse ? " open" : "", kg_change_name(class), n);
    size_t written = (size_t)used;
    if (written + TAIL_BYTES > budget)
        return 0;
    fputs(head, out);
    for (; i < n; i++) {
        char *row = change_row(&changes[i]);
        size_t bytes = strlen(row);
        bool fits = written + bytes + TAIL_BYTES <= budget;
        if (fits)
            fputs(row, out);
        free(row);
        if (!fits)
            break;
        written += bytes;
    }
    char tail[128] = "";
    if (i < n)
        snprintf(tail, sizeof tail, "\n... and %zu more, less severe.\n", n - i);
    written += strlen(tail) + strlen("\n</details>\n");
    fprintf(out, "%s\n</details>\n", tail);
    return written;
}

void kg_diff_print_markdown(FILE *out, const struct kg_diff *d,
                            const struct kg_print *print)
{
    char counts[512], *page = NULL;
    size_t size, classes = 0;
    FILE *head = open_memstream(&page, &size);
    if (!head)
        abort();
    if (kg_diff_worse(d, print->fail_on))
        fprintf(head, "### kgate diff: worse: %s\n\n",
                kg_diff_count_text(d, print->fail_on, counts, sizeof counts));
    else
        fprintf(head, "### kgate diff: nothing worse\n\n");
    fputs(
        "| | result | commit | provider | device | battery | pass | fail | skip | error "
        "|\n|---|---|---|---|---|---|---:|---:|---:|---:|\n",
        head);
    run_row(head, "base", d->base);
    run_row(head, "head", d->head);
    fprintf(head, "\n%zu cells in both, %zu of them unchanged. Changes: %s.\n",
            d->n_common, d->n_same, kg_diff_count_text(d, ~0u, counts, sizeof counts));
    if (d->data_refused) {
        fputs("Margins, bounds and digests are not compared: ", head);
        put_text(head, d->data_refused);
        fputs(".\n", head);
    }
    if (d->times_refused) {
        fputs("Times are not compared: ", head);
        put_text(head, d->times_refused);
        fputs(".\n", head);
    }
    if (*kg_diff_refusal_text(d, counts, sizeof counts))
        fprintf(head, "Times of arms are not compared: %s.\n", counts);
    fclose(head);
    fputs(page, out);
    size_t left = size < KG_MARKDOWN_MAX ? KG_MARKDOWN_MAX - size : 0;
    free(page);
    for (enum kg_change_class c = 0; c < KG_N_CHANGES; c++)
        classes += d->counts[c] > 0;
    /* Each class may use what those before it left over, in equal parts. */
    for (size_t i = 0; i < d->n_changes; i += d->counts[d->changes[i].class]) {
        left -= print_class(out, d, print, &d->changes[i], left / classes);
        classes--;
    }
}
