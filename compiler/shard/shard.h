/* shard/shard.h: which tokens a rank has, which rank of the world it is, and the work of pairs of shards. */
#ifndef BURST_SHARD_SHARD_H
#define BURST_SHARD_SHARD_H

#include "mask/mask.h"

/* ---- PosSet, Partition ---- */
typedef struct Partition {
    PartitionKind kind;
    int64_t block;  /* blocks(B) */
    int ranks;      /* G: ranks that share one sequence */
    int64_t sequence;
    int64_t max_tokens; /* of any rank */
    const int64_t *before; /* [ranks + 1]: the shares of the ranks before each; NULL: all are equal */
    const PosSet *of; /* [ranks] */
} Partition;
/* equal shares */
const Partition *partition_make(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks);
/* share: [ranks] a rank's tokens in proportion, from 1 to MOST_SHARE; NULL: equal. */
const Partition *partition_shared(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks,
                                  const int *share);
/* batch.c: of the plan's ranks, the one that programs make for the batch of which these are the masks
 * (mask_map_of_batch), where the kind is PART_BALANCED; any other as it is. */
const Partition *partition_of_batch(Arena *a, const Program *p, const Partition *plan, MaskMap **masks);
void print_partition(const Partition *p, Text *out);
/* Emits C: `static int64_t plan_position(int chunk, int64_t i)` and `static int64_t plan_tokens(int
 * chunk)`, closed forms whose length does not depend on ranks or tokens. */
void partition_emit_c(const Partition *p, Text *out);

/* ---- pair_counts.c: the work of pairs of chunks, counted once for all that share a partition ---- */
typedef struct PairCounts PairCounts;
PairCounts *pair_counts(Arena *a, MaskMap *m, const Partition *p, int pieces); /* of a chunk of keys */
PairWork pair_work(PairCounts *c, int q, int k);  /* of two chunks; of keys k is piece * ranks + rank */
PairWork pair_row(const PairCounts *c, int q);    /* of a chunk with the whole sequence; not remembered */
/* of these, those of its first so many queries */
double pair_share_before(const PairCounts *c, int q, int64_t tokens);
/* and of each of so many runs of its queries; of the last number asked for remembered */
const double *pair_shares(PairCounts *c, int q, int parts);
/* [chunks] where all ranks cut their tokens into so many (at most 64): a bit for each chunk of keys that
 * has anything for a chunk of queries at any two ranks, whatever the tables; and for the chunk itself.
 * Remembered of the last number asked for. */
const uint64_t *pair_chunks(PairCounts *c, int chunks);
PairWork pair_whole(PairCounts *c);               /* of the whole sequence with itself */
/* [q * ranks * pieces + k]: whether the pair has any unmasked tile */
const uint8_t *pair_live(PairCounts *c);
/* of a live pair: for which tiles of its queries or keys there is work */
BurstTileRanges pair_tiles(PairCounts *c, int q, int k, int side);
bool pair_tiles_suffice(PairCounts *c, int q, int k, int side, BurstTileRanges ranges); /* for no others */

/* ---- placement.c: which rank of the world has a chunk ---- */
int choice_rank(const Choice *c, int group, int chunk);
int placement_count(const Program *p);
bool placement_take(const Program *p, Choice *c, int n);
const char *placement_why_not(Arena *a, const Program *p, const Choice *c);
const char *placement_text(Arena *a, const Choice *c); /* as the layout has it; NULL: the usual order */
/* plan_chunk_of(rank), plan_group_of(rank), plan_rank_of(group, chunk) */
void placement_emit_c(Arena *a, const Choice *c, Text *out);

/* ---- coords.c: the ranks of a group as the schedule's coordinates ---- */
/* of several rings, or of rings and ranks that share heads */
bool sched_has_levels(const SchedText *t);
/* whether it suits the sizes that the layout gives */
bool coords_wanted(const Program *p, const SchedText *t);
/* not: it has levels whose sizes are open, and the layout does not name it */
bool coords_asked(const Program *p, const SchedText *t);
int coords_most(const Program *p);                        /* ways there are at most to choose sizes */
/* the n-th one, as the layout has it; false: there are not so many */
bool coords_take(const Program *p, Choice *c, int n);
/* there is none, or not as the schedule requires */
const char *coords_why_not(Arena *a, const Program *p, const Choice *c);

#endif
