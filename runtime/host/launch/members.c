/* members.c: rank 0 collects all ranks and sends them the table; the others connect to it. */
#include "base/mix.h"
#include "host/launch/identity.h"
#include "host/launch/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256 };
/* Seconds: for an answer; for rank 0 to answer those who arrive after an error, and a rival that holds the
 * only port; and between two look-ups of a name. */
static const double answer_limit = 5, late_limit = 1, rival_limit = 1, resolve_again = 1;

typedef struct Answer { /* sent when all have arrived; followed by the table on success */
    int32_t status;
    uint8_t nonce[KEY_BYTES]; /* for the key of the mesh */
    char text[ERROR_TEXT];
} Answer;

static double soon(const Rendezvous *m, double seconds)
{
    double then = burst_seconds() + seconds;
    return then < m->deadline ? then : m->deadline;
}

/* ---- this process ---- */
/* Processes with the same number can open each other's memory through /proc: they share a kernel, a host
 * name and a PID namespace. BURST_HOSTID separates ranks, for tests. */
static uint64_t host_identity(char *name, size_t size)
{
    char boot[HOST_NAME] = "", space[HOST_NAME] = "";
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
    const char *const facts[] = {boot, name, space, apart ? apart : ""};
    uint64_t h = 1;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        h = hash_bytes(h, facts[i], strlen(facts[i]));
    return h;
}

void member_introduce(const Rendezvous *m, Hello *h)
{
    *h = (Hello){.rank = m->rank, .local = m->place->local};
    h->host = host_identity(h->name, sizeof h->name);
    if (!random_bytes(&h->instance, sizeof h->instance))
        h->instance = hash3((uint64_t)getpid(), (uint64_t)(burst_seconds() * 1e9), 0);
}

/* ---- the address of rank 0 ---- */
static void describe_place(const Place *p, char *text, size_t size)
{
    if (p->one_host)
        snprintf(text, size, "on this host");
    else if (p->ports == 1)
        snprintf(text, size, "at %s, port %d (BURST_PORT)", p->master, p->port);
    else
        snprintf(text, size, "at %s, ports %d to %d", p->master, p->port, p->port + p->ports - 1);
}

/* Reads the addresses from the environment; the port is set later. Returns their number, or -1 with the
 * reason. */
static int find_addresses(const Rendezvous *m, Address *at, const char **reason)
{
    if (!m->place->one_host)
        return socket_resolve(m->place->master, at, ADDRESSES, reason);
    *at = (Address){.unix_name = m->name};
    return 1;
}

static Address with_port(const Rendezvous *m, Address at, int number)
{
    at.port = (uint16_t)(at.unix_name ? 1 + number : m->place->port + number);
    return at;
}

/* A host name may resolve to loopback on its own host, as some distributions write into /etc/hosts, and to
 * another address elsewhere. */
static bool says_loopback(const char *master)
{
    Address at;
    const char *reason;
    struct in6_addr number;
    bool is_number = inet_pton(AF_INET, master, &number) == 1 || inet_pton(AF_INET6, master, &number) == 1;
    return (is_number || strcmp(master, "localhost") == 0) && socket_resolve(master, &at, 1, &reason) == 1 &&
           address_is_loopback(&at);
}

/* ---- rank 0 listens ---- */
/* Listens on one port of all addresses of this host. Returns 0 or an errno; EADDRNOTAVAIL: no address is
 * this host's. */
static int listen_on_port(Rendezvous *m, const Address *at, int count, int number)
{
    int reason = 0;
    for (int i = 0; i < count && !reason; i++) {
        Address here = with_port(m, at[i], number), bound;
        int fd = socket_listen(&here, m->world + MORE_CALLERS, &bound);
        if (fd >= 0)
            m->listener[m->listeners++] = fd;
        else if (errno != EADDRNOTAVAIL)
            reason = errno;
    }
    if (reason)
        close_listeners(m);
    if (reason)
        return reason;
    return m->listeners ? 0 : EADDRNOTAVAIL;
}

