/*
 * runner/lock.h: one run at a time on a GPU.
 */
#ifndef KG_RUNNER_LOCK_H
#define KG_RUNNER_LOCK_H

#include "runner/error.h"

/* Takes the lock of a GPU for the life of the descriptor *fd, which the caller closes.
   Fails at once, naming the holder, if another run has it. */
int kg_lock_device(int ordinal, int *fd, struct kg_error *error);

#endif
