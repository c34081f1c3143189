#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/host.h"

json_t *kg_event_text(const char *text)
{
    if (text == NULL)
        text = "";
    json_t *json = json_string(text);
    if (json != NULL)
        return json;
    /* Not UTF-8: a truncated character, or bytes from a hostile file. */
    char *copy = strdup(text);
    if (copy != NULL) {
        for (char *p = copy; *p; p++)
            if ((unsigned char)*p >= 0x80)
                *p = '?';
        json = json_string(copy);
        free(copy);
    }
    return json != NULL ? json : json_null();
}

json_t *kg_event_number(double value)
{
    if (isnan(value))
        return json_string("nan");
    if (isinf(value))
        return json_string(value > 0 ? "inf" : "-inf");
    return json_real(value);
}

void kg_event_write(int fd, json_t *event)
{
    char *line = json_dumps(event, JSON_SORT_KEYS | JSON_COMPACT);
    json_decref(event);
    if (line == NULL) {
        fputs("kgate: out of memory for an event\n", stderr);
        _exit(1);
    }
    size_t length = strlen(line);
    line[length++] = '\n'; /* in place of the terminator: one write for the usual event */
    for (size_t at = 0; at < length;) {
        ssize_t n = write(fd, line + at, length - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno != EINTR)
            _exit(1); /* EPIPE: the supervisor is gone, nobody wants the rest */
    }
    free(line);
}
