/* runtime/library/connect.c: connects each two ranks of a group over TCP, by what its all_gather carries.
 *
 * Every rank listens and tells the others where, with a secret; each dials those below it and shows them
 * their secret, so that nobody else's connection is taken for a rank's. On one host the loopback is used. A
 * rank that cannot go on says why before it returns: all others then end with that reason, and none waits. */
#include "library/library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADDRESSES = 8, HOST_TEXT = 64, SECRET = 16, DIAL_MS = 5000, ACCEPT_MS = 30000 };
static const uint32_t hello_magic = 0x42425631;

/* What a rank tells the others; what it tells first has no port. */
typedef struct Card {
    uint64_t identity; /* of the plan and the runtime */
    char host[HOST_TEXT];
    char error[LIBRARY_TEXT];
    unsigned char secret[SECRET];
    uint16_t port;     /* network order */
    int addresses;
    struct in6_addr address[ADDRESSES]; /* IPv4 as IPv6 has it */
} Card;
typedef struct Hello {
    uint32_t magic, rank;
    unsigned char secret[SECRET];
} Hello;

/* ---- where this rank is ---- */

/* The machine since it booted, and the network that the process sees. */
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

static void add_address(Card *card, const struct sockaddr *a)
{
    struct in6_addr *to = &card->address[card->addresses];
    if (!a || card->addresses == ADDRESSES)
        return;
    if (a->sa_family == AF_INET) {
        memset(to, 0, sizeof *to);
        to->s6_addr[10] = to->s6_addr[11] = 0xff;
        memcpy(&to->s6_addr[12], &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
        card->addresses++;
    } else if (a->sa_family == AF_INET6 &&
               !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr)) {
        *to = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        card->addresses++;
    }
}

static void find_addresses(Card *card, bool one_host)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_flags & IFF_UP && one_host == !!(i->ifa_flags & IFF_LOOPBACK))
            add_address(card, i->ifa_addr);
    freeifaddrs(all);
}

static struct sockaddr_in6 socket_address(const struct in6_addr *to, uint16_t port)
{
    return (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = *to};
}

/* IPv4 alone where there is no IPv6. */
static int open_socket(const struct in6_addr *to, uint16_t port, struct sockaddr_storage *at, socklen_t *size)
{
    const struct sockaddr_in6 six = socket_address(to, port);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = port};
    memset(at, 0, sizeof *at);
    memcpy(&four.sin_addr, &to->s6_addr[12], 4);
    const bool v4 = IN6_IS_ADDR_V4MAPPED(to);
    *size = v4 ? sizeof four : sizeof six;
    memcpy(at, v4 ? (const void *)&four : (const void *)&six, *size);
    return socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* On all interfaces, or the loopback's. */
static int listen_at(BurstCtx *c, Card *card, bool one_host)
{
    struct sockaddr_storage at;
    socklen_t size;
    struct in6_addr any = one_host && card->addresses ? card->address[0] : in6addr_any;
    int fd = open_socket(&any, 0, &at, &size);
    if (fd < 0 && !one_host) { /* no IPv6 here */
        any.s6_addr[10] = any.s6_addr[11] = 0xff;
        fd = open_socket(&any, 0, &at, &size);
    }
    const int no = 0;
    if (fd >= 0 && at.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, c->world + 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0) {
        burst_fail(c, BURST_E_PEER, "rank %d cannot listen for the other ranks: %s", c->rank,
                   strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    card->port = at.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&at)->sin_port
                                         : ((struct sockaddr_in6 *)(void *)&at)->sin6_port;
    return fd;
}

/* ---- connections ---- */

static bool ready(int fd, short events, double end)
{
    const double left = end - burst_seconds();
    struct pollfd p = {.fd = fd, .events = events};
    return left > 0 && poll(&p, 1, (int)(left * 1e3) + 1) > 0;
}

static int dial_at(const struct in6_addr *to, uint16_t port)
{
    struct sockaddr_storage at;
    socklen_t size;
    int error = 0;
    socklen_t n = sizeof error;
    const int fd = open_socket(to, port, &at, &size);
    if (fd < 0)
        return -1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connect(fd, (struct sockaddr *)&at, size) != 0 &&
        (errno != EINPROGRESS || !ready(fd, POLLOUT, burst_seconds() + DIAL_MS / 1e3) ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error)) {
        errno = errno == EINPROGRESS ? ETIMEDOUT : errno;
        errno = error ? error : errno;
        close(fd);
        return -1;
    }
    return fd;
}

