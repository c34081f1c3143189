#include "runner/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/text.h"

/* Set by the build. */
#ifndef KG_SOURCE_ROOT
#define KG_SOURCE_ROOT ""
#endif
#ifndef KG_LIB_DIR
#define KG_LIB_DIR "/usr/local/lib/kgate"
#endif
#ifndef KG_DATA_DIR
#define KG_DATA_DIR "/usr/local/share/kgate"
#endif
/* From the folder of an installed executable. */
#ifndef KG_LIB_FROM_BIN
#define KG_LIB_FROM_BIN "../lib/kgate"
#endif
#ifndef KG_DATA_FROM_BIN
#define KG_DATA_FROM_BIN "../share/kgate"
#endif

static int no_memory(struct kg_error *error)
{
    return kg_error_set(error, KG_E_MEMORY, "out of memory");
}

/* BUILD if this executable is BUILD/runner/NAME of a build tree, else NULL. A tree that
   was moved counts: what decides is what lies beside it, not where it was built. */
static char *build_root(void)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = '\0';
    for (int i = 0; i < 2; i++) { /* the name, then the folder it is in */
        char *slash = strrchr(exe, '/');
        if (!slash || slash == exe)
            return NULL;
        if (i == 1 && strcmp(slash, "/runner") != 0)
            return NULL;
        *slash = '\0';
    }
    char *mark = kg_text_format("%s/plugins", exe);
    bool is_build = mark && access(mark, F_OK) == 0;
    free(mark);
    return is_build ? strdup(exe) : NULL;
}

/* Where an installation keeps things: where it was installed to, unless that lies otherwise
   from the executable by now (a staged or a moved installation). */
static char *installed(const char *from_bin, const char *configured)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = '\0';
        *strrchr(exe, '/') = '\0';
        char *wanted = kg_text_format("%s/%s", exe, from_bin);
        char *real = wanted ? realpath(wanted, NULL) : NULL;
        free(wanted);
        if (real)
            return real;
    }
    return strdup(configured);
}

/* Where models.yaml and manifests/ are: the sources that were built, or, on a machine
   without them, the folder that the build tree was put in. */
static char *data_root(const char *build)
{
    if (!build)
        return installed(KG_DATA_FROM_BIN, KG_DATA_DIR);
    if (access(KG_SOURCE_ROOT "/models.yaml", F_OK) == 0)
        return strdup(KG_SOURCE_ROOT);
    const char *slash = strrchr(build, '/');
    return strndup(build, slash > build ? (size_t)(slash - build) : 1);
}

static int existing(const char *option, const char *path, bool directory, char **out,
                    struct kg_error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return kg_error_set(error, KG_E_IO, "%s %s: %s", option, path, strerror(errno));
    if (directory && !S_ISDIR(st.st_mode))
        return kg_error_set(error, KG_E_IO, "%s %s: not a folder", option, path);
    if (!directory && !S_ISREG(st.st_mode))
        return kg_error_set(error, KG_E_IO, "%s %s: not a regular file", option, path);
    *out = realpath(path, NULL);
    if (!*out)
        return kg_error_set(error, KG_E_IO, "%s %s: %s", option, path, strerror(errno));
    return 0;
}

/* `libraries`: the folder of build/plugins or of an installation's plugins. */
static int set_plugin_dirs(struct kg_paths *p, const struct kg_options *o,
                           const char *libraries, struct kg_error *error)
{
    size_t n = o->n_plugin_dirs ? o->n_plugin_dirs : 1;
    p->plugin_dirs = calloc(n, sizeof *p->plugin_dirs);
    if (!p->plugin_dirs)
        return no_memory(error);
    for (size_t i = 0; i < o->n_plugin_dirs; i++) {
        KG_TRY(
            existing("--plugin-dir", o->plugin_dirs[i], true, &p->plugin_dirs[i], error));
        p->n_plugin_dirs++;
    }
    if (o->n_plugin_dirs)
        return 0;
    p->plugin_dirs[0] = kg_text_format("%s/plugins", libraries);
    if (!p->plugin_dirs[0])
        return no_memory(error);
    p->n_plugin_dirs = 1;
    return 0;
}

int kg_paths_init(struct kg_paths *p, const struct kg_options *o, struct kg_error *error)
{
    memset(p, 0, sizeof *p);
    char *build = build_root();
    p->build_tree = build != NULL;
    char *libraries = build ? strdup(build) : installed(KG_LIB_FROM_BIN, KG_LIB_DIR);
    p->provider_dir =
        libraries ? kg_text_format("%s/%s", libraries, build ? "kernels" : "providers")
                  : NULL;
    char *data = data_root(build);
    p->manifest_dir = data ? kg_text_format("%s/manifests", data) : NULL;
    p->results = strdup(o->results ? o->results : "results");
    int rc = libraries ? set_plugin_dirs(p, o, libraries, error) : no_memory(error);
    free(libraries);
    free(build);
    if (rc == 0 && o->models_file)
        rc = existing("--models", o->models_file, false, &p->models, error);
    else if (rc == 0)
        p->models = data ? kg_text_format("%s/models.yaml", data) : NULL;
    free(data);
    if (rc == 0 && !(p->provider_dir && p->manifest_dir && p->results && p->models))
        rc = no_memory(error);
    return rc;
}

