/* Which sections and cells a selection lets through, and the words it gives. */
#include "tests/config/common.h"

#include "runner/select.h"

#define LIST(...) ((char *[]){__VA_ARGS__})

/* Of "norms.rms_norm.320x4" and "dtype5.nvfp4.stage-a", of 7. */
enum { PIN_A = 4, PIN_B = 6 };

static const char *const tags_dtype5[] = {"artifact", "matvec"};
static const char *const tags_norms[] = {"synthetic"};
static const struct kg_manifest_section sections[] = {
    {.name = "dtype5",     .n_tags = 2, .tags = tags_dtype5},
    {.name = "norms", .n_tags = 1, .tags = tags_norms},
    {.name = "dtypes"     },
};
static const struct kg_manifest manifest = {
    .name = "quick", .n_sections = 3, .sections = sections};

/* clang-format off */
static const struct {
    struct kg_select select;
    const char *why[3]; /* of dtype5, norms, dtypes; NULL: selected */
    const char *described;
} section_rows[] = {
    {{0}, {NULL, NULL, NULL}, "everything"},
    {{.n_tags = 1, .tags = LIST("matvec")},
     {NULL, "filtered: --tag matvec", "filtered: --tag matvec"},
     "--tag matvec"},
    {{.n_tags = 2, .tags = LIST("synthetic", "artifact")},
     {NULL, NULL, "filtered: --tag synthetic,artifact"},
     "--tag synthetic,artifact"},
    {{.n_only = 1, .only = LIST("dtype")},
     {NULL, "filtered: --only dtype", NULL},
     "--only dtype"},
    {{.n_only = 2, .only = LIST("orm", "dtypes"), .only_from_environment = true},
     {"filtered: KGATE_ONLY=orm,dtypes", NULL, NULL},
     "KGATE_ONLY=orm,dtypes"},
    {{.fast = true}, {"filtered: --fast", NULL, NULL}, "--fast"},
    {{.fast = true, .fast_from_environment = true},
     {"filtered: KGATE_FAST", NULL, NULL},
     "KGATE_FAST"},
    {{.n_cells = 1, .cells = LIST("dtype5.*")},
     {NULL, "filtered: --cell dtype5.*", "filtered: --cell dtype5.*"},
     "--cell dtype5.*"},
    {{.n_cells = 1, .cells = LIST("dtype*")},
     {NULL, "filtered: --cell dtype*", NULL},
     "--cell dtype*"},
    {{.n_cells = 1, .cells = LIST("dtypes-long.*")},
     {"filtered: --cell dtypes-long.*", "filtered: --cell dtypes-long.*",
      "filtered: --cell dtypes-long.*"},
     "--cell dtypes-long.*"},
    {{.n_cells = 1, .cells = LIST("*.stage-a")}, {NULL, NULL, NULL}, "--cell *.stage-a"},
    {{.n_cells = 1, .cells = LIST("[dn]*")}, {NULL, NULL, NULL}, "--cell [dn]*"},
    {{.n_cells = 2, .cells = LIST("norms.a", "dtypes.b")},
     {"filtered: --cell norms.a --cell dtypes.b", NULL, NULL},
     "--cell norms.a --cell dtypes.b"},
    {{.n_tags = 1,
      .tags = LIST("artifact"),
      .n_only = 1,
      .only = LIST("d"),
      .fast = true,
      .shard = 2,
      .n_shards = 4},
     {"filtered: --fast", "filtered: --tag artifact", "filtered: --tag artifact"},
     "--tag artifact --only d --fast --shard 2/4"},
};
/* clang-format on */

static void sections_table(void **state)
{
    (void)state;
    char why[200];
    for (size_t i = 0; i < sizeof section_rows / sizeof section_rows[0]; i++) {
        assert_string_equal(kg_select_describe(&section_rows[i].select, why, sizeof why),
                            section_rows[i].described);
        for (size_t j = 0; j < 3; j++) {
            why[0] = '\0';
            bool ok =
                kg_select_section(&section_rows[i].select, &sections[j], why, sizeof why);
            const char *want = section_rows[i].why[j];
            if (ok != !want || (want && strcmp(why, want) != 0))
                fail_msg("row %zu, %s: %d \"%s\"", i, sections[j].name, ok, why);
        }
    }
}

static void cells(void **state)
{
    (void)state;
    char why[200];
    struct kg_select s = {.n_cells = 2, .cells = LIST("a.*.stage-?", "b.[0-9]")};
    assert_true(kg_select_cell(&s, "a.q4.x.stage-b", NULL, why, sizeof why));
    assert_true(kg_select_cell(&s, "b.7", NULL, why, sizeof why));
    assert_false(kg_select_cell(&s, "b.77", NULL, why, sizeof why));
    assert_string_equal(why, "filtered: --cell a.*.stage-? --cell b.[0-9]");
    s = (struct kg_select){.fast = true};
    assert_true(kg_select_cell(&s, "a.b", NULL, why, sizeof why));
    assert_false(kg_select_cell(&s, "a.b", "model", why, sizeof why));
    assert_string_equal(why, "filtered: --fast");
}

