/* mask/mask.h: what a mask keeps of pairs of chunks, counted, printed and emitted; lists of live tiles. */
#ifndef BURST_MASK_MASK_H
#define BURST_MASK_MASK_H

#include "ir/ir.h"

/* ---- MaskMap ---- */
typedef enum Cover { COVER_EMPTY, COVER_PARTIAL, COVER_FULL } Cover;
typedef struct PairWork {
    Cover cover;  /* from tile hulls: EMPTY means that no kernel tile is launched */
    int64_t pairs, tiles_full, tiles_partial;
    double pairs_error; /* relative; 0: exact */
    bool tiles_estimated;
} PairWork;
typedef struct MaskMap MaskMap;
MaskMap *mask_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k);
/* Of one drawn batch alone, where the lengths of documents are known: what no document has is EMPTY. */
MaskMap *mask_map_of_batch(Arena *a, const Program *p, int mask, int tile_q, int tile_k, int batch);
bool mask_draws(const Program *p); /* lengths of documents are known */
/* The verdict on a box, of a MaskMap: BURST_EMPTY, ... */
int mask_box(const void *map, const BurstSide *q, const BurstSide *k);
/* Work of one (query chunk, key chunk) pair. Kernel tiles cut the local order every tile_q / tile_k
 * tokens. */
PairWork mask_work(MaskMap *m, const PosSet *q, const PosSet *k);
/* Nodes of masks that were looked at so far, whatever for. */
double mask_taken(const MaskMap *m);
/* before another partition, which has its part of the time that counting may take */
void mask_map_begin(MaskMap *m);
Cover mask_pair_cover(MaskMap *m, const PosSet *q, const PosSet *k); /* the cover alone, cheaper */
/* Whether it is not EMPTY: 1 or 0; -1 where so many looks at parts do not tell. */
int mask_pair_live(MaskMap *m, const PosSet *q, const PosSet *k, int64_t limit);
/* A few runs of tiles of q or k (side: BURST_OF_...) outside of which all tiles of the pair are EMPTY:
 * what burst_pair_tiles finds. All of them where so many looks do not tell. */
BurstTileRanges mask_pair_tiles(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit);
/* Whether every tile of the pair outside of these runs is EMPTY, by a look at what is outside. */
bool mask_tiles_within(MaskMap *m, const PosSet *q, const PosSet *k, int side, BurstTileRanges ranges);

/* ---- attention_rate.c: what kernels compute of a pair of chunks, one head, and at which rate ---- */
/* mask/cell.c: of the pairs of a cell, those that the mask keeps. With tile 1 the share is 0 only where
 * none is kept and 1 only where all are; with larger tiles 0 only where none is computed and 1 only where
 * all are full. Where it is not sure, either may be so. */
typedef struct MaskShare { double share; bool sure; } MaskShare;
MaskShare mask_share(MaskMap *m, const PosSet *q, const PosSet *k, int64_t tile);
typedef struct MaskSum { PairWork work; double density; } MaskSum;
MaskSum mask_sum(MaskMap *m); /* of the whole sequence with itself */
/* The expression in the language of .burst, with the fewest parentheses; tables may be NULL (then t0, t1,
 * ...). */
void mask_text(const Expr *e, const Table *tables, Text *out);
/* --emit=mask: density, picture, counts */
void print_mask(const Program *p, int mask, Text *out);
/* -Wempty-mask, -Wempty-rows: only what is sure; -Wone-document */
void mask_warn(Diags *d, const Program *p);
/* Emits C (see BurstMask in burst_rt.h): plan_mask<i>_tile and plan_mask<i>_row. */
void mask_emit_c(const Program *p, int mask, Text *out);
/* Emits CUDA: plan_mask<i>_tile, plan_mask<i>_keep of one pair, and PlanMask<i>, the kernels' template
 * argument. */
void mask_emit_cuda(const Program *p, int mask, Text *out);
/* mask/keys.c: BURST_KEYS_*: which key tiles attention takes where the predicate has 32 bits. */
int mask_keys(const Program *p, int mask, bool backward);
/* Input text made safe: inside a C comment, and as a C string literal with its quotes. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

/* ---- kernels.c: the CUDA attention kernels of a program's devices ---- */
/* What the lists of live tiles of one launch take at most, for so many queries, and chunks of keys of so
 * many tokens. at_once: chunks of keys that forward and backward take at once, 0: each has a launch.
 * turns: query heads whose dQ is added in a fixed order; 0: none. */
typedef struct KernelLists { int64_t ints, sides; } KernelLists;
KernelLists kernels_lists(const Program *p, int64_t queries, int64_t tokens, int pieces,
                          const int at_once[2], int turns);

#endif
