/* tcp.h: messages between hosts over TCP, for ranks that met without MPI. */
#ifndef BURST_TCP_H
#define BURST_TCP_H

#include "host/net/messages.h"
#include "burst_plan.h"

/* socket[world]: connected to the rank of that number, -1: it shares this rank's memory. Owns the sockets
 * of a mesh that it returns; NULL: no memory. */
const Remote *tcp_open(int world, const int *socket);
void tcp_close(const Remote *remote);
/* Tells the others why this host's ranks end; what cannot be written at once is left out. */
void tcp_tell_failure(const Remote *remote, int status, const char *text);
#endif