/* A taken port may belong to another rank 0 of this job: dials it, so that it learns about this one. */
static int listen_at(Rendezvous *m, Handshakes *g, const Address *at, int count)
{
    int reason = EADDRNOTAVAIL;
    for (int i = 0; i < (at->unix_name ? RENDEZVOUS_PORTS : m->place->ports); i++) {
        reason = listen_on_port(m, at, count, i);
        if (reason == 0 || reason == EADDRNOTAVAIL)
            break;
        Address taken = with_port(m, at[0], i);
        handshakes_dial(g, &taken, 0);
    }
    return reason;
}

/* If the name's address is not this host's own, as behind NAT, calls may arrive at any address. */
static int listen_everywhere(Rendezvous *m, Handshakes *g, const char *why)
{
    const Address any = {0};
    say_line("rank 0 listens on all interfaces, because MASTER_ADDR (%s) %s", m->place->master, why);
    return listen_at(m, g, &any, 1);
}

static int listen_where_told(Rendezvous *m, Handshakes *g)
{
    Address at[ADDRESSES];
    const char *reason = "";
    int count = find_addresses(m, at, &reason);
    if (count < 0)
        return listen_everywhere(m, g, reason);
    for (int i = 0; i < count; i++)
        if (address_is_loopback(&at[i]) && !says_loopback(m->place->master))
            return listen_everywhere(m, g, "is a loopback address here");
    int error = listen_at(m, g, at, count);
    return error == EADDRNOTAVAIL ? listen_everywhere(m, g, "is not an address of this host") : error;
}

static bool rival(Rendezvous *m)
{
    return rendezvous_fail(m, BURST_E_USAGE, "another process also claims to be rank 0");
}

static bool open_listeners(Rendezvous *m, Handshakes *g)
{
    char where[LINE + MASTER_TEXT];
    Connected who;
    int reason = listen_where_told(m, g);
    g->listener = m->listener;
    g->listeners = m->listeners;
    if (reason == 0)
        return true;
    if (g->dials && handshakes_next(g, soon(m, rival_limit), &who)) {
        close(who.fd);
        return rival(m);
    }
    describe_place(m->place, where, sizeof where);
    return rendezvous_fail(m, BURST_E_USAGE, "rank 0 cannot listen %s: %s; %s", where, strerror(reason),
                           m->place->one_host ? "set BURST_SECRET or BURST_PORT to use another name"
                                              : "set BURST_PORT to use another port");
}

/* ---- rank 0 receives ---- */
static bool admissible(Rendezvous *m, const Hello *h)
{
    if (h->rank < 0 || h->rank >= m->world)
        return rendezvous_fail(m, BURST_E_USAGE, "a process on %s claims to be rank %d of %d", h->name,
                               h->rank, m->world);
    bool again = m->link[h->rank] >= 0 && h->instance == m->all[h->rank].hello.instance;
    if (h->rank == 0 || (m->link[h->rank] >= 0 && !again))
        return rendezvous_fail(m, BURST_E_USAGE, "two processes claim to be rank %d, on %s and on %s",
                               h->rank, m->all[h->rank].hello.name, h->name);
    return true;
}

static void give_answer(const Rendezvous *m, int fd, const uint8_t nonce[KEY_BYTES], double limit)
{
    Answer a;
    memset(&a, 0, sizeof a);
    a.status = m->status;
    memcpy(a.nonce, nonce, sizeof a.nonce);
    snprintf(a.text, sizeof a.text, "%s", m->error);
    if (socket_write(fd, &a, sizeof a, limit) && m->status == BURST_OK)
        socket_write(fd, m->all, (size_t)m->world * sizeof *m->all, limit);
}

/* Returns 1 if a new rank arrived. An inconsistent one is told so. */
static int admit(Rendezvous *m, const Connected *who)
{
    static const uint8_t none[KEY_BYTES];
    const int rank = who->hello.rank;
    if (who->dialled || !admissible(m, &who->hello)) {
        if (who->dialled)
            rival(m);
        else
            give_answer(m, who->fd, none, burst_seconds() + late_limit);
        close(who->fd);
        return 0;
    }
    const bool again = m->link[rank] >= 0;
    if (again)
        close(m->link[rank]);
    m->all[rank] = (Member){.hello = who->hello, .at = who->at};
    m->link[rank] = who->fd;
    return !again;
}

