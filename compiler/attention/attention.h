/* attention/attention.h: the statements of one direction as nodes with streams, slots and waits, and their
 * trace.
 *
 * Relative coordinates: the checker admits only indices of the form `coordinate + expression of loop
 * variables and sizes`, and conditions that read no coordinate. So every rank runs the same operations in
 * the same order, and what rank c does to chunk c + x, rank d does to chunk d + x. A trace with chunks
 * relative to the acting rank is therefore the trace of all ranks at once, and a proof about it holds for
 * any number of ranks.
 *
 * If a chunk of keys has pieces, piece p of relative chunk x is p * ranks + x: the same p at all ranks. */
#ifndef BURST_ATTENTION_ATTENTION_H
#define BURST_ATTENTION_ATTENTION_H

#include "shard/shard.h"

#include "burst_prune.h"

/* ---- Schedule: the statements of one direction, with streams, slots and waits ---- */
#define NODES(X) X(LOOP) X(IF) X(COMPUTE) X(PASS) X(RETURN) X(EXCHANGE)
typedef enum NodeKind {
#define X(id) N_##id,
    NODES(X)
#undef X
} NodeKind;
/* What an operation waits for before it accesses memory. slots.c finds it, proof/proofs.c checks it, the
 * emitters print it: each is a receive or a stream wait. */
#define WAITS(X) /* id, name, what it guards */ \
    X(ARRIVED_Q, "arrived-q", "the Q chunk it reads has arrived") \
    X(ARRIVED_KV, "arrived-kv", "the KV chunk it reads has arrived") \
    X(ARRIVED, "arrived", "the chunk it sends has arrived") \
    X(FREE, "free", "the slot it fills is no longer read or sent") \
    X(COMPUTED, "computed", "the gradient it sends has been computed") \
    X(MERGED, "merged", "partial sums that arrived have been added") \
    X(HOME, "home", "sums that came home have been added: their slots are free")
enum {
#define X(id, name, what) WAIT_BIT_##id,
    WAITS(X)
#undef X
#define X(id, name, what) WAIT_##id = 1 << WAIT_BIT_##id,
    WAITS(X)
#undef X
};
typedef struct Node {
    NodeKind kind;
    const Stmt *stmt; /* its source; LOOP and IF read lo, hi, cond of it */
    struct Node *next, *body;
    ChunkRef ref[2];  /* COMPUTE: Q, KV; PASS, RETURN, EXCHANGE: [0] */
    int channel;      /* PASS, RETURN, EXCHANGE: its own stream */
    int pool;         /* PASS: pool of the arrivals */
    unsigned waits;
    bool alone;       /* the only statement of its block */
    /* PASS of an accumulator: some iterations pass a chunk that is at its owner, and are skipped */
    bool at_owner;
    int returns;      /* RETURN: chunks that each rank sends to their owners */
    int *return_offset; /* [returns] these chunks, relative to the sender */
} Node;
/* Buffers for chunks that are not at their owner. The k-th use takes slot k mod slots. */
typedef struct Pool {
    TensorId tensor;
    int slots;
    const char *name; /* identifier: "kv_lane", "dq_partial" */
} Pool;
/* One executed statement. Chunks and hops are relative to the acting rank, as indices: sums of coordinate *
 * stride. */
typedef struct Instance {
    const Node *node;
    int chunk[2]; /* COMPUTE: Q, KV; PASS, RETURN: the chunk sent */
    int hop;      /* PASS, RETURN: to rank me + hop, without a piece; arrives there as chunk - hop */
    int64_t loop[MAX_LOOPS]; /* values of the loop variables, for messages */
    unsigned inside;         /* running loops: bit i, loop i */
} Instance;
typedef struct Trace { int n; const Instance *at; } Trace;
typedef struct Schedule {
    const Choice *choice;
    /* "near_queries", distinct from other layers' schedules; NULL: all layers use this one */
    const char *name;
    bool backward;
    /* On GPUs, forward: pairs are computed once all keys that they read have arrived, in two launches with
     * different queries, so that no output is computed in parts. Backward: pairs with other ranks' keys run
     * in one launch if no transfer lies between them, and sums that come home are added at the end. */
    bool at_once;
    /* With more chunks of keys than a launch takes: pairs with other ranks' keys run in launches of
     * BURST_MOST_CHUNKS, each once its keys have arrived, and in backward if no transfer lies between them.
     * Outputs are summed over the launches. Sums that come home are added as they come: slots for so many
     * would take much memory. */
    bool in_groups;
    /* [trace.n] the first computing of the run that has this computing; NULL: each has a launch */
    const int *run;
    Node *body;
    int channels;
    int pools;
    Pool *pool;
    int partial_pool[TENSOR_COUNT]; /* pool of the tensor's partial sums; -1: they are only at their owners */
    Trace trace;
} Schedule;
/* Makes nodes of the statements: one per tensor, with transfers moved before computing that they can overlap
 * and channels numbered from first_channel on, and unrolls the trace. Returns NULL after an error. */
