/* step/passes/tile.c: operations of a block as loops over one dimension, and copies a turn ahead of a loop.
 */
#include "step/step.h"

#include <string.h>

/* Whether it reads what the other writes, or adds to what that begins. */
static bool needs(const Op *o, const Op *writer)
{
    bool does = false;
    for (int j = 0; j < OP_WRITES && writer->write[j].value >= 0; j++) {
        for (int i = 0; i < OP_READS; i++)
            does |= o->read[i].value == writer->write[j].value;
        for (int i = 0; i < OP_WRITES && !writer->adds[j]; i++)
            does |= o->adds[i] && o->write[i].value == writer->write[j].value;
    }
    return does;
}

/* The operation at `at` goes before the loop that begins at `first`. */
static void move_before(Block *b, int at, int first)
{
    const Op moved = b->ops.at[at];
    memmove(&b->ops.at[first + 1], &b->ops.at[first], sizeof(Op) * (size_t)(at - first));
    b->ops.at[first] = moved;
}

static bool needs_loop(const Block *b, int first, int end, int from, int to)
{
    for (int i = from; i < to; i++)
        for (int j = first; j < end; j++)
            if (needs(&b->ops.at[i], &b->ops.at[j]))
                return true;
    return false;
}

/* Whether it reads what attention adds to for all keys with every chunk. */
static bool reads_sums(const Step *s, const Block *b, int first, int end, const Op *o)
{
    for (int i = first; i < end; i++)
        for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++)
            for (int k = 0; k < OP_WRITES; k++)
                if (b->ops.at[i].write[k].value == o->read[j].value &&
                    op_takes_keys(s, &b->ops.at[i], o->read[j].value))
                    return true;
    return false;
}

/* Behind the last operation that makes keys that it reads: what follows stays with it. */
static int behind_keys(const Step *s, const Block *b, int first, int end, const Op *o)
{
    for (int i = end - 1; i >= first; i--)
        for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++)
            if (op_takes_keys(s, o, o->read[j].value) && b->ops.at[i].write[0].value == o->read[j].value)
                return i + 1;
    return first;
}

/* Makes loops of the operations that the predicate takes, in their order, inside the scope that they are in,
 * each of one group of experts.
 * An operation joins the loop before it, and what stands between goes before that, unless it needs what the
 * loop makes. A loop over tokens ends where its sums are read, and one begins with the first operation that
 * reads all keys. */
void step_tile(Step *s, Block *b, LoopDim d, bool (*takes)(const Step *s, const Op *o))
{
    int first = -1, end = -1, scope = 0, around = 0; /* of the loop so far */
    const bool rows = d == LOOP_TOKENS;
    for (int i = 0; i < b->ops.n; i++) {
        if (!takes(s, &b->ops.at[i]))
            continue;
        if (first < 0 || b->ops.at[i].scope != around || b->ops.at[i].group != b->ops.at[first].group ||
            needs_loop(b, first, end, end, i) || (rows && reads_sums(s, b, first, end, &b->ops.at[i]))) {
            around = b->ops.at[i].scope;
            first = end = i, scope = scope_add(s, (Scope){SCOPE_LOOP, d, around});
        }
        const int begin = rows ? behind_keys(s, b, first, end, &b->ops.at[i]) : first;
        if (begin > first)
            scope = scope_add(s, (Scope){SCOPE_LOOP, d, around});
        for (first = begin; end < i; first++, end++)
            move_before(b, end, first);
        end++;
        for (int k = first; k < end; k++)
            b->ops.at[k].scope = scope;
    }
}

/* ---- prefetch ---- */

static int ahead_in(const Step *s, int loop)
{
    for (int i = s->scopes.n - 1; i > 0; i--)
        if (s->scopes.at[i].kind == SCOPE_AHEAD && s->scopes.at[i].around == loop)
            return i;
    return 0;
}

int step_ahead(Step *s, int loop, int turns)
{
    Scope early = s->scopes.at[loop];
    if (ahead_in(s, loop))
        return ahead_in(s, loop);
    early.turns = turns;
    return scope_add(s, (Scope){SCOPE_AHEAD, early.dim, loop, turns, scope_add(s, early)});
}

int step_prefetch(Step *s, Block *b, int at, Op copy)
{
    const int loop = op_loop(s, &b->ops.at[at], LOOP_TOKENS), ahead = step_ahead(s, loop, 1);
    const int begin = scope_begin(s, b, at, loop);
    copy.scope = ahead;
    op_insert(s, b, begin, copy);
    copy.scope = s->scopes.at[ahead].early;
    op_insert(s, b,
              begin > 0 && b->ops.at[begin - 1].scope == copy.scope ? scope_begin(s, b, begin - 1, copy.scope)
                                                                    : begin,
              copy);
    return begin + 1;
}