/* Every cell is in one shard; the shards are pinned, for machines that split a run. */
static void shards(void **state)
{
    (void)state;
    char id[32], why[100];
    int count[5] = {0};
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "dtype5.cell-%d", i);
        int in = 0;
        for (uint32_t shard = 1; shard <= 4; shard++) {
            struct kg_select s = {.shard = shard, .n_shards = 4};
            if (kg_select_cell(&s, id, NULL, why, sizeof why)) {
                in++;
                count[shard]++;
            }
        }
        assert_int_equal(in, 1);
    }
    for (int shard = 1; shard <= 4; shard++)
        assert_in_range(count[shard], 200, 300);
    assert_int_equal(kg_select_shard_of("norms.rms_norm.320x4", 7), PIN_A);
    assert_int_equal(kg_select_shard_of("dtype5.nvfp4.stage-a", 7), PIN_B);
    assert_int_equal(kg_select_shard_of("x", 1), 1);
    assert_int_equal(kg_select_shard_of("x", 0), 1);
    struct kg_select s = {.shard = PIN_A % 7 + 1, .n_shards = 7};
    assert_false(kg_select_cell(&s, "norms.rms_norm.320x4", NULL, why, sizeof why));
    char want[100];
    snprintf(want, sizeof want, "filtered: --shard %d/7, the cell is in shard %d",
             PIN_A % 7 + 1, PIN_A);
    assert_string_equal(why, want);
}

static void nothing_selected(void **state)
{
    (void)state;
    /* clang-format off */
    const struct {
        struct kg_select select;
        const char *line; /* "" if it is fine */
    } rows[] = {
        {{0}, ""},
        {{.n_only = 1, .only = LIST("norm")}, ""},
        {{.n_only = 1, .only = LIST("qmatvce")},
         "--only: no section of quick has a name with \"qmatvce\" (kgate list shows "
         "them)"},
        {{.n_only = 2, .only = LIST("norm", "qmatvce")},
         "--only: no section of quick has a name with \"qmatvce\" (kgate list shows "
         "them)"},
        {{.n_only = 2, .only = LIST("norm", "gdn"), .only_from_environment = true}, ""},
        {{.n_only = 1, .only = LIST("gdn"), .only_from_environment = true},
         "no section of quick matches KGATE_ONLY=gdn (sections: dtype5, norms, dtypes)"},
        {{.n_tags = 1, .tags = LIST("sythetic")},
         "--tag: no section of quick has the tag \"sythetic\" (kgate list shows them)"},
        {{.n_tags = 1, .tags = LIST("artifact"), .fast = true},
         "no section of quick matches --tag artifact --fast (sections: dtype5, norms, "
         "dtypes)"},
        {{.n_cells = 1, .cells = LIST("gdn.*")},
         "no section of quick matches --cell gdn.* (sections: dtype5, norms, dtypes)"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kg_error error;
        kg_error_init(&error);
        int rc = kg_select_require_section(&rows[i].select, &manifest, &error);
        assert_int_equal(rc, rows[i].line[0] ? KG_E_INVALID : 0);
        assert_string_equal(line_of(&error), rows[i].line);
    }
}

static void no_cell(void **state)
{
    (void)state;
    static const char *const ids[] = {"norms.l2_norm.128x6", "norms.rms_norm.320x4"};
    struct kg_select s = {.n_cells = 1, .cells = LIST("norms.rms_norm.320x5")};
    struct kg_error error;
    kg_error_init(&error);
    assert_int_equal(kg_select_require_cells(&s, ids, 2, 0, &error), KG_E_INVALID);
    assert_string_equal(line_of(&error),
                        "no cell matches --cell norms.rms_norm.320x5, did you mean "
                        "--cell norms.rms_norm.320x4?");
    s = (struct kg_select){.shard = 3, .n_shards = 9};
    kg_error_init(&error);
    assert_int_equal(kg_select_require_cells(&s, NULL, 0, 0, &error), KG_E_INVALID);
    assert_string_equal(line_of(&error), "no cell matches --shard 3/9 (kgate list "
                                         "--cells shows them)");
    /* One of two globs is a misspelling. */
    s = (struct kg_select){.n_cells = 2, .cells = LIST("norms.l2*", "*.layer_norm.*")};
    kg_error_init(&error);
    assert_int_equal(kg_select_require_cells(&s, ids, 2, 1, &error), KG_E_INVALID);
    assert_string_equal(line_of(&error), "no cell matches --cell *.layer_norm.* (kgate "
                                         "list --cells shows them)");
    s.n_cells = 1;
    kg_error_init(&error);
    assert_int_equal(kg_select_require_cells(&s, ids, 2, 1, &error), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_table), cmocka_unit_test(cells),
        cmocka_unit_test(shards),         cmocka_unit_test(nothing_selected),
        cmocka_unit_test(no_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
