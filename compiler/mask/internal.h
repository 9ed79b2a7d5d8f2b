/* mask/internal.h: declarations shared by the files of compiler/mask only.
 *
 *   Expr -lower-> MaskNode -walk-> verdict on a box, and a key that names what is still open
 *        -count-> tiles and pairs
 */
#ifndef MASK_H
#define MASK_H

#include "mask/mask.h"

#include "burst_mask.h"
#include "ir/expr.h"

/* ---- mask/text.c ---- */
/* Escapes text for a C comment; prints it as a C string literal. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

/* ---- mask/emit.c: functions for mask/emit_cuda.c ---- */
/* How the exact predicate spells names. one: a function of one q and one k that returns the verdict, instead
 * of a row of keys. table_q, table_k: the value of a table, with %d for its number. selected: whether the key
 * is chosen. suffix: appended to burst_floor_div and the like. */
typedef struct MaskSpelling {
    const char *key, *table_q, *table_k, *selected, *suffix;
    bool one;
} MaskSpelling;
/* Prints the comment, the patterns and plan_mask<i>_tile. */
void mask_emit_tile(const Program *p, int mask, const char *qualifiers, Text *out);
/* Prints the body of the exact predicate after "{", and its "}". */
void mask_emit_exact(const Program *p, int mask, const MaskSpelling *spelling, Text *out);

/* ---- mask/keys.c ---- */
unsigned mask_tables(const Expr *e); /* bit t: it reads table t */
/* The greatest common divisor; mask_divisor(0, b) is b. */
int64_t mask_divisor(int64_t a, int64_t b);

/* ---- mask/lower.c ---- */
/* A side whose tables may have any value. */
BurstSide mask_side(int64_t lo, int64_t last);

/* Adds s * e to f if e is affine in q and k. Returns false, with f unspecified, if it is not. */
bool mask_affine(const Expr *e, int64_t s, BurstForm *f);

/* ---- mask/lower.c: masks with affine parts folded ---- */
/* A table of documents of drawn lengths, shared by all tables with the same lengths. */
typedef struct MaskDocuments {
    BurstTableKind kind;
    int64_t count;
    const int64_t *begin; /* [count + 1] */
    const int32_t *hint;
} MaskDocuments;
typedef enum MaskNodeOp {
    MN_AFFINE,
    MN_TABLE_Q,
    MN_TABLE_K,
    MN_ADD,
    MN_SUB,
    MN_SCALE,
    MN_MUL,
    MN_DIV,
    MN_MOD,
    MN_MIN,
    MN_ABS,
    MN_FUNCTION,
    MN_HASH,
    MN_CONSTANT,
    MN_NEGATIVE,
    MN_ZERO,
    MN_PATTERN,
    MN_AND,
    MN_OR,
    MN_NOT,
} MaskNodeOp;
typedef struct MaskNode {
    MaskNodeOp op;
    BurstForm affine;          /* AFFINE */
    int64_t value;             /* SCALE, DIV, MOD, HASH: the number; TABLE: its index; CONSTANT: a verdict;
                                * FUNCTION: its ExprOp */
    const MaskDocuments *documents; /* TABLE: NULL: any value */
    const Pattern *pattern;
    const ExprFunction *function; /* FUNCTION */
    const struct MaskNode *x, *y;
    int64_t work;              /* plain operations of one evaluation */
    bool open;                 /* reads a table of unknown values, so that even one pair may be undecided */
} MaskNode;
/* documents[table]: the table's values; NULL: any. If documents is NULL, all tables may have any values, and
 * verdicts hold for every batch. */
