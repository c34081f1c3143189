/* The order in which a model is looked for, on folders made here. */
#include "tests/config/common.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/cmd_models.h"
#include "runner/models.h"
#include "runner/text.h"

static const char text[] = "kgate: 1\n"
                           "search: [~/models, box]\n"
                           "default_model: big\n"
                           "models:\n"
                           "  big:\n"
                           "    file: big.gguf\n"
                           "    format: gguf\n"
                           "    legacy: [old/other-name.gguf]\n"
                           "    fallback: small\n"
                           "  small: {file: small.gguf, format: gguf, reduced: true}\n"
                           "  shards: {directory: shards, format: safetensors-dir}\n"
                           "  summed:\n"
                           "    file: abc.bin\n"
                           "    format: gguf\n"
                           "    sha256: ba7816bf8f01cfea414140de5dae2223"
                           "b00361a396177a9cb410ff61f20015ad\n";

struct world {
    char *root; /* real path of the folder that holds all */
    struct kg_models *models;
};

static void make(const struct world *w, const char *name)
{
    char *path = kg_text_format("%s/%s", w->root, name);
    if (name[strlen(name) - 1] == '/')
        assert_int_equal(mkdir(path, 0755), 0);
    else
        write_file(path, "abc", 3);
    free(path);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    char *folder = make_folder();
    w->root = realpath(folder, NULL);
    free(folder);
    static const char *const folders[] = {"env/", "home/", "home/models/",
                                          "box/", "old/",  "arg/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        make(w, folders[i]);
    char *path = kg_text_format("%s/models.yaml", w->root);
    write_file(path, text, sizeof text - 1);
    struct kg_error error;
    kg_error_init(&error);
    int rc = kg_models_load(path, &w->models, &error);
    free(path);
    *state = w;
    return rc;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    kg_models_free(w->models);
    char *command = kg_text_format("rm -rf -- '%s'", w->root);
    int rc = system(command);
    free(command);
    free(w->root);
    free(w);
    return rc;
}

/* Resolves with every variable and --model given; `want` is below the root. */
static void expect(struct world *w, const char *id, const char *model, const char *want,
                   enum kg_found found, const char *how)
{
    char *dir = kg_text_format("%s/env", w->root);
    char *home = kg_text_format("%s/home", w->root);
    char *argument = model ? kg_text_format("%s/%s", w->root, model) : NULL;
    struct kg_models_query query = {dir, argument, home};
    struct kg_resolved r;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_models_resolve(w->models, &query, id, &r, &error), 0);
    assert_int_equal(r.found, found);
    if (want) {
        assert_non_null(r.path);
        assert_string_equal(r.path + strlen(w->root) + 1, want);
        assert_string_equal(r.how, how);
        assert_int_equal(r.bytes, 3);
        assert_true(r.n_tried > 0);
    } else {
        assert_null(r.path);
        assert_string_equal(r.miss, how);
    }
    kg_resolved_clear(&r);
    free(dir);
    free(home);
    free(argument);
}

/* From the last rule to the first: each new file wins over all before it. */
static void order(void **state)
{
    struct world *w = *state;
    expect(w, "big", NULL, NULL, KG_FOUND_NOT,
           "big: big.gguf is not on this machine (7 candidates tried): set "
           "KGATE_MODELS_DIR to the folder that holds it");
    make(w, "box/small.gguf");
    expect(w, "big", NULL, "box/small.gguf", KG_FOUND_SEARCH,
           "search list: box, fallback of big");
    make(w, "env/small.gguf");
    expect(w, "big", NULL, "env/small.gguf", KG_FOUND_MODELS_DIR,
           "KGATE_MODELS_DIR, fallback of big");
    make(w, "old/other-name.gguf");
    expect(w, "big", NULL, "old/other-name.gguf", KG_FOUND_LEGACY, "legacy path");
    make(w, "box/big.gguf");
    expect(w, "big", NULL, "box/big.gguf", KG_FOUND_SEARCH, "search list: box");
    make(w, "home/models/big.gguf");
    expect(w, "big", NULL, "home/models/big.gguf", KG_FOUND_SEARCH,
           "search list: ~/models");
    make(w, "arg/big.gguf");
    make(w, "arg/not-big.gguf");
    expect(w, "big", "arg/not-big.gguf", "home/models/big.gguf", KG_FOUND_SEARCH,
           "search list: ~/models");
    expect(w, "big", "arg/big.gguf", "arg/big.gguf", KG_FOUND_ARGUMENT, "--model");
    make(w, "arg/bug.gguf"); /* as long */
    make(w, "arg/big");      /* a beginning */
    expect(w, "big", "arg/bug.gguf", "home/models/big.gguf", KG_FOUND_SEARCH,
           "search list: ~/models");
    expect(w, "big", "arg/big", "home/models/big.gguf", KG_FOUND_SEARCH,
           "search list: ~/models");
    make(w, "env/big.gguf");
    expect(w, "big", "arg/big.gguf", "env/big.gguf", KG_FOUND_MODELS_DIR,
           "KGATE_MODELS_DIR");
}

