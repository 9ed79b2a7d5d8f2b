/* files.h: files that ranks read and write. */
#ifndef BURST_FILES_H
#define BURST_FILES_H

#include "burst_context.h"

#include <sys/types.h>

/* To read: a file descriptor, or -1 with the error set. What is no regular file (a FIFO, a device) is
 * refused, not waited for. */
int open_regular(BurstCtx *c, const char *path, off_t *bytes);
/* false with errno 0: the file ends before. */
bool read_at(int fd, void *data, size_t bytes, off_t at);
/* An allreduce of all ranks after some of them have written or read files. Storage may need longer than the
 * time limit for an fsync; a rank that is lost or stopped ends the wait all the same. */
int await_files(BurstCtx *c, double *values, int count);
/* Whether all ranks have done something with files, of which each brings its status: its own failure, or that
 * another one failed. The job goes on until one of them returns from its body. */
int all_agree(BurstCtx *c, int status);
/* Reports "cannot <what> <path>: <errno's reason>"; errno 0: the file ends early. */
int io_failed(BurstCtx *c, const char *what, const char *path);
/* Closes a file. written: whether writing succeeded; else errno says why. On BURST_OK it is on the disk. */
int close_written(BurstCtx *c, int fd, bool written, const char *path);
/* Reserves a new file's space, so that a full disk fails before anything is written. If the file system
 * cannot reserve, its free space is compared. Returns false with errno. */
bool reserve(int fd, off_t bytes);
bool write_at(int fd, const void *data, size_t bytes, off_t at);

#endif
