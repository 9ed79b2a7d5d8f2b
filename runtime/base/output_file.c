/* output_file.c: atomic output by a temporary file and rename, for regular files. */
#include "base/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS = 40, NAMES = 100 };

/* The path of `name` in the folder of `path`. */
static char *beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash && name[0] != '/' ? (size_t)(slash - path) + 1 : 0, n = strlen(name);
    char *joined = malloc(folder + n + 1);
    if (joined) {
        memcpy(joined, path, folder);
        memcpy(joined + folder, name, n + 1);
    }
    return joined;
}

/* A link in /proc refers to an open file: its text need not be a path. */
static bool is_open_file(const struct stat *link)
{
    struct stat proc;
    return stat("/proc", &proc) == 0 && link->st_dev == proc.st_dev;
}

bool output_is_trusted(const char *path)
{
    struct stat st, folder;
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    const int n = slash ? snprintf(parent, sizeof parent, "%.*s", (int)(slash + 1 - path), path)
                        : snprintf(parent, sizeof parent, ".");
    const bool open = n < PATH_MAX && lstat(path, &st) == 0 && stat(parent, &folder) == 0 &&
                      (folder.st_mode & S_IWOTH) && ((folder.st_mode & S_ISVTX) || S_ISLNK(st.st_mode));
    return !open || st.st_uid == geteuid() || st.st_uid == folder.st_uid;
}

const char *output_reason(int reason)
{
    return reason == EPERM
               ? "Operation not permitted (in a directory where everyone may write, files and links "
                 "of other users are not written; choose another)"
               : strerror(reason);
}

char *output_follow(const char *path)
{
    char *at = strdup(path), text[PATH_MAX];
    struct stat st;
    for (int links = 0; at && lstat(at, &st) == 0 && S_ISLNK(st.st_mode) && !is_open_file(&st); links++) {
        ssize_t n = readlink(at, text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        const bool trusted = output_is_trusted(at);
        char *next = n > 0 && links < LINKS && trusted ? beside(at, text) : NULL;
        if (n > 0 && !next && errno != ENOMEM)
            errno = trusted ? ELOOP : EPERM;
        free(at);
        at = next;
    }
    return at;
}

/* Makes a new file in the target's folder; the kernel applies the umask. old NULL: the target does not
 * exist. */
static int open_part(OutputFile *o, const struct stat *old)
{
    char name[48];
    int fd = -1;
    for (int i = 0; fd < 0 && i < NAMES; i++) {
        snprintf(name, sizeof name, ".burst-%ld-%d", (long)getpid(), i);
        free(o->part);
        if (!(o->part = beside(o->target, name)))
            return -1;
        fd = open(o->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    if (fd >= 0 && old && (old->st_uid != geteuid() || old->st_gid != getegid()))
        /* without the right to do so, this user becomes the owner */
        (void)!fchown(fd, old->st_uid, old->st_gid);
    if (fd >= 0 && old)
        (void)!fchmod(fd, old->st_mode & 0777);
    return fd;
}

/* The descriptor of a path that is an open file of this process, such as /dev/stdout; -1: another path.
 * Opening it anew would write at another offset, over existing text. */
static int open_number(const char *path)
{
    int n, end = 0;
    if ((sscanf(path, "/proc/self/fd/%d%n", &n, &end) == 1 || sscanf(path, "/dev/fd/%d%n", &n, &end) == 1) &&
        end && !path[end])
        return n;
    return -1;
}

bool output_is_open(const char *path)
{
    char *target = output_follow(path);
    const bool open = target && open_number(target) >= 0;
    free(target);
    return open;
}

int output_append(const char *path)
{
    char *target = output_follow(path);
    const int number = target ? open_number(target) : -1;
    const bool trusted = target && output_is_trusted(target);
    if (!target)
        return -1;
    free(target);
    if (number >= 0)
        return fcntl(number, F_DUPFD_CLOEXEC, 3);
    if (!trusted)
        return errno = EPERM, -1;
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0666);
}

static int open_target(OutputFile *o, const char *path)
{
    struct stat st, link;
    bool there = stat(path, &st) == 0;
    o->target = output_follow(path);
    if (!o->target)
        return -1;
    if (open_number(o->target) >= 0)
        return fcntl(open_number(o->target), F_DUPFD_CLOEXEC, 3);
    if (!output_is_trusted(o->target))
        return errno = EPERM, -1;
    bool named = lstat(o->target, &link) != 0 || !S_ISLNK(link.st_mode);
    if (there && !(named && S_ISREG(st.st_mode)))
        return open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    if (there && access(o->target, W_OK) != 0)
        return -1;
    return open_part(o, there ? &st : NULL);
}

static int forget(OutputFile *o, int reason)
{
    free(o->part);
    free(o->target);
    *o = (OutputFile){0};
    errno = reason;
    return reason ? -1 : 0;
}

int output_open(OutputFile *o, const char *path)
{
    *o = (OutputFile){0};
    int fd = open_target(o, path);
    if (fd < 0)
        return forget(o, errno);
    o->file = fdopen(fd, "w");
    if (o->file)
        return 0;
    int reason = errno;
    close(fd);
    if (o->part)
        unlink(o->part);
    return forget(o, reason);
}

/* After an earlier failed write ferror() is set but errno is lost: writing one more byte fails for the same
 * reason. EIO if it succeeds, since data are missing. */
int output_flush(FILE *f)
{
    if (fflush(f) != 0)
        return errno;
    if (!ferror(f))
        return 0;
    return fputc('\n', f) == EOF || fflush(f) != 0 ? errno : EIO;
}

int output_close(OutputFile *o, bool keep)
{
    int reason = output_flush(o->file);
    if (keep && !reason && o->part && fsync(fileno(o->file)) != 0)
        reason = errno;
    if (fclose(o->file) != 0 && !reason)
        reason = errno;
    if (keep && !reason && o->part && rename(o->part, o->target) != 0)
        reason = errno;
    if (o->part && (!keep || reason))
        unlink(o->part);
    return forget(o, keep ? reason : 0);
}
