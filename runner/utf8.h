/*
 * runner/utf8.h: the one reader of UTF-8 (Unicode, table 3-7).
 */
#ifndef KG_RUNNER_UTF8_H
#define KG_RUNNER_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed sequence at p, of which `left` bytes can be read; 0 if there is
   none: overlong, a surrogate, past U+10FFFF, cut off. *code, which may be NULL, is set in
   the first case. */
static inline size_t kg_utf8_sequence(const unsigned char *p, size_t left, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80   ? 1
               : p[0] < 0xc2 ? 0
               : p[0] < 0xe0 ? 2
               : p[0] < 0xf0 ? 3
               : p[0] < 0xf5 ? 4
                             : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    if (code)
        *code = c;
    return n;
}

#endif