static void describe_strangers(const Handshakes *g, char *text, size_t size)
{
    char where[ADDRESS_TEXT];
    *text = 0;
    address_describe(&g->stranger, where, sizeof where);
    if (g->refused)
        snprintf(text, size,
                 "; refused %d other connections, the last from %s, without the job's secret (BURST_SECRET)",
                 g->refused, where);
}

static bool name_missing(Rendezvous *m, const Handshakes *g)
{
    char missing[LINE] = "", strangers[LINE], where[LINE + MASTER_TEXT];
    size_t used = 0;
    int count = 0;
    for (int i = 1; i < m->world; i++)
        if (m->link[i] < 0 && count++ < 8)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used ? ", " : "", i);
    const int status = identity_plan_fits(m->job, m->world, where, sizeof where);
    if (status != BURST_OK) /* its status most likely explains the failure */
        return rendezvous_fail(m, status, "%s", where);
    describe_place(m->place, where, sizeof where);
    describe_strangers(g, strangers, sizeof strangers);
    return rendezvous_fail(
        m, BURST_E_PEER,
        "timed out after %.3g s (see --timeout), waiting for rank %s%s of %d; rank 0 listens %s%s",
        rendezvous_limit(m->job), missing, count > 8 ? ", ..." : "", m->world, where, strangers);
}

static bool check_locals(Rendezvous *m)
{
    for (int i = 0; i < m->world; i++)
        for (int j = 0; j < i; j++) {
            const Hello *a = &m->all[j].hello, *b = &m->all[i].hello;
            if (a->host == b->host && a->local >= 0 && a->local == b->local)
                return rendezvous_fail(m, BURST_E_USAGE, "ranks %d and %d on %s both have LOCAL_RANK %d", j,
                                       i, b->name, b->local);
        }
    return true;
}

/* After an error, also tells ranks that arrive within a while. */
static bool receive_all(Rendezvous *m, Handshakes *g)
{
    double limit = m->deadline;
    for (int there = 1; there < m->world;) {
        Connected who;
        bool failed = m->status != BURST_OK;
        if (!handshakes_next(g, limit, &who)) {
            if (failed)
                return false;
            return errno == ETIMEDOUT
                       ? name_missing(m, g)
                       : rendezvous_fail(m, BURST_E_PEER, "rank 0 cannot accept connections: %s",
                                         strerror(errno));
        }
        there += admit(m, &who);
        if (!failed && m->status != BURST_OK) {
            rendezvous_say(m); /* before the first rank ends, after which its launcher may end the others */
            limit = soon(m, late_limit);
        }
    }
    return m->status == BURST_OK && check_locals(m);
}

/* Ranks of this host may have connected over loopback, which is useless elsewhere: they get the address at
 * which others reach rank 0. */
static void complete_addresses(Rendezvous *m)
{
    Address reached = {0};
    for (int i = 1; i < m->world && !reached.port; i++) {
        Address at = socket_name(m->link[i]);
        if (!at.unix_name && !address_is_loopback(&at))
            reached = at;
    }
    m->all[0].at = socket_name(m->link[1]);
    for (int i = 0; i < m->world && reached.port; i++)
        if (address_is_loopback(&m->all[i].at))
            m->all[i].at = reached;
}

static bool host_members(Rendezvous *m, Handshakes *g)
{
    uint8_t nonce[KEY_BYTES] = {0};
    m->all[0].hello = g->mine;
    bool ok = open_listeners(m, g) && receive_all(m, g);
    if (ok && !random_bytes(nonce, sizeof nonce))
        ok = rendezvous_fail(m, BURST_E_PEER, "rank 0 cannot get random bytes: %s", strerror(errno));
    if (ok)
        complete_addresses(m);
    derive_key(m->mesh_key, m->key, sizeof m->key, "burst mesh", nonce, sizeof nonce);
    double limit = burst_seconds() + answer_limit;
    for (int i = 1; i < m->world; i++)
        if (m->link[i] >= 0)
            give_answer(m, m->link[i], nonce, limit);
    return ok;
}