const MaskNode *mask_lower(Arena *a, const Expr *e, const MaskDocuments *const *documents);
/* The same with a drawn selection in place of blocks that may be chosen or not. */
const MaskNode *mask_lower_drawn(Arena *a, const Expr *e, const MaskDocuments *const *documents);
const MaskDocuments *mask_documents_draw(Arena *a, const Table *t, int64_t sequence, int batch);
int64_t mask_documents_at(const MaskDocuments *d, int64_t position); /* the table's value */
/* A document's begin in (lo, last], near the middle. */
int64_t mask_documents_begin_near(const MaskDocuments *d, int64_t lo, int64_t last);
int32_t mask_documents_index(const MaskDocuments *d, int64_t position); /* the document's number */
/* The interval of a TABLE node's values on a side. */
BurstForm mask_node_table(const MaskNode *n, const BurstSide *side);
/* burst_pattern_cover, in constant time if the pattern has prefix sums. */
int mask_pattern_cover(const Pattern *p, BurstForm row, BurstForm col, const BurstSide *q,
                       const BurstSide *k);
int mask_node_cover(const MaskNode *n, const BurstSide *q, const BurstSide *k);

/* The verdict on a box. Simplifies *n to what is open there: it has the same verdicts on boxes inside. New
 * nodes come from spare; if they run out, more of *n is kept. */
typedef struct MaskSpare { MaskNode *node; int used, size; } MaskSpare;
int mask_node_within(MaskSpare *spare, const MaskNode **n, const BurstSide *q, const BurstSide *k);

/* ---- mask/point.c ---- */
/* Whether the mask keeps the pair. n must not be open. */
bool mask_node_at(const MaskNode *n, int64_t q, int64_t k);

/* ---- mask/walk.c: a verdict, with a key for what it leaves open ---- */
enum { WALK_UNITS = 6, DEPENDS_Q = 1, DEPENDS_K = 2 };
/* Where to split a range: at `end` if not 0, else at multiples of the units, so that the key stays the
 * same. */
typedef struct MaskUnits { int n; int64_t of[WALK_UNITS]; int64_t end; } MaskUnits;
typedef struct MaskWalk {
    Arena *arena;
    BurstSide q, k;        /* hull of a range of tiles */
    int64_t width_q, width_k; /* lower bound of last - first position over the tiles of the range */
    Vec(int64_t) key;      /* a stack: each walk appends */
    /* the open part depends on absolute positions (hash, pattern, documents), so the key does not describe
     * it */
    bool absolute;
    MaskUnits units_q, units_k;
} MaskWalk;
/* cover: of the hull. same: every tile of the range is PARTIAL. depends: the sides on which the open part
 * depends. */
typedef struct MaskOpen { int cover; bool same; int depends; } MaskOpen;
/* Appends to w->key a description of the open part relative to (q.lo, k.lo): ranges with equal keys and
 * shapes have the same verdicts tile by tile. Appends nothing if the verdict is decided or is the same for
 * every tile. */
MaskOpen mask_walk(MaskWalk *w, const MaskNode *n);

/* ---- mask/range.c: ranges of tiles of a PosSet ---- */
/* The last position of a piece. */
static inline int64_t mask_piece_last(const Piece *p)
{
    return p->start + (p->count - 1) * p->stride + p->run - 1;
}
typedef struct MaskRange {
    const PosSet *set;
    int64_t tile;          /* tokens per tile; first is a multiple of it */
    int64_t first, tokens; /* in local order */
    int64_t lo, hi;        /* hull of positions */
    const Piece *piece;    /* NULL: several */
    int64_t piece_first;   /* local index of the piece's first token */
} MaskRange;
enum { SHAPE_WORDS = 4 };
MaskRange mask_range_make(const PosSet *set, int64_t tile, int64_t first, int64_t tokens);
MaskRange mask_range_part(const MaskRange *r, int64_t first, int64_t tokens); /* first: from the range's */
int64_t mask_range_tiles(const MaskRange *r);
/* The two parts of one tile at either side of its widest gap (the first of equal ones), if that is wider
 * than a tile; else the whole tile. Returns the number of parts. Same rule as sides_apart in
 * runtime/host/ops/attend_sides.c. */
