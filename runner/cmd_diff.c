#include "runner/cmd_diff.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/print.h"
#include "runner/diff/spread.h"
#include "runner/escape.h"
#include "runner/lookup.h"
#include "runner/text.h"

enum { CANNOT_COMPARE = 2, MAX_ONLY = 1000 };

static const char help[] =
    "usage: kgate diff [options] BASE HEAD\n"
    "\n"
    "What changed from one result to another, and why.\n"
    "\n"
    "BASE and HEAD are result files, or runs in the results folder: @latest, @previous,\n"
    "the first digits of a commit, the name of a run, the name of a baseline\n"
    "(results/baselines/NAME.json).\n"
    "\n"
    "  -F, --format FORMAT       text (the default), markdown, json or junit\n"
    "  -x, --fail-on CLASS[,CLASS]\n"
    "                            what counts as worse; `none`, `any`, or classes.\n"
    "                            Default: broken,coverage-lost,margin-worse,slower\n"
    "      --only TEXT[,TEXT]    sections whose name contains any of the texts\n"
    "  -n, --limit N             text: lines a class (default 20; 0: all)\n"
    "      --margin-rise PERCENT a smaller rise of a margin is not reported (default "
    "10)\n"
    "      --spread N            measure how far margins wander from run to run on up to "
    "N\n"
    "                            more runs of BASE's build in the results folder\n"
    "      --results DIR         the results folder (default: results)\n"
    "  -o, --output FILE         write there instead of standard output\n"
    "  -h, --help                this text\n"
    "\n"
    "Classes:\n"
    "  broken               fails now, and did not\n"
    "  coverage-lost        passed, and is now skipped, gone, or short of a check\n"
    "  margin-worse         nearer to its bound than the recorded spread explains\n"
    "  slower, faster       by a rank test on the samples (p < 0.01) and by more than "
    "the\n"
    "                       noise floor; only where GPU, driver, clocks and timing "
    "policy\n"
    "                       are comparable\n"
    "  still-failing        failed in both\n"
    "  bits-changed         another output digest, still within its bounds\n"
    "  bound-changed        a check is held to another bound\n"
    "  new, left            joined or judged for the first time; gone, but was skipped\n"
    "  fixed, margin-better\n"
    "  environment-changed  a fact of the run: machine, driver, seed, selection\n"
    "\n"
    "In brackets behind a change is what can have caused it: kernel (the provider's\n"
    "digest changed), section (the plugin, with its oracle), bound, artifact, driver,\n"
    "device, seed, parameters, selection, runner. \"not explained\": nothing that was\n"
    "recorded differs.\n"
    "\n"
    "Exit status: 0 nothing worse, 1 worse, 2 cannot compare.\n"
    "\n"
    "  kgate diff @previous @latest\n"
    "  kgate diff h200 @latest --fail-on broken,coverage-lost --format markdown\n";

typedef void print_fn(FILE *, const struct kg_diff *, const struct kg_print *);

static const struct {
    const char *name;
    print_fn *print;
} formats[] = {
    {"text",     kg_diff_print_text    },
    {"markdown", kg_diff_print_markdown},
    {"json",     kg_diff_print_json    },
    {"junit",    kg_diff_print_junit   }
};

struct settings {
    print_fn *print;
    struct kg_print how;
    struct kg_diff_options options;
    const char *results, *output;
    size_t spread_runs;
    char *only_text; /* what options.only points into */
    const char *only[MAX_ONLY];
};

static int parse_fail_on(const char *text, unsigned *mask, struct kg_error *error)
{
    *mask = 0;
    if (strcmp(text, "none") == 0)
        return KG_OK;
    if (strcmp(text, "any") == 0) {
        *mask = (1u << KG_N_CHANGES) - 1;
        return KG_OK;
    }
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        enum kg_change_class class = kg_change_of_name(p, n);
        if (class == KG_N_CHANGES)
            return kg_error_set(error, KG_E_INVALID,
                                "--fail-on: \"%.*s\" is no class of change (kgate diff "
                                "--help lists them)",
                                n < 80 ? (int)n : 80, p);
        *mask |= 1u << class;
        p += n;
        if (!*p)
            return KG_OK;
    }
}

static int parse_format(const char *text, struct settings *s, struct kg_error *error)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(text, formats[i].name) == 0) {
            s->print = formats[i].print;
            return KG_OK;
        }
    return kg_error_set(
        error, KG_E_INVALID,
        "--format: expected text, markdown, json or junit, found \"%.80s\"", text);
}

static int parse_only(const char *text, struct settings *s, struct kg_error *error)
{
    free(s->only_text);
    s->only_text = kg_xstrdup(text);
    s->options.n_only = 0;
    for (char *rest = s->only_text, *item; (item = strsep(&rest, ","));) {
        if (!*item || s->options.n_only == MAX_ONLY)
            return kg_error_set(
                error, KG_E_INVALID,
                "--only: expected names separated by commas, found \"%.80s\"", text);
        s->only[s->options.n_only++] = item;
    }
    s->options.only = s->only;
    return KG_OK;
}

