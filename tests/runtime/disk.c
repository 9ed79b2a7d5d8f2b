/* disk.c: a disk that fails. Preloaded (LD_PRELOAD): after DISK_CALLS calls that write, each process fails
 * writes of files with DISK_ERROR (ENOSPC, EIO), one time in DISK_ONE_IN, from the seed DISK_SEED;
 * DISK_KILL: it kills itself instead, the first time. A write may be cut short before it fails.
 * DISK_FSYNC_MS: an fsync takes so long.
 * Descriptors up to 2, anonymous memory and sockets are left alone. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long calls;

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* Of the process and the call, whatever the threads do. */
static bool strikes(void)
{
    const long call = atomic_fetch_add(&calls, 1), from = setting("DISK_CALLS", -1),
               one_in = setting("DISK_ONE_IN", 1);
    if (from < 0 || call < from)
        return false;
    if (getenv("DISK_KILL"))
        kill(getpid(), SIGKILL);
    uint64_t x = (uint64_t)setting("DISK_SEED", 1) * 0x9e3779b97f4a7c15u + (uint64_t)call;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return x % (uint64_t)one_in == 0;
}

static bool is_file(int fd)
{
    struct stat st;
    return fd > 2 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 0;
}

static int fail(void)
{
    errno = (int)setting("DISK_ERROR", ENOSPC);
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (is_file(fd) && strikes())
        return bytes > 1 && REAL(write)(fd, data, bytes / 2) < 0 ? -1 : fail();
    return REAL(write)(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (is_file(fd) && strikes())
        return bytes > 1 && REAL(pwrite)(fd, data, bytes / 2, at) < 0 ? -1 : fail();
    return REAL(pwrite)(fd, data, bytes, at);
}

int fsync(int fd)
{
    usleep((useconds_t)setting("DISK_FSYNC_MS", 0) * 1000);
    return strikes() ? fail() : REAL(fsync)(fd);
}

int rename(const char *from, const char *to)
{
    return strikes() ? fail() : REAL(rename)(from, to);
}

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    return strikes() ? fail() : REAL(fallocate)(fd, mode, at, bytes);
}

int mkdir(const char *path, mode_t mode)
{
    return strikes() ? fail() : REAL(mkdir)(path, mode);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return flags & O_CREAT && strikes() ? fail() : REAL(open)(path, flags, mode);
}
