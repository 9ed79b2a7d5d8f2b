/* meet.c: ranks that torchrun, srun or a hand started find each other over TCP, without MPI.
 *
 * Rank 0 listens where the environment says (place.h); everyone tells it who he is and gets the table of all. Ranks of one
 * host then share memory as they do under mpirun, and each two ranks of different hosts get a connection (tcp.c). What the
 * ranks agree on in between goes through rank 0 (agree). */
#include "internal.h"
#include "place.h"
#include "socket.h"
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 64, LINE = 256, ADDRESSES = 8, MORE_IN_BACKLOG = 64 };
enum { GRACE_US = 300000, RETRY_US = 50000 };
static const uint64_t magic = 0x31544d5453525542; /* "BURSTMT1" where bytes are little-endian: another order is a stranger */
/* Seconds: the least time limit of the meeting, a stranger's to say hello, an answer's, and of rank 0 for those who come
 * late to an error. */
static const double least_limit = 5, greeting_limit = 2, answer_limit = 5, late_limit = 1;

typedef struct Hello { uint64_t magic, token, plan, host; int32_t rank, local; Address mesh; char name[NAME]; } Hello;
typedef struct Welcome { uint64_t magic, token; } Welcome; /* at once: the caller has found the right one */
typedef struct Answer { uint64_t magic; int32_t status; char text[ERROR_TEXT]; } Answer; /* when all have come */
typedef struct Share { int64_t pid, fd; } Share; /* of a host's first rank: the region is /proc/pid/fd/fd */

typedef struct Meeting {
    const Job *job;
    const Place *place;
    int world, rank;
    uint64_t token;
    double deadline;
    int listener, mesh_port; /* for ranks of other hosts */
    int star;     /* to rank 0; of rank 0 itself: where it listens */
    Address home; /* rank 0, as this rank reached it */
    int *guest;   /* [world] of rank 0: connections to the others, -1: not there */
    Hello *all;   /* [world] */
    uint8_t *shares; /* [world]: its host's ranks share memory */
    int *local_of;   /* [world] */
    int *mesh;       /* [world]: connections to ranks that share no memory with this one, else -1 */
    int status;
    bool told;    /* the error is rank 0's word, the same on all ranks */
    bool said;    /* the error is on stderr */
    char error[ERROR_TEXT];
} Meeting;

/* The first error stands. */
__attribute__((format(printf, 3, 4))) static bool fail(Meeting *m, int status, const char *format, ...)
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

static double meeting_limit(const Job *job)
{
    return job->timeout > least_limit ? job->timeout : least_limit;
}

static double soon(const Meeting *m, double seconds)
{
    double then = burst_seconds() + seconds;
    return then < m->deadline ? then : m->deadline;
}

static void describe_ports(const Place *p, char *text, size_t size)
{
    if (p->ports == 1)
        snprintf(text, size, "port %d (BURST_PORT)", p->port);
    else
        snprintf(text, size, "ports %d to %d", p->port, p->port + p->ports - 1);
}

/* ---- who I am ---- */
static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = mix64(h ^ (unsigned char)*text);
    return mix64(h + 1);
}

/* Processes with the same number can open each other's memory through /proc: one kernel, one name, one space of process
 * numbers. BURST_HOSTID keeps ranks apart, for tests. */
static uint64_t host_identity(char *name, size_t size)
{
    char boot[NAME] = "", space[NAME] = "";
    const char *apart = getenv("BURST_HOSTID");
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(boot, sizeof boot, f))
        boot[0] = 0;
    if (f)
        fclose(f);
    if (gethostname(name, size) != 0)
        snprintf(name, size, "unknown");
    name[size - 1] = 0;
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n < 0 ? 0 : n] = 0;
    return hash_text(hash_text(hash_text(hash_text(1, boot), name), space), apart ? apart : "");
}

