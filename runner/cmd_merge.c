#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/cmd_diff.h"
#include "runner/escape.h"
#include "runner/lookup.h"
#include "runner/merge.h"
#include "runner/store.h"

static const char help[] =
    "usage: kgate merge RESULT RESULT... -o FILE\n"
    "\n"
    "Puts the shards of one battery together (kgate run --shard I/N). They must agree "
    "in\n"
    "manifest, provider, seed, commit, device and driver, and no cell may have run in "
    "two\n"
    "of them; else the field or the cell that is in the way is named and nothing is\n"
    "written. A result is named as for kgate diff.\n"
    "\n"
    "  -o, --output FILE         where the joined result goes (required)\n"
    "      --results DIR         the results folder (default: results)\n"
    "  -h, --help                this text\n"
    "\n"
    "Exit status: 0, or 2 if they do not belong together or cannot be read.\n";

static int load(const char *results, const char *asked, struct kg_record *record,
                json_t **tree, struct kg_error *error)
{
    char *path = NULL;
    json_error_t why;
    int rc = kg_runs_lookup(results, asked, &path, error);
    if (rc == KG_OK)
        rc = kg_record_load(record, path, error); /* strict, with limits: comes first */
    if (rc == KG_OK) {
        *tree = json_load_file(path, JSON_ALLOW_NUL, &why);
        if (!*tree)
            rc = kg_error_at_line(error, KG_E_FORMAT, path, why.line, why.column, "%s",
                                  why.text);
    }
    free(path);
    return rc;
}

int kg_cmd_merge(int argc, char **argv)
{
    enum { OPT_RESULTS = 256, MAX_SHARDS = 1000 };
    static const struct option longs[] = {
        {"output",           required_argument, NULL, 'o'},
        {"results",              required_argument, NULL, OPT_RESULTS},
        {"help",                  no_argument, NULL, 'h'},
        {0}
    };
    const char *results = "results", *output = NULL;
    struct kg_error error;
    char line[1200];
    int status = 2;
    optind = 0;
    opterr = 0;
    kg_error_init(&error);
    for (int c; (c = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (c == 'o')
            output = optarg;
        else if (c == OPT_RESULTS)
            results = optarg;
        else
            kg_error_set(&error, KG_E_INVALID, "%s \"%.80s\" (see kgate merge --help)",
                         c == ':' ? "a value is missing after" : "no such option:",
                         argv[optind - 1]);
    }
    int given = argc - optind;
    if (given < 2 || given > MAX_SHARDS || !output)
        kg_error_set(&error, KG_E_INVALID,
                     "expected two results or more and -o FILE (see kgate merge --help)");
    size_t n = given > 0 && given <= MAX_SHARDS ? (size_t)given : 0;
    struct kg_record *records = kg_xcalloc(n, sizeof *records);
    json_t **trees = kg_xcalloc(n, sizeof *trees), *joined = NULL;
    for (size_t i = 0; i < n && !error.status; i++)
        load(results, argv[optind + (int)i], &records[i], &trees[i], &error);
    if (!error.status && kg_merge(records, trees, n, &joined, &error) == KG_OK &&
        kg_store_write_json(output, joined, &error) == KG_OK) {
        const json_t *summary = json_object_get(joined, "summary");
        printf("%s: %zu cells of %zu shards, %s\n", output,
               json_array_size(json_object_get(joined, "cells")), n,
               json_string_value(json_object_get(summary, "verdict")));
        status = 0;
    }
    if (error.status)
        fprintf(stderr, "kgate merge: %s\n", kg_error_line(&error, line, sizeof line));
    json_decref(joined);
    for (size_t i = 0; i < n; i++) {
        json_decref(trees[i]);
        kg_record_clear(&records[i]);
    }
    free(trees);
    free(records);
    return status;
}
