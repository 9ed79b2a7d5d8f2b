/* import/import.h: Hugging Face folders while a program is compiled: `burstc import FOLDER`, and the folder
 * that `weights` names. The rules are the runtime's (safetensors/safetensors.h), which looks again when it
 * runs. */
#ifndef BURST_IMPORT_H
#define BURST_IMPORT_H

#include "dsl.h"

struct BurstPlan;

/* The model that the folder's config.json describes, compared with the headers of its weights where it has
 * any. share: the installed folder, of stock files. False: errors are in d, one for each thing that does not
 * fit. */
bool import_folder(Arena *a, Diags *d, const char *share, const char *folder, Text *out);
/* Compares the folder of `weights` with the model: an error whose notes name all that does not fit. What
 * cannot be compared here (no folder, no weights in it) and other masks are warnings. */
void weights_check(Arena *a, Diags *d, const Program *p);
/* What programs are told of the model, but for where its parts lie on ranks. */
const struct BurstPlan *model_plan(Arena *a, const Program *p);

#endif
