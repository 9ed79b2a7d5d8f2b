/* internal.h: what the runtime's own files share. Emitted programs see burst_rt.h only.
 *
 * One region of shared memory a host: Head, a Slot a rank, the message rings of every (receiver, sender,
 * channel), and the arenas. Everything in it is found by offset, because under mpirun each rank maps it
 * somewhere else.
 */
#ifndef BURST_INTERNAL_H
#define BURST_INTERNAL_H

#include "burst_rt.h"
#include "base/plural.h"
#include "timeline/spans.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

enum {
    DOING_TEXT = 120,
    ERROR_TEXT = 1024,
    SAVED_TEXT = 400,
    RING_SLOTS = 8,
    REDUCE_MAX = 64,
    GATHERS_MAX = 4
};
/* Channels of the runtime's collectives. */
enum { CHANNEL_GATHER = 12, CHANNEL_SCATTER = 13, CHANNEL_REDUCE = 14 };

/* ---- shared region ---- */
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

/* ---- messages ---- */
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

/* ---- context of one rank ---- */
typedef struct Pool Pool;
struct BurstCtx {
    const BurstPlan *plan;
    const BurstTrain *train; /* with the options of the command line in place */
    int rank, world, local;
    const int *local_of;     /* [world]: index on this host, -1 elsewhere */
    Region *region;
    Slot *slot;
    char *arena;
    size_t used;
    double timeout;
    bool patient;            /* what it waits for may take longer: await_files */
    int spins;               /* looks at the bell before sleeping */
    bool unwatched;          /* no launcher of ours watches the ranks: look at their pids */
    int local_rank;          /* number on its host as the launcher counts, -1: local */
    const Remote *remote;
    Lane *lane[2];           /* [receiving, sending] -> [world * BURST_CHANNELS] */
    Lane *active;
    int remote_active;       /* messages under way between hosts: their progress needs polling */
    uint64_t remote_bytes;   /* moved so far, where the transport counts them: a sign of life */
    uint64_t sent;           /* bytes, so far, by the plan's channels */
    Op *free_ops;
    BurstReq *gather_reqs;   /* [GATHERS_MAX + 1][world]; the last for the blocking collectives */
    bool gather_busy[GATHERS_MAX];
    bool echo;               /* the error is only the echo of another rank's */
    bool others_failed;      /* all_agree has said so, and they have not yet reported it */
    bool relayed;            /* the error is the word of another host's rank */
    char error[ERROR_TEXT];
    struct Data *data, *evaluation; /* what sequences are read from; and from for evaluation */
    float **weight_tables;
    struct MuonOwners *owners; /* NULL: not made yet */
    Pool *pool;              /* of threads; NULL: none were needed yet */
    Spans *spans;            /* --trace; NULL: never */
    Spans *watching;         /* the same while a step is traced, else NULL */
    HostDevice device;       /* what the rank computes on, where that is not the host */
};

struct Identity;
typedef struct Job {
    const BurstPlan *plan;
    const BurstTrain *train;
    double timeout;
    int (*body)(BurstCtx *c, const BurstPlan *p, void *arg);
    void *arg;
    /* what else must be equal on all ranks (identity.h); NULL: nothing */
    void (*identify)(struct Identity *id, const void *arg);
    const struct Place *place; /* set by job_run */
} Job;
/* Runs the job on all ranks: the exit code. */
int job_run(const Job *job);
/* Runs the body as one rank of a region; returns a status. *first: this failure is the host's first, and
 * its text stands in the region's head. */
int rank_run(const Job *job, Region *r, int rank, const int *local_of, const Remote *remote, bool *first);
/* 0, 1, 2 or 3 for a status. */
int exit_code(int status);
/* Of what another process sent: whether it is BURST_OK or an error. */
static inline bool is_status(int64_t status) { return status <= BURST_OK && status >= BURST_E_DEVICE; }
/* BURST_TIMEOUT or the default, in seconds. */
double default_timeout(void);
bool parse_seconds(const char *text, double *seconds);
/* Seconds in which this thread could look: what limits of waiting count. Where a process was stopped
 * (docker pause, Slurm's preemption) at most a quarter of one between two looks; whoever waits looks at
 * least that often. */
