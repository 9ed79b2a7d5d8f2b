/* json.c: see json.h. */
#include "files/json.h"

#include "base/escape.h"

#include <stdlib.h>

json_t *json_text(const char *text)
{
    char *escaped = escaped_utf8(text);
    json_t *json = escaped ? json_string(escaped) : NULL;
    free(escaped);
    return json;
}
