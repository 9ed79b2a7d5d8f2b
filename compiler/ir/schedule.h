/* ir/schedule.h: a checked .sched file. */
#ifndef BURST_IR_SCHEDULE_H
#define BURST_IR_SCHEDULE_H

#include "ir/layout.h"

typedef struct Expr Expr; /* ir/expr.h */
#define TENSORS(X) /* id, name in .sched, accumulator? */ \
    X(Q, "Q", 0) X(KV, "KV", 0) X(O, "O", 1) X(DQ, "dQ", 1) X(DKV, "dKV", 1)
typedef enum TensorId {
#define X(id, name, acc) T_##id,
    TENSORS(X)
#undef X
    TENSOR_COUNT
} TensorId;
/* In backward, Q stands for Q, dO, D and lse together; KV for K and V; dKV for dK and dV. */
enum { FIRST_LOOP = 2 * MAX_COORDS, MAX_LOOPS = 12, MAX_SCHED_VARS = FIRST_LOOP + MAX_LOOPS };
/* heads: the rank's share of the heads of all chunks along the exchanged coordinate; the index there is
 * NULL. all: no index. piece: index of the chunk's piece; NULL: there is one, or all are meant. */
typedef struct ChunkRef {
    TensorId tensor;
    const Expr *index[MAX_COORDS], *piece;
    bool heads, all;
    Span span;
} ChunkRef;
#define STATEMENTS(X) X(FOR) X(IF) X(ATTEND) X(GRAD) X(PASS) X(RETURN) X(EXCHANGE)
typedef enum StmtKind {
#define X(id) S_##id,
    STATEMENTS(X)
#undef X
} StmtKind;
typedef struct Stmt {
    StmtKind kind;
    Span span;               /* the statement without its body */
    Span by, mirrored;       /* the `use` and `mirrors` that inserted it; src NULL: none */
    struct Stmt *next, *body;
    int var;                 /* FOR: variable, lo .. hi inclusive */
    const char *var_name;
    bool each_piece;         /* FOR: repeats its one statement, which names no piece, for each piece */
    const Expr *lo, *hi;
    const Expr *cond;        /* IF */
    ChunkRef refs[6];        /* ATTEND/GRAD: [0] Q and [1] KV; PASS, RETURN, EXCHANGE: nrefs entries */
    int nrefs;
    const Expr *to[MAX_COORDS]; /* PASS: destination coordinates, which wrap around */
    bool tokens_to_heads;    /* EXCHANGE */
} Stmt;
Span stmt_place(const Stmt *s); /* position in the schedule's text */
/* One direction. exchanges: it has an EXCHANGE, so all its chunks are by heads. of: the direction that it
 * mirrors; src NULL: none. */
typedef struct Phase { Span span, of; const Stmt *body; bool exchanges; } Phase;
typedef struct Require { const Expr *cond; Span span; struct Require *next; } Require; /* on the sizes */
/* Variables of expressions: coordinate i is i, its size MAX_COORDS + i; loop variables start at
 * FIRST_LOOP. */
typedef struct SchedText {
    const char *name;
    const Source *source;
    int coords;
    const char *coord_name[MAX_COORDS], *size_name[MAX_COORDS]; /* "l" of "W" */
    /* what moves along it: "lane"; default: the coordinate's name */
    const char *way_name[MAX_COORDS];
    bool lanes;               /* the last coordinate is `lane`; if left open, it is the ranks of a node */
    int vars;
    const char *var_name[MAX_SCHED_VARS]; /* all variables, for printing */
    const Require *requires;
    int pieces;               /* of a rank's chunk of KV and dKV: contiguous shares of its tokens */
    int exchanged;            /* the coordinate of its exchanges; -1: none */
    /* coordinates whose sizes `context` gives: if there are several, all but the exchanged one, which
     * `heads` gives */
    int rings;
    const Phase *forward;
    /* NULL if the file has none; "backward { }" without a word sets both */
    const Phase *backward[TRAVELS];
    Span span;
} SchedText;

#endif
