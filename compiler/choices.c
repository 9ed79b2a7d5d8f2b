/* choices.c: the words of a layout's choices whose rows are in burst.h. */
#include "burst.h"

#include <math.h>
#include <string.h>

const char *const recompute_names[RECOMPUTES] = {
#define X(id, name, saved) name,
    RECOMPUTE_ROWS(X)
#undef X
};
const char *const recompute_saved[RECOMPUTES] = {
#define X(id, name, saved) saved,
    RECOMPUTE_ROWS(X)
#undef X
};
const char *const range_names[2] = {"no", "yes"};
const char *const sharding_names[SHARDINGS] = {
#define X(id, name, weights, gradients) name,
    SHARDING_ROWS(X)
#undef X
};

bool choice_keeps_tail(const Choice *c) { return c->recompute == RECOMPUTE_TAIL && !c->saving.upper; }

int64_t tail_tokens(double share, int64_t tokens)
{
    const int64_t kept = llround(share * (double)tokens);
    return kept < 1 ? 1 : kept < tokens ? kept : tokens - 1;
}

/* ---- what layers save ---- */

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

const char *saving_text(Arena *a, Saving v)
{
    const char *text = "", *names = recompute_saved[RECOMPUTE_NONE];
    for (int r = 0; r < RECOMPUTES; r++)
        if (same_sets(v.lower, recompute_saved[r]) && same_sets(v.upper, recompute_saved[r]))
            return recompute_names[r];
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
