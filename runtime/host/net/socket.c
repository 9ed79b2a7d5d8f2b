/* socket.c: stream sockets with deadlines. */
#include "host/net/socket.h"

#include "burst_context.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef union Name { /* the name of a socket */
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage room;
} Name;
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const Address *a)
{
    return memcmp(a->ip, mapped, sizeof mapped) == 0;
}

static Address address_of(const Name *n)
{
    Address a = {0};
    if (n->any.sa_family == AF_UNIX) {
        a.unix_name = 1; /* a socket that connects has no name */
    } else if (n->any.sa_family == AF_INET) {
        a.port = ntohs(n->v4.sin_port);
        memcpy(a.ip, mapped, sizeof mapped);
        memcpy(a.ip + sizeof mapped, &n->v4.sin_addr, 4);
    } else {
        a.port = ntohs(n->v6.sin6_port);
        memcpy(a.ip, &n->v6.sin6_addr, 16);
    }
    return a;
}

static socklen_t name_of(const Address *a, Name *n)
{
    *n = (Name){0};
    if (a->unix_name) {
        /* an abstract name starts with a zero and is not in the file system */
        n->local.sun_family = AF_UNIX;
        int length = snprintf(n->local.sun_path + 1, sizeof n->local.sun_path - 1, "burst-%016llx-%u",
                              (unsigned long long)a->unix_name, a->port);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    }
    if (is_v4(a)) {
        n->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(a->port)};
        memcpy(&n->v4.sin_addr, a->ip + sizeof mapped, 4);
        return sizeof n->v4;
    }
    n->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
    memcpy(&n->v6.sin6_addr, a->ip, 16);
    return sizeof n->v6;
}

bool address_is_loopback(const Address *a)
{
    return !a->unix_name && (is_v4(a) ? a->ip[12] == 127 : memcmp(a->ip, &in6addr_loopback, 16) == 0);
}

void address_describe(const Address *a, char *text, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (a->unix_name) {
        snprintf(text, size, "a Unix socket of this host");
        return;
    }
    inet_ntop(is_v4(a) ? AF_INET : AF_INET6, is_v4(a) ? a->ip + sizeof mapped : a->ip, ip, sizeof ip);
    snprintf(text, size, "%s, port %d", ip, a->port);
}

static int close_with_reason(int fd)
{
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool is_any(const Address *a)
{
    static const uint8_t any[16];
    return !a->unix_name && memcmp(a->ip, any, sizeof any) == 0;
}

static int listen_at(const Address *at, int backlog)
{
    Name n;
    int on = 1, off = 0;
    socklen_t length = name_of(at, &n);
    int fd = open_socket(n.any.sa_family);
    if (fd < 0)
        return -1;
    if (!at->unix_name)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (n.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, is_any(at) ? &off : &on, sizeof on);
    return bind(fd, &n.any, length) == 0 && listen(fd, backlog) == 0 ? fd : close_with_reason(fd);
}

static int listen_at_any_name(Address *at, int backlog)
{
    for (int tries = 0;; tries++) {
        if (getrandom(&at->port, sizeof at->port, 0) != sizeof at->port)
            return -1;
        int fd = listen_at(at, backlog);
        if (fd >= 0 || errno != EADDRINUSE || tries == 16)
            return fd;
    }
}

/* If the kernel has no IPv6, all interfaces means those of IPv4. */
int socket_listen(const Address *at, int backlog, Address *bound)
{
    *bound = *at;
    if (at->unix_name)
        return at->port ? listen_at(at, backlog) : listen_at_any_name(bound, backlog);
    int fd = listen_at(at, backlog);
    if (fd < 0 && errno == EAFNOSUPPORT && is_any(at)) {
        memcpy(bound->ip, mapped, sizeof mapped);
        fd = listen_at(bound, backlog);
    }
    if (fd >= 0)
        bound->port = socket_name(fd).port;
    return fd;
}

Address socket_name(int fd)
{
    Name n = {0};
    socklen_t length = sizeof n;
    getsockname(fd, &n.any, &length);
    return address_of(&n);
}

int socket_patience(double left)
{
    if (left <= 0)
        return 0;
    return left > 1 ? 1000 : (int)(left * 1000) + 1;
}

/* False with ETIMEDOUT past the deadline. */
static bool await(int fd, short events, double deadline)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        double left = deadline - burst_seconds();
        int n = poll(&p, 1, socket_patience(left));
        if (n > 0)
            return true;
        if ((n < 0 && errno != EINTR) || (n == 0 && left <= 0)) {
            errno = n < 0 ? errno : ETIMEDOUT;
            return false;
        }
    }
}

