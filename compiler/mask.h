/* mask.h: what the files of the mask pass share; nobody else includes it.
 *
 *   Expr -lower-> MaskNode -walk-> verdict on a box, and a key that names what is still open -count-> tiles and pairs
 */
#ifndef MASK_H
#define MASK_H

#include "burst.h"

#include "burst_mask.h"

/* ---- mask_text.c ---- */
/* The expression in the language of .burst, with the fewest parentheses; tables may be NULL (then t0, t1, ...). */
void mask_text(const Expr *e, const Table *tables, Text *out);
/* text as the inside of a C comment; as a C string literal. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

/* ---- mask_emit.c: its parts, for mask_emit_cuda.c ---- */
/* How the exact predicate names things. one: a function of one q and one k that returns the verdict, not a row of keys.
 * table_q, table_k: the value of a table, its number where %d stands. suffix: of burst_floor_div and the like. */
typedef struct MaskSpelling { const char *key, *table_q, *table_k, *suffix; bool one; } MaskSpelling;
/* The comment, the patterns and plan_mask<i>_tile. */
void mask_emit_tile(const Program *p, int mask, const char *qualifiers, Text *out);
/* The body of the exact predicate after its "{", and its "}". */
void mask_emit_exact(const Program *p, int mask, const MaskSpelling *spelling, Text *out);

/* ---- mask_interval.c ---- */
/* A side without tables: their values may be anything. */
BurstSide mask_side(int64_t lo, int64_t last);
bool mask_is_comparison(ExprOp op);

/* ---- mask_affine.c ---- */
/* f += s * e where e is affine in q and k; false (and f unspecified) where it is not. */
bool mask_affine(const Expr *e, int64_t s, BurstForm *f);

/* ---- mask_lower.c: masks with affine parts folded ---- */
/* Values of a table with a length distribution, drawn once: documents one after another. */
typedef struct MaskDocuments { int64_t count; const int64_t *begin; const int32_t *hint; } MaskDocuments;
typedef enum MaskNodeOp {
    MN_AFFINE, MN_TABLE_Q, MN_TABLE_K, MN_ADD, MN_SUB, MN_SCALE, MN_MUL, MN_DIV, MN_MOD, MN_MIN, MN_ABS, MN_HASH,
    MN_CONSTANT, MN_NEGATIVE, MN_ZERO, MN_PATTERN, MN_AND, MN_OR, MN_NOT, MN_GUESS,
} MaskNodeOp;
typedef struct MaskNode {
    MaskNodeOp op;
    BurstForm affine;          /* AFFINE */
    int64_t value;             /* SCALE, DIV, MOD, HASH: the number; TABLE: which; CONSTANT, GUESS: a verdict */
    const MaskDocuments *documents; /* TABLE: NULL: may be anything */
    const Pattern *pattern;
    const struct MaskNode *x, *y;
} MaskNode;
/* What to take for tables: nothing (verdicts that hold for all); a sample where lengths are given; that, and otherwise
 * whatever keeps the most pairs. */
typedef enum TableReading { TABLES_UNKNOWN, TABLES_SAMPLED, TABLES_MOST_PAIRS } TableReading;
const MaskNode *mask_lower(Arena *a, const Expr *e, TableReading reading, const MaskDocuments *const *documents);
const MaskDocuments *mask_documents_draw(Arena *a, const Table *t, int index, int64_t sequence);
int32_t mask_documents_at(const MaskDocuments *d, int64_t position);
int64_t mask_documents_begin_near(const MaskDocuments *d, int64_t lo, int64_t last); /* in (lo, last], about the middle */
BurstForm mask_node_table(const MaskNode *n, const BurstSide *side); /* of a TABLE node: the interval of its values */
int mask_node_cover(const MaskNode *n, const BurstSide *q, const BurstSide *k);

/* ---- mask_walk.c: a verdict with a name for what it leaves open ---- */
enum { WALK_UNITS = 6, DEPENDS_Q = 1, DEPENDS_K = 2 };
/* Where to cut a range: at multiples of the units, so that the key stays the same; better still at `end`, if not 0. */
typedef struct MaskUnits { int n; int64_t of[WALK_UNITS]; int64_t end; } MaskUnits;
typedef struct MaskWalk {
    Arena *arena;
    BurstSide q, k;        /* hull of a range of tiles */
    int64_t width_q, width_k; /* last - first position, at least, of every tile of the range */
    Vec(int64_t) key;      /* a stack: each walk appends */
    bool absolute;         /* what is open depends on the place (hash, pattern, documents): the key is no name for it */
    MaskUnits units_q, units_k;
} MaskWalk;
/* cover on the hull; same: every tile of the range is PARTIAL; depends: on which side the open part depends. */
typedef struct MaskOpen { int cover; bool same; int depends; } MaskOpen;
/* Appends to w->key a description of the open part relative to (q.lo, k.lo): equal keys and equally shaped ranges have
 * the same verdict tile by tile. Nothing is appended where the verdict is decided or the same for every tile. */
MaskOpen mask_walk(MaskWalk *w, const MaskNode *n);

/* ---- mask_range.c: ranges of tiles of a PosSet ---- */
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
int64_t mask_range_tiles(const MaskRange *r);
int64_t mask_range_width(const MaskRange *r);
void mask_range_shape(const MaskRange *r, int64_t shape[SHAPE_WORDS]);
/* The parts of r between multiples of unit (tiles of one token), or its tiles; 0 where there are more than RANGE_CELLS. */
enum { RANGE_CELLS = 64 };
int mask_range_cells(const MaskRange *r, const MaskUnits *units, MaskRange cell[RANGE_CELLS]);
/* Cuts r, which has two tiles or more, at a tile; where it can, at a round multiple of the units. */
void mask_range_split(const MaskRange *r, const MaskUnits *units, MaskRange *left, MaskRange *right);

/* ---- mask_count.c ---- */
typedef struct MaskCount { int64_t full, partial; double variance; bool estimated; } MaskCount; /* variance of the full ones */
typedef struct MaskCounter MaskCounter;
/* mask_line.c: where the key is one comparison of an affine value and the ranges are progressions, the closed form. */
bool mask_count_line(const int64_t *key, int words, const MaskRange *q, const MaskRange *k, MaskCount *n);
/* Counts tiles by verdict; remembers what it has counted. Takes a sample where more than `cells` verdicts are needed. */
MaskCounter *mask_counter_new(Arena *a, const MaskNode *mask);
MaskCount mask_counter_count(MaskCounter *c, MaskRange q, MaskRange k, int64_t cells);

struct MaskMap {
    const MaskNode *cover; /* for all tables */
    MaskCounter *count_tiles, *count_pairs;
    int tile_q, tile_k;
    int64_t sequence;
    bool sampled_tables;
};

#endif
