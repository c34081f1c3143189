/*
 * runner/host.h: the process that runs one section (`kgate __host`).
 *
 * It reads a job from one descriptor, loads the section and the provider, lists the
 * cells, runs those that the supervisor orders, and reports events on another descriptor:
 * one JSON object a line, at most 1 MiB. A number that is not finite is the string "nan",
 * "inf" or "-inf". Exit status: 0 done, 2 the section could not be set up (an "error"
 * event said why), 75 the device faulted: start again for the cells that are left.
 */
#ifndef KG_RUNNER_HOST_H
#define KG_RUNNER_HOST_H

#include <jansson.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kgate/artifact.h"
#include "kgate/kernels.h"
#include "kgate/section.h"
#include "runner/bench/arm.h"
#include "runner/error.h"

#define KG_HOST_PROTOCOL 1
#define KG_EXIT_SETUP 2
#define KG_EXIT_DEVICE_LOST 75

/* ---- job.c: what the supervisor asks for ---- */

struct kg_job {
    json_t *json; /* owns every string below */
    bool plan_only;
    bool probe_only;      /* open the device, say what it is, end */
    const char *section;  /* the name the plugin must have, or NULL */
    const char *plugin;   /* absolute path */
    const char *provider; /* absolute path; NULL only in plan mode */
    const char *against;  /* absolute path of the provider to compare with, or NULL */
    int ordinal;
    int host_threads; /* 0: as many as there are processors */
    uint64_t schedule_seed;
    bool seeded;
    uint64_t seed;
    bool no_artifacts;
    bool calibrate; /* probe: measure the ceilings too */
    struct kg_bench_job bench;
    json_t *artifacts; /* role -> {path, format, synthetic}, or NULL */
    json_t *params;    /* key -> string, or NULL */
    json_t *asked;     /* for kg_section_accept, or NULL */
};

int kg_job_parse(struct kg_job *job, const char *line, size_t length,
                 struct kg_error *error);
void kg_job_free(struct kg_job *job);

/* ---- emit.c: what goes back ---- */

/* Writes one event and releases it. Exits the process if nobody reads any more. */
void kg_event_write(int fd, json_t *event);
/* A string with anything that is not UTF-8 replaced; never NULL. */
json_t *kg_event_text(const char *text);
json_t *kg_event_number(double value);

/* ---- plugin.c: loading shared objects ---- */

struct kg_library {
    void *handle;
    char digest[33]; /* XXH3-128 of the file, in hex */
};

int kg_section_load(struct kg_library *library, const char *path, const char *name,
                    const struct kg_section **section, struct kg_error *error);
int kg_provider_load(struct kg_library *library, const char *path,
                     const struct kg_provider **provider, struct kg_error *error);
/* Refuses (KG_E_INVALID) a role or param that the manifest gives and the section does not
   declare. `asked`: {"roles": {name: where}, "params": {name: where}}, or NULL. */
int kg_section_accept(const struct kg_section *section, const json_t *asked,
                      struct kg_error *error);
/* Whether the section declares a param; a section of an older kgate may read any. */
bool kg_section_has_param(const struct kg_section *section, const char *name);
/* What is wrong with a table that was found, or 0; path is for the message. */
int kg_section_verify(const struct kg_section *section, const char *path,
                      const char *name, struct kg_error *error);
int kg_provider_verify(const struct kg_provider *provider, const char *path,
                       struct kg_error *error);

/* ---- plan.c: the cells of the section ---- */

struct kg_plan_cell {
    char *id;
    kg_cell_fn *run;
    const void *row;
    char *role; /* or NULL */
    uint32_t flags;
};

struct kg_host;
struct kg_plan {
    struct kg_host *host;
    struct kg_plan_cell *cells;
    size_t count, capacity;
    json_t *index; /* id -> number */
    void **blocks;
    size_t n_blocks, blocks_capacity;
    struct kg_error *error;
    jmp_buf leave;
};

/* Calls the section's plan(). */
int kg_plan_make(struct kg_plan *plan, struct kg_host *host, struct kg_error *error);
void kg_plan_free(struct kg_plan *plan);
const struct kg_plan_cell *kg_plan_find(const struct kg_plan *plan, const char *id);

/* ---- the process ---- */

struct kg_host_artifact {
    const char *role; /* in job.json */
    struct kg_artifact *artifact;
};

/* A provider with its device open. */
struct kg_seat {
    const struct kg_provider *provider; /* NULL in plan mode */
    struct kg_library library;
    struct kg_device_info device;
    struct CUstream_st *stream;
};

struct kg_host {
    struct kg_job job;
    int event_fd;
    const struct kg_section *section;
    struct kg_library section_library;
    struct kg_seat seat;  /* the provider that works now: the one under test */
    struct kg_seat other; /* --against: the one that does not; its provider may be NULL */
    bool swapped;         /* the provider compared with is the one that works */
    bool device_lost;     /* KG_E_DEVICE was seen: only last_error() may be called */
    uint64_t pr_shift;    /* added to the index of the test vector */
    struct kg_host_artifact *artifacts;
    size_t n_artifacts;
    struct kg_plan plan;
};

/* --against: lets the other provider work. */
void kg_host_swap(struct kg_host *host);

/* NULL if the role has no artifact. */
const struct kg_artifact *kg_host_artifact(const struct kg_host *host, const char *role);
bool kg_host_has_role(const struct kg_host *host, const char *role);
/* What --seed N adds to the index of the test vector. */
uint64_t kg_seed_shift(uint64_t seed);

/* The whole life of the process; main() returns its result. */
int kg_host_main(void);
/* The same on given descriptors. */
int kg_host_serve(int order_fd, int event_fd);

#endif
