/* mask/internal.h: what the files of the mask pass share; nobody else includes it.
 *
 *   Expr -lower-> MaskNode -walk-> verdict on a box, and a key that names what is still open
 *        -count-> tiles and pairs
 */
#ifndef MASK_H
#define MASK_H

#include "mask/mask.h"

#include "burst_mask.h"

/* ---- mask/text.c ---- */
/* text as the inside of a C comment; as a C string literal. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

/* ---- mask/emit.c: its parts, for mask/emit_cuda.c ---- */
/* How the exact predicate names things. one: a function of one q and one k that returns the verdict, not a
 * row of keys. table_q, table_k: the value of a table, its number where %d stands. suffix: of
 * burst_floor_div and the like. */
typedef struct MaskSpelling { const char *key, *table_q, *table_k, *suffix; bool one; } MaskSpelling;
/* The comment, the patterns and plan_mask<i>_tile. */
void mask_emit_tile(const Program *p, int mask, const char *qualifiers, Text *out);
/* The body of the exact predicate after its "{", and its "}". */
void mask_emit_exact(const Program *p, int mask, const MaskSpelling *spelling, Text *out);

/* ---- mask/keys.c ---- */
unsigned mask_tables(const Expr *e); /* bit t: it reads table t */
/* The greatest common divisor; 0 is divided by everything. */
int64_t mask_divisor(int64_t a, int64_t b);

/* ---- mask/lower.c ---- */
/* A side without tables: their values may be anything. */
BurstSide mask_side(int64_t lo, int64_t last);

/* ---- mask/affine.c ---- */
/* f += s * e where e is affine in q and k; false (and f unspecified) where it is not. */
bool mask_affine(const Expr *e, int64_t s, BurstForm *f);

/* ---- mask/lower.c: masks with affine parts folded ---- */
/* A table of documents whose lengths are drawn, the same for all tables of equal lengths. */
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
    int64_t value;             /* SCALE, DIV, MOD, HASH: the number; TABLE: which; CONSTANT: a verdict;
                                * FUNCTION: its ExprOp */
    const MaskDocuments *documents; /* TABLE: NULL: may be anything */
    const Pattern *pattern;
    const ExprFunction *function; /* FUNCTION */
    const struct MaskNode *x, *y;
    int64_t work;              /* of one evaluation, in plain operations */
    bool open;                 /* reads a table that may be anything: open even at one pair */
} MaskNode;
/* documents[table]: its values, NULL for any; documents NULL: all tables may be anything, and verdicts
 * hold for every batch. */
const MaskNode *mask_lower(Arena *a, const Expr *e, const MaskDocuments *const *documents);
const MaskDocuments *mask_documents_draw(Arena *a, const Table *t, int64_t sequence, int batch);
int64_t mask_documents_at(const MaskDocuments *d, int64_t position); /* the table's value */
/* in (lo, last], about the middle */
int64_t mask_documents_begin_near(const MaskDocuments *d, int64_t lo, int64_t last);
/* of a TABLE node: the interval of its values */
BurstForm mask_node_table(const MaskNode *n, const BurstSide *side);
/* burst_pattern_cover, in constant time where the pattern has sums. */
int mask_pattern_cover(const Pattern *p, BurstForm row, BurstForm col, const BurstSide *q,
                       const BurstSide *k);
int mask_node_cover(const MaskNode *n, const BurstSide *q, const BurstSide *k);

/* The verdict on the box, and of n what is still open there: boxes inside have the verdict that n gives
 * them. New nodes are taken from spare; where those do not suffice, more of n stays. */
typedef struct MaskSpare { MaskNode *node; int used, size; } MaskSpare;
int mask_node_within(MaskSpare *spare, const MaskNode **n, const BurstSide *q, const BurstSide *k);

/* ---- mask/point.c ---- */
/* Whether the mask keeps a pair; not for masks that are open. */
bool mask_node_at(const MaskNode *n, int64_t q, int64_t k);

/* ---- mask/walk.c: a verdict with a name for what it leaves open ---- */
enum { WALK_UNITS = 6, DEPENDS_Q = 1, DEPENDS_K = 2 };
/* Where to cut a range: at multiples of the units, so that the key stays the same; better still at `end`,
 * if not 0. */
typedef struct MaskUnits { int n; int64_t of[WALK_UNITS]; int64_t end; } MaskUnits;
typedef struct MaskWalk {
    Arena *arena;
    BurstSide q, k;        /* hull of a range of tiles */
    int64_t width_q, width_k; /* last - first position, at least, of every tile of the range */
    Vec(int64_t) key;      /* a stack: each walk appends */
    /* what is open depends on the place (hash, pattern, documents): the key is no name for it */
    bool absolute;
    MaskUnits units_q, units_k;
} MaskWalk;
/* cover on the hull; same: every tile of the range is PARTIAL; depends: on which side the open part
 * depends. */
typedef struct MaskOpen { int cover; bool same; int depends; } MaskOpen;
/* Appends to w->key a description of the open part relative to (q.lo, k.lo): equal keys and equally shaped
 * ranges have the same verdict tile by tile. Nothing is appended where the verdict is decided or the same
 * for every tile. */
MaskOpen mask_walk(MaskWalk *w, const MaskNode *n);

