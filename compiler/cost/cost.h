/* cost.h: the parts of the simulated step, private to compiler/cost and its tests. docs/cost.md explains the
 * model.
 *
 * All figures are seconds, bytes, and bytes/s. A simulated rank stands for itself or, in groups too large to
 * simulate whole, for the ranks around it (cost_grid). */
#ifndef BURST_COST_H
#define BURST_COST_H

#include "burst_parts.h"
#include "step/verify/verify.h"

/* ---- attention_rate.c: the work of a pair of chunks, for one head, and its rate ---- */
/* Pairs in the kernel's live tiles, pairs in partial tiles, and rows with any live tile: queries; in
 * backward, keys. */
typedef struct AttentionWork { double pairs, partial, rows; } AttentionWork;
AttentionWork attention_work(const Program *p, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens);
/* the same for many pairs; sides: attention_tile_sides, the rows and keys of a tile added up */
AttentionWork attention_work_of(double sides, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens);
double attention_tile_sides(const Program *p, bool backward);
/* The time of a partial tile's predicate over the time of its products, relative to the mask, heads and
 * head_dim that `burstc probe` measures. */
double attention_predicate(const Program *p, int mask, int head_dim);
/* How many times as long as by these pairs tiles of blocks take under the mask: they are shorter than usual
 * ones, and may be half empty. whole: of the sequence */
double attention_slowdown(const Program *p, bool backward, int mask, PairWork whole);
/* FLOP/s of the pairs of tiles */
double attention_rate(const Device *d, bool backward, int head_dim, AttentionWork w);
/* Columns of a head that attention's products compute at that rate: head_dim as its kernels pad it, and more
 * if they are not of the devices' own form. */
double attention_columns(const Program *p, const Device *d, bool backward);

/* ---- ranges.c: bytes that a layer's attention sends, all ranks of a group together ---- */
typedef struct Sent { int64_t bytes, whole; /* whole: bytes if chunks of keys travelled whole */ } Sent;
/* Whether the layout leaves ranges to simulated time. */
bool ranges_open(const struct Draft *d);
/* Whether transfers carry ranges: as the layout says, else by the time of attention alone. d has no memory
 * yet. loads: NULL, or receives the loads (see Draft) with that decision applied; *loads NULL, or loads with
 * ranges. *save: whether the layout leaves ranges open and they send less. */
bool ranges_wanted(Arena *a, const struct Draft *d, struct AttentionLoads **loads, bool *save);
/* ---- launches.c ---- */
/* Whether forward and backward have a launch for each chunk of keys where one could have all. The draft has
 * its ranges and the latter. */
void launches_wanted(const struct Draft *d, bool each[2]);
/* In how many pieces ranks of a node that share heads exchange and attend their query heads; 1: all at once.
 */
int head_pieces_wanted(const struct Draft *d);

/* for a direction without exchanges */
Sent ranges_sent(Arena *a, const struct Draft *d, int mask, bool backward);
void print_ranges(const struct Draft *d, Text *out); /* --emit=plan; prints nothing if chunks travel whole */

/* ---- cost/choose_saved.c: chooses saved values by time and bytes ---- */
/* The set that saves most seconds per byte within a share of the bytes that `none` saves. attended:
 * attention of one rank and head. */
typedef struct SavedStages SavedStages; /* sets that save more and more, for any share */
const SavedStages *saved_stages(Arena *a, const Program *p, const Shape *shape, const Partition *part,
                                Units units, AttentionWork attended);
Saving saving_in(Arena *a, const SavedStages *s, double share);
Saving saving_at(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units,
                 AttentionWork attended, double share);

/* ---- batches.c: a step over drawn batches, if document lengths are known ---- */
enum { COST_BATCHES = 16 };
/* Statistics of sequences drawn one by one, COST_BATCHES or some of them, each with its own pruning and, if
 * the partition is balanced, its own owners. Seconds of a step: data-parallel groups have a sequence each,
 * and the slowest counts. n 0: lengths are unknown. */
