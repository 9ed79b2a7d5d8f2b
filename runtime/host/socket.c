/* socket.c: TCP with time limits. */
#include "socket.h"

#include "burst_rt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union Name { /* of a socket */
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
} Name;
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const Address *a)
{
    return memcmp(a->ip, mapped, sizeof mapped) == 0;
}

static Address address_of(const Name *n)
{
    Address a = {.port = ntohs(n->any.sa_family == AF_INET ? n->v4.sin_port : n->v6.sin6_port)};
    if (n->any.sa_family == AF_INET) {
        memcpy(a.ip, mapped, sizeof mapped);
        memcpy(a.ip + sizeof mapped, &n->v4.sin_addr, 4);
    } else {
        memcpy(a.ip, &n->v6.sin6_addr, 16);
    }
    return a;
}

static socklen_t name_of(const Address *a, Name *n)
{
    *n = (Name){0};
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
    return is_v4(a) ? a->ip[12] == 127 : memcmp(a->ip, &in6addr_loopback, 16) == 0;
}

void address_describe(const Address *a, char *text, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
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

/* Where the kernel has no IPv6, IPv4 alone. */
int socket_listen(int port, int backlog, int *bound)
{
    int on = 1, off = 0, family = AF_INET6, fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        family = AF_INET;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0)
        return -1;
    Name n = {.any.sa_family = (sa_family_t)family};
    socklen_t length = family == AF_INET6 ? sizeof n.v6 : sizeof n.v4;
    *(family == AF_INET6 ? &n.v6.sin6_port : &n.v4.sin_port) = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &n.any, length) != 0 || listen(fd, backlog) != 0 || getsockname(fd, &n.any, &length) != 0)
        return close_with_reason(fd);
    *bound = address_of(&n).port;
    return fd;
}

/* False with ETIMEDOUT past the deadline. */
static bool await(int fd, short events, double deadline)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        double left = deadline - burst_seconds();
        int n = poll(&p, 1, left <= 0 ? 0 : left > 1 ? 1000 : (int)(left * 1000) + 1);
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

int socket_accept(int listener, double deadline, Address *from)
{
    Name n = {0};
    for (;;) {
        socklen_t length = sizeof n;
        int fd = accept4(listener, &n.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            *from = address_of(&n);
            return prepared(fd);
        }
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return -1;
        if (!await(listener, POLLIN, deadline))
            return -1;
    }
}

int socket_connect(const Address *to, double deadline)
{
    Name n;
    socklen_t length = name_of(to, &n), size = sizeof(int);
    int fd = socket(n.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), reason = 0;
    if (fd < 0)
        return -1;
    if (connect(fd, &n.any, length) == 0)
        return prepared(fd);
    if (errno != EINPROGRESS || !await(fd, POLLOUT, deadline))
        return close_with_reason(fd);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size) != 0 || reason != 0) {
        errno = reason;
        return close_with_reason(fd);
    }
    return prepared(fd);
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
