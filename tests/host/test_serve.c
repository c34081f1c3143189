/*
 * The whole dialogue of a host with its supervisor, on planted faults: for each, the
 * events and the exit status. argv[1] is a provider that can be loaded.
 */
#include "tests/host/fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/cell.h"

static const char *provider_path;

struct answer {
    int status;    /* exit status; -1 if it did not exit */
    char text[64]; /* one letter per event: Hello Device Plan Error Begin Check Done bYe
                      again Against */
    json_t *events;
};

static void letter(char *text, enum kg_event_kind kind)
{
    static const char letters[] = "HDPEBCdYaA";
    size_t n = strlen(text);
    if (n < 63)
        text[n] = letters[kind];
}

/* Gives `orders` to a host in a process of its own. */
static struct answer serve(const char *orders)
{
    int in[2], out[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(in[1]);
        close(out[0]);
        /* The one line for the log is not for this one. */
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(99);
        _exit(kg_host_serve(in[0], out[1]));
    }
    close(in[0]);
    close(out[1]);
    size_t length = strlen(orders);
    assert_int_equal(write(in[1], orders, length), length);
    close(in[1]);

    struct answer answer = {.status = -1, .events = json_array()};
    FILE *stream = fdopen(out[0], "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stream)) > 0) {
        struct kg_event event;
        char fault[200];
        if (!kg_event_parse(line, (size_t)n - 1, &event, fault, sizeof fault))
            fail_msg("%s in %s", fault, line);
        letter(answer.text, event.kind);
        json_array_append(answer.events, event.json);
        kg_event_clear(&event);
    }
    free(line);
    fclose(stream);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        answer.status = WEXITSTATUS(status);
    return answer;
}

static struct answer serve_section(const char *mode, const char *name,
                                   const char *provider)
{
    char orders[4096];
    snprintf(orders, sizeof orders,
             "{\"mode\":\"%s\",\"section\":\"%s\",\"plugin\":\"%s/%s.so\","
             "\"provider\":\"%s\",\"against\":null,\"ordinal\":0,\"schedule_seed\":0,"
             "\"host_threads\":2,\"seed\":null,\"no_artifacts\":false,\"artifacts\":{},"
             "\"params\":{},\"bench\":null,\"timings\":false}\n"
             "{\"run\":[\"%s.cell\"]}\n{\"go\":true}\n",
             mode, name, FAULTS_DIR, name, provider, name);
    return serve(orders);
}

static const char *last_string(const struct answer *answer, size_t from_end,
                               const char *key)
{
    size_t n = json_array_size(answer->events);
    const char *text = NULL;
    if (from_end < n)
        text = json_string_value(
            json_object_get(json_array_get(answer->events, n - 1 - from_end), key));
    return text ? text : "(none)";
}

static void expect(const struct answer *answer, const char *what, int status,
                   const char *text, const char *key, size_t from_end, const char *value)
{
    const char *seen = last_string(answer, from_end, key);
    if (answer->status != status || strcmp(answer->text, text) != 0 ||
        strstr(seen, value) == NULL)
        fail_msg("%s: status %d, events %s, %s \"%s\"; not %d, %s, \"%s\"", what,
                 answer->status, answer->text, key, seen, status, text, value);
}

static void test_verdicts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *events, *reason, *detail;
    } rows[] = {
        {"fault-none",     "HDPBCdY", "",                  ""                                 },
        {"fault-wrong",    "HDPBCdY", "check-failed",      "at 17"                            },
        {"fault-row",      "HDPBCdY", "check-failed",      "stray write behind output y"      },
        {"fault-short",    "HDPBCdY", "check-failed",      "6 hold the poison"                },
        {"fault-stray",    "HDPBCdY", "check-failed",      "output y, first at byte 1 of it"  },
        {"fault-input",    "HDPBCdY", "check-failed",      "write to input x, first at byte 5"},
        {"fault-nan",      "HDPBCdY", "check-failed",      "got nan"                          },
        {"fault-nothing",  "HDPBCdY", "no-comparison",     "compared nothing"                 },
        {"fault-hostonly", "HDPBCdY", "no-comparison",     "ran no arm"                       },
        {"fault-self",     "HDPBdY",  "misuse",            "with itself"                      },
        {"fault-oracle",   "HDPBdY",  "oracle-degenerate", "zero everywhere"                  },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer answer = serve_section("run", rows[i].name, provider_path);
        expect(&answer, rows[i].name, 0, rows[i].events, "detail", 1, rows[i].detail);
        assert_string_equal(last_string(&answer, 1, "reason"), rows[i].reason);
        json_decref(answer.events);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *events, *code, *text;
    } rows[] = {
        {"fault-abi",       "HE",  "bad-plugin", "built for ABI 2, this kgate has ABI 1"},
        {"fault-small",     "HE",  "bad-plugin", "at least"                             },
        {"fault-symbol",    "HE",  "bad-plugin", "exports no symbol kgate_section"      },
        {"fault-undefined", "HE",  "bad-plugin", "needs kg_from_the_future"             },
        {"fault-absent",    "HE",  "bad-plugin", "No such file"                         },
        {"fault-id",        "HDE", "bad-plan",   "two cells are called fault-id.cell"   },
        {"fault-empty",     "HDE", "bad-plan",   "plans no cell"                        },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer answer = serve_section("run", rows[i].name, provider_path);
        expect(&answer, rows[i].name, KG_EXIT_SETUP, rows[i].events, "text", 0,
               rows[i].text);
        assert_string_equal(last_string(&answer, 0, "code"), rows[i].code);
        json_decref(answer.events);
    }
}

