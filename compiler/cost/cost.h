/* cost.h: the parts of the simulated step, private to cost*.c and their tests. docs/cost.md explains the
 * model.
 *
 * Seconds and bytes throughout; bandwidths in bytes/s. A simulated rank stands for itself or, in groups
 * too large to simulate whole, for the ranks around it (cost_grid).
 */
#ifndef BURST_COST_H
#define BURST_COST_H

#include "burst_parts.h"
#include "step/verify/verify.h"

/* ---- attention_rate.c: what kernels compute of a pair of chunks, one head, and at which rate ---- */
/* Pairs of the kernel's tiles that are not empty, those of partial ones, and the rows that have any:
 * queries, backward keys. */
typedef struct AttentionWork { double pairs, partial, rows; } AttentionWork;
AttentionWork attention_work(const Program *p, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens);
/* the same of many pairs; sides: attention_tile_sides, rows and keys of a tile together */
AttentionWork attention_work_of(double sides, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens);
double attention_tile_sides(const Program *p, bool backward);
/* FLOP/s of the pairs of tiles */
double attention_rate(const Device *d, bool backward, int head_dim, AttentionWork w);
/* Columns of a head that attention's products take at that rate: as its kernels pad head_dim, and more
 * where they are not of the devices' own form. */
double attention_columns(const Program *p, const Device *d, bool backward);

/* ---- ranges.c: what attention's transfers of a layer send, all ranks of a group together ---- */
typedef struct Sent { int64_t bytes, whole; /* whole: if chunks of keys travelled whole */ } Sent;
/* By the layout, or for what they save; d without memory yet. loads, where not NULL: as of Draft, with what
 * was decided. */
bool ranges_wanted(Arena *a, const struct Draft *d, const struct AttentionLoads **loads);
/* of a direction without exchanges */
Sent ranges_sent(Arena *a, const struct Draft *d, int mask, bool backward);
void print_ranges(const struct Draft *d, Text *out); /* of --emit=plan; nothing where chunks travel whole */

/* ---- cost/choose_saved.c: what layers save, by time and bytes ---- */
/* What spares most seconds a byte, in a share of the bytes that `none` saves; attended: by a rank and
 * head. */
Saving saving_at(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units,
                 AttentionWork attended, double share);

/* ---- batches.c: a step over drawn batches, where the lengths of documents are known ---- */
enum { COST_BATCHES = 16 };
/* Of sequences drawn alone, COST_BATCHES or some of them, each with its own pruning and, where the partition
 * is balanced, its own owners. Seconds of a step; with data-parallel groups each has a sequence of its own,
 * and the slowest counts. n 0: lengths are not known. */
typedef struct CostBatches {
    int n;
    double mean, p95;
    double imbalance; /* most loaded rank's pairs / mean, mean over batches */
    double received;  /* bytes that a rank receives of attention, and sends of weights, in a step; mean */
    double typical;   /* the mean over the few that the search compares first; 0: it did not */
    struct { bool known; double step, imbalance, received; } batch[COST_BATCHES];
} CostBatches;

/* ---- Cost: a simulated step ---- */
typedef struct Cost {
    double step;      /* seconds, the slowest rank */
    double compute;   /* busy seconds of that rank's compute */
    /* of compute: attention, what backward recomputes beside it, the optimizer */
    double attention, again, update;
    double tile_flops; /* of all tiles of that attention, masked pairs of partial ones included */
    bool latents;      /* that attention makes keys and values of other ranks' latents */
    double attention_forward, attention_backward; /* seconds of one layer, mean over layers */
    double exposed;   /* seconds that compute waits for transfers, of that rank, whole step */
    double bytes_link, bytes_nic; /* sent by one rank in a step, mean */
    double bytes_uplink[MAX_LEVELS]; /* of bytes_nic, those that leave one of each level of the cluster */
    double flops;     /* of the step, all ranks; backward counted twice forward */
    double imbalance; /* most loaded rank's pairs / mean */
    double peak, matmul; /* of a rank by its data sheet, and of its matrix products, flop/s; means */
    size_t memory;    /* bytes of a rank at the peak, with what libraries take */
    const char *critical; /* what the slowest rank waits for most, for --explain */
    bool hidden;          /* it waits for less than 1 % of the step */
    CostBatches batches;  /* n 0: not asked for */
    const double *rows;   /* [BURST_ROW_COUNT] seconds of a step of that rank, by rows of --trace's table */
} Cost;
/* enough: of a step that is longer in any case, what sharing the wire adds is left out; INFINITY: none. */
Cost cost_draft(Arena *a, const Draft *d, double enough);
/* Whether a Cost is of the program itself. C for CPUs planned for GPUs has the layout that suits these;
 * how long it takes on whatever CPUs run it, the cluster does not say. */
