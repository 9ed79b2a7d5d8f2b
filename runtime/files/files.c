/* files.c: see files.h. */
#include "files/files.h"

#include "core/context.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int open_regular(BurstCtx *c, const char *path, off_t *bytes)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO may have no writer */
    if (fd < 0) {
        burst_fail(c, BURST_E_IO, "cannot read '%s': %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *bytes = st.st_size;
        return fd;
    }
    close(fd);
    burst_fail(c, BURST_E_IO, "cannot read '%s': it is not a regular file", path);
    return -1;
}

bool read_at(int fd, void *data, size_t bytes, off_t at)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, at);
        if (n == 0)
            errno = 0;
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        n = n < 0 ? 0 : n;
        to += n;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

int io_failed(BurstCtx *c, const char *what, const char *path)
{
    return burst_fail(c, BURST_E_IO, "cannot %s '%s': %s", what, path,
                      errno ? strerror(errno) : "the file is truncated");
}

int close_written(BurstCtx *c, int fd, bool written, const char *path)
{
    written = written && fsync(fd) == 0;
    int reason = errno;
    if (close(fd) != 0 && written) {
        reason = errno;
        written = false;
    }
    errno = reason;
    return written ? BURST_OK : io_failed(c, "write", path);
}

bool reserve(int fd, off_t bytes)
{
    struct statvfs s;
    int reserved;
    do
        reserved = fallocate(fd, 0, 0, bytes);
    while (reserved != 0 && errno == EINTR);
    if (reserved == 0 || errno != EOPNOTSUPP)
        return reserved == 0;
    if (fstatvfs(fd, &s) == 0 && s.f_bavail * s.f_frsize < (uint64_t)bytes)
        return errno = ENOSPC, false;
    return ftruncate(fd, bytes) == 0;
}

bool write_at(int fd, const void *data, size_t bytes, off_t at)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = pwrite(fd, from, bytes, at);
        if (n < 0 && errno != EINTR)
            return false;
        n = n < 0 ? 0 : n;
        from += n;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}
