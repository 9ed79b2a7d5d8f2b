/* search/advise.c: where nothing fits, which settings that the layout gives would make it fit if they were
 * left to the search. Each is tried alone, with the candidate that came nearest: a few candidates for
 * each. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

/* A setting, left to the search; false: it is already. Rows that are decided by need go on from their
 * first value by themselves; of others each value is tried. */
typedef struct Opening { const char *row; bool (*open)(Layout *l); } Opening;

static bool open_setting(Setting *s)
{
    const bool was = s->is_auto;
    s->is_auto = true;
    return !was;
}

static bool open_ffn_chunks(Layout *l) { return open_setting(&l->ffn_chunks); }
static bool open_offload(Layout *l) { return open_setting(&l->offload); }
static bool open_head_chunks(Layout *l) { return open_setting(&l->head_chunks); }
static bool open_loss_tile(Layout *l) { return open_setting(&l->loss_tile); }

static bool open_fetch(Layout *l) { return open_setting(&l->fetch); }

static bool open_weights(Layout *l)
{
    l->within = (Setting){0};
    return open_setting(&l->weights);
}

static bool open_token_chunks(Layout *l)
{
    const bool given = open_setting(&l->token_chunks) || l->chunk_queries;
    l->token_chunks.value = 1;
    l->chunk_queries = l->chunk_keys = false;
    return given;
}

static bool open_recompute(Layout *l)
{
    const bool given = l->saving.upper;
    l->saving = (Saving){0};
    return given;
}

static const Opening openings[] = {
    {"recompute", open_recompute},       {"ffn chunks", open_ffn_chunks},     {"offload", open_offload},
    {"head chunks", open_head_chunks},   {"token chunks", open_token_chunks}, {"loss tile", open_loss_tile},
    {"fetch", open_fetch},               {"weights", open_weights},
};

static bool would_fit(Searcher *s, const Candidate *near, const Opening *o)
{
    Program *p = NEW(s->arena, Program);
    *p = *s->program;
    if (!o->open(&p->layout))
        return false;
    Searcher t = {.arena = s->arena,
                  .diags = diags_new(s->arena),
                  .program = p,
                  .effort = SEARCH_WHOLE,
                  .other = INFINITY,
                  .maps = s->maps};
    bool fits = false;
    const int row = dimension_row(o->row), values = dimensions[row].by_need ? 1 : search_values(&t, row);
    for (int n = 0; n < values; n++) {
        Candidate x = {.choice = near->choice};
        memcpy(x.value, near->value, sizeof x.value);
        if (search_take(&t, &x, row, n) && !choice_why_not(s->arena, p, &x.choice))
            search_by_need(&t, x);
    }
    for (int i = 0; i < t.all.n; i++)
        fits |= search_works(&t.all.at[i]) && !choice_why_not(s->arena, p, &t.all.at[i].choice);
    search_forget(&t);
    return fits;
}

void search_advise(Searcher *s, const Candidate *near)
{
    const char *names = "", *last = NULL;
    for (int i = 0; i < countof(openings); i++) {
        if (!would_fit(s, near, &openings[i]))
            continue;
        names = last ? arena_printf(s->arena, "%s%s`%s auto`", names, *names ? ", " : "", last) : names;
        last = openings[i].row;
    }
    if (last)
        diag_note(s->diags, (Span){0}, "%s%s`%s auto` would fit", names, *names ? " or " : "", last);
}
