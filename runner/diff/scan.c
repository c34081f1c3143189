#include "runner/diff/scan.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/utf8.h"

void kg_scan_init(struct kg_scan *s, char *text, size_t size, const char *file,
                  struct kg_error *error)
{
    memset(s, 0, sizeof *s);
    s->text = text;
    s->size = size;
    s->line = 1;
    s->file = file;
    s->error = error;
}

bool kg_scan_fail(struct kg_scan *s, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kg_error_at_line(s->error, KG_E_FORMAT, s->file, s->line,
                     (int)(s->at - s->line_start) + 1, "%s", text);
    return false;
}

static bool broken(const struct kg_scan *s)
{
    return s->error->status != 0;
}

static void space(struct kg_scan *s)
{
    for (;; s->at++) {
        char c = s->text[s->at];
        if (c == '\n') {
            s->line++;
            s->line_start = s->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return; /* the NUL behind the text stops here too */
        }
    }
}

/* An unexpected character; the end of the text is the likely one, and worth a word. */
static bool unexpected(struct kg_scan *s, const char *wanted)
{
    if (s->at >= s->size)
        return kg_scan_fail(s, "the file ends in the middle, %s expected: truncated?",
                            wanted);
    return kg_scan_fail(s, "not JSON: %s expected", wanted);
}

enum kg_json_kind kg_scan_peek(struct kg_scan *s)
{
    if (broken(s))
        return KG_JSON_BAD;
    space(s);
    switch (s->text[s->at]) {
    case '{':
        return KG_JSON_OBJECT;
    case '[':
        return KG_JSON_ARRAY;
    case '"':
        return KG_JSON_STRING;
    case 't':
    case 'f':
        return KG_JSON_BOOL;
    case 'n':
        return KG_JSON_NULL;
    case '-':
    case '0' ... '9':
        return KG_JSON_NUMBER;
    default:
        return KG_JSON_BAD;
    }
}

static bool enter(struct kg_scan *s, char open, const char *wanted)
{
    if (broken(s))
        return false;
    space(s);
    if (s->text[s->at] != open)
        return unexpected(s, wanted);
    if (s->depth >= KG_SCAN_DEPTH)
        return kg_scan_fail(s, "nested deeper than %d", KG_SCAN_DEPTH);
    s->depth++;
    s->at++;
    s->first = true;
    return true;
}

bool kg_scan_object(struct kg_scan *s)
{
    return enter(s, '{', "an object");
}

bool kg_scan_array(struct kg_scan *s)
{
    return enter(s, '[', "an array");
}

/* Steps over a comma, or over `close`, which gives false. */
static bool next(struct kg_scan *s, char close)
{
    if (broken(s))
        return false;
    space(s);
    bool first = s->first;
    s->first = false;
    if (s->text[s->at] == close) {
        s->at++;
        s->depth--;
        return false;
    }
    if (first)
        return true;
    if (s->text[s->at] != ',')
        return unexpected(s, close == '}' ? "',' or '}'" : "',' or ']'");
    s->at++;
    return true;
}

