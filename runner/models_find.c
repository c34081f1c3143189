/* The search of models.h: candidates in order, the first that exists. */
#include "runner/models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/models_impl.h"
#include "runner/text.h"

struct search {
    const struct kg_models *models;
    const struct kg_models_query *query;
    const struct model *model;
    struct kg_resolved *r;
    bool no_memory;
};

static bool is_kind(const char *path, bool directory)
{
    struct stat st;
    return stat(path, &st) == 0 &&
           (directory ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode));
}

static uint64_t bytes_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return (uint64_t)st.st_size;
    uint64_t sum = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    closedir(dir);
    return sum;
}

/* Looks at one path, which it takes over. True if the search is at its end. */
static bool try_path(struct search *s, enum kg_found how, char *path)
{
    struct kg_resolved *r = s->r;
    char **tried = path ? realloc(r->tried, (r->n_tried + 1) * sizeof *tried) : NULL;
    if (!tried) {
        free(path);
        s->no_memory = true;
        return true;
    }
    r->tried = tried;
    for (size_t i = 0; i < r->n_tried; i++) {
        if (strcmp(tried[i], path) == 0) { /* two rules may lead to one place */
            free(path);
            return false;
        }
    }
    tried[r->n_tried++] = path;
    if (!is_kind(path, s->model->is_directory))
        return false;
    r->path = realpath(path, NULL);
    if (!r->path)
        return false;
    r->found = how;
    return true;
}

/* `path` with ~ and the folder of models.yaml applied, and /name if name is not NULL. */
static char *expand(const struct search *s, const char *path, const char *name)
{
    const char *before = "", *between = "";
    if (path[0] == '~') {
        before = s->query->home;
        path++;
    } else if (path[0] != '/') {
        before = s->models->folder;
        between = "/";
    }
    return kg_text_format("%s%s%s%s%s", before, between, path, name ? "/" : "",
                          name ? name : "");
}

static bool can_expand(const struct search *s, const char *path)
{
    return path[0] != '~' || s->query->home;
}

/* The last component without slashes at its end; `length` is that of the component. */
static const char *last_component(const char *path, size_t *length)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    *length = end - start;
    return path + start;
}

static bool search_model(struct search *s)
{
    const struct model *m = s->model;
    const struct kg_models_query *q = s->query;
    char *how = s->r->how;
    size_t size = sizeof s->r->how;

    if (q->models_dir) {
        snprintf(how, size, "KGATE_MODELS_DIR");
        if (try_path(s, KG_FOUND_MODELS_DIR,
                     kg_text_format("%s/%s", q->models_dir, m->name)))
            return true;
    }
    if (q->model) {
        size_t n;
        const char *base = last_component(q->model, &n);
        snprintf(how, size, "--model");
        if (n == strlen(m->name) && memcmp(base, m->name, n) == 0 &&
            try_path(s, KG_FOUND_ARGUMENT, strdup(q->model)))
            return true;
    }
    for (size_t i = 0; i < s->models->n_search; i++) {
        const char *dir = s->models->search[i];
        snprintf(how, size, "search list: %s", dir);
        if (can_expand(s, dir) && try_path(s, KG_FOUND_SEARCH, expand(s, dir, m->name)))
            return true;
    }
    for (size_t i = 0; i < m->n_legacy; i++) {
        snprintf(how, size, "legacy path");
        if (can_expand(s, m->legacy[i]) &&
            try_path(s, KG_FOUND_LEGACY, expand(s, m->legacy[i], NULL)))
            return true;
    }
    how[0] = '\0';
    return false;
}

/* The --model path, whatever its name. */
static int resolve_argument(const char *path, struct kg_resolved *r,
                            struct kg_error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return kg_error_set(error, KG_E_IO, "--model %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return kg_error_set(error, KG_E_IO, "--model %s: neither a file nor a directory",
                            path);
    size_t n = strlen(path);
    const char *end = ".safetensors";
    if (S_ISDIR(st.st_mode))
        r->format = "safetensors-dir";
    else if (n > strlen(end) && strcmp(path + n - strlen(end), end) == 0)
        r->format = "safetensors";
    else
        r->format = "gguf";
    r->found = KG_FOUND_ARGUMENT;
    r->id = strdup(KG_MODEL_ARGUMENT);
    r->path = realpath(path, NULL);
    r->tried = malloc(sizeof *r->tried);
    if (!r->id || !r->path || !r->tried || !(r->tried[0] = strdup(path)))
        return kg_error_set(error, KG_E_MEMORY, "--model %s: out of memory", path);
    r->n_tried = 1;
    r->bytes = bytes_of(path);
    snprintf(r->how, sizeof r->how, "--model");
    return 0;
}

