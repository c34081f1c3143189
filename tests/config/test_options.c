/* The command line: what each word does, and the one line that a wrong one gives. */
#include "tests/config/common.h"

#include <unistd.h>

#include "runner/options.h"

enum { MAX_WORDS = 16 };

static int parse(const char *const *words, struct kg_options *o, struct kg_error *error)
{
    char *argv[MAX_WORDS + 2] = {(char *)"kgate"};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)words[argc - 1];
    kg_error_init(error);
    return kg_options_parse(argc, argv, o, error);
}

/* clang-format off */
static const struct {
    const char *words[MAX_WORDS];
    const char *line;
} wrong[] = {
    {{NULL},
     "no command given, expected run, list, models, diff, report, merge, results, prune, "
     "version or help (kgate --help explains)"},
    {{"rum"}, "unknown command \"rum\", did you mean \"run\"?"},
    {{"quick.yaml"},
     "unknown command \"quick.yaml\", expected run, list, models, diff, report, merge, "
     "results, prune, version or help"},
    {{"--fast", "run"},
     "expected a command before \"--fast\": run, list, models, version or help"},
    {{"run", "--fats"}, "unknown option \"--fats\", did you mean \"--fast\"?"},
    {{"run", "--zzz"}, "unknown option \"--zzz\" (see kgate run --help)"},
    {{"run", "-Z"}, "unknown option in \"-Z\" (see kgate run --help)"},
    {{"run", "-qZ"}, "unknown option in \"-qZ\" (see kgate run --help)"},
    {{"run", "--dev", "emu"}, "unknown option \"--dev\", did you mean \"--device\"?"},
    {{"run", "--fast=1"}, "--fast takes no value"},
    {{"run", "--tag"}, "--tag: expected a value (T[,T])"},
    {{"run", "-t"}, "--tag: expected a value (T[,T])"},
    {{"run", "--tag", "a,,b"},
     "--tag: expected names separated by commas, found \"a,,b\""},
    {{"run", "--tag="}, "--tag: expected names separated by commas, found \"\""},
    {{"run", "--only", "a,"}, "--only: expected names separated by commas, found \"a,\""},
    {{"run", "--cell="}, "--cell: expected a glob, found \"\""},
    {{"run", "a.yaml", "b.yaml"},
     "expected one manifest, found \"a.yaml\" and \"b.yaml\""},
    {{"run", "--shard", "0/4"},
     "--shard: expected I/N with 1 <= I <= N <= 1000, found \"0/4\""},
    {{"run", "--shard", "5/4"},
     "--shard: expected I/N with 1 <= I <= N <= 1000, found \"5/4\""},
    {{"run", "--shard", "1/1001"},
     "--shard: expected I/N with 1 <= I <= N <= 1000, found \"1/1001\""},
    {{"run", "--shard", "1"},
     "--shard: expected I/N with 1 <= I <= N <= 1000, found \"1\""},
    {{"run", "--shard", "1/2/3"},
     "--shard: expected I/N with 1 <= I <= N <= 1000, found \"1/2/3\""},
    {{"run", "--device", "gpu"},
     "--device: expected auto, emu, cuda or cuda:N, found \"gpu\""},
    {{"run", "--device", "cuda:"},
     "--device: expected auto, emu, cuda or cuda:N, found \"cuda:\""},
    {{"run", "--device", "cuda:-1"},
     "--device: expected auto, emu, cuda or cuda:N, found \"cuda:-1\""},
    {{"run", "--device", "cuda:64"},
     "--device: expected auto, emu, cuda or cuda:N, found \"cuda:64\""},
    {{"run", "--jobs", "0"}, "--jobs: expected a number from 1 to 256, found \"0\""},
    {{"run", "--jobs", "2x"}, "--jobs: expected a number from 1 to 256, found \"2x\""},
    {{"run", "--jobs", " 2"}, "--jobs: expected a number from 1 to 256, found \" 2\""},
    {{"run", "--seed", "-1"},
     "--seed: expected a number from 0 to 9223372036854775807, found \"-1\""},
    {{"run", "--seed", "9223372036854775808"},
     "--seed: expected a number from 0 to 9223372036854775807, found "
     "\"9223372036854775808\""},
    {{"run", "--schedule", "0"},
     "--schedule: expected a number from 1 to 9223372036854775807, found \"0\""},
    {{"run", "--limit-cell", "60"},
     "--limit-cell: expected a time such as 30s, 10m or 2h, found \"60\""},
    {{"run", "--limit-cell", "2h", "--limit-section", "1h"},
     "--limit-cell is longer than --limit-section"},
    {{"run", "--param", "dtype5.rows"},
     "--param: expected SECTION.KEY=VALUE, found \"dtype5.rows\""},
    {{"run", "--param", "rows=1.5"},
     "--param: expected SECTION.KEY=VALUE, found \"rows=1.5\""},
    {{"run", "--param", "../x.rows=1"},
     "--param: expected SECTION.KEY=VALUE, found \"../x.rows=1\""},
    {{"run", "--param", "a.b="}, "--param: expected SECTION.KEY=VALUE, found \"a.b=\""},
    {{"run", "--model="}, "--model: expected a value"},
    {{"run", "--quiet", "-v"}, "--quiet and --verbose exclude each other"},
    {{"list", "--bench"},
     "--bench is not an option of kgate list (see kgate list "
     "--help)"},
    {{"run", "--verify"},
     "--verify is not an option of kgate run (see kgate run "
     "--help)"},
    {{"models", "--bench"},
     "--bench is not an option of kgate models (see kgate models --help)"},
    {{"models", "quick"}, "kgate models: unexpected \"quick\""},
    {{"version", "x"}, "kgate version: unexpected \"x\""},
    {{"help", "rnu"}, "unknown command \"rnu\", did you mean \"run\"?"},
    {{"run", "--\x1b[2J"}, "unknown option \"--\\x1b[2J\" (see kgate run --help)"},
};
/* clang-format on */

