#include "runner/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/escape.h"
#include "runner/outfile.h"

#define PROBE_BYTES ((off_t)4 << 20)

static int fail(struct kg_error *error, const char *path, const char *what, int number)
{
    return kg_error_at_offset(error, KG_E_IO, path, -1, "cannot %s: %s", what,
                              strerror(number));
}

/* mkdir -p */
static int make_folders(const char *path, struct kg_error *error)
{
    char *copy = kg_xstrdup(path);
    int rc = 0;
    for (char *p = copy + 1; rc == 0; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char kept = *p;
        *p = '\0';
        struct stat info;
        if (mkdir(copy, 0755) != 0 &&
            (errno != EEXIST || (stat(copy, &info) == 0 && !S_ISDIR(info.st_mode))))
            rc = fail(error, copy, "make the results folder",
                      errno == EEXIST ? ENOTDIR : errno);
        *p = kept;
        if (kept == '\0')
            break;
    }
    free(copy);
    return rc;
}

/* Reserves what a large result takes and gives it back: a full disk shows now. */
static int probe(const char *folder, struct kg_error *error)
{
    char *path = kg_format("%s/.probe", folder);
    int rc = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        rc = fail(error, folder, "write to the results folder", errno);
    } else {
        int number = posix_fallocate(fd, 0, PROBE_BYTES);
        if (number != 0 && number != EOPNOTSUPP && number != EINVAL)
            rc = fail(error, folder, "write to the results folder", number);
        close(fd);
        unlink(path);
    }
    free(path);
    return rc;
}

/* A host name as part of a file name. */
static char *plain_name(const char *text)
{
    char *name = kg_xstrdup(text[0] ? text : "unknown");
    for (char *p = name; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.",
                    *p))
            *p = '-';
    if (strlen(name) > 48)
        name[48] = '\0';
    return name;
}

int kg_store_open(struct kg_store *store, const char *results_dir, const char *started,
                  const char *commit, const char *host, struct kg_error *error)
{
    memset(store, 0, sizeof *store);
    store->parent = kg_xstrdup(results_dir);
    KG_TRY(make_folders(results_dir, error));

    char *name = plain_name(host);
    char *base = kg_format("%s/%s-%.7s-%s", results_dir, started,
                           commit[0] ? commit : "nocommit", name);
    free(name);
    /* Two runs in one second: the second gets a number. */
    int rc = 0;
    for (int n = 1; store->folder == NULL && rc == 0; n++) {
        char *path = n == 1 ? kg_xstrdup(base) : kg_format("%s-%d", base, n);
        if (mkdir(path, 0755) == 0)
            store->folder = path;
        else if (errno != EEXIST || n == 1000)
            rc = fail(error, path, "make the run's folder", errno);
        if (store->folder != path)
            free(path);
    }
    free(base);
    KG_TRY(rc);
    store->logs = kg_format("%s/logs", store->folder);
    store->result = kg_format("%s/result.json", store->folder);
    if (mkdir(store->logs, 0755) != 0)
        rc = fail(error, store->logs, "make the folder of the logs", errno);
    return rc != 0 ? rc : probe(store->folder, error);
}

static int sink(const char *bytes, size_t n, void *context)
{
    return fwrite(bytes, 1, n, context) == n ? 0 : -1;
}

int kg_store_write_json(const char *path, const json_t *json, struct kg_error *error)
{
    struct kg_outfile out;
    KG_TRY(kg_outfile_open(&out, path, error));
    bool whole = json_dump_callback(json, sink, out.stream,
                                    JSON_SORT_KEYS | JSON_INDENT(1)) == 0 &&
                 putc('\n', out.stream) != EOF;
    int number = errno;
    int rc = kg_outfile_close(&out, whole, error);
    return whole ? rc : fail(error, path, "write the result", number ? number : EIO);
}

/* A convenience only: its failure is not the run's. */
static void point_latest(const struct kg_store *store)
{
    const char *slash = strrchr(store->folder, '/');
    const char *name = slash ? slash + 1 : store->folder;
    char *link = kg_format("%s/latest", store->parent);
    char *temporary = kg_format("%s/.latest.%d", store->parent, (int)getpid());
    struct stat info;
    /* Only ever replace a link: somebody may have made a folder of that name. */
    if ((lstat(link, &info) != 0 || S_ISLNK(info.st_mode)) &&
        symlink(name, temporary) == 0 && rename(temporary, link) != 0)
        unlink(temporary);
    free(link);
    free(temporary);
}

int kg_store_finish(struct kg_store *store, const json_t *json, char **fallback,
                    struct kg_error *error)
{
    *fallback = NULL;
    int rc = kg_store_write_json(store->result, json, error);
    if (rc == 0) {
        point_latest(store);
        return 0;
    }
    const char *tmp = getenv("TMPDIR");
    char *folder =
        kg_format("%s/kgate-result-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    if (mkdtemp(folder) != NULL) {
        struct kg_error second;
        kg_error_init(&second);
        char *path = kg_format("%s/result.json", folder);
        if (kg_store_write_json(path, json, &second) == 0)
            *fallback = path;
        else
            free(path);
    }
    free(folder);
    return rc;
}

void kg_store_discard(struct kg_store *store)
{
    if (store->logs)
        rmdir(store->logs);
    if (store->folder)
        rmdir(store->folder);
}

void kg_store_clear(struct kg_store *store)
{
    free(store->folder);
    free(store->logs);
    free(store->result);
    free(store->parent);
    memset(store, 0, sizeof *store);
}
