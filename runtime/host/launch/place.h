/* place.h: where a launcher has put this process among the ranks. */
#ifndef BURST_PLACE_H
#define BURST_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ALONE, BY_MPI, BY_TORCHRUN, BY_SLURM };
enum { MASTER_TEXT = 256, RENDEZVOUS_PORTS = 8, LEAST_SECRET = 16 };

typedef struct Place {
    int launcher;
    int rank, world;          /* world 0: not known before MPI is asked */
    int local;                /* number on its host as the launcher counts (LOCAL_RANK), -1: it did not say */
    bool one_host;            /* so the launcher says: all ranks are on this one */
    char master[MASTER_TEXT]; /* where rank 0 listens; empty in a world of one */
    int port, ports;          /* at one of port, port + 1, ... */
    uint64_t token;           /* the same on all ranks of a job, and known to whoever knows the job */
    const char *secret;       /* BURST_SECRET, or empty */
} Place;

/* Reads the environment. BURST_OK, or BURST_E_USAGE with the reason in text. */
int place_find(Place *p, char *text, size_t size);
/* Whether this process says what concerns all ranks of its host. */
static inline bool place_speaks(const Place *p) { return p->rank == 0 || p->local <= 0; }
/* The rank, or 0 where the environment makes no sense: for saying something once. */
int place_rank(void);
/* "host[01-04,7],other" -> "host01". False where it is no list of nodes, or the name does not fit. */
bool place_first_node(const char *list, char *name, size_t size);
#endif
