/* import/import.h: Hugging Face folders at compile time: `burstc import FOLDER`, and the folder that
 * `weights` names. The rules are the runtime's (safetensors/safetensors.h), which checks again when it
 * runs. */
#ifndef BURST_IMPORT_H
#define BURST_IMPORT_H

#include "dsl.h"

struct BurstPlan;

/* Writes the model that the folder's config.json describes, compared with the headers of its weights if it
 * has any. share: the installed folder with stock files. Returns false with errors in d, one for each
 * mismatch. */
bool import_folder(Arena *a, Diags *d, const char *share, const char *folder, Text *out);
/* Compares the folder of `weights` with the model. Mismatches are an error with a note for each. Missing
 * folders or weights, and other masks, are warnings. */
void weights_check(Arena *a, Diags *d, const Program *p);
/* The model as programs get it, without offsets on ranks. */
const struct BurstPlan *model_plan(Arena *a, const Program *p);

#endif