/* What two programs must agree on to work together at all. */
static uint64_t plan_identity(const BurstPlan *p)
{
    const int64_t facts[] = {p->abi, p->world, p->data, p->group, p->sequence, p->max_tokens, p->layers, p->hidden, p->heads,
                             p->kv_heads, p->head_dim, p->ffn, p->vocab, p->unit_rows, p->table_count, (int64_t)p->arena_bytes};
    uint64_t h = 1;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        h = mix64(h + (uint64_t)facts[i]) + 1;
    return h;
}

static Hello my_hello(const Meeting *m)
{
    Hello h;
    memset(&h, 0, sizeof h); /* padding too: it goes over the wire */
    h.magic = magic;
    h.token = m->token;
    h.plan = plan_identity(m->job->plan);
    h.host = host_identity(h.name, sizeof h.name);
    h.rank = m->rank;
    h.local = m->place->local;
    h.mesh.port = (uint16_t)m->mesh_port;
    return h;
}

/* ---- rank 0 receives ---- */
/* True where the right rank 0 is there. */
static bool knock(Meeting *m, const Address *at, const Hello *h)
{
    Welcome w;
    int fd = socket_connect(at, soon(m, answer_limit));
    if (fd < 0)
        return false;
    double limit = soon(m, answer_limit);
    if (socket_write(fd, h, sizeof *h, limit) && socket_read(fd, &w, sizeof w, limit) && w.magic == magic &&
        w.token == m->token) {
        m->star = fd;
        m->home = *at;
        return true;
    }
    close(fd);
    return false;
}

/* A port that is taken may be taken by another rank 0 of this job: it learns of this one then, and tells all. */
static bool open_door(Meeting *m)
{
    char ports[LINE];
    int bound, reason = 0;
    const Hello h = my_hello(m);
    for (int i = 0; i < m->place->ports && m->star < 0; i++) {
        const Address here = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, .port = (uint16_t)(m->place->port + i)};
        m->star = socket_listen(here.port, m->world + MORE_IN_BACKLOG, &bound);
        reason = errno;
        if (m->star < 0 && knock(m, &here, &h))
            return fail(m, BURST_E_USAGE, "this process is not the only one that says it is rank 0");
    }
    describe_ports(m->place, ports, sizeof ports);
    return m->star >= 0 || fail(m, BURST_E_USAGE, "rank 0 cannot listen on %s: %s; BURST_PORT chooses another", ports,
                                strerror(reason));
}

static bool greet(Meeting *m, int fd, Hello *h)
{
    const Welcome w = {magic, m->token};
    double limit = burst_seconds() + greeting_limit;
    return socket_read(fd, h, sizeof *h, limit) && h->magic == magic && h->token == m->token &&
           socket_write(fd, &w, sizeof w, limit);
}

static bool admissible(Meeting *m, Hello *h)
{
    h->name[NAME - 1] = 0;
    if (h->rank < 0 || h->rank >= m->world)
        return fail(m, BURST_E_USAGE, "a process on %s says it is rank %d of %d", h->name, h->rank, m->world);
    if (h->rank == 0 || m->guest[h->rank] >= 0)
        return fail(m, BURST_E_USAGE, "two processes say they are rank %d, on %s and on %s", h->rank,
                    m->all[h->rank].name, h->name);
    if (h->plan != m->all[0].plan)
        return fail(m, BURST_E_USAGE, "rank %d on %s runs a program of another plan than rank 0", h->rank, h->name);
    return true;
}

static void give_answer(const Meeting *m, int fd)
{
    Answer a;
    memset(&a, 0, sizeof a);
    a.magic = magic;
    a.status = m->status;
    snprintf(a.text, sizeof a.text, "%s", m->error);
    double limit = burst_seconds() + answer_limit;
    if (socket_write(fd, &a, sizeof a, limit) && m->status == BURST_OK)
        socket_write(fd, m->all, (size_t)m->world * sizeof *m->all, limit);
}

