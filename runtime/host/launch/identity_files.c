/* identity_files.c: files that all ranks read and of which each host may have its own copy: sizes, and
 * hashes of pieces. */
#include "base/mix.h"
#include "host/launch/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 16 << 10, PIECES = 64 };

typedef struct Sum { uint64_t hash; long long bytes; int files; } Sum;

/* Returns NULL or the reason of a failure. */
static const char *hash_piece(int fd, off_t at, char *room, uint64_t *hash)
{
    ssize_t n = pread(fd, room, PIECE, at);
    if (n < 0)
        return strerror(errno);
    *hash = hash_bytes(*hash, room, (size_t)n);
    return NULL;
}

static const char *hash_pieces(int fd, off_t size, uint64_t *hash)
{
    const off_t most = (off_t)PIECE * PIECES, last = size - PIECE;
    const int pieces = size >= most ? PIECES : (int)((size + PIECE - 1) / PIECE);
    const char *reason = NULL;
    char *room = malloc(PIECE);
    if (!room)
        return strerror(ENOMEM);
    for (int i = 0; i < pieces && !reason; i++) /* the last piece of a large file is its end */
        reason = hash_piece(fd, size >= most ? (off_t)((double)last * i / (PIECES - 1)) : (off_t)i * PIECE,
                            room, hash);
    free(room);
    return reason;
}

/* Opened without waiting for a FIFO's writer. */
static const char *add_file(const char *path, Sum *sum)
{
    struct stat st;
    const char *reason = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, &st) != 0)
        reason = strerror(errno);
    else if (!S_ISREG(st.st_mode))
        reason = "it is not a regular file";
    else
        reason = hash_pieces(fd, st.st_size, &sum->hash);
    sum->hash = mix64(sum->hash + (uint64_t)st.st_size);
    sum->bytes += st.st_size;
    sum->files++;
    close(fd);
    return reason;
}

void identity_add_file(Identity *id, const char *name, const char *path)
{
    Sum sum = {.hash = 1};
    const char *reason = add_file(path, &sum);
    if (reason)
        identity_add(id, name, "cannot be read (%s)", reason);
    else
        identity_add(id, name, "%lld bytes (%016llx)", sum.bytes, (unsigned long long)sum.hash);
}

static int is_of_weights(const struct dirent *e)
{
    static const char *const ends[] = {".safetensors", ".json"};
    const size_t n = strlen(e->d_name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(e->d_name + n - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* the same in every locale */
}

void identity_add_folder(Identity *id, const char *name, const char *path)
{
    struct dirent **entry;
    Sum sum = {.hash = 1};
    const int count = scandir(path, &entry, is_of_weights, by_bytes);
    if (count < 0)
        return identity_add(id, name, "cannot be read (%s)", strerror(errno));
    for (int i = 0; i < count; i++) {
        char file[PATH_MAX];
        const char *at = entry[i]->d_name;
        sum.hash = hash_bytes(sum.hash, at, strlen(at));
        const char *reason = snprintf(file, sizeof file, "%s/%s", path, at) < PATH_MAX
                                 ? add_file(file, &sum)
                                 : strerror(ENAMETOOLONG);
        sum.hash = reason ? hash_bytes(sum.hash, reason, strlen(reason)) : sum.hash;
        free(entry[i]);
    }
    free(entry);
    identity_add(id, name, "%d files, %lld bytes (%016llx)", sum.files, sum.bytes,
                 (unsigned long long)sum.hash);
}
