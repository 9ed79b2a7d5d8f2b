/* listed.c: see listed.h. */
#include "data/listed.h"

#include "data/source.h"
#include "files/files.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool replace_end(const char *path, const char *end, char out[PATH_MAX])
{
    const size_t n = strlen(path);
    if (n < 4 || n >= PATH_MAX)
        return false;
    memcpy(out, path, n - 4);
    memcpy(out + n - 4, end, 5);
    return true;
}

/* Reads the first n bytes of a regular file. Returns false for other files, and shorter ones. */
static bool read_head(const char *path, void *head, size_t n)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_at(fd, head, n, 0);
    if (fd >= 0)
        close(fd);
    return is;
}

static bool is_index(const char *path)
{
    char magic[sizeof MEGATRON_MAGIC - 1];
    return read_head(path, magic, sizeof magic) && memcmp(magic, MEGATRON_MAGIC, sizeof magic) == 0;
}

bool source_pair(const char *path, char bin[PATH_MAX], char idx[PATH_MAX])
{
    const size_t n = strlen(path);
    const char *end = n > 4 ? path + n - 4 : "";
    return (strcmp(end, ".bin") == 0 || strcmp(end, ".idx") == 0) && replace_end(path, ".bin", bin) &&
           replace_end(path, ".idx", idx) && is_index(idx);
}

/* Token files of version 2 store the number of documents; a Megatron-LM index always lists them. */
Listed data_listed(const char *path, int raw)
{
    char bin[PATH_MAX], idx[PATH_MAX];
    unsigned char head[TOKENS_HEADER_2];
    if (access(path, R_OK) != 0)
        return LISTED_UNKNOWN;
    if (raw)
        return LISTED_NOT;
    if (source_pair(path, bin, idx))
        return LISTED_DOCUMENTS;
    const bool own = read_head(path, head, sizeof head) && memcmp(head, TOKENS_MAGIC, 8) == 0;
    return own && source_number(head + 8, 4) == 2 && source_number(head + 32, 8) ? LISTED_DOCUMENTS
                                                                                 : LISTED_NOT;
}
