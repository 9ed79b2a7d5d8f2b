/* mask/mask.h: which pairs of tokens a mask keeps: counts, pictures, emitted predicates; lists of live
 * tiles. */
#ifndef BURST_MASK_MASK_H
#define BURST_MASK_MASK_H

#include "ir/positions.h"
#include "ir/program.h"

#include "burst_range.h"

typedef struct BurstSide BurstSide; /* burst_attend.h */

/* ---- MaskMap ---- */
typedef enum Cover { COVER_EMPTY, COVER_PARTIAL, COVER_FULL } Cover;
typedef struct PairWork {
    Cover cover;  /* from tile hulls: EMPTY: no kernel tile is launched */
    int64_t pairs, tiles_full, tiles_partial;
    double pairs_error; /* relative; 0: exact */
    bool tiles_estimated;
} PairWork;
typedef struct MaskMap MaskMap;
MaskMap *mask_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k);
/* The same with all pairs that a selection may choose. */
MaskMap *mask_map_of_all(Arena *a, const Program *p, int mask, int tile_q, int tile_k);
/* The map of one drawn batch, if document lengths are drawn: pairs that no document has are EMPTY. */
MaskMap *mask_map_of_batch(Arena *a, const Program *p, int mask, int tile_q, int tile_k, int batch);
bool mask_draws(const Program *p); /* whether document lengths are drawn */
/* The verdict of a MaskMap on a box: BURST_EMPTY, ... */
int mask_box(const void *map, const BurstSide *q, const BurstSide *k);
/* Counts the work of one (query chunk, key chunk) pair. Kernel tiles cut the local order every tile_q /
 * tile_k tokens. */
PairWork mask_work(MaskMap *m, const PosSet *q, const PosSet *k);
/* Work done so far on the map, in plain operations of mask nodes. */
double mask_taken(const MaskMap *m);
/* Starts the next partition, with its share of the counting budget. */
void mask_map_begin(MaskMap *m);
Cover mask_pair_cover(MaskMap *m, const PosSet *q, const PosSet *k); /* the cover alone, cheaper */
/* Whether the pair's cover is not EMPTY: 1 or 0, or -1 if `limit` looks did not tell. */
int mask_pair_live(MaskMap *m, const PosSet *q, const PosSet *k, int64_t limit);
/* A few runs of tiles of q or k (side: BURST_OF_...) outside of which all tiles of the pair are EMPTY, as
 * burst_pair_tiles finds them. All tiles if `limit` looks did not tell. */
BurstTileRanges mask_pair_tiles(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit);
/* Whether every tile of the pair outside of these runs is EMPTY, checked by looking at those tiles. */
bool mask_tiles_within(MaskMap *m, const PosSet *q, const PosSet *k, int side, BurstTileRanges ranges);

/* ---- pictures, text, warnings, emitted predicates ---- */
/* mask/cell.c: the share of a cell's pairs that the mask keeps. With tile 1 it is 0 only if no pair is kept
 * and 1 only if all are; with larger tiles, 0 only if no tile is computed and 1 only if all are full. If not
 * sure, 0 and 1 may be wrong. */
typedef struct MaskShare { double share; bool sure; } MaskShare;
MaskShare mask_share(MaskMap *m, const PosSet *q, const PosSet *k, int64_t tile);
typedef struct MaskSum { PairWork work; double density; } MaskSum;
MaskSum mask_sum(MaskMap *m); /* the whole sequence with itself */
/* Prints the expression as .burst text with the fewest parentheses. tables may be NULL (then t0, t1,
 * ...). */
void mask_text(const Expr *e, const Table *tables, Text *out);
/* --emit=mask: density, picture, counts */
void print_mask(const Program *p, int mask, Text *out);
/* -Wempty-mask, -Wempty-rows, if certain; -Wone-document */
void mask_warn(Diags *d, const Program *p);
/* In a program that infers, refuses masks that may show a query a later key. */
bool mask_check_later(Diags *d, const Program *p);
/* In a program that infers: of keys so many tokens before a query and more, none is kept; 0: of all. */
int64_t mask_reach(const Program *p, int mask);
/* Refuses selections whose `where` shows a tile blocks after it without `noncausal`. */
bool mask_check_selections(Diags *d, const Program *p);
/* Emits C (see BurstMask in burst_rt.h): plan_mask<i>_tile and plan_mask<i>_row. */
void mask_emit_c(const Program *p, int mask, Text *out);
/* The time that plan_mask<i>_row takes for a pair, relative to its time with PROBED_MASK, the mask with which
 * `burstc probe` measures partial tiles. */
#define PROBED_MASK "causal and (q - k) mod 2 == 0"
double mask_row_time(const Expr *e);
/* Emits CUDA: plan_mask<i>_tile, plan_mask<i>_keep of one pair, and PlanMask<i>, the kernels' template
 * argument. */
void mask_emit_cuda(const Program *p, int mask, Text *out);
/* The program with one more mask, of number mask_count + selection: what the selection may choose among. */
Program mask_with_open(Arena *a, const Program *p, int selection);
/* mask/keys.c: BURST_KEYS_*: the key tiles of attention, if the predicate has 32 bits. */
int mask_keys(const Program *p, int mask, bool backward);
/* The time of live parts of 64 x 64 in tiles of blocks over their time in full usual tiles. 0: other tiles
 * are taken, or the mask has tables, whose values are not known. */
double mask_block_time(const Program *p, int mask, bool backward);
/* Escapes input text: for a C comment, and as a C string literal with its quotes. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

/* ---- kernels.c: the CUDA attention kernels of a program's devices ---- */
/* The largest size of one launch's lists of live tiles, for a number of queries and key chunks of `tokens`;
 * one: of a mask without a selection. at_once: key chunks per launch of forward and backward; 0: each has a
 * launch. halves: two launches of forward have a part of the queries each. heads: query heads of a launch;
 * turns: their dQ is added in a fixed order. */
typedef struct KernelLists {
    int64_t ints, one, sides;
} KernelLists;
KernelLists kernels_lists(const Program *p, int64_t queries, int64_t tokens, int pieces, const int at_once[2],
                          bool halves, int heads, bool turns);

#endif
