/* files.c: opening and reading files that may be anybody's. */
#include "core/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
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
