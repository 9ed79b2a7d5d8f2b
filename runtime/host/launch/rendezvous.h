/* rendezvous.h: what the parts of the rendezvous share. Ranks that torchrun, srun or a hand started find
 * each other without MPI: rank 0 listens where the environment says (place.h), each rank tells it who it
 * is and gets the table of all (members.c). Ranks of one host then share memory as they do under mpirun
 * (share.c), and each two ranks of different hosts get a connection (mesh.c). */
#ifndef BURST_RENDEZVOUS_H
#define BURST_RENDEZVOUS_H

#include "core/context.h"
#include "core/region.h"
#include "host/launch/job.h"
#include "host/launch/place.h"
#include "host/net/handshake.h"
#include "burst_plan.h"

enum { ADDRESSES = 8, MORE_CALLERS = 256 /* than ranks: strangers that have not yet been refused */ };

typedef struct Member { Hello hello; Address at; } Member; /* at: where other hosts reach it */

typedef struct Rendezvous {
    const Job *job;
    const Place *place;
    int world, rank;
    uint8_t key[KEY_BYTES], mesh_key[KEY_BYTES]; /* to find rank 0; to connect to each other */
    uint64_t name;     /* of the job: of its Unix sockets */
    double deadline;   /* of this round */
    int listener[ADDRESSES], listeners;
    int root;          /* connection to rank 0, -1 in rank 0 itself */
    Address root_at;   /* rank 0, as this rank reached it */
    int *link;         /* [world] of rank 0: connections to the others, -1: not there */
    Member *all;       /* [world] */
    uint8_t *shares;   /* [world]: its host's ranks share memory */
    int *local_of;     /* [world] */
    int *mesh;         /* [world]: connections to ranks that share no memory with this one, else -1 */
    int status;
    bool told;         /* the error is rank 0's word, the same on all ranks */
    bool said;         /* the error is on stderr */
    char error[ERROR_TEXT];
} Rendezvous;

/* Records the first error; returns false. */
bool rendezvous_fail(Rendezvous *m, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void rendezvous_say(Rendezvous *m);
/* The time limit of a round, in seconds. */
double rendezvous_limit(const Job *job);
/* Everyone's piece to everyone, through rank 0. all: [world] pieces. */
bool rendezvous_agree(Rendezvous *m, const void *mine, size_t bytes, void *all);
void close_listeners(Rendezvous *m);

/* Fills all, root or link, mesh_key; rank 0's listeners stay open. */
bool members_gather(Rendezvous *m);
/* Fills hello but for to. */
void member_introduce(const Rendezvous *m, Hello *hello);
/* Fills local_of, and the region of this host's ranks. */
bool share_memory(Rendezvous *m, Region *r);
bool make_region(Rendezvous *m, Region *r, int locals);
/* Fills mesh. */
bool connect_mesh(Rendezvous *m);
#endif
