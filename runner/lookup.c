#include "runner/lookup.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/diff/facts.h"
#include "runner/diff/load.h"
#include "runner/escape.h"

enum { STARTED = 16, COMMIT_IN_NAME = 7, COMMIT_LEAST = 4, COMMIT_MOST = 40 };

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* "20260101T120000Z-": digits, but for the T and the Z. */
static bool is_run_name(const char *name)
{
    static const char shape[] = "ddddddddTddddddZ-";
    for (size_t i = 0; i < sizeof shape - 1; i++)
        if (shape[i] == 'd' ? name[i] < '0' || name[i] > '9' : name[i] != shape[i])
            return false;
    return true;
}

static bool is_commit(const char *text, size_t length)
{
    return length >= COMMIT_LEAST && length <= COMMIT_MOST &&
           strspn(text, "0123456789abcdef") >= length;
}

static void split(struct kg_run_entry *run)
{
    const char *commit = run->name + STARTED + 1;
    size_t n = strcspn(commit, "-");
    memcpy(run->started, run->name, STARTED);
    if (n == COMMIT_IN_NAME && is_commit(commit, n))
        memcpy(run->commit, commit, n);
    run->host = commit[n] ? commit + n + 1 : "";
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(((const struct kg_run_entry *)b)->name,
                  ((const struct kg_run_entry *)a)->name);
}

int kg_runs_list(const char *dir, struct kg_run_list *list, struct kg_error *error)
{
    memset(list, 0, sizeof *list);
    DIR *folder = opendir(dir);
    if (!folder)
        return errno == ENOENT
                   ? KG_OK
                   : kg_error_at_offset(error, KG_E_IO, dir, -1, "cannot be read: %s",
                                        strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_run_name(entry->d_name))
            continue;
        char *path = kg_format("%s/%s/result.json", dir, entry->d_name);
        if (!is_file(path)) { /* under way, or it never ended */
            free(path);
            continue;
        }
        list->runs = kg_xrealloc(list->runs, (list->n + 1) * sizeof *list->runs);
        struct kg_run_entry *run = &list->runs[list->n++];
        memset(run, 0, sizeof *run);
        run->name = kg_xstrdup(entry->d_name);
        run->path = path;
        split(run);
    }
    closedir(folder);
    if (list->n)
        qsort(list->runs, list->n, sizeof *list->runs, newest_first);
    return KG_OK;
}

void kg_runs_clear(struct kg_run_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->runs[i].name);
        free(list->runs[i].path);
    }
    free(list->runs);
    memset(list, 0, sizeof *list);
}

/* The folder's name has seven digits of the commit; for more, the result is read. */
static bool has_commit(const struct kg_run_entry *run, const char *asked)
{
    size_t n = strlen(asked);
    if (!run->commit[0] ||
        strncmp(run->commit, asked, n < COMMIT_IN_NAME ? n : COMMIT_IN_NAME) != 0)
        return false;
    if (n <= COMMIT_IN_NAME)
        return true;
    struct kg_error error;
    struct kg_record record;
    kg_error_init(&error);
    bool yes = false;
    if (kg_record_load(&record, run->path, &error) == KG_OK) {
        const char *commit = kg_fact(&record, KG_FACT_COMMIT);
        yes = commit && strncmp(commit, asked, n) == 0;
    }
    kg_record_clear(&record);
    return yes;
}

static int find_commit(const struct kg_run_list *list, const char *asked, char **path,
                       struct kg_error *error)
{
    const struct kg_run_entry *found = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const struct kg_run_entry *run = &list->runs[i];
        if (!has_commit(run, asked))
            continue;
        if (found && strcmp(found->commit, run->commit) != 0)
            return kg_error_set(
                error, KG_E_IO,
                "\"%s\" begins more than one commit, %s and %s: give more "
                "digits",
                asked, found->commit, run->commit);
        found = found ? found : run;
    }
    if (found)
        *path = kg_xstrdup(found->path);
    return KG_OK;
}

/* Names are one component: nothing outside the results folder is reached by one. */
static bool try_name(const char *dir, const char *asked, char **path)
{
    if (strchr(asked, '/') || asked[0] == '.' || asked[0] == '\0')
        return false;
    for (size_t i = 0; i < 3; i++) {
        char *some = i == 0   ? kg_format("%s/baselines/%s.json", dir, asked)
                     : i == 1 ? kg_format("%s/baselines/%s/result.json", dir, asked)
                              : kg_format("%s/%s/result.json", dir, asked);
        if (is_file(some)) {
            *path = some;
            return true;
        }
        free(some);
    }
    return false;
}

static int ordinal(const struct kg_run_list *list, const char *dir, size_t i, char **path,
                   struct kg_error *error)
{
    if (list->n <= i)
        return kg_error_set(error, KG_E_IO, "%s: there %s in %s",
                            i ? "@previous" : "@latest",
                            list->n == 0 ? "is no run" : "is only one run", dir);
    *path = kg_xstrdup(list->runs[i].path);
    return KG_OK;
}

int kg_runs_lookup(const char *dir, const char *asked, char **path,
                   struct kg_error *error)
{
    struct kg_run_list list = {0};
    struct stat info;
    int rc = KG_OK;
    *path = NULL;
    if (asked[0] != '@' && stat(asked, &info) == 0) {
        *path = S_ISDIR(info.st_mode) ? kg_format("%s/result.json", asked)
                                      : kg_xstrdup(asked);
        return KG_OK;
    }
    if (asked[0] != '@' && try_name(dir, asked, path))
        return KG_OK;
    if (asked[0] == '@' || is_commit(asked, strlen(asked)))
        KG_TRY(kg_runs_list(dir, &list, error));
    if (strcmp(asked, "@latest") == 0)
        rc = ordinal(&list, dir, 0, path, error);
    else if (strcmp(asked, "@previous") == 0)
        rc = ordinal(&list, dir, 1, path, error);
    else if (is_commit(asked, strlen(asked)))
        rc = find_commit(&list, asked, path, error);
    kg_runs_clear(&list);
    if (rc == KG_OK && !*path)
        rc = kg_error_set(
            error, KG_E_IO,
            "\"%.200s\" is no file, no baseline or run in %s, and no commit of "
            "a run there (kgate results lists them)",
            asked, dir);
    return rc;
}
