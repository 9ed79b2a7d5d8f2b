/* runtime/library/connect.c: connects all pairs of ranks of a group over TCP, with addresses exchanged by
 * its all_gather.
 *
 * Every rank listens and sends the others its address and a secret. Each rank dials those with lower numbers
 * and sends them their secret, so that an unrelated connection is never taken for a rank's. Ranks on one
 * host use the loopback interface. A rank that cannot continue sends its error before it returns: all others
 * then fail with it, and none waits. */
#include "library/library.h"

#include "host/net/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ADDRESSES = 8,
    HOST_TEXT = 64,
    SECRET = 16,
    CALLERS = 64, /* connections that have not identified themselves */
    DIAL_MS = 5000,
    HELLO_MS = 5000,
    ACCEPT_MS = 30000
};
static const uint32_t hello_magic = 0x42425631;

/* What a rank tells the others; the first exchange has no port. */
typedef struct Card {
    uint64_t identity; /* of the plan and the runtime */
    char host[HOST_TEXT];
    char error[LIBRARY_TEXT];
    unsigned char secret[SECRET];
    int addresses;
    Address address[ADDRESSES];
} Card;
typedef struct Hello {
    uint32_t magic, rank;
    unsigned char secret[SECRET];
} Hello;
typedef struct Caller {
    int fd;
    size_t got; /* bytes of hello received */
    double end; /* deadline for identifying itself */
    Hello hello;
} Caller;
/* The socket that ranks with higher numbers connect to. */
typedef struct Listener {
    int fd, callers;
    const unsigned char *secret;
    Caller caller[CALLERS]; /* oldest first */
} Listener;

/* ---- addresses of this rank ---- */

/* Identifies the machine, its boot and the network namespace of the process. */
static void name_host(char host[HOST_TEXT])
{
    struct stat st = {0};
    char boot[40] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(boot, 37, f))
        *boot = 0;
    if (f)
        fclose(f);
    stat("/proc/self/ns/net", &st);
    snprintf(host, HOST_TEXT, "%s %lx", boot, (unsigned long)st.st_ino);
}

/* Listens on all interfaces, or on the loopback interface. */
static int listen_at(BurstCtx *c, Card *card, bool one_host)
{
    Address at = {0}, bound;
    card->addresses = socket_interfaces(one_host, card->address, ADDRESSES);
    if (one_host && card->addresses)
        at = card->address[0];
    const int fd = socket_listen(&at, c->world + CALLERS, &bound);
    if (fd < 0)
        burst_fail(c, BURST_E_PEER, "rank %d cannot listen for the other ranks: %s", c->rank,
                   strerror(errno));
    for (int i = 0; i < card->addresses; i++)
        card->address[i].port = bound.port;
    return fd;
}

/* ---- connections ---- */

/* Waits until one is ready or the time is over (false). Signals do not end it. */
static bool wait_for(struct pollfd *p, int n, double end)
{
    for (double left; (left = end - burst_seconds()) > 0;) {
        const int some = poll(p, (nfds_t)n, (int)(left * 1e3) + 1);
        if (some > 0 || (some < 0 && errno != EINTR))
            return some > 0;
    }
    return false;
}

