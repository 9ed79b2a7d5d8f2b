/* region.h: one region of shared memory a host: Head, a Slot a rank, the message rings of every (receiver,
 * sender, channel), and the arenas. Everything in it is found by offset, because under mpirun each rank maps
 * it somewhere else. */
#ifndef BURST_CORE_REGION_H
#define BURST_CORE_REGION_H

#include "core/context.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { DOING_TEXT = 120, SAVED_TEXT = 400, RING_SLOTS = 8 };

typedef struct Desc { uint64_t offset, bytes, sequence; } Desc;
/* The sender fills desc[published % RING_SLOTS] and then counts up; the receiver copies out and counts
 * consumed up. */
typedef struct Ring {
    _Alignas(64) _Atomic uint64_t published;
    _Alignas(64) _Atomic uint64_t consumed;
    Desc desc[RING_SLOTS];
} Ring;
/* What a rank shows to the others. bell is a futex: whoever changes something that the rank may wait for
 * rings it. */
typedef struct Slot {
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t asleep;
    _Atomic int32_t pid;
    _Atomic int32_t ended; /* the body returned 0 and all its messages are out */
    _Atomic int32_t waits_for; /* 1 + the rank that it waits for, 0: it does not wait */
    _Atomic int64_t step;      /* that it is in, from 1; 0: before the first */
    _Atomic uint64_t device;   /* of the CUDA runtime: tells devices apart */
    char doing[DOING_TEXT];
    _Alignas(64) double reduce[REDUCE_MAX]; /* what it contributes to an allreduce, or its result */
} Slot;
enum { RUNNING = 0, FAILING = 1, FAILED = 2 };
/* The first failure on this host: claimed by whoever moves state from RUNNING. */
typedef struct Head {
    _Atomic int state;
    _Atomic int said; /* the text is on stderr */
    _Atomic int said_slow; /* that files take longer than the time limit */
    int code;
    char text[ERROR_TEXT];
    _Atomic int saved_at; /* 1 + which of saved counts, 0: none */
    char saved[2][SAVED_TEXT];
} Head;
typedef struct Region {
    char *base;
    size_t bytes;
    int fd, locals; /* ranks on this host */
    size_t slot_at, ring_at, arena_at, arena_bytes;
} Region;

/* Makes the region in new anonymous shared memory; mapped here, open as r->fd. 0, or -1 with errno. */
int region_make(Region *r, int locals, size_t arena_bytes);
/* Maps a region that another process of this host made, from its file descriptor (which r then owns). 0 or
 * -1. */
int region_join(Region *r, int fd, int locals, size_t arena_bytes);
void region_free(Region *r);
/* True where errno's reason is not the machine's memory; *free_bytes: what the machine can still give. */
bool memory_suffices(size_t bytes, size_t *free_bytes);
static inline Head *region_head(const Region *r) { return (Head *)r->base; }
static inline Slot *region_slot(const Region *r, int local) { return (Slot *)(r->base + r->slot_at) + local; }
Ring *region_ring(const Region *r, int receiver, int sender, int channel);
static inline char *region_arena(const Region *r, int local)
{
    return r->base + r->arena_at + (size_t)local * r->arena_bytes;
}
void slot_ring(Slot *s);
/* Sleeps until the bell is no longer what it was, or for at most this long. */
void slot_sleep(Slot *s, uint32_t bell, long microseconds);
/* Records the first failure, with the newest checkpoint's name, and wakes all; false where another one was
 * first. */
bool region_fail(Region *r, int code, const char *text);
void region_saved(Region *r, const char *path); /* the newest checkpoint */
void region_say(Region *r); /* prints the failure, if nobody has */

/* "rank 3, step 5 (attend Q[0] with KV[1])" */
void describe_rank(const Region *r, int rank, int local, char *text, size_t size);

#endif
