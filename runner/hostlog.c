#include "runner/hostlog.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/escape.h"

void kg_hostlog_open(struct kg_hostlog *log, const char *path)
{
    memset(log, 0, sizeof *log);
    log->fd = -1;
    if (path)
        log->fd =
            open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
}

/* A full disk costs the log, never the run. */
static void put(struct kg_hostlog *log, const char *bytes, size_t n)
{
    while (log->fd >= 0 && n > 0) {
        ssize_t done = write(log->fd, bytes, n);
        if (done <= 0) {
            close(log->fd);
            log->fd = -1;
            return;
        }
        bytes += done;
        n -= (size_t)done;
    }
}

void kg_hostlog_add(struct kg_hostlog *log, const char *bytes, size_t n)
{
    uint64_t room = KG_LOG_MAX - log->written;
    size_t now = n < room ? n : (size_t)room;
    put(log, bytes, now);
    log->written += now;
    log->dropped += n - now;
    /* Only the last KG_LOG_TAIL bytes of this piece can survive in the ring. */
    size_t skip = n > KG_LOG_TAIL ? n - KG_LOG_TAIL : 0;
    for (size_t i = skip; i < n; i++)
        log->tail[(log->total + i) % KG_LOG_TAIL] = bytes[i];
    log->total += n;
}

/* Stream bytes [from, total) that are still in the ring, in order. */
static size_t unroll(const struct kg_hostlog *log, uint64_t from, char *out)
{
    uint64_t oldest = log->total > KG_LOG_TAIL ? log->total - KG_LOG_TAIL : 0;
    uint64_t begin = from > oldest ? from : oldest;
    size_t n = 0;
    for (uint64_t i = begin; i < log->total; i++)
        out[n++] = log->tail[i % KG_LOG_TAIL];
    return n;
}

char *kg_hostlog_last(const struct kg_hostlog *log, uint64_t from, int lines)
{
    char text[KG_LOG_TAIL];
    size_t n = unroll(log, from, text);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    size_t begin = n;
    for (int newlines = 0; begin > 0; begin--) {
        if (text[begin - 1] == '\n' && ++newlines == lines)
            break;
    }
    return kg_utf8_dup(text + begin, n - begin);
}

void kg_hostlog_close(struct kg_hostlog *log)
{
    if (log->fd < 0)
        return;
    if (log->dropped > 0) {
        char text[KG_LOG_TAIL], line[96];
        uint64_t kept = log->dropped < KG_LOG_TAIL ? log->dropped : KG_LOG_TAIL;
        int n = snprintf(line, sizeof line, "\n[kgate: %llu bytes left out here]\n",
                         (unsigned long long)(log->dropped - kept));
        put(log, line, (size_t)n);
        put(log, text, unroll(log, log->total - kept, text));
    }
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}