static int dial(BurstCtx *c, int rank, const Card *to)
{
    Hello hello = {.magic = hello_magic, .rank = (uint32_t)c->rank};
    int fd = -1;
    memcpy(hello.secret, to->secret, sizeof hello.secret);
    for (int i = 0; i < to->addresses && fd < 0; i++)
        fd = dial_at(&to->address[i], to->port);
    if (fd < 0 || send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
        const int reason = errno;
        if (fd >= 0)
            close(fd);
        return burst_fail(c, BURST_E_PEER, "rank %d cannot connect to rank %d: %s", c->rank, rank,
                          strerror(reason));
    }
    c->peer[rank].fd = fd;
    return BURST_OK;
}

/* A caller that knows the secret is a rank; what else calls is hung up. */
static void greet(BurstCtx *c, int fd, const unsigned char *secret, double end)
{
    Hello hello;
    size_t n = 0;
    while (n < sizeof hello && ready(fd, POLLIN, end)) {
        const ssize_t got = recv(fd, (char *)&hello + n, sizeof hello - n, MSG_DONTWAIT);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    const bool known = n == sizeof hello && hello.magic == hello_magic &&
                       memcmp(hello.secret, secret, SECRET) == 0 && hello.rank > (uint32_t)c->rank &&
                       hello.rank < (uint32_t)c->world && c->peer[hello.rank].fd < 0;
    if (known)
        c->peer[hello.rank].fd = fd;
    else
        close(fd);
}

static int missing_rank(const BurstCtx *c)
{
    for (int r = c->rank + 1; r < c->world; r++)
        if (c->peer[r].fd < 0)
            return r;
    return -1;
}

static int accept_higher(BurstCtx *c, int listener, const unsigned char *secret)
{
    const double end = burst_seconds() + ACCEPT_MS / 1e3;
    while (missing_rank(c) >= 0) {
        if (!ready(listener, POLLIN, end))
            return burst_fail(c, BURST_E_PEER, "rank %d waits for the connection of rank %d since %d s",
                              c->rank, missing_rank(c), ACCEPT_MS / 1000);
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            greet(c, fd, secret, end);
    }
    return BURST_OK;
}

static void settle(int fd)
{
    const int yes = 1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static int connect_all(BurstCtx *c, int listener, const Card *card)
{
    for (int r = 0; r < c->rank; r++)
        BURST_TRY(dial(c, r, &card[r]));
    BURST_TRY(accept_higher(c, listener, card[c->rank].secret));
    for (int r = 0; r < c->world; r++)
        if (r != c->rank)
            settle(c->peer[r].fd);
    return BURST_OK;
}

/* ---- agreement ---- */

/* What any rank brings as its error is the error of all; the lowest rank's counts. */
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
    find_addresses(own, one_host);
    if (getrandom(own->secret, SECRET, 0) != SECRET)
        burst_fail(c, BURST_E_PEER, "rank %d has no random numbers", c->rank);
    listener = listen_at(c, own, one_host);
    status = exchange(c, group, own, all);
    if (status == BURST_OK)
        status = connect_all(c, listener, all);
    if (listener >= 0)
        close(listener);
    const int agreed = exchange(c, group, own, all); /* also that all are connected */
    return status != BURST_OK ? status : agreed;
}

int burst_library_gather(BurstCtx *c, const void *in, void *out, size_t bytes)
{
    if (c->group->all_gather(c->group->context, in, out, bytes) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_PEER, "the group's all_gather failed at rank %d", c->rank);
}

/* After what each rank did by itself: all have done it, or all fail. */
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