/* One that came: 1 where it counts. A stranger is sent away, a rank that makes no sense told so. */
static int admit(Meeting *m, int fd, const Address *from)
{
    Hello h;
    if (!greet(m, fd, &h)) {
        close(fd);
        return 0;
    }
    if (!admissible(m, &h)) {
        give_answer(m, fd);
        close(fd);
        return 0;
    }
    memcpy(h.mesh.ip, from->ip, sizeof h.mesh.ip);
    m->all[h.rank] = h;
    m->guest[h.rank] = fd;
    return 1;
}

static bool name_missing(Meeting *m, double limit)
{
    char missing[LINE] = "";
    size_t used = 0;
    int count = 0;
    for (int i = 1; i < m->world; i++)
        if (m->guest[i] < 0 && count++ < 8)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used ? ", " : "", i);
    return fail(m, BURST_E_PEER, "after %.3g s (--timeout) there is no rank %s%s of the plan's %d", limit, missing,
                count > 8 ? ", ..." : "", m->world);
}

static bool check_locals(Meeting *m)
{
    for (int i = 0; i < m->world; i++)
        for (int j = 0; j < i; j++)
            if (m->all[i].host == m->all[j].host && m->all[i].local >= 0 && m->all[i].local == m->all[j].local)
                return fail(m, BURST_E_USAGE, "ranks %d and %d on %s both have LOCAL_RANK %d", j, i, m->all[i].name,
                            m->all[i].local);
    return true;
}

static void say(Meeting *m)
{
    if (!m->said)
        fprintf(stderr, "burst: %s\n", m->error);
    m->said = true;
}

/* After an error those who still come are told too, for a while. */
static bool receive_all(Meeting *m)
{
    double began = burst_seconds(), limit = m->deadline;
    m->all[0] = my_hello(m);
    for (int there = 1; there < m->world;) {
        Address from;
        bool failed = m->status != BURST_OK;
        int fd = socket_accept(m->star, limit, &from);
        if (fd < 0)
            return failed ? false : name_missing(m, m->deadline - began);
        there += admit(m, fd, &from);
        if (!failed && m->status != BURST_OK) {
            say(m); /* now: the first rank that ends may take its launcher's patience along */
            limit = soon(m, late_limit);
        }
    }
    return m->status == BURST_OK && check_locals(m);
}

static bool host_meeting(Meeting *m)
{
    bool ok = open_door(m) && receive_all(m);
    for (int i = 1; i < m->world; i++)
        if (m->guest[i] >= 0)
            give_answer(m, m->guest[i]);
    if (m->star >= 0)
        close(m->star);
    m->star = -1;
    return ok;
}

/* ---- the others come ---- */
static bool find_rank_0(Meeting *m, const Hello *h)
{
    Address at[ADDRESSES];
    char ports[LINE];
    const char *reason;
    double began = burst_seconds();
    describe_ports(m->place, ports, sizeof ports);
    do { /* a name may become known only when its host has started */
        int found = socket_resolve(m->place->master, at, ADDRESSES, &reason);
        for (int i = 0; i < found; i++)
            for (int port = 0; port < m->place->ports; port++) {
                at[i].port = (uint16_t)(m->place->port + port);
                if (knock(m, &at[i], h))
                    return true;
            }
        if (found > 0)
            reason = "nobody answers as rank 0 of this job";
        usleep(RETRY_US);
    } while (burst_seconds() < m->deadline);
    return fail(m, BURST_E_PEER, "rank %d found no rank 0 at %s, %s, in %.3g s (--timeout): %s", m->rank, m->place->master,
                ports, burst_seconds() - began, reason);
}

/* Rank 0 may have begun to wait after this rank. */
static bool attend_meeting(Meeting *m)
{
    const Hello h = my_hello(m);
    Answer a;
    if (!find_rank_0(m, &h))
        return false;
    double limit = burst_seconds() + meeting_limit(m->job) + answer_limit;
    if (!socket_read(m->star, &a, sizeof a, limit) || a.magic != magic)
        return fail(m, BURST_E_PEER, "rank %d lost rank 0 while the ranks met: %s", m->rank, strerror(errno));
    a.text[sizeof a.text - 1] = 0;
    m->told = a.status != BURST_OK;
    if (m->told)
        return fail(m, a.status, "%s", a.text);
    return socket_read(m->star, m->all, (size_t)m->world * sizeof *m->all, limit) ||
           fail(m, BURST_E_PEER, "rank %d lost rank 0 while the ranks met: %s", m->rank, strerror(errno));
}

