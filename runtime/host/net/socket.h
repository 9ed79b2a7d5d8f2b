/* socket.h: stream sockets with deadlines: TCP, and between processes of one host and user a Unix socket
 * with an abstract name. Deadlines are on the clock of burst_seconds. */
#ifndef BURST_SOCKET_H
#define BURST_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sent over the wire, so without padding. IPv6, or IPv4 mapped into it; host byte order. */
typedef struct Address {
    uint8_t ip[16];  /* all zero: all interfaces */
    uint64_t unix_name; /* nonzero: no IP; the Unix socket's name is made from it and the port */
    uint16_t port, zero[3];
} Address;
enum { ADDRESS_TEXT = 80 };

/* Returned sockets are non-blocking and close-on-exec; -1: errno has the reason. */
int socket_listen(const Address *at, int backlog, Address *bound); /* port 0: any */
int socket_accept(int listener, Address *from);
int socket_dial(const Address *to); /* still connecting: writable when finished */
/* Why a dialled connection failed; 0 if it is established. */
int socket_refusal(int fd);
/* For Unix sockets: whether the other end's process belongs to this user. True for TCP, which has no
 * users. */
bool socket_same_user(int fd);
Address socket_name(int fd);
/* Timeout for poll, in milliseconds: `left` seconds, at most one. */
int socket_patience(double left);
/* False with errno: ETIMEDOUT past the deadline, ECONNRESET if the other end was closed. */
bool socket_read(int fd, void *data, size_t bytes, double deadline);
bool socket_write(int fd, const void *data, size_t bytes, double deadline);
/* All addresses of a host, at most count. Returns their number, or -1 with the resolver's reason. */
int socket_resolve(const char *host, Address *out, int count, const char **reason);
/* This host's addresses, of the loopback or of all other interfaces, at most count of them: how many. Ports
 * are 0; link-local IPv6 addresses are left out. */
int socket_interfaces(bool loopback, Address *out, int count);
bool address_is_loopback(const Address *a);
void address_describe(const Address *a, char *text, size_t size);
/* Makes text from another process printable: terminates it and escapes all but printable ASCII. Truncates
 * what no longer fits. */
void escape_text(char *text, size_t size);
#endif
