#include "runner/escape.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runner/utf8.h"

/* Characters that act on the terminal or on the order of the line. */
static int is_active(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x061c || c == 0x200e ||
           c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
           c == 0xfeff;
}

char *kg_escape(const char *text, size_t length, char *buffer, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t at = 0;
    if (size == 0)
        return buffer;
    for (size_t i = 0; i < length;) {
        uint32_t c = 0;
        size_t n = kg_utf8_sequence(p + i, length - i, &c);
        char piece[24];
        size_t m = 0;
        if (n > 0 && !is_active(c)) {
            memcpy(piece, p + i, n);
            m = n;
        } else if (n == 1 && (c == '\n' || c == '\t')) {
            m = (size_t)snprintf(piece, sizeof piece, "\\%c", c == '\n' ? 'n' : 't');
        } else {
            n = n > 0 ? n : 1;
            for (size_t k = 0; k < n; k++)
                m += (size_t)snprintf(piece + m, sizeof piece - m, "\\x%02x", p[i + k]);
        }
        if (at + m >= size)
            break;
        memcpy(buffer + at, piece, m);
        at += m;
        i += n;
    }
    buffer[at] = '\0';
    return buffer;
}

char *kg_escape_dup(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    char *buffer = kg_xcalloc(length * 4 + 1, 1);
    return kg_escape(text ? text : "", length, buffer, length * 4 + 1);
}

char *kg_utf8_dup(const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text;
    char *copy = kg_xcalloc(length + 1, 1);
    size_t at = 0;
    for (size_t i = 0; i < length;) {
        uint32_t c = 0;
        size_t n = kg_utf8_sequence(p + i, length - i, &c);
        if (n == 0 || ((c < 0x20 || c == 0x7f) && c != '\n' && c != '\t')) {
            copy[at++] = '?';
            i += n > 0 ? n : 1;
        } else {
            memcpy(copy + at, p + i, n);
            at += n;
            i += n;
        }
    }
    return copy;
}

size_t kg_columns(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void *some(void *memory)
{
    if (memory == NULL) {
        fputs("kgate: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void *kg_xrealloc(void *old, size_t bytes)
{
    return some(realloc(old, bytes ? bytes : 1));
}

void *kg_xcalloc(size_t count, size_t bytes)
{
    return some(calloc(count ? count : 1, bytes ? bytes : 1));
}

char *kg_xstrdup(const char *text)
{
    return some(strdup(text));
}

char *kg_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return some(n < 0 ? NULL : text);
}

void kg_shell_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_@%+=:,./-";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    putc('\'', out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            putc(*word, out);
    }
    putc('\'', out);
}