static int resolve_entry(const struct kg_models *models,
                         const struct kg_models_query *query, const struct model *first,
                         struct kg_resolved *r, struct kg_error *error)
{
    struct search s = {.models = models, .query = query, .model = first, .r = r};
    bool end = search_model(&s);
    while (!end && s.model->fallback) {
        s.model = s.model->fallback;
        end = search_model(&s);
    }
    if (s.no_memory)
        return kg_error_set(error, KG_E_MEMORY, "%s: out of memory", first->id);
    if (!end) {
        r->format = first->format;
        snprintf(r->miss, sizeof r->miss,
                 "%s: %s is not on this machine (%zu candidate%s tried): set "
                 "KGATE_MODELS_DIR to the folder that holds it%s",
                 r->asked, first->name, r->n_tried, r->n_tried == 1 ? "" : "s",
                 strcmp(r->asked, KG_MODEL_ARGUMENT) == 0 ? ", or give --model FILE"
                                                          : "");
        return 0;
    }
    r->format = s.model->format;
    r->fallback = s.model != first;
    r->reduced = s.model->reduced;
    r->synthetic = s.model->synthetic;
    r->bytes = bytes_of(r->path);
    r->id = strdup(s.model->id);
    if (s.model->sha256)
        r->sha256 = strdup(s.model->sha256);
    if (!r->id || (s.model->sha256 && !r->sha256))
        return kg_error_set(error, KG_E_MEMORY, "%s: out of memory", first->id);
    if (r->fallback) {
        size_t at = strlen(r->how);
        snprintf(r->how + at, sizeof r->how - at, ", fallback of %s", first->id);
    }
    return 0;
}

int kg_models_resolve(const struct kg_models *models, const struct kg_models_query *query,
                      const char *id, struct kg_resolved *resolved,
                      struct kg_error *error)
{
    memset(resolved, 0, sizeof *resolved);
    const bool argument = strcmp(id, KG_MODEL_ARGUMENT) == 0;
    const struct model *model =
        argument ? models->default_model : kg_models_find(models, id);
    int rc = 0;
    resolved->asked = strdup(id);
    if (!resolved->asked)
        rc = kg_error_set(error, KG_E_MEMORY, "%s: out of memory", id);
    else if (argument && query->model)
        rc = resolve_argument(query->model, resolved, error);
    else if (model)
        rc = resolve_entry(models, query, model, resolved, error);
    else if (argument)
        snprintf(resolved->miss, sizeof resolved->miss,
                 "%s: no model given (0 candidates tried): give --model FILE, or add "
                 "default_model to models.yaml",
                 id);
    else
        rc = kg_error_set(error, KG_E_INVALID, "no model \"%s\" in %s", id,
                          kg_models_path(models));
    if (rc != 0)
        kg_resolved_clear(resolved);
    return rc;
}

void kg_resolved_clear(struct kg_resolved *r)
{
    for (size_t i = 0; i < r->n_tried; i++)
        free(r->tried[i]);
    free(r->tried);
    free(r->asked);
    free(r->id);
    free(r->path);
    free(r->sha256);
    memset(r, 0, sizeof *r);
}

const char *kg_found_name(enum kg_found found)
{
    static const char *const names[] = {"missing", "models-dir", "argument", "search",
                                        "legacy"};
    return names[found];
}

int kg_models_sha256(const char *path, char hex[65], struct kg_error *error)
{
    enum { BYTES = 1 << 20 };
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return kg_error_set(error, KG_E_IO, "%s: %s", path, strerror(errno));
    uint8_t *bytes = malloc(BYTES);
    ssize_t n = -1;
    while (bytes && (n = read(fd, bytes, BYTES)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        sha256_update(&ctx, (size_t)n, bytes);
    }
    int rc = 0;
    if (!bytes)
        rc = kg_error_set(error, KG_E_MEMORY, "%s: out of memory", path);
    else if (n < 0)
        rc = kg_error_set(error, KG_E_IO, "%s: %s", path, strerror(errno));
    free(bytes);
    close(fd);
    sha256_digest(&ctx, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return rc;
}
