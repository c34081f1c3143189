/*
 * runner/escape.h: text that came from elsewhere, made fit for a terminal or a file name.
 */
#ifndef KG_RUNNER_ESCAPE_H
#define KG_RUNNER_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

#include "kgate/status.h"

/* Copies `text` with control characters, bytes that are not UTF-8, and the characters
   that reorder a line (C1, bidirectional marks) written as \xNN. Newlines and tabs become
   \n and \t. Cut to fit, never inside a character. Returns buffer. */
char *kg_escape(const char *text, size_t length, char *buffer, size_t size);

/* As kg_escape, of a NUL-terminated string (NULL reads as ""), in new memory. */
char *kg_escape_dup(const char *text);

/* Makes any bytes valid UTF-8 by replacing what is not with '?'; newlines and tabs stay,
   other control characters become '?'. For text that goes into JSON. New memory. */
char *kg_utf8_dup(const char *text, size_t length);

/* Terminal columns of a UTF-8 string: one a code point. */
size_t kg_columns(const char *text);

/* printf into new memory; exits when there is none. */
char *kg_format(const char *format, ...) KG_PRINTF(1, 2);

/* malloc, realloc, strdup that do not return NULL: without memory kgate cannot go on. */
void *kg_xrealloc(void *old, size_t bytes);
void *kg_xcalloc(size_t count, size_t bytes);
char *kg_xstrdup(const char *text);

/* Words for a shell: quoted with '...' where needed. Appended to a growing string. */
void kg_shell_word(FILE *out, const char *word);

#endif
