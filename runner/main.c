/*
 * kgate: gates GPU kernels. What it does is in the commands; this file chooses one.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kgate/kernels.h"
#include "kgate/section.h"
#include "runner/cmd_diff.h"
#include "runner/cmd_models.h"
#include "runner/commands.h"
#include "runner/events.h"
#include "runner/host.h"
#include "runner/options.h"
#include "runner/paths.h"
#include "runner/result.h"

#define STATUS_USAGE 2

static int version(void)
{
    printf("kgate %s\nsection ABI %u, provider ABI %u, host protocol %d, result schema "
           "%d.%d\n",
           KG_VERSION, KG_SECTION_ABI, KG_PROVIDER_ABI, KG_EVENT_PROTOCOL,
           KG_RESULT_MAJOR, KG_RESULT_MINOR);
    return 0;
}

static int models(const struct kg_options *options, struct kg_error *error)
{
    struct kg_paths paths;
    int status = STATUS_USAGE;
    if (kg_paths_init(&paths, options, error) == 0)
        status = kg_cmd_models(options, &paths, stdout, error);
    kg_paths_clear(&paths);
    return status;
}

static int dispatch(const struct kg_options *options, int argc, char **argv,
                    struct kg_error *error)
{
    switch (options->command) {
    case KG_COMMAND_RUN:
        return kg_cmd_run(options, argc, argv, error);
    case KG_COMMAND_LIST:
        return kg_cmd_list(options, error);
    case KG_COMMAND_MODELS:
        return models(options, error);
    case KG_COMMAND_VERSION:
        return version();
    case KG_COMMAND_HELP:
        kg_options_help(options->help_on, stdout);
        return 0;
    }
    return STATUS_USAGE;
}

/* Commands that read results rather than run a battery: they have options of their own. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} readers[] = {
    {"diff",    kg_cmd_diff   },
    {"report",  kg_cmd_report },
    {"merge",   kg_cmd_merge  },
    {"results", kg_cmd_results},
    {"prune",   kg_cmd_prune  }
};

/* `kgate diff ...`, or `kgate help diff`; false if it is no such command. */
static bool run_reader(int argc, char **argv, int *status)
{
    bool help = argc == 3 && strcmp(argv[1], "help") == 0;
    const char *name = help ? argv[2] : argc > 1 ? argv[1] : "";
    char *with_help[] = {(char *)name, (char *)"--help", NULL};
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (strcmp(name, readers[i].name) == 0) {
            *status =
                help ? readers[i].run(2, with_help) : readers[i].run(argc - 1, argv + 1);
            if (fflush(stdout) != 0 && *status == 0)
                *status = STATUS_USAGE;
            return true;
        }
    return false;
}

/* Whoever starts kgate may have closed these; a pipe must not get their numbers. */
static void open_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 2);
    if (fd > 2)
        close(fd);
}

int main(int argc, char **argv)
{
    open_standard_descriptors();
    int done;
    if (argc == 2 && strcmp(argv[1], "__host") == 0)
        return kg_host_main();
    if (run_reader(argc, argv, &done))
        return done;
    struct kg_options options;
    struct kg_error error;
    kg_error_init(&error);
    int status = STATUS_USAGE;
    if (kg_options_parse(argc, argv, &options, &error) == 0)
        status = dispatch(&options, argc, argv, &error);
    if (error.status != 0) {
        char line[1200];
        fflush(stdout);
        fprintf(stderr, "kgate: %s\n", kg_error_line(&error, line, sizeof line));
    }
    kg_options_clear(&options);
    if (fflush(stdout) != 0 && status == 0)
        status = STATUS_USAGE;
    return status;
}
