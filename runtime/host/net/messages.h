/* messages.h: messages of one rank: queues, the transport between hosts, and who is waited for. */
#ifndef BURST_HOST_NET_MESSAGES_H
#define BURST_HOST_NET_MESSAGES_H

#include "core/region.h"

typedef struct Lane Lane;
typedef struct Op {
    struct Op *next;
    Lane *lane;
    void *data;
    uint64_t bytes, sequence;
    bool add;      /* a receive that adds floats to data instead of overwriting them */
    bool done;
    bool detached; /* nobody waits: freed when done */
    void *remote;  /* what the transport between hosts keeps; stays with the op when it is used again */
} Op;
/* All messages of one direction between this rank and one peer on one channel, oldest first. */
struct Lane {
    Op *head, *tail, *unpublished;
    uint64_t posted;
    Lane *next_active;
    bool active, sending;
    int peer, channel;
    Ring *ring; /* NULL: the peer is on another host */
};
/* The transport between hosts. The last functions may be NULL. */
typedef struct Remote {
    int (*start)(BurstCtx *c, Op *op);
    int (*test)(BurstCtx *c, Op *op, bool *done);
    void (*release)(Op *op);
    /* while waiting: moves on, and fails when a host or a rank of it was lost */
    int (*look)(BurstCtx *c);
    bool (*ended)(const BurstCtx *c, int peer); /* a rank of another host has ended in order */
    /* the body returned and nothing is under way: parts from the others */
    int (*finish)(BurstCtx *c);
    void *state;
} Remote;

int messages_open(BurstCtx *c);
void messages_close(BurstCtx *c);
/* Fails: the sender's bytes are not the receiver's. */
int message_mismatch(BurstCtx *c, const Op *op, uint64_t sent);
/* As burst_recv, but the floats are added to data when the wait is over. */
int receive_adding(BurstCtx *c, int channel, int peer, float *data, size_t bytes, BurstReq *req);
/* Nobody will wait for this request: it ends by itself. */
void request_detach(BurstCtx *c, BurstReq *req);
/* Waits until nothing of this rank is under way. */
int messages_drain(BurstCtx *c);
/* Called while waiting for a peer (-1: any): fails when a rank was lost or the watchdog's time is over. */
typedef struct Watchdog { double begin, checked; bool peer_gone; int spins; } Watchdog;
int watchdog_check(BurstCtx *c, Watchdog *v, const Op *op);
/* the part that needs no message: lost ranks and failures; sets v->begin */
int watchdog_look(BurstCtx *c, Watchdog *v);

/* By SIGSTOP or a debugger. */
bool is_stopped(int pid);

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