static void wrong_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct kg_options o;
        struct kg_error error;
        int rc = parse(wrong[i].words, &o, &error);
        kg_options_clear(&o);
        assert_string_equal(line_of(&error), wrong[i].line);
        assert_int_equal(rc, KG_E_INVALID);
    }
}

static void everything(void **state)
{
    (void)state;
    struct kg_options o;
    struct kg_error error;
    static const char *const more[] = {
        "run",  "-t",     "a,b", "--tag=c",     "nightly", "-fj4",   "--cell",      "g1",
        "-cg2", "--seed", "0",   "--shard=2/3", "-d",      "cuda:3", "-pa.b-c=d=e", NULL};
    assert_int_equal(parse(more, &o, &error), 0);
    assert_int_equal(o.command, KG_COMMAND_RUN);
    assert_string_equal(o.manifest, "nightly");
    assert_int_equal(o.select.n_tags, 3);
    assert_string_equal(o.select.tags[1], "b");
    assert_string_equal(o.select.tags[2], "c");
    assert_int_equal(o.select.n_cells, 2);
    assert_string_equal(o.select.cells[1], "g2");
    assert_true(o.select.fast);
    assert_false(o.select.fast_from_environment);
    assert_int_equal(o.jobs, 4);
    assert_true(o.has_seed);
    assert_int_equal(o.seed, 0);
    assert_int_equal(o.select.shard, 2);
    assert_int_equal(o.select.n_shards, 3);
    assert_int_equal(o.device, KG_DEVICE_CUDA);
    assert_int_equal(o.ordinal, 3);
    assert_string_equal(o.device_text, "cuda:3");
    assert_int_equal(o.n_params, 1);
    assert_string_equal(o.params[0].section, "a");
    assert_string_equal(o.params[0].key, "b-c");
    assert_string_equal(o.params[0].value, "d=e");
    kg_options_clear(&o);

    static const char *const rest[] = {
        "run",  "--provider",   "p.so",     "--against", "q.so", "--plugin-dir",
        "d1",   "--plugin-dir", "d2",       "-m",        "m",    "--limit-cell",
        "1.5s", "--bench",      "--output", "o",         NULL};
    assert_int_equal(parse(rest, &o, &error), 0);
    assert_string_equal(o.manifest, "quick");
    assert_string_equal(o.provider, "p.so");
    assert_string_equal(o.against, "q.so");
    assert_int_equal(o.n_plugin_dirs, 2);
    assert_string_equal(o.plugin_dirs[1], "d2");
    assert_string_equal(o.model, "m");
    assert_true(o.limit_cell == 1.5);
    assert_true(o.bench);
    assert_false(o.timings);
    assert_string_equal(o.output, "o");
    assert_false(o.has_seed);
    kg_options_clear(&o);

    static const char *const dashes[] = {"run", "--", "--odd", NULL};
    assert_int_equal(parse(dashes, &o, &error), 0);
    assert_string_equal(o.manifest, "--odd");
    kg_options_clear(&o);
}