/* Everyone's piece to everyone, through rank 0. all: [world] pieces. */
static bool agree(Meeting *m, const void *mine, size_t bytes, void *all)
{
    char *to = all;
    size_t whole = (size_t)m->world * bytes;
    memcpy(to + (size_t)m->rank * bytes, mine, bytes);
    if (m->rank > 0)
        return (socket_write(m->star, mine, bytes, m->deadline) && socket_read(m->star, all, whole, m->deadline)) ||
               fail(m, BURST_E_PEER, "rank %d lost rank 0 while the ranks met: %s", m->rank, strerror(errno));
    for (int i = 1; i < m->world; i++)
        if (!socket_read(m->guest[i], to + (size_t)i * bytes, bytes, m->deadline))
            return fail(m, BURST_E_PEER, "lost rank %d while the ranks met: %s", i, strerror(errno));
    for (int i = 1; i < m->world; i++)
        if (!socket_write(m->guest[i], all, whole, m->deadline))
            return fail(m, BURST_E_PEER, "lost rank %d while the ranks met: %s", i, strerror(errno));
    return true;
}

/* ---- memory of one host ---- */
/* Numbers the ranks of this host; how many. */
static int find_locals(Meeting *m)
{
    int locals = 0;
    for (int i = 0; i < m->world; i++)
        m->local_of[i] = m->all[i].host == m->all[m->rank].host ? locals++ : -1;
    return locals;
}

static bool make_region(Meeting *m, Region *r, int locals)
{
    size_t machine, arena = m->job->plan->arena_bytes, bytes = arena * (size_t)locals;
    if (!memory_suffices(bytes, &machine))
        return fail(m, BURST_E_MEMORY, "%d ranks of %.2f GiB each need %.2f GiB, and %s has %.2f GiB left", locals,
                    (double)arena / (1 << 30), (double)bytes / (1 << 30), m->all[m->rank].name, (double)machine / (1 << 30));
    return region_make(r, locals, arena) == 0 ||
           fail(m, BURST_E_MEMORY, "cannot make %.2f GiB of shared memory: %s", (double)bytes / (1 << 30), strerror(errno));
}

/* A file of another size is not what was meant: the number of the process is of another host after all. */
static bool join_region(Region *r, const Share *s, int locals, size_t arena_bytes)
{
    char path[NAME];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)s->pid, (long long)s->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd >= 0 && region_join(r, fd, locals, arena_bytes) == 0 && fstat(fd, &info) == 0 && (size_t)info.st_size == r->bytes;
}

/* Who found no memory to share is on its own, and so are all of its host. */
static bool share_or_not(Meeting *m, Region *r, bool ok)
{
    uint8_t mine = ok;
    if (!agree(m, &mine, sizeof mine, m->shares))
        return false;
    for (int i = 0; i < m->world; i++)
        for (int j = 0; j < m->world; j++)
            if (m->all[i].host == m->all[j].host && !m->shares[j])
                m->shares[i] = 0;
    if (m->shares[m->rank])
        return true;
    if (m->local_of[m->rank] == 0)
        fprintf(stderr, "burst: ranks of %s cannot share memory; their messages go through TCP\n", m->all[m->rank].name);
    region_free(r);
    for (int i = 0; i < m->world; i++)
        m->local_of[i] = i == m->rank ? 0 : -1;
    return make_region(m, r, 1);
}

