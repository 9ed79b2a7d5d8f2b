/* folder_files.h: which files of a folder its user reads or writes, so that no other output replaces them.
 * Used by the compiler and by programs, so without BurstCtx. */
#ifndef BURST_FOLDER_FILES_H
#define BURST_FOLDER_FILES_H

#include <stdbool.h>
#include <sys/stat.h>

/* Files of a Hugging Face folder: weights, JSON, tokenizers, templates, code, licences and read-me files. */
bool is_weights_file(const char *name);
/* Files of a folder of checkpoints. */
bool is_checkpoint_file(const char *name);

bool same_inode(const struct stat *a, const struct stat *b);
/* Whether `path` is a file of the folder for which is_kept is true: by a name in it, existing or not, or by
 * a link to an existing one. */
bool folder_keeps(const char *folder, const char *path, bool (*is_kept)(const char *name));
#endif