typedef struct CostBatches {
    int n;
    double mean, p95;
    double imbalance; /* most loaded rank's pairs / mean, mean over batches */
    double received;  /* bytes that a rank receives for attention and sends for weights in a step; mean */
    double typical;   /* mean over the few batches that the search compares first; 0: not computed */
    struct { bool known; double step, imbalance, received; } batch[COST_BATCHES];
} CostBatches;

/* ---- Cost: a simulated step ---- */
typedef struct Cost {
    double step;      /* seconds, the slowest rank */
    bool at_least; /* the step takes at least as long: its simulation ended early */
    /* as in Bound, for what is saved and offloaded; 0: not known */
    double any_weights;
    double compute;   /* busy seconds of that rank's compute */
    /* of compute: attention, recomputation in backward other than attention, the optimizer */
    double attention, recompute, update;
    double tile_flops; /* of all tiles of that attention, including masked pairs of partial ones */
    bool latents;      /* attention rebuilds keys and values from other ranks' latents */
    double attention_forward, attention_backward; /* seconds of one layer, mean over layers */
    double exposed;   /* seconds that this rank's compute waits for transfers in a step */
    double bytes_link, bytes_nic; /* sent by one rank in a step, mean */
    /* the part of bytes_nic that leaves a unit of each level of the cluster */
    double bytes_uplink[MAX_LEVELS];
    double flops;     /* of the step, all ranks; backward counts as twice forward */
    double imbalance; /* most loaded rank's pairs / mean */
    double peak, matmul; /* flop/s of a rank: data sheet peak, and matrix products; means */
    size_t memory;    /* peak bytes of a rank, including libraries */
    const char *critical; /* what the slowest rank waits for most, for --explain */
    bool hidden;          /* waits are below 1 % of the step */
    CostBatches batches;  /* n 0: not requested */
    const double *rows;   /* [BURST_ROW_COUNT] seconds of that rank's step, by rows of --trace's table */
} Cost;
/* Simulates the draft's step. enough: bandwidth sharing is skipped for a step that is longer than this
 * without it; INFINITY: never. */
Cost cost_draft(Arena *a, const Draft *d, double enough);
/* whether the ranks that share a prompt each compute a part of a product of a further token; of any */
bool cost_splits_product(const Draft *d, const Block *b, const Op *o);
bool cost_token_splits(const Draft *d);
int cost_split_rows(const Draft *d); /* if the product's rows are a multiple of this */
double cost_continued(
    const Draft *d); /* cost/token.c: seconds of a token that continues the longest prompt */
/* Whether costs describe the program itself. A C program planned for GPUs has their layout, and the cluster
 * does not describe the CPUs that run it. */
bool cost_is_of_program(const Program *p);
/* Lower bounds of a step's seconds for the draft, also with fewer saved values or more offloading.
 * any_weights: also for other values of the row `weights`. From the simulated attention, with collectives on
 * a wire of their own. */
typedef struct Bound {
    double step, any_weights, all;
} Bound; /* all: with the optimizer */
Bound cost_bound(Arena *a, const Draft *uncopied);
/* A weaker bound, found faster: attention waits for no transfer, and ranges need not be decided. */
Bound cost_bound_computing(Arena *a, const Draft *uncopied);
/* The draft with nothing in the host's memory. A choice that saves less has less to copy, so it may be faster
 * with as much offloaded. */
Draft cost_uncopied(const Draft *d);
/* The draft's operations with their times, for its `model` and that of drafts with the same KEY_STEP and
 * KEY_COUNTS; where devices differ, KEY_ATTENDS too. */
