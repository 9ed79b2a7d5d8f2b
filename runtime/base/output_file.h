/* output_file.h: a file that is written whole or stays as it was. For the compiler and for programs: no
 * BurstCtx. */
#ifndef BURST_OUTPUT_FILE_H
#define BURST_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* part NULL: written through. */
typedef struct OutputFile { FILE *file; char *part, *target; } OutputFile;

/* Opens `path` for writing; 0, or -1 with errno. Where there is nothing or a regular file, the text goes
 * to a temporary file beside it, and a symbolic link is followed first; a file keeps its mode. Devices,
 * FIFOs and open files by the names of /proc (as /dev/stdout is one) are written through. */
int output_open(OutputFile *o, const char *path);
/* Closes. keep: the temporary file takes its name, else it goes. 0, or -1 with errno: then the file is as
 * it was. */
int output_close(OutputFile *o, bool keep);
/* Flushes. 0, or errno of what failed, in this or in an earlier write to `f`. */
int output_flush(FILE *f);
/* Opens `path` to append to it, making it where it is missing, and changes nothing in it: a file
 * descriptor, or -1 with errno. */
int output_append(const char *path);
/* Whether the path is that of an open file of this process, as /dev/stdout is. */
bool output_is_open(const char *path);
/* Where symbolic links lead, whether there is anything or not; the caller's to free. NULL with errno; EPERM:
 * a link that is not trusted. */
char *output_follow(const char *path);
/* In a folder where everyone may write (/tmp), a link or a file of another user may be there so that this one
 * follows it, or writes what the other then owns. Trusted are those of this user and of the folder's owner,
 * as Linux has it for opening (fs.protected_symlinks, fs.protected_regular); and what is not there. */
bool output_is_trusted(const char *path);
/* errno as a text, with what would work. */
const char *output_reason(int reason);

#endif