static int prepared(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return fd;
}

int socket_accept(int listener, Address *from)
{
    Name n = {0};
    socklen_t length = sizeof n;
    int fd = accept4(listener, &n.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    *from = address_of(&n);
    return fd < 0 ? -1 : prepared(fd);
}

int socket_dial(const Address *to)
{
    Name n;
    socklen_t length = name_of(to, &n);
    int fd = open_socket(n.any.sa_family);
    if (fd < 0)
        return -1;
    return connect(fd, &n.any, length) == 0 || errno == EINPROGRESS ? prepared(fd) : close_with_reason(fd);
}

int socket_refusal(int fd)
{
    int reason = 0;
    socklen_t size = sizeof reason;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size) == 0 ? reason : errno;
}

bool socket_same_user(int fd)
{
    struct ucred other = {0};
    int domain = AF_UNSPEC;
    socklen_t size = sizeof domain, length = sizeof other;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
        return domain != AF_UNSPEC;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

bool socket_read(int fd, void *data, size_t bytes, double deadline)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(fd, (char *)data + done, bytes - done, 0);
        if (n == 0)
            errno = ECONNRESET;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || (n < 0 && !await(fd, POLLIN, deadline)))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool socket_write(int fd, const void *data, size_t bytes, double deadline)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if ((n < 0 && errno != EAGAIN && errno != EINTR) || (n < 0 && !await(fd, POLLOUT, deadline)))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

int socket_resolve(const char *host, Address *out, int count, const char **reason)
{
    struct addrinfo *list = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int found = 0, code = getaddrinfo(host, NULL, &hints, &list);
    *reason = code ? gai_strerror(code) : "no address";
    for (struct addrinfo *at = list; code == 0 && at && found < count; at = at->ai_next)
        if (at->ai_family == AF_INET || at->ai_family == AF_INET6) {
            Name n = {0};
            memcpy(&n, at->ai_addr, at->ai_addrlen);
            out[found++] = address_of(&n);
        }
    if (list)
        freeaddrinfo(list);
    return found ? found : -1;
}

int socket_interfaces(bool loopback, Address *out, int count)
{
    struct ifaddrs *all = NULL;
    int found = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *i = all; i && found < count; i = i->ifa_next) {
        const Name *n = (const void *)i->ifa_addr;
        const bool v6 = n && n->any.sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&n->v6.sin6_addr);
        if (i->ifa_flags & IFF_UP && loopback == !!(i->ifa_flags & IFF_LOOPBACK) && n &&
            (n->any.sa_family == AF_INET || v6))
            out[found++] = address_of(n);
    }
    freeifaddrs(all);
    return found;
}

void escape_text(char *text, size_t size)
{
    char escaped[4096];
    size_t n = 0;
    for (const char *at = text; at < text + size && *at; at++) {
        bool plain = *at >= ' ' && *at <= '~';
        if (n + (plain ? 1 : 4) >= size || n + 5 > sizeof escaped)
            break;
        n += (size_t)snprintf(escaped + n, sizeof escaped - n, plain ? "%c" : "\\x%02x", (unsigned char)*at);
    }
    memcpy(text, escaped, n);
    text[n] = 0;
}