struct StepModel *cost_model(Arena *a, const Draft *d);
CostBatches cost_batches(const Draft *d); /* over all drawn batches */
/* With the pairs and the partition of a drawn batch, until as many others as are kept are drawn. */
Draft cost_drawn(Arena *a, const Draft *d, int batch);
/* Drawn batches, each drawn once for all drafts of a program that share them. */
typedef struct DrawnInputs DrawnInputs;
DrawnInputs *drawn_new(Arena *a);
void drawn_forget(DrawnInputs *i); /* what was drawn; it is drawn again if it is needed */
/* Simulates those of batch[n] that `to` lacks, then sets its n and means over the known ones. */
void cost_add_batches(const Draft *d, const int *batch, int n, CostBatches *to);
void cost_sum_batches(const int *batch, int n, int groups, CostBatches *of);
/* "16 drawn batches: mean 1.23 s, p95 1.45 s"; "" if there are none. */
const char *cost_batches_text(Arena *a, const Cost *c);
const char *cost_waits_text(const Cost *c); /* what is most waited for, as --explain and pictures print it */
/* why x, of choice c, is slower than `best` */
const char *cost_loses_text(Arena *a, const Choice *c, const Cost *x, const Cost *best);
/* predicted share of what all ranks' matrix products could compute */
double cost_mfu(const Program *p, const Cost *c); /* relative to the data sheets' peaks */
/* "123456 tokens/s, 41.2 % MFU (60.1 % of the matmul rate)"; "" if no time is predicted. */
const char *cost_speed_text(Arena *a, const Program *p, const Cost *c);
const char *cost_mfu_text(Arena *a, double mfu); /* why MFU exceeds 100 %; NULL: it does not */
/* Lower bound of a step's seconds with the best of `each`, which differ only in the row `weights`, whatever
 * else is chosen: perfect balance, and attention waits for no transfer. pairs: [mask_count] unmasked pairs
 * of a sequence. */
double cost_least(const Program *p, const double *pairs, const Choice *each, int choices);

/* ---- shares.c: ranks of different speed get different shares of a sequence ---- */
typedef struct Speeds Speeds; /* of the cluster's devices */
Speeds *shares_speeds(Arena *a, const Program *p, const double *pairs); /* pairs: as for cost_least */
/* whether ranks that share a sequence are on different devices */
bool shares_differ(const Program *p, const Choice *c);
void shares_take(Arena *a, const Program *p, Speeds *s, Choice *c); /* sets share and shares_text */
const char *shares_why_not(Arena *a, const Program *p, const Choice *c);

/* ---- parts of the simulated step, for cost/ and its tests ---- */
/* Classes of time on the critical path. */
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
    COST_UPLINK, /* a level of the cluster, the innermost; outer levels follow */
    COST_CLASS_COUNT = COST_UPLINK + MAX_LEVELS
} CostClass;

/* ---- cost/sim.c: tasks with dependencies; transfers share resources ---- */
enum { TASK_RESOURCES = 4 + 2 * MAX_LEVELS };
typedef struct Task {
    CostClass class;
    /* fixed seconds: computing, or a transfer's latency, which takes no bandwidth */
    double seconds;
    double bytes;                /* 0: no transfer */
    /* of a transfer: as how many it counts where resources are shared; 0: one */
    double weight;
    int resources, resource[TASK_RESOURCES]; /* used by a transfer */
    double begin, end;           /* filled by sim_run */
    int cause;                   /* the task whose end let this one begin; -1: none */
    /* internal state of the simulation */
    int waits, edge, state, place, slot[TASK_RESOURCES];
    double remaining, rate, since, when;
} Task;
typedef struct Sim Sim;
Sim *sim_new(Arena *a, int resources, const double *capacity); /* copies capacity */
int sim_task(Sim *s, Task t);                /* its number, from 0 */
/* task begins after `before` has ended; before < 0: no effect */
void sim_after(Sim *s, int task, int before);
/* Seconds of the bytes over the busiest resource, before the tasks run. */
double sim_moving(const Sim *s);
/* Runs all tasks. Returns the end of the last; infinity if tasks wait for each other in a cycle. */
double sim_run(Sim *s);
int sim_tasks(const Sim *s);
const Task *sim_at(const Sim *s, int task);

