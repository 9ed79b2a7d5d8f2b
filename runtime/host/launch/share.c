/* share.c: ranks of one host share a region of memory, which the first of them makes. */
#include "base/plural.h"
#include "host/launch/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Share { int64_t pid, fd; } Share; /* by a host's first rank: the region is /proc/pid/fd/fd */

/* Numbers the ranks of this host; returns their number. */
static int find_locals(Rendezvous *m)
{
    int locals = 0;
    for (int i = 0; i < m->world; i++)
        m->local_of[i] = m->all[i].hello.host == m->all[m->rank].hello.host ? locals++ : -1;
    return locals;
}

bool make_region(Rendezvous *m, Region *r, int locals)
{
    size_t machine, arena = m->job->plan->arena_bytes, bytes = arena * (size_t)locals;
    if (!memory_suffices(bytes, &machine))
        return rendezvous_fail(
            m, BURST_E_MEMORY,
            "%d rank%s of %.2f GiB each need%s %.2f GiB of memory, but %s has %.2f GiB free", locals,
            plural(locals), (double)arena / (1 << 30), locals == 1 ? "s" : "", (double)bytes / (1 << 30),
            m->all[m->rank].hello.name, (double)machine / (1 << 30));
    return region_make(r, locals, arena) == 0 ||
           rendezvous_fail(m, BURST_E_MEMORY, "cannot allocate %.2f GiB of shared memory: %s",
                           (double)bytes / (1 << 30), strerror(errno));
}

/* A file of another size is not the region: the process number belongs to another host. */
static bool join_region(Region *r, const Share *s, int locals, size_t arena_bytes)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)s->pid, (long long)s->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd >= 0 && region_join(r, fd, locals, arena_bytes) == 0 && fstat(fd, &info) == 0 &&
           (size_t)info.st_size == r->bytes;
}

/* If any rank of a host cannot share memory, none of its ranks does. */
static bool share_or_not(Rendezvous *m, Region *r, bool ok)
{
    uint8_t mine = ok;
    if (!rendezvous_agree(m, &mine, sizeof mine, m->shares))
        return false;
    for (int i = 0; i < m->world; i++)
        for (int j = 0; j < m->world; j++)
            if (m->all[i].hello.host == m->all[j].hello.host && !m->shares[j])
                m->shares[i] = 0;
    if (m->shares[m->rank])
        return true;
    if (m->local_of[m->rank] == 0)
        say_line("ranks on %s cannot share memory; using TCP for their messages", m->all[m->rank].hello.name);
    region_free(r);
    for (int i = 0; i < m->world; i++)
        m->local_of[i] = i == m->rank ? 0 : -1;
    return make_region(m, r, 1);
}

/* A host's first rank without memory has said so: the others only end. */
static bool all_made(Rendezvous *m, const Share *all)
{
    for (int i = 0; i < m->world; i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first &= m->all[j].hello.host != m->all[i].hello.host;
        if (!first || all[i].fd >= 0)
            continue;
        m->told = i != m->rank;
        return rendezvous_fail(m, BURST_E_MEMORY,
                               "rank %d could not allocate the shared memory of the ranks on %s", i,
                               m->all[i].hello.name);
    }
    return true;
}

bool share_memory(Rendezvous *m, Region *r)
{
    Share *all = calloc((size_t)m->world, sizeof *all), mine = {getpid(), -1};
    int locals = find_locals(m), first = 0;
    while (m->local_of[first] != 0)
        first++;
    if (m->rank == first && make_region(m, r, locals))
        mine.fd = r->fd;
    bool ok = (all || rendezvous_fail(m, BURST_E_MEMORY, "out of memory for a list of %d rank%s", m->world,
                                      plural(m->world))) &&
              rendezvous_agree(m, &mine, sizeof mine, all) && all_made(m, all) &&
              share_or_not(m, r,
                           m->rank == first ||
                               join_region(r, &all[first], locals, m->job->plan->arena_bytes));
    free(all);
    return ok;
}

