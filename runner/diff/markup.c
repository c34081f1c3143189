#include "runner/diff/markup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runner/escape.h"

void kg_put_plain(FILE *out, const char *text)
{
    char *clean = kg_escape_dup(text);
    fputs(clean, out);
    free(clean);
}

void kg_put_padded(FILE *out, const char *text, size_t columns)
{
    char *clean = kg_escape_dup(text);
    fputs(clean, out);
    for (size_t n = kg_columns(clean); n < columns; n++)
        putc(' ', out);
    free(clean);
}

void kg_put_xml(FILE *out, const char *text)
{
    char *clean = kg_escape_dup(text);
    for (const char *p = clean; *p; p++) {
        if (*p == '&')
            fputs("&amp;", out);
        else if (*p == '<')
            fputs("&lt;", out);
        else if (*p == '>')
            fputs("&gt;", out);
        else if (*p == '"')
            fputs("&quot;", out);
        else if (*p == '\'')
            fputs("&#39;", out);
        else if (memcmp(p, "\xef\xbf", 2) == 0 && (unsigned char)p[2] >= 0xbe)
            fputs("?", out), p += 2; /* U+FFFE, U+FFFF: no XML character */
        else
            putc(*p, out);
    }
    free(clean);
}

void kg_put_markdown(FILE *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789 .,:;/=+-()%?'";
    char *clean = kg_escape_dup(text);
    for (const char *p = clean; *p; p++) {
        /* "://" and "www." would become links. */
        bool link = (*p == ':' && p[1] == '/') ||
                    (*p == '.' && p - clean >= 3 && strncasecmp(p - 3, "www", 3) == 0);
        if (!link && (strchr(plain, *p) || (unsigned char)*p >= 0x80))
            putc(*p, out);
        else
            fprintf(out, "&#%d;", *p);
    }
    free(clean);
}

void kg_put_markdown_code(FILE *out, const char *text)
{
    if (text && *text && !strpbrk(text, "`|<>&\\")) {
        putc('`', out);
        kg_put_plain(out, text);
        putc('`', out);
    } else {
        kg_put_markdown(out, text);
    }
}