/* ---- mask/range.c: ranges of tiles of a PosSet ---- */
typedef struct MaskRange {
    const PosSet *set;
    int64_t tile;          /* tokens of a tile; first is a multiple of it */
    int64_t first, tokens; /* in local order */
    int64_t lo, hi;        /* hull of positions */
    const Piece *piece;    /* NULL: several */
    int64_t piece_first;   /* local index of the piece's first token */
} MaskRange;
enum { SHAPE_WORDS = 4 };
MaskRange mask_range_make(const PosSet *set, int64_t tile, int64_t first, int64_t tokens);
MaskRange mask_range_part(const MaskRange *r, int64_t first, int64_t tokens); /* first: from the range's */
int64_t mask_range_tiles(const MaskRange *r);
/* Of one tile: what lies at either side of its widest gap, the first of equal ones, where that is wider
 * than a tile; or all of it. How many parts that is. As sides_apart in runtime/host/ops/attend_sides.c. */
int mask_range_apart(const MaskRange *r, MaskRange part[2]);
int mask_box_cover(const MaskNode *n, const MaskRange *q, const MaskRange *k); /* verdict on the hulls */
int64_t mask_range_width(const MaskRange *r);
void mask_range_shape(const MaskRange *r, int64_t shape[SHAPE_WORDS]);
/* mask/walk.c: mask_walk of the box of two ranges. */
MaskOpen mask_walk_box(MaskWalk *w, const MaskNode *n, const MaskRange *q, const MaskRange *k);
/* The parts of r between multiples of unit (tiles of one token), or its tiles; 0 where there are more than
 * RANGE_CELLS. */
enum { RANGE_CELLS = 64 };
int mask_range_cells(const MaskRange *r, const MaskUnits *units, MaskRange cell[RANGE_CELLS]);
/* Cuts r, which has two tiles or more, at a tile; where it can, at a round multiple of the units. */
void mask_range_split(const MaskRange *r, const MaskUnits *units, MaskRange *left, MaskRange *right);

/* Of two ranges of which one has two tiles or more: whether to cut q before k. */
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
/* The name of a pair of sets; 0 words where they have more pieces than partitions make. */
enum { PAIR_PIECES = 2, PAIR_WORDS = 2 * (1 + 4 * PAIR_PIECES) };
int mask_pair_key(const PosSet *q, const PosSet *k, int64_t key[PAIR_WORDS]);
const MaskCount *mask_memory_find(const MaskMemory *m, const int64_t *key, int words); /* NULL: not known */
void mask_memory_add(MaskMemory *m, const int64_t *key, int words, MaskCount n);

/* ---- mask/effort.c: how long to look at a mask ---- */
/* What all who look at one mask may take together, in work of MaskNodes. */
typedef struct MaskEffort {
    double left, later; /* for this partition; for those after it */
    double reward;      /* beyond left, for boxes that repeat */
    double sampling, sampling_later; /* beside it, for draws, ... */
    double draws;       /* ... of which at most so many for all pairs of the sequence */
    double taken;       /* so far, for all partitions */
} MaskEffort;
MaskEffort mask_effort(int64_t sequence, double part); /* of what a mask over such a sequence may take */
void mask_effort_begin(MaskEffort *e); /* another partition */
/* For a part of the sequence. trust, in (0, 1], falls with each part that was given up and comes back with
 * what was not. */
int64_t mask_effort_for(const MaskEffort *e, double share, double trust);
/* unspent: below 0 where it was given up. Says whether it took so much that the result is worth keeping. */
bool mask_effort_spend(MaskEffort *e, double *trust, int64_t allowed, int64_t unspent);
void mask_effort_take(MaskEffort *e, int64_t work);
/* that it may make now; work: of one draw */
int mask_effort_draws(MaskEffort *e, double share, int64_t work);

/* ---- mask/sample.c ---- */
typedef struct MaskBox MaskBox;
/* An estimate from its share of draws, or a count where tiles are not more than those; without any, that
 * nothing is known. ring: working memory, kept by the caller from call to call; NULL at first. */
MaskCount mask_sample(Arena *a, MaskBox **ring, const MaskNode *mask, MaskRange q, MaskRange k, MaskEffort *e,
                      double share);

/* ---- mask/count.c ---- */
typedef struct MaskCounter MaskCounter;
/* mask/line.c: where the key is one comparison of an affine value and the ranges are progressions, the
 * closed form. */
bool mask_count_line(const int64_t *key, int words, const MaskRange *q, const MaskRange *k, MaskCount *n);
/* Counts tiles by verdict; remembers what it has counted. An estimate where exact counting takes too long. */
MaskCounter *mask_counter_new(Arena *a, const MaskNode *mask, MaskEffort *effort);
MaskCount mask_counter_count(MaskCounter *c, MaskRange q, MaskRange k, double share);
void mask_counter_trust(MaskCounter *c); /* what comes next may be easier than what was given up */

struct MaskMap {
    const MaskNode *cover; /* for all tables */
    MaskMemory covers;     /* of pairs that took long: a verdict as `full` */
    /* for counts, for covers, for ranges of tiles and what lies between them */
    MaskEffort effort, looks, edges, gaps;
    double trust;          /* of looks */
    int64_t left;          /* of a look at one pair: work that it may still do, ... */
    int enough;            /* ... and what it need not go on after */
    const MaskNode *sampled; /* what is counted: with documents drawn */
    int64_t cells;         /* work that is left for cells of pictures */
    MaskCounter *count_tiles, *count_pairs;
    /* of pairs of runs, by what the mask leaves open between them: `full` is an index of found */
    MaskWalk walk;
    MaskMemory ranges;
    Vec(BurstTileRanges) found;
    int tile_q, tile_k;
    int64_t sequence;
    bool sampled_tables;
};

#endif
