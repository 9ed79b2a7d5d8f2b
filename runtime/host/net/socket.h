/* socket.h: stream sockets with deadlines: TCP, and between processes of one host and user a Unix socket
 * with an abstract name. Deadlines are on burst_seconds' clock. */
#ifndef BURST_SOCKET_H
#define BURST_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* On the wire too, so there is no padding. IPv6, or IPv4 mapped into it; host byte order. */
typedef struct Address {
    uint8_t ip[16];  /* all zero: all interfaces */
    uint64_t unix_name; /* not 0: no IP; the name is made of this and the port */
    uint16_t port, zero[3];
} Address;
enum { ADDRESS_TEXT = 80 };

/* Sockets that come back are non-blocking and close on exec; -1: errno says why. */
int socket_listen(const Address *at, int backlog, Address *bound); /* port 0: any */
int socket_accept(int listener, Address *from);
int socket_dial(const Address *to); /* connecting: writable when that has ended */
/* The reason why a dialled connection failed, 0 where it is there. */
int socket_refusal(int fd);
/* Of a Unix socket: whether the other end's process is this user's. True for TCP, which knows no users. */
bool socket_same_user(int fd);
Address socket_name(int fd);
/* What poll waits for, in milliseconds: until `left` seconds are over, a second at most. */
int socket_patience(double left);
/* False with errno: ETIMEDOUT past the deadline, ECONNRESET where the other end was closed. */
bool socket_read(int fd, void *data, size_t bytes, double deadline);
bool socket_write(int fd, const void *data, size_t bytes, double deadline);
/* All addresses of a host, at most count of them: how many, or -1 with the resolver's reason. */
int socket_resolve(const char *host, Address *out, int count, const char **reason);
/* This host's addresses, of the loopback or of all other interfaces, at most count of them: how many. Ports
 * are 0; link-local IPv6 addresses are left out. */
int socket_interfaces(bool loopback, Address *out, int count);
bool address_is_loopback(const Address *a);
void address_describe(const Address *a, char *text, size_t size);
/* Makes text that another process sent fit to print: ends it, and escapes all but printable ASCII; cuts
 * what then is too long. */
void escape_text(char *text, size_t size);
#endif
