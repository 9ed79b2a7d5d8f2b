/* cost.h: the parts of the simulated step, private to cost*.c and their tests. docs/cost.md explains the model.
 *
 * Seconds and bytes throughout; bandwidths in bytes/s. A simulated rank stands for itself or, in groups too large to
 * simulate whole, for the ranks around it (cost_grid).
 */
#ifndef BURST_COST_H
#define BURST_COST_H

#include "burst.h"
#include "burst_parts.h"

/* What time on the critical path is spent on. */
#define COST_CLASSES(X) /* id, name */ \
    X(COMPUTE, "compute") \
    X(LINK, "link inside the nodes") \
    X(NIC, "network between the nodes") \
    X(MERGE, "merging partial sums") \
    X(WEIGHTS, "gathering weights and reducing gradients")
typedef enum CostClass {
#define X(id, name) COST_##id,
    COST_CLASSES(X)
#undef X
    COST_CLASS_COUNT
} CostClass;

/* ---- cost_sim.c: tasks with dependencies; transfers share resources ---- */
enum { TASK_RESOURCES = 4 };
typedef struct Task {
    CostClass class;
    double seconds;              /* of its own: computing, or a transfer's latency, which takes no bandwidth */
    double bytes;                /* 0: no transfer */
    int resources, resource[TASK_RESOURCES]; /* that a transfer uses */
    double begin, end;           /* filled by sim_run */
    int cause;                   /* the task whose end let this one begin, -1: none */
    /* the simulation's own */
    int waits, edge, state, place, slot[TASK_RESOURCES];
    double remaining, rate, since, when;
} Task;
typedef struct Sim Sim;
Sim *sim_new(Arena *a, int resources, const double *capacity); /* copies capacity */
int sim_task(Sim *s, Task t);                /* its number, from 0 */
void sim_after(Sim *s, int task, int before); /* task begins after `before` has ended; before < 0: nothing */
/* Runs all. The time at which the last task ends; infinity where tasks wait for each other in a circle. */
double sim_run(Sim *s);
int sim_tasks(const Sim *s);
const Task *sim_at(const Sim *s, int task);

/* ---- cost_attention.c: one direction of one layer's attention ---- */
typedef struct AttentionInput {
    const Cluster *cluster;
    const Schedule *schedule;
    int first;            /* world rank of the group's first rank */
    int ranks;            /* simulated */
    const int *rank;      /* [ranks] their ranks in the group */
    int size[MAX_COORDS]; /* the simulated ranks as coordinates; size[0] * size[1], 1 where there is one coordinate */
    /* [trace.n][ranks]. COMPUTE: seconds, 0: an empty pair. */
    double *seconds;
    /* [trace.n][ranks]. PASS, RETURN: bytes that arrive at the rank, 0: nothing is sent; EXCHANGE: bytes the rank sends. */
    double *bytes;
} AttentionInput;
/* One busy interval of a stream of a simulated rank; transfers at the receiver. */
typedef struct Busy { int rank, channel; /* -1: compute */ int at; /* of the trace */ double begin, end; } Busy;
typedef struct AttentionTime {
    double seconds;                /* until the last rank is done */
    double *busy;                  /* [ranks] seconds of computing */
    double *end;                   /* [ranks] */
    double *sent, *received;       /* [ranks] bytes */
    double link_bytes, nic_bytes;  /* sent by all simulated ranks */
    double path[COST_CLASS_COUNT]; /* seconds of the critical path */
    int intervals;
    const Busy *interval;
} AttentionTime;
AttentionTime attention_simulate(Arena *a, const AttentionInput *in);
int grid_add(const AttentionInput *in, int rank, int hop); /* the simulated rank a relative hop away */
double cost_merge_seconds(const Device *d, double bytes);

/* ---- cost_live.c: what empty pairs leave: the rule of prune.c on the simulated ranks ---- */
/* seconds is given; sets live[trace.n][ranks]: whether the transfer arrives at the rank. */
uint8_t *cost_live(Arena *a, const AttentionInput *in);

/* ---- cost_load.c: work and bytes of a draft ---- */
double cost_chunk_bytes(const Model *m, TensorId t, bool backward, bool cpu, double tokens);
/* The simulated ranks, with their loads under one mask in one direction. pairs, where not NULL: [ranks] unmasked pairs
 * that each computes (of all heads together, in units of one sequence's pairs: a rank with a share of heads counts that
 * share of every pair). */
AttentionInput cost_load(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs);
int cost_simulated_ranks(const Draft *d); /* how many ranks are worth simulating: `ranks` above, or the whole group */
double cost_rate_share(const Cluster *c, int rank); /* of a device's rate: cpu ranks of a node share its cores */

/* ---- cost_step.c: a step around attention, in parts that add up to it ---- */
typedef struct LayerKind { /* layers with the same mask */
    int layers;
    AttentionTime forward, backward;
} LayerKind;
typedef struct StepParts {
    int ranks;            /* simulated */
    const int *rank;      /* [ranks] their ranks in the group */
    int busiest;          /* of them: computes most in attention */
    int kinds;
    LayerKind *kind;      /* [program->mask_count]; layers 0: unused */
    double sequences;     /* that one group runs in a step */
    double attention_again; /* 1 where backward repeats attention forward */
    double dense_forward, dense_again, dense_backward; /* one layer, the rest of it: slowest rank; again: what is recomputed */
    double loss, embedding, optimizer;    /* a sequence, a sequence, a step */
    double gather, reduce; /* weights of a layer, their gradients: on the wire */
    double first_gather, last_reduce; /* of the embedding */
    BurstRestForecast rest, rest_again; /* of dense_forward, dense_again */
    double weights;       /* a sequence: what of all gathers and reductions is not hidden */
    double slowest_compute;  /* a step: busy seconds of the rank that computes most */
    double path[COST_CLASS_COUNT]; /* a step: critical paths of attention, and exposed weights */
    double weight_link, weight_nic; /* a sequence: bytes sent by a rank */
    double *pairs;        /* [ranks] of all layers */
    double flops;         /* of the step, all ranks */
    double step;
    double *rows;         /* [BURST_ROW_COUNT] a step, of the rank that computes most */
} StepParts;
StepParts step_parts(Arena *a, const Draft *d);

/* ---- cost_forecast.c: the step laid out, for --trace and --emit=trace ---- */
/* Of more than most_spans spans an attention becomes one. */
const BurstForecast *cost_forecast(Arena *a, const Draft *d, int most_spans);

/* ---- cost.c, cost_print.c: of drafts that are not verified yet ---- */
Cost cost_draft(Arena *a, const Draft *d);
void print_cost_draft(const Draft *d, const Cost *c, Text *out);

#endif
