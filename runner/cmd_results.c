#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/cmd_diff.h"
#include "runner/diff/facts.h"
#include "runner/diff/markup.h"
#include "runner/escape.h"
#include "runner/lookup.h"
#include "runner/text.h"

static const char results_help[] =
    "usage: kgate results [options]\n"
    "\n"
    "The runs in the results folder, one a line, newest first: time, commit, host,\n"
    "provider, verdict, cells that passed, failed, were skipped, could not be judged, "
    "name.\n"
    "Each name, commit, @latest and @previous can be given to kgate diff and report.\n"
    "\n"
    "  -n, --limit N             that many lines (default 20; 0: all)\n"
    "      --results DIR         the results folder (default: results)\n"
    "  -h, --help                this text\n";

static const char prune_help[] =
    "usage: kgate prune --keep N [options]\n"
    "\n"
    "Removes all but the newest N runs from the results folder, with their logs. "
    "Baselines\n"
    "stay, and so does a run without a result, which may be under way.\n"
    "\n"
    "  -k, --keep N              how many to keep (required)\n"
    "      --dry-run             say what would go, remove nothing\n"
    "      --results DIR         the results folder (default: results)\n"
    "  -h, --help                this text\n";

struct settings {
    const char *results;
    uint64_t number;
    bool has_number, dry_run, help;
};

static int parse(int argc, char **argv, const struct option *longs, const char *shorts,
                 struct settings *s, struct kg_error *error)
{
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (c == 'h') {
            s->help = true;
            return KG_OK;
        } else if (c == 'r') {
            s->results = optarg;
        } else if (c == 'd') {
            s->dry_run = true;
        } else if (c == 'n' || c == 'k') {
            if (!kg_text_u64(optarg, 1000000, &s->number))
                return kg_error_set(
                    error, KG_E_INVALID,
                    "expected a number from 0 to 1000000, found \"%.80s\"", optarg);
            s->has_number = true;
        } else {
            return kg_error_set(error, KG_E_INVALID, "%s \"%.80s\" (see kgate %s --help)",
                                c == ':' ? "a value is missing after" : "no such option:",
                                argv[optind - 1], argv[0]);
        }
    }
    if (optind < argc)
        return kg_error_set(error, KG_E_INVALID, "not expected: \"%.80s\"", argv[optind]);
    return KG_OK;
}

static int done(const char *command, const struct kg_error *error)
{
    char line[1200];
    if (error->status)
        fprintf(stderr, "kgate %s: %s\n", command,
                kg_error_line(error, line, sizeof line));
    return error->status ? 2 : 0;
}

static void print_run(const struct kg_run_entry *run)
{
    struct kg_error error;
    struct kg_record record;
    char line[1200];
    kg_error_init(&error);
    printf("%s  %-8s", run->started, run->commit[0] ? run->commit : "-");
    if (kg_record_load(&record, run->path, &error) != KG_OK) {
        printf("unreadable: %s\n", kg_error_line(&error, line, sizeof line));
    } else {
        const char *provider = kg_fact(&record, KG_FACT_PROVIDER);
        kg_put_padded(stdout, provider ? provider : "-", 6);
        printf("  %-10s  %5zu pass %4zu fail %4zu skip %4zu error  ",
               record.verdict ? record.verdict : "-", record.counts[KG_PASS],
               record.counts[KG_FAIL], record.counts[KG_SKIP], record.counts[KG_ERROR]);
        kg_put_plain(stdout, run->name);
        putchar('\n');
    }
    kg_record_clear(&record);
}

int kg_cmd_results(int argc, char **argv)
{
    static const struct option longs[] = {
        {"limit",            required_argument, NULL, 'n'},
        {"results",              required_argument, NULL, 'r'},
        {"help",                  no_argument, NULL, 'h'},
        {0}
    };
    struct settings s = {.results = "results", .number = 20};
    struct kg_run_list list = {0};
    struct kg_error error;
    kg_error_init(&error);
    if (parse(argc, argv, longs, ":n:h", &s, &error) != KG_OK)
        return done("results", &error);
    if (s.help) {
        fputs(results_help, stdout);
        return 0;
    }
    if (kg_runs_list(s.results, &list, &error) == KG_OK) {
        for (size_t i = 0; i < list.n && (!s.number || i < s.number); i++)
            print_run(&list.runs[i]);
        if (s.number && list.n > s.number)
            printf("... and %zu older (--limit 0 shows all)\n",
                   list.n - (size_t)s.number);
        if (list.n == 0)
            fprintf(stderr, "kgate results: no run in %s\n", s.results);
    }
    kg_runs_clear(&list);
    return done("results", &error);
}

static int remove_entry(const char *path, const struct stat *info, int kind,
                        struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

/* The folder of a run. Links are removed, not followed. */
static int remove_run(const char *dir, const char *name, struct kg_error *error)
{
    char *path = kg_format("%s/%s", dir, name);
    int rc = KG_OK;
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        rc = unlink(path) == 0 ? KG_OK : KG_E_IO;
    else if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
        rc = KG_E_IO;
    if (rc != KG_OK)
        rc = kg_error_at_offset(error, KG_E_IO, path, -1, "cannot be removed: %s",
                                strerror(errno));
    free(path);
    return rc;
}

/* `latest` must not point at nothing: where the run it names went, it goes too. */
static void drop_dangling_latest(const char *dir)
{
    char *path = kg_format("%s/latest", dir);
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) != 0)
        unlink(path);
    free(path);
}

int kg_cmd_prune(int argc, char **argv)
{
    static const struct option longs[] = {
        {"keep",       required_argument, NULL, 'k'},
        {"dry-run",        no_argument, NULL, 'd'},
        {"results",            required_argument, NULL, 'r'},
        {"help",no_argument, NULL, 'h'},
        {0        }
    };
    struct settings s = {.results = "results"};
    struct kg_run_list list = {0};
    struct kg_error error;
    size_t gone = 0;
    kg_error_init(&error);
    if (parse(argc, argv, longs, ":k:h", &s, &error) != KG_OK)
        return done("prune", &error);
    if (s.help) {
        fputs(prune_help, stdout);
        return 0;
    }
    if (!s.has_number)
        kg_error_set(&error, KG_E_INVALID,
                     "--keep N is required (see kgate prune --help)");
    else if (kg_runs_list(s.results, &list, &error) == KG_OK)
        for (size_t i = (size_t)s.number; i < list.n && !error.status; i++) {
            if (!s.dry_run && remove_run(s.results, list.runs[i].name, &error) != KG_OK)
                break;
            printf("%s ", s.dry_run ? "would remove" : "removed");
            kg_put_plain(stdout, list.runs[i].name);
            putchar('\n');
            gone++;
        }
    if (!error.status)
        printf("%zu of %zu runs %s\n", gone, list.n, s.dry_run ? "would go" : "removed");
    if (gone && !s.dry_run)
        drop_dangling_latest(s.results);
    kg_runs_clear(&list);
    return done("prune", &error);
}
