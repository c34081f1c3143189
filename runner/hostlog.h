/*
 * runner/hostlog.h: what a host writes to stdout and stderr, kept within limits.
 *
 * The first KG_LOG_MAX bytes go to the file as they come; of the rest only the end is
 * kept and written when the log is closed, with a line that says how much is missing.
 */
#ifndef KG_RUNNER_HOSTLOG_H
#define KG_RUNNER_HOSTLOG_H

#include <stddef.h>
#include <stdint.h>

#define KG_LOG_MAX ((uint64_t)8 << 20)
#define KG_LOG_TAIL 4096

struct kg_hostlog {
    int fd;           /* -1: no file */
    uint64_t written; /* bytes that went to the file */
    uint64_t dropped;
    uint64_t total;
    char tail[KG_LOG_TAIL]; /* a ring: byte i of the stream is at i % KG_LOG_TAIL */
};

/* path NULL: only the tail is kept. A file that cannot be made is the same. */
void kg_hostlog_open(struct kg_hostlog *log, const char *path);
void kg_hostlog_add(struct kg_hostlog *log, const char *bytes, size_t n);
/* The last `lines` lines since stream position `from`, valid UTF-8; new memory. */
char *kg_hostlog_last(const struct kg_hostlog *log, uint64_t from, int lines);
void kg_hostlog_close(struct kg_hostlog *log);

#endif
