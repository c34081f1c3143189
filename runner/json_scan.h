/*
 * runner/json_scan.h: a strict reader of JSON text, one value at a time.
 *
 * The headers of a sharded model run to tens of megabytes and tens of thousands of
 * objects; building a tree of them takes longer than everything else at open. This reader
 * builds nothing: the caller walks the text. It takes exactly RFC 8259 text in UTF-8 and
 * refuses what a name in C cannot hold (U+0000). Duplicate keys are the caller's to find.
 *
 * Every function returns 0 or KG_E_FORMAT / KG_E_MEMORY with the error set to the file and
 * the offset of the fault.
 */
#ifndef KG_RUNNER_JSON_SCAN_H
#define KG_RUNNER_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner/error.h"

enum { KG_JSON_MAX_DEPTH = 32 };

struct kg_json {
    const char *text;
    size_t size, at;
    const char *file; /* for messages */
    int64_t base;     /* offset of text[0] in the file */
    bool python;      /* also take NaN, Infinity and -Infinity, which Python writes */
    char *scratch;    /* the last string that had escapes */
    size_t scratch_size;
    struct kg_error *error;
};

struct kg_json_text {
    const char *bytes; /* not NUL-terminated; valid until the next string is read */
    size_t length;
};

struct kg_json_number {
    bool integer; /* written without fraction or exponent, and i64 holds it */
    int64_t i64;
    double f64;
};

/* `base`: where text[0] lies in `file`. Free with kg_json_free. */
void kg_json_init(struct kg_json *json, const char *text, size_t size, const char *file,
                  int64_t base, struct kg_error *error);
void kg_json_free(struct kg_json *json);

/* The file offset of the next value, for messages. */
int64_t kg_json_offset(struct kg_json *json);
/* The first character of the next value: { [ " t f n, or 0 for a number; -1 at the end of
   the text or at a character that begins no value. Sets no error. */
int kg_json_peek(struct kg_json *json);

/* Walks an object or array:
     begin(json, '{'); for (n = 0; next(json, '}', n, &more) == 0 && more; n++) ... */
int kg_json_begin(struct kg_json *json, char open);
int kg_json_next(struct kg_json *json, char close, size_t n, bool *more);
int kg_json_key(struct kg_json *json, struct kg_json_text *key);
int kg_json_string(struct kg_json *json, struct kg_json_text *text);
int kg_json_number(struct kg_json *json, struct kg_json_number *number);
/* true, false or null: *value is 1, 0 or -1. */
int kg_json_literal(struct kg_json *json, int *value);
/* Passes over any value, checking it; nested at most KG_JSON_MAX_DEPTH deep. */
int kg_json_skip(struct kg_json *json);
/* Only white space may be left. */
int kg_json_end(struct kg_json *json);

#endif
