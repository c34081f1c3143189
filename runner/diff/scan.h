/*
 * runner/diff/scan.h: a strict JSON reader over a buffer, for result files of 20,000 cells.
 *
 * Strings are unescaped in place and stay in the buffer, so that reading a file allocates
 * nothing but what the caller keeps. Everything is checked as RFC 8259 has it, skipped
 * values too, and further: valid UTF-8, no NUL in strings, nesting of at most
 * KG_SCAN_DEPTH. The first error is kept in `error` with line and column; after it every
 * call returns false, so that a caller may look at `error->status` once at the end.
 */
#ifndef KG_RUNNER_DIFF_SCAN_H
#define KG_RUNNER_DIFF_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "runner/error.h"

#define KG_SCAN_DEPTH 64

enum kg_json_kind {
    KG_JSON_BAD, /* end of text, or no JSON value starts here */
    KG_JSON_OBJECT,
    KG_JSON_ARRAY,
    KG_JSON_STRING,
    KG_JSON_NUMBER,
    KG_JSON_BOOL,
    KG_JSON_NULL,
};

struct kg_scan {
    char *text; /* size bytes, written to by kg_scan_string; text[size] is '\0' */
    size_t size, at, line_start;
    int line, depth;
    const char *file;
    struct kg_error *error;
    bool first; /* just entered an object or array */
};

void kg_scan_init(struct kg_scan *scan, char *text, size_t size, const char *file,
                  struct kg_error *error);
/* What kind of value is next. */
enum kg_json_kind kg_scan_peek(struct kg_scan *scan);
/* Enter the object or array that is next; a value of another kind is an error. */
bool kg_scan_object(struct kg_scan *scan);
bool kg_scan_array(struct kg_scan *scan);
/* The next member's key, its value is next; false at the end of the object. */
bool kg_scan_member(struct kg_scan *scan, const char **key);
/* The same, without unescaping the key: *key is its raw text, up to a '"'. The text stays as
   it was, so that it can be read once more. */
bool kg_scan_plain_member(struct kg_scan *scan, const char **key);
/* Another element is next; false at the end of the array. */
bool kg_scan_element(struct kg_scan *scan);
bool kg_scan_string(struct kg_scan *scan, const char **out);
bool kg_scan_number(struct kg_scan *scan, double *out);
bool kg_scan_bool(struct kg_scan *scan, bool *out);
/* A string, or null, which gives NULL. */
bool kg_scan_string_or_null(struct kg_scan *scan, const char **out);
/* A number, null (NaN), or one of the strings "nan", "inf", "-inf". */
bool kg_scan_real(struct kg_scan *scan, double *out);
/* Steps over any value. Its text is [*begin, *begin + *size), untouched; may be NULL. */
bool kg_scan_skip(struct kg_scan *scan, const char **begin, size_t *size);
/* Steps over a null and returns true; anything else stays. */
bool kg_scan_null(struct kg_scan *scan);

enum kg_scan_field_kind {
    KG_SCAN_BY, /* by its function */
    KG_SCAN_STRING,
    KG_SCAN_STRING_OR_NULL,
    KG_SCAN_REAL,
    KG_SCAN_BOOL,
};

/* A member of an object and where it goes: `at` bytes into a struct, or through `by`. */
struct kg_scan_field {
    const char *key; /* NULL ends a table */
    enum kg_scan_field_kind kind;
    size_t at;
    void (*by)(struct kg_scan *scan, void *into, void *context);
};

/* Reads the object that is next into a struct; members that are not in the table are stepped
   over. `context` is for functions. */
void kg_scan_fields(struct kg_scan *scan, const struct kg_scan_field *fields, void *into,
                    void *context);
/* Nothing but white space is left. */
bool kg_scan_end(struct kg_scan *scan);
/* Sets an error at the present place; returns false. */
bool kg_scan_fail(struct kg_scan *scan, const char *format, ...) KG_PRINTF(2, 3);

#endif
