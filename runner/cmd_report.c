#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/cmd_diff.h"
#include "runner/escape.h"
#include "runner/lookup.h"
#include "runner/outfile.h"
#include "runner/report/report.h"
#include "runner/text.h"

static const char help[] =
    "usage: kgate report RESULT... -o FILE\n"
    "\n"
    "Results as one page to read: what failed, the sections, each cell's margin on a "
    "log\n"
    "scale with its bound, what was skipped and why, the environment. With several "
    "results\n"
    "the page is about the newest and shows the history of each of its cells. The page\n"
    "needs no network and no script. A result is named as for kgate diff: a file, "
    "@latest,\n"
    "a commit, a baseline.\n"
    "\n"
    "  -o, --output FILE         where the page goes (required; - is standard output)\n"
    "      --last N              the newest N runs of the results folder too\n"
    "      --results DIR         the results folder (default: results)\n"
    "  -h, --help                this text\n"
    "\n"
    "  kgate report @latest -o report.html\n"
    "  kgate report --last 30 -o nightly.html\n"
    "\n"
    "Exit status: 0, or 2 if a result cannot be read or the page not be written.\n";

enum { MAX_RUNS = 1000 };

struct settings {
    const char *output, *results;
    uint64_t last;
    bool help;
};

static int parse(int argc, char **argv, struct settings *s, struct kg_error *error)
{
    enum { OPT_RESULTS = 256, OPT_LAST };
    static const struct option longs[] = {
        {"output",           required_argument, NULL, 'o'},
        {"last",              required_argument, NULL, OPT_LAST},
        {"results",                  required_argument, NULL, OPT_RESULTS},
        {"help",no_argument, NULL, 'h'},
        {0         }
    };
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
        if (c == 'h') {
            s->help = true;
            return KG_OK;
        } else if (c == 'o') {
            s->output = optarg;
        } else if (c == OPT_RESULTS) {
            s->results = optarg;
        } else if (c == OPT_LAST) {
            if (!kg_text_u64(optarg, MAX_RUNS, &s->last) || s->last == 0)
                return kg_error_set(
                    error, KG_E_INVALID,
                    "--last: expected a number from 1 to %d, found \"%.80s\"", MAX_RUNS,
                    optarg);
        } else {
            return kg_error_set(error, KG_E_INVALID,
                                "%s \"%.80s\" (see kgate report --help)",
                                c == ':' ? "a value is missing after" : "no such option:",
                                argv[optind - 1]);
        }
    }
    if (!s->output || (optind == argc && !s->last) || argc - optind > MAX_RUNS)
        return kg_error_set(error, KG_E_INVALID,
                            "expected one result or more and -o FILE (see kgate report "
                            "--help)");
    return KG_OK;
}

/* By time where it is known, runs of one time as they were given. */
static void sort_runs(struct kg_record *runs, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const char *time = kg_fact(&runs[i], KG_FACT_STARTED);
        struct kg_record moved = runs[i];
        size_t k = i;
        for (; k > 0; k--) {
            const char *before = kg_fact(&runs[k - 1], KG_FACT_STARTED);
            if (strcmp(before ? before : "", time ? time : "") <= 0)
                break;
            runs[k] = runs[k - 1];
        }
        runs[k] = moved;
    }
}

static int load_all(const struct settings *s, char **asked, size_t n_asked,
                    struct kg_report *report, struct kg_error *error)
{
    struct kg_run_list list = {0};
    if (s->last)
        KG_TRY(kg_runs_list(s->results, &list, error));
    size_t n_last = s->last < list.n ? (size_t)s->last : list.n;
    report->runs = kg_xcalloc(n_last + n_asked, sizeof *report->runs);
    for (size_t i = 0; i < n_last + n_asked && !error->status; i++) {
        char *path = NULL;
        if (i < n_asked)
            kg_runs_lookup(s->results, asked[i], &path, error);
        else
            path = kg_xstrdup(list.runs[i - n_asked].path);
        bool twice = false;
        for (size_t k = 0; path && k < report->n; k++)
            twice |= strcmp(report->runs[k].path, path) == 0;
        if (path && !twice)
            kg_record_load(&report->runs[report->n++], path, error);
        free(path);
    }
    kg_runs_clear(&list);
    if (!error->status && report->n == 0)
        kg_error_set(error, KG_E_IO, "there is no run in %s", s->results);
    if (!error->status)
        sort_runs(report->runs, report->n);
    return error->status;
}

static int write_page(const char *path, const struct kg_report *report,
                      struct kg_error *error)
{
    if (strcmp(path, "-") == 0) {
        kg_report_write(stdout, report);
        return fflush(stdout) == 0 && !ferror(stdout)
                   ? KG_OK
                   : kg_error_set(error, KG_E_IO, "standard output: %s", strerror(errno));
    }
    struct kg_outfile out;
    KG_TRY(kg_outfile_open(&out, path, error));
    kg_report_write(out.stream, report);
    return kg_outfile_close(&out, true, error);
}

int kg_cmd_report(int argc, char **argv)
{
    struct settings s = {.results = "results"};
    struct kg_report report = {0};
    struct kg_error error;
    char line[1200];
    kg_error_init(&error);
    if (parse(argc, argv, &s, &error) == KG_OK && !s.help &&
        load_all(&s, argv + optind, (size_t)(argc - optind), &report, &error) == KG_OK)
        write_page(s.output, &report, &error);
    if (s.help)
        fputs(help, stdout);
    if (error.status)
        fprintf(stderr, "kgate report: %s\n", kg_error_line(&error, line, sizeof line));
    for (size_t i = 0; i < report.n; i++)
        kg_record_clear(&report.runs[i]);
    free(report.runs);
    return error.status ? 2 : 0;
}