static void environment(void **state)
{
    (void)state;
    static const char *const run[] = {"run", NULL};
    static const char *const only[] = {"run", "--only", "z", NULL};
    static const char *const models[] = {"models", NULL};
    struct kg_options o;
    struct kg_error error;
    setenv("KGATE_ONLY", "a,,b", 1);
    setenv("KGATE_FAST", "1", 1);
    setenv("KGATE_MODELS_DIR", "/m", 1);
    assert_int_equal(parse(run, &o, &error), 0);
    assert_int_equal(o.select.n_only, 2);
    assert_string_equal(o.select.only[1], "b");
    assert_true(o.select.only_from_environment);
    assert_true(o.select.fast && o.select.fast_from_environment);
    assert_string_equal(o.models_dir, "/m");
    kg_options_clear(&o);
    assert_int_equal(parse(only, &o, &error), 0);
    assert_int_equal(o.select.n_only, 1);
    assert_string_equal(o.select.only[0], "z");
    assert_false(o.select.only_from_environment);
    kg_options_clear(&o);

    setenv("KGATE_FAST", "0", 1);
    setenv("KGATE_ONLY", "", 1);
    setenv("KGATE_MODELS_DIR", "", 1);
    assert_int_equal(parse(run, &o, &error), 0);
    assert_false(o.select.fast);
    assert_int_equal(o.select.n_only, 0);
    assert_null(o.models_dir);
    kg_options_clear(&o);

    setenv("KGATE_FAST", "yes", 1);
    assert_int_equal(parse(run, &o, &error), KG_E_INVALID);
    assert_string_equal(line_of(&error), "KGATE_FAST: expected 0 or 1, found \"yes\"");
    kg_options_clear(&o);
    assert_int_equal(parse(models, &o, &error), 0);
    kg_options_clear(&o);
    unsetenv("KGATE_FAST");
    unsetenv("KGATE_ONLY");
    unsetenv("KGATE_MODELS_DIR");
}

static void help(void **state)
{
    (void)state;
    static const struct {
        const char *words[4];
        enum kg_command on;
        const char *must_have;
    } rows[] = {
        {{"--help"},              KG_COMMAND_HELP,    "Examples:"     },
        {{"help"},                KG_COMMAND_HELP,    "Examples:"     },
        {{"help", "run"},         KG_COMMAND_RUN,     "--against FILE"},
        {{"run", "--help"},       KG_COMMAND_RUN,     "--against FILE"},
        {{"run", "x.yaml", "-h"}, KG_COMMAND_RUN,     "--against FILE"},
        {{"list", "--help"},      KG_COMMAND_LIST,    "--cells"       },
        {{"models", "--help"},    KG_COMMAND_MODELS,  "--verify"      },
        {{"version", "--help"},   KG_COMMAND_VERSION, "version"       },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kg_options o;
        struct kg_error error;
        assert_int_equal(parse(rows[i].words, &o, &error), 0);
        assert_int_equal(o.command, KG_COMMAND_HELP);
        assert_int_equal(o.help_on, rows[i].on);
        static char text[16384];
        memset(text, 0, sizeof text);
        FILE *out = fmemopen(text, sizeof text - 1, "w");
        assert_non_null(out);
        kg_options_help(o.help_on, out);
        fclose(out);
        assert_non_null(strstr(text, rows[i].must_have));
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            if (strlen(line) > 88)
                fail_msg("too long for a terminal: %s", line);
        kg_options_clear(&o);
    }
}

int main(void)
{
    unsetenv("KGATE_FAST");
    unsetenv("KGATE_ONLY");
    unsetenv("KGATE_MODELS_DIR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_words),
        cmocka_unit_test(everything),
        cmocka_unit_test(environment),
        cmocka_unit_test(help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
