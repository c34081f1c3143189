/*
 * runner/cell.h: one running cell, as the files behind kgate/check.h see it.
 *
 * A cell ends in one of two ways: its function returns, or a call finds that it cannot go
 * on and jumps out with a verdict (kg_cell_leave). So cell functions have no error paths.
 */
#ifndef KG_RUNNER_CELL_H
#define KG_RUNNER_CELL_H

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kgate/check.h"
#include "runner/bench/arm.h"
#include "runner/events.h"
#include "runner/host.h"

#define KG_POISON 0xFFu       /* NaN as f32, f16, bf16, e4m3 */
#define KG_GUARD_BYTES 1024   /* in front of and behind every buffer */
#define KG_GUARD_OUTPUT 0xC9u /* differs from the poison, so copied poison shows */
#define KG_VERIFY_BYTES_MAX ((size_t)64 << 20) /* inputs above are not read back */
#define KG_VERIFY_ARM_MAX ((size_t)1 << 20)    /* inputs above: not after every arm */
#define KG_NAME_MAX 128                        /* arms, buffers, checks, parameters */

enum kg_buf_kind { KG_BUF_INPUT, KG_BUF_OUTPUT, KG_BUF_INOUT, KG_BUF_SCRATCH };

struct kg_buf {
    struct kg_cell *cell;
    struct kg_buf *next;
    enum kg_buf_kind kind;
    const char *name;
    size_t bytes;
    uint8_t guard;       /* the byte both guards hold */
    uint8_t *base;       /* the allocation; the payload starts KG_GUARD_BYTES later */
    size_t total;        /* bytes of the allocation; all behind the payload is guard */
    uint8_t *current;    /* what kg_ptr gives: the payload of the current repetition */
    uint8_t *origin;     /* inout: a device copy of the first bytes, else NULL */
    const void *host;    /* verified input: a copy of the bytes */
    uint64_t content;    /* verified input: hash of the bytes */
    bool verified;       /* input: small enough to be read back */
    unsigned used_in;    /* number of the last arm that took the pointer; 0 none */
    unsigned fetched_at; /* number of the last arm that ran before a fetch; 0 none */
    const void *fetched; /* what that fetch gave */
    /* The payloads of the timed repetitions, else NULL: on the provider under test, and
       on the one it is compared with. */
    uint8_t *copies[2];
    size_t stride; /* bytes from one copy to the next */
};

struct kg_block {
    struct kg_block *next;
    uint8_t *start; /* what the cell was given */
    size_t bytes;
    bool output; /* holds the fetched bytes of an output or inout */
};

/* What a fetch gave, kept for --against. */
struct kg_output {
    struct kg_output *next;
    const char *key; /* ARM/BUFFER */
    const uint8_t *data;
    size_t bytes;
    unsigned elem_bytes; /* as the checks took it; 0: no check did */
    bool is_f32;
};

enum kg_arm_state { KG_ARM_CLOSED, KG_ARM_READY, KG_ARM_RUNNING, KG_ARM_DONE };

struct kg_times {
    double upload, kernel, download; /* seconds; the rest of the cell is the oracle's */
};

struct kg_cell {
    struct kg_host *host;
    const struct kg_plan_cell *plan;
    jmp_buf leave;
    pthread_t thread;

    enum kg_verdict verdict;
    const char *reason;
    char detail[2048];

    struct kg_block *blocks;
    struct kg_buf *buffers, **buffers_tail;
    uint8_t *chunk; /* for reading inputs back; made when first needed */

    enum kg_arm_state arm_state;
    char arm[KG_NAME_MAX + 1]; /* the last one begun */
    unsigned arm_number;       /* arms that were begun */
    double arm_started;
    bool has_cost; /* of the last arm begun */
    struct kg_cost cost;
    bool timed;                 /* its timed repetitions are under way */
    struct kg_bench_run *bench; /* bench/arm.c's, made when first needed */
    struct kg_pair_run *pair;   /* bench/pair.c's, likewise */
    json_t *timings;            /* arm -> what its repetitions took; or NULL */

    uint32_t oracle_allow;
    json_t *check_names;                /* a set */
    unsigned compared, numbers, failed; /* checks; numbers: of kg_check_value */
    char first_failure[1024];

    json_t *params, *notes, *digests;
    struct kg_times times;
    double seconds;

