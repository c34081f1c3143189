/* Which plugin and provider files are loaded, and which are refused. */
#include "tests/config/common.h"

#include <sys/stat.h>
#include <unistd.h>

#include "runner/paths.h"
#include "runner/text.h"

struct world {
    char *root;
    struct kg_paths paths;
};

static char *at(const struct world *w, const char *name)
{
    return kg_text_format("%s/%s", w->root, name);
}

static void make(const struct world *w, const char *name, mode_t mode)
{
    char *path = at(w, name);
    if (name[strlen(name) - 1] == '/')
        assert_int_equal(mkdir(path, 0755), 0);
    else
        write_file(path, "x", 1);
    assert_int_equal(chmod(path, mode), 0);
    free(path);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    char *folder = make_folder();
    w->root = realpath(folder, NULL);
    free(folder);
    make(w, "a/", 0755);
    make(w, "b/", 0755);
    make(w, "open/", 0777);
    make(w, "elsewhere/", 0755);
    make(w, "providers/", 0755);
    make(w, "manifests/", 0755);
    w->paths.n_plugin_dirs = 3;
    w->paths.plugin_dirs = calloc(3, sizeof *w->paths.plugin_dirs);
    w->paths.plugin_dirs[0] = at(w, "a");
    w->paths.plugin_dirs[1] = at(w, "b");
    w->paths.plugin_dirs[2] = at(w, "open");
    w->paths.provider_dir = at(w, "providers");
    w->paths.manifest_dir = at(w, "manifests");
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    kg_paths_clear(&w->paths);
    char *command = kg_text_format("rm -rf -- '%s'", w->root);
    int rc = system(command);
    free(command);
    free(w->root);
    free(w);
    return rc;
}

static void expect_plugin(struct world *w, const char *section, int rc, const char *want)
{
    char *path;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_paths_plugin(&w->paths, section, &path, &error), rc);
    if (rc == 0) {
        assert_string_equal(path + strlen(w->root) + 1, want);
    } else {
        assert_null(path);
        if (!strstr(line_of(&error), want))
            fail_msg("expected ...%s..., got %s", want, line_of(&error));
    }
    free(path);
}

static void plugins(void **state)
{
    struct world *w = *state;
    make(w, "b/norms.so", 0644);
    expect_plugin(w, "norms", 0, "b/norms.so");
    make(w, "a/norms.so", 0755);
    expect_plugin(w, "norms", 0, "a/norms.so");
    expect_plugin(w, "gdn", KG_E_IO, "no plugin for section gdn: ");
    expect_plugin(w, "../a/norms", KG_E_INVALID, "is not the name of a section");
    expect_plugin(w, "", KG_E_INVALID, "is not the name of a section");
}

static void refused_plugins(void **state)
{
    struct world *w = *state;
    make(w, "a/writable.so", 0666);
    expect_plugin(w, "writable", KG_E_INVALID, "a/writable.so: everybody may write it");
    make(w, "open/folder.so", 0644);
    expect_plugin(w, "folder", KG_E_INVALID, "everybody may write the folder ");
    make(w, "a/dir.so/", 0755);
    expect_plugin(w, "dir", KG_E_INVALID, "a/dir.so: not a regular file");

    make(w, "elsewhere/x.so", 0644);
    make(w, "b/target.so", 0644);
    char *out = at(w, "a/out.so"), *in = at(w, "b/in.so");
    assert_int_equal(symlink("../elsewhere/x.so", out), 0);
    assert_int_equal(symlink("target.so", in), 0);
    expect_plugin(w, "out", KG_E_INVALID, "a/out.so: leads out of its folder");
    expect_plugin(w, "in", 0, "b/target.so");
    free(out);
    free(in);
}

/* "a" must not admit "ab": the folder's name is a beginning of another's. */
static void neighbour_folder(void **state)
{
    struct world *w = *state;
    make(w, "ab/", 0755);
    make(w, "ab/x.so", 0644);
    char *link = at(w, "a/near.so");
    assert_int_equal(symlink("../ab/x.so", link), 0);
    expect_plugin(w, "near", KG_E_INVALID, "leads out of its folder");
    free(link);
}

static void providers(void **state)
{
    struct world *w = *state;
    char *path, *file = at(w, "elsewhere/mine.so");
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_paths_provider(&w->paths, "emu", &path, &error), KG_E_IO);
    make(w, "providers/emu.so", 0644);
    kg_error_init(&error);
    assert_int_equal(kg_paths_provider(&w->paths, "emu", &path, &error), 0);
    free(path);

    kg_error_init(&error);
    assert_int_equal(kg_paths_named_provider("--provider", file, &path, &error), KG_E_IO);
    make(w, "elsewhere/mine.so", 0644);
    kg_error_init(&error);
    assert_int_equal(kg_paths_named_provider("--provider", file, &path, &error), 0);
    assert_string_equal(path, file);
    free(path);
    assert_int_equal(chmod(file, 0646), 0);
    assert_int_equal(kg_paths_named_provider("--against", file, &path, &error),
                     KG_E_INVALID);
    assert_null(path);
    free(file);
}

static void manifests(void **state)
{
    struct world *w = *state;
    char *path, *file = at(w, "manifests/quick.yaml");
    struct kg_error error;
    make(w, "manifests/quick.yaml", 0644);
    kg_error_init(&error);
    assert_int_equal(kg_paths_manifest(&w->paths, "quick", &path, &error), 0);
    assert_string_equal(path, file);
    free(path);
    assert_int_equal(kg_paths_manifest(&w->paths, file, &path, &error), 0);
    free(path);
    assert_int_equal(kg_paths_manifest(&w->paths, "nightly", &path, &error), KG_E_IO);
    kg_error_init(&error);
    assert_int_equal(kg_paths_manifest(&w->paths, "no.yaml", &path, &error), KG_E_IO);
    assert_string_equal(line_of(&error), "no.yaml: No such file or directory");
    kg_error_init(&error);
    assert_int_equal(kg_paths_manifest(&w->paths, "..", &path, &error), KG_E_INVALID);
    free(file);
}

static void options_win(void **state)
{
    struct world *w = *state;
    const char *dirs[] = {w->root};
    struct kg_options o = {.n_plugin_dirs = 1, .plugin_dirs = dirs, .results = "out"};
    struct kg_paths p;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_paths_init(&p, &o, &error), 0);
    assert_int_equal(p.n_plugin_dirs, 1);
    assert_string_equal(p.plugin_dirs[0], w->root);
    assert_string_equal(p.results, "out");
    kg_paths_clear(&p);
    dirs[0] = "/nowhere";
    assert_int_equal(kg_paths_init(&p, &o, &error), KG_E_IO);
    assert_string_equal(line_of(&error),
                        "--plugin-dir /nowhere: No such file or directory");
    kg_paths_clear(&p);
    o = (struct kg_options){.models_file = "/nowhere.yaml"};
    kg_error_init(&error);
    assert_int_equal(kg_paths_init(&p, &o, &error), KG_E_IO);
    kg_paths_clear(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    umask(022);
    const struct CMUnitTest tests[] = {
        TEST(plugins),   TEST(refused_plugins), TEST(neighbour_folder),
        TEST(providers), TEST(manifests),       TEST(options_win),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
