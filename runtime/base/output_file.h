/* output_file.h: files that are written whole or not changed. Used by the compiler and by programs, so
 * without BurstCtx. */
#ifndef BURST_OUTPUT_FILE_H
#define BURST_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* part NULL: written directly. */
typedef struct OutputFile { FILE *file; char *part, *target; } OutputFile;

/* Opens `path` for writing. Returns 0, or -1 with errno. For a regular or missing file, the text goes to a
 * temporary file in the same folder, after following symbolic links, and the file's mode is kept. Devices,
 * FIFOs and open files named in /proc (such as /dev/stdout) are written directly. */
int output_open(OutputFile *o, const char *path);
/* Closes. keep: renames the temporary file to the target; otherwise removes it. Returns 0, or -1 with errno:
 * then the target has not changed. */
int output_close(OutputFile *o, bool keep);
/* Flushes. Returns 0, or errno of a failure in this or an earlier write to `f`. */
int output_flush(FILE *f);
/* Opens `path` for appending, creating it if it is missing, without changing its contents. Returns a file
 * descriptor, or -1 with errno. */
int output_append(const char *path);
/* Whether the path is an open file of this process, such as /dev/stdout. */
bool output_is_open(const char *path);
/* The target of symbolic links, existing or not; the caller frees it. NULL with errno; EPERM: an untrusted
 * link. */
char *output_follow(const char *path);
/* In a world-writable folder (/tmp), another user may have placed a link or file so that this one follows it
 * or writes to it. Trusted are files of this user and of the folder's owner, as in Linux's rules
 * (fs.protected_symlinks, fs.protected_regular), and missing files. */
bool output_is_trusted(const char *path);
/* errno as a text, with advice. */
const char *output_reason(int reason);

#endif
