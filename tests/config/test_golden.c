/*
 * The folders tests/golden/{manifest,models}/{valid,invalid}/CASE/: input.yaml is read
 * from within CASE and what comes of it must be expected.txt, to the byte. An invalid
 * input gives the one line that a user sees; a valid one gives the summary made here. A
 * new case is a new folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/manifest.h"
#include "runner/models.h"

enum { MAX_TEXT = 16384 };

static void show_manifest(const struct kg_manifest *m, FILE *out)
{
    fprintf(out, "manifest %s\n", m->name);
    for (size_t i = 0; i < m->n_sections; i++) {
        const struct kg_manifest_section *s = &m->sections[i];
        fprintf(out, "section %s at %d:%d%s\n", s->name, s->line, s->column,
                s->optional ? " optional" : "");
        fprintf(out, "  limits %g s, %g s, %llu bytes\n", s->limits.cell_seconds,
                s->limits.section_seconds, (unsigned long long)s->limits.memory_bytes);
        for (size_t j = 0; j < s->n_tags; j++)
            fprintf(out, "  tag %s\n", s->tags[j]);
        for (size_t j = 0; j < s->n_artifacts; j++)
            fprintf(out, "  artifact %s is %s\n", s->artifacts[j].role,
                    s->artifacts[j].id);
        for (size_t j = 0; j < s->n_params; j++)
            fprintf(out, "  param %s is \"%s\"\n", s->params[j].key, s->params[j].value);
    }
}

/* The tail of a path below the working directory, so that no machine's paths show. */
static const char *relative(const char *path)
{
    static char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    size_t n = strlen(here);
    return strncmp(path, here, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

static void show_models(const struct kg_models *models, FILE *out)
{
    const struct kg_models_query query = {.home = "/nowhere/home"};
    for (size_t i = 0; i <= kg_models_count(models); i++) {
        struct kg_resolved r;
        struct kg_error error;
        kg_error_init(&error);
        const char *id =
            i < kg_models_count(models) ? kg_models_id(models, i) : KG_MODEL_ARGUMENT;
        assert_int_equal(kg_models_resolve(models, &query, id, &r, &error), 0);
        if (r.path)
            fprintf(out, "%s is %s of %s, %s, %llu bytes, %s%s%s%s\n", id,
                    relative(r.path), r.id, r.format, (unsigned long long)r.bytes, r.how,
                    r.fallback ? ", fallback" : "", r.reduced ? ", reduced" : "",
                    r.synthetic ? ", synthetic" : "");
        else
            fprintf(out, "%s\n", r.miss);
        for (size_t j = 0; j < r.n_tried; j++)
            fprintf(out, "  tried %s\n", relative(r.tried[j]));
        kg_resolved_clear(&r);
    }
}

/* What input.yaml in the working directory comes to. */
static void outcome(const char *thing, char *text)
{
    struct kg_error error;
    kg_error_init(&error);
    FILE *out = fmemopen(text, MAX_TEXT, "w");
    assert_non_null(out);
    char line[1200];
    if (strcmp(thing, "manifest") == 0) {
        struct kg_manifest *m;
        if (kg_manifest_load("input.yaml", &m, &error) == 0)
            show_manifest(m, out);
        kg_manifest_free(m);
    } else {
        struct kg_models *m;
        if (kg_models_load("input.yaml", &m, &error) == 0)
            show_models(m, out);
        kg_models_free(m);
    }
    if (error.status != 0)
        fprintf(out, "%s\n", kg_error_line(&error, line, sizeof line));
    fclose(out);
    assert_true(strlen(text) + 1 < MAX_TEXT);
}

static int run_case(const char *thing, bool valid, const char *name)
{
    static char got[MAX_TEXT], want[MAX_TEXT];
    memset(got, 0, sizeof got);
    memset(want, 0, sizeof want);
    outcome(thing, got);
    FILE *file = fopen("expected.txt", "rb");
    if (file) {
        want[fread(want, 1, sizeof want - 1, file)] = '\0';
        fclose(file);
    }
    const bool is_line = strncmp(got, "input.yaml", 10) == 0;
    if (strcmp(got, want) == 0 && is_line != valid)
        return 0;
    print_error("%s/%s/%s\n--- expected\n%s--- got\n%s", thing,
                valid ? "valid" : "invalid", name, want, got);
    return 1;
}

static void run_folder(const char *thing, bool valid)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/%s/%s", KG_GOLDEN_DIR, thing,
             valid ? "valid" : "invalid");
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int cases = 0, wrong = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        assert_int_equal(chdir(folder), 0);
        if (chdir(e->d_name) != 0)
            fail_msg("%s/%s is not a folder", folder, e->d_name);
        wrong += run_case(thing, valid, e->d_name);
        cases++;
    }
    closedir(dir);
    assert_true(cases > 0);
    assert_int_equal(wrong, 0);
}

static void manifest_valid(void **state)
{
    (void)state;
    run_folder("manifest", true);
}

static void manifest_invalid(void **state)
{
    (void)state;
    run_folder("manifest", false);
}

static void models_valid(void **state)
{
    (void)state;
    run_folder("models", true);
}

static void models_invalid(void **state)
{
    (void)state;
    run_folder("models", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_valid),
        cmocka_unit_test(manifest_invalid),
        cmocka_unit_test(models_valid),
        cmocka_unit_test(models_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
