/* import/import.h: `burstc import FOLDER`: the model that a Hugging Face folder's config.json describes. */
#ifndef BURST_IMPORT_H
#define BURST_IMPORT_H

#include "base/base.h"

bool import_folder(Diags *d, const char *folder, Text *out); /* false: errors are in d */

#endif