int mask_range_apart(const MaskRange *r, MaskRange part[2]);
int mask_box_cover(const MaskNode *n, const MaskRange *q, const MaskRange *k); /* verdict on the hulls */
int64_t mask_range_width(const MaskRange *r);
void mask_range_shape(const MaskRange *r, int64_t shape[SHAPE_WORDS]);
/* mask/walk.c: mask_walk of the box of two ranges. */
MaskOpen mask_walk_box(MaskWalk *w, const MaskNode *n, const MaskRange *q, const MaskRange *k);
/* Splits r into its parts between multiples of unit (if tiles have one token), or into its tiles. Returns
 * their number, 0 if there are more than RANGE_CELLS. */
enum { RANGE_CELLS = 64 };
int mask_range_cells(const MaskRange *r, const MaskUnits *units, MaskRange cell[RANGE_CELLS]);
/* Splits r, which must have at least two tiles, between tiles; at a round multiple of the units if
 * possible. */
void mask_range_split(const MaskRange *r, const MaskUnits *units, MaskRange *left, MaskRange *right);

/* Whether to split q rather than k. One of them must have at least two tiles. */
bool mask_range_first(const MaskRange *q, const MaskRange *k);

/* ---- mask/memory.c ---- */
/* error: of full, and of full + partial */
typedef struct MaskCount { int64_t full, partial; double error; bool estimated; } MaskCount;
typedef struct MaskEntry { uint64_t hash; int key, words; MaskCount count; } MaskEntry; /* words 0: free */
typedef struct MaskMemory {
    Arena *arena;
    MaskEntry *entry; /* open addressing, a power of two */
    int entries, size;
    Vec(int64_t) keys;
} MaskMemory;
/* The key of a pair of sets. Returns its words; 0 if a set has more pieces than partitions make. */
enum { PAIR_PIECES = 2, PAIR_WORDS = 2 * (1 + 4 * PAIR_PIECES) };
int mask_pair_key(const PosSet *q, const PosSet *k, int64_t key[PAIR_WORDS]);
const MaskCount *mask_memory_find(const MaskMemory *m, const int64_t *key, int words); /* NULL: not known */
void mask_memory_add(MaskMemory *m, const int64_t *key, int words, MaskCount n);
void mask_memory_forget(MaskMemory *m);

/* ---- mask/effort.c: how long to look at a mask ---- */
/* The remaining work budget of one mask, in plain operations of MaskNodes. */
typedef struct MaskEffort {
    double left, later; /* for this partition; for later ones */
    double reward;      /* extension of left for boxes that repeat */
    double sampling, sampling_later; /* budget of samples, in addition to left */
    double draws;       /* most samples for all pairs of the sequence */
    double taken;       /* spent so far, by all partitions */
} MaskEffort;
MaskEffort mask_effort(int64_t sequence, double part); /* part: the mask's fraction of the budget */
void mask_effort_begin(MaskEffort *e); /* start the next partition */
/* The allowance of a share of the sequence. trust, in (0, 1], falls with each count given up and recovers
 * with each that succeeds. */
int64_t mask_effort_for(const MaskEffort *e, double share, double trust);
/* Books the work of a count. unspent: negative if it was given up. Returns whether it took long enough to
 * keep the result. */
bool mask_effort_spend(MaskEffort *e, double *trust, int64_t allowed, int64_t unspent);
void mask_effort_take(MaskEffort *e, int64_t work);
/* Samples allowed now; work: operations per sample. */
int mask_effort_draws(MaskEffort *e, double share, int64_t work);

/* ---- mask/sample.c ---- */
typedef struct MaskBox MaskBox;
/* Estimates a box from its share of samples, or counts it if it has no more tiles than that. Without any
 * samples the result is an unknown count. ring: the caller's work buffer, NULL at first, reused between
 * calls. */
