#include "runner/options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "runner/options_table.h"
#include "runner/text.h"

enum { MAX_ROWS = 64 };    /* of the option table */
enum { FIRST_LONG = 256 }; /* getopt's value of row 0 */

static const char *const command_names[] = {"run",     "list", "models",
                                            "version", "help", NULL};

const char *kg_command_name(enum kg_command command)
{
    return command_names[command];
}

static unsigned mask_of(enum kg_command command)
{
    return command == KG_COMMAND_RUN       ? FOR_RUN
           : command == KG_COMMAND_LIST    ? FOR_LIST
           : command == KG_COMMAND_MODELS  ? FOR_MODELS
           : command == KG_COMMAND_VERSION ? FOR_VERSION
                                           : FOR_HELP;
}

static const struct option_row *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < n_option_rows; i++)
        if (strlen(option_rows[i].name) == length &&
            strncmp(option_rows[i].name, name, length) == 0)
            return &option_rows[i];
    return NULL;
}

static int unknown_option(const char *token, struct kg_options *o, struct kg_error *error)
{
    const char *command = kg_command_name(o->command);
    if (strncmp(token, "--", 2) != 0)
        return kg_error_set(error, KG_E_INVALID,
                            "unknown option in \"%.60s\" (see kgate %s --help)", token,
                            command);
    /* The nearest among the options of this command; the list ends with NULL. */
    const char *names[MAX_ROWS] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < n_option_rows && n + 1 < sizeof names / sizeof names[0]; i++)
        if (option_rows[i].commands & mask_of(o->command))
            names[n++] = option_rows[i].name;
    char word[64] = "";
    size_t length = strcspn(token + 2, "=");
    if (length < sizeof word)
        memcpy(word, token + 2, length);
    const char *near = kg_text_nearest(word, names);
    if (near)
        return kg_error_set(error, KG_E_INVALID,
                            "unknown option \"--%s\", did you mean \"--%s\"?", word,
                            near);
    return kg_error_set(error, KG_E_INVALID,
                        "unknown option \"%.60s\" (see kgate %s --help)", token, command);
}

/* Takes one option that getopt found, or says why it is none. */
static int take(int value, const char *token, struct kg_options *o,
                struct kg_error *error)
{
    const bool is_long = strncmp(token, "--", 2) == 0;
    const struct option_row *row = NULL;
    if (is_long) {
        /* getopt takes an unambiguous beginning for the whole: a script that relied on
           it would break when an option is added. */
        row = find_row(token + 2, strcspn(token + 2, "="));
        if (!row)
            return unknown_option(token, o, error);
    } else {
        int letter = value == ':' || value == '?' ? optopt : value;
        for (size_t i = 0; i < n_option_rows && !row; i++)
            if (letter != 0 && option_rows[i].letter == letter)
                row = &option_rows[i];
        if (!row)
            return unknown_option(token, o, error);
    }
    if (value == ':')
        return kg_error_set(error, KG_E_INVALID, "--%s: expected a value (%s)", row->name,
                            row->argument ? row->argument : "");
    if (value == '?')
        return kg_error_set(error, KG_E_INVALID, "--%s takes no value", row->name);
    if (!(row->commands & mask_of(o->command)))
        return kg_error_set(error, KG_E_INVALID,
                            "--%s is not an option of kgate %s (see kgate %s --help)",
                            row->name, kg_command_name(o->command),
                            kg_command_name(o->command));
    return kg_option_apply(row->id, optarg, o, error);
}

static int find_command(const char *word, enum kg_command *command,
                        struct kg_error *error)
{
    for (size_t i = 0; command_names[i]; i++) {
        if (strcmp(word, command_names[i]) == 0) {
            *command = (enum kg_command)i;
            return 0;
        }
    }
    const char *near = kg_text_nearest(word, command_names);
    if (near)
        return kg_error_set(error, KG_E_INVALID,
                            "unknown command \"%.60s\", did you mean \"%s\"?", word,
                            near);
    return kg_error_set(
        error, KG_E_INVALID,
        "unknown command \"%.60s\", expected run, list, models, diff, report, merge, "
        "results, prune, version or help",
        word);
}

static int take_operand(const char *text, struct kg_options *o, struct kg_error *error)
{
    if (o->command == KG_COMMAND_RUN || o->command == KG_COMMAND_LIST) {
        if (o->manifest)
            return kg_error_set(error, KG_E_INVALID,
                                "expected one manifest, found \"%.100s\" and \"%.100s\"",
                                o->manifest, text);
        if (*text == '\0')
            return kg_error_set(error, KG_E_INVALID, "MANIFEST: expected a value");
        o->manifest = text;
        return 0;
    }
    if (o->command == KG_COMMAND_HELP && o->help_on == KG_COMMAND_HELP)
        return find_command(text, &o->help_on, error);
    return kg_error_set(error, KG_E_INVALID, "kgate %s: unexpected \"%.100s\"",
                        kg_command_name(o->command), text);
}

