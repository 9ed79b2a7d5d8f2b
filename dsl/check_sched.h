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
    int exchanged; /* the coordinate that this direction's exchanges are over; -1: it has none */
    Span home[TENSOR_COUNT]; /* sums: where this direction's exchange brings them home; src NULL: none does */
    int nesting;
    bool failed;
    bool counted; /* an index with too few or too many coordinates was reported */
} Scheduler;

void fault(Scheduler *s, Span at, const char *text);

/* ---- check_sched_head.c ---- */
bool schedule_head(Scheduler *s, const Ast *a); /* false after an error */

/* ---- check_sched_expr.c ---- */
typedef enum Type { BROKEN, NUMBER, TRUTH } Type;
/* A value that all ranks must agree on: bounds of loops, conditions. NULL after an error; range may be NULL. */
const Expr *common_value(Scheduler *s, const Ast *a, Type wanted, Range *range);
/* The components of an index or destination: one for each coordinate; NULL for `*`, which only an index may have. */
void places(Scheduler *s, AstList from, const Expr **to, Span at);

#endif
