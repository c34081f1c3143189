#include "runner/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "runner/escape.h"

void kg_json_set_text(json_t *object, const char *key, const char *text)
{
    if (text == NULL)
        return;
    char *clean = kg_utf8_dup(text, strlen(text));
    json_object_set_new(object, key, json_string(clean));
    free(clean);
}
