/* context.h: a rank's context, which the runtime's layers share. Emitted programs see burst_rt.h only. */
#ifndef BURST_CORE_CONTEXT_H
#define BURST_CORE_CONTEXT_H

#include "core/spans.h"
#include "burst_plan.h"

enum { ERROR_TEXT = 1024, REDUCE_MAX = BURST_MOST_VALUES, GATHERS_MAX = 4 };
/* Channels of the runtime's collectives. */
enum { CHANNEL_GATHER = 12, CHANNEL_SCATTER = 13, CHANNEL_REDUCE = 14 };

struct BurstCtx {
    const BurstPlan *plan;
    const BurstTrain *train; /* with the options of the command line in place */
    int rank, world, local;
    const int *local_of;     /* [world]: index on this host, -1 elsewhere */
    struct Region *region;
    struct Slot *slot;
    char *arena;
    size_t used;
    double timeout;
    bool patient;            /* what it waits for may take longer: await_files */
    int spins;               /* looks at the bell before sleeping */
    bool unwatched;          /* no launcher of ours watches the ranks: look at their pids */
    int local_rank;          /* number on its host as the launcher counts, -1: local */
    const struct Remote *remote;
    struct Lane *lane[2];    /* [receiving, sending] -> [world * BURST_CHANNELS] */
    struct Lane *active;
    int remote_active;       /* messages under way between hosts: their progress needs polling */
    uint64_t remote_bytes;   /* moved so far, where the transport counts them: a sign of life */
    uint64_t sent;           /* bytes, so far, by the plan's channels */
    struct Op *free_ops;
    BurstReq *gather_reqs;   /* [GATHERS_MAX + 1][world]; the last for the blocking collectives */
    bool gather_busy[GATHERS_MAX];
    bool echo;               /* the error is only the echo of another rank's */
    bool others_failed;      /* all_agree has said so, and they have not yet reported it */
    bool relayed;            /* the error is the word of another host's rank */
    char error[ERROR_TEXT];
    struct Data *data, *evaluation; /* what sequences are read from; and from for evaluation */
    float **weight_tables;
    struct MuonOwners *owners; /* NULL: not made yet */
    struct Pool *pool;       /* of threads; NULL: none were needed yet */
    Spans *spans;            /* --trace; NULL: never */
    Spans *watching;         /* the same while a step is traced, else NULL */
    HostDevice device;       /* what the rank computes on, where that is not the host */
};

/* BURST_TIMEOUT or the default, in seconds. */
double default_timeout(void);
bool parse_seconds(const char *text, double *seconds);
/* Seconds in which this thread could look: what limits of waiting count. Where a process was stopped
 * (docker pause, Slurm's preemption) at most a quarter of one between two looks; whoever waits looks at
 * least that often. */
double awake_seconds(void);
/* "burst: ..." on stderr, what a terminal would obey escaped. */
__attribute__((format(printf, 1, 2))) void say_line(const char *format, ...);

int host_cores(void); /* processors that this process may use */
/* This rank's share of the host's processors, at least 1. */
int host_threads(const BurstCtx *c);
/* Calls run(what, part, parts) for each part from 0, on as many threads; returns when all are done. */
typedef void Parts(const void *what, int part, int parts);
void in_parts(BurstCtx *c, Parts *run, const void *what);
void pool_close(BurstCtx *c); /* ends these threads */

#endif
