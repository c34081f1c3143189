#include "runner/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runner/text.h"

void kg_error_init(struct kg_error *error)
{
    memset(error, 0, sizeof *error);
    error->offset = -1;
}

static int set(struct kg_error *error, int status, const char *file, int line, int column,
               int64_t offset, const char *format, va_list args)
{
    if (error->status != 0)
        return error->status;
    error->status = status;
    snprintf(error->file, sizeof error->file, "%s", file);
    error->line = line;
    error->column = column;
    error->offset = offset;
    vsnprintf(error->text, sizeof error->text, format, args);
    return status;
}

int kg_error_set(struct kg_error *error, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = set(error, status, "", 0, 0, -1, format, args);
    va_end(args);
    return rc;
}

int kg_error_at_line(struct kg_error *error, int status, const char *file, int line,
                     int column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = set(error, status, file, line, column, -1, format, args);
    va_end(args);
    return rc;
}

int kg_error_at_offset(struct kg_error *error, int status, const char *file,
                       int64_t offset, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = set(error, status, file, 0, 0, offset, format, args);
    va_end(args);
    return rc;
}

static size_t append_shown(char *buffer, size_t size, size_t at, const char *text)
{
    return at + strlen(kg_text_shown(text, buffer + at, size - at));
}

const char *kg_error_line(const struct kg_error *error, char *buffer, size_t size)
{
    size_t at = append_shown(buffer, size, 0, error->file);
    if (at > 0 && error->line > 0)
        at += (size_t)snprintf(buffer + at, size - at, ":%d:%d: ", error->line,
                               error->column);
    else if (at > 0 && error->offset >= 0)
        at += (size_t)snprintf(buffer + at, size - at,
                               ": offset %lld: ", (long long)error->offset);
    else if (at > 0)
        at += (size_t)snprintf(buffer + at, size - at, ": ");
    if (at < size)
        append_shown(buffer, size, at, error->text);
    return buffer;
}
