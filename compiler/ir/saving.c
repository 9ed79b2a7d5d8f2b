/* ir/saving.c: what layers save from forward for backward, as sets of names of the step's values.
 *
 * A rule of recomputation is a set. What a layout says, and what the search decides, are sets too.
 */
#include "ir/choice.h"

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
    return (Saving){rule_saves[rule], rule_saves[rule], 0, tail, 0};
}

int saving_group(Saving v) { return v.group > 1 ? v.group : 1; }

bool names_same(const char *x, const char *y) { return strcmp(x ? x : "", y ? y : "") == 0; }

bool saving_same(Saving v, Saving w)
{
    return names_same(v.lower, w.lower) && names_same(v.upper, w.upper) && v.from == w.from &&
           v.tail == w.tail && saving_group(v) == saving_group(w);
}

Saving saving_of(const Choice *c)
{
    return c->saving.upper ? c->saving : saving_by(RECOMPUTE_NONE, 0);
}

bool choice_keeps_tail(const Choice *c) { return saves(saving_of(c).upper, "o_tail"); }

double choice_tail(const Choice *c) { return choice_keeps_tail(c) ? saving_of(c).tail : 0; }

int64_t tail_tokens(double share, int64_t tokens)
{
    const int64_t kept = llround(share * (double)tokens);
    if (kept < 1)
        return 1;
    return kept < tokens ? kept : tokens - 1;
}

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

Recompute saving_rule(Saving v)
{
    int r = 0;
    while (r < RECOMPUTES && !(same_sets(v.lower, rule_saves[r]) && same_sets(v.upper, rule_saves[r])))
        r++;
    return (Recompute)r;
}

const char *saving_text(Arena *a, Saving v)
{
    const Recompute rule = saving_rule(v);
    const char *text = "", *names = saved_most();
    if (saving_group(v) > 1)
        return arena_printf(a, "%s(%d)", recompute_names[rule], v.group);
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
