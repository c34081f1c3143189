#include "runner/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/escape.h"
#include "runner/hostrun.h"

#define TICK_NS 100000000L
#define READ_BYTES ((size_t)64 << 10)
#define DRAIN_BYTES ((size_t)16 << 20) /* what may still be in a pipe, and far more */
#define FDS_PER_RUN 4

struct loop {
    const struct kg_watcher *watcher;
    struct kg_hostrun *runs; /* one a job */
    size_t n_runs, next;     /* next: the first job that has not begun */
    size_t n_active;
    int signals, timer;
    int interrupted; /* the signal's number */
};

/* One read of a pipe. False when there is nothing (more) to read. */
static bool read_some(int *fd, char *buffer, size_t *n)
{
    if (*fd < 0)
        return false;
    ssize_t got = read(*fd, buffer, READ_BYTES);
    if (got > 0) {
        *n = (size_t)got;
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
    return false;
}

static bool take_events(struct kg_hostrun *run)
{
    char buffer[READ_BYTES];
    size_t n = 0;
    if (!read_some(&run->child.events, buffer, &n))
        return false;
    kg_hostrun_feed(run, buffer, n);
    return true;
}

static bool take_log(struct kg_hostrun *run)
{
    char buffer[READ_BYTES];
    size_t n = 0;
    if (!read_some(&run->child.log, buffer, &n))
        return false;
    kg_hostlog_add(&run->log, buffer, n);
    return true;
}

static void give_orders(struct kg_hostrun *run)
{
    ssize_t n =
        write(run->child.orders, run->out + run->out_at, run->out_length - run->out_at);
    if (n > 0)
        run->out_at += (size_t)n;
    if (run->out_at == run->out_length || (n < 0 && errno != EAGAIN && errno != EINTR))
        run->out_at = run->out_length = 0;
}

static void finish(struct loop *loop, struct kg_hostrun *run)
{
    struct kg_result_section *section = run->job->section;
    section->seconds = kg_now() - run->started;
    if (section->status == KG_SECTION_NOT_RUN && !loop->interrupted)
        section->status = KG_SECTION_OK;
    kg_child_close(&run->child);
    kg_hostlog_close(&run->log);
    loop->n_active--;
    if (loop->watcher->section_done)
        loop->watcher->section_done(loop->watcher->context, section);
}

static void cannot_start(struct loop *loop, struct kg_hostrun *run,
                         const struct kg_error *why)
{
    char line[1200];
    struct kg_result_section *section = run->job->section;
    kg_error_line(why, line, sizeof line);
    section->status = KG_SECTION_ERROR;
    section->reason = kg_xstrdup("not-started");
    section->detail = kg_xstrdup(line);
    kg_hostrun_abandon(run, line, false);
    finish(loop, run);
}

static void begin(struct loop *loop, struct kg_hostrun *run)
{
    struct kg_error why;
    kg_error_init(&why);
    kg_hostlog_open(&run->log, run->job->log_path);
    run->started = kg_now();
    run->last_done = run->current = -1;
    loop->n_active++;
    if (loop->watcher->section_begun)
        loop->watcher->section_begun(loop->watcher->context, run->job->section);
    if (kg_hostrun_start(run, &why) != 0)
        cannot_start(loop, run, &why);
}

/* If the host has ended: takes its last words, judges, starts a successor or finishes. */
static void look_for_end(struct loop *loop, struct kg_hostrun *run)
{
    int status;
    if (!kg_child_reap(&run->child, &status))
        return;
    pid_t known[64];
    int n_known = 0;
    for (size_t i = 0; i < loop->next; i++)
        if (loop->runs[i].child.pid > 0 && n_known < 64)
            known[n_known++] = loop->runs[i].child.pid;
    kg_child_kill_strays(known, n_known);
    for (size_t n = 0; n < DRAIN_BYTES && take_events(run); n += READ_BYTES)
        ;
    for (size_t n = 0; n < DRAIN_BYTES && take_log(run); n += READ_BYTES)
        ;
    if (!kg_hostrun_judge(run, status) || loop->interrupted) {
        if (loop->interrupted)
            kg_hostrun_abandon(run, "the run was interrupted", true);
        finish(loop, run);
        return;
    }
    struct kg_error why;
    kg_error_init(&why);
    run->job->section->restarts++;
    if (kg_hostrun_start(run, &why) != 0)
        cannot_start(loop, run, &why);
}

static void on_signal(struct loop *loop)
{
    struct signalfd_siginfo info;
    while (read(loop->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        bool is_second = loop->interrupted != 0;
        loop->interrupted = (int)info.ssi_signo;
        for (size_t i = 0; i < loop->next; i++) {
            struct kg_hostrun *run = &loop->runs[i];
            if (run->child.pid <= 0)
                continue;
            kg_hostrun_end(run, KG_ENDED_INTERRUPT);
            if (is_second)
                kg_child_signal(&run->child, SIGKILL);
        }
    }
}

/* The descriptors of one host in poll's order: pidfd, events, log, orders. */
static void fill(const struct kg_hostrun *run, struct pollfd *fds)
{
    const struct kg_child *c = &run->child;
    bool has_orders = run->out_at < run->out_length;
    fds[0] = (struct pollfd){.fd = c->pidfd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = c->events, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = c->log, .events = POLLIN};
    fds[3] = (struct pollfd){.fd = has_orders ? c->orders : -1, .events = POLLOUT};
}

static void turn(struct loop *loop, struct pollfd *fds)
{
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = loop->signals, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = loop->timer, .events = POLLIN};
    struct kg_hostrun *active[64];
    size_t n_active = 0;
    for (size_t i = 0; i < loop->next && n_active < 64; i++) {
        if (loop->runs[i].child.pid <= 0)
            continue;
        active[n_active++] = &loop->runs[i];
        fill(&loop->runs[i], fds + n);
        n += FDS_PER_RUN;
    }
    if (poll(fds, n, -1) < 0)
        return;
    if (fds[0].revents)
        on_signal(loop);
    bool is_tick = fds[1].revents != 0;
    if (is_tick) {
        uint64_t expirations;
        ssize_t got = read(loop->timer, &expirations, sizeof expirations);
        (void)got;
    }
    for (size_t i = 0; i < n_active; i++) {
        const struct pollfd *f = fds + 2 + FDS_PER_RUN * i;
        /* Events before the log: "begun" marks where the cell's log starts. */
        if (f[1].revents)
            take_events(active[i]);
        if (f[2].revents)
            take_log(active[i]);
        if (f[3].revents)
            give_orders(active[i]);
        if (is_tick)
            kg_hostrun_watch(active[i], kg_now());
        if (f[0].revents || is_tick)
            look_for_end(loop, active[i]);
    }
    if (is_tick && loop->watcher->tick)
        loop->watcher->tick(loop->watcher->context);
}

static int open_loop(struct loop *loop, sigset_t *old, struct kg_error *error)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, old);
    signal(SIGPIPE, SIG_IGN);
    kg_child_adopt_orphans();
    loop->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    loop->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct itimerspec every = {
        {0, TICK_NS},
        {0, TICK_NS}
    };
    if (loop->signals < 0 || loop->timer < 0 ||
        timerfd_settime(loop->timer, 0, &every, NULL) != 0)
        return kg_error_set(error, KG_E_IO, "cannot set up the supervisor: %s",
                            strerror(errno));
    return 0;
}

