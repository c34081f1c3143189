/*
 * runner/outfile.h: files that are written whole or not at all.
 *
 * A regular file is written beside its name and renamed; where the name is a symbolic link, what it
 * points to is replaced and the link stays. What exists and is no regular file (a pipe, a device
 * such as /dev/stdout) is written to as it is.
 */
#ifndef KG_RUNNER_OUTFILE_H
#define KG_RUNNER_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

#include "runner/error.h"

struct kg_outfile {
    FILE *stream;
    const char *path; /* the caller's */
    char *target;     /* what is replaced; NULL: written in place */
    char *temporary;
};

/* Sets out->stream, or the error. `path` must outlive `out`. */
int kg_outfile_open(struct kg_outfile *out, const char *path, struct kg_error *error);
/* Ends it: with `keep`, flushed, synced and in its place, or the error; without, as if nothing
   had been written. Closes in either case. */
int kg_outfile_close(struct kg_outfile *out, bool keep, struct kg_error *error);

#endif
