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
/* In backward, Q stands for the bundle Q, dO, D, lse; KV for K and V; dKV for dK and dV. */
enum { FIRST_LOOP = 2 * MAX_COORDS, MAX_LOOPS = 12, MAX_SCHED_VARS = FIRST_LOOP + MAX_LOOPS };
/* heads: of the chunks of all ranks along the exchanged coordinate, the rank's share of the heads; its
 * index there is NULL. all: no index. piece: which one of the chunk; NULL: it has one, or all are meant. */
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
    Span span;               /* the whole statement up to its body */
    Span by, mirrored;       /* the `use` and the `mirrors` that wrote it here; src NULL: none did */
    struct Stmt *next, *body;
    int var;                 /* FOR: variable, lo .. hi inclusive */
    const char *var_name;
    bool each_piece;         /* FOR: of the one statement in it, which names no piece */
    const Expr *lo, *hi;
    const Expr *cond;        /* IF */
    ChunkRef refs[6];        /* ATTEND/GRAD: [0] Q with [1] KV; PASS, RETURN, EXCHANGE: nrefs of them */
    int nrefs;
    const Expr *to[MAX_COORDS]; /* PASS: destination coordinates, wrap around */
    bool tokens_to_heads;    /* EXCHANGE */
} Stmt;
Span stmt_place(const Stmt *s); /* in the schedule's own text */
/* One direction. exchanges: it has an EXCHANGE, and so all its chunks are by heads. of: the direction that
 * this one mirrors, src NULL: none. */
typedef struct Phase { Span span, of; const Stmt *body; bool exchanges; } Phase;
typedef struct Require { const Expr *cond; Span span; struct Require *next; } Require; /* of the sizes */
/* Variables of its expressions: coordinate i is i, its size is MAX_COORDS + i, loop variables from
 * FIRST_LOOP on. */
typedef struct SchedText {
    const char *name;
    const Source *source;
    int coords;
    const char *coord_name[MAX_COORDS], *size_name[MAX_COORDS]; /* "l" of "W" */
    /* what moves along it: "lane", or where no word says so the coordinate's name */
    const char *way_name[MAX_COORDS];
    bool lanes;               /* the last coordinate is `lane`: left open, it is the ranks of a node */
    int vars;
    const char *var_name[MAX_SCHED_VARS]; /* all variables, for printing */
    const Require *requires;
    int pieces;               /* of a rank's chunk of KV and dKV: as many contiguous shares of its tokens */
    int exchanged;            /* the coordinate that its exchanges are over; -1: it has none */
    /* coordinates that `context` has the sizes of: of several all but the exchanged one, which `heads` has */
    int rings;
    const Phase *forward;
    /* NULL where the file has none; "backward { }" without a word sets both */
    const Phase *backward[TRAVELS];
    Span span;
} SchedText;

#endif
