#include "runner/diff/load.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/diff/cells.h"
#include "runner/diff/scan.h"
#include "runner/escape.h"

static int read_file(struct kg_record *r, struct kg_error *e)
{
    int rc = KG_OK;
    struct stat st;
    int fd =
        open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not hang us */
    if (fd < 0)
        return kg_error_at_offset(e, KG_E_IO, r->path, -1, "cannot be read: %s",
                                  strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = kg_error_at_offset(e, KG_E_IO, r->path, -1, "is not a regular file");
        goto out;
    }
    if ((uint64_t)st.st_size > KG_RECORD_MAX_BYTES) {
        rc = kg_error_at_offset(e, KG_E_IO, r->path, -1,
                                "has %lld bytes, more than the %zu MiB that a result may "
                                "have",
                                (long long)st.st_size, KG_RECORD_MAX_BYTES >> 20);
        goto out;
    }
    size_t size = (size_t)st.st_size;
    r->text = kg_xrealloc(NULL, size + 1);
    while (r->size < size) {
        ssize_t n = read(fd, r->text + r->size, size - r->size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = kg_error_at_offset(e, KG_E_IO, r->path, -1, "cannot be read: %s",
                                    strerror(errno));
            goto out;
        }
        if (n == 0)
            break;
        r->size += (size_t)n;
    }
    r->text[r->size] = '\0';
    if (r->size == 0)
        rc = kg_error_at_offset(e, KG_E_FORMAT, r->path, -1, "is empty");
out:
    close(fd);
    return rc;
}

static void read_schema(struct kg_scan *s, struct kg_record *r)
{
    const char *key, *name = NULL;
    double major = -1, minor = 0;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (strcmp(key, "name") == 0)
            kg_scan_string(s, &name);
        else if (strcmp(key, "major") == 0)
            kg_scan_number(s, &major);
        else if (strcmp(key, "minor") == 0)
            kg_scan_number(s, &minor);
        else
            kg_scan_skip(s, NULL, NULL);
    }
    if (s->error->status)
        return;
    if (!name || strcmp(name, KG_RECORD_SCHEMA) != 0) {
        kg_error_at_offset(s->error, KG_E_FORMAT, s->file, -1,
                           "is not a result of kgate (schema %s, not %s)",
                           name ? name : "without a name", KG_RECORD_SCHEMA);
        return;
    }
    if (major != KG_RECORD_MAJOR) {
        kg_error_at_offset(
            s->error, KG_E_UNSUPPORTED, s->file, -1,
            "has schema version %g.%g; this kgate reads %d.x: use the kgate "
            "that wrote it",
            major, minor, KG_RECORD_MAJOR);
        return;
    }
    r->major = (int)major;
    r->minor = minor >= 0 && minor < 1e6 ? (int)minor : 0;
}

static void read_schema_copy(const struct kg_scan *s, const char *begin, size_t size,
                             struct kg_record *r)
{
    char *copy = kg_xcalloc(size + 1, 1);
    struct kg_scan sub;
    memcpy(copy, begin, size);
    kg_scan_init(&sub, copy, size, s->file, s->error);
    sub.line = s->line;
    read_schema(&sub, r);
    free(copy);
}

/* Walks the file once without keeping anything: the schema is judged before any member that
   a later major version may have changed, wherever it stands. */
static int check_schema(struct kg_record *r, struct kg_error *e)
{
    struct kg_scan s;
    const char *key;
    bool found = false;
    kg_scan_init(&s, r->text, r->size, r->path, e);
    if (kg_scan_object(&s))
        while (kg_scan_plain_member(&s, &key)) {
            if (!found && strncmp(key, "schema\"", 7) == 0) {
                const char *begin;
                size_t size;
                found = true;
                if (kg_scan_skip(&s, &begin, &size))
                    read_schema_copy(&s, begin, size, r);
            } else {
                kg_scan_skip(&s, NULL, NULL);
            }
        }
    kg_scan_end(&s);
    if (!e->status && !found)
        kg_error_at_offset(e, KG_E_FORMAT, r->path, -1,
                           "is not a result of kgate (no \"schema\")");
    return e->status;
}