/* A host's first rank without memory has said so: the others only end. */
static bool all_made(Meeting *m, const Share *all)
{
    for (int i = 0; i < m->world; i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first &= m->all[j].host != m->all[i].host;
        if (!first || all[i].fd >= 0)
            continue;
        m->told = i != m->rank;
        return fail(m, BURST_E_MEMORY, "rank %d could not make the memory of the ranks on %s", i, m->all[i].name);
    }
    return true;
}

static bool share_memory(Meeting *m, Region *r)
{
    Share *all = calloc((size_t)m->world, sizeof *all), mine = {getpid(), -1};
    int locals = find_locals(m), first = 0;
    while (m->local_of[first] != 0)
        first++;
    if (m->rank == first && make_region(m, r, locals))
        mine.fd = r->fd;
    bool ok = (all || fail(m, BURST_E_MEMORY, "no memory for a list of %d ranks", m->world)) &&
              agree(m, &mine, sizeof mine, all) && all_made(m, all) &&
              share_or_not(m, r, m->rank == first || join_region(r, &all[first], locals, m->job->plan->arena_bytes));
    free(all);
    return ok;
}

/* ---- connections between hosts ---- */
static bool apart(const Meeting *m, int i)
{
    return i != m->rank && m->local_of[i] < 0;
}

/* Rank 0 saw the others' addresses; of a rank of its own machine that may be one that means nothing elsewhere. */
static Address address_for_me(const Meeting *m, int i)
{
    Address a = m->all[i].mesh;
    if (i == 0 || (m->rank != 0 && address_is_loopback(&a) && !address_is_loopback(&m->home)))
        memcpy(a.ip, m->home.ip, sizeof a.ip);
    return a;
}

typedef struct Call { uint64_t magic, token; int64_t rank; } Call;

static bool call(Meeting *m, int i)
{
    const Call mine = {magic, m->token, m->rank};
    Address at = address_for_me(m, i);
    char where[ADDRESS_TEXT];
    address_describe(&at, where, sizeof where);
    m->mesh[i] = socket_connect(&at, m->deadline);
    return (m->mesh[i] >= 0 && socket_write(m->mesh[i], &mine, sizeof mine, m->deadline)) ||
           fail(m, BURST_E_PEER, "rank %d cannot connect to rank %d on %s (%s): %s", m->rank, i, m->all[i].name, where,
                strerror(errno));
}

static bool take_call(Meeting *m, int *left)
{
    Address from;
    Call theirs;
    int fd = socket_accept(m->listener, m->deadline, &from);
    if (fd < 0)
        return fail(m, BURST_E_PEER, "rank %d waits in vain for %d other ranks to connect: %s", m->rank, *left,
                    strerror(errno));
    bool ok = socket_read(fd, &theirs, sizeof theirs, burst_seconds() + greeting_limit) && theirs.magic == magic &&
              theirs.token == m->token && theirs.rank > m->rank && theirs.rank < m->world && apart(m, (int)theirs.rank) &&
              m->mesh[theirs.rank] < 0;
    if (ok)
        m->mesh[theirs.rank] = fd;
    else
        close(fd);
    *left -= ok;
    return true;
}

/* The higher rank calls; whoever is called need not listen yet: the kernel keeps the call. */
static bool connect_mesh(Meeting *m)
{
    int left = 0;
    uint8_t done = 1;
    for (int i = 0; i < m->world; i++)
        if (apart(m, i) && i < m->rank && !call(m, i))
            return false;
    for (int i = m->rank + 1; i < m->world; i++)
        left += apart(m, i);
    while (left > 0)
        if (!take_call(m, &left))
            return false;
    return agree(m, &done, sizeof done, m->shares); /* nobody begins before all are connected */
}

