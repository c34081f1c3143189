#include "runner/options_table.h"

#include <stdio.h>
#include <string.h>

#include "runner/options.h"

/* clang-format off */
const struct option_row option_rows[] = {
    {OPT_TAG, "tag", 't', "T[,T]", FOR_RUN | FOR_LIST, GROUP_WHAT,
     "sections that carry any of the tags"},
    {OPT_ONLY, "only", 'o', "TEXT[,TEXT]", FOR_RUN | FOR_LIST, GROUP_WHAT,
     "sections whose name contains any of the texts (KGATE_ONLY)"},
    {OPT_CELL, "cell", 'c', "GLOB", FOR_RUN | FOR_LIST, GROUP_WHAT,
     "cells whose id matches, as 'dtype5.*.stage-a'; repeatable"},
    {OPT_FAST, "fast", 'f', NULL, FOR_RUN | FOR_LIST, GROUP_WHAT,
     "leave out whatever needs a model file (KGATE_FAST=1)"},
    {OPT_SHARD, "shard", 0, "I/N", FOR_RUN | FOR_LIST, GROUP_WHAT,
     "the cells of part I of N; the id of a cell decides its part"},
    {OPT_PARAM, "param", 'p', "SECTION.KEY=VALUE", FOR_RUN | FOR_LIST, GROUP_WHAT,
     "set a parameter of a section; repeatable"},

    {OPT_DEVICE, "device", 'd', "DEVICE", FOR_RUN, GROUP_ON,
     "auto, emu, cuda or cuda:N; auto, the default, is cuda if\n"
     "there is a GPU, else emu"},
    {OPT_PROVIDER, "provider", 0, "FILE", FOR_RUN, GROUP_ON,
     "gate the kernels of this .so instead of kgate's own"},
    {OPT_AGAINST, "against", 0, "FILE", FOR_RUN, GROUP_ON,
     "run each arm on this provider too, and compare the two"},
    {OPT_PLUGIN_DIR, "plugin-dir", 0, "DIR", FOR_RUN | FOR_LIST, GROUP_ON,
     "folder of the sections' .so files; repeatable"},
    {OPT_MODEL, "model", 'm', "FILE", FOR_ALL, GROUP_ON,
     "the model behind $model, and behind ids whose file it is"},
    {OPT_MODELS, "models", 0, "FILE", FOR_ALL, GROUP_ON,
     "use this models.yaml"},
    {OPT_SYNTHETIC_ACTIVATIONS, "synthetic-activations", 0, NULL, FOR_RUN, GROUP_ON,
     "let generated rows stand in for captured activations; the\n"
     "result says so"},

    {OPT_JOBS, "jobs", 'j', "N", FOR_RUN, GROUP_HOW,
     "sections that run at the same time"},
    {OPT_SEED, "seed", 's', "N", FOR_RUN, GROUP_HOW,
     "other test data; without it the pinned data"},
    {OPT_SCHEDULE, "schedule", 0, "SEED", FOR_RUN, GROUP_HOW,
     "emu: shuffle the threads, which exposes missing barriers"},
    {OPT_LIMIT_CELL, "limit-cell", 0, "TIME", FOR_RUN, GROUP_HOW,
     "time limit of a cell (90s, 5m) instead of the manifest's"},
    {OPT_LIMIT_SECTION, "limit-section", 0, "TIME", FOR_RUN, GROUP_HOW,
     "time limit of a section"},
    {OPT_REQUIRE_COMPLETE, "require-complete", 0, NULL, FOR_RUN, GROUP_HOW,
     "a battery that is INCOMPLETE fails"},
    {OPT_BENCH, "bench", 0, NULL, FOR_RUN, GROUP_HOW,
     "time every arm too, on cold caches (needs a GPU)"},
    {OPT_BENCH_WARM, "bench-warm", 0, NULL, FOR_RUN, GROUP_HOW,
     "--bench, and once more on warm caches"},
    {OPT_TIMINGS, "timings", 0, NULL, FOR_RUN, GROUP_HOW,
     "record where each cell's time went"},

    {OPT_RESULTS, "results", 0, "DIR", FOR_RUN, GROUP_OUT,
     "folder of the result and the logs (default: results)"},
    {OPT_OUTPUT, "output", 0, "FILE", FOR_RUN, GROUP_OUT,
     "write the result to this file"},
    {OPT_CELLS, "cells", 0, NULL, FOR_LIST, GROUP_OUT,
     "list the cells, not just the sections"},
    {OPT_VERIFY, "verify", 0, NULL, FOR_MODELS, GROUP_OUT,
     "compare SHA-256 sums with those in models.yaml"},
    {OPT_JSON, "json", 0, NULL, FOR_ALL | FOR_VERSION, GROUP_OUT,
     "JSON on standard output"},
    {OPT_QUIET, "quiet", 'q', NULL, FOR_RUN, GROUP_OUT,
     "failures and the summary only"},
    {OPT_VERBOSE, "verbose", 'v', NULL, FOR_ALL, GROUP_OUT,
     "every check; for models every path that was tried"},
    {OPT_NO_COLOR, "no-color", 0, NULL, FOR_ALL, GROUP_OUT,
     "no colours"},
    {OPT_HELP, "help", 'h', NULL, FOR_ALL | FOR_VERSION | FOR_HELP, GROUP_OUT,
     "this text"},
};
/* clang-format on */
const size_t n_option_rows = sizeof option_rows / sizeof option_rows[0];