static void read_run(struct kg_scan *s, struct kg_record *r)
{
    const char *begin;
    size_t size;
    if (kg_scan_peek(s) != KG_JSON_OBJECT) {
        kg_scan_fail(s, "\"run\" must be an object");
        return;
    }
    if (!kg_scan_skip(s, &begin, &size))
        return;
    json_error_t why;
    json_decref(r->run);
    r->run = json_loadb(begin, size, JSON_ALLOW_NUL, &why);
    if (!r->run)
        kg_scan_fail(s, "in \"run\": %s", why.text);
}

static void read_summary(struct kg_scan *s, struct kg_record *r)
{
    const char *key;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        if (strcmp(key, "verdict") == 0)
            kg_scan_string(s, &r->verdict);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct kg_record_cell *)a)->id,
                  ((const struct kg_record_cell *)b)->id);
}

static void sort_cells(struct kg_record *r, struct kg_error *e)
{
    bool sorted = true;
    for (size_t i = 1; i < r->n_cells && sorted; i++)
        sorted = strcmp(r->cells[i - 1].id, r->cells[i].id) < 0;
    if (!sorted)
        qsort(r->cells, r->n_cells, sizeof *r->cells, by_id);
    for (size_t i = 1; i < r->n_cells; i++)
        if (strcmp(r->cells[i - 1].id, r->cells[i].id) == 0) {
            kg_error_at_offset(e, KG_E_FORMAT, r->path, -1, "has the cell \"%s\" twice",
                               r->cells[i].id);
            return;
        }
    for (size_t i = 0; i < r->n_cells; i++)
        r->counts[r->cells[i].verdict]++;
}

int kg_record_load(struct kg_record *r, const char *path, struct kg_error *e)
{
    memset(r, 0, sizeof *r);
    r->path = kg_xstrdup(path);
    KG_TRY(read_file(r, e));
    KG_TRY(check_schema(r, e));
    struct kg_scan s;
    kg_scan_init(&s, r->text, r->size, r->path, e);
    bool cells = false;
    const char *key;
    if (kg_scan_object(&s))
        while (kg_scan_member(&s, &key)) {
            if (strcmp(key, "run") == 0 && !r->run) {
                read_run(&s, r);
            } else if (strcmp(key, "summary") == 0 && !r->verdict) {
                read_summary(&s, r);
            } else if (strcmp(key, "sections") == 0 && !r->sections) {
                kg_record_read_sections(&s, r);
            } else if (strcmp(key, "cells") == 0 && !cells) {
                cells = true;
                kg_record_read_cells(&s, r);
            } else {
                kg_scan_skip(&s, NULL, NULL);
            }
        }
    kg_scan_end(&s);
    if (!e->status && (!r->run || !cells))
        kg_error_at_offset(e, KG_E_FORMAT, r->path, -1, "has no \"%s\"",
                           r->run ? "cells" : "run");
    if (!e->status)
        sort_cells(r, e);
    return e->status;
}

void kg_record_clear(struct kg_record *r)
{
    free(r->path);
    free(r->text);
    free(r->cells);
    free(r->sections);
    json_decref(r->run);
    kg_arena_clear(&r->arena);
    memset(r, 0, sizeof *r);
}

const struct kg_record_cell *kg_record_find(const struct kg_record *r, const char *id)
{
    struct kg_record_cell key = {.id = id};
    return r->n_cells ? bsearch(&key, r->cells, r->n_cells, sizeof key, by_id) : NULL;
}

const struct kg_record_section *kg_record_section_find(const struct kg_record *r,
                                                       const char *name)
{
    for (size_t i = 0; i < r->n_sections; i++)
        if (strcmp(r->sections[i].name, name) == 0)
            return &r->sections[i];
    return NULL;
}