/* ---- the other ranks ---- */
/* Retries the look-up: a name may be unknown until its host has started. */
static bool dial_rank_0(Rendezvous *m, Handshakes *g, Connected *out, const char **reason)
{
    Address at[ADDRESSES];
    int found = find_addresses(m, at, reason),
        ports = m->place->one_host ? RENDEZVOUS_PORTS : m->place->ports;
    g->dials = 0;
    if (found > 0)
        *reason = "no answer";
    for (int i = 0; i < found; i++)
        for (int port = 0; port < ports; port++) {
            Address there = with_port(m, at[i], port);
            handshakes_dial(g, &there, 0);
        }
    return handshakes_next(g, found > 0 ? m->deadline : soon(m, resolve_again), out);
}

static bool find_rank_0(Rendezvous *m, Handshakes *g)
{
    char where[LINE + MASTER_TEXT], impostor[LINE] = "", at[ADDRESS_TEXT], after[LINE] = "";
    const char *reason = "";
    Connected who;
    g->first_only = true;
    while (!dial_rank_0(m, g, &who, &reason)) {
        if (errno == ETIMEDOUT && burst_seconds() < m->deadline)
            continue;
        if (errno != ETIMEDOUT)
            reason = strerror(errno);
        else
            snprintf(after, sizeof after, " after %.3g s (see --timeout)", rendezvous_limit(m->job));
        describe_place(m->place, where, sizeof where);
        address_describe(&g->impostor_at, at, sizeof at);
        if (g->impostor)
            snprintf(impostor, sizeof impostor,
                     "; the process at %s belongs to another job or has a different secret (BURST_SECRET)",
                     at);
        return rendezvous_fail(m, BURST_E_PEER, "rank %d cannot reach rank 0 %s%s: %s%s", m->rank, where,
                               after, reason, impostor);
    }
    m->root = who.fd;
    m->root_at = who.at;
    return true;
}

static bool lost_rank_0(Rendezvous *m)
{
    return rendezvous_fail(m, BURST_E_PEER, "rank %d lost rank 0 during the rendezvous: %s", m->rank,
                           strerror(errno));
}

static bool receive_table(Rendezvous *m, double limit)
{
    if (!socket_read(m->root, m->all, (size_t)m->world * sizeof *m->all, limit))
        return lost_rank_0(m);
    for (int i = 0; i < m->world; i++) {
        escape_text(m->all[i].hello.name, HOST_NAME);
        if (m->all[i].hello.rank != i)
            return rendezvous_fail(m, BURST_E_PEER, "rank %d received a corrupt list of ranks from rank 0",
                                   m->rank);
    }
    return true;
}

/* Rank 0 may have started waiting after this rank. */
static bool join_members(Rendezvous *m, Handshakes *g)
{
    Answer a;
    if (!find_rank_0(m, g))
        return false;
    double limit = burst_seconds() + rendezvous_limit(m->job) + answer_limit;
    if (!socket_read(m->root, &a, sizeof a, limit))
        return lost_rank_0(m);
    escape_text(a.text, sizeof a.text);
    m->told = a.status != BURST_OK;
    if (m->told)
        return rendezvous_fail(m, is_status(a.status) ? a.status : BURST_E_PEER, "%s", a.text);
    derive_key(m->mesh_key, m->key, sizeof m->key, "burst mesh", a.nonce, sizeof a.nonce);
    return receive_table(m, limit);
}

bool members_gather(Rendezvous *m)
{
    Handshakes g;
    Hello mine;
    member_introduce(m, &mine);
    const int callers = m->rank == 0 ? m->world + MORE_CALLERS : 0;
    bool ok;
    if (!handshakes_open(&g, m->key, &mine, ADDRESSES, ADDRESSES * RENDEZVOUS_PORTS, callers))
        ok = rendezvous_fail(m, BURST_E_MEMORY, "out of memory for a list of %d connections",
                             m->world + MORE_CALLERS);
    else
        ok = m->rank == 0 ? host_members(m, &g) : join_members(m, &g);
    handshakes_close(&g);
    return ok;
}
