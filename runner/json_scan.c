#include "runner/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/utf8.h"

void kg_json_init(struct kg_json *json, const char *text, size_t size, const char *file,
                  int64_t base, struct kg_error *error)
{
    memset(json, 0, sizeof *json);
    json->text = text;
    json->size = size;
    json->file = file;
    json->base = base;
    json->error = error;
}

void kg_json_free(struct kg_json *json)
{
    free(json->scratch);
    json->scratch = NULL;
}

static int fault(struct kg_json *json, size_t at, const char *what)
{
    return kg_error_at_offset(json->error, KG_E_FORMAT, json->file,
                              json->base + (int64_t)at, "JSON: %s", what);
}

static void skip_space(struct kg_json *json)
{
    while (json->at < json->size) {
        char c = json->text[json->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return;
        json->at++;
    }
}

int64_t kg_json_offset(struct kg_json *json)
{
    skip_space(json);
    return json->base + (int64_t)json->at;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int kg_json_peek(struct kg_json *json)
{
    skip_space(json);
    if (json->at == json->size)
        return -1;
    char c = json->text[json->at];
    if (is_digit(c) || c == '-' || (json->python && (c == 'N' || c == 'I')))
        return 0;
    return c != '\0' && strchr("{[\"tfn", c) ? c : -1;
}

static int expect(struct kg_json *json, char wanted)
{
    skip_space(json);
    if (json->at < json->size && json->text[json->at] == wanted) {
        json->at++;
        return KG_OK;
    }
    char what[] = "expected ' '";
    what[sizeof what - 3] = wanted;
    return fault(json, json->at, what);
}

int kg_json_begin(struct kg_json *json, char open)
{
    return expect(json, open);
}

int kg_json_next(struct kg_json *json, char close, size_t n, bool *more)
{
    skip_space(json);
    *more = false;
    if (json->at < json->size && json->text[json->at] == close) {
        json->at++;
        return KG_OK;
    }
    if (n > 0) {
        if (json->at == json->size || json->text[json->at] != ',')
            return fault(json, json->at,
                         close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        json->at++;
    }
    *more = true;
    return KG_OK;
}

int kg_json_key(struct kg_json *json, struct kg_json_text *key)
{
    KG_TRY(kg_json_string(json, key));
    return expect(json, ':');
}

static int hex4(const char *p, unsigned *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        unsigned digit = is_digit(c)              ? (unsigned)(c - '0')
                         : (c >= 'a' && c <= 'f') ? (unsigned)(c - 'a' + 10)
                         : (c >= 'A' && c <= 'F') ? (unsigned)(c - 'A' + 10)
                                                  : 16;
        if (digit == 16)
            return -1;
        *value = *value * 16 + digit;
    }
    return 0;
}

static size_t put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 63));
        out[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 63));
    out[2] = (char)(0x80 | (code >> 6 & 63));
    out[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* Decodes the escape at json->at, past its backslash, and appends it. An escape is never
   shorter than what it decodes to. */
static int escape(struct kg_json *json, char *out, size_t *length)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = json->at - 1;
    char c = json->at < json->size ? json->text[json->at++] : '\0';
    const char *found = c ? strchr(from, c) : NULL;
    unsigned code, low;
    if (found) {
        out[(*length)++] = to[found - from];
        return KG_OK;
    }
    if (c != 'u' || json->size - json->at < 4 || hex4(json->text + json->at, &code) != 0)
        return fault(json, start, "bad escape in a string");
    json->at += 4;
    if (code >= 0xd800 && code < 0xdc00) {
        if (json->size - json->at < 6 || json->text[json->at] != '\\' ||
            json->text[json->at + 1] != 'u' ||
            hex4(json->text + json->at + 2, &low) != 0 || low < 0xdc00 || low > 0xdfff)
            return fault(json, start, "half of a surrogate pair in a string");
        json->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return fault(json, start, "half of a surrogate pair in a string");
    }
    if (code == 0)
        return fault(json, start, "a NUL character in a string");
    *length += put_utf8(out + *length, code);
    return KG_OK;
}

/* The rest of a string that has at least one escape: json->at is at it, `start` at the
   first character. */
static int escaped_string(struct kg_json *json, size_t start, struct kg_json_text *text)
{
    size_t end;
    for (end = json->at; end < json->size && json->text[end] != '"'; end++)
        if (json->text[end] == '\\')
            end++;
    if (end >= json->size)
        return fault(json, start - 1, "a string that does not end");
    if (json->scratch_size < end - start) {
        char *bigger = realloc(json->scratch, end - start);
        if (!bigger)
            return kg_error_set(json->error, KG_E_MEMORY, "out of memory");
        json->scratch = bigger;
        json->scratch_size = end - start;
    }
    size_t length = json->at - start;
    memcpy(json->scratch, json->text + start, length);
    while (json->at < end) {
        const unsigned char *p = (const unsigned char *)json->text + json->at;
        if (*p == '\\') {
            json->at++;
            KG_TRY(escape(json, json->scratch, &length));
            continue;
        }
        size_t n = *p < 0x20 ? 0 : kg_utf8_sequence(p, end - json->at, NULL);
        if (n == 0)
            return fault(json, json->at,
                         *p < 0x20 ? "a control character in a string"
                                   : "a string that is not UTF-8");
        memcpy(json->scratch + length, p, n);
        length += n;
        json->at += n;
    }
    json->at = end + 1;
    text->bytes = json->scratch;
    text->length = length;
    return KG_OK;
}