void kg_paths_clear(struct kg_paths *p)
{
    for (size_t i = 0; i < p->n_plugin_dirs; i++)
        free(p->plugin_dirs[i]);
    free(p->plugin_dirs);
    free(p->provider_dir);
    free(p->manifest_dir);
    free(p->models);
    free(p->results);
    memset(p, 0, sizeof *p);
}

/* Who can write a file can run code as us; so can who may replace it in its folder (a
   sticky folder such as /tmp does not let others do that). */
static int refuse_writable(const char *path, struct kg_error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return kg_error_set(error, KG_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kg_error_set(error, KG_E_INVALID, "%s: not a regular file", path);
    if (st.st_mode & S_IWOTH)
        return kg_error_set(error, KG_E_INVALID,
                            "%s: everybody may write it, so it is not loaded (chmod o-w)",
                            path);
    char *folder = strdup(path);
    if (!folder)
        return no_memory(error);
    char *slash = strrchr(folder, '/'); /* the path is absolute */
    slash[slash == folder] = '\0';
    int rc = 0;
    if (stat(folder, &st) != 0)
        rc = kg_error_set(error, KG_E_IO, "%s: %s", folder, strerror(errno));
    else if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
        rc = kg_error_set(error, KG_E_INVALID,
                          "%s: everybody may write the folder %s, so it is not loaded "
                          "(chmod o-w)",
                          path, folder);
    free(folder);
    return rc;
}

/* FOLDER/NAME.so, links followed, if it is there: *path stays NULL if it is not. */
static int load_from(const char *folder, const char *name, char **path,
                     struct kg_error *error)
{
    char *wanted = kg_text_format("%s/%s.so", folder, name);
    if (!wanted)
        return no_memory(error);
    char *real = realpath(wanted, NULL);
    int why = errno;
    char *real_folder = realpath(folder, NULL); /* sets errno even if it succeeds */
    int rc = 0;
    if (real && real_folder) {
        size_t n = strlen(real_folder);
        if (strncmp(real, real_folder, n) != 0 || (real[n] != '/' && n > 1))
            rc = kg_error_set(error, KG_E_INVALID,
                              "%s: leads out of its folder (to %s), so it is not loaded",
                              wanted, real);
        else
            rc = refuse_writable(real, error);
        if (rc == 0) {
            *path = real;
            real = NULL;
        }
    } else if (why != ENOENT && why != ENOTDIR) {
        rc = kg_error_set(error, KG_E_IO, "%s: %s", wanted, strerror(why));
    }
    free(wanted);
    free(real);
    free(real_folder);
    return rc;
}

int kg_paths_plugin(const struct kg_paths *p, const char *section, char **path,
                    struct kg_error *error)
{
    *path = NULL;
    if (!kg_text_is_name(section))
        return kg_error_set(error, KG_E_INVALID, "\"%.80s\" is not the name of a section",
                            section);
    for (size_t i = 0; i < p->n_plugin_dirs && !*path; i++)
        KG_TRY(load_from(p->plugin_dirs[i], section, path, error));
    if (*path)
        return 0;
    return kg_error_set(error, KG_E_IO,
                        "no plugin for section %s: %s/%s.so is not there%s", section,
                        p->plugin_dirs[0], section,
                        p->n_plugin_dirs > 1 ? " (nor in the other --plugin-dir)"
                        : p->build_tree      ? " (is it built?)"
                                             : "");
}

int kg_paths_provider(const struct kg_paths *p, const char *name, char **path,
                      struct kg_error *error)
{
    *path = NULL;
    KG_TRY(load_from(p->provider_dir, name, path, error));
    if (*path)
        return 0;
    return kg_error_set(error, KG_E_IO, "no provider %s: %s/%s.so is not there%s", name,
                        p->provider_dir, name, p->build_tree ? " (is it built?)" : "");
}

int kg_paths_named_provider(const char *option, const char *file, char **path,
                            struct kg_error *error)
{
    *path = NULL;
    KG_TRY(existing(option, file, false, path, error));
    int rc = refuse_writable(*path, error);
    if (rc != 0) {
        free(*path);
        *path = NULL;
    }
    return rc;
}

int kg_paths_manifest(const struct kg_paths *p, const char *argument, char **path,
                      struct kg_error *error)
{
    *path = NULL;
    size_t n = strlen(argument);
    const bool is_path = strchr(argument, '/') ||
                         (n > 5 && strcmp(argument + n - 5, ".yaml") == 0) ||
                         (n > 4 && strcmp(argument + n - 4, ".yml") == 0);
    if (is_path) {
        if (access(argument, R_OK) != 0)
            return kg_error_set(error, KG_E_IO, "%s: %s", argument, strerror(errno));
        *path = strdup(argument);
        return *path ? 0 : no_memory(error);
    }
    if (!kg_text_is_name(argument))
        return kg_error_set(error, KG_E_INVALID,
                            "\"%.100s\" is neither a path nor the name of a manifest",
                            argument);
    char *file = kg_text_format("%s/%s.yaml", p->manifest_dir, argument);
    if (!file)
        return no_memory(error);
    if (access(file, R_OK) == 0) {
        *path = file;
        return 0;
    }
    int rc =
        kg_error_set(error, KG_E_IO,
                     "no manifest %s: %s is not there (quick, full, nightly and release "
                     "come with kgate)",
                     argument, file);
    free(file);
    return rc;
}
