/* lock.c: one run per folder. Rank 0 locks the folder's .lock, which also names the holder. The
 * kernel (or a network file system's server) releases it when the process ends in any way; the file
 * remains. */
#include "files/lock.h"

#include "core/context.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOLDER = 512, HOST = 128, LOOKS = 25, LOOK_US = 20000 };

static int lock_path(BurstCtx *c, const char *directory, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/.lock", directory) < PATH_MAX)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "the path '%s' is too long", directory);
}

/* A lock of the open file, not of the process: closing another descriptor does not release it. */
static bool lock_file(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

/* ---- the holder ---- */

static void host_name(char name[HOST])
{
    if (gethostname(name, HOST) != 0)
        snprintf(name, HOST, "?");
    name[HOST - 1] = 0;
}

static bool name_holder(const BurstPlan *p, int fd)
{
    char text[HOLDER], host[HOST], since[32];
    time_t now = time(NULL);
    struct tm t;
    host_name(host);
    strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &t));
    int n = snprintf(text, sizeof text - 1, "process %d on %s since %s: %s (%s)", (int)getpid(), host, since,
                     program_invocation_name, p->source);
    n = n < (int)sizeof text - 2 ? n : (int)sizeof text - 2;
    text[n++] = '\n';
    return ftruncate(fd, 0) == 0 && write_at(fd, text, (size_t)n, 0);
}

/* Reads a whole line without control characters; otherwise empty. Opens the file anew each time: over a
 * network, only that shows what another host has written. */
static void read_holder(const char *path, char text[HOLDER])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, HOLDER - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    char *end = strchr(text, '\n');
    *(end ? end : text) = 0;
    for (char *s = text; *s; s++)
        if (*s < ' ' || *s > '~')
            *s = '?';
    if (fd >= 0)
        close(fd);
}

/* Whether the text is an earlier holder's, since the new one has not yet written. */
static bool has_ended(const char *text)
{
    char there[HOST], here[HOST];
    int pid;
    host_name(here);
    return sscanf(text, "process %d on %127s", &pid, there) == 2 && strcmp(there, here) == 0 &&
           kill(pid, 0) != 0 && errno == ESRCH;
}

static int held_by_another(BurstCtx *c, const char *directory, const char *path)
{
    char text[HOLDER];
    for (int look = 0; look < LOOKS; look++) {
        read_holder(path, text);
        if (*text && !has_ended(text))
            break;
        usleep(LOOK_US);
    }
    return burst_fail(c, BURST_E_IO, "another run is using the directory '%s': %s", directory,
                      *text ? text : "it has not written its name yet");
}

/* ---- taking the lock ---- */

/* A file opened for reading can be locked too, so whoever may not write it may not read it either. */
static void close_to_readers(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid())
        return;
    const mode_t writers = st.st_mode & 0222;
    (void)fchmod(fd, writers | writers << 1);
}

static bool is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

bool lock_stands(const char *directory, int fd)
{
    char path[PATH_MAX];
    struct stat held, there;
    if (snprintf(path, sizeof path, "%s/.lock", directory) >= (int)sizeof path || fstat(fd, &held) != 0 ||
        stat(path, &there) != 0)
        return false;
    return held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

int lock_take(BurstCtx *c, const BurstPlan *p, const char *directory, int *fd)
{
    char path[PATH_MAX];
    int status = BURST_OK;
    *fd = -1;
    BURST_TRY(lock_path(c, directory, path));
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0222);
    if (lock < 0)
        return io_failed(c, "write", path);
    close_to_readers(lock);
    if (!is_regular(lock))
        status = burst_fail(c, BURST_E_IO, "'%s' is not a regular file", path);
    /* its holder removed it just before it ended */
    else if (lock_file(lock) && !lock_stands(directory, lock))
        return close(lock), lock_take(c, p, directory, fd);
    else if (lock_file(lock))
        return *fd = lock, name_holder(p, lock) ? BURST_OK : io_failed(c, "write", path);
    else if (errno == EAGAIN || errno == EACCES)
        status = held_by_another(c, directory, path);
    else
        say_line("cannot lock '%s': %s; not checking whether another run writes to '%s'", path,
                 strerror(errno), directory);
    close(lock);
    return status;
}
