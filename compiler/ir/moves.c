/* ir/moves.c: whether queries or their sums leave their rank, given the sizes of the coordinates: a mesh of
 * 4 x 1 passes only keys, and one rank passes nothing. */
#include "ir/choice.h"
#include "ir/expr.h"

#include "burst_int.h"

enum { MOST_TURNS = 1 << 16 };

typedef struct Mover { const Choice *choice; int64_t var[MAX_SCHED_VARS]; int turns; } Mover;

static bool goes_away(const Mover *m, const Stmt *s)
{
    bool away = false;
    for (int i = 0; i < m->choice->coords; i++)
        away |= s->to[i] && burst_floor_mod(expr_eval(s->to[i], 0, 0, m->var, NULL), m->choice->size[i]) != 0;
    return away;
}

static bool is_of_queries(const Stmt *s)
{
    bool of = false;
    for (int i = 0; i < s->nrefs; i++)
        of |= s->refs[i].tensor == T_Q || s->refs[i].tensor == T_O || s->refs[i].tensor == T_DQ;
    return of;
}

static bool moves(Mover *m, const Stmt *s);

/* Loops with too many iterations are refused elsewhere. */
static bool loop_moves(Mover *m, const Stmt *s)
{
    const int64_t first = expr_eval(s->lo, 0, 0, m->var, NULL), last = expr_eval(s->hi, 0, 0, m->var, NULL);
    bool any = false;
    for (int64_t i = first; i <= last && !any && m->turns++ < MOST_TURNS; i++) {
        m->var[s->var] = i;
        any = moves(m, s->body);
    }
    return any;
}

/* A return at the end of a direction moves something only if something was passed before. */
static bool moves(Mover *m, const Stmt *s)
{
    bool any = false;
    for (; s && !any; s = s->next) {
        if (s->kind == S_FOR)
            any = loop_moves(m, s);
        else if (s->kind == S_IF)
            any = expr_eval(s->cond, 0, 0, m->var, NULL) && moves(m, s->body);
        else
            any = s->kind == S_PASS && is_of_queries(s) && goes_away(m, s);
    }
    return any;
}

bool choice_moves_queries(const Choice *c, bool backward)
{
    const Phase *phase = phase_of(c, backward);
    Mover m = {.choice = c};
    for (int i = 0; i < c->coords; i++)
        m.var[MAX_COORDS + i] = c->size[i];
    return phase && moves(&m, phase->body);
}
