/*
 * runner/error.h: one clear line about what went wrong, and where.
 *
 * A loader fills a caller-owned struct kg_error; the first error wins. The line printed
 * is FILE:LINE:COLUMN: TEXT, or FILE: offset N: TEXT, or just TEXT.
 */
#ifndef KG_RUNNER_ERROR_H
#define KG_RUNNER_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "kgate/status.h"

struct kg_error {
    int status;       /* 0 while nothing went wrong */
    char file[512];   /* "" if no file is concerned */
    int line, column; /* from 1; 0 if they do not apply */
    int64_t offset;   /* bytes from the start of a binary file; -1 if it does not apply */
    char text[512];
};

void kg_error_init(struct kg_error *error);
/* Each sets the error unless one is set already, and returns its status. */
int kg_error_set(struct kg_error *error, int status, const char *format, ...)
    KG_PRINTF(3, 4);
int kg_error_at_line(struct kg_error *error, int status, const char *file, int line,
                     int column, const char *format, ...) KG_PRINTF(6, 7);
int kg_error_at_offset(struct kg_error *error, int status, const char *file,
                       int64_t offset, const char *format, ...) KG_PRINTF(5, 6);
/* The whole line, control characters escaped, without a newline. */
const char *kg_error_line(const struct kg_error *error, char *buffer, size_t size);

#endif