    /* --against: the cell runs twice, and this is NULL in the first pass, the finished first
       pass in the second. The second pass sends no events of its own (against.c). */
    const struct kg_cell *first;
    struct kg_output *outputs, **outputs_tail;
    uint64_t inputs;       /* hash of the bytes of all inputs so far */
    json_t *arms_done;     /* set of the arms that ran and were verified */
    json_t *failed_checks; /* names, as far as they are kept */
    json_t *pairs;         /* arm -> how long it took on both; or NULL */
    unsigned ops_taken_in; /* number of the last arm that took its launcher inside */
};

/* One pass over the cell's function, on the provider that works: everything up to the
   verdict. `first` as in struct kg_cell. Freed by kg_cell_free. */
struct kg_cell *kg_cell_pass(struct kg_host *host, const struct kg_plan_cell *plan,
                             const struct kg_cell *first);
void kg_cell_free(struct kg_cell *cell);

/* Runs the cell and reports it: begin, checks, done. After it host->device_lost says
   whether the process is of further use. */
void kg_cell_run(struct kg_host *host, const struct kg_plan_cell *plan);

KG_NORETURN void kg_cell_leave(struct kg_cell *cell, enum kg_verdict verdict,
                               const char *reason, const char *format, ...)
    KG_PRINTF(4, 5);
KG_NORETURN void kg_cell_misuse(struct kg_cell *cell, const char *format, ...)
    KG_PRINTF(2, 3);
/* Leaves if status is an error; `what` was being done ("upload of x"). */
void kg_cell_device(struct kg_cell *cell, int status, const char *what, const char *name);
/* The last line the provider said, or a name of the status. */
const char *kg_cell_device_text(const struct kg_cell *cell, int status);
/* Leaves as misuse if an arm is open; what: the function that was called. */
void kg_cell_outside_arm(struct kg_cell *cell, const char *what);
/* Leaves unless `name` is 1 to KG_NAME_MAX printable ASCII characters. */
void kg_cell_need_name(struct kg_cell *cell, const char *what, const char *name);
/* A copy of a good name that lives as long as the cell. */
const char *kg_cell_name(struct kg_cell *cell, const char *what, const char *name);

/* Not zeroed. */
struct kg_block *kg_cell_block(struct kg_cell *cell, size_t bytes, bool zero);
void kg_cell_free_blocks(struct kg_cell *cell);
/* True if all of [p, p + bytes) are fetched bytes of an output. */
bool kg_cell_is_fetched(const struct kg_cell *cell, const void *p, size_t bytes);

/* buffer.c: verifies guards and inputs; leaves with FAIL if one was written to. After an
   arm, all guards and the small inputs it used; at the end everything. */
void kg_buffers_verify_arm(struct kg_cell *cell);
void kg_buffers_verify_all(struct kg_cell *cell);
/* Gives everything back to the device; 0 or the first error. */
int kg_buffers_release(struct kg_cell *cell);

/* compare.c */
struct kg_check {
    const char *name, *class_name, *metric;
    double value, bound, margin;
    bool ok;
    bool has_worst;
    uint64_t worst;     /* index */
    json_t *got, *want; /* stolen; with has_worst */
    uint64_t bad, count;
    const char *text; /* or NULL */
};
/* Sends a check event; counts it and keeps the first failure's `failure` line. */
void kg_check_report(struct kg_cell *cell, struct kg_check *check, const char *failure);

/* digest.c */
void kg_digest_hex(const void *data, size_t bytes, char hex[33]);
int kg_digest_file(const char *path, char hex[33]);
/* Records the digest of a fetched output under ARM/NAME. When the key is there already
   (an arm in a loop), the digest of both takes its place, so the order counts. */
void kg_digest_record(struct kg_cell *cell, const struct kg_buf *buf, const void *data);

/* against.c: the second pass and its event. */
void kg_against_run(struct kg_host *host, const struct kg_plan_cell *plan,
                    const struct kg_cell *first);
/* Keeps what a fetch gave, until the cell is freed. */
void kg_output_keep(struct kg_cell *cell, const char *key, const void *data,
                    size_t bytes);
/* A check reads `p` as elements of so many bytes. */
void kg_output_mark(struct kg_cell *cell, const void *p, unsigned elem_bytes,
                    bool is_f32);

double kg_seconds_now(void);

#endif
