/* rendezvous.c: the rounds of the rendezvous (rendezvous.h), and the job that follows. */
#include "host/launch/rendezvous.h"

#include "base/mix.h"
#include "base/plural.h"
#include "core/signals.h"
#include "host/launch/identity.h"
#include "host/net/tcp.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { GRACE_US = 300000 };
static const double least_limit = 5; /* seconds */

bool rendezvous_fail(Rendezvous *m, int status, const char *format, ...)
{
    va_list ap;
    if (m->status != BURST_OK)
        return false;
    m->status = status;
    va_start(ap, format);
    vsnprintf(m->error, sizeof m->error, format, ap);
    va_end(ap);
    return false;
}

double rendezvous_limit(const Job *job)
{
    return job->timeout > least_limit ? job->timeout : least_limit;
}

void rendezvous_say(Rendezvous *m)
{
    if (!m->said)
        say_line("%s", m->error);
    m->said = true;
}

bool rendezvous_agree(Rendezvous *m, const void *mine, size_t bytes, void *all)
{
    char *to = all;
    size_t whole = (size_t)m->world * bytes;
    memcpy(to + (size_t)m->rank * bytes, mine, bytes);
    if (m->rank > 0)
        return (socket_write(m->root, mine, bytes, m->deadline) &&
                socket_read(m->root, all, whole, m->deadline)) ||
               rendezvous_fail(m, BURST_E_PEER, "rank %d lost rank 0 during the rendezvous: %s", m->rank,
                               strerror(errno));
    for (int i = 1; i < m->world; i++)
        if (!socket_read(m->link[i], to + (size_t)i * bytes, bytes, m->deadline))
            return rendezvous_fail(m, BURST_E_PEER, "lost rank %d during the rendezvous: %s", i,
                                   strerror(errno));
    for (int i = 1; i < m->world; i++)
        if (!socket_write(m->link[i], all, whole, m->deadline))
            return rendezvous_fail(m, BURST_E_PEER, "lost rank %d during the rendezvous: %s", i,
                                   strerror(errno));
    return true;
}

/* ---- the identity of all ranks ---- */
typedef struct Verdict { int32_t status; char text[ERROR_TEXT]; } Verdict;

static bool plan_fits(Rendezvous *m)
{
    char text[ERROR_TEXT];
    const int status = identity_plan_fits(m->job, m->world, text, sizeof text);
    m->told = status != BURST_OK; /* all ranks know the status */
    return status == BURST_OK || rendezvous_fail(m, status, "%s", text);
}

/* Rank 0 compares, reports the difference, and tells the others. */
static bool judge(Rendezvous *m, const Identity *mine, char *all)
{
    Verdict v = {0};
    memcpy(all, mine->text, IDENTITY_TEXT);
    for (int i = 1; i < m->world; i++)
        if (!socket_read(m->link[i], all + (size_t)i * IDENTITY_TEXT, IDENTITY_TEXT, m->deadline))
            return rendezvous_fail(m, BURST_E_PEER, "lost rank %d during the rendezvous: %s", i,
                                   strerror(errno));
    if (!identities_equal(all, m->world, v.text, sizeof v.text)) {
        rendezvous_fail(m, v.status = BURST_E_USAGE, "%s", v.text);
        rendezvous_say(m); /* before the first rank ends, after which its launcher may end the others */
    }
    for (int i = 1; i < m->world; i++)
        if (!socket_write(m->link[i], &v, sizeof v, m->deadline))
            return rendezvous_fail(m, BURST_E_PEER, "lost rank %d during the rendezvous: %s", i,
                                   strerror(errno));
    return m->status == BURST_OK;
}

static bool hear_verdict(Rendezvous *m, const Identity *mine)
{
    Verdict v;
    if (!socket_write(m->root, mine->text, IDENTITY_TEXT, m->deadline) ||
        !socket_read(m->root, &v, sizeof v, m->deadline))
        return rendezvous_fail(m, BURST_E_PEER, "rank %d lost rank 0 during the rendezvous: %s", m->rank,
                               strerror(errno));
    if (v.status == BURST_OK)
        return true;
    escape_text(v.text, sizeof v.text);
    m->told = true;
    return rendezvous_fail(m, is_status(v.status) ? v.status : BURST_E_PEER, "%s", v.text);
}

static bool compare_identities(Rendezvous *m)
{
    Identity *mine = malloc(sizeof *mine);
    char *all = m->rank == 0 ? malloc((size_t)m->world * IDENTITY_TEXT) : NULL;
    bool ok = mine && (all || m->rank > 0);
    if (ok)
        identity_make(mine, m->job);
    else
        rendezvous_fail(m, BURST_E_MEMORY, "out of memory for a list of %d rank%s", m->world,
                        plural(m->world));
    ok = ok && (m->rank == 0 ? judge(m, mine, all) : hear_verdict(m, mine));
    free(mine);
    free(all);
    return ok && plan_fits(m);
}