/* Concurrent rings of ranks, which together have all ranks: first, first + stride, ...; rounds: 1, or 2 for
 * an all-reduce; adds: chunks are summed on the way, concurrently with computing. */
typedef struct Ring { int ranks, stride, rounds; bool adds; } Ring;
/* A collective over such rings: bytes that each rank sends, seconds left with the wire to itself beside
 * computing and while nothing is computed, and the bytes over each rank's link, over the NICs of each node,
 * and over the uplinks of each level; taking: the share of its rate that computing loses meanwhile. */
typedef struct Collective {
    double bytes, seconds, alone, link, nic, uplink[MAX_LEVELS], taking;
} Collective;

/* ---- cost/attention.c: one direction of one layer's attention ---- */
typedef struct AttentionInput {
    const Cluster *cluster;
    const Schedule *schedule;
    int group;            /* index among the groups of ranks that share a sequence */
    /* groups with ranks in the same nodes, which do the same at the same time; 0: one */
    int alike;
    int ranks;            /* simulated */
    const int *rank;      /* [ranks] their ranks in the group */
    /* extent of the simulated ranks along the choice's coordinates; may be smaller than the choice's */
    int size[MAX_COORDS], stride[MAX_COORDS];
    /* [trace.n][ranks]. COMPUTE: seconds; 0: an empty pair. */
    double *seconds;
    /* [trace.n][ranks]. PASS, RETURN: bytes that arrive at the rank, 0: nothing is sent; EXCHANGE: bytes
     * that the rank sends. NULL: only computing is simulated. */
    double *bytes;
    double *received;     /* [trace.n][ranks]. EXCHANGE: bytes that the rank receives. */
    /* [ranks] of the rank's tiles, including masked pairs of partial ones */
    double *tile_flops;
    /* [trace.n][ranks]. COMPUTE: live tiles; NULL: chunks travel whole */
    BurstPairTiles *tiles;
    double *whole;        /* with tiles: `bytes` if chunks travelled whole */
    const int *nic;       /* [ranks] the first rank with the same NIC; NULL before links_with_nics */
    bool pieces; /* of query heads: they are exchanged while earlier ones are computed */
    int overlaps;         /* collectives queued when attention begins, one after the other */
    const Collective *overlapped;
} AttentionInput;
/* A busy interval of a stream of a simulated rank. Transfers are recorded at the receiver. */
typedef struct Busy {
    int rank, channel; /* -1: compute */
    int at; /* index in the trace */
    double begin, end;
} Busy;
typedef struct Overlapped {
    double end, left; /* end: of the collective, at most attention's; left: seconds that remain then */
} Overlapped;
typedef struct AttentionTime {
    double seconds;                /* until the last rank is done */
    double *busy;                  /* [ranks] seconds of computing */
    /* [ranks] seconds of transfers to the rank; NULL: transfers are not simulated */
    double *passing;
    double *end;                   /* [ranks] */
    double *sent, *received;       /* [ranks] bytes */
    double link_bytes, nic_bytes;  /* sent by all simulated ranks, inside nodes and between */
    double uplink_bytes[MAX_LEVELS]; /* the part of nic_bytes that leaves a unit of each level */
    double moving; /* as attention_moving */
    double path[COST_CLASS_COUNT]; /* seconds of the critical path */
    int intervals;
    const Busy *interval;
    Overlapped *overlapped;        /* [overlaps] */
} AttentionTime;
AttentionTime attention_simulate(Arena *a, const AttentionInput *in);
/* The same for several inputs. */
void attention_simulate_all(Arena *a, int n, const AttentionInput *const in[], AttentionTime out[]);
/* Lower bound without dependencies: seconds of the bytes over the busiest link or NIC. */
double attention_moving(const AttentionInput *in);
int grid_add(const AttentionInput *in, int rank, int hop); /* the simulated rank a relative hop away */