static void model_argument(void **state)
{
    struct world *w = *state;
    make(w, "arg/any.gguf");
    expect(w, "$model", "arg/any.gguf", "arg/any.gguf", KG_FOUND_ARGUMENT, "--model");
    make(w, "box/big.gguf");
    expect(w, "$model", NULL, "box/big.gguf", KG_FOUND_SEARCH, "search list: box");

    struct kg_models_query query = {.model = "/nowhere/x.gguf"};
    struct kg_resolved r;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_models_resolve(w->models, &query, "$model", &r, &error), KG_E_IO);
    assert_string_equal(line_of(&error),
                        "--model /nowhere/x.gguf: No such file or directory");
    kg_error_init(&error);
    assert_int_equal(kg_models_resolve(w->models, &query, "bog", &r, &error),
                     KG_E_INVALID);
    assert_true(kg_models_has(w->models, "big"));
    assert_true(kg_models_has(w->models, "$model"));
    assert_false(kg_models_has(w->models, "bog"));
}

/* A file where a directory should be, and the other way round, is not the model. */
static void kinds(void **state)
{
    struct world *w = *state;
    make(w, "env/shards");
    make(w, "env/big.gguf/");
    make(w, "box/shards/");
    make(w, "box/shards/one.safetensors");
    make(w, "box/big.gguf");
    expect(w, "shards", NULL, "box/shards", KG_FOUND_SEARCH, "search list: box");
    expect(w, "shards", "box/shards//", "box/shards", KG_FOUND_ARGUMENT, "--model");
    expect(w, "big", NULL, "box/big.gguf", KG_FOUND_SEARCH, "search list: box");
}

static void no_home(void **state)
{
    struct world *w = *state;
    struct kg_models_query query = {0};
    struct kg_resolved r;
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_models_resolve(w->models, &query, "shards", &r, &error), 0);
    assert_int_equal(r.n_tried, 1);
    assert_string_equal(r.miss, "shards: shards is not on this machine (1 candidate "
                                "tried): set KGATE_MODELS_DIR to the folder that holds "
                                "it");
    kg_resolved_clear(&r);
}

static int run_command(struct world *w, bool json, bool verify, char *out, size_t size)
{
    char *yaml = kg_text_format("%s/models.yaml", w->root);
    struct kg_options o = {.json = json, .verify = verify};
    struct kg_paths paths = {.models = yaml};
    struct kg_error error;
    kg_error_init(&error);
    memset(out, 0, size);
    FILE *file = fmemopen(out, size - 1, "w");
    int status = kg_cmd_models(&o, &paths, file, &error);
    fclose(file);
    assert_string_equal(line_of(&error), "");
    free(yaml);
    return status;
}

static void command(void **state)
{
    static char out[32768];
    struct world *w = *state;
    make(w, "box/abc.bin");
    assert_int_equal(run_command(w, false, true, out, sizeof out), 0);
    assert_non_null(strstr(out, "/box/abc.bin  (search list: box, sha256 matches)\n"));
    assert_non_null(strstr(out, "shards     missing  shards is not on this"));
    assert_int_equal(run_command(w, true, true, out, sizeof out), 0);
    assert_non_null(strstr(out, "\"sha256\": \"matches\""));

    char *path = kg_text_format("%s/box/abc.bin", w->root);
    write_file(path, "abd", 3);
    free(path);
    assert_int_equal(run_command(w, false, false, out, sizeof out), 0);
    assert_int_equal(run_command(w, false, true, out, sizeof out), 1);
    assert_non_null(strstr(out, "sha256 differs"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(order), TEST(model_argument), TEST(kinds), TEST(no_home), TEST(command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