static int parse_words(int argc, char **argv, struct kg_options *o,
                       struct kg_error *error)
{
    struct option longs[MAX_ROWS];
    char shorts[128] = "-:"; /* operands in place; a missing value is ':' */
    size_t n_shorts = 2, n = n_option_rows;
    if (n >= sizeof longs / sizeof longs[0])
        abort();
    for (size_t i = 0; i < n; i++) {
        const struct option_row *row = &option_rows[i];
        longs[i] =
            (struct option){row->name, row->argument ? required_argument : no_argument,
                            NULL, FIRST_LONG + (int)i};
        if (row->letter)
            shorts[n_shorts++] = row->letter;
        if (row->letter && row->argument)
            shorts[n_shorts++] = ':';
    }
    shorts[n_shorts] = '\0';
    longs[n] = (struct option){NULL, 0, NULL, 0};

    opterr = 0;
    optind = 0; /* glibc: start afresh */
    for (;;) {
        int at = optind ? optind : 1;
        int value = getopt_long(argc, argv, shorts, longs, NULL);
        if (value == -1)
            break;
        if (value == 1)
            KG_TRY(take_operand(optarg, o, error));
        else
            KG_TRY(take(value, argv[at], o, error));
    }
    for (int i = optind; i < argc; i++) /* after "--" */
        KG_TRY(take_operand(argv[i], o, error));
    return 0;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int take_environment(struct kg_options *o, struct kg_error *error)
{
    o->models_dir = variable("KGATE_MODELS_DIR");
    if (o->command != KG_COMMAND_RUN && o->command != KG_COMMAND_LIST)
        return 0;
    const char *only = variable("KGATE_ONLY"), *fast = variable("KGATE_FAST");
    if (only && o->select.n_only == 0) {
        KG_TRY(kg_option_add_csv(&o->select.only, &o->select.n_only, only, "KGATE_ONLY",
                                 true, error));
        o->select.only_from_environment = true;
    }
    if (fast && !o->select.fast) {
        if (strcmp(fast, "0") != 0 && strcmp(fast, "1") != 0)
            return kg_error_set(error, KG_E_INVALID,
                                "KGATE_FAST: expected 0 or 1, found \"%.100s\"", fast);
        o->select.fast = o->select.fast_from_environment = fast[0] == '1';
    }
    return 0;
}

static int check(const struct kg_options *o, struct kg_error *error)
{
    if (o->quiet && o->verbose)
        return kg_error_set(error, KG_E_INVALID,
                            "--quiet and --verbose exclude each other");
    if (o->limit_cell > 0 && o->limit_section > 0 && o->limit_cell > o->limit_section)
        return kg_error_set(error, KG_E_INVALID,
                            "--limit-cell is longer than --limit-section");
    return 0;
}

int kg_options_parse(int argc, char **argv, struct kg_options *o, struct kg_error *error)
{
    memset(o, 0, sizeof *o);
    o->device_text = "auto";
    o->help_on = KG_COMMAND_HELP;
    o->command = KG_COMMAND_HELP;
    if (argc < 2)
        return kg_error_set(
            error, KG_E_INVALID,
            "no command given, expected run, list, models, diff, report, "
            "merge, results, prune, version or help (kgate --help explains)");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        o->help_asked = true;
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        o->command = KG_COMMAND_VERSION;
        return 0;
    }
    if (argv[1][0] == '-')
        return kg_error_set(error, KG_E_INVALID,
                            "expected a command before \"%.60s\": run, list, models, "
                            "version or help",
                            argv[1]);
    KG_TRY(find_command(argv[1], &o->command, error));
    KG_TRY(parse_words(argc - 1, argv + 1, o, error));
    if (o->help_asked) {
        o->help_on = o->command;
        o->command = KG_COMMAND_HELP;
        return 0;
    }
    KG_TRY(take_environment(o, error));
    if (!o->manifest && (o->command == KG_COMMAND_RUN || o->command == KG_COMMAND_LIST))
        o->manifest = "quick";
    return check(o, error);
}

void kg_options_clear(struct kg_options *o)
{
    kg_select_clear(&o->select);
    for (size_t i = 0; i < o->n_params; i++) {
        free(o->params[i].section);
        free(o->params[i].key);
    }
    free(o->params);
    free(o->plugin_dirs);
    memset(o, 0, sizeof *o);
}
