#include "runner/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/escape.h"

extern char **environ;

/* The environment a kernel may depend on. Everything else, secrets included, stays out. */
static bool is_allowed(const char *entry)
{
    static const char *const exact[] = {"PATH=", "HOME=", "LANG=", "LD_LIBRARY_PATH="};
    static const char *const prefix[] = {"CUDA_", "KGATE_", "OMP_"};
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        if (strncmp(entry, exact[i], strlen(exact[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof prefix / sizeof prefix[0]; i++)
        if (strncmp(entry, prefix[i], strlen(prefix[i])) == 0)
            return true;
    /* ASAN_OPTIONS, UBSAN_OPTIONS, TSAN_OPTIONS, LSAN_OPTIONS */
    const char *equals = strchr(entry, '=');
    size_t name = equals ? (size_t)(equals - entry) : 0;
    return name >= 12 && memcmp(equals - 11, "SAN_OPTIONS", 11) == 0;
}

static char **clean_environment(void)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **clean = kg_xcalloc(n + 1, sizeof *clean);
    for (size_t i = 0; i < n; i++)
        if (is_allowed(environ[i]))
            clean[kept++] = environ[i];
    return clean;
}

/* Runs in the new process: no allocation, no stdio. Never returns. */
static void become_host(pid_t parent, int events, int orders, int log, char **env)
{
    static char *const argv[] = {(char *)"kgate", (char *)"__host", NULL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    sigset_t empty;
    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);

    /* Out of the way of 0..4 first: dup2 onto a number that is still a source loses it. */
    int null_fd = fcntl(open("/dev/null", O_RDONLY | O_CLOEXEC), F_DUPFD_CLOEXEC, 10);
    events = fcntl(events, F_DUPFD_CLOEXEC, 10);
    orders = fcntl(orders, F_DUPFD_CLOEXEC, 10);
    log = fcntl(log, F_DUPFD_CLOEXEC, 10);
    if (dup2(null_fd, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 ||
        dup2(events, KG_FD_EVENTS) < 0 || dup2(orders, KG_FD_ORDERS) < 0)
        _exit(127);
    int limit = (int)sysconf(_SC_OPEN_MAX);
    if (syscall(SYS_close_range, 5u, ~0u, 0u) != 0)
        for (int fd = 5; fd < limit && fd < 65536; fd++)
            close(fd);
    execve("/proc/self/exe", argv, env);
    static const char text[] = "kgate: cannot start /proc/self/exe\n";
    ssize_t n = write(2, text, sizeof text - 1);
    (void)n;
    _exit(127);
}

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

int kg_child_spawn(struct kg_child *child, struct kg_error *error)
{
    int events[2] = {-1, -1}, orders[2] = {-1, -1}, log[2] = {-1, -1};
    char **env = clean_environment();
    *child = (struct kg_child){.pidfd = -1, .events = -1, .orders = -1, .log = -1};

    if (pipe2(events, O_CLOEXEC) != 0 || pipe2(orders, O_CLOEXEC) != 0 ||
        pipe2(log, O_CLOEXEC) != 0) {
        kg_error_set(error, KG_E_IO, "cannot make a pipe: %s", strerror(errno));
        goto fail;
    }
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        kg_error_set(error, KG_E_IO, "cannot start a process: %s", strerror(errno));
        goto fail;
    }
    if (pid == 0)
        become_host(parent, events[1], orders[0], log[1], env);
    setpgid(pid, pid); /* both sides do it: whoever comes first */

    close(events[1]);
    close(orders[0]);
    close(log[1]);
    free(env);
    child->pid = pid;
    child->events = events[0];
    child->orders = orders[1];
    child->log = log[0];
    fcntl(child->events, F_SETFL, O_NONBLOCK);
    fcntl(child->orders, F_SETFL, O_NONBLOCK);
    fcntl(child->log, F_SETFL, O_NONBLOCK);
    child->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (child->pidfd >= 0)
        fcntl(child->pidfd, F_SETFD, FD_CLOEXEC);
    return 0;

fail:
    free(env);
    close_pair(events);
    close_pair(orders);
    close_pair(log);
    return error->status;
}

void kg_child_signal(const struct kg_child *child, int signal_number)
{
    if (child->pid > 0)
        kill(-child->pid, signal_number);
}

bool kg_child_reap(struct kg_child *child, int *status)
{
    if (child->pid <= 0)
        return false;
    siginfo_t info;
    info.si_pid = 0;
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == 0)
        return false;
    /* Not reaped yet, so the group's number cannot have been given to anybody else. */
    kill(-child->pid, SIGKILL);
    *status = 0;
    while (waitpid(child->pid, status, 0) < 0 && errno == EINTR)
        ;
    child->pid = 0;
    return true;
}

int64_t kg_child_memory(const struct kg_child *child)
{
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)child->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    long long size, resident, shared;
    if (sscanf(text, "%lld %lld %lld", &size, &resident, &shared) != 3)
        return -1;
    return (int64_t)(resident - shared) * sysconf(_SC_PAGESIZE);
}

void kg_child_close(struct kg_child *child)
{
    int *fds[] = {&child->pidfd, &child->events, &child->orders, &child->log};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void kg_child_adopt_orphans(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void kg_child_kill_strays(const pid_t *known, int n_known)
{
    /* A stray that forks while we look is seen in a later round. */
    for (int round = 0; round < 20; round++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        FILE *file = fopen(path, "re");
        if (file == NULL)
            return;
        int pid, n_strays = 0;
        while (fscanf(file, "%d", &pid) == 1) {
            bool is_known = false;
            for (int i = 0; i < n_known; i++)
                is_known |= known[i] == pid;
            if (is_known)
                continue;
            n_strays++;
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        fclose(file);
        if (n_strays == 0)
            return;
    }
}