MaskCount mask_sample(Arena *a, MaskBox **ring, const MaskNode *mask, MaskRange q, MaskRange k, MaskEffort *e,
                      double share);

/* ---- mask/count.c ---- */
typedef struct MaskCounter MaskCounter;
/* mask/line.c: the closed form for a key that is one affine comparison, over ranges that are progressions.
 * Returns false if it does not apply. */
bool mask_count_line(const int64_t *key, int words, const MaskRange *q, const MaskRange *k, MaskCount *n);
/* Pairs (i, j) with a * i + b * j + c < 0, of i < n and j < m; a and b are not 0. */
int64_t mask_line_below(int64_t a, int64_t n, int64_t b, int64_t m, int64_t c);
/* Counts tiles by verdict and caches results. Returns an estimate if exact counting would exceed the
 * budget. */
MaskCounter *mask_counter_new(Arena *a, const MaskNode *mask, MaskEffort *effort);
MaskCount mask_counter_count(MaskCounter *c, MaskRange q, MaskRange k, double share);
void mask_counter_trust(MaskCounter *c); /* resets trust before masks or sets that may be easier */

/* ---- mask/documents.c ---- */
/* Pairs of one document with least <= q - k <= most. */
typedef struct MaskWithin {
    const MaskDocuments *documents;
    int64_t least, most;
} MaskWithin;
/* Whether the mask keeps exactly these pairs. */
bool mask_is_within(const MaskNode *n, int64_t sequence, MaskWithin *w);
/* Positions from lo to hi of a chunk, of documents from the first to the last. */
typedef struct MaskSpan {
    int32_t lo, hi, first, last;
} MaskSpan;
/* A chunk as spans, at places in a list: its tiles; and runs of tokens of one document, `stride` apart. */
typedef struct MaskChunk {
    int tile, tiles, run, runs;
    int64_t stride;
} MaskChunk;
/* The chunks of the pairs that were counted last. */
typedef struct MaskChunks {
    Arena *arena;
    MaskMemory known; /* by tile and pieces; `full` is an index into chunk */
    Vec(MaskChunk) chunk;
    MaskSpan *span; /* [most]; NULL: none yet */
    int spans, most;
    Vec(int64_t) key;
    int forgotten; /* how often all were */
} MaskChunks;
MaskChunks mask_chunks(Arena *a, int64_t sequence, int tile); /* tile: the smaller one of a map's */
/* Counts the pairs and the tiles of two chunks exactly, and adds what that takes to *work. Returns false,
 * perhaps after some work, if their positions do not rise or they have too many spans. */
typedef struct MaskSide { const PosSet *set; int64_t tile; } MaskSide;
bool mask_count_within(MaskChunks *c, const MaskWithin *w, MaskSide q, MaskSide k, MaskCount *pairs,
                       MaskCount *tiles, int64_t *work);

struct MaskMap {
    const MaskNode *cover; /* for all values of the tables */
    MaskMemory covers;     /* verdicts of pairs that took long, stored in `full` */
    /* budgets: of counts, covers, hulls of live tiles, gaps in them */
    MaskEffort effort, looks, edges, gaps;
    double trust;          /* of looks */
    int64_t left;          /* work budget of the current look at a pair */
    int enough;            /* SEEN_ bits after which a look may stop */
    const MaskNode *batch; /* the mask with drawn documents */
    const MaskNode *sampled; /* the counted mask, with drawn documents */
    int64_t cells;         /* work budget left for cells of pictures */
    MaskCounter *count_tiles, *count_pairs;
    bool by_document; /* the counted mask is `within` */
    MaskWithin within;
    MaskChunks chunks;
    /* live tile ranges of run pairs, by the key of what is open; `full` is an index into found */
    MaskWalk walk;
    MaskMemory ranges;
    Vec(BurstTileRanges) found;
    int tile_q, tile_k;
    int64_t sequence;
    bool sampled_tables;
};

#endif
