/* tcp.h: messages between hosts over TCP, for ranks launched without MPI. */
#ifndef BURST_TCP_H
#define BURST_TCP_H

#include "host/net/messages.h"
#include "burst_plan.h"

/* socket[world]: connected to that rank, -1: it shares this rank's memory. The returned mesh owns the
 * sockets; NULL: no memory. */
const Remote *tcp_open(int world, const int *socket);
void tcp_close(const Remote *remote);
/* Tells the others why this host's ranks end; drops what cannot be written at once. */
void tcp_tell_failure(const Remote *remote, int status, const char *text);
#endif
