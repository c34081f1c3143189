/*
 * tests/host/fake.h: a provider in host memory, and a bench to run single cells on.
 */
#ifndef KG_TESTS_HOST_FAKE_H
#define KG_TESTS_HOST_FAKE_H

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kgate/check.h"
#include "runner/host.h"

/* What the next calls do; all zero is a device that works. */
struct fake {
    int live; /* allocations not yet released */
    int calls_after_fault;
    int alloc_status; /* what alloc says */
    int sync_status;  /* what sync says; KG_E_DEVICE counts the calls after it */
    bool faulted;
    void *last; /* the latest allocation */
};
extern struct fake fake;
extern const struct kg_provider fake_provider;

/* The events of one cell, in order; each went through the supervisor's parser. */
struct outcome {
    json_t *events; /* array */
    json_t *done;   /* borrowed */
    bool device_lost;
};

/* Runs `run` as cell "t.cell" of a section with role "model" (not on this machine). */
struct outcome run_cell(kg_cell_fn *run, const void *row);
struct outcome run_cell_as(const struct kg_plan_cell *plan, const struct kg_job *job);
void free_outcome(struct outcome *outcome);

/* Runs the cell and asserts verdict, reason, and that `detail` is part of the detail. */
void assert_outcome(kg_cell_fn *run, const char *verdict, const char *reason,
                    const char *detail);

/* The check event called `name`; fails the test if there is none. */
json_t *check_named(const struct outcome *outcome, const char *name);

/* A kernel that was launched and wrote nothing; keeps a cell from "ran no arm". */
#define IDLE_ARM(cell) KG_ARM((cell), "idle", NULL, 0)

#endif