/* ---- cost/links.c: links and NICs of the simulated ranks as resources ---- */
int links_rank(const AttentionInput *in, int rank); /* world rank of a simulated rank */
const NodeGroup *links_group(const AttentionInput *in, int rank); /* of a simulated rank */
AttentionInput links_with_nics(Arena *a, const AttentionInput *in);
Sim *links_sim(Arena *a, const AttentionInput *in); /* with NICs, as all functions below */
/* Distance of two nodes. 0: the same node; 1: the same unit of the innermost level; one more for each level
 * that a message leaves. */
enum { DISTANCES = 2 + MAX_LEVELS };
/* One message: over both ranks' links inside a node, else through both nodes' NICs and all uplinks
 * between. */
Task links_hop(const AttentionInput *in, int from, int to, double bytes);
/* A rank's part of an all-to-all with the ranks at that distance. start: the task after which it begins;
 * sends, end: tasks that wait for its sends, and for all. */
void links_exchange(Sim *s, const AttentionInput *in, int rank, double sent, double received, int distance,
                    int start, int sends, int end);
/* share of a rank's peers at each distance */
void links_shares(const AttentionInput *in, int rank, double share[DISTANCES]);
void links_count(AttentionTime *t, int distance, double bytes); /* adds sent bytes to t's counters */
int links_distance(CostClass class); /* distance of transfers of that class */
/* A collective of so many bytes in total, with every NIC of a node in use. */
Collective collective_of(const Cluster *c, Ring r, double bytes);
double collective_moving(const Cluster *c, Collective x); /* seconds of its bytes alone, without latency */
/* Adds a collective; returns its last task. */
int links_collective(Sim *s, const AttentionInput *in, Collective c, int after);

/* ---- cost/live.c: pruning of empty pairs: the rule of burst_prune.h for the simulated ranks ---- */
/* in's seconds and tiles must be set. Returns live[trace.n][ranks]: the tiles that each transfer brings the
 * rank, if any. */
BurstTileRanges *cost_live(Arena *a, const AttentionInput *in);

/* ---- cost/load.c: work and bytes of a draft ---- */
/* The simulated ranks, with their loads under one mask in one direction. pairs: NULL, or [ranks] unmasked
 * pairs that each computes, all heads together, relative to one sequence's pairs: a rank with a share of
 * heads counts that share of every pair. */
AttentionInput cost_load(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs);
/* Forward and backward, for layers of one mask; pairs: of forward. */
void cost_load_both(Arena *a, const Draft *d, int ranks, int mask, double *pairs, AttentionInput in[2]);
/* Only seconds, for `ranks` ranks from the first to the last. */
AttentionInput cost_computing(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs);
/* The schedule that loads are of: with pieces of heads, if ranks exchange these. */
const Schedule *cost_schedule(Arena *a, const Draft *d, int mask, bool backward);
/* Loads of layers of each mask, forward and backward, with ranges. */
typedef struct AttentionLoads {
    AttentionInput (*of)[2]; /* [mask_count] */
    double **pairs;          /* [mask_count] as for cost_load, forward */
    AttentionTime (*time)[2]; /* [mask_count] attention with them; NULL: not simulated yet */
    struct AttentionLoads *other; /* with the other value of `ranges`; NULL: unknown */
} AttentionLoads;
AttentionLoads cost_loads(Arena *a, const Draft *d);
/* Loads of a draft that was freed, for one with the same attention. */
void loads_bind(Arena *a, const Draft *d, AttentionLoads *l);
void loads_make_whole(const Draft *d, AttentionLoads *l); /* removes ranges */
/* The share of attention's traffic, over layers of each mask, that ranges save. */
double loads_saved(const Draft *d, const AttentionLoads *l);
enum { EXACT_RANKS = 64 }; /* groups of at most so many ranks are simulated whole */
/* ranks worth simulating: `ranks` above, or the whole group */
int cost_simulated_ranks(const Draft *d);
/* Each rank's share of its device's rates and link: cpu ranks share the cores that compute, read, write and
 * copy. */
