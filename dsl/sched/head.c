/* sched/head.c: the head of a schedule: its coordinates with their sizes, and the pieces of a chunk of
 * keys. */
#include "sched/check_sched.h"

#include <string.h>

/* The word before a coordinate: the last of several may be the `lane` in a node, the others a `node`. */
static void level(Scheduler *s, const Ast *word, int i)
{
    SchedText *t = s->text;
    bool last = i == t->coords - 1;
    t->way_name[i] = word->text;
    t->lanes |= last;
    if (t->coords == 1 || strcmp(word->text, last ? "lane" : "node") != 0)
        fault(s, word->span,
              "the word before a coordinate must be 'lane' for the last of several coordinates and 'node' "
              "for the others");
}

/* `r of G`, or with a level before it: `node n of N`, `lane l of W`. */
static void coordinate(Scheduler *s, const Ast *a, int i)
{
    SchedText *t = s->text;
    const Ast *name = a->args.first, *size = a->args.last;
    if (a->args.n > 3) {
        fault(s, a->span, "expected a coordinate and its size, such as r of G or node n of N");
        return;
    }
    if (a->args.n == 3) {
        level(s, name, i);
        name = name->next;
    } else {
        t->way_name[i] = name->text;
    }
    t->coord_name[i] = t->var_name[i] = name->text;
    t->size_name[i] = t->var_name[MAX_COORDS + i] = size->text;
    s->range[i] = (Range){0, MAX_RANKS - 1};
    s->range[MAX_COORDS + i] = (Range){1, MAX_RANKS};
}

static void distinct_names(Scheduler *s, Span at)
{
    for (int i = 0; i < FIRST_LOOP; i++)
        for (int j = 0; j < i; j++)
            if (s->text->var_name[i] && s->text->var_name[j] &&
                strcmp(s->text->var_name[i], s->text->var_name[j]) == 0)
                fault(s, at,
                      arena_printf(s->c->arena, "'%s' is named twice among the coordinates and sizes",
                                   s->text->var_name[i]));
}

static void pieces(Scheduler *s, const Ast *a)
{
    enum { MOST_PIECES = 16 };
    const bool fine = a->kind == A_NUMBER && a->number.is_whole && a->number.unit == UNIT_NONE &&
                      a->number.whole >= 1 && a->number.whole <= MOST_PIECES;
    s->text->pieces = fine ? (int)a->number.whole : 1;
    if (!fine)
        fault(s, a->span,
              arena_printf(s->c->arena, "the number of pieces must be from 1 to %d, such as pieces 2",
                           MOST_PIECES));
}

bool schedule_head(Scheduler *s, const Ast *a)
{
    if (a->args.n > MAX_COORDS) {
        fault(s, a->args.last->span,
              arena_printf(s->c->arena,
                           "%d coordinates are too many; a schedule has at "
                           "most %d",
                           a->args.n, MAX_COORDS));
        return false;
    }
    if (a->more.n)
        pieces(s, a->more.first);
    s->text->coords = a->args.n;
    s->text->vars = FIRST_LOOP;
    int i = 0;
    for (const Ast *coord = a->args.first; coord; coord = coord->next)
        coordinate(s, coord, i++);
    distinct_names(s, a->span);
    return !s->failed;
}
