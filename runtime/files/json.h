/* json.h: text of any bytes as JSON. */
#ifndef BURST_JSON_H
#define BURST_JSON_H

#include <jansson.h>

/* A path may be any bytes, and JSON is UTF-8: other bytes are written as \xNN. */
json_t *json_text(const char *text);

#endif