bool kg_scan_element(struct kg_scan *s)
{
    return next(s, ']');
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

static bool unescape(struct kg_scan *s, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char c = s->text[s->at + 1];
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        if (*to)
            *(*to)++ = into[hit - from];
        s->at += 2;
        return true;
    }
    if (c != 'u')
        return unexpected(s, "an escape in a string");
    int unit = hex4(s->text + s->at + 2);
    if (unit < 0)
        return unexpected(s, "four hex digits after \\u");
    if (unit == 0)
        return kg_scan_fail(s, "\\u0000 in a string");
    uint32_t code = (uint32_t)unit;
    s->at += 6;
    if (unit >= 0xd800 && unit <= 0xdfff) {
        int low = -1;
        if (unit < 0xdc00 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u')
            low = hex4(s->text + s->at + 2);
        if (low < 0xdc00 || low > 0xdfff)
            return kg_scan_fail(s, "half a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        s->at += 6;
    }
    if (*to)
        *to = put_utf8(*to, code);
    return true;
}

/* Reads a string; with `out` it is unescaped in place and ended with a NUL. */
static bool string(struct kg_scan *s, const char **out)
{
    if (broken(s))
        return false;
    space(s);
    if (s->text[s->at] != '"')
        return unexpected(s, "a string");
    s->at++;
    char *start = s->text + s->at, *to = NULL;
    for (;;) {
        unsigned char c = (unsigned char)s->text[s->at];
        if (c == '"')
            break;
        if (c == '\\') {
            if (out && !to)
                to = s->text + s->at;
            if (!unescape(s, &to))
                return false;
            continue;
        }
        if (c < 0x20)
            return s->at >= s->size
                       ? unexpected(s, "the end of a string")
                       : kg_scan_fail(s, "control character %u in a string", c);
        size_t n = kg_utf8_sequence((const unsigned char *)s->text + s->at,
                                    s->size - s->at, NULL);
        if (n == 0)
            return kg_scan_fail(s, "invalid UTF-8 in a string");
        if (to)
            for (size_t i = 0; i < n; i++)
                *to++ = s->text[s->at + i];
        s->at += n;
    }
    if (out) {
        *(to ? to : s->text + s->at) = '\0';
        *out = start;
    }
    s->at++;
    return true;
}

bool kg_scan_string(struct kg_scan *s, const char **out)
{
    return string(s, out);
}

static bool colon(struct kg_scan *s)
{
    space(s);
    if (s->text[s->at] != ':')
        return unexpected(s, "':'");
    s->at++;
    return true;
}

bool kg_scan_member(struct kg_scan *s, const char **key)
{
    return next(s, '}') && string(s, key) && colon(s);
}

bool kg_scan_plain_member(struct kg_scan *s, const char **key)
{
    if (!next(s, '}'))
        return false;
    space(s);
    *key = s->text + s->at + 1;
    return string(s, NULL) && colon(s);
}

static bool digits(struct kg_scan *s)
{
    if (s->text[s->at] < '0' || s->text[s->at] > '9')
        return unexpected(s, "a digit");
    while (s->text[s->at] >= '0' && s->text[s->at] <= '9')
        s->at++;
    return true;
}

static bool number(struct kg_scan *s, double *out)
{
    if (broken(s))
        return false;
    space(s);
    const char *start = s->text + s->at;
    bool plain = true;
    if (s->text[s->at] == '-')
        s->at++;
    if (s->text[s->at] == '0')
        s->at++;
    else if (!digits(s))
        return false;
    if (s->text[s->at] == '.') {
        plain = false;
        s->at++;
        if (!digits(s))
            return false;
    }
    if ((s->text[s->at] | 0x20) == 'e') {
        plain = false;
        s->at++;
        if (s->text[s->at] == '+' || s->text[s->at] == '-')
            s->at++;
        if (!digits(s))
            return false;
    }
    if (!out)
        return true;
    if (plain && s->text + s->at - start <= 15) { /* exact in a double; strtod is slow */
        const char *p = start + (*start == '-');
        int64_t v = 0;
        for (; p < s->text + s->at; p++)
            v = v * 10 + (*p - '0');
        *out = *start == '-' ? -(double)v : (double)v;
    } else {
        *out = strtod(start, NULL);
    }
    return true;
}

bool kg_scan_number(struct kg_scan *s, double *out)
{
    return number(s, out);
}

static bool word(struct kg_scan *s, const char *literal)
{
    size_t n = strlen(literal);
    if (strncmp(s->text + s->at, literal, n) != 0)
        return unexpected(s, "true, false or null");
    s->at += n;
    return true;
}

bool kg_scan_bool(struct kg_scan *s, bool *out)
{
    if (kg_scan_peek(s) != KG_JSON_BOOL)
        return !broken(s) && unexpected(s, "true or false");
    bool yes = s->text[s->at] == 't';
    if (out)
        *out = yes;
    return word(s, yes ? "true" : "false");
}

static bool null(struct kg_scan *s)
{
    return kg_scan_peek(s) == KG_JSON_NULL && word(s, "null");
}

bool kg_scan_string_or_null(struct kg_scan *s, const char **out)
{
    *out = NULL;
    return kg_scan_peek(s) == KG_JSON_NULL ? null(s) : string(s, out);
}

bool kg_scan_real(struct kg_scan *s, double *out)
{
    const char *text;
    *out = NAN;
    switch (kg_scan_peek(s)) {
    case KG_JSON_NULL:
        return null(s);
    case KG_JSON_STRING:
        if (!string(s, &text))
            return false;
        if (strcmp(text, "inf") == 0)
            *out = INFINITY;
        else if (strcmp(text, "-inf") == 0)
            *out = -INFINITY;
        else if (strcmp(text, "nan") != 0)
            return kg_scan_fail(s, "a number, \"nan\", \"inf\" or \"-inf\" expected");
        return true;
    default:
        return number(s, out);
    }
}

/* Recursion is bounded by KG_SCAN_DEPTH. */
static bool skip(struct kg_scan *s)
{
    switch (kg_scan_peek(s)) {
    case KG_JSON_OBJECT:
        if (!kg_scan_object(s))
            return false;
        while (next(s, '}'))
            if (!string(s, NULL) || !colon(s) || !skip(s))
                return false;
        return !broken(s);
    case KG_JSON_ARRAY:
        if (!kg_scan_array(s))
            return false;
        while (next(s, ']'))
            if (!skip(s))
                return false;
        return !broken(s);
    case KG_JSON_STRING:
        return string(s, NULL);
    case KG_JSON_NUMBER:
        return number(s, NULL);
    case KG_JSON_BOOL:
        return kg_scan_bool(s, NULL);
    case KG_JSON_NULL:
        return null(s);
    default:
        return !broken(s) && unexpected(s, "a value");
    }
}

bool kg_scan_skip(struct kg_scan *s, const char **begin, size_t *size)
{
    if (broken(s))
        return false;
    space(s);
    size_t start = s->at;
    if (!skip(s))
        return false;
    if (begin)
        *begin = s->text + start;
    if (size)
        *size = s->at - start;
    return true;
}

bool kg_scan_end(struct kg_scan *s)
{
    if (broken(s))
        return false;
    space(s);
    return s->at == s->size ||
           kg_scan_fail(s, "more text after the end of the JSON value");
}

bool kg_scan_null(struct kg_scan *s)
{
    return kg_scan_peek(s) == KG_JSON_NULL && kg_scan_skip(s, NULL, NULL);
}

static void read_field(struct kg_scan *s, const struct kg_scan_field *field, void *into,
                       void *context)
{
    void *to = (char *)into + field->at;
    switch (field->kind) {
    case KG_SCAN_BY:
        field->by(s, into, context);
        break;
    case KG_SCAN_STRING:
        kg_scan_string(s, to);
        break;
    case KG_SCAN_STRING_OR_NULL:
        kg_scan_string_or_null(s, to);
        break;
    case KG_SCAN_REAL:
        kg_scan_real(s, to);
        break;
    case KG_SCAN_BOOL:
        kg_scan_bool(s, to);
        break;
    }
}

void kg_scan_fields(struct kg_scan *s, const struct kg_scan_field *fields, void *into,
                    void *context)
{
    const char *key;
    if (!kg_scan_object(s))
        return;
    while (kg_scan_member(s, &key)) {
        const struct kg_scan_field *field = fields;
        while (field->key && strcmp(field->key, key) != 0)
            field++;
        if (field->key)
            read_field(s, field, into, context);
        else
            kg_scan_skip(s, NULL, NULL);
    }
}
