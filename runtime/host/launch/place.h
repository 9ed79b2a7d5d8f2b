/* place.h: the rank that a launcher gave to this process. */
#ifndef BURST_PLACE_H
#define BURST_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ALONE, BY_MPI, BY_TORCHRUN, BY_SLURM };
enum { MASTER_TEXT = 256, RENDEZVOUS_PORTS = 8, LEAST_SECRET = 16 };

typedef struct Place {
    int launcher;
    int rank, world;          /* world 0: unknown until MPI is initialised */
    int local;                /* index on its host by the launcher (LOCAL_RANK), -1: not given */
    bool one_host;            /* the launcher says that all ranks are on this host */
    char master[MASTER_TEXT]; /* where rank 0 listens; empty if world is 1 */
    int port, ports;          /* one of port, port + 1, ... is used */
    uint64_t token;           /* equal on all ranks of a job, and known to anyone who knows the job */
    const char *secret;       /* BURST_SECRET, or empty */
} Place;

/* Reads the environment. Returns BURST_OK, or BURST_E_USAGE with the reason in text. */
int place_find(Place *p, char *text, size_t size);
/* Whether this process prints messages that concern all ranks of its host. */
static inline bool place_speaks(const Place *p) { return p->rank == 0 || p->local <= 0; }
/* The rank, or 0 if the environment is invalid: for messages that are printed once. */
int place_rank(void);
/* "host[01-04,7],other" -> "host01". False if it is not a list of nodes or the name does not fit. */
bool place_first_node(const char *list, char *name, size_t size);
#endif