Schedule *schedule_make(Arena *a, Diags *d, const Choice *c, bool backward, int first_channel);
/* Finds slots from liveness, waits, and the chunks that `return` sends. s: made by schedule_make. */
void schedule_slots(Arena *a, Schedule *s);
void print_schedule(const Schedule *s, Text *out);

/* ---- attentions.c: the schedules of a choice: one for all layers, or one per mask ---- */
/* Layers attend one after the other, so all use the same streams, and their slots share memory. */
typedef struct Attention { Choice *choice; const Schedule *way[2]; /* forward, backward */ } Attention;
typedef struct Attentions {
    int n; /* 0: after errors */
    const Attention *at;
    const int *of_mask; /* [mask_count] index into at */
} Attentions;
Attentions attentions_make(Arena *a, Diags *d, const Program *p, const Choice *choice);
/* updates the choices with settings decided since */
void attentions_decide(const Attentions *t, const Program *p, const Choice *choice);
const char *attention_name(Arena *a, const Choice *c); /* "near_queries" */
const Schedule *attentions_schedule(const Attentions *t, int mask, bool backward);
int attentions_channels(const Attentions *t);   /* streams of transfers */
int attentions_operations(const Attentions *t); /* in the longest trace */
/* the most chunks of keys per launch of a direction; 0: one launch each */
int attentions_at_once(const Attentions *t, bool backward);
bool attentions_in_groups(const Attentions *t); /* forward, see Schedule */
/* Launches of one rank: its last pair with another rank's keys is in the launch's place `pairs` - 1, in the
 * run that begins at `run`. Begins as NO_LAUNCH. */
typedef struct RankLaunch {
    int run, pairs;
} RankLaunch;
#define NO_LAUNCH ((RankLaunch){-1, 0})
/* Whether this live pair with another rank's keys begins a launch of its rank. A launch takes at most
 * BURST_MOST_CHUNKS live pairs of a run. Called in the order of the trace. */
bool schedule_begins_launch(const Schedule *s, int at, RankLaunch *l);
bool pass_moves(const Node *pass, int coord); /* whether it may move along that coordinate */
/* "pass KV[r - 1] to r + 1, at s = 1" */
const char *instance_text(Arena *a, const Schedule *s, const Instance *i);
const char *chunk_name(Arena *a, const Schedule *s, TensorId t, int chunk);  /* "KV[r - 1]" */

/* ---- prune.c: the part of a trace that a mask leaves, for every rank ---- */
enum { PRUNED_RANKS = 256 }; /* the most ranks for which pruning is replayed rank by rank */
typedef struct Live {
    int ranks, ops;
    uint8_t *op;           /* [ops][ranks]: BURST_LIVE_* bits */
    BurstTileRanges *tiles; /* [ops][ranks] tiles that arrive at the rank; all if chunks travel whole */
} Live;
/* The operation for burst_prune.h, without its target rank and its pair's liveness. */
BurstPruneOp prune_instance(const Schedule *s, const Instance *i);
/* pair[q * choice_chunks + k]: whether the pair has any unmasked tile, in choice_pairs' order for the
 * direction. tiles: [pair] live tiles of its queries and keys; NULL: chunks travel whole. */
Live prune(Arena *a, const Schedule *s, const uint8_t *pair, const BurstPairTiles *tiles);
/* The tiles of all live pairs of a mask, for prune. NULL if chunks travel whole. A side that does not travel
 * gets all tiles. */
const BurstPairTiles *schedule_tiles(Arena *a, const Schedule *s, PairCounts *counts);
int schedule_sides(const Schedule *s); /* sides whose chunks travel: bits 1 << BURST_OF_... */
/* tiles of a live pair; other sides get all tiles */
BurstPairTiles pair_tiles_of(PairCounts *counts, int q, int k, int sides);

#endif