double awake_seconds(void);
int mpi_job_run(const Job *job);
int rendezvous_job_run(const Job *job); /* started by torchrun or srun */
/* "rank 3, step 5 (attend Q[0] with KV[1])" */
void describe_rank(const Region *r, int rank, int local, char *text, size_t size);

/* This rank's share of the host's processors, at least 1. */
int host_threads(const BurstCtx *c);
/* Calls run(what, part, parts) for each part from 0, on as many threads; returns when all are done. */
typedef void Parts(const void *what, int part, int parts);
void in_parts(BurstCtx *c, Parts *run, const void *what);
void pool_close(BurstCtx *c); /* ends these threads */
int context_open(BurstCtx *c, const Job *job, Region *r, int rank, const int *local_of, const Remote *remote);
void context_close(BurstCtx *c);

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

/* "burst: ..." on stderr, what a terminal would obey escaped. */
__attribute__((format(printf, 1, 2))) void say_line(const char *format, ...);
/* To read: a file descriptor, or -1 with the error set. What is no regular file (a FIFO, a device) is
 * refused, not waited for. */
int open_regular(BurstCtx *c, const char *path, off_t *bytes);
/* false with errno 0: the file ends before. */
bool read_at(int fd, void *data, size_t bytes, off_t at);
/* An allreduce of all ranks after some of them have written or read files. Storage may need longer than the
 * time limit for an fsync; a rank that is lost or stopped ends the wait all the same. */
int await_files(BurstCtx *c, double *values, int count);
/* Whether all ranks have done something with files, of which each brings its status: its own failure, or that
 * another one failed. The job goes on until one of them returns from its body. */
int all_agree(BurstCtx *c, int status);

int data_ready(BurstCtx *c, const BurstPlan *p); /* opens and checks the data, where no batch was read yet */
void data_close(BurstCtx *c);
void data_print(FILE *to, const BurstTrain *t); /* the files, as a model has them: "a.tok" 0.7, "b.tok" 0.3 */
/* The same of the file to evaluate on, and how many sequences it has. */
int data_evaluation_ready(BurstCtx *c, const BurstPlan *p, int64_t *sequences);
void data_swap(BurstCtx *c); /* sequences are read from the one to evaluate on, or again from the data */
void weights_close(BurstCtx *c);
void muon_close(BurstCtx *c);
/* The two halves of burst_weights_make: zeroed shards, and first values from the seed. */
int weights_take(BurstCtx *c, const BurstPlan *p, BurstWeights *w);
void weights_fill(BurstCtx *c, const BurstPlan *p, BurstWeights *w);
/* Where a rank's shard of a unit has elements of this tensor; end <= begin: nowhere. */
typedef struct ElementRange { int64_t begin, end; } ElementRange;
ElementRange tensor_part(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t);
int plan_tensor(const BurstPlan *p);
bool unit_is_split(const BurstPlan *p, const BurstUnit *u); /* over tensor ranks */
/* tensor ranks, neighbours, that have the same of it */
int tensor_copies(const BurstPlan *p, const BurstTensor *t);
BurstGroup copies_group(const BurstCtx *c, const BurstTensor *t); /* these ranks */
/* Whether it is this rank, of tensor ranks that have the same of the tensor, that writes it into files. */
bool tensor_is_written(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t);
/* How many ranks share the weights. */
static inline int plan_shards(const BurstPlan *p) { return p->shard_ranks ? p->shard_ranks : p->world; }
/* Whether it is this rank, of those that hold the same shards, that writes item `n` of a file: they take
 * turns. */
static inline bool plan_writes(const BurstPlan *p, int rank, int n)
{
    return n % (p->world / plan_shards(p)) == rank / plan_shards(p);
}

/* Under mpirun, torchrun and srun, which end the ranks by SIGTERM when one of them was lost. */
void catch_termination(void);
bool termination_told(void);
int heed_termination(BurstCtx *c); /* fails when a signal has told this rank to end */
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

/* ---- numbers that are the same whatever the world size ---- */
static inline uint64_t mix64(uint64_t x) /* splitmix64's finaliser */
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static inline uint64_t hash3(uint64_t a, uint64_t b, uint64_t c)
{
    return mix64(mix64(mix64(a + 0x9e3779b97f4a7c15u) + b) + c * 0x9e3779b97f4a7c15u);
}
#endif
