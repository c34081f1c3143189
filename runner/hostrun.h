/*
 * runner/hostrun.h: one section on its way through its hosts, for the supervisor only.
 *
 * hostrun.c follows the protocol (what a line means now), hostend.c judges how a host
 * ended, supervisor.c holds the poll loop.
 */
#ifndef KG_RUNNER_HOSTRUN_H
#define KG_RUNNER_HOSTRUN_H

#include "runner/child.h"
#include "runner/hostlog.h"
#include "runner/names.h"
#include "runner/supervisor.h"

enum kg_phase {
    KG_PHASE_HELLO, /* what the host must send next */
    KG_PHASE_DEVICE,
    KG_PHASE_PLAN,
    KG_PHASE_IDLE,  /* begin or bye */
    KG_PHASE_CELL,  /* check or done */
    KG_PHASE_AGAIN, /* against: the last cell runs on the other provider */
    KG_PHASE_BYE,   /* nothing: it said bye */
    KG_PHASE_OVER,  /* it said error */
};

/* Why the supervisor ended a host. */
enum kg_ended {
    KG_ENDED_ITSELF,
    KG_ENDED_CELL_TIME,
    KG_ENDED_SECTION_TIME,
    KG_ENDED_START_TIME,
    KG_ENDED_MEMORY,
    KG_ENDED_PROTOCOL,
    KG_ENDED_INTERRUPT,
};

struct kg_hostrun {
    struct kg_task *job;
    const struct kg_watcher *watcher;
    struct kg_child child; /* child.pid 0: no host at the moment */
    struct kg_hostlog log;
    uint64_t log_mark; /* the log's position when the host or cell began */

    enum kg_phase phase;
    bool planned; /* the section has its cells, from this host or an earlier one */
    bool said_hello;
    struct kg_names ids;
    size_t n_plan_seen; /* cells of this host's own plan so far */
    ssize_t current;    /* cell in flight; -1 */
    ssize_t last_done;  /* by this host; -1 */
    size_t next;        /* the first cell that has not had its turn */
    size_t n_begun;     /* by this host */
    int idle_deaths;    /* hosts in a row that died without beginning a cell */

    char *in; /* a partial line */
    size_t in_length;
    size_t cell_bytes, section_bytes; /* of events, all hosts of the section */
    char *out;                        /* orders not yet written */
    size_t out_length, out_at;

    double started;    /* the section; seconds on the monotonic clock */
    double host_since; /* this host, or the end of its last cell */
    double cell_since;
    double kill_at; /* SIGKILL then; 0: no SIGTERM was sent */
    enum kg_ended ended;
    char fault[320]; /* what the protocol fault was */
    char error_code[64];
    char *error_text; /* the host's own error event */
};

double kg_now(void);

/* Starts a host for what is left of the section. */
int kg_hostrun_start(struct kg_hostrun *run, struct kg_error *error);
/* Bytes that came on the event pipe. */
void kg_hostrun_feed(struct kg_hostrun *run, const char *bytes, size_t n);
/* Asks the host to end (SIGTERM, SIGKILL after a grace); the first reason stays. */
void kg_hostrun_end(struct kg_hostrun *run, enum kg_ended why);
/* Looks at the clocks and the memory. */
void kg_hostrun_watch(struct kg_hostrun *run, double now);
/* The host is gone and its pipes are drained: gives verdicts. True if another host is to
   be started for the rest. */
bool kg_hostrun_judge(struct kg_hostrun *run, int wait_status);
/* Gives every cell that is left this verdict. */
void kg_hostrun_abandon(struct kg_hostrun *run, const char *why, bool interrupted);
void kg_hostrun_clear(struct kg_hostrun *run);
/* The cell that ended last has been run on the other provider too; against is stolen. */
void kg_hostrun_compared(struct kg_hostrun *run, json_t *against);
/* A cell has its verdict: stamps and announces it. */
void kg_hostrun_settle(struct kg_hostrun *run, size_t index);

#endif