bool cost_is_of_program(const Program *p);
/* Seconds that a step does not fall below with what the draft has, nor where it saves less or more of it
 * lies with the host; any_weights: nor with other values of the row `weights` either. From the simulated
 * attention, with a wire of their own for collectives. */
typedef struct Bound { double step, any_weights; } Bound;
Bound cost_bound(Arena *a, const Draft *d);
/* lower, and found sooner: attention waits for no transfer; ranges need not be decided */
Bound cost_bound_computing(Arena *a, const Draft *d);
CostBatches cost_batches(const Draft *d); /* over all */
/* Those of batch[n] that it does not know; then its n and means, over some that it knows. */
void cost_add_batches(const Draft *d, const int *batch, int n, CostBatches *to);
void cost_sum_batches(const int *batch, int n, int groups, CostBatches *of);
/* "16 drawn batches: mean 1.23 s, p95 1.45 s"; "" where there are none. */
const char *cost_batches_text(Arena *a, const Cost *c);
const char *cost_waits_text(const Cost *c); /* what is most waited for, as forms and pictures say it */
/* why x, of choice c, is slower, from both figures */
const char *cost_loses_text(Arena *a, const Choice *c, const Cost *x, const Cost *best);
/* the predicted share of what all ranks' matrix products could do */
double cost_mfu(const Program *p, const Cost *c); /* of the data sheets' peaks */
/* "123456 tokens/s, 41.2 % MFU (60.1 % of the matmul rate)"; "" where no time is predicted. */
const char *cost_speed_text(Arena *a, const Program *p, const Cost *c);
const char *cost_mfu_text(Arena *a, double mfu); /* where it is above all: why; NULL: it is not */
/* Seconds that a step takes at least with the best of `each`, which differ in the row `weights` alone,
 * whatever else is chosen: perfect balance, and no transfer of attention waited for. pairs: [mask_count]
 * unmasked pairs of a sequence. */
double cost_least(const Program *p, const double *pairs, const Choice *each, int choices);

/* ---- shares.c: ranks of different speed have different shares of a sequence ---- */
typedef struct Speeds Speeds; /* of the cluster's devices */
Speeds *shares_speeds(Arena *a, const Program *p, const double *pairs); /* pairs: as of cost_least */
/* ranks that share a sequence are on different devices */
bool shares_differ(const Program *p, const Choice *c);
void shares_take(Arena *a, const Program *p, Speeds *s, Choice *c); /* decides share and shares_text */
const char *shares_why_not(Arena *a, const Program *p, const Choice *c);

/* ---- the parts of the simulated step: for cost/, its tests, and who draws them ---- */
/* What time on the critical path is spent on. */
#define COST_CLASSES(X) /* id, name */ \
    X(COMPUTE, "compute") \
    X(LINK, "link inside the nodes") \
    X(NIC, "network between the nodes") \
    X(MERGE, "merging partial sums") \
    X(WEIGHTS, "gathering weights and reducing gradients") \
    X(TENSOR, "tensor-parallel gathers and reductions") \
    X(COPIES, "copies to and from the host's memory")
typedef enum CostClass {
#define X(id, name) COST_##id,
    COST_CLASSES(X)
#undef X
    COST_UPLINK, /* of a level of the cluster, the innermost; then of those above it */
    COST_CLASS_COUNT = COST_UPLINK + MAX_LEVELS
} CostClass;

