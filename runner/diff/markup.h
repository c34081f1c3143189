/*
 * runner/diff/markup.h: text of unknown origin, put into a page so that it stays text.
 *
 * All first make control characters, direction marks and broken UTF-8 visible (\xNN), as
 * runner/escape.h does, then what the format at hand gives a meaning. NULL prints nothing.
 */
#ifndef KG_RUNNER_DIFF_MARKUP_H
#define KG_RUNNER_DIFF_MARKUP_H

#include <stdio.h>

void kg_put_plain(FILE *out, const char *text);
/* For XML and HTML, in text and in attributes in double quotes. */
void kg_put_xml(FILE *out, const char *text);
/* For a table cell in Markdown. As code where that is possible. */
void kg_put_markdown(FILE *out, const char *text);
void kg_put_markdown_code(FILE *out, const char *text);
/* printf, of plain text only: padding to `columns` after `text`. */
void kg_put_padded(FILE *out, const char *text, size_t columns);

#endif