static void print_row(const struct option_row *row, FILE *out)
{
    char left[64];
    int n = row->letter ? snprintf(left, sizeof left, "  -%c, ", row->letter)
                        : snprintf(left, sizeof left, "      ");
    snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s", row->name,
             row->argument ? " " : "", row->argument ? row->argument : "");
    const char *line = row->help;
    if (strlen(left) > 26)
        fprintf(out, "%s\n%28s", left, "");
    else
        fprintf(out, "%-28s", left);
    for (;;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "%.*s\n", (int)length, line);
        if (line[length] == '\0')
            break;
        line += length + 1;
        fprintf(out, "%28s", "");
    }
}

static void print_options(unsigned commands, FILE *out)
{
    static const char *const titles[N_GROUPS] = {"What runs", "On what", "How",
                                                 "What comes out"};
    for (int group = 0; group < N_GROUPS; group++) {
        int seen = 0;
        for (size_t i = 0; i < n_option_rows; i++) {
            const struct option_row *row = &option_rows[i];
            if ((int)row->group != group || !(row->commands & commands))
                continue;
            if (!seen++)
                fprintf(out, "\n%s:\n", titles[group]);
            print_row(row, out);
        }
    }
}

static const char overview[] =
    "kgate gates GPU kernels: it runs a battery of cells, each of which compares a\n"
    "kernel with an oracle, and writes the verdicts, margins and digests to one file.\n"
    "\n"
    "usage: kgate run [options] [MANIFEST]     run a battery\n"
    "       kgate list [options] [MANIFEST]    show its sections and cells\n"
    "       kgate models [options]             show which model files are found, and "
    "why\n"
    "       kgate diff [options] BASE HEAD     what changed from one result to another\n"
    "       kgate report RESULT... -o FILE     a page to read, with the history\n"
    "       kgate merge RESULT... -o FILE      put the shards of a battery together\n"
    "       kgate results [options]            the runs in the results folder\n"
    "       kgate prune --keep N               remove the older ones\n"
    "       kgate version                      versions of kgate and of its interfaces\n"
    "       kgate help [COMMAND]               the options of a command\n"
    "\n"
    "MANIFEST is a file, or the name of one that comes with kgate: quick (the default),\n"
    "full, nightly, release.\n"
    "\n"
    "Examples:\n"
    "  kgate run                               the quick battery; needs no GPU\n"
    "  kgate run --only matvec -m model.gguf   what a change to the matvec kernels "
    "needs\n"
    "  kgate run nightly --device cuda:0 --provider ./libengine.so --require-complete\n"
    "                                          gate another engine's kernels\n"
    "\n"
    "Exit status of run: 0 GREEN or INCOMPLETE, 1 RED, 2 nothing was judged: a bad\n"
    "option, manifest or selection; 3 INCOMPLETE with --require-complete,\n"
    "130 interrupted.\n";

static const char run_text[] =
    "usage: kgate run [options] [MANIFEST]\n"
    "\n"
    "Runs the battery, one process a section, and writes the result as JSON. What a\n"
    "selection leaves out is in the result as SKIP filtered.\n"
    "\n"
    "Examples:\n"
    "  kgate run --fast --jobs 2\n"
    "  kgate run nightly --tag matvec --model ~/models/Qwen3.5-9B-NVFP4-MTP-GGUF.gguf\n"
    "  kgate run --cell 'dtype5.nvfp4.*' --seed 7 --verbose\n";

static const char list_text[] =
    "usage: kgate list [options] [MANIFEST]\n"
    "\n"
    "Shows the sections of a battery, with --cells the cells too. Runs no kernel.\n"
    "Exit status: 0, 1 if a section could not be listed (its plugin is missing or\n"
    "broken), 2 for a bad option, manifest or selection.\n"
    "\n"
    "Examples:\n"
    "  kgate list\n"
    "  kgate list nightly --cells --only dtype5\n"
    "  kgate list release --cells --json --shard 1/4\n";

static const char models_text[] =
    "usage: kgate models [options]\n"
    "\n"
    "Shows for each id of models.yaml the file it stands for on this machine and the\n"
    "rule that found it. Set KGATE_MODELS_DIR to a folder of model files to have them\n"
    "found first.\n"
    "\n"
    "Examples:\n"
    "  kgate models\n"
    "  KGATE_MODELS_DIR=/mnt/models kgate models --verbose\n"
    "  kgate models --verify --json\n";

void kg_options_help(enum kg_command command, FILE *out)
{
    switch (command) {
    case KG_COMMAND_RUN:
        fputs(run_text, out);
        print_options(FOR_RUN, out);
        break;
    case KG_COMMAND_LIST:
        fputs(list_text, out);
        print_options(FOR_LIST, out);
        break;
    case KG_COMMAND_MODELS:
        fputs(models_text, out);
        print_options(FOR_MODELS, out);
        break;
    case KG_COMMAND_VERSION:
        fputs("usage: kgate version [--json]\n", out);
        break;
    case KG_COMMAND_HELP:
        fputs(overview, out);
        break;
    }
}