double cost_rate_share(const Cluster *c, const NodeGroup *g);
bool cost_mixed(const Cluster *c); /* whether it has devices of several kinds */

/* ---- cost/work.c: times of operations on ranks of a kind ---- */
typedef struct Work {
    double flops, bytes, norms; /* per token; norms: bytes at the rate of norms and rotation */
    double fixed, products, seconds; /* independent of the tokens: bytes, operations of products, seconds */
    double experts, tiles; /* operations of products of experts' matrices: per token, and of partial tiles */
} Work;
typedef struct RankKind { const Device *device; double share, tokens; } RankKind;
/* a gather or scatter of tensor ranks that computing waits for */
Collective tensor_collective(const Step *s, const Op *o);
/* What ranks that share a sequence exchange for its recurrent layers, or to choose blocks; other operations:
 * nothing. */
Collective sequence_collective(const Step *s, const Op *o);
/* is_short: for a short chunk of heads */
Work op_work(const Step *s, const Op *o, int block, int unit, bool is_short);
/* Kernels that it launches on a GPU, one after the other; in a loop over tokens for one chunk. On a cpu 1. */
int op_launches(const Step *s, const Op *o, int unit);
RankKind rank_kind_of(const Cluster *c, int rank, double tokens);
bool rank_kinds_equal(RankKind x, RankKind y);
double work_seconds(RankKind k, Work w);

/* ---- cost/step.c: a step, in parts that add up to it ---- */
/* The operations of a step with their times. */
typedef struct StepModel {
    const Program *program; /* for the cluster's devices, whatever the target */
    const Cluster *cluster;
    const Step *step;
    int64_t sequences;      /* of one group, one after the other */
    int ops, timed_ops;
    const StepOp *op;
    const struct TimedOp *timed; /* [timed_ops] those that follow */
    int rank_kinds, own;    /* own: kind of the rank whose parts are reported */
    const RankKind *rank_kind;
    /* [op of the block][unit: embedding, layer, head][chunk of heads: full, short][rank kinds] */
    double *seconds[STEP_BLOCKS];
    int *launches[STEP_BLOCKS]; /* [op of the block][unit] */
} StepModel;
const double *model_seconds(const StepModel *m, const StepOp *o); /* [rank kinds] */
int model_launches(const StepModel *m, const StepOp *o);
int model_cells(const StepModel *m, int block); /* seconds that it has of the block's operations */
/* ---- cost/timed.c: what an operation takes and sends, found once for each model ---- */
typedef struct TimedOp {
    const StepOp *op;
    const double *seconds;   /* [rank kinds] computing of its chunk; a copy's: alone */
    const Collective *sends; /* NULL: nothing */
    WorkKind work;
    int part, event; /* as op_part, step_event */
    bool skipped;    /* a row's, of the last token alone */
} TimedOp;
void model_time(Arena *a, StepModel *m); /* sets its timed operations */
typedef struct Contended {
    struct Contended *next;
    int overlaps;
    const Collective *overlapped;
    AttentionTime time;
} Contended;
/* Calls of a layer's attention. REST: recomputes forward of the leading tokens if only the last tokens'
 * outputs are kept. */