/* ---- all ---- */
static bool allocate(Meeting *m)
{
    size_t n = (size_t)m->world;
    m->guest = malloc(n * sizeof *m->guest);
    m->mesh = malloc(n * sizeof *m->mesh);
    m->local_of = malloc(n * sizeof *m->local_of);
    m->all = calloc(n, sizeof *m->all);
    m->shares = calloc(n, 1);
    if (!m->guest || !m->mesh || !m->local_of || !m->all || !m->shares)
        return fail(m, BURST_E_MEMORY, "no memory for a list of %d ranks", m->world);
    for (int i = 0; i < m->world; i++)
        m->guest[i] = m->mesh[i] = -1;
    m->listener = socket_listen(0, m->world + MORE_IN_BACKLOG, &m->mesh_port);
    return m->listener >= 0 || fail(m, BURST_E_PEER, "rank %d cannot listen for others: %s", m->rank, strerror(errno));
}

static bool meet(Meeting *m, Region *r)
{
    if (m->world == 1) {
        m->all[0] = my_hello(m);
        m->local_of[0] = 0;
        return make_region(m, r, 1);
    }
    if (!(m->rank == 0 ? host_meeting(m) : attend_meeting(m)))
        return false;
    m->deadline = burst_seconds() + meeting_limit(m->job); /* who came first may have used up his */
    return share_memory(m, r) && connect_mesh(m);
}

static void close_at(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* The meeting is over: only the mesh stays. */
static void leave(Meeting *m)
{
    for (int i = 0; m->guest && i < m->world; i++)
        close_at(m->guest[i]);
    close_at(m->star);
    close_at(m->listener);
    free(m->guest);
    free(m->all);
    free(m->shares);
}

/* Whoever failed first on this host says so, here and to the other hosts; the others leave it the time to. */
static int run_here(const Meeting *m, Region *r, const Remote *remote)
{
    bool first = false;
    catch_termination();
    int status = rank_run(m->job, r, m->rank, m->local_of, remote, &first);
    if (status == BURST_OK)
        return status;
    if (first) {
        tcp_tell_failure(remote, status, region_head(r)->text);
        fprintf(stderr, "burst: %s\n", region_head(r)->text);
        fflush(NULL);
    } else {
        usleep(GRACE_US);
    }
    return region_head(r)->code;
}

static int run_met(Meeting *m, Region *r)
{
    const Remote *remote = tcp_open(m->world, m->mesh);
    if (!remote) {
        fprintf(stderr, "burst: rank %d has no memory for %d connections\n", m->rank, m->world);
        return BURST_E_MEMORY;
    }
    int status = run_here(m, r, remote);
    tcp_close(remote);
    return status;
}

static bool world_fits(const Job *job)
{
    const BurstPlan *p = job->plan;
    const Place *at = job->place;
    bool slurm = at->launcher == BY_SLURM;
    if (at->world != p->world && place_speaks(at))
        fprintf(stderr, "burst: %s is %d, and the plan (%s) has %d ranks: start as many (%s%d), or regenerate\n",
                slurm ? "the number of the step's tasks (SLURM_NTASKS)" : "WORLD_SIZE", at->world, p->source, p->world,
                slurm ? "srun -n " : "torchrun --nproc-per-node times --nnodes: ", p->world);
    return at->world == p->world;
}

int met_job_run(const Job *job)
{
    static uint64_t jobs; /* of this process: a rank that is a job behind is a stranger */
    Meeting m = {.job = job, .place = job->place, .world = job->place->world, .rank = job->place->rank,
                 .listener = -1, .star = -1};
    Region r = {.fd = -1};
    if (!world_fits(job))
        return exit_code(BURST_E_USAGE);
    m.token = hash3(job->place->token, jobs++, 0);
    m.deadline = burst_seconds() + meeting_limit(job);
    bool ok = allocate(&m) && meet(&m, &r);
    leave(&m);
    if (!ok && (!m.told || place_speaks(job->place)))
        say(&m);
    int status = ok ? run_met(&m, &r) : m.status;
    for (int i = 0; !ok && m.mesh && i < m.world; i++)
        close_at(m.mesh[i]);
    region_free(&r);
    free(m.mesh);
    free(m.local_of);
    if (status != BURST_OK) { /* a device may still wait for a lost peer, and what its libraries do at exit would wait too */
        fflush(NULL);
        _exit(exit_code(status));
    }
    return 0;
}
