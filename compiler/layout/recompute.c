/* layout/recompute.c: what layers save from forward for backward, and the row `recompute` of layout/table.c.
 *
 * A rule of recomputation is a set of values by their names. What a layout says, and what the search decides, are sets too.
 */
#include "ir/burst.h"

#include <math.h>
#include <string.h>

const char *const recompute_names[RECOMPUTES] = {
#define X(id, name, saved) name,
    RECOMPUTE_ROWS(X)
#undef X
};
static const char *const rule_saves[RECOMPUTES] = {
#define X(id, name, saved) saved,
    RECOMPUTE_ROWS(X)
#undef X
};

const char *saved_most(void) { return rule_saves[RECOMPUTE_NONE]; }
const char *saved_least(void) { return rule_saves[RECOMPUTE_FULL]; }

Saving saving_by(Recompute rule, double tail)
{
    return (Saving){rule_saves[rule], rule_saves[rule], 0, tail};
}

Saving saving_of(const Choice *c)
{
    return c->saving.upper ? c->saving : saving_by(RECOMPUTE_NONE, 0);
}

bool choice_keeps_tail(const Choice *c) { return saves(saving_of(c).upper, "o_tail"); }

int64_t tail_tokens(double share, int64_t tokens)
{
    const int64_t kept = llround(share * (double)tokens);
    return kept < 1 ? 1 : kept < tokens ? kept : tokens - 1;
}

/* ---- sets of names ---- */

static bool saves_word(const char *set, const char *name, size_t n)
{
    for (const char *at = set + 1; *at; at += strcspn(at, " ") + 1)
        if (strcspn(at, " ") == n && memcmp(at, name, n) == 0)
            return true;
    return false;
}

bool saves(const char *set, const char *name) { return saves_word(set, name, strlen(name)); }

static bool same_sets(const char *a, const char *b)
{
    for (int k = 0; k < 2; k++) {
        const char *from = k ? b : a, *in = k ? a : b;
        for (const char *at = from + 1; *at; at += strcspn(at, " ") + 1)
            if (!saves_word(in, at, strcspn(at, " ")))
                return false;
    }
    return true;
}

/* RECOMPUTES: none says just that. */
static Recompute rule_of(Saving v)
{
    int r = 0;
    while (r < RECOMPUTES && !(same_sets(v.lower, rule_saves[r]) && same_sets(v.upper, rule_saves[r])))
        r++;
    return (Recompute)r;
}

const char *saving_text(Arena *a, Saving v)
{
    const Recompute rule = rule_of(v);
    const char *text = "", *names = saved_most();
    if (rule < RECOMPUTES)
        return rule == RECOMPUTE_TAIL ? arena_printf(a, "tail(%.10g)", v.tail) : recompute_names[rule];
    for (const char *at = names + 1; *at; at += strcspn(at, " ") + 1) {
        const int n = (int)strcspn(at, " ");
        const char *comma = *text ? ", " : "";
        if (n == 1 && *at == 'x')
            continue;
        if (saves_word(v.lower, at, (size_t)n))
            text = arena_printf(a, "%s%s%.*s", text, comma, n, at);
        else if (saves_word(v.upper, at, (size_t)n))
            text = arena_printf(a, "%s%s%.*s(%d)", text, comma, n, at, v.from);
    }
    return arena_printf(a, "save(%s)", text);
}

/* ---- the row `recompute` ---- */

/* Left open, by need: what `none` saves, then less and less of it; or the rules in their order, of tail first those that keep most. */
int saving_other_way(const Program *p)
{
    return p->layout.saving.upper ? 0 : SAVING_LEVELS + 1;
}

int saving_count(const Program *p)
{
    return p->layout.saving.upper ? 1 : saving_other_way(p) + RECOMPUTE_TAIL - 1 + TAIL_LEVELS - 1;
}

/* Attention of a rank's first tokens alone: forward again with fewer queries, which are at home throughout. */
static const char *tail_why_not(const Program *p, const Choice *c)
{
    if (choice_exchanges(c))
        return "`recompute tail` attends some of a rank's own tokens again, and an all-to-all mixes those of several ranks; "
               "use a ring, or `recompute selective`";
    if (choice_moves_queries(c, false))
        return "`recompute tail` attends a rank's own queries again, and forward of this schedule passes queries or outputs on; use a schedule "
               "that passes KV alone, such as ring, or `recompute selective`";
    return p->sequence > c->ranks ? NULL : /* the rank with most has two then, however tokens are shared out */
           "`recompute tail` needs a rank with two tokens, one to keep and one to attend again, and the sequence has no more tokens than ranks "
           "share it; use `recompute selective`";
}

bool saving_take(const Program *p, Choice *c, int n)
{
    const int rule = n - saving_other_way(p) + 1, tail = rule - RECOMPUTE_TAIL;
    const bool given = p->layout.saving.upper;
    c->spared = given || rule > 0 ? 0 : n;
    c->saving = p->layout.saving;
    if (given || rule < 1)
        return true;
    c->saving = tail < 0 ? saving_by((Recompute)rule, 0) : saving_by(RECOMPUTE_TAIL, 1 - (1.0 + tail) / TAIL_LEVELS);
    return tail < 0 || !tail_why_not(p, c);
}

const char *saving_why_no_chunks(const Choice *c, bool heads)
{
    return !choice_keeps_tail(c) ? NULL :
           heads ? "`recompute tail` is not planned yet with chunks of heads; use `recompute selective`, or `head chunks 1`" :
           "`recompute tail` attends a rank's first queries again, and `token chunks` with `attention` some at a time; use `recompute selective`, "
           "or leave `attention` out";
}

const char *saving_fewer(void)
{
    return "save fewer values with `recompute`";
}

const char *saving_again_text(Arena *a, const char *block)
{
    return arena_printf(a, "rest of %s, recomputed", block);
}

const char *saving_why_not(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return choice_keeps_tail(c) ? tail_why_not(p, c) : NULL;
}

/* Rules by their names, without one that does not work here, and what the layout says layers save. */
bool saving_other(const Program *p, Choice *c, int n)
{
    const Saving given = p->layout.saving;
    n += n >= RECOMPUTE_TAIL && tail_why_not(p, c);
    c->saving = n < RECOMPUTES ? saving_by((Recompute)n, given.tail > 0 ? given.tail : 0.5) : given;
    c->spared = 0;
    return n < RECOMPUTES || (n == RECOMPUTES && given.upper && rule_of(given) == RECOMPUTES);
}

const char *saving_choice_text(Arena *a, const Choice *c)
{
    return saving_text(a, saving_of(c));
}