/* ---- cost/sim.c: tasks with dependencies; transfers share resources ---- */
enum { TASK_RESOURCES = 4 + 2 * MAX_LEVELS };
typedef struct Task {
    CostClass class;
    /* of its own: computing, or a transfer's latency, which takes no bandwidth */
    double seconds;
    double bytes;                /* 0: no transfer */
    /* of a transfer: how many it stands for where resources are shared; 0: one */
    double weight;
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

/* Rings of ranks, as many beside each other as there are ranks: first, first + stride, ...; rounds: 1, or
 * 2 of an all-reduce; adds: what travels is added up, beside computing. */
typedef struct Ring { int ranks, stride, rounds; bool adds; } Ring;
/* A collective over such rings: what each rank sends, the seconds that are left of it when nothing else
 * moves, and of its bytes those on each rank's link, on the NICs of each node, and on the uplinks of each
 * level. */
typedef struct Collective { double bytes, seconds, link, nic, uplink[MAX_LEVELS]; } Collective;

/* ---- cost/attention.c: one direction of one layer's attention ---- */
typedef struct AttentionInput {
    const Cluster *cluster;
    const Schedule *schedule;
    int group;            /* of the ranks that share a sequence */
    /* groups with ranks in the same nodes, which do the same at the same time; 0: one */
    int alike;
    int ranks;            /* simulated */
    const int *rank;      /* [ranks] their ranks in the group */
    /* the simulated ranks as the choice's coordinates, of which some may be fewer */
    int size[MAX_COORDS], stride[MAX_COORDS];
    /* [trace.n][ranks]. COMPUTE: seconds, 0: an empty pair. */
    double *seconds;
    /* [trace.n][ranks]. PASS, RETURN: bytes that arrive at the rank, 0: nothing is sent; EXCHANGE: bytes
     * the rank sends. NULL: of computing alone. */
    double *bytes;
    double *received;     /* [trace.n][ranks]. EXCHANGE: bytes that come to the rank. */
    /* [ranks] of the tiles that the rank computes, masked pairs of partial ones included */
    double *tile_flops;
    /* [trace.n][ranks]. COMPUTE: tiles that it has work for; NULL: chunks travel whole */
    BurstPairTiles *tiles;
    double *whole;        /* with tiles: as bytes, if chunks travelled whole */
    const int *nic;       /* [ranks] the first rank with the same NIC; NULL before links_with_nics */
    int besides;          /* collectives that are on the wire when it begins, one after the other */
    const Collective *beside;
} AttentionInput;
/* One busy interval of a stream of a simulated rank; transfers at the receiver. */
typedef struct Busy {
    int rank, channel; /* -1: compute */
    int at; /* of the trace */
    double begin, end;
} Busy;
typedef struct Beside {
    double end, left; /* when it ended, at most with attention; seconds that are left then */
} Beside;
typedef struct AttentionTime {
    double seconds;                /* until the last rank is done */
    double *busy;                  /* [ranks] seconds of computing */
    double *passing;               /* [ranks] seconds of transfers that come to it; NULL: none is simulated */
    double *end;                   /* [ranks] */
    double *sent, *received;       /* [ranks] bytes */
    double link_bytes, nic_bytes;  /* sent by all simulated ranks, inside nodes and between */
    double uplink_bytes[MAX_LEVELS]; /* of these, out of one of each level */
    double path[COST_CLASS_COUNT]; /* seconds of the critical path */
    int intervals;
    const Busy *interval;
    Beside *beside;                /* [besides] */
} AttentionTime;
AttentionTime attention_simulate(Arena *a, const AttentionInput *in);
int grid_add(const AttentionInput *in, int rank, int hop); /* the simulated rank a relative hop away */

/* ---- cost/links.c: links and NICs of the simulated ranks as resources ---- */
int links_rank(const AttentionInput *in, int rank); /* in the world, of a simulated rank */
const NodeGroup *links_group(const AttentionInput *in, int rank); /* of a simulated rank */
AttentionInput links_with_nics(Arena *a, const AttentionInput *in);
Sim *links_sim(Arena *a, const AttentionInput *in); /* with NICs, as all below */
/* How far apart two nodes are: 0: one node; 1: of the innermost level; one more for each level that a
 * message leaves. */
enum { DISTANCES = 2 + MAX_LEVELS };
/* One message: inside a node over both ranks' links, else through both nodes' NICs and all uplinks between
 * them. */
Task links_hop(const AttentionInput *in, int from, int to, double bytes);
/* A rank's part of an all-to-all with the ranks at that distance, from a task to that which ends its sends
 * and that which ends all. */
void links_exchange(Sim *s, const AttentionInput *in, int rank, double sent, double received, int distance,
                    int start, int sends, int end);
/* of a rank's peers, by distance */
void links_shares(const AttentionInput *in, int rank, double share[DISTANCES]);
void links_count(AttentionTime *t, int distance, double bytes); /* that were sent so far */
int links_distance(CostClass class); /* over which a transfer of that class goes */
/* With so many bytes in full, every NIC of a node in use. */
Collective collective_of(const Cluster *c, Ring r, double bytes);
double collective_moving(const Cluster *c, Collective x); /* seconds of its bytes alone, without latency */
/* the task with which it ends */
int links_collective(Sim *s, const AttentionInput *in, Collective c, int after);

/* ---- cost/live.c: what empty pairs leave: the rule of burst_prune.h on the simulated ranks ---- */
/* seconds and tiles are given; live[trace.n][ranks]: which tiles the transfer brings the rank, if any. */
BurstTileRanges *cost_live(Arena *a, const AttentionInput *in);

/* ---- cost/load.c: work and bytes of a draft ---- */
/* The simulated ranks, with their loads under one mask in one direction. pairs, where not NULL: [ranks]
 * unmasked pairs that each computes (of all heads together, in units of one sequence's pairs: a rank with
 * a share of heads counts that share of every pair). */
AttentionInput cost_load(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs);
/* Seconds alone, of so many ranks from the first to the last. */
AttentionInput cost_computing(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs);
/* Of layers of each mask, forward and backward, with ranges. */
typedef struct AttentionLoads {
    AttentionInput (*of)[2]; /* [mask_count] */
    double **pairs;          /* [mask_count] as of cost_load, forward */
} AttentionLoads;
AttentionLoads cost_loads(Arena *a, const Draft *d);
void loads_make_whole(const Draft *d, AttentionLoads *l); /* without ranges */
/* Of what attention's transfers of a layer of each mask send with whole chunks, the share that ranges
 * leave away. */
double loads_saved(const Draft *d, const AttentionLoads *l);
/* how many ranks are worth simulating: `ranks` above, or the whole group */
int cost_simulated_ranks(const Draft *d);
/* What each rank of such nodes has of a device's rates and of its link: cpu ranks share the cores that
 * compute, read, write and copy. */
double cost_rate_share(const Cluster *c, const NodeGroup *g);

/* ---- cost/work.c: what operations take on ranks that are alike ---- */
typedef struct Work {
    double flops, bytes, norms; /* a token; norms: bytes at the rate of norms and rotation */
    double fixed, products, seconds; /* bytes, operations of products, and seconds, whatever the tokens */
} Work;
typedef struct RankKind { const Device *device; double share, tokens; } RankKind;
/* of a gather or scatter of tensor ranks, for which computing waits */
Collective tensor_collective(const Step *s, const Op *o);
/* is_short: of a short chunk of heads */
Work op_work(const Step *s, const Op *o, int block, int unit, bool is_short);
RankKind rank_kind_of(const Cluster *c, int rank, double tokens);
bool rank_kinds_equal(RankKind x, RankKind y);
double work_seconds(RankKind k, Work w);

/* ---- cost/step.c: a step, in parts that add up to it ---- */
/* The operations of a step with what each takes. */
typedef struct StepModel {
    const Program *program; /* for the cluster's devices, whatever it is written for */
    const Cluster *cluster;
    const Step *step;
    int64_t sequences;      /* of one group, one after the other */
    int ops;
    const StepOp *op;
    int rank_kinds, own;    /* own: of the rank whose parts are stated */
    const RankKind *rank_kind;
    /* [op of the block][unit: embedding, layer, head][chunk of heads: others, short][rank kinds] */
    double *seconds[STEP_BLOCKS];
} StepModel;
const double *model_seconds(const StepModel *m, const StepOp *o); /* [rank kinds] */
typedef struct Contended {
    struct Contended *next;
    int besides;
    const Collective *beside;
    AttentionTime time;
} Contended;
/* Of a layer; REST: forward of the first tokens again, where outputs of the last ones are kept. */
typedef enum Attend { ATTEND_FORWARD, ATTEND_BACKWARD, ATTEND_REST, ATTENDS } Attend;
typedef struct LayerKind { /* layers with the same mask */
    int layers;
    AttentionInput input[ATTENDS];
    AttentionTime time[ATTENDS]; /* nothing else on the wire */
    Contended *contended[ATTENDS];
    double times[ATTENDS]; /* a step */
} LayerKind;
typedef struct BlockTime {
    double times, seconds,
        again; /* a step; without attention; again: beside seconds, what backward computes again */
} BlockTime;
typedef struct StepParts {
    int group, ranks;     /* which one is simulated, and how many of its ranks */
    const Choice *choice;
    const int *rank;      /* [ranks] their ranks in the group */
    int busiest;          /* of them: computes most in attention */
    int attends;          /* of Attend: without REST, or all */
    int kinds;
    /* [kinds] by mask, and by mask again for short chunks of heads where there are such; layers 0: unused */
    LayerKind *kind;
    double *pairs;        /* [ranks] of all layers */
    double mean_pairs;    /* of all ranks of the group, simulated or not */
    double *speed, mean_speed; /* [ranks] of attention, in that of the group's first rank; of all ranks */
    double flops;         /* of the step, all ranks */
    double attention_busy, mean_attention_busy; /* a step: of the busiest rank, of the mean rank */
    double tile_flops;    /* a step, of the busiest rank's tiles of attention */
    /* a step, from cost/stream.c */
    /* weights: what collectives add to the rest: waits for them, and attention that they slow */
    double step, weights;
    double tensor;        /* what tensor ranks do among them */
    double copies; /* waits for copies to and from the host's memory */
    /* sent by a rank in all but attention; of these, out of its node, and of each level */
    double weight_bytes, weight_nic_bytes, weight_uplink_bytes[MAX_LEVELS];
    BlockTime block[STEP_BLOCKS];
    const char *block_name[STEP_BLOCKS];
    /* [BURST_ROW_COUNT] of the rank that computes most; those of computing and waits add up to the step */
    double *rows;
} StepParts;
typedef struct Recorder Recorder;
/* Attention alone, but REST: nothing that cost/stream.c fills. */
StepParts cost_attended(Arena *a, const Draft *d);
StepParts step_parts(Arena *a, const Draft *d);
/* r NULL: no timeline. enough: of a step that is longer in any case, what sharing the wire adds is left
 * out. */
void step_record(Arena *a, const Draft *d, double enough, StepParts *p, Recorder *r);
/* Seconds that a token of a sequence takes on a rank: attention of all layers, and all else; once each.
 * pairs: as of cost_least. */
void cost_token(const Program *p, const double *pairs, int rank, double seconds[2]);
/* a step: busy seconds of the rank that computes most */
double parts_compute(const StepParts *p);
double cost_imbalance(const StepParts *p); /* pairs of the rank with the most / mean */

/* ---- cost/stream.c: the operations in time ---- */
/* Into p's figures of a step, which are 0. shared false: as if collectives had a wire of their own, which
 * takes less. */
void stream_run(Arena *a, StepParts *p, const StepModel *m, bool shared, Recorder *record);

/* ---- cost/forecast.c: the timeline, for --trace and --emit=trace ---- */
/* what follows is one of so many sequences that are alike */
void record_sequences(Recorder *r, int times);
/* the last one has ended; whether another begins. Seconds since the sequence began */
void record_visit(Recorder *r, double now, bool begins);
/* collectives: a: of the embedding, b: the visit whose unit it is */
void record_span(Recorder *r, BurstSpan s);
void record_attention(Recorder *r, const Schedule *s, const AttentionTime *t, double now);
void record_stretch(Recorder *r, double now);     /* one ends, another begins */
/* Of more than most_spans spans an attention becomes one, and what is computed between waits one span for
 * each part. */
enum { ALL_SPANS = INT32_MAX };
const BurstForecast *cost_forecast(Arena *a, const Draft *d, int most_spans);

/* ---- cost.c, tools/print_cost.c: of drafts that are not verified yet ---- */
const char *size_text(Arena *a, double bytes); /* "190.16 kB" */
void print_cost_draft(const Draft *d, const Cost *c, Text *out);

#endif
