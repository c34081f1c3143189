/*
 * runner/child.h: starting, watching and ending one host process.
 *
 * A host is kgate itself, started again as `kgate __host` in a process group of its own:
 * descriptor 3 carries events out, 4 orders in, stdout and stderr go to a pipe that the
 * supervisor copies into the section's log. It dies with the supervisor, dumps no core,
 * and sees only the environment variables named in child.c.
 */
#ifndef KG_RUNNER_CHILD_H
#define KG_RUNNER_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runner/error.h"

#define KG_FD_EVENTS 3
#define KG_FD_ORDERS 4

struct kg_child {
    pid_t pid;  /* also its process group; 0 when there is none */
    int pidfd;  /* readable once it has ended; -1 if the kernel has no pidfds */
    int events; /* the supervisor's ends, non-blocking; -1 when closed */
    int orders;
    int log;
};

/* Starts a host. The supervisor must have one thread. */
int kg_child_spawn(struct kg_child *child, struct kg_error *error);

/* Signals the whole process group. */
void kg_child_signal(const struct kg_child *child, int signal_number);

/* If the host has ended: kills what is left of its group, reaps it, stores the wait
   status and returns true. Its pipes stay open. */
bool kg_child_reap(struct kg_child *child, int *status);

/* Memory of the process that is its own, in bytes: mapped files are not counted, since a
   model file may be larger than the limit. -1 if it cannot be read. */
int64_t kg_child_memory(const struct kg_child *child);

/* Closes all descriptors. */
void kg_child_close(struct kg_child *child);

/* Makes this process the parent of every orphan below it, so that strays can be found. */
void kg_child_adopt_orphans(void);

/* Kills and reaps every child of this process that is not in `known`. */
void kg_child_kill_strays(const pid_t *known, int n_known);

#endif