typedef enum Attend { ATTEND_FORWARD, ATTEND_BACKWARD, ATTEND_REST, ATTENDS } Attend;
typedef struct LayerKind { /* layers with the same mask */
    int layers;
    AttentionInput input[ATTENDS];
    AttentionTime time[ATTENDS]; /* with nothing else on the wire */
    Contended *contended[ATTENDS];
    double times[ATTENDS]; /* calls in a step */
} LayerKind;
typedef struct BlockTime {
    double times, seconds; /* per step; without attention */
    double again;          /* recomputation in backward, not included in seconds */
} BlockTime;
typedef struct StepParts {
    int group, ranks;     /* index of the simulated group, and the number of its simulated ranks */
    const Choice *choice;
    const int *rank;      /* [ranks] their ranks in the group */
    int busiest;          /* the simulated rank that computes most in attention */
    int attends;          /* number of Attend values: with or without REST */
    int kinds;
    /* [kinds] by mask; then by mask for short chunks of heads, if any; layers 0: unused */
    LayerKind *kind;
    double *pairs;        /* [ranks] of all layers */
    double mean_pairs;    /* over all ranks of the group, simulated or not */
    /* attention's speed relative to the group's first rank: [ranks]; mean over all ranks */
    double *speed, mean_speed;
    double flops;         /* of the step, all ranks */
    double attention_busy, mean_attention_busy; /* per step: of the busiest rank; of the mean rank */
    double tile_flops;    /* per step, of the busiest rank's attention tiles */
    /* per step, set by cost/stream.c */
    /* weights: time added by collectives: waits for them, and attention that they slow down */
    double step, weights;
    bool at_least; /* collectives had a wire of their own, so that `step` is a lower bound */
    double any_weights; /* as in Cost */
    double taken;         /* time that collectives take from computing */
    double tensor;        /* tensor ranks' communication */
    double copies; /* waits for copies to and from host memory */
    /* sent by a rank for all but attention; of these, out of its node, and out of each level */
    double weight_bytes, weight_nic_bytes, weight_uplink_bytes[MAX_LEVELS];
    BlockTime block[STEP_BLOCKS];
    const char *block_name[STEP_BLOCKS];
    /* [BURST_ROW_COUNT] of the rank that computes most; rows of computing and waits add up to the step */
    double *rows;
} StepParts;
typedef struct Recorder Recorder;
/* Attention alone, without REST; leaves the fields of cost/stream.c unset. */
StepParts cost_attended(Arena *a, const Draft *d);
/* The rank that computes most of it alone: all that bounds need. */
StepParts cost_busiest(Arena *a, const StepParts *attended);
/* The same with lower bounds of attention's times, from the draft's loads: see attention_moving. */
StepParts cost_attended_least(Arena *a, const Draft *d);
StepParts step_parts(Arena *a, const Draft *d);
/* r NULL: no timeline. enough: as for cost_draft. */
void step_record(Arena *a, const Draft *d, double enough, StepParts *p, Recorder *r);
/* Seconds per token of a sequence on a rank: attention of all layers, and everything else. pairs: as for
 * cost_least. */
void cost_token(const Program *p, const double *pairs, int rank, double seconds[2]);
/* per step: busy seconds of the rank that computes most */
double parts_compute(const StepParts *p);
double cost_imbalance(const StepParts *p); /* most pairs of a rank / mean */

/* ---- cost/stream.c: the operations on a timeline ---- */
/* Fills p's per-step fields, which must be 0. shared false: collectives have a wire of their own, which is a
 * lower bound. */
void stream_run(Arena *a, StepParts *p, const StepModel *m, bool shared, Recorder *record);

/* ---- cost/forecast.c: the timeline, for --trace and --emit=trace ---- */
/* the recorded sequence stands for so many */
void record_sequences(Recorder *r, int times);
/* the last one has ended; whether another begins. Seconds since the sequence began */
void record_visit(Recorder *r, double now, bool begins, int visit);
/* For collectives, a: whether the embedding's; b: the visit whose unit it is. */
void record_span(Recorder *r, BurstSpan s);
void record_attention(Recorder *r, const Schedule *s, const AttentionTime *t, double now);
void record_stretch(Recorder *r, double now);     /* ends a stretch and begins another */
/* An attention with more than most_spans spans becomes one span, and computing between waits becomes one
 * span for each part. */
enum { ALL_SPANS = INT32_MAX };
const BurstForecast *cost_forecast(Arena *a, const Draft *d, int most_spans);

/* ---- cost.c, tools/print_cost.c: for drafts that are not verified yet ---- */
const char *size_text(Arena *a, double bytes); /* "190.16 kB" */
void print_cost_draft(const Draft *d, const Cost *c, Text *out);

#endif
