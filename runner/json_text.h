/*
 * runner/json_text.h: untrusted text into JSON.
 */
#ifndef KG_RUNNER_JSON_TEXT_H
#define KG_RUNNER_JSON_TEXT_H

#include <jansson.h>

/* Sets object[key] to `text` with whatever is not UTF-8 replaced; NULL leaves it out. */
void kg_json_set_text(json_t *object, const char *key, const char *text);

#endif