/* A connection on which the hello was sent; -1 with errno. */
static int dial_at(const Address *to, const Hello *hello)
{
    const int fd = socket_dial(to);
    if (fd < 0 || socket_write(fd, hello, sizeof *hello, burst_seconds() + DIAL_MS / 1e3))
        return fd;
    const int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static int dial(BurstCtx *c, int rank, const Card *to)
{
    Hello hello = {.magic = hello_magic, .rank = (uint32_t)c->rank};
    int fd = -1;
    memcpy(hello.secret, to->secret, sizeof hello.secret);
    errno = EADDRNOTAVAIL; /* the reason if it has no address */
    for (int i = 0; i < to->addresses && fd < 0; i++)
        fd = dial_at(&to->address[i], &hello);
    if (fd < 0)
        return burst_fail(c, BURST_E_PEER, "rank %d cannot connect to rank %d: %s", c->rank, rank,
                          strerror(errno));
    c->peer[rank].fd = fd;
    return BURST_OK;
}

/* A caller that knows the secret is a rank. */
static bool is_rank(const BurstCtx *c, const Listener *l, const Hello *h)
{
    return h->magic == hello_magic && memcmp(h->secret, l->secret, SECRET) == 0 &&
           h->rank > (uint32_t)c->rank && h->rank < (uint32_t)c->world && c->peer[h->rank].fd < 0;
}

/* Closes its connection unless it is a rank's. */
static void drop_caller(Listener *l, int i, bool known)
{
    if (!known)
        close(l->caller[i].fd);
    l->callers--;
    memmove(&l->caller[i], &l->caller[i + 1], (size_t)(l->callers - i) * sizeof *l->caller);
}

/* Reads what has arrived. */
static void read_hello(BurstCtx *c, Listener *l, int i)
{
    Caller *k = &l->caller[i];
    const ssize_t n = recv(k->fd, (char *)&k->hello + k->got, sizeof k->hello - k->got, MSG_DONTWAIT);
    k->got += n > 0 ? (size_t)n : 0;
    const bool all = k->got == sizeof k->hello,
               open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (!all && open && burst_seconds() < k->end)
        return;
    const bool known = all && is_rank(c, l, &k->hello);
    if (known)
        c->peer[k->hello.rank].fd = k->fd;
    drop_caller(l, i, known);
}

/* Accepts all pending connections. If there are too many, drops the oldest. */
static int accept_callers(BurstCtx *c, Listener *l)
{
    Address from;
    for (int fd; (fd = socket_accept(l->fd, &from)) >= 0;) {
        if (l->callers == CALLERS)
            drop_caller(l, 0, false);
        l->caller[l->callers++] = (Caller){.fd = fd, .end = burst_seconds() + HELLO_MS / 1e3};
        read_hello(c, l, l->callers - 1);
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
        return BURST_OK;
    return burst_fail(c, BURST_E_PEER, "rank %d cannot take the connections of other ranks: %s", c->rank,
                      strerror(errno));
}

static int missing_rank(const BurstCtx *c)
{
    for (int r = c->rank + 1; r < c->world; r++)
        if (c->peer[r].fd < 0)
            return r;
    return -1;
}

/* Waits until data arrive, a caller's deadline passes, or `end`. */
static void wait_for_callers(const Listener *l, double end)
{
    struct pollfd p[1 + CALLERS] = {{.fd = l->fd, .events = POLLIN}};
    for (int i = 0; i < l->callers; i++) {
        p[1 + i] = (struct pollfd){.fd = l->caller[i].fd, .events = POLLIN};
        end = l->caller[i].end < end ? l->caller[i].end : end;
    }
    wait_for(p, 1 + l->callers, end);
}

/* Reads all callers concurrently, so that one that sends nothing, such as a port scanner, delays no rank. */
static int accept_higher(BurstCtx *c, int listener, const unsigned char *secret)
{
    const double end = burst_seconds() + ACCEPT_MS / 1e3;
    Listener l = {.fd = listener, .secret = secret};
    int status = BURST_OK;
    while (status == BURST_OK && missing_rank(c) >= 0 && burst_seconds() < end) {
        wait_for_callers(&l, end);
        for (int i = l.callers - 1; i >= 0; i--)
            read_hello(c, &l, i);
        status = accept_callers(c, &l);
    }
    while (l.callers > 0)
        drop_caller(&l, 0, false);
    if (status != BURST_OK || missing_rank(c) < 0)
        return status;
    return burst_fail(c, BURST_E_PEER, "rank %d waits for the connection of rank %d since %d s", c->rank,
                      missing_rank(c), ACCEPT_MS / 1000);
}

static int connect_all(BurstCtx *c, int listener, const Card *card)
{
    for (int r = 0; r < c->rank; r++)
        BURST_TRY(dial(c, r, &card[r]));
    return accept_higher(c, listener, card[c->rank].secret);
}

/* ---- agreement ---- */

/* Any rank's error becomes the error of all; the lowest rank's counts. */
static int exchange(BurstCtx *c, const BurstGroup *group, Card *own, Card *all)
{
    snprintf(own->error, sizeof own->error, "%s", c->error);
    if (group->all_gather(group->context, own, all, sizeof *own) != 0)
        return burst_fail(c, BURST_E_PEER, "the group's all_gather failed at rank %d", c->rank);
    for (int r = 0; r < c->world; r++) {
        all[r].error[LIBRARY_TEXT - 1] = 0;
        if (all[r].error[0])
            return burst_fail(c, BURST_E_PEER, "%s", all[r].error);
    }
    for (int r = 0; r < c->world; r++)
        if (all[r].identity != own->identity)
            return burst_fail(c, BURST_E_USAGE, "ranks %d and %d have opened different plans", c->rank, r);
    return BURST_OK;
}

static bool on_one_host(const BurstCtx *c, const Card *all)
{
    bool same = true;
    for (int r = 0; r < c->world; r++)
        same &= memcmp(all[r].host, all[0].host, HOST_TEXT) == 0;
    return same;
}

static int connect_cards(BurstCtx *c, const BurstGroup *group, Card *own, Card *all)
{
    BURST_TRY(exchange(c, group, own, all));
    const bool one_host = on_one_host(c, all);
    int status, listener;
    if (getrandom(own->secret, SECRET, 0) != SECRET)
        burst_fail(c, BURST_E_PEER, "rank %d has no random numbers", c->rank);
    listener = listen_at(c, own, one_host);
    status = exchange(c, group, own, all);
    if (status == BURST_OK)
        status = connect_all(c, listener, all);
    if (listener >= 0)
        close(listener);
    const int agreed = exchange(c, group, own, all); /* also ensures that all are connected */
    return status != BURST_OK ? status : agreed;
}

int burst_library_gather(BurstCtx *c, const void *in, void *out, size_t bytes)
{
    if (c->group->all_gather(c->group->context, in, out, bytes) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_PEER, "the group's all_gather failed at rank %d", c->rank);
}

/* After each rank's own work: succeeds on all ranks or fails on all. */
int agree(BurstCtx *c, int status)
{
    struct {
        int32_t status;
        char text[LIBRARY_TEXT];
    } own = {status, ""}, *all;
    if (c->world == 1)
        return status;
    all = calloc((size_t)c->world, sizeof *all);
    if (!all)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the statuses of %d ranks", c->world);
    snprintf(own.text, sizeof own.text, "%s", status == BURST_OK ? "" : c->error);
    const int gathered = burst_library_gather(c, &own, all, sizeof own);
    for (int r = c->world - 1; r >= 0 && gathered == BURST_OK && status == BURST_OK; r--) {
        all[r].text[LIBRARY_TEXT - 1] = 0;
        if (all[r].status != BURST_OK)
            status = burst_fail(c, BURST_E_PEER, "%s", all[r].text);
    }
    free(all);
    return status == BURST_OK ? gathered : status;
}

int connect_ranks(BurstCtx *c, const BurstGroup *group, uint64_t identity)
{
    Card own = {.identity = identity}, *all = calloc((size_t)c->world, sizeof *all);
    if (!all)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the addresses of %d ranks", c->world);
    name_host(own.host);
    const int status = connect_cards(c, group, &own, all);
    free(all);
    return status;
}
