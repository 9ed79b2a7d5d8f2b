/* check_sched.h: shared by the files of the schedule checker. */
#ifndef CHECK_SCHED_H
#define CHECK_SCHED_H

#include "check.h"

enum { MAX_RANKS = 1 << 20 };

typedef struct Scheduler {
    Checker *c;
    SchedText *text;
    Range range[MAX_SCHED_VARS];
    bool in_scope[MAX_SCHED_VARS];
    Span loop_at[MAX_SCHED_VARS];
    bool backward;
    Travel travel; /* of a backward; TRAVELS: for both */
    int exchanged; /* coordinate of this direction's exchanges; -1: it has none */
    /* sums: this direction's exchange that returns them to their owners; src NULL: none */
    Span home[TENSOR_COUNT];
    int nesting;
    bool failed;
    int copied;   /* statements copied by `use` and `mirrors` */
    bool counted; /* an index with a wrong number of coordinates was reported */
} Scheduler;

void fault(Scheduler *s, Span at, const char *text);

/* ---- sched/check.c ---- */
ChunkRef chunk(Scheduler *s, const Ast *a);
void chunks(Scheduler *s, Stmt *stmt, const Ast *first, const Ast *end);
void once_each(Scheduler *s, const Stmt *stmt);
int new_loop_variable(Scheduler *s, const Ast *a); /* -1 after an error */
void outputs_stay(Scheduler *s, const Stmt *stmt);

/* ---- sched/derive.c ---- */
/* Wraps a statement about a chunk of keys without a piece in a loop over all its pieces: `for pieces in 0 ..
 * P - 1`. The variable's name is a keyword, so that it differs from the user's. */
Stmt *each_piece(Scheduler *s, Stmt *stmt);
void collective_statement(Scheduler *s, const Ast *a, Stmt *out);
Stmt *use_statement(Scheduler *s, const Ast *a); /* the statements of the named schedule */
/* The statements of `of` with queries and keys exchanged; in forward, dQ becomes O, and dKV is dropped. */
const Phase *mirror(Scheduler *s, const Phase *of, Span by);

/* ---- sched/head.c ---- */
bool schedule_head(Scheduler *s, const Ast *a); /* false after an error */

/* ---- sched/expr.c ---- */
typedef enum Type { BROKEN, NUMBER, TRUTH } Type;
/* A value that all ranks agree on, for bounds of loops and conditions. Returns NULL after an error. range
 * may be NULL. */
const Expr *common_value(Scheduler *s, const Ast *a, Type wanted, Range *range);
/* The components of an index or destination, one for each coordinate; NULL for `*`, which only an index may
 * have. */
void places(Scheduler *s, AstList from, const Expr **to, Span at);

#endif
