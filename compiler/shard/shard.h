/* shard/shard.h: which tokens a rank has, which world rank it is, and the work of pairs of chunks. */
#ifndef BURST_SHARD_SHARD_H
#define BURST_SHARD_SHARD_H

#include "mask/mask.h"
#include "ir/choice.h"

/* ---- PosSet, Partition ---- */
typedef struct Partition {
    PartitionKind kind;
    int64_t block;  /* blocks(B) */
    int ranks;      /* G: ranks that share one sequence */
    int64_t sequence;
    int64_t max_tokens; /* of any rank */
    const int64_t *before; /* [ranks + 1]: sum of the shares before each rank; NULL: all are equal */
    const PosSet *of; /* [ranks] */
} Partition;
/* equal shares */
const Partition *partition_make(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks);
/* share: [ranks] relative numbers of tokens, from 1 to MOST_SHARE; NULL: equal. */
const Partition *partition_shared(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks,
                                  const int *share);
/* batch.c: for PART_BALANCED the partition that programs choose for a batch with these masks
 * (mask_map_of_batch); other kinds return `plan`. */
const Partition *partition_of_batch(Arena *a, const Program *p, const Partition *plan, MaskMap **masks);
/* Runs of consecutive positions that are consecutive tokens of a rank: how many the rank with most has, and
 * the tokens of the shortest. */
int partition_most_runs(const Partition *p);
int64_t partition_least_run(const Partition *p);
/* Pieces of a sequence that a recurrent layer has on a rank, if ranks share it; 0: it has the whole. */
/* Tokens of a tile that a partition for each batch deals; the most runs of a rank in any batch. */
int64_t partition_tile(const Program *prog, const Partition *p);
int partition_batch_runs(const Program *prog, const Partition *p);
int partition_scan_pieces(const Program *prog, const Partition *p);
/* The tokens of whole tiles and blocks of all selections; and whether each rank's tokens are whole runs of so
 * many, but for the sequence's end. */
int64_t selection_unit(const Program *p);
bool partition_has_whole(const Partition *p, int64_t unit);
void print_partition(const Partition *p, Text *out);
/* Emits C: `static int64_t plan_position(int chunk, int64_t i)` and `static int64_t plan_tokens(int chunk)`,
 * closed forms whose length does not depend on ranks or tokens. sequence: the expression for the tokens;
 * NULL: their number. */
void partition_emit_c(const Partition *p, const char *sequence, Text *out);

/* ---- pair_counts.c: the work of pairs of chunks, cached per partition ---- */
typedef struct PairCounts PairCounts;
PairCounts *pair_counts(Arena *a, MaskMap *m, const Partition *p, int pieces); /* pieces of a chunk of keys */
PairWork pair_work(PairCounts *c, int q, int k);  /* k is piece * ranks + rank */
PairWork pair_row(const PairCounts *c, int q);    /* a chunk of queries with the whole sequence; not cached */
/* the fraction of pair_row in the chunk's first `tokens` queries */
double pair_share_before(const PairCounts *c, int q, int64_t tokens);
/* The fraction of pair_row in each of `parts` equal runs of the chunk's queries. Cached for the last
 * `parts`. */
const double *pair_shares(PairCounts *c, int q, int parts);
/* All ranks' tokens cut into `chunks` (at most 64) chunks: [chunks] a bit for each chunk of keys that any
 * two ranks attend from this chunk of queries, for any values of the tables; always set for the chunk
 * itself. Cached for the last `chunks`. */
const uint64_t *pair_chunks(PairCounts *c, int chunks);
PairWork pair_whole(PairCounts *c);               /* the whole sequence with itself */
/* [q * ranks * pieces + k]: whether the pair has any unmasked tile */
const uint8_t *pair_live(PairCounts *c);
/* live tiles of one side of a live pair */
BurstTileRanges pair_tiles(PairCounts *c, int q, int k, int side);
/* whether no other tile is live */
bool pair_tiles_suffice(PairCounts *c, int q, int k, int side, BurstTileRanges ranges);

/* ---- placement.c: which world rank has a chunk ---- */
int choice_rank(const Choice *c, int group, int chunk);
int placement_count(const Program *p);
bool placement_take(const Program *p, Choice *c, int n);
const char *placement_why_not(Arena *a, const Program *p, const Choice *c);
const char *placement_text(Arena *a, const Choice *c); /* the setting's text; NULL: default order */
/* plan_chunk_of(rank), plan_group_of(rank), plan_rank_of(group, chunk) */
void placement_emit_c(Arena *a, const Choice *c, Text *out);

/* ---- coords.c: the ranks of a group as the schedule's coordinates ---- */
/* has several rings, or rings and ranks that share heads */
bool sched_has_levels(const SchedText *t);
/* suits the sizes in the layout */
bool coords_wanted(const Program *p, const SchedText *t);
/* Not asked for: a schedule with open sizes of several levels that the layout does not name. */
bool coords_asked(const Program *p, const SchedText *t);
int coords_most(const Program *p);                        /* most combinations of sizes */
/* Takes the n-th combination of sizes. Returns false if there are fewer. */
bool coords_take(const Program *p, Choice *c, int n);
/* Whether its schedule may have other sizes: a layout that only names the schedule leaves several open. */
bool coords_open(const Program *p, const Choice *c);
/* why no sizes exist, or why these do not meet the schedule's requirements */
const char *coords_why_not(Arena *a, const Program *p, const Choice *c);

#endif
