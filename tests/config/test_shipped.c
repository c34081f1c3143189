/* The manifests and the models.yaml of this tree load, and fit each other. */
#include "tests/config/common.h"

#include <unistd.h>

#include "runner/manifest.h"
#include "runner/models.h"

static void fit(void **state)
{
    (void)state;
    static const char *const names[] = {"quick", "full", "nightly", "release",
                                        "dsv4-7168"};
    struct kg_error error;
    struct kg_models *models;
    kg_error_init(&error);
    assert_int_equal(chdir(KG_SOURCE_ROOT), 0);
    assert_int_equal(kg_models_load("models.yaml", &models, &error), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        struct kg_manifest *m;
        snprintf(path, sizeof path, "manifests/%s.yaml", names[i]);
        int rc = kg_manifest_load(path, &m, &error);
        if (rc != 0)
            fail_msg("%s", line_of(&error));
        assert_string_equal(m->name, names[i]);
        for (size_t j = 0; j < m->n_sections; j++)
            for (size_t k = 0; k < m->sections[j].n_artifacts; k++)
                if (!kg_models_has(models, m->sections[j].artifacts[k].id))
                    fail_msg("%s:%d: no model %s", path, m->sections[j].artifacts[k].line,
                             m->sections[j].artifacts[k].id);
        kg_manifest_free(m);
    }
    kg_models_free(models);
}

/* Without any model on the machine, what the quick battery asks for is still there. */
static void reduced_copies(void **state)
{
    (void)state;
    static const struct {
        const char *id, *found;
        bool reduced;
    } rows[] = {
        {"kgate-dtypes",    "kgate-dtypes",            false},
        {"$model",          "qwen35-9b-nvfp4-reduced", true },
        {"qwen35-9b-nvfp4", "qwen35-9b-nvfp4-reduced", true },
        {"qwen36-35b",      "qwen36-35b-reduced",      true },
    };
    struct kg_error error;
    struct kg_models *models;
    kg_error_init(&error);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(kg_models_load(KG_SOURCE_ROOT "/models.yaml", &models, &error), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kg_models_query query = {0};
        struct kg_resolved r;
        assert_int_equal(kg_models_resolve(models, &query, rows[i].id, &r, &error), 0);
        if (!r.path)
            fail_msg("%s", r.miss);
        if (r.fallback || !rows[i].reduced) { /* else the machine has the real file */
            assert_string_equal(r.id, rows[i].found);
            assert_int_equal(r.reduced, rows[i].reduced);
        }
        kg_resolved_clear(&r);
    }
    kg_models_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit),
        cmocka_unit_test(reduced_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