static int parse_number(const char *option, const char *text, uint64_t most,
                        uint64_t *value, struct kg_error *error)
{
    if (kg_text_u64(text, most, value))
        return KG_OK;
    return kg_error_set(error, KG_E_INVALID,
                        "%s: expected a number from 0 to %llu, found \"%.80s\"", option,
                        (unsigned long long)most, text);
}

static int parse(int argc, char **argv, struct settings *s, int *asked_help,
                 struct kg_error *error)
{
    enum { OPT_RISE = 256, OPT_RESULTS, OPT_ONLY, OPT_SPREAD };
    static const struct option longs[] = {
        {"format",           required_argument, NULL, 'F'},
        {"fail-on",              required_argument, NULL, 'x'},
        {"spread",                  required_argument, NULL, OPT_SPREAD},
        {"only",required_argument, NULL, OPT_ONLY},
        {"limit",               required_argument, NULL, 'n'},
        {"margin-rise",           required_argument, NULL, OPT_RISE},
        {"results",              required_argument, NULL, OPT_RESULTS},
        {"output",                  required_argument, NULL, 'o'},
        {"help",              no_argument, NULL, 'h'},
        {0         }
    };
    uint64_t number = 0;
    optind = 0; /* start afresh: main has been here */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":F:x:n:o:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'F':
            KG_TRY(parse_format(optarg, s, error));
            break;
        case 'x':
            KG_TRY(parse_fail_on(optarg, &s->how.fail_on, error));
            break;
        case OPT_ONLY:
            KG_TRY(parse_only(optarg, s, error));
            break;
        case 'n':
            KG_TRY(parse_number("--limit", optarg, 1000000, &number, error));
            s->how.limit = (size_t)number;
            break;
        case OPT_RISE:
            KG_TRY(parse_number("--margin-rise", optarg, 100000, &number, error));
            s->options.margin_rise = (double)number / 100;
            break;
        case OPT_SPREAD:
            KG_TRY(parse_number("--spread", optarg, 1000, &number, error));
            s->spread_runs = (size_t)number;
            break;
        case OPT_RESULTS:
            s->results = optarg;
            break;
        case 'o':
            s->output = optarg;
            break;
        case 'h':
            *asked_help = 1;
            return KG_OK;
        default:
            return kg_error_set(error, KG_E_INVALID,
                                "%s \"%.80s\" (see kgate diff --help)",
                                c == ':' ? "a value is missing after" : "no such option:",
                                argv[optind - 1]);
        }
    }
    if (argc - optind != 2)
        return kg_error_set(
            error, KG_E_INVALID,
            "expected two results, BASE and HEAD, found %d (see kgate diff "
            "--help)",
            argc - optind);
    return KG_OK;
}

static int write_out(const struct settings *s, const struct kg_diff *diff,
                     struct kg_error *error)
{
    FILE *out = s->output ? fopen(s->output, "we") : stdout;
    if (!out)
        return kg_error_at_offset(error, KG_E_IO, s->output, -1, "cannot be written: %m");
    s->print(out, diff, &s->how);
    bool bad = fflush(out) != 0 || ferror(out);
    if (s->output)
        bad |= fclose(out) != 0;
    return bad ? kg_error_at_offset(error, KG_E_IO, s->output ? s->output : "", -1,
                                    "cannot be written: %m")
               : KG_OK;
}

int kg_cmd_diff(int argc, char **argv)
{
    static struct settings s;
    struct kg_record records[2] = {0};
    struct kg_diff diff = {0};
    struct kg_error error;
    int asked_help = 0, status = CANNOT_COMPARE;
    char line[1200];
    kg_error_init(&error);
    s = (struct settings){
        .print = kg_diff_print_text,
        .how = {.fail_on = 1u << KG_CHANGE_BROKEN | 1u << KG_CHANGE_COVERAGE_LOST |
                           1u << KG_CHANGE_MARGIN_WORSE | 1u << KG_CHANGE_SLOWER,
                .limit = 20                                                                                    },
        .options = {.margin_rise = 0.1,                                                               .alpha = 0.01},
        .results = "results"
    };
    if (parse(argc, argv, &s, &asked_help, &error) != KG_OK)
        goto out;
    if (asked_help) {
        fputs(help, stdout);
        status = 0;
        goto out;
    }
    for (int i = 0; i < 2; i++) {
        char *path = NULL;
        int rc = kg_runs_lookup(s.results, argv[optind + i], &path, &error);
        if (rc == KG_OK)
            rc = kg_record_load(&records[i], path, &error);
        free(path);
        if (rc != KG_OK)
            goto out;
    }
    if (s.spread_runs && kg_spread_measure(&records[0], s.results, s.spread_runs,
                                           &s.options.n_spread_runs, &error) != KG_OK)
        goto out;
    if (kg_diff_make(&diff, &records[0], &records[1], &s.options, &error) != KG_OK ||
        write_out(&s, &diff, &error) != KG_OK)
        goto out;
    status = kg_diff_worse(&diff, s.how.fail_on) > 0;
out:
    if (error.status != KG_OK)
        fprintf(stderr, "kgate diff: %s\n", kg_error_line(&error, line, sizeof line));
    kg_diff_clear(&diff);
    kg_record_clear(&records[0]);
    kg_record_clear(&records[1]);
    free(s.only_text);
    return status;
}
