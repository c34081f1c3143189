/*
 * runner/lines.h: the pieces of kgate's output, for progress.c and summary.c.
 */
#ifndef KG_RUNNER_LINES_H
#define KG_RUNNER_LINES_H

#include "runner/progress.h"

/* Parameters of the terminal's "select graphic rendition". */
#define KG_STYLE_RED "1;31"
#define KG_STYLE_GREEN "1;32"
#define KG_STYLE_YELLOW "33"
#define KG_STYLE_DIM "2"

/* In a style where colours are wanted. The text is kgate's own. */
void kg_line_paint(const struct kg_progress *p, const char *style, const char *text);
/* A text from elsewhere: escaped, and no more of it than a line can bear. */
void kg_line_text(const struct kg_progress *p, const char *text);
/* "  FAIL   ID  reason: detail" */
void kg_line_cell(const struct kg_progress *p, const struct kg_result_cell *cell);
/* --against: "         both fail" and what differs most; "" where there is nothing to say. */
void kg_line_against(const struct kg_progress *p, const struct kg_result_cell *cell);
/* "3 passed" unless n is 0, with ", " before all but the first. */
void kg_line_count(const struct kg_progress *p, bool *is_first, size_t n,
                   const char *word, const char *style);

#endif
