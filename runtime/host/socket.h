/* socket.h: TCP with time limits, for ranks that meet. Deadlines are on burst_seconds' clock. */
#ifndef BURST_SOCKET_H
#define BURST_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Address { uint8_t ip[16]; uint16_t port; } Address; /* IPv6, or IPv4 mapped into it; host byte order */
enum { ADDRESS_TEXT = 80 };

/* Sockets that come back are non-blocking and close on exec; -1: errno says why. */
int socket_listen(int port, int backlog, int *bound); /* on all interfaces; port 0: any */
int socket_accept(int listener, double deadline, Address *from);
int socket_connect(const Address *to, double deadline);
/* False with errno: ETIMEDOUT past the deadline, ECONNRESET where the other end was closed. */
bool socket_read(int fd, void *data, size_t bytes, double deadline);
bool socket_write(int fd, const void *data, size_t bytes, double deadline);
/* All addresses of a host, at most count of them: how many, or -1 with the resolver's reason. */
int socket_resolve(const char *host, Address *out, int count, const char **reason);
bool address_is_loopback(const Address *a);
void address_describe(const Address *a, char *text, size_t size);
#endif