int kg_json_string(struct kg_json *json, struct kg_json_text *text)
{
    skip_space(json);
    if (json->at == json->size || json->text[json->at] != '"')
        return fault(json, json->at, "expected a string");
    size_t start = ++json->at;
    while (json->at < json->size) {
        const unsigned char *p = (const unsigned char *)json->text + json->at;
        if (*p == '"') {
            text->bytes = json->text + start;
            text->length = json->at - start;
            json->at++;
            return KG_OK;
        }
        if (*p == '\\')
            return escaped_string(json, start, text);
        if (*p < 0x20)
            return fault(json, json->at, "a control character in a string");
        size_t n = *p < 0x80 ? 1 : kg_utf8_sequence(p, json->size - json->at, NULL);
        if (n == 0)
            return fault(json, json->at, "a string that is not UTF-8");
        json->at += n;
    }
    return fault(json, start - 1, "a string that does not end");
}

static bool take(struct kg_json *json, const char *word)
{
    size_t length = strlen(word);
    if (json->size - json->at < length ||
        memcmp(json->text + json->at, word, length) != 0)
        return false;
    json->at += length;
    return true;
}

static size_t take_digits(struct kg_json *json)
{
    size_t start = json->at;
    while (json->at < json->size && is_digit(json->text[json->at]))
        json->at++;
    return json->at - start;
}

static bool python_number(struct kg_json *json, struct kg_json_number *number)
{
    if (!json->python)
        return false;
    number->integer = false;
    number->f64 = NAN;
    if (take(json, "NaN"))
        return true;
    number->f64 = INFINITY;
    if (take(json, "Infinity"))
        return true;
    number->f64 = -INFINITY;
    return take(json, "-Infinity");
}

int kg_json_number(struct kg_json *json, struct kg_json_number *number)
{
    skip_space(json);
    size_t start = json->at;
    if (python_number(json, number))
        return KG_OK;
    bool negative = take(json, "-");
    size_t first = json->at, digits = take_digits(json);
    if (digits == 0)
        return fault(json, start, "expected a number");
    if (digits > 1 && json->text[first] == '0')
        return fault(json, start, "a number with a leading zero");
    number->integer = true;
    int64_t value = 0;
    for (size_t i = first; i < first + digits; i++) {
        int digit = json->text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value)) {
            number->integer = false;
            break;
        }
    }
    if (take(json, ".")) {
        number->integer = false;
        if (take_digits(json) == 0)
            return fault(json, json->at, "expected a digit after the point");
    }
    if (take(json, "e") || take(json, "E")) {
        number->integer = false;
        if (!take(json, "+"))
            take(json, "-");
        if (take_digits(json) == 0)
            return fault(json, json->at, "expected a digit in the exponent");
    }
    number->i64 = number->integer ? value : 0;
    number->f64 = (double)number->i64;
    if (!number->integer) {
        /* strtod needs an end; a number longer than this is a fault of its own. */
        char copy[128];
        size_t length = json->at - start;
        if (length >= sizeof copy)
            return fault(json, start, "a number of more than 127 characters");
        memcpy(copy, json->text + start, length);
        copy[length] = '\0';
        number->f64 = strtod(copy, NULL);
    }
    return KG_OK;
}

int kg_json_literal(struct kg_json *json, int *value)
{
    skip_space(json);
    *value = take(json, "true")    ? 1
             : take(json, "false") ? 0
             : take(json, "null")  ? -1
                                   : -2;
    return *value == -2 ? fault(json, json->at, "expected true, false or null") : KG_OK;
}

static int skip(struct kg_json *json, int depth)
{
    struct kg_json_text text;
    struct kg_json_number number;
    int literal, kind = kg_json_peek(json);
    if (kind == '"')
        return kg_json_string(json, &text);
    if (kind == 0)
        return kg_json_number(json, &number);
    if (kind != '{' && kind != '[')
        return kind < 0 ? fault(json, json->at, "expected a value")
                        : kg_json_literal(json, &literal);
    if (depth == KG_JSON_MAX_DEPTH)
        return fault(json, json->at, "nested more than 32 deep");
    char close = kind == '{' ? '}' : ']';
    bool more = true;
    KG_TRY(kg_json_begin(json, (char)kind));
    for (size_t n = 0;; n++) {
        KG_TRY(kg_json_next(json, close, n, &more));
        if (!more)
            return KG_OK;
        if (kind == '{')
            KG_TRY(kg_json_key(json, &text));
        KG_TRY(skip(json, depth + 1));
    }
}

int kg_json_skip(struct kg_json *json)
{
    return skip(json, 0);
}

int kg_json_end(struct kg_json *json)
{
    skip_space(json);
    return json->at == json->size
               ? KG_OK
               : fault(json, json->at, "text after the end of the value");
}