int kg_supervise(struct kg_task *jobs, size_t n_jobs, unsigned at_once,
                 const struct kg_watcher *watcher, struct kg_error *error)
{
    static const struct kg_watcher nobody;
    struct loop loop = {.watcher = watcher ? watcher : &nobody,
                        .n_runs = n_jobs,
                        .signals = -1,
                        .timer = -1};
    sigset_t old;
    at_once = at_once < 1 ? 1 : at_once > 64 ? 64 : at_once;
    struct pollfd *fds = kg_xcalloc(2 + (size_t)FDS_PER_RUN * at_once, sizeof *fds);
    loop.runs = kg_xcalloc(n_jobs, sizeof *loop.runs);
    for (size_t i = 0; i < n_jobs; i++) {
        loop.runs[i].job = &jobs[i];
        loop.runs[i].watcher = loop.watcher;
        loop.runs[i].log.fd = -1;
        loop.runs[i].child =
            (struct kg_child){.pidfd = -1, .events = -1, .orders = -1, .log = -1};
    }
    int rc = open_loop(&loop, &old, error);
    while (rc == 0) {
        while (!loop.interrupted && loop.n_active < at_once && loop.next < n_jobs)
            begin(&loop, &loop.runs[loop.next++]);
        if (loop.n_active == 0)
            break;
        turn(&loop, fds);
    }
    kg_child_kill_strays(NULL, 0);
    for (size_t i = 0; i < n_jobs; i++)
        kg_hostrun_clear(&loop.runs[i]);
    if (loop.signals >= 0)
        close(loop.signals);
    if (loop.timer >= 0)
        close(loop.timer);
    sigprocmask(SIG_SETMASK, &old, NULL);
    free(loop.runs);
    free(fds);
    return rc != 0 ? rc : loop.interrupted;
}