static void test_bad_provider(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"/dev/null",                 "not a regular file"              },
        {"relative.so",               "not an absolute path"            },
        {"/etc/passwd",               "not a shared object"             },
        {FAULTS_DIR "/fault-none.so", "exports no symbol kgate_provider"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer answer = serve_section("run", "fault-none", rows[i].path);
        expect(&answer, rows[i].path, KG_EXIT_SETUP, "HE", "text", 0, rows[i].text);
        assert_string_equal(last_string(&answer, 0, "code"), "bad-provider");
        json_decref(answer.events);
    }
}

static void test_plan_mode(void **state)
{
    (void)state;
    struct answer answer = serve("{\"mode\":\"plan\",\"plugin\":\"" FAULTS_DIR
                                 "/fault-none.so\",\"provider\":null}\n");
    expect(&answer, "plan", 0, "HPY", "ev", 0, "");
    json_t *plan = json_array_get(answer.events, 1);
    json_t *cell = json_array_get(json_object_get(plan, "cells"), 0);
    assert_string_equal(json_string_value(json_object_get(cell, "id")),
                        "fault-none.cell");
    json_decref(answer.events);
}

static void test_probe_mode(void **state)
{
    (void)state;
    char orders[1024];
    snprintf(orders, sizeof orders, "{\"mode\":\"probe\",\"provider\":\"%s\"}\n",
             provider_path);
    struct answer answer = serve(orders);
    expect(&answer, "probe", 0, "HDY", "name", 1, "fake");
    json_decref(answer.events);
}

static void test_bad_orders(void **state)
{
    (void)state;
    static const struct {
        const char *orders, *events, *text;
    } rows[] = {
        {"",                                                       "E", "no job came"               },
        {"[]\n",                                                   "E", "not a JSON object"         },
        {"{\"mode\":\"walk\"}\n",                                  "E", "none of run, plan, probe"  },
        {"{\"mode\":\"run\",\"plugin\":\"/x\"}\n",                 "E", "no \"provider\""           },
        {"{\"mode\":\"plan\",\"plugin\":7}\n",                     "E", "\"plugin\" is not a string"},
        {"{\"mode\":\"plan\",\"plugin\":\"/x\",\"ordinal\":-1}\n", "E", "in range"                  },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer answer = serve(rows[i].orders);
        expect(&answer, rows[i].orders, KG_EXIT_SETUP, rows[i].events, "text", 0,
               rows[i].text);
        json_decref(answer.events);
    }
}

static void serve_orders(const char *orders, const char *text)
{
    char all[4096];
    snprintf(all, sizeof all,
             "{\"mode\":\"run\",\"plugin\":\"%s/fault-none.so\",\"provider\":\"%s\"}\n%s",
             FAULTS_DIR, provider_path, orders);
    struct answer answer = serve(all);
    expect(&answer, orders, KG_EXIT_SETUP, "HDPE", "text", 0, text);
    json_decref(answer.events);
}

static void test_bad_run(void **state)
{
    (void)state;
    serve_orders("", "ended before the word to go");
    serve_orders("{\"run\":7}\n", "not a list");
    serve_orders("go\n", "neither run nor go");
    serve_orders("{\"run\":[\"fault-none.other\"],\"go\":true}\n", "fault-none.other");
}

/* A host whose reader has gone ends by itself. */
static void test_nobody_listens(void **state)
{
    (void)state;
    int out[2];
    assert_int_equal(pipe(out), 0);
    close(out[0]);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_IGN);
        kg_event_write(out[1], json_pack("{s:s}", "ev", "bye"));
        _exit(0);
    }
    close(out[1]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: test_host_serve PROVIDER.so\n", stderr);
        return 2;
    }
    provider_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_provider), cmocka_unit_test(test_plan_mode),
        cmocka_unit_test(test_probe_mode),   cmocka_unit_test(test_bad_orders),
        cmocka_unit_test(test_bad_run),      cmocka_unit_test(test_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
