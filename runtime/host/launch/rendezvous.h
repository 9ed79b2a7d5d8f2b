/* rendezvous.h: shared by the parts of the rendezvous, in which ranks started by torchrun, srun or by hand
 * find each other without MPI. Rank 0 listens at the address in the environment (place.h). Each rank sends
 * it its Member and gets the table of all (members.c). Ranks of one host then share memory as under mpirun
 * (share.c), and each pair of ranks on different hosts gets a connection (mesh.c). */
#ifndef BURST_RENDEZVOUS_H
#define BURST_RENDEZVOUS_H

#include "core/context.h"
#include "core/region.h"
#include "host/launch/job.h"
#include "host/launch/place.h"
#include "host/net/handshake.h"
#include "burst_plan.h"

enum { ADDRESSES = 8, MORE_CALLERS = 256 /* callers beyond the ranks: strangers not yet refused */ };

typedef struct Member { Hello hello; Address at; } Member; /* at: its address for other hosts */

typedef struct Rendezvous {
    const Job *job;
    const Place *place;
    int world, rank;
    uint8_t key[KEY_BYTES], mesh_key[KEY_BYTES]; /* to find rank 0; to connect to each other */
    uint64_t name;     /* of the job's Unix sockets */
    double deadline;   /* of this round */
    int listener[ADDRESSES], listeners;
    int root;          /* connection to rank 0, -1 in rank 0 itself */
    Address root_at;   /* rank 0's address as seen by this rank */
    int *link;         /* [world] rank 0: connections to the others, -1: none */
    Member *all;       /* [world] */
    uint8_t *shares;   /* [world]: the ranks of its host share memory */
    int *local_of;     /* [world] */
    int *mesh;         /* [world]: connections to ranks that do not share this rank's memory, else -1 */
    int status;
    bool told;         /* rank 0 sent the error, the same to all ranks */
    bool said;         /* the error was printed on stderr */
    char error[ERROR_TEXT];
} Rendezvous;

/* Records the first error; returns false. */
bool rendezvous_fail(Rendezvous *m, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void rendezvous_say(Rendezvous *m);
/* Time limit of a round, in seconds. */
double rendezvous_limit(const Job *job);
/* All-gather of `bytes` bytes through rank 0. all: [world] pieces. */
bool rendezvous_agree(Rendezvous *m, const void *mine, size_t bytes, void *all);
void close_listeners(Rendezvous *m);

/* Fills all, root or link, and mesh_key; rank 0's listeners stay open. */
bool members_gather(Rendezvous *m);
/* Fills hello, except for its `to`. */
void member_introduce(const Rendezvous *m, Hello *hello);
/* Fills local_of and the region of this host's ranks. */
bool share_memory(Rendezvous *m, Region *r);
bool make_region(Rendezvous *m, Region *r, int locals);
/* Fills mesh. */
bool connect_mesh(Rendezvous *m);
#endif
