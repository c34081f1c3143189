#include "runner/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/utf8.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool kg_text_u64(const char *text, uint64_t max, uint64_t *value)
{
    uint64_t v = 0;
    if (!is_digit(*text))
        return false;
    for (; is_digit(*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    if (*text != '\0' || v > max)
        return false;
    *value = v;
    return true;
}

bool kg_text_seconds(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {
        {"ms", 1e-3  },
        {"s",  1.0   },
        {"m",  60.0  },
        {"h",  3600.0}
    };

    /* At most nine digits on either side of the point, so that the sums are exact. */
    double value = 0.0, place = 1.0;
    int digits = 0;
    for (; is_digit(*text); text++) {
        if (++digits > 9)
            return false;
        value = value * 10.0 + (*text - '0');
    }
    if (digits == 0)
        return false;
    if (*text == '.') {
        text++;
        digits = 0;
        for (; is_digit(*text); text++) {
            if (++digits > 9)
                return false;
            value = value * 10.0 + (*text - '0');
            place *= 10.0;
        }
        if (digits == 0)
            return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text, units[i].name) == 0) {
            double result = value / place * units[i].seconds;
            if (!(result > 0.0 && result <= 7.0 * 24 * 3600))
                return false;
            *seconds = result;
            return true;
        }
    }
    return false;
}

bool kg_text_bytes(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {
        {"KiB", 10},
        {"MiB", 20},
        {"GiB", 30},
        {"TiB", 40}
    };

    char number[21];
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = '\0';
    uint64_t value;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + n, units[i].name) != 0)
            continue;
        if (!kg_text_u64(number, UINT64_MAX >> units[i].shift, &value) || value == 0)
            return false;
        *bytes = value << units[i].shift;
        return true;
    }
    return false;
}

bool kg_text_is_name(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_");
    return n > 0 && n <= 64 && text[n] == '\0' && text[0] != '-' && text[0] != '_';
}

bool kg_text_is_utf8(const char *bytes, size_t size, size_t *bad)
{
    size_t at = 0;
    while (at < size) {
        size_t n = kg_utf8_sequence((const unsigned char *)bytes + at, size - at, NULL);
        if (n == 0 || bytes[at] == '\0') {
            *bad = at;
            return false;
        }
        at += n;
    }
    return true;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b; both short. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    enum { MAX = 40 };
    size_t rows[3][MAX + 1];
    if (na > MAX || nb > MAX)
        return MAX;
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    for (size_t i = 1; i <= na; i++) {
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[nb];
}

const char *kg_text_nearest(const char *word, const char *const *candidates)
{
    const char *best = NULL;
    size_t n = strlen(word), least = SIZE_MAX;
    for (; *candidates; candidates++) {
        size_t m = strlen(*candidates);
        size_t d = distance(word, n, *candidates, m);
        /* A third of the longer word may differ; a beginning of a word counts as near. */
        size_t limit = (n > m ? n : m) / 3;
        if (n >= 2 && n < m && strncmp(word, *candidates, n) == 0 && d > limit)
            d = limit;
        if (d <= limit && d < least) {
            least = d;
            best = *candidates;
        }
    }
    return best;
}

char *kg_text_format(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

const char *kg_text_shown(const char *text, char *buffer, size_t size)
{
    size_t at = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && at + 5 < size; p++) {
        if (*p < 0x20 || *p == 0x7f)
            at += (size_t)snprintf(buffer + at, size - at, "\\x%02x", *p);
        else
            buffer[at++] = (char)*p;
    }
    buffer[at] = '\0';
    return buffer;
}
