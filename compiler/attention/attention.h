/* attention/attention.h: the statements of one direction as nodes with streams, slots and waits, and their
 * trace.
 *
 * Relative coordinates. The checker admits only indices of the form `coordinate + expression of loop
 * variables and sizes`, and conditions that read no coordinate. So every rank runs the same operations in
 * the same order, and what rank c does to chunk c + x another rank d does to chunk d + x. A trace with
 * chunks relative to the rank that acts is therefore the trace of all ranks at once, and a proof about it
 * is a proof about all of them, however many there are.
 *
 * Where a chunk of keys has pieces, piece p of relative chunk x is p * ranks + x: the same p at all ranks. */
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
/* What an operation waits for before it touches memory. Found by slots.c, checked by proof/proofs.c,
 * printed by the emitters: a receive or a stream wait each. */
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
    const Stmt *stmt; /* where it comes from; LOOP and IF read lo, hi, cond of it */
    struct Node *next, *body;
    ChunkRef ref[2];  /* COMPUTE: Q, KV; PASS, RETURN, EXCHANGE: [0] */
    int channel;      /* PASS, RETURN, EXCHANGE: its stream, shared with no other operation */
    int pool;         /* PASS: where arrivals land */
    unsigned waits;
    bool alone;       /* all that its block holds */
    /* PASS of an accumulator: some iterations pass a chunk that is at home, and are left out */
    bool stays;
    int returns;      /* RETURN: how many chunks each rank sends home, ... */
    int *return_offset; /* ... and which, relative to the sender */
} Node;
/* Buffers for chunks that are not at home. The k-th use takes slot k mod slots. */
typedef struct Pool {
    TensorId tensor;
    int slots;
    const char *name; /* identifier: "kv_lane", "dq_partial" */
} Pool;
/* One executed statement. Chunks and hops are relative to the acting rank, as indices: sums of coordinate
 * * stride. */
typedef struct Instance {
    const Node *node;
    int chunk[2]; /* COMPUTE: Q, KV; PASS: the chunk sent; RETURN: the chunk sent home */
    int hop;      /* PASS, RETURN: to rank me + hop, never in a piece; arrives there as chunk - hop */
    int64_t loop[MAX_LOOPS]; /* values of the loop variables, for messages */
    unsigned inside;         /* which of them: bit i, loop i is around it */
} Instance;
typedef struct Trace { int n; const Instance *at; } Trace;
typedef struct Schedule {
    const Choice *choice;
    const char *name; /* "near_queries", to tell it from those of other layers; NULL: all layers have it */
    bool backward;
    /* on GPUs, forward: pairs are computed when all keys that they read are there, in two launches that have
     * other queries, so that no output is computed in parts; backward: those with others' keys in one launch,
     * as far as the text has no transfer between them */
    bool at_once;
    Node *body;
    int channels;
    int pools;
    Pool *pool;
    int partial_pool[TENSOR_COUNT]; /* pool of the tensor's partial sums, -1: none leaves home */
    Trace trace;
} Schedule;
/* Statements to nodes: one node a tensor, transfers moved before the computing they can overlap, channels
 * numbered from first_channel on, the trace unrolled. NULL after an error. */
Schedule *schedule_make(Arena *a, Diags *d, const Choice *c, bool backward, int first_channel);
/* Slots from liveness, waits, and what `return` sends: fills the schedule that schedule_make returned. */
void schedule_slots(Arena *a, Schedule *s);
void print_schedule(const Schedule *s, Text *out);

/* ---- attentions.c: the schedules of a choice, one for all layers or one for the layers of each mask ---- */
/* Layers attend one after the other, so all use the same streams, and their slots the same memory. */
typedef struct Attention { Choice *choice; const Schedule *way[2]; /* forward, backward */ } Attention;
typedef struct Attentions {
    int n; /* 0: after errors */
    const Attention *at;
    const int *of_mask; /* [mask_count] of at */
} Attentions;
Attentions attentions_make(Arena *a, Diags *d, const Program *p, const Choice *choice);
/* what the choice has decided since */
void attentions_decide(const Attentions *t, const Program *p, const Choice *choice);
const char *attention_name(Arena *a, const Choice *c); /* "near_queries" */
const Schedule *attentions_schedule(const Attentions *t, int mask, bool backward);
int attentions_channels(const Attentions *t);   /* streams of transfers */
int attentions_operations(const Attentions *t); /* of the longest trace */
/* chunks of keys that a direction takes at once; 0: it does not */
int attentions_at_once(const Attentions *t, bool backward);
bool pass_moves(const Node *pass, int coord); /* whether it may lead along that one */
/* "pass KV[r - 1] to r + 1, at s = 1" */
const char *instance_text(Arena *a, const Schedule *s, const Instance *i);
const char *chunk_name(Arena *a, const Schedule *s, TensorId t, int chunk);  /* "KV[r - 1]" */

/* ---- prune.c: what a mask leaves of a trace, for every rank ---- */
enum { PRUNED_RANKS = 256 }; /* what a mask leaves of a schedule is looked at for every rank of so many */
typedef struct Live {
    int ranks, ops;
    uint8_t *op;           /* [ops][ranks]: BURST_LIVE_* bits */
    BurstTileRanges *tiles; /* [ops][ranks] of what arrives at the rank; all where chunks travel whole */
} Live;
/* What it is to the rule of burst_prune.h: all but the rank that it goes to and whether a pair is live. */
BurstPruneOp prune_instance(const Schedule *s, const Instance *i);
/* pair[q * choice_chunks + k]: whether the pair has any unmasked tile, as choice_pairs has it for the
 * direction. tiles, by pair: which tiles of its queries and keys a live one has work for; NULL: chunks
 * travel whole. */
Live prune(Arena *a, const Schedule *s, const uint8_t *pair, const BurstPairTiles *tiles);
/* Of all live pairs of a mask, for prune; NULL where the choice lets whole chunks travel. Of a side that
 * does not travel: all tiles. */
const BurstPairTiles *schedule_tiles(Arena *a, const Schedule *s, PairCounts *counts);
int schedule_sides(const Schedule *s); /* whose chunks travel: bits 1 << BURST_OF_... */
/* of a live pair; of other sides all tiles */
BurstPairTiles pair_tiles_of(PairCounts *counts, int q, int k, int sides);

#endif
