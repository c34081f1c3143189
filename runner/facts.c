#include "runner/facts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/commit.h" /* made by the build */
#include "runner/escape.h"
#include "runner/json_text.h"

#define GIT_SECONDS 10

extern char **environ;

static void add_cpu(json_t *host)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, "model name", 10) != 0)
            continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = '\0';
        kg_json_set_text(host, "cpu", colon);
        break;
    }
    if (file)
        fclose(file);
}

json_t *kg_facts_host(void)
{
    json_t *host = json_object();
    struct utsname names;
    if (uname(&names) == 0) {
        kg_json_set_text(host, "name", names.nodename);
        char *kernel = kg_format("%s %s %s", names.sysname, names.release, names.machine);
        kg_json_set_text(host, "kernel", kernel);
        free(kernel);
    }
    add_cpu(host);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (cores > 0)
        json_object_set_new(host, "cores", json_integer(cores));
    if (pages > 0 && page > 0)
        json_object_set_new(host, "memory_bytes", json_integer((json_int_t)pages * page));
    return host;
}

/* Runs git without a shell and takes its first `size` bytes of output. The repository is
   the user's own; still, nothing in it may make git run a program or wait. */
static bool ask_git(const char *root, char *const *arguments, char *out, size_t size)
{
    char *argv[16] = {(char *)"git", (char *)"-C", (char *)root, (char *)"-c",
                      (char *)"core.fsmonitor=false"};
    size_t n = 5;
    for (; *arguments && n < 15; arguments++)
        argv[n++] = *arguments;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t pid = 0;
    bool ok = posix_spawnp(&pid, "git", &actions, &attributes, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    size_t length = 0;
    char scrap[4096];
    struct pollfd fd = {.fd = ends[0], .events = POLLIN};
    while (ok) {
        if (poll(&fd, 1, GIT_SECONDS * 1000) <= 0) {
            kill(pid, SIGKILL);
            ok = false;
            break;
        }
        bool is_full = length + 1 >= size;
        ssize_t got = is_full ? read(ends[0], scrap, sizeof scrap)
                              : read(ends[0], out + length, size - 1 - length);
        if (got <= 0)
            break;
        length += is_full ? 0 : (size_t)got;
    }
    close(ends[0]);
    out[length] = '\0';
    int status = 0;
    if (pid > 0)
        waitpid(pid, &status, 0);
    return ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

json_t *kg_facts_git(const char *source_root)
{
    static char *const head[] = {(char *)"rev-parse", (char *)"HEAD", NULL};
    static char *const changes[] = {(char *)"status", (char *)"--porcelain",
                                    (char *)"--untracked-files=no", NULL};
    char text[128];
    json_t *git = json_object();
    char *dot_git = kg_format("%s/.git", source_root ? source_root : "");
    bool is_checkout = source_root && access(dot_git, F_OK) == 0;
    free(dot_git);
    if (is_checkout && ask_git(source_root, head, text, sizeof text)) {
        text[strcspn(text, "\n")] = '\0';
        size_t n = strlen(text);
        if (n >= 40 && strspn(text, "0123456789abcdef") == n) {
            kg_json_set_text(git, "commit", text);
            if (ask_git(source_root, changes, text, sizeof text))
                json_object_set_new(git, "dirty", json_boolean(text[0] != '\0'));
        }
    }
    if (json_object_size(git) == 0 && strcmp(KG_BUILD_COMMIT, "unknown") != 0)
        kg_json_set_text(git, "commit", KG_BUILD_COMMIT);
    return git;
}

json_t *kg_facts_environment(void)
{
    json_t *json = json_object();
    for (char **entry = environ; *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        if (strncmp(*entry, "KGATE_", 6) != 0 || equals == NULL)
            continue;
        char *name = kg_utf8_dup(*entry, (size_t)(equals - *entry));
        kg_json_set_text(json, name, equals + 1);
        free(name);
    }
    return json;
}

void kg_facts_time(char *buffer, size_t size, bool compact)
{
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(buffer, size, compact ? "%Y%m%dT%H%M%SZ" : "%Y-%m-%dT%H:%M:%SZ", &utc);
}
