/*
 * runner/text.h: small parsers of values that a person typed, shared by the command line
 * and the YAML files. All are strict: no blanks, no sign where none makes sense, no
 * trailing bytes, no overflow.
 */
#ifndef KG_RUNNER_TEXT_H
#define KG_RUNNER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only. */
bool kg_text_u64(const char *text, uint64_t max, uint64_t *value);
/* "250ms", "30s", "10m", "2h", with an optional fraction ("1.5s"); a unit is required.
   More than zero, at most 7 days. */
bool kg_text_seconds(const char *text, double *seconds);
/* "512MiB", "8GiB", "64KiB", "1TiB"; a unit is required. More than zero. */
bool kg_text_bytes(const char *text, uint64_t *bytes);
/* [a-z0-9][a-z0-9_-]*, at most 64 characters: safe as part of a file name. */
bool kg_text_is_name(const char *text);
/* Valid UTF-8 (no overlong forms, no surrogates, no NUL). On failure *bad is the offset
   of the first bad byte. */
bool kg_text_is_utf8(const char *bytes, size_t size, size_t *bad);
/* The candidate (of a list that ends with NULL) nearest to `word`, if it is near enough
   that somebody may have meant it; else NULL. */
const char *kg_text_nearest(const char *word, const char *const *candidates);
/* malloc'ed printf; NULL only if memory is gone. */
char *kg_text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Copies for display: control characters as \xNN. Always terminates. Returns buffer. */
const char *kg_text_shown(const char *text, char *buffer, size_t size);

#endif
