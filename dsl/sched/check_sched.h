/* check_sched.h: what the files of the check of schedules share. */
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
    Travel travel; /* of a backward; TRAVELS: both */
    int exchanged; /* the coordinate that this direction's exchanges are over; -1: it has none */
    Span home[TENSOR_COUNT]; /* sums: where this direction's exchange brings them home; src NULL: none does */
    int nesting;
    bool failed;
    int copied;   /* statements that `use` and `mirrors` wrote */
    bool counted; /* an index with too few or too many coordinates was reported */
} Scheduler;

void fault(Scheduler *s, Span at, const char *text);

/* ---- sched/check.c ---- */
ChunkRef chunk(Scheduler *s, const Ast *a);
void chunks(Scheduler *s, Stmt *stmt, const Ast *first, const Ast *end);
void once_each(Scheduler *s, const Stmt *stmt);
int new_loop_variable(Scheduler *s, const Ast *a); /* -1 after an error */
void outputs_stay(Scheduler *s, const Stmt *stmt);

/* ---- sched/derive.c ---- */
/* A statement about a chunk of keys without a piece is about all of them: `for pieces in 0 .. P - 1`
 * around it, named by the word, which no user's variable can be. */
Stmt *each_piece(Scheduler *s, Stmt *stmt);
void collective_statement(Scheduler *s, const Ast *a, Stmt *out);
Stmt *use_statement(Scheduler *s, const Ast *a); /* the statements of the schedule that it names */
/* The statements of `of` with queries for keys and keys for queries; in forward, with O for dQ, and none
 * for dKV. */
const Phase *mirror(Scheduler *s, const Phase *of, Span by);

/* ---- sched/head.c ---- */
bool schedule_head(Scheduler *s, const Ast *a); /* false after an error */

/* ---- sched/expr.c ---- */
typedef enum Type { BROKEN, NUMBER, TRUTH } Type;
/* A value that all ranks must agree on: bounds of loops, conditions. NULL after an error; range may be
 * NULL. */
const Expr *common_value(Scheduler *s, const Ast *a, Type wanted, Range *range);
/* The components of an index or destination: one for each coordinate; NULL for `*`, which only an index
 * may have. */
void places(Scheduler *s, AstList from, const Expr **to, Span at);

#endif
