/*
 * runner/events.h: one line from a host, parsed and checked.
 *
 * A host may have been overwritten by the kernel it ran: every line is hostile. A line
 * that is not exactly what docs/results.md's protocol section describes is a protocol
 * fault with a text that says what was wrong. Order is the supervisor's concern.
 */
#ifndef KG_RUNNER_EVENTS_H
#define KG_RUNNER_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define KG_EVENT_LINE_MAX ((size_t)1 << 20)
#define KG_EVENT_ID_MAX 200
#define KG_EVENT_CELLS_MAX 100000 /* a section */
#define KG_EVENT_CHECKS_MAX 4096  /* a cell */
#define KG_EVENT_DEPTH_MAX 8
#define KG_EVENT_PROTOCOL 1
/* What the supervisor will hold of one cell and of one section. */
#define KG_EVENT_CELL_BYTES_MAX ((size_t)8 << 20)
#define KG_EVENT_SECTION_BYTES_MAX ((size_t)256 << 20)

enum kg_verdict { KG_NO_VERDICT, KG_PASS, KG_FAIL, KG_SKIP, KG_ERROR };
/* "PASS" and so on; "?" for KG_NO_VERDICT. */
const char *kg_verdict_name(enum kg_verdict verdict);

enum kg_event_kind {
    KG_EVENT_HELLO,
    KG_EVENT_DEVICE,
    KG_EVENT_PLAN,
    KG_EVENT_ERROR,
    KG_EVENT_BEGIN,
    KG_EVENT_CHECK,
    KG_EVENT_DONE,
    KG_EVENT_BYE,
    KG_EVENT_AGAIN,   /* --against: the cell that is done runs on the other provider */
    KG_EVENT_AGAINST, /* what that found */
};

struct kg_event {
    enum kg_event_kind kind;
    json_t *json;   /* the whole object, owned; sanitised: unknown keys are gone */
    const char *id; /* begin, check, done, again, against; inside json */
    enum kg_verdict verdict; /* done */
    const char *reason;      /* done: a code, "" for PASS; error: the code */
    const char *text;        /* done: detail; error: text; "" if absent */
    double seconds;          /* done */
    bool last;               /* plan: the last of a split plan, or the only one */
    json_t *cells;           /* plan: borrowed */
};

/* Parses `length` bytes (no newline). False, with one line in `fault`, if it is not an
   event; event->json is then NULL. */
bool kg_event_parse(const char *line, size_t length, struct kg_event *event, char *fault,
                    size_t fault_size);
void kg_event_clear(struct kg_event *event);

/* A reason code belongs to its verdict: "crashed" to FAIL and so on. */
bool kg_reason_is_known(enum kg_verdict verdict, const char *reason);

#endif