/* ---- all ---- */
/* Connections to all ranks and to strangers may exceed a shell's usual limit of open files. */
static void permit_files(int world)
{
    struct rlimit files;
    rlim_t wanted = 2 * (rlim_t)world + MORE_CALLERS + 256;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted)
        return;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &files);
}

static bool allocate(Rendezvous *m)
{
    size_t n = (size_t)m->world;
    m->link = malloc(n * sizeof *m->link);
    m->mesh = malloc(n * sizeof *m->mesh);
    m->local_of = malloc(n * sizeof *m->local_of);
    m->all = calloc(n, sizeof *m->all);
    m->shares = calloc(n, 1);
    if (!m->link || !m->mesh || !m->local_of || !m->all || !m->shares)
        return rendezvous_fail(m, BURST_E_MEMORY, "out of memory for a list of %d rank%s", m->world,
                               plural(m->world));
    for (int i = 0; i < m->world; i++)
        m->link[i] = m->mesh[i] = -1;
    permit_files(m->world);
    return true;
}

static bool rendezvous(Rendezvous *m, Region *r)
{
    if (m->world == 1) {
        if (!plan_fits(m))
            return false;
        member_introduce(m, &m->all[0].hello);
        m->local_of[0] = 0;
        return make_region(m, r, 1);
    }
    if (!members_gather(m))
        return false;
    /* the first ranks may have used up their own time */
    m->deadline = burst_seconds() + rendezvous_limit(m->job);
    return compare_identities(m) && share_memory(m, r) && connect_mesh(m);
}

static void close_at(int fd)
{
    if (fd >= 0)
        close(fd);
}

void close_listeners(Rendezvous *m)
{
    while (m->listeners > 0)
        close(m->listener[--m->listeners]);
}

/* Closes everything but the mesh. */
static void leave(Rendezvous *m)
{
    for (int i = 0; m->link && i < m->world; i++)
        close_at(m->link[i]);
    close_at(m->root);
    close_listeners(m);
    free(m->link);
    free(m->all);
    free(m->shares);
}

/* The rank of this host that failed first reports, here and to the other hosts; the others give it time. */
static int run_here(const Rendezvous *m, Region *r, const Remote *remote)
{
    bool first = false;
    catch_termination();
    int status = rank_run(m->job, r, m->rank, m->local_of, remote, &first);
    if (status == BURST_OK)
        return status;
    if (first) {
        tcp_tell_failure(remote, status, region_head(r)->text);
        say_line("%s", region_head(r)->text);
        fflush(NULL);
    } else {
        usleep(GRACE_US);
    }
    return region_head(r)->code;
}

static int run_connected(Rendezvous *m, Region *r)
{
    const Remote *remote = tcp_open(m->world, m->mesh);
    if (!remote) {
        fprintf(stderr, "burst: rank %d is out of memory for %d connections\n", m->rank, m->world);
        return BURST_E_MEMORY;
    }
    int status = run_here(m, r, remote);
    tcp_close(remote);
    return status;
}

/* The key is derived from BURST_SECRET (or nothing) and the launcher's description of the job. `number`
 * counts this process's jobs: a rank that is at another one is refused. */
static void choose_key(Rendezvous *m, uint64_t number)
{
    uint64_t job = hash3(m->place->token, number, 0);
    derive_key(m->key, m->place->secret, strlen(m->place->secret), "burst rendezvous", &job, sizeof job);
}

/* The name of the Unix sockets; never 0. Anyone who knows it in advance could take it: with a secret it is
 * unknown, and BURST_PORT changes it. */
static uint64_t choose_name(const Rendezvous *m)
{
    const int32_t of[] = {(int32_t)geteuid(), m->place->ports == 1 ? m->place->port : 0};
    uint8_t name[KEY_BYTES];
    uint64_t number;
    derive_key(name, m->key, sizeof m->key, "burst name", of, sizeof of);
    memcpy(&number, name, sizeof number);
    return number | 1;
}

int rendezvous_job_run(const Job *job)
{
    static uint64_t jobs; /* of this process */
    Rendezvous m = {
        .job = job, .place = job->place, .world = job->place->world, .rank = job->place->rank, .root = -1};
    Region r = {.fd = -1};
    choose_key(&m, jobs++);
    m.name = choose_name(&m);
    m.deadline = burst_seconds() + rendezvous_limit(job);
    bool ok = allocate(&m) && rendezvous(&m, &r);
    leave(&m);
    if (!ok && (!m.told || place_speaks(job->place)))
        rendezvous_say(&m);
    int status = ok ? run_connected(&m, &r) : m.status;
    for (int i = 0; !ok && m.mesh && i < m.world; i++)
        close_at(m.mesh[i]);
    region_free(&r);
    free(m.mesh);
    free(m.local_of);
    /* a device may still wait for a lost peer, and its libraries would wait for it at exit */
    if (status != BURST_OK) {
        fflush(NULL);
        _exit(exit_code(status));
    }
    return 0;
}
