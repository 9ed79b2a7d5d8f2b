/* folder_files.h: which files of a folder are read or written by whoever the folder is for, so that no other
 * output may take their place. For the compiler and for programs: no BurstCtx. */
#ifndef BURST_FOLDER_FILES_H
#define BURST_FOLDER_FILES_H

#include <stdbool.h>
#include <sys/stat.h>

/* Files of a Hugging Face folder: weights, JSON, tokenizers, templates, code, licences and read-me files. */
bool is_weights_file(const char *name);
/* Files of a folder of checkpoints. */
bool is_checkpoint_file(const char *name);

bool same_inode(const struct stat *a, const struct stat *b);
/* Whether `path` is a file of the folder that is_kept: by a name in it, whether there is one of that name or
 * not, or by any link to one that is there. */
bool folder_keeps(const char *folder, const char *path, bool (*is_kept)(const char *name));
#endif
